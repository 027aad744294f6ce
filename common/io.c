#include "io.h"
#include "err.h"
#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP 65536u     /* bytes asked for at once by io_read_file() */
#define TREE_DEPTH_MAX 32    /* levels; nothing of ours is deeper than 4 */
#define TMP_TRIES 1000	     /* names of a dead process with our pid */
#define COPY_STEP (1u << 20) /* bytes */

static void open_std(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null",
			 fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd)
			return;
}

void io_start(void)
{
	open_std();
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
}

/* Until n bytes or the end: count, or -1 with errno. */
static ssize_t read_all(int fd, void *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = read(fd, (char *)p + done, n - done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

/* All n bytes: 0, or -1 with errno. */
static int write_all(int fd, const void *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t w = write(fd, (const char *)p + done, n - done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -1;
		done += (size_t)w;
	}
	return 0;
}

/* What the kernel knows a descriptor by; "?" without /proc. */
static const char *path_of(int fd, char path[PATH_MAX])
{
	int saved = errno;
	char link[32];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	errno = saved;
	if (n < 0)
		return "?";
	path[n] = '\0';
	return path;
}

const char *io_where(int dirfd, const char *name, char out[IO_WHERE_MAX])
{
	char dir[PATH_MAX];

	if (dirfd == AT_FDCWD || name[0] == '/')
		return name;
	snprintf(out, IO_WHERE_MAX, "%s/%s", path_of(dirfd, dir), name);
	return out;
}

int io_read_full(int fd, void *p, size_t n)
{
	char path[PATH_MAX];
	ssize_t r;

	BUG_ON(n > INT_MAX);
	r = read_all(fd, p, n);
	if (r < 0)
		return log_errno(E_IO, "read %s", path_of(fd, path));
	return (int)r;
}

int io_write_full(int fd, const void *p, size_t n)
{
	char path[PATH_MAX];

	BUG_ON(n > INT_MAX);
	if (write_all(fd, p, n) < 0)
		return log_errno(E_IO, "write %s", path_of(fd, path));
	return (int)n;
}

int io_pread_full(int fd, void *p, size_t n, off_t off)
{
	size_t done = 0;
	char path[PATH_MAX];

	BUG_ON(n > INT_MAX);
	while (done < n) {
		ssize_t r = pread(fd, (char *)p + done, n - done,
				  off + (off_t)done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return log_errno(E_IO, "read %s at %lld",
					 path_of(fd, path), (long long)off);
		if (r == 0)
			break;
		done += (size_t)r;
	}
	return (int)done;
}

int io_pwrite_full(int fd, const void *p, size_t n, off_t off)
{
	size_t done = 0;
	char path[PATH_MAX];

	BUG_ON(n > INT_MAX);
	while (done < n) {
		ssize_t w = pwrite(fd, (const char *)p + done, n - done,
				   off + (off_t)done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return log_errno(E_IO, "write %s", path_of(fd, path));
		done += (size_t)w;
	}
	return (int)done;
}

static int open_at(int dirfd, const char *name, int flags, mode_t mode)
{
	int fd;

	do
		fd = openat(dirfd, name, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

static int fsync_fd(int fd)
{
	int rc;

	do
		rc = fsync(fd);
	while (rc < 0 && errno == EINTR);
	return rc;
}

/* To the end of fd, or to max + 1 bytes: one too many tells. */
static int read_to_end(int fd, size_t max, struct buf *out)
{
	char path[PATH_MAX];
	size_t got = 0;

	while (got <= max) {
		size_t want = max - got < READ_STEP ? max - got + 1 : READ_STEP;
		ssize_t n = read_all(fd, buf_reserve(out, want), want);

		if (n < 0)
			return log_errno(E_IO, "read %s", path_of(fd, path));
		out->n += (size_t)n;
		got += (size_t)n;
		if ((size_t)n < want)
			return 0;
	}
	return log_error(E_DATA, "%s is larger than %zu bytes",
			 path_of(fd, path), max);
}

/* In a directory that others fill one would never answer. */
static bool is_fifo(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

int io_read_file(int dirfd, const char *name, size_t max, struct buf *out)
{
	size_t before = out->n;
	bool is_users = dirfd == AT_FDCWD;
	char where[IO_WHERE_MAX];
	int fd = open_at(dirfd, name,
			 is_users ? O_RDONLY : O_RDONLY | O_NONBLOCK, 0);
	int rc;

	if (fd < 0 && errno == ENOENT)
		return -E_NOINPUT;
	if (fd < 0)
		return log_errno(E_IO, "open %s", io_where(dirfd, name, where));
	if (!is_users && is_fifo(fd))
		rc = log_error(E_DATA, "%s is not a regular file",
			       io_where(dirfd, name, where));
	else
		rc = read_to_end(fd, max, out);
	close(fd);
	if (rc < 0)
		out->n = before;
	return rc;
}

/* The directory must be synced later: a descriptor of its own, so that
 * AT_FDCWD works too. */
static int open_parent(struct io_stream *s, int dirfd, const char *name)
{
	const char *slash = strrchr(name, '/');
	char *dir;

	s->base = slash ? slash + 1 : name;
	dir = slash ? xstrndup(name, (size_t)(slash - name) + 1) : xstrdup(".");
	s->dirfd = open_at(dirfd, dir, O_RDONLY | O_DIRECTORY, 0);
	free(dir);
	if (s->dirfd < 0)
		return log_errno(E_IO, "open the directory of %s", name);
	return 0;
}

/* The name alone, in a directory that was opened before, says not where. */
static int stream_error(const struct io_stream *s, const char *doing)
{
	char where[IO_WHERE_MAX];

	return log_errno(E_IO, "%s %s", doing,
			 io_where(s->dirfd, s->base, where));
}

/* The next name that is made of this one; 0 or -E. */
static int next_tmp(const char *base, char tmp[NAME_MAX + 1])
{
	static atomic_uint serial;
	int len = snprintf(tmp, NAME_MAX + 1, IO_TMP_PREFIX "%s.%ld.%u", base,
			   (long)getpid(), atomic_fetch_add(&serial, 1));

	if (len > NAME_MAX)
		return log_error(E_IO, "name too long: %s", base);
	return 0;
}

/* A dead process may have had our pid (containers): go on to its next N. */
static int create_tmp(struct io_stream *s)
{
	for (int i = 0; i < TMP_TRIES; i++) {
		int rc = next_tmp(s->base, s->tmp);

		if (rc < 0)
			return rc;
		s->fd = open_at(s->dirfd, s->tmp, O_WRONLY | O_CREAT | O_EXCL,
				0644);
		if (s->fd >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	return stream_error(s, "create");
}

int io_stream_open(struct io_stream *s, int dirfd, const char *name)
{
	int rc = open_parent(s, dirfd, name);

	if (rc < 0)
		return rc;
	rc = create_tmp(s);
	if (rc < 0)
		close(s->dirfd);
	return rc;
}

int io_stream_add(struct io_stream *s, const void *p, size_t n)
{
	if (write_all(s->fd, p, n) < 0)
		return stream_error(s, "write");
	return 0;
}

void io_stream_drop(struct io_stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	unlinkat(s->dirfd, s->tmp, 0);
	close(s->dirfd);
}

/* Durable under the temporary name, which is dropped otherwise. */
static int finish_tmp(struct io_stream *s)
{
	int rc = 0, fd = s->fd;

	s->fd = -1;
	if (fsync_fd(fd) < 0)
		rc = stream_error(s, "fsync");
	if (close(fd) < 0 && rc == 0)
		rc = stream_error(s, "close");
	if (rc < 0)
		io_stream_drop(s);
	return rc;
}

int io_stream_replace(struct io_stream *s)
{
	int rc = finish_tmp(s);

	if (rc < 0)
		return rc;
	if (renameat(s->dirfd, s->tmp, s->dirfd, s->base) < 0) {
		rc = stream_error(s, "rename to");
		io_stream_drop(s);
		return rc;
	}
	rc = io_fsync_dir(s->dirfd);
	close(s->dirfd);
	return rc;
}

int io_stream_create_once(struct io_stream *s, bool *linked)
{
	int rc = finish_tmp(s);

	if (rc < 0)
		return rc;
	*linked = true;
	if (linkat(s->dirfd, s->tmp, s->dirfd, s->base, 0) < 0)
		rc = errno == EEXIST ? -E_AGAIN : stream_error(s, "link");
	/* Killed before this: two names, and the sweep drops this one. */
	unlinkat(s->dirfd, s->tmp, 0);
	if (rc == 0)
		rc = io_fsync_dir(s->dirfd);
	close(s->dirfd);
	return rc;
}

/* The whole content under the temporary name. */
static int fill(struct io_stream *s, int dirfd, const char *name, const void *p,
		size_t n)
{
	int rc = io_stream_open(s, dirfd, name);

	if (rc < 0)
		return rc;
	rc = io_stream_add(s, p, n);
	if (rc < 0)
		io_stream_drop(s);
	return rc;
}

int io_replace(int dirfd, const char *name, const void *p, size_t n)
{
	struct io_stream s;
	int rc = fill(&s, dirfd, name, p, n);

	return rc < 0 ? rc : io_stream_replace(&s);
}

int io_create_once(int dirfd, const char *name, const void *p, size_t n,
		   bool *linked)
{
	struct io_stream s;
	int rc = fill(&s, dirfd, name, p, n);

	return rc < 0 ? rc : io_stream_create_once(&s, linked);
}

/* The temporary name was there, or not, and is, or not, however that ended. */
static int replace_link(int dirfd, const char *tmp, const char *name,
			const char *target)
{
	char where[IO_WHERE_MAX];
	int rc = symlinkat(target, dirfd, tmp);

	if (rc < 0 && errno == EEXIST && unlinkat(dirfd, tmp, 0) == 0)
		rc = symlinkat(target, dirfd, tmp);
	if (rc == 0 && renameat(dirfd, tmp, dirfd, name) == 0)
		return 0;
	rc = log_errno(E_IO, "point %s to %s", io_where(dirfd, name, where),
		       target);
	unlinkat(dirfd, tmp, 0);
	return rc;
}

int io_replace_link(int dirfd, const char *name, const char *target)
{
	char tmp[NAME_MAX + 1];
	int rc = next_tmp(name, tmp);

	if (rc == 0)
		rc = replace_link(dirfd, tmp, name, target);
	return rc < 0 ? rc : io_fsync_dir(dirfd);
}

int io_copy(int fromfd, int tofd)
{
	char *p = xmalloc(COPY_STEP);
	int rc = 0, n = 0;

	while (rc >= 0 && (n = io_read_full(fromfd, p, COPY_STEP)) > 0)
		rc = io_write_full(tofd, p, (size_t)n);
	free(p);
	return rc < 0 ? rc : n;
}

int io_copy_once(int fromfd, int dirfd, const char *name)
{
	struct io_stream s;
	bool linked;
	int rc = io_stream_open(&s, dirfd, name);

	if (rc < 0)
		return rc;
	rc = io_copy(fromfd, s.fd);
	if (rc < 0) {
		io_stream_drop(&s);
		return rc;
	}
	return io_stream_create_once(&s, &linked);
}

int io_fsync_dir(int dirfd)
{
	char path[PATH_MAX];

	if (fsync_fd(dirfd) < 0)
		return log_errno(E_IO, "fsync %s", path_of(dirfd, path));
	return 0;
}

int io_mkdir(int dirfd, const char *name, mode_t mode)
{
	char where[IO_WHERE_MAX];
	struct stat st;

	if (mkdirat(dirfd, name, mode) == 0)
		return 0;
	if (errno != EEXIST)
		return log_errno(E_IO, "create directory %s",
				 io_where(dirfd, name, where));
	if (fstatat(dirfd, name, &st, 0) < 0)
		return log_errno(E_IO, "stat %s", io_where(dirfd, name, where));
	if (!S_ISDIR(st.st_mode))
		return log_error(E_IO, "%s is there and no directory",
				 io_where(dirfd, name, where));
	return 0;
}

int io_sync_parent(const char *path)
{
	char *copy = xstrdup(path);
	int fd = open_at(AT_FDCWD, dirname(copy), O_RDONLY | O_DIRECTORY, 0);
	int rc = 0;

	free(copy);
	if (fd < 0) /* not for us to read: then it is not ours to sync */
		return errno == EACCES
			       ? 0
			       : log_errno(E_IO, "open the parent of %s", path);
	rc = io_fsync_dir(fd);
	close(fd);
	return rc;
}

static int make_level(const char *path, mode_t mode)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return log_errno(E_IO, "create %s", path);
	return 0;
}

static int make_parent(const char *path)
{
	int rc = make_level(path, 0777);

	return rc < 0 ? rc : io_sync_parent(path);
}

int io_make_path(const char *path, mode_t mode)
{
	char *p = xstrdup(path);
	int rc = 0;

	for (char *s = p + 1; rc == 0 && *s; s++) {
		if (*s != '/' || s[-1] == '/')
			continue;
		*s = '\0';
		if (access(p, F_OK) < 0)
			rc = make_parent(p);
		*s = '/';
	}
	if (rc == 0)
		rc = make_level(path, mode);
	if (rc == 0)
		rc = io_sync_parent(path);
	free(p);
	return rc;
}

int io_open_dir(int dirfd, const char *name)
{
	int fd = open_at(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	char where[IO_WHERE_MAX];

	if (fd < 0)
		return log_errno(E_IO, "open directory %s",
				 io_where(dirfd, name, where));
	return fd;
}

typedef int entry_fn(int dirfd, const char *name, int arg);

/* Calls fn for each entry of the directory fd, which is closed. */
static int each_entry_take(int fd, entry_fn *fn, int arg)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int rc = 0, n = 0;

	if (!d) {
		rc = log_errno(E_IO, "read a directory");
		close(fd);
		return rc;
	}
	for (errno = 0; rc >= 0 && (e = readdir(d)); errno = 0) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		rc = fn(fd, e->d_name, arg);
		n += rc > 0;
	}
	if (rc >= 0 && errno)
		rc = log_errno(E_IO, "read a directory");
	closedir(d);
	return rc < 0 ? rc : n;
}

static int remove_entry(int dirfd, const char *name, int depth)
{
	int fd, rc;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return log_errno(E_IO, "remove %s", name);
	if (depth == 0)
		return log_error(E_IO, "remove %s: too deep", name);
	fd = open_at(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (fd < 0)
		return errno == ENOENT ? 0 : log_errno(E_IO, "remove %s", name);
	rc = each_entry_take(fd, remove_entry, depth - 1);
	if (rc < 0)
		return rc;
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return log_errno(E_IO, "remove directory %s", name);
	return 0;
}

static int sync_entry(int dirfd, const char *name, int depth)
{
	int fd = open_at(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	int rc;

	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP
			       ? 0
			       : log_errno(E_IO, "sync %s", name);
	rc = depth > 0 ? io_fsync_dir(fd)
		       : log_error(E_IO, "sync %s: too deep", name);
	if (rc == 0)
		return each_entry_take(fd, sync_entry, depth - 1);
	close(fd);
	return rc;
}

int io_fsync_dirs(int dirfd)
{
	int fd = io_open_dir(dirfd, ".");
	int rc = fd < 0 ? fd : each_entry_take(fd, sync_entry, TREE_DEPTH_MAX);

	return rc < 0 ? rc : io_fsync_dir(dirfd);
}

int io_remove_tree(int dirfd, const char *name)
{
	return remove_entry(dirfd, name, TREE_DEPTH_MAX);
}

int io_remove_below(int dirfd)
{
	int fd = io_open_dir(dirfd, ".");
	int rc =
		fd < 0 ? fd : each_entry_take(fd, remove_entry, TREE_DEPTH_MAX);

	return rc < 0 ? rc : 0;
}
