/*
 * opens.h - what a preloaded library puts in the place of open and its kin.
 * Included once by each, which has open_at(), behind them all.
 */
#include <fcntl.h>
#include <stdarg.h>

/* Only then is there a mode. */
static bool makes(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static int open_at(int dirfd, const char *path, int flags, mode_t mode);

#define OPEN_MODE(flags, mode)                       \
	do {                                         \
		if (makes(flags)) {                  \
			va_list ap;                  \
			va_start(ap, flags);         \
			(mode) = va_arg(ap, mode_t); \
			va_end(ap);                  \
		}                                    \
	} while (0)

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = 0;

	OPEN_MODE(flags, mode);
	return open_at(dirfd, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int dirfd, const char *path, int flags, ...)
	__attribute__((alias("openat")));
