/* Content of the simulated files, and what is known of it. */
#include "count.h"
#include "files.h"
#include "mutant.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- read and write ---- */

static ssize_t pread_node(const struct node *n, void *p, size_t want,
			  size_t off)
{
	size_t left = off < n->size ? n->size - off : 0;

	if (want > left)
		want = left;
	if (want)
		memcpy(p, n->data + off, want);
	return (ssize_t)want;
}

static ssize_t read_pipe(struct pipe *p, void *out, size_t want)
{
	if (want > p->n)
		want = p->n;
	if (want == 0 && p->ends[1] > 0) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(out, p->data, want);
	memmove(p->data, p->data + want, p->n - want);
	p->n -= want;
	return (ssize_t)want;
}

static ssize_t read_signal(void *out, size_t want)
{
	struct signalfd_siginfo si = { 0 };

	if (!sim.p->pending || want < sizeof si) {
		errno = EAGAIN;
		return -1;
	}
	si.ssi_signo = (uint32_t)__builtin_ctzll(sim.p->pending);
	sim.p->pending &= sim.p->pending - 1;
	memcpy(out, &si, sizeof si);
	return sizeof si;
}

static ssize_t read_watch(struct file *f, void *out, size_t want)
{
	struct inotify_event e = { 0 };

	if (!f->ready || want < sizeof e) {
		errno = EAGAIN;
		return -1;
	}
	f->ready = false;
	memcpy(out, &e, sizeof e);
	return sizeof e;
}

ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n)
{
	struct file *f = sim.p ? fd_get(fd) : NULL;
	ssize_t got;

	if (!sim.p)
		return __real_read(fd, p, n);
	if (!f)
		return -1;
	switch (f->kind) {
	case F_PIPE:
		return read_pipe(f->pipe, p, n);
	case F_SIGNAL:
		return read_signal(p, n);
	case F_WATCH:
		return read_watch(f, p, n);
	case F_NODE:
		got = pread_node(f->node, p, n, f->pos);
		f->pos += (size_t)got;
		return got;
	default:
		return 0;
	}
}

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t off)
{
	struct file *f = fd_get(fd);

	return f ? pread_node(f->node, p, n, (size_t)off) : -1;
}

ssize_t __wrap_preadv2(int fd, const struct iovec *v, int n, off_t off,
		       int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *v, int n, off_t off,
		       int flags)
{
	(void)n;
	(void)flags;
	return __wrap_pread(fd, v[0].iov_base, v[0].iov_len, off);
}

/* The n-th change of the disk fails once: full, or broken; or all do. */
bool disk_fails(void)
{
	struct proc *p = sim.p;

	if (sim.now < sim.disk_full_until) {
		errno = ENOSPC;
		return true;
	}
	if (++p->writes != p->fail_at)
		return false;
	errno = rng_one_in(&sim.rng, 2) ? ENOSPC : EIO;
	sim_tell("%s: the disk fails: %s", p->name, strerror(errno));
	return true;
}

static ssize_t write_pipe(struct pipe *p, const void *from, size_t n)
{
	if (p->ends[0] == 0) {
		errno = EPIPE;
		return -1;
	}
	if (n > PIPE_CAP - p->n) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(p->data + p->n, from, n);
	p->n += n;
	file_poke_owner(p->end[0]);
	return (ssize_t)n;
}

static ssize_t write_node(struct file *f, const void *p, size_t n)
{
	if (disk_fails())
		return -1;
	if (f->flags & O_APPEND)
		f->pos = f->node->size;
	disk_write(f->node, f->pos, p, n);
	f->pos += n;
	return (ssize_t)n;
}

static void show(const char *line, size_t n)
{
	if (sim.trace)
		fprintf(sim.trace, "%12.6f   %.*s", (double)sim.now / 1e9,
			(int)n, line);
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	struct file *f = sim.p ? fd_get(fd) : NULL;

	if (!sim.p)
		return __real_write(fd, p, n);
	if (!f)
		return -1;
	if (f->kind == F_SINK) {
		watch_said(sim.p, (struct slice){ p, n });
		show(p, n);
		return (ssize_t)n;
	}
	sim_point("write", n);
	return f->kind == F_PIPE ? write_pipe(f->pipe, p, n)
				 : write_node(f, p, n);
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t off)
{
	struct file *f = fd_get(fd);

	if (!f)
		return -1;
	sim_point("pwrite", n);
	if (disk_fails())
		return -1;
	disk_write(f->node, (size_t)off, p, n);
	return (ssize_t)n;
}

off_t __wrap_lseek(int fd, off_t off, int whence);
off_t __wrap_lseek(int fd, off_t off, int whence)
{
	struct file *f = fd_get(fd);

	if (!f)
		return -1;
	if (whence == SEEK_END)
		off += (off_t)f->node->size;
	else if (whence == SEEK_CUR)
		off += (off_t)f->pos;
	f->pos = (size_t)off;
	return off;
}

/* Only what was there when it began is durable when it ends. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct file *f = fd_get(fd);
	uint32_t move;

	if (!f)
		return -1;
	move = count_coming("fsync", f->node->parent, f->node->name);
	sim_point("fsync", f->node->ino);
	if (disk_fails())
		return -1;
	if (sim.disk_slow_ns && rng_one_in(&sim.rng, 4))
		task_sleep(sim.now +
			   (int64_t)rng_below(&sim.rng, sim.disk_slow_ns));
	if (!mutant_skips_sync(f->node))
		disk_sync(f->node);
	count_crossed(move);
	return 0;
}

int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
	struct file *f = fd_get(fd);

	if (!f)
		return -1;
	sim_point("ftruncate", (uint64_t)size);
	if (disk_fails())
		return -1;
	disk_resize(f->node, (size_t)size);
	return 0;
}

int __wrap_posix_fallocate(int fd, off_t off, off_t n);
int __wrap_posix_fallocate(int fd, off_t off, off_t n)
{
	struct file *f = fd_get(fd);

	sim_point("fallocate", (uint64_t)n);
	if (!f || disk_fails())
		return errno;
	if ((size_t)(off + n) > f->node->size)
		disk_resize(f->node, (size_t)(off + n));
	return 0;
}

/* ---- what is known of a file ---- */

static void stat_node(const struct node *n, struct stat *st)
{
	static const mode_t kinds[] = { [N_FILE] = S_IFREG,
					[N_DIR] = S_IFDIR,
					[N_LINK] = S_IFLNK,
					[N_SOCK] = S_IFSOCK };

	*st = (struct stat){
		.st_dev = 1,
		.st_ino = n->ino,
		.st_mode = kinds[n->kind] | n->mode,
		.st_nlink = n->nlink,
		.st_uid = geteuid(),
		.st_size = (off_t)n->size,
		.st_blocks = (blkcnt_t)(n->size + 511) / 512,
		.st_mtim = { .tv_sec = (sim.wall0 + n->mtime) / SIM_S,
			     .tv_nsec = n->mtime % SIM_S },
	};
}

int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
	struct file *f = fd_get(fd);

	if (!f)
		return -1;
	if (f->kind == F_NODE) {
		stat_node(f->node, st);
		return 0;
	}
	*st = (struct stat){ .st_mode = f->kind == F_PIPE ? S_IFIFO : S_IFCHR };
	return 0;
}

int __wrap_fstatat(int dirfd, const char *path, struct stat *st, int flags);
int __wrap_fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	struct node *dir = fd_dir(dirfd), *n;

	n = dir ? disk_find(dir, path, !(flags & AT_SYMLINK_NOFOLLOW)) : NULL;
	if (!n)
		return -1;
	stat_node(n, st);
	return 0;
}

int __wrap_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st)
{
	return __wrap_fstatat(AT_FDCWD, path, st, 0);
}

int __wrap_lstat(const char *path, struct stat *st);
int __wrap_lstat(const char *path, struct stat *st)
{
	return __wrap_fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int __wrap_fstatfs(int fd, struct statfs *st);
int __wrap_fstatfs(int fd, struct statfs *st)
{
	(void)fd;
	*st = (struct statfs){ .f_type = EXT4_SUPER_MAGIC };
	return 0;
}

int __wrap_fstatvfs(int fd, struct statvfs *st);
int __wrap_fstatvfs(int fd, struct statvfs *st)
{
	(void)fd;
	*st = (struct statvfs){ .f_frsize = 4096 };
	if (sim.now >= sim.disk_full_until)
		st->f_bavail = 1 << 20;
	return 0;
}
