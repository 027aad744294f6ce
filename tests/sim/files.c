/* Descriptors of the simulated processes, and the calls on them. */
#include "files.h"
#include "mutant.h"
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct mapping {
	struct mapping *next;
	char *p;
	struct file *file;
};

/* ---- open files ---- */

struct file *file_new(enum file_kind_sim kind)
{
	struct file *f = sim_alloc(sizeof *f);

	f->kind = kind;
	f->refs = 1;
	f->owner = sim.p;
	return f;
}

void file_poke_owner(struct file *f)
{
	if (f && f->owner)
		proc_poke(f->owner);
}

static void unlock(struct file *f)
{
	if (f->locks)
		f->node->lock = NULL;
	if (f->locks_shared)
		f->node->shared--;
	f->locks = f->locks_shared = false;
}

static void close_pipe(struct file *f)
{
	struct pipe *p = f->pipe;

	p->ends[f->writes]--;
	p->end[f->writes] = NULL;
	file_poke_owner(p->end[!f->writes]);
	if (p->ends[0] + p->ends[1] == 0)
		sim_free(p);
}

static void close_watch(struct file *f)
{
	for (size_t i = 0; f->node && i < COUNT(f->node->watch); i++)
		if (f->node->watch[i] == f)
			f->node->watch[i] = NULL;
}

static bool can_write(const struct file *f)
{
	return (f->flags & O_ACCMODE) != O_RDONLY;
}

void file_drop(struct file *f)
{
	if (--f->refs > 0)
		return;
	switch (f->kind) {
	case F_NODE:
		unlock(f);
		f->node->opens--;
		f->node->writers -= can_write(f);
		break;
	case F_PIPE:
		close_pipe(f);
		break;
	case F_WATCH:
		close_watch(f);
		break;
	case F_PASS:
	case F_ACCEPT:
		pass_close(f);
		break;
	default:
		break;
	}
	sim_free(f);
}

void file_pipe(struct file *out[2])
{
	struct pipe *p = sim_alloc(sizeof *p);

	for (int i = 0; i < 2; i++) {
		out[i] = file_new(F_PIPE);
		out[i]->pipe = p;
		out[i]->writes = i == 1;
		p->ends[i] = 1;
		p->end[i] = out[i];
	}
}

int fd_put(struct file *f)
{
	for (int i = 0; i < FDS_MAX; i++) {
		if (sim.p->fd[i])
			continue;
		sim.p->fd[i] = f;
		return i;
	}
	file_drop(f);
	errno = EMFILE;
	return -1;
}

struct file *fd_get(int fd)
{
	struct file *f = fd >= 0 && fd < FDS_MAX ? sim.p->fd[fd] : NULL;

	if (!f)
		errno = EBADF;
	return f;
}

bool file_is_readable(const struct file *f)
{
	switch (f->kind) {
	case F_PIPE:
		return f->writes ? f->pipe->ends[0] == 0
				 : f->pipe->n > 0 || f->pipe->ends[1] == 0;
	case F_SIGNAL:
		return sim.p->pending != 0;
	case F_WATCH:
	case F_EVENT:
		return f->ready;
	case F_PASS:
	case F_ACCEPT:
		return pass_is_readable(f);
	default:
		return true;
	}
}

bool file_has_hung_up(const struct file *f)
{
	return f->kind == F_PIPE && f->pipe->ends[!f->writes] == 0;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	struct file *f = sim.p ? fd_get(fd) : NULL;

	if (!sim.p)
		return __real_close(fd);
	if (!f)
		return -1;
	sim.p->fd[fd] = NULL;
	file_drop(f);
	return 0;
}

/* ---- open ---- */

static struct file *open_node(struct node *n, int flags)
{
	struct file *f = file_new(F_NODE);

	f->flags = flags;
	f->node = n;
	n->opens++;
	n->writers += can_write(f);
	return f;
}

struct node *fd_dir(int dirfd)
{
	struct file *f;

	if (dirfd == AT_FDCWD)
		return disk_root();
	f = fd_get(dirfd);
	return f && f->kind == F_NODE ? f->node : NULL;
}

static struct node *create(struct node *dir, const char *path, mode_t mode)
{
	char name[NAME_MAX + 1];
	struct node *parent = disk_parent(dir, path, name), *n;

	if (!parent)
		return NULL;
	n = disk_make(N_FILE, mode & 0777);
	disk_link(parent, name, n);
	return n;
}

/* "/proc/self/fd/N": what that descriptor is, else NULL. */
static struct file *own_fd(const char *path)
{
	static const char prefix[] = "/proc/self/fd/";

	if (strncmp(path, prefix, sizeof prefix - 1) != 0)
		return NULL;
	return fd_get(atoi(path + sizeof prefix - 1));
}

static struct node *find_or_create(int dirfd, const char *path, int flags,
				   mode_t mode)
{
	struct node *dir = fd_dir(dirfd), *n;
	struct file *own = own_fd(path);

	if (own)
		return own->node;
	if (!dir)
		return NULL;
	n = disk_find(dir, path, !(flags & O_NOFOLLOW));
	if (n && (flags & O_CREAT) && (flags & O_EXCL)) {
		errno = EEXIST;
		return NULL;
	}
	if (n || !(flags & O_CREAT) || errno != ENOENT)
		return n;
	return create(dir, path, mode);
}

static int open_errno(const struct node *n, int flags)
{
	if ((flags & O_DIRECTORY) && n->kind != N_DIR)
		return ENOTDIR;
	if (n->kind == N_LINK && (flags & O_NOFOLLOW))
		return ELOOP;
	if (n->kind == N_SOCK)
		return ENXIO;
	if (n->kind == N_DIR && (flags & O_ACCMODE) != O_RDONLY)
		return EISDIR;
	return 0;
}

static int do_open(int dirfd, const char *path, int flags, mode_t mode)
{
	struct node *n;
	int e;

	sim_point("open", (uint64_t)flags);
	n = find_or_create(dirfd, path, flags, mode);
	if (!n)
		return -1;
	e = open_errno(n, flags);
	if (e) {
		errno = e;
		return -1;
	}
	if (flags & O_TRUNC)
		disk_resize(n, 0);
	return fd_put(open_node(n, flags));
}

static mode_t mode_of(int flags, va_list ap)
{
	return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return do_open(AT_FDCWD, path, flags, mode);
}

int __wrap_openat(int dirfd, const char *path, int flags, ...);
int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = mode_of(flags, ap);
	va_end(ap);
	return do_open(dirfd, path, flags, mode);
}

/* ---- descriptors themselves ---- */

/* A lock belongs to the open file: of another one it is refused. */
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
	struct file *f = fd_get(fd);
	struct node *n = f ? f->node : NULL;

	if (!n)
		return -1;
	sim_point("flock", (uint64_t)how);
	if ((n->lock && n->lock != f) ||
	    ((how & LOCK_EX) && n->shared > f->locks_shared)) {
		errno = EWOULDBLOCK;
		return -1;
	}
	unlock(f);
	f->locks = how & LOCK_EX;
	f->locks_shared = how & LOCK_SH;
	n->shared += f->locks_shared;
	if (f->locks)
		n->lock = f;
	return 0;
}

static int set_lease(struct file *f, int kind)
{
	struct node *n = f->node;

	if ((kind == F_RDLCK && (world.unleased || n->writers > 0)) ||
	    (kind == F_WRLCK && n->opens > 1 && !mutant_grants_leases())) {
		errno = EAGAIN;
		return -1;
	}
	f->leased = kind != F_UNLCK;
	f->lease = kind;
	return 0;
}

static int dup_from(struct file *f, int least)
{
	for (int i = least; i < FDS_MAX; i++) {
		if (sim.p->fd[i])
			continue;
		f->refs++;
		sim.p->fd[i] = f;
		return i;
	}
	errno = EMFILE;
	return -1;
}

int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
	struct file *f = fd_get(fd);
	va_list ap;
	int arg;

	if (!f)
		return -1;
	va_start(ap, what);
	arg = va_arg(ap, int);
	va_end(ap);
	switch (what) {
	case F_DUPFD_CLOEXEC:
		return dup_from(f, arg);
	case F_SETLEASE:
		return set_lease(f, arg);
	case F_GETLEASE:
		return f->leased && f->node->writers == 0 ? f->lease : F_UNLCK;
	default:
		return 0;
	}
}

int __wrap_dup2(int from, int to);
int __wrap_dup2(int from, int to)
{
	struct file *f = fd_get(from);

	if (!f)
		return -1;
	f->refs++;
	if (sim.p->fd[to])
		file_drop(sim.p->fd[to]);
	sim.p->fd[to] = f;
	return to;
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	struct file *f = fd_get(fd);
	struct mapping *m;

	(void)at;
	(void)prot;
	(void)flags;
	if (!f || (size_t)off + n > f->node->size || n == 0) {
		errno = f ? EINVAL : EBADF;
		return MAP_FAILED;
	}
	m = sim_alloc(sizeof *m);
	m->file = f;
	m->p = f->node->data + off;
	m->next = sim.p->maps;
	sim.p->maps = m;
	f->refs++;
	f->node->mapped++;
	return m->p;
}

static void unmap(struct mapping **at)
{
	struct mapping *m = *at;

	*at = m->next;
	m->file->node->mapped--;
	file_drop(m->file);
	sim_free(m);
}

int __wrap_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n)
{
	struct mapping **at = &sim.p->maps;

	(void)n;
	while (*at && (*at)->p != p)
		at = &(*at)->next;
	if (*at)
		unmap(at);
	return 0;
}

void maps_drop(struct proc *p)
{
	while (p->maps)
		unmap(&p->maps);
}

/* ---- waiting ---- */

static int look_at(struct pollfd *v, nfds_t n)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct file *f = fd_get(v[i].fd);

		v[i].revents = 0;
		if (!f)
			continue;
		if ((v[i].events & POLLIN) && file_is_readable(f))
			v[i].revents |= POLLIN;
		if (file_has_hung_up(f))
			v[i].revents |= f->writes ? POLLERR : POLLHUP;
		if (v[i].events & POLLOUT)
			v[i].revents |= POLLOUT;
		ready += v[i].revents != 0;
	}
	return ready;
}

int __wrap_poll(struct pollfd *v, nfds_t n, int ms);
int __wrap_poll(struct pollfd *v, nfds_t n, int ms)
{
	int64_t due = ms < 0 ? SIM_NEVER : sim.now + ms * SIM_MS;
	int ready;

	sim_point("poll", n);
	while ((ready = look_at(v, n)) == 0 && ms != 0 && sim.now < due)
		task_wait(due);
	return ready;
}

int __wrap_signalfd(int fd, const sigset_t *set, int flags);
int __wrap_signalfd(int fd, const sigset_t *set, int flags)
{
	(void)fd;
	(void)set;
	(void)flags;
	return fd_put(file_new(F_SIGNAL));
}

int __wrap_inotify_init1(int flags);
int __wrap_inotify_init1(int flags)
{
	(void)flags;
	return fd_put(file_new(F_WATCH));
}

int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	struct node *n = disk_find(disk_root(), path, true);
	struct file *f = fd_get(fd);

	(void)mask;
	if (!n || !f)
		return -1;
	for (size_t i = 0; i < COUNT(n->watch); i++) {
		if (n->watch[i])
			continue;
		n->watch[i] = f;
		f->node = n;
		return 1;
	}
	errno = ENOSPC; /* as when instances run out: the tick sees it later */
	return -1;
}
