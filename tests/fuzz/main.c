#include "tests/fuzz/fuzz.h"
#include "common/err.h"
#include "common/io.h"

#include <fcntl.h>
#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void target_fn(struct slice in);

static const struct {
	const char *name;
	target_fn *fn;
	size_t own; /* bytes that it may hold whatever the input */
} targets[] = {
#define X(name, own) { #name, fuzz_##name, (size_t)(own) << 10 },
	FUZZ_LIST(X)
#undef X
}, *target;

static char *dir_name;
static int dir = -1;
static int64_t held, most; /* bytes, since the target was called */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void remove_dir(void)
{
	close(dir);
	io_remove_tree(AT_FDCWD, dir_name);
	free(dir_name);
}

int fuzz_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	if (dir >= 0)
		return dir;
	dir_name = xasprintf("%s/weir-fuzz-XXXXXX", tmp ? tmp : "/tmp");
	BUG_ON(!mkdtemp(dir_name));
	dir = io_open_dir(AT_FDCWD, dir_name);
	BUG_ON(dir < 0);
	atexit(remove_dir);
	return dir;
}

const char *fuzz_path(void)
{
	fuzz_dir();
	return dir_name;
}

void fuzz_drop(const char *name)
{
	unlinkat(fuzz_dir(), name, 0);
}

void fuzz_file(const char *name, struct slice bytes)
{
	int fd = openat(fuzz_dir(), name,
			O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	BUG_ON(fd < 0 || io_write_full(fd, bytes.p, bytes.n) < 0);
	close(fd);
}

static void took(const volatile void *p, size_t n)
{
	(void)p;
	held += (int64_t)n;
	most = held > most ? held : most;
}

static void gave(const volatile void *p)
{
	held -= (int64_t)__sanitizer_get_allocated_size(p);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *name = getenv("FUZZ");

	(void)argc;
	(void)argv;
	for (size_t i = 0; name && i < COUNT(targets); i++)
		if (strcmp(name, targets[i].name) == 0)
			target = &targets[i];
	if (!target) {
		fprintf(stderr, "FUZZ=NAME, of:");
		for (size_t i = 0; i < COUNT(targets); i++)
			fprintf(stderr, " %s", targets[i].name);
		fprintf(stderr, "\n");
		exit(64);
	}
	log_init("fuzz", LOG_ERROR);
	log_quiet_thread(1);
	fuzz_dir();
	BUG_ON(!__sanitizer_install_malloc_and_free_hooks(took, gave));
	return 0;
}

static void check_memory(size_t n)
{
	int64_t may = (int64_t)(target->own + FUZZ_PER_BYTE * n);

	if (most > may)
		BUG("%s holds %lld bytes for an input of %zu, at most %lld",
		    target->name, (long long)most, n, (long long)may);
}

/* A copy of exactly that size: a read past the end is seen. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *copy = xmalloc(n);

	if (n > 0)
		memcpy(copy, p, n);
	held = most = 0;
	target->fn((struct slice){ copy, n });
	check_memory(n);
	free(copy);
	return 0;
}
