/*
 * io.h - files as facts: whole reads, whole writes, and names that appear
 * only when what they name is complete and durable.
 *
 * All functions retry EINTR, set O_CLOEXEC, and log the first cause.  dirfd
 * may be AT_FDCWD.  Temporary names are ".tmp.NAME.PID.N": io_sweep_tmp()
 * removes those whose process is dead, and tells which (info) (io_sweep.c).
 */
#ifndef WEIR_IO_H
#define WEIR_IO_H

#include "buf.h"

#include <limits.h>
#include <sys/types.h>

/* What each program does first.  Opens those of stdin, stdout and stderr that
 * are closed, so that nothing else gets their numbers: stdin is at its end,
 * writing to stdout fails as it did.  A file above the limit (ulimit -f) is
 * an error of its write, not the end of the process; and children can be
 * waited for, also where whoever started us did not want to. */
void io_start(void);
/* How messages call it: with the directory that dirfd is, for the name alone
 * says not where. */
#define IO_WHERE_MAX (PATH_MAX + NAME_MAX + 2)
const char *io_where(int dirfd, const char *name, char out[IO_WHERE_MAX]);
int io_read_full(int fd, void *p, size_t n);	/* count; short = EOF */
int io_write_full(int fd, const void *p, size_t n);
int io_pread_full(int fd, void *p, size_t n, off_t off);
int io_pwrite_full(int fd, const void *p, size_t n, off_t off);
/* Whole file into out (appended); -E_DATA above max bytes, -E_NOINPUT
 * quietly (not logged) if there is none.  In a directory (dirfd) a FIFO is
 * refused, not waited for; a path (AT_FDCWD) is as the user gave it. */
int io_read_file(int dirfd, const char *name, size_t max, struct buf *out);

/* Durable replacement: temp file, fsync, rename, fsync of the directory.
 * Killed anywhere: old or new content, whole. */
int io_replace(int dirfd, const char *name, const void *p, size_t n);
/* Durable creation, once: temp file, fsync, link, fsync of the directory.
 * -E_AGAIN, not logged, if the name exists already (its content then is
 * somebody's whole content).  Sets *linked as soon as link was called: from
 * then on a failure leaves the outcome open (DESIGN 4, Decide). */
int io_create_once(int dirfd, const char *name, const void *p, size_t n,
		   bool *linked);

/* The same two for content that is written in pieces: open, add, and one of
 * the three ends, which all let go of s.  name is lent until then. */
struct io_stream {
	int dirfd, fd;
	const char *base;		/* the last part of its name */
	char tmp[NAME_MAX + 1];
};
int io_stream_open(struct io_stream *s, int dirfd, const char *name);
int io_stream_add(struct io_stream *s, const void *p, size_t n);
int io_stream_replace(struct io_stream *s);
int io_stream_create_once(struct io_stream *s, bool *linked);
void io_stream_drop(struct io_stream *s);

/* The same as io_replace(), of a symbolic link. */
int io_replace_link(int dirfd, const char *name, const char *target);

/* What is left of one file to the end of another; not durable. */
int io_copy(int fromfd, int tofd);
/* Another file's whole content as name, durable; as io_stream_create_once(),
 * if the name is there already. */
int io_copy_once(int fromfd, int dirfd, const char *name);

int io_fsync_dir(int dirfd);
/* The same of all directories below it, and then of itself. */
int io_fsync_dirs(int dirfd);
/* The name itself becomes durable: fsync of the directory it stands in. */
int io_sync_parent(const char *path);
/* mkdir -p, durable; parents as the umask says, the last one with mode. */
int io_make_path(const char *path, mode_t mode);
/* mkdir -p of one level; fine if it is there. */
int io_mkdir(int dirfd, const char *name, mode_t mode);
int io_open_dir(int dirfd, const char *name);	/* fd or -E */
/* rm -rf of a name below dirfd, never following links; absent is fine. */
int io_remove_tree(int dirfd, const char *name);
/* The same of all that is in the directory, which stays. */
int io_remove_below(int dirfd);
#define IO_TMP_PREFIX ".tmp."
int io_sweep_tmp(int dirfd);
/* The same, of that file alone: its directory is others' as well.  One that
 * cannot be read is left to whoever writes there. */
int io_sweep_tmp_of(int dirfd, const char *name);
/* Of a directory in which only we write, and nothing yet: all of them, for
 * another process, or this one, may have a dead one's pid by now. */
int io_sweep_our_tmp(int dirfd);

#endif
