/*
 * delta_fit.h - is a directory what a delta is for?  Part of delta.h.
 *
 * Asked of the mark (number, registry), of the headers (each tensor of the
 * delta, with dtype and shape), and last of all bytes: their digest must be
 * what the mark says and what the delta was made from.  Nothing is written.
 *
 * All bytes are read for that only if it is not likely that they are the
 * right ones, by the mark or by one small tensor.  Else who makes the new
 * version hashes them on the way, beside the base, and asks at the end.
 */
#ifndef WEIR_DELTA_FIT_H
#define WEIR_DELTA_FIT_H

#include "pipes/delta.h"

/* The caller sets what stands before the gap. */
struct fit {
	const struct delta_apply *conf;
	const struct delta *delta;

	struct source base;
	struct vmark mark;	/* of the base, if it has one */
	bool has_mark;
	struct sums before;	/* of its bytes; whoever reads them fills it */
	struct identity id;
	bool is_read;		/* all bytes were, here */
	int64_t *change;	/* of each tensor: its number in the delta, or
				 * -1 */
	uint64_t bytes;		/* of those that change */
};

/* All that can be said without the tensors' bytes.  -E_DATA and one line with
 * what there is, what is needed and what would come of it. */
int fit_open(struct fit *f);
/* Is it the base, as far as can be told at once? */
bool fit_is_likely(struct fit *f);
/* Reads all bytes: 0 if the delta can be applied, 1 if they are what it makes
 * already, or as fit_open(). */
int fit_read(struct fit *f);
/* 0 if f->before is what the delta was made from; else as fit_open(). */
int fit_check(struct fit *f);
/* Is that directory what the delta makes?  1 and f->id, 0, or -E_*, logged. */
int fit_is_target(struct fit *f, const char *path);
void fit_release(struct fit *f);

#endif
