/*
 * zframe.h - one zstd frame, packed and read in pieces.  (The only includer
 * of zstd.)
 *
 * A frame is written with its content size, so that readers which unpack it
 * at once know how much memory that takes.  It is read strictly: exactly one
 * frame, no skippable ones, nothing behind it, and never a byte more than is
 * asked for; its window is bounded by ZFRAME_WINDOW_LOG, whatever it says.
 *
 * Memory: a context of about a megabyte for each struct, kept from frame to
 * frame, and the window.  Not logged: the caller knows whose frame it is.
 */
#ifndef WEIR_ZFRAME_H
#define WEIR_ZFRAME_H

#include "buf.h"

#define ZFRAME_WINDOW_LOG	24	/* 16 MiB; levels 1 to 19 use 8 at most */
#define ZFRAME_UNKNOWN		UINT64_MAX

/* {0} is an empty one. */
struct zpack {
	void *ctx;
	struct buf *out;
	bool failed;
};

/* The frame of exactly total bytes is appended to out, which is lent until
 * zpack_end(). */
void zpack_begin(struct zpack *z, int level, uint64_t total, struct buf *out);
void zpack_add(struct zpack *z, const void *p, size_t n);
/* -E_DATA if it was given another number of bytes: out then has worthless
 * bytes behind what was there. */
int zpack_end(struct zpack *z);
void zpack_release(struct zpack *z);

/* The next packed bytes, lent until the next call; *n 0: no more.  0, or a
 * negative E_*. */
typedef int zread_fn(void *arg, const void **p, size_t *n);

/* {0} is an empty one. */
struct zread {
	void *ctx;
	zread_fn *more;
	void *arg;
	const void *in;		/* lent by more() */
	size_t n, at;
	uint64_t total;		/* as the frame says, or ZFRAME_UNKNOWN */
	bool is_over;		/* the frame is */
};

/* All: 0, -E_DATA if this is no such frame, or what more() returned. */
int zread_begin(struct zread *z, zread_fn *more, void *arg);
int zread_get(struct zread *z, void *p, size_t n);	/* exactly n */
int zread_skip(struct zread *z, uint64_t n);
/* Neither the frame nor the input has anything left. */
int zread_end(struct zread *z);
void zread_release(struct zread *z);

#endif
