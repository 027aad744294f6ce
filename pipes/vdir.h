/*
 * vdir.h - version directories: their names, who reads them, who may not
 * write them meanwhile.
 *
 *	DISKDIR/weight_v000007/		a checkpoint with a mark (vmark.h), or
 *					a delta (delta.h)
 *	DISKDIR/.weight_v000007.weir-new  being built (beside.h)
 *
 * A directory appears under its name whole, and nothing in it is written
 * again: who publishes the number once more puts another one in its place.
 * Its being there does not mean that the version is published; that is for
 * the registry to say.
 *
 * Who reads holds a shared lock on the directory (flock; of this host, the
 * kernel drops it when he dies); who wants to replace or remove it needs it
 * alone, and lets it be where he cannot have that.
 */
#ifndef WEIR_VDIR_H
#define WEIR_VDIR_H

#include "pipes/vmark.h"

#include <stdatomic.h>

#define VDIR_LOOK_MS	200	/* between two looks for one that is awaited */

/* The only place where the name is made.  Owned string. */
char *vdir_path(const char *disk_dir, uint64_t version);
/* The number in such a name; 0: it is none. */
uint64_t vdir_number(const char *name);

/* One that is read.  VDIR_INIT is none. */
struct vdir {
	int fd;				/* locked */
	char *path;
	struct vmark mark;
};
#define VDIR_INIT { .fd = -1 }

/* -E_NOINPUT: it is not there, has no mark, or is being replaced.  Logged. */
int vdir_open(struct vdir *d, const char *path);
bool vdir_is_diff(const struct vdir *d);

/* Waits until a whole one is there: on a shared file system what is written
 * on another host may appear later, and in any order.  Whole is what
 * looks(ctx, d) says with 0; -E_NOINPUT is waited for, wait_ms at most, and
 * then told with this host's name (FS-04); anything else is final.
 * -E_AGAIN: cancelled. */
struct vdir_wait {
	const char *path;
	int64_t wait_ms;
	const atomic_bool *cancel;
	int (*looks)(void *ctx, const struct vdir *d);
	void *ctx;
};
int vdir_await(struct vdir *d, const struct vdir_wait *w);
void vdir_close(struct vdir *d);

#endif
