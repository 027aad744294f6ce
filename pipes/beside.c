#include "pipes/beside.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define OPEN_TRIES 8 /* until the name and what is locked are the same */

void (*beside_step)(const char *what);

void beside_tell(const char *what)
{
	if (beside_step)
		beside_step(what);
}

/* Without trailing slashes, and without links if it is there. */
static char *resolve(const char *path)
{
	char *real = realpath(path, NULL);
	size_t n = strlen(path);

	if (real)
		return real;
	while (n > 1 && path[n - 1] == '/')
		n--;
	return xstrndup(path, n);
}

static int split(struct beside *b, const char *full)
{
	const char *slash = strrchr(full, '/');
	const char *name = slash ? slash + 1 : full;
	char *parent;
	int rc = 0;

	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return log_error(E_USAGE, "%s is no place for a directory",
				 b->path);
	parent = slash ? xstrndup(full, (size_t)(slash - full) + 1)
		       : xstrdup(".");
	b->name = xstrdup(name);
	b->stage = xasprintf(".%s.weir-new", name);
	b->parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->parent_fd < 0)
		rc = log_errno(E_IO, "open %s, where %s is to be", parent,
			       b->path);
	free(parent);
	return rc;
}

/* Is fd what the stage's name stands for? */
static bool is_named(const struct beside *b, int fd)
{
	struct stat have, named;

	return fstat(fd, &have) == 0 &&
	       fstatat(b->parent_fd, b->stage, &named, AT_SYMLINK_NOFOLLOW) ==
		       0 &&
	       have.st_dev == named.st_dev && have.st_ino == named.st_ino;
}

/* 1: locked, 0: somebody moved it meanwhile. */
static int make_and_lock(struct beside *b)
{
	int fd;

	if (mkdirat(b->parent_fd, b->stage, 0777) < 0 && errno != EEXIST)
		return log_errno(E_IO, "make a directory beside %s", b->path);
	fd = openat(b->parent_fd, b->stage,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0
				       : log_errno(E_IO, "open %s beside %s",
						   b->stage, b->path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK
				 ? log_error(E_AGAIN,
					     "somebody else is writing %s now",
					     b->path)
				 : log_errno(E_IO, "lock %s", b->stage);

		close(fd);
		return rc;
	}
	if (!is_named(b, fd)) {
		close(fd);
		return 0;
	}
	b->fd = fd;
	return 1;
}

int beside_open(struct beside *b, const char *path)
{
	char *full = resolve(path);
	int rc;

	*b = (struct beside)BESIDE_INIT;
	b->path = xstrdup(path);
	rc = split(b, full);
	free(full);
	for (int i = 0; rc == 0 && i < OPEN_TRIES; i++)
		rc = make_and_lock(b);
	if (rc == 0)
		rc = log_error(E_AGAIN, "somebody else is writing %s now",
			       path);
	if (rc > 0)
		rc = io_remove_below(b->fd);
	if (rc < 0)
		beside_close(b);
	else
		beside_tell("stage made");
	return rc < 0 ? rc : 0;
}

void beside_sweep(const char *path)
{
	int was = log_quiet_thread(1);
	char *full = resolve(path);
	struct beside b = BESIDE_INIT;
	struct stat st;
	bool is_left;

	b.path = xstrdup(path);
	is_left = split(&b, full) == 0 &&
		  fstatat(b.parent_fd, b.stage, &st, AT_SYMLINK_NOFOLLOW) == 0;
	beside_close(&b);
	free(full);
	if (is_left && beside_open(&b, path) == 0)
		beside_close(&b);
	log_quiet_thread(was);
}

bool beside_is_free(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	bool is_free = true;

	if (!d)
		return errno == ENOENT;
	while (is_free && (e = readdir(d)))
		is_free = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	return is_free;
}

int beside_put(struct beside *b)
{
	int rc = io_fsync_dirs(b->fd);

	if (rc < 0)
		return rc;
	/* Of two directories, an empty one may be replaced and no other. */
	if (renameat(b->parent_fd, b->stage, b->parent_fd, b->name) < 0)
		return errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR
			       ? -E_AGAIN
			       : log_errno(E_IO, "rename to %s", b->path);
	beside_tell("put");
	return io_fsync_dir(b->parent_fd);
}

static int swap(int dirfd, const char *a, const char *b)
{
	return renameat2(dirfd, a, dirfd, b, RENAME_EXCHANGE);
}

static int cannot_exchange(const struct beside *b)
{
	return log_errno(E_IO,
			 "%s: its file system cannot exchange two directories "
			 "in one step; give -o NEWDIR",
			 b->path);
}

int beside_can_exchange(const struct beside *b)
{
	char *one = xasprintf("%s/one", b->stage);
	char *two = xasprintf("%s/two", b->stage);
	int rc = io_mkdir(b->fd, "one", 0700);

	if (rc == 0)
		rc = io_mkdir(b->fd, "two", 0700);
	if (rc == 0 && swap(b->parent_fd, one, two) < 0)
		rc = cannot_exchange(b);
	unlinkat(b->fd, "one", AT_REMOVEDIR);
	unlinkat(b->fd, "two", AT_REMOVEDIR);
	free(one);
	free(two);
	return rc;
}

/* What stands in the place, locked: once it is exchanged, its name is that
 * of a thing being built, and who opens that must find it taken. */
static int lock_place(const struct beside *b, const struct stat *old)
{
	int fd = openat(b->parent_fd, b->name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat now;
	int rc;

	if (fd < 0)
		return log_errno(E_IO, "open %s", b->path);
	if (fstat(fd, &now) < 0 || now.st_dev != old->st_dev ||
	    now.st_ino != old->st_ino)
		rc = log_error(E_AGAIN, "%s is another directory by now",
			       b->path);
	else if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		rc = log_errno(E_AGAIN, "lock %s", b->path);
	else
		return fd;
	close(fd);
	return rc;
}

int beside_exchange(struct beside *b, const struct stat *old)
{
	int rc = io_fsync_dirs(b->fd);
	int fd = rc < 0 ? rc : lock_place(b, old);

	if (fd < 0)
		return fd;
	if (swap(b->parent_fd, b->stage, b->name) < 0) {
		rc = cannot_exchange(b);
	} else {
		beside_tell("exchanged");
		rc = io_fsync_dir(b->parent_fd);
	}
	/* Not before the exchange is durable: power may fail in between. */
	if (rc == 0 && !is_named(b, b->fd))
		rc = io_remove_tree(b->parent_fd, b->stage);
	close(fd);
	if (rc == 0)
		beside_tell("old removed");
	return rc;
}

void beside_close(struct beside *b)
{
	if (b->fd >= 0) {
		if (is_named(b, b->fd))
			io_remove_tree(b->parent_fd, b->stage);
		close(b->fd);
	}
	if (b->parent_fd >= 0)
		close(b->parent_fd);
	free(b->path);
	free(b->name);
	free(b->stage);
	*b = (struct beside)BESIDE_INIT;
}
