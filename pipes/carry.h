/*
 * carry.h - files of one directory that are to stand in another as they are.
 *
 * In the cheapest way that the file system offers: a hard link where the
 * other directory takes this one's place (carry_tree), shared extents
 * (reflink), a copy inside the kernel, a plain copy.  Bytes, mode and, where
 * permitted, owner are the same.  What is copied is synced.
 */
#ifndef WEIR_CARRY_H
#define WEIR_CARRY_H

#include <stdbool.h>
#include <stdint.h>

/* Is there room for so many bytes below dirfd?  Asked on file systems in
 * memory only, where reserving costs as much as writing; on others
 * carry_make() reserves.  name: of what they are for. */
int carry_check_room(int dirfd, const char *name, uint64_t need);

/* A new file `name` below dirfd, like the open file `from`: of its size and
 * mode, with its bytes shared (*is_clone), or else with its room reserved
 * (not in memory) and nothing in it yet.  The descriptor, or a negative E_*, logged; no room:
 * "need X bytes, have Y". */
int carry_make(int dirfd, const char *name, int from, bool *is_clone);
/* The same, but ours, and with mode 0600. */
int carry_new(int dirfd, const char *name, int from, bool *is_clone);
/* Bytes [off, off + n) of one file to the same place of another. */
int carry_range(int from, int to, uint64_t off, uint64_t n, const char *name);
/* The kernel may begin to write what is there, for the sync at the end. */
void carry_begin_sync(int fd, uint64_t off, uint64_t n);

/* All that is in the directory from, except paths for which skip(ctx, path)
 * is true, goes into to, whatever there is already; sub-directories are made,
 * links stay links, regular files are hard links if that is possible.
 * Directories are not synced.  -E_DATA, logged: a socket, device or the
 * like. */
typedef bool carry_skip_fn(void *ctx, const char *path);
int carry_tree(int from, int to, const char *path, carry_skip_fn *skip,
	       void *ctx);
/* The directories that lead to path, which is below dirfd; not synced. */
int carry_parents(int dirfd, const char *path);

#endif
