/*
 * synced.h - what was not synced when a directory got its name.
 *
 *	synced_begin();
 *	...				wrapped calls come here
 *	synced_end();
 *	synced.appeared, synced.unsynced
 *
 * A directory that was built beside its place (beside.h) appears by a rename
 * of *.weir-new; all that is in it, at any depth, directories too, and the
 * directory itself, must have been synced by then.
 */
#ifndef WEIR_TESTS_SYNCED_H
#define WEIR_TESTS_SYNCED_H

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYNCED_MAX 256

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to,
		     unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to,
		     unsigned flags);

static struct {
	ino_t ino[SYNCED_MAX];
	size_t n;
	unsigned unsynced, appeared;
	int on;
	atomic_flag lock; /* files are synced by several threads */
} synced;

static void synced_begin(void)
{
	synced.n = 0;
	synced.unsynced = 0;
	synced.appeared = 0;
	synced.on = 1;
}

static void synced_end(void)
{
	synced.on = 0;
}

int __wrap_fsync(int fd)
{
	struct stat st;

	while (atomic_flag_test_and_set(&synced.lock))
		;
	if (synced.on && fstat(fd, &st) == 0 && synced.n < SYNCED_MAX)
		synced.ino[synced.n++] = st.st_ino;
	atomic_flag_clear(&synced.lock);
	return __real_fsync(fd);
}

static int synced_has(ino_t ino)
{
	for (size_t i = 0; i < synced.n; i++)
		if (synced.ino[i] == ino)
			return 1;
	return 0;
}

static void synced_look(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (!S_ISLNK(st.st_mode) && !synced_has(st.st_ino))) {
		printf("# %s was not synced\n", name);
		synced.unsynced++;
	}
	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			synced_look(dirfd(d), e->d_name);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
}

static void synced_rename(int at, const char *from)
{
	const char *end = strstr(from, ".weir-new");

	if (!synced.on || !end || end[strlen(".weir-new")])
		return;
	synced.appeared++;
	synced_look(at, from);
}

int __wrap_renameat(int a, const char *from, int b, const char *to)
{
	synced_rename(a, from);
	return __real_renameat(a, from, b, to);
}

int __wrap_renameat2(int a, const char *from, int b, const char *to,
		     unsigned flags)
{
	synced_rename(a, from);
	return __real_renameat2(a, from, b, to, flags);
}

#endif
