/*
 * files.h - files for unit tests: unlinked, with bytes that are told apart.
 */
#ifndef WEIR_TESTS_FILES_H
#define WEIR_TESTS_FILES_H

#include "common/log.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline void fill(void *out, size_t n, uint32_t seed)
{
	unsigned char *p = out;
	uint32_t x = seed;

	for (size_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = (unsigned char)(x >> 24);
	}
}

/* Writes it whole or stops the test. */
static inline int file_with(int fd, const void *p, size_t n)
{
	size_t done = 0;

	BUG_ON(fd < 0);
	while (done < n) {
		ssize_t w = pwrite(fd, (const char *)p + done, n - done,
				   (off_t)done);

		BUG_ON(w <= 0);
		done += (size_t)w;
	}
	return fd;
}

/* Where the tests run: a disk, as a rule. */
static inline int disk_file(const void *p, size_t n)
{
	const char *dir = getenv("TMPDIR");
	char name[4096];
	int fd;

	snprintf(name, sizeof name, "%s/weir-test-XXXXXX", dir ? dir : "/tmp");
	fd = mkstemp(name);
	if (fd >= 0)
		unlink(name);
	return file_with(fd, p, n);
}

/* A new directory, in memory where it can be: hundreds of files are synced. */
static inline void new_root(char *path, size_t size, const char *name)
{
	snprintf(path, size, "/dev/shm/%s.XXXXXX", name);
	if (!mkdtemp(path)) {
		snprintf(path, size, "/tmp/%s.XXXXXX", name);
		BUG_ON(!mkdtemp(path));
	}
}

static inline int memory_file(const void *p, size_t n)
{
	return file_with(memfd_create("weir-test", MFD_CLOEXEC), p, n);
}

#endif
