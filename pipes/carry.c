#include "pipes/carry.h"
#include "common/buf.h"
#include "common/cached.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/slotfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define STEP ((size_t)1 << 20) /* bytes of a plain copy at a time */
#define DEPTH_MAX 16u

/* Owner first: changing it may clear bits of the mode. */
static int take_looks(int fd, const struct stat *st, const char *name)
{
	if (fchown(fd, st->st_uid, st->st_gid) < 0 && errno != EPERM)
		return log_errno(E_IO, "owner of %s", name);
	if (fchmod(fd, st->st_mode & 07777) < 0)
		return log_errno(E_IO, "mode of %s", name);
	return 0;
}

static int make_clone(int dirfd, const char *name, int from)
{
	int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
			0600);

	if (fd < 0)
		return log_errno(E_IO, "create %s", name);
	if (ioctl(fd, FICLONE, from) == 0)
		return fd;
	close(fd);
	unlinkat(dirfd, name, 0);
	return -E_AGAIN;
}

int carry_check_room(int dirfd, const char *name, uint64_t need)
{
	struct statfs fs;
	uint64_t have;

	if (!cached_is_tmpfs(dirfd) || fstatfs(dirfd, &fs) < 0 || !fs.f_blocks)
		return 0;
	have = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (need <= have)
		return 0;
	return log_error(E_IO, "no space for %s: need %llu bytes, have %llu",
			 name, (unsigned long long)need,
			 (unsigned long long)have);
}

/* Pages of memory are made when they are written. */
static int make_hollow(int dirfd, const char *name, uint64_t size)
{
	int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
			0600);

	if (fd < 0 || ftruncate(fd, (off_t)size) == 0)
		return fd < 0 ? log_errno(E_IO, "create %s", name) : fd;
	close(fd);
	return log_errno(E_IO, "create %s", name);
}

static int make_room(int dirfd, const char *name, uint64_t size)
{
	struct slotfile f;
	int rc, fd;

	if (cached_is_tmpfs(dirfd))
		return make_hollow(dirfd, name, size);
	rc = slotfile_create(&f, dirfd, name, size);
	if (rc < 0)
		return rc;
	fd = fcntl(f.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = log_errno(E_IO, "create %s", name);
	slotfile_release(&f);
	return fd;
}

int carry_new(int dirfd, const char *name, int from, bool *is_clone)
{
	struct stat st;
	int fd;

	if (fstat(from, &st) < 0)
		return log_errno(E_IO, "stat %s", name);
	fd = make_clone(dirfd, name, from);
	*is_clone = fd >= 0;
	return fd == -E_AGAIN ? make_room(dirfd, name, (uint64_t)st.st_size)
			      : fd;
}

int carry_make(int dirfd, const char *name, int from, bool *is_clone)
{
	int fd = carry_new(dirfd, name, from, is_clone), rc = 0;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(from, &st) < 0)
		rc = log_errno(E_IO, "stat %s", name);
	if (rc == 0)
		rc = take_looks(fd, &st, name);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int copy_plainly(int from, int to, uint64_t off, uint64_t n,
			const char *name)
{
	char *p = xpages(STEP);
	int rc = 0;

	while (rc >= 0 && n > 0) {
		rc = io_pread_full(from, p, n < STEP ? n : STEP, (off_t)off);
		if (rc == 0)
			rc = log_error(E_DATA,
				       "%s became shorter while it was "
				       "copied",
				       name);
		if (rc < 0)
			break;
		n -= (uint64_t)rc;
		if (io_pwrite_full(to, p, (size_t)rc, (off_t)off) < 0)
			rc = -E_IO;
		else
			off += (uint64_t)rc;
	}
	free(p);
	return rc < 0 ? rc : 0;
}

int carry_range(int from, int to, uint64_t off, uint64_t n, const char *name)
{
	while (n > 0) {
		off64_t in = (off64_t)off, out = (off64_t)off;
		ssize_t k = copy_file_range(from, &in, to, &out, n, 0);

		if (k < 0 && errno == EINTR)
			continue;
		/* Whatever it is, the plain copy works or says why not. */
		if (k <= 0)
			return copy_plainly(from, to, off, n, name);
		off += (uint64_t)k;
		n -= (uint64_t)k;
	}
	return 0;
}

void carry_begin_sync(int fd, uint64_t off, uint64_t n)
{
	/* Whatever it says: fsync() is what counts. */
	(void)sync_file_range(fd, (off64_t)off, (off64_t)n,
			      SYNC_FILE_RANGE_WRITE);
}

/* A whole file, durable. */
static int carry_file(int from, int dirfd, const char *name)
{
	bool is_clone;
	struct stat st;
	int fd = carry_make(dirfd, name, from, &is_clone), rc = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		rc = log_errno(E_IO, "stat %s", name);
	if (rc == 0 && !is_clone)
		rc = carry_range(from, fd, 0, (uint64_t)st.st_size, name);
	if (rc == 0 && fsync(fd) < 0)
		rc = log_errno(E_IO, "fsync %s", name);
	if (close(fd) < 0 && rc == 0)
		rc = log_errno(E_IO, "close %s", name);
	return rc;
}

int carry_parents(int dirfd, const char *path)
{
	char *p = xstrdup(path);
	int rc = 0;

	for (char *s = strchr(p, '/'); rc == 0 && s; s = strchr(s + 1, '/')) {
		*s = '\0';
		rc = io_mkdir(dirfd, p, 0777);
		*s = '/';
	}
	free(p);
	return rc;
}

/* ---- trees ---- */

struct tree {
	const char *root; /* for messages */
	carry_skip_fn *skip;
	void *ctx;
};

static int carry_dir(const struct tree *t, int from, int to, const char *path,
		     unsigned depth);

static int carry_link(const struct tree *t, int from, int to, const char *name,
		      const char *path)
{
	char target[4096];
	ssize_t n = readlinkat(from, name, target, sizeof target - 1);

	if (n < 0)
		return log_errno(E_IO, "read link %s/%s", t->root, path);
	target[n] = '\0';
	if (symlinkat(target, to, name) < 0)
		return log_errno(E_IO, "link %s beside %s", path, t->root);
	return 0;
}

/* Links are refused between projects, on some file systems, and for files of
 * others (fs.protected_hardlinks): then it is copied. */
static int carry_regular(const struct tree *t, int from, int to,
			 const char *name, const char *path)
{
	int fd = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return log_errno(E_IO, "open %s/%s", t->root, path);
	if (linkat(from, name, to, name, 0) < 0)
		rc = carry_file(fd, to, name);
	else if (fsync(fd) < 0)
		rc = log_errno(E_IO, "fsync %s/%s", t->root, path);
	close(fd);
	return rc;
}

static int carry_sub(const struct tree *t, int from, int to, const char *name,
		     const char *path, unsigned depth)
{
	int a = openat(from, name,
		       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int b = -1, rc = a < 0 ? log_errno(E_IO, "open %s/%s", t->root, path)
			       : io_mkdir(to, name, 0777);

	if (rc == 0) {
		b = io_open_dir(to, name);
		rc = b < 0 ? b : carry_dir(t, a, b, path, depth + 1);
	}
	if (a >= 0)
		close(a);
	if (b >= 0)
		close(b);
	return rc;
}

static int carry_entry(const struct tree *t, int from, int to, const char *name,
		       const char *path, unsigned depth)
{
	struct stat st;

	if (t->skip(t->ctx, path))
		return 0;
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return log_errno(E_IO, "stat %s/%s", t->root, path);
	if (S_ISLNK(st.st_mode))
		return carry_link(t, from, to, name, path);
	if (S_ISREG(st.st_mode))
		return carry_regular(t, from, to, name, path);
	if (S_ISDIR(st.st_mode))
		return carry_sub(t, from, to, name, path, depth);
	return log_error(E_DATA, "%s/%s is neither file nor directory", t->root,
			 path);
}

static int carry_entries(const struct tree *t, DIR *d, int to, const char *path,
			 unsigned depth)
{
	struct dirent *e;
	int rc = 0;

	while (rc == 0 && (errno = 0, e = readdir(d))) {
		const char *name = e->d_name;
		char *below;

		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		below = *path ? xasprintf("%s/%s", path, name) : xstrdup(name);
		rc = carry_entry(t, dirfd(d), to, name, below, depth);
		free(below);
	}
	if (rc == 0 && errno)
		rc = log_errno(E_IO, "list %s/%s", t->root, path);
	return rc;
}

static int carry_dir(const struct tree *t, int from, int to, const char *path,
		     unsigned depth)
{
	int fd = io_open_dir(from, ".");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct stat st;
	int rc;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : log_errno(E_IO, "list %s", t->root);
	}
	if (depth > DEPTH_MAX)
		rc = log_error(E_DATA, "%s/%s: too deep", t->root, path);
	else
		rc = carry_entries(t, d, to, path, depth);
	if (rc == 0 && fstat(from, &st) < 0)
		rc = log_errno(E_IO, "stat %s/%s", t->root, path);
	if (rc == 0)
		rc = take_looks(to, &st, t->root);
	closedir(d);
	return rc;
}

int carry_tree(int from, int to, const char *path, carry_skip_fn *skip,
	       void *ctx)
{
	struct tree t = { path, skip, ctx };

	return carry_dir(&t, from, to, "", 0);
}
