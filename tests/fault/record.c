/*
 * record.so - what a power cut may take back: every change to names below a
 * directory, and what each fsync made durable, of all processes in one order.
 *
 *	LD_PRELOAD=.../record.so RECORD_TOP=DIR RECORD_LOG=FILE weir-push ...
 *
 * One line for each call that succeeded, under one lock with the call itself:
 *
 *	create PATH | mkdir PATH | symlink PATH TO | link PATH FROM
 *	rename PATH FROM | exchange PATH FROM | unlink PATH
 *	sync PATH BLOB | syncdir PATH
 *
 * Separated by tabs, paths from DIR on.  BLOB is a copy of the file as it was
 * then, beside FILE.  power.py plays it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/opens.h"

#define BLOBS "%s.%ld"	/* log, number */
#define COPY_STEP 65536 /* bytes */

static struct {
	const char *top, *log;
	size_t ntop;
} record;

__attribute__((constructor)) static void init(void)
{
	record.log = getenv("RECORD_LOG");
	record.top = record.log ? getenv("RECORD_TOP") : NULL;
	record.ntop = record.top ? strlen(record.top) : 0;
}

/* The name from the top on; false: it is not below it. */
static bool below(int dirfd, const char *name, char out[PATH_MAX])
{
	char link[64], at[PATH_MAX / 2] = "";

	if (!record.top)
		return false;
	snprintf(link, sizeof link,
		 dirfd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
		 dirfd);
	if (*name != '/' && readlink(link, at, sizeof at - 1) < 0)
		return false;
	snprintf(out, PATH_MAX, "%s%s%.*s", at, *at && *name ? "/" : "",
		 PATH_MAX / 2 - 2, name);
	if (strncmp(out, record.top, record.ntop) || out[record.ntop] != '/')
		return false;
	memmove(out, out + record.ntop + 1, strlen(out) - record.ntop);
	return true;
}

/* The call and its line are one: nobody else's comes in between. */
static int begin(void)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, record.log,
			      O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		abort();
	return fd;
}

static void end(int fd, bool happened, const char *what, const char *path,
		const char *other)
{
	int saved = errno;
	char line[3 * PATH_MAX]; /* three of them fit */
	int n = snprintf(line, sizeof line, "%s\t%s\t%s\n", what, path, other);

	if (happened && syscall(SYS_write, fd, line, n) != n)
		abort();
	syscall(SYS_close, fd);
	errno = saved;
}

static int open_at(int dirfd, const char *name, int flags, mode_t mode)
{
	char path[PATH_MAX];
	int fd, log;
	bool made;

	if (!(flags & O_CREAT) || !below(dirfd, name, path))
		return (int)syscall(SYS_openat, dirfd, name, flags, mode);
	log = begin();
	made = faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
	fd = (int)syscall(SYS_openat, dirfd, name, flags, mode);
	end(log, fd >= 0 && made, "create", path, "");
	return fd;
}

int mkdirat(int dirfd, const char *name, mode_t mode)
{
	char path[PATH_MAX];
	int log, rc;

	if (!below(dirfd, name, path))
		return (int)syscall(SYS_mkdirat, dirfd, name, mode);
	log = begin();
	rc = (int)syscall(SYS_mkdirat, dirfd, name, mode);
	end(log, rc == 0, "mkdir", path, "");
	return rc;
}

int mkdir(const char *name, mode_t mode)
{
	return mkdirat(AT_FDCWD, name, mode);
}

int symlinkat(const char *to, int dirfd, const char *name)
{
	char path[PATH_MAX];
	int log, rc;

	if (!below(dirfd, name, path))
		return (int)syscall(SYS_symlinkat, to, dirfd, name);
	log = begin();
	rc = (int)syscall(SYS_symlinkat, to, dirfd, name);
	end(log, rc == 0, "symlink", path, to);
	return rc;
}

int symlink(const char *to, const char *name)
{
	return symlinkat(to, AT_FDCWD, name);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
	char path[PATH_MAX], other[PATH_MAX];
	int log, rc;

	if (!below(b, to, path) || !below(a, from, other))
		return (int)syscall(SYS_linkat, a, from, b, to, flags);
	log = begin();
	rc = (int)syscall(SYS_linkat, a, from, b, to, flags);
	end(log, rc == 0, "link", path, other);
	return rc;
}

int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	char path[PATH_MAX], other[PATH_MAX];
	int log, rc;

	if (!below(b, to, path) || !below(a, from, other))
		return (int)syscall(SYS_renameat2, a, from, b, to, flags);
	log = begin();
	rc = (int)syscall(SYS_renameat2, a, from, b, to, flags);
	end(log, rc == 0, flags & RENAME_EXCHANGE ? "exchange" : "rename", path,
	    other);
	return rc;
}

int renameat(int a, const char *from, int b, const char *to)
{
	return renameat2(a, from, b, to, 0);
}

int rename(const char *from, const char *to)
{
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int dirfd, const char *name, int flags)
{
	char path[PATH_MAX];
	int log, rc;

	if (!below(dirfd, name, path))
		return (int)syscall(SYS_unlinkat, dirfd, name, flags);
	log = begin();
	rc = (int)syscall(SYS_unlinkat, dirfd, name, flags);
	end(log, rc == 0, "unlink", path, "");
	return rc;
}

int unlink(const char *name)
{
	return unlinkat(AT_FDCWD, name, 0);
}

int rmdir(const char *name)
{
	return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

/* The file's content is now durable as it is. */
static void keep(int fd, char blob[PATH_MAX])
{
	static char buf[COPY_STEP];
	struct stat log;
	off_t at = 0;
	ssize_t n;
	int to;

	if (stat(record.log, &log) < 0)
		abort();
	snprintf(blob, PATH_MAX, BLOBS, record.log, (long)log.st_size);
	to = (int)syscall(SYS_openat, AT_FDCWD, blob,
			  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (to < 0)
		abort();
	while ((n = pread(fd, buf, sizeof buf, at)) > 0) {
		if (syscall(SYS_write, to, buf, n) != n)
			abort();
		at += n;
	}
	syscall(SYS_close, to);
}

/* A descriptor that only writes cannot be read again. */
static int reader_of(int fd)
{
	char self[64];

	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	return (int)syscall(SYS_openat, AT_FDCWD, self, O_RDONLY | O_CLOEXEC,
			    0);
}

static int sync_fd(int fd, long nr)
{
	char path[PATH_MAX], blob[PATH_MAX] = "";
	struct stat st;
	int log, rc, from;

	if (!below(fd, "", path) || fstat(fd, &st) < 0)
		return (int)syscall(nr, fd);
	log = begin();
	rc = (int)syscall(nr, fd);
	if (rc == 0 && S_ISREG(st.st_mode)) {
		from = reader_of(fd);
		keep(from, blob);
		syscall(SYS_close, from);
	}
	end(log, rc == 0, S_ISDIR(st.st_mode) ? "syncdir" : "sync", path, blob);
	return rc;
}

int fsync(int fd)
{
	return sync_fd(fd, SYS_fsync);
}

int fdatasync(int fd)
{
	return sync_fd(fd, SYS_fdatasync);
}
