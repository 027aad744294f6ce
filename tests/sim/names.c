/* Calls of the simulated kernel on names, time and processes. */
#include "count.h"
#include "sim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define UID 1000

static uint64_t hash_of(const char *s)
{
	uint64_t h = 5381;

	while (*s)
		h = h * 33 + (unsigned char)*s++;
	return h;
}

/* ---- names ---- */

/* Of a name that is about to change. */
static uint32_t point(const char *what, int dirfd, const char *path)
{
	char name[NAME_MAX + 1];
	struct node *dir = disk_parent(fd_dir(dirfd), path, name);
	uint32_t move = count_coming(what, dir, name);

	sim_point(what, hash_of(path));
	return move;
}

int __wrap_linkat(int a, const char *from, int b, const char *to, int flags);
int __wrap_linkat(int a, const char *from, int b, const char *to, int flags)
{
	char name[NAME_MAX + 1];
	uint32_t move = point("link", b, to);
	struct node *n, *dir;

	(void)flags;
	n = disk_find(fd_dir(a), from, false);
	dir = n ? disk_parent(fd_dir(b), to, name) : NULL;
	if (!dir)
		return -1;
	if (disk_lookup(dir, name)) {
		errno = EEXIST;
		return -1;
	}
	if (disk_fails())
		return -1;
	disk_link(dir, name, n);
	count_crossed(move);
	sim_tell("%s links %s", sim.p->name, to);
	return 0;
}

static int rename_errno(const struct node *n, const struct node *old)
{
	if (!old || old == n)
		return 0;
	if (old->kind == N_DIR && n->kind != N_DIR)
		return EISDIR;
	if (old->kind != N_DIR && n->kind == N_DIR)
		return ENOTDIR;
	return old->kind == N_DIR && old->in.n ? ENOTEMPTY : 0;
}

int __wrap_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to)
{
	char old[NAME_MAX + 1], name[NAME_MAX + 1];
	uint32_t move = point("rename", b, to);
	struct node *src, *dst, *n;
	int e;

	src = disk_parent(fd_dir(a), from, old);
	n = src ? disk_lookup(src, old) : NULL;
	dst = n ? disk_parent(fd_dir(b), to, name) : NULL;
	if (!dst) {
		errno = ENOENT;
		return -1;
	}
	e = rename_errno(n, disk_lookup(dst, name));
	if (e) {
		errno = e;
		return -1;
	}
	if (disk_fails())
		return -1;
	disk_rename(src, old, dst, name);
	count_crossed(move);
	sim_tell("%s renames %s to %s", sim.p->name, from, to);
	return 0;
}

int __wrap_symlinkat(const char *target, int dirfd, const char *path);
int __wrap_symlinkat(const char *target, int dirfd, const char *path)
{
	char name[NAME_MAX + 1];
	uint32_t move = point("symlink", dirfd, path);
	struct node *dir, *n;

	dir = disk_parent(fd_dir(dirfd), path, name);
	if (!dir)
		return -1;
	if (disk_lookup(dir, name)) {
		errno = EEXIST;
		return -1;
	}
	if (disk_fails())
		return -1;
	n = disk_make(N_LINK, 0777);
	disk_write(n, 0, target, strlen(target));
	disk_sync(n); /* a link's text is written with it */
	disk_link(dir, name, n);
	count_crossed(move);
	return 0;
}

static int unlink_errno(const struct node *n, int flags)
{
	if (!n)
		return ENOENT;
	if (!(flags & AT_REMOVEDIR))
		return n->kind == N_DIR ? EISDIR : 0;
	if (n->kind != N_DIR)
		return ENOTDIR;
	return n->in.n ? ENOTEMPTY : 0;
}

int __wrap_unlinkat(int dirfd, const char *path, int flags);
int __wrap_unlinkat(int dirfd, const char *path, int flags)
{
	char name[NAME_MAX + 1];
	uint32_t move = point("unlink", dirfd, path);
	struct node *dir;
	int e;

	dir = disk_parent(fd_dir(dirfd), path, name);
	if (!dir)
		return -1;
	e = unlink_errno(disk_lookup(dir, name), flags);
	if (e) {
		errno = e;
		return -1;
	}
	disk_unlink(dir, name);
	count_crossed(move);
	return 0;
}

int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
	return __wrap_unlinkat(AT_FDCWD, path, 0);
}

int __wrap_mkdirat(int dirfd, const char *path, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *path, mode_t mode)
{
	char name[NAME_MAX + 1];
	uint32_t move = point("mkdir", dirfd, path);
	struct node *dir;

	dir = disk_parent(fd_dir(dirfd), path, name);
	if (!dir)
		return -1;
	if (disk_lookup(dir, name)) {
		errno = EEXIST;
		return -1;
	}
	if (disk_fails())
		return -1;
	disk_link(dir, name, disk_make(N_DIR, mode & 0777));
	count_crossed(move);
	return 0;
}

int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
	return __wrap_mkdirat(AT_FDCWD, path, mode);
}

ssize_t __wrap_readlinkat(int dirfd, const char *path, char *out, size_t size);
ssize_t __wrap_readlinkat(int dirfd, const char *path, char *out, size_t size)
{
	struct node *n = disk_find(fd_dir(dirfd), path, false);

	if (!n)
		return -1;
	if (n->kind != N_LINK) {
		errno = EINVAL;
		return -1;
	}
	if (size > n->size)
		size = n->size;
	memcpy(out, n->data, size);
	return (ssize_t)size;
}

/* Of /proc/self/fd/N, which is all that is asked for. */
ssize_t __wrap_readlink(const char *path, char *out, size_t size);
ssize_t __wrap_readlink(const char *path, char *out, size_t size)
{
	const char *slash = strrchr(path, '/');
	struct file *f = slash ? fd_get(atoi(slash + 1)) : NULL;
	char where[PATH_MAX];
	size_t n;

	if (!f || !f->node) {
		errno = ENOENT;
		return -1;
	}
	disk_path(f->node, where, sizeof where);
	n = strlen(where);
	memcpy(out, where, n < size ? n : size);
	return (ssize_t)(n < size ? n : size);
}

char *__wrap_realpath(const char *path, char *out);
char *__wrap_realpath(const char *path, char *out)
{
	struct node *n = disk_find(disk_root(), path, true);

	(void)out;
	if (!n)
		return NULL;
	out = malloc(PATH_MAX);
	disk_path(n, out, PATH_MAX);
	return out;
}

int __wrap_faccessat(int dirfd, const char *path, int mode, int flags);
int __wrap_faccessat(int dirfd, const char *path, int mode, int flags)
{
	(void)mode;
	(void)flags;
	sim_point("access", hash_of(path));
	return disk_find(fd_dir(dirfd), path, true) ? 0 : -1;
}

int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
	return __wrap_faccessat(AT_FDCWD, path, mode, 0);
}

int __wrap_chmod(const char *path, mode_t mode);
int __wrap_chmod(const char *path, mode_t mode)
{
	struct node *n = disk_find(disk_root(), path, true);

	if (!n)
		return -1;
	n->mode = mode & 0777;
	return 0;
}

int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	struct file *f = fd_get(fd);

	if (!f || !f->node)
		return -1;
	f->node->mode = mode & 0777;
	return 0;
}

/* ---- directories: what was there when it was opened ---- */

struct sim_dir {
	int fd;
	size_t n, at;
	struct dirent e;
	char name[][NAME_MAX + 1];
};

DIR *__wrap_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd)
{
	struct file *f = fd_get(fd);
	const struct entries *in = f ? &f->node->in : NULL;
	struct sim_dir *d;

	if (!f)
		return NULL;
	sim_point("readdir", in->n);
	d = malloc(sizeof *d + in->n * sizeof d->name[0]);
	d->fd = fd;
	d->n = in->n;
	d->at = 0;
	for (size_t i = 0; i < in->n; i++)
		snprintf(d->name[i], sizeof d->name[i], "%s", in->v[i].name);
	return (DIR *)d;
}

struct dirent *__wrap_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir)
{
	struct sim_dir *d = (struct sim_dir *)dir;

	if (d->at == d->n)
		return NULL;
	d->e = (struct dirent){ .d_type = DT_UNKNOWN };
	strcpy(d->e.d_name, d->name[d->at++]);
	return &d->e;
}

int __wrap_close(int fd);
int __wrap_closedir(DIR *dir);
int __wrap_closedir(DIR *dir)
{
	struct sim_dir *d = (struct sim_dir *)dir;

	__wrap_close(d->fd);
	free(d);
	return 0;
}

/* ---- streams: commit reads RUN/events by one, and tells people ---- */

ssize_t __wrap_read(int fd, void *p, size_t n);

static ssize_t stream_read(void *cookie, char *p, size_t n)
{
	return __wrap_read((int)(intptr_t)cookie, p, n);
}

static int stream_close(void *cookie)
{
	return __wrap_close((int)(intptr_t)cookie);
}

static void end_stream(void *p)
{
	(void)p; /* its descriptor is gone already: a few bytes stay */
}

FILE *__wrap_fdopen(int fd, const char *mode);
FILE *__wrap_fdopen(int fd, const char *mode)
{
	cookie_io_functions_t io = { .read = stream_read,
				     .close = stream_close };
	FILE *f = fopencookie((void *)(intptr_t)fd, mode, io);

	if (f)
		own_foreign(f, end_stream);
	return f;
}

int __real_fclose(FILE *f);
int __wrap_fclose(FILE *f);
int __wrap_fclose(FILE *f)
{
	disown_foreign(f);
	return __real_fclose(f);
}

int __wrap_fprintf(FILE *f, const char *fmt, ...);
int __wrap_fprintf(FILE *f, const char *fmt, ...)
{
	va_list ap;
	int rc = 0;

	if (sim.p)
		f = sim.trace;
	if (!f)
		return 0;
	va_start(ap, fmt);
	rc = vfprintf(f, fmt, ap);
	va_end(ap);
	return rc;
}

int __real_fflush(FILE *f);
int __wrap_fflush(FILE *f);
int __wrap_fflush(FILE *f)
{
	return sim.p ? 0 : __real_fflush(f);
}

size_t __real_fwrite(const void *p, size_t size, size_t n, FILE *f);
size_t __wrap_fwrite(const void *p, size_t size, size_t n, FILE *f);
size_t __wrap_fwrite(const void *p, size_t size, size_t n, FILE *f)
{
	return sim.p ? n : __real_fwrite(p, size, n, f);
}

/* ---- time ---- */

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	int64_t t = id == CLOCK_REALTIME ? sim.wall0 + sim.now : sim.now;

	if (!sim.p)
		return __real_clock_gettime(id, ts);
	*ts = (struct timespec){ .tv_sec = t / SIM_S, .tv_nsec = t % SIM_S };
	return 0;
}

time_t __wrap_time(time_t *out);
time_t __wrap_time(time_t *out)
{
	time_t t = (sim.wall0 + sim.now) / SIM_S;

	if (out)
		*out = t;
	return t;
}

unsigned __wrap_alarm(unsigned s);
unsigned __wrap_alarm(unsigned s)
{
	(void)s;
	return 0;
}

/* ---- processes ---- */

pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
	return sim.p ? sim.p->pid : 1;
}

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
	return UID;
}

int __wrap_kill(pid_t pid, int signo);
int __wrap_kill(pid_t pid, int signo)
{
	for (struct proc *p = sim.procs; p; p = p->next) {
		if (p->pid != pid)
			continue;
		if (signo)
			proc_signal(p, signo);
		return 0;
	}
	errno = ESRCH;
	return -1;
}

/* Never readable: who has ended is reaped at once here. */
int __wrap_pidfd_open(pid_t pid, unsigned flags);
int __wrap_pidfd_open(pid_t pid, unsigned flags)
{
	(void)flags;
	if (__wrap_kill(pid, 0) < 0)
		return -1;
	return fd_put(file_new(F_EVENT));
}

char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name);
char *__wrap_getenv(const char *name)
{
	static char text[16];

	if (!sim.p)
		return __real_getenv(name);
	if (sim.p->supervisor_fd < 0 || strcmp(name, "WEIR_SUPERVISOR_FD"))
		return NULL;
	snprintf(text, sizeof text, "%d", sim.p->supervisor_fd);
	return text;
}

ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags)
{
	(void)flags;
	for (size_t i = 0; i < n; i++)
		((unsigned char *)p)[i] = (unsigned char)rng_next(&sim.rng);
	return (ssize_t)n;
}

int __wrap_sigpending(sigset_t *set);
int __wrap_sigpending(sigset_t *set)
{
	sigemptyset(set);
	for (int i = 1; i < 32; i++)
		if (sim.p->pending >> i & 1)
			sigaddset(set, i);
	return 0;
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	(void)how;
	(void)set;
	(void)old;
	return 0;
}

void (*__wrap_signal(int signo, void (*fn)(int)))(int);
void (*__wrap_signal(int signo, void (*fn)(int)))(int)
{
	(void)signo;
	return fn;
}

int __wrap_isatty(int fd);
int __wrap_isatty(int fd)
{
	(void)fd;
	return 0;
}

_Noreturn void __wrap_exit(int code);
void __wrap_exit(int code)
{
	proc_exit(code);
}

_Noreturn void __real_abort(void);
_Noreturn void __wrap_abort(void);
void __wrap_abort(void)
{
	if (!sim.p)
		__real_abort();
	sim_break("BUG", "%s: %s", sim.p->name,
		  "a broken invariant of its own");
	proc_exit(128 + SIGABRT);
}

/* ---- what libraries keep for a process ---- */

void *__real_msgpack_zone_new(size_t n);
void __real_msgpack_zone_free(void *z);
void *__wrap_msgpack_zone_new(size_t n);
void *__wrap_msgpack_zone_new(size_t n)
{
	void *z = __real_msgpack_zone_new(n);

	if (z)
		own_foreign(z, __real_msgpack_zone_free);
	return z;
}

void __wrap_msgpack_zone_free(void *z);
void __wrap_msgpack_zone_free(void *z)
{
	disown_foreign(z);
	__real_msgpack_zone_free(z);
}
