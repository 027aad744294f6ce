#include "srcdir.h"
#include "err.h"
#include "io.h"
#include "log.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROC_FD_MAX 32 /* "/proc/self/fd/" and a number */

static void proc_fd(char *out, int fd)
{
	snprintf(out, PROC_FD_MAX, "/proc/self/fd/%d", fd);
}

/* Where fd is, in out (PATH_MAX bytes).  Not logged; errno tells. */
static int path_of_fd(int fd, char *out)
{
	char link[PROC_FD_MAX];
	ssize_t n;

	proc_fd(link, fd);
	n = readlink(link, out, PATH_MAX - 1);
	if (n < 0)
		return -E_IO;
	out[n] = '\0';
	return 0;
}

/* path without its last n parts, or NULL: there must be that many. */
static char *strip(const char *path, int n)
{
	char *s = xstrdup(path);

	while (n-- > 0) {
		char *slash = strrchr(s, '/');

		if (!slash || slash == s) {
			free(s);
			return NULL;
		}
		*slash = '\0';
	}
	return s;
}

static bool has_dir(const char *base, const char *name)
{
	char *path = xasprintf("%s/%s", base, name);
	struct stat st;
	bool is = stat(path, &st) == 0 && S_ISDIR(st.st_mode);

	free(path);
	return is;
}

static char *find_model(const char *real)
{
	char *snapshots = strip(real, 1);
	const char *last = snapshots ? strrchr(snapshots, '/') : NULL;
	bool cache = last && strcmp(last, "/snapshots") == 0;
	char *model = cache ? strip(snapshots, 1) : NULL;

	free(snapshots);
	if (model && has_dir(model, "blobs"))
		return model;
	free(model);
	return NULL;
}

int srcdir_open(struct srcdir *d, const char *path)
{
	char real[PATH_MAX];
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return log_errno(E_IO, "open source %s", path);
	if (path_of_fd(fd, real) < 0) {
		int rc = log_errno(E_IO, "find source %s by /proc", path);

		close(fd);
		return rc;
	}
	*d = (struct srcdir){
		.fd = fd,
		.path = xstrdup(path),
		.real = xstrdup(real),
		.model = find_model(real),
	};
	return 0;
}

void srcdir_release(struct srcdir *d)
{
	if (!d->path)
		return;
	close(d->fd);
	free(d->path);
	free(d->real);
	free(d->model);
	*d = (struct srcdir){ 0 };
}

static const char *bad_part(const char *p, size_t n)
{
	if (n == 0)
		return "an empty part";
	if (n == 1 && p[0] == '.')
		return "a part \".\"";
	if (n == 2 && p[0] == '.' && p[1] == '.')
		return "a part \"..\"";
	return NULL;
}

static const char *bad_byte(struct slice path)
{
	for (size_t i = 0; i < path.n;) {
		size_t n = utf8_print_len(path.p + i, path.n - i);

		if (n == 0 && utf8_len(path.p + i, path.n - i) > 0)
			return "a control character";
		if (n == 0)
			return "what is not UTF-8";
		if (path.p[i] == '\\')
			return "a backslash";
		i += n;
	}
	return NULL;
}

const char *srcdir_bad_path(struct slice path)
{
	const char *why = bad_byte(path), *slash;

	if (path.n == 0)
		return "no name";
	if (path.n > SRCDIR_PATH_MAX)
		return "too long a name";
	if (path.p[0] == '/')
		return "an absolute path";
	while (!why) {
		slash = memchr(path.p, '/', path.n);
		if (!slash)
			return bad_part(path.p, path.n);
		why = bad_part(path.p, (size_t)(slash - path.p));
		path.n -= (size_t)(slash - path.p) + 1;
		path.p = slash + 1;
	}
	return why;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = dir ? strlen(dir) : 0;

	if (n == 1) /* "/" */
		return true;
	return n && strncmp(path, dir, n) == 0 && path[n] == '/';
}

/* fd is O_PATH: it is here that links have been followed. */
static int check_place(const struct srcdir *d, const char *name, int fd)
{
	char where[PATH_MAX];
	struct stat st;

	if (path_of_fd(fd, where) < 0 || fstat(fd, &st) < 0)
		return log_errno(E_IO, "%s/%s", d->path, name);
	if (!is_below(where, d->real) && !is_below(where, d->model))
		return log_error(E_DATA, "%s/%s leads out of the source, to %s",
				 d->path, name, where);
	if (!S_ISREG(st.st_mode))
		return log_error(E_DATA, "%s/%s is not a regular file", d->path,
				 name);
	return 0;
}

static int identify(const struct srcdir *d, const char *name, int fd,
		    struct srcdir_id *id)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return log_errno(E_IO, "%s/%s", d->path, name);
	*id = (struct srcdir_id){
		.dev = st.st_dev,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) +
			    st.st_mtim.tv_nsec,
	};
	return 0;
}

/* O_PATH touches nothing, whatever the name leads to; only what has been
 * checked is opened to be read, and by the descriptor, not by the name. */
static int open_checked(const struct srcdir *d, const char *name)
{
	int path = openat(d->fd, name, O_PATH | O_CLOEXEC), fd, rc;
	char again[PROC_FD_MAX];

	if (path < 0 && (errno == ENOENT || errno == ENOTDIR))
		return -E_NOINPUT;
	/* What is wrong with these is the name, or a link. */
	if (path < 0)
		return log_errno(
			errno == ELOOP || errno == ENAMETOOLONG ? E_DATA : E_IO,
			"open %s/%s", d->path, name);
	rc = check_place(d, name, path);
	if (rc == 0) {
		proc_fd(again, path);
		fd = open(again, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		rc = fd < 0 ? log_errno(E_IO, "open %s/%s", d->path, name) : fd;
	}
	close(path);
	return rc;
}

int srcdir_open_file(const struct srcdir *d, const char *name,
		     struct srcdir_id *id)
{
	int fd = open_checked(d, name);
	int rc = fd < 0 ? fd : identify(d, name, fd, id);

	if (rc == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return rc;
}

static int changed(const struct srcdir *d, const char *name, const char *how)
{
	return log_error(E_DATA, "%s/%s changed since the plan: %s", d->path,
			 name, how);
}

int srcdir_check_same(const struct srcdir *d, const char *name, int fd,
		      const struct srcdir_id *planned)
{
	struct srcdir_id now;
	char how[96];
	int rc = identify(d, name, fd, &now);

	if (rc < 0)
		return rc;
	if (now.dev != planned->dev || now.ino != planned->ino)
		return changed(d, name, "it is another file");
	if (now.size != planned->size) {
		snprintf(how, sizeof how, "expected %llu bytes, found %llu",
			 (unsigned long long)planned->size,
			 (unsigned long long)now.size);
		return changed(d, name, how);
	}
	if (now.mtime_ns != planned->mtime_ns)
		return changed(d, name, "it was written to");
	return 0;
}

int srcdir_open_same(const struct srcdir *d, const char *name,
		     const struct srcdir_id *planned)
{
	int fd = open_checked(d, name), rc;

	if (fd == -E_NOINPUT)
		return changed(d, name, "it is gone");
	if (fd < 0)
		return fd;
	rc = srcdir_check_same(d, name, fd, planned);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}
