/*
 * srcahead.h - the headers of many shards, a few at a time.
 *
 * For source.c, which reads them one by one otherwise: parsing is the larger
 * part of opening a source of many tensors, and shards are independent.  What
 * fails here is not told: whoever reads that shard again says why, so that the
 * first faulty shard is named however threads ran.
 */
#ifndef WEIR_SRCAHEAD_H
#define WEIR_SRCAHEAD_H

#include "safetensors.h"
#include "srcdir.h"

#define SRCAHEAD_THREADS 2	/* readers of a file system, at most */

struct srcahead {
	struct srcdir_id id;
	struct st st;			/* the taker's */
	bool is_read;
};

/* Reads path[0..n) below dir into out[0..n), or as many as it can before the
 * first fault. */
void srcahead_read(const struct srcdir *dir, char *const *path, uint32_t n,
		   struct srcahead *out);

#endif
