/*
 * pieces.h - runs of bytes, copied and hashed leaf by leaf.
 *
 * A piece is one run of bytes of one object (a tensor or a part of it, a
 * shard's header, a carried file).  It starts on a leaf edge of its object,
 * so its leaves are those 16 MiB steps from its own start (digest.h); only
 * the last may be shorter.  The source has it at the same place as the
 * destination: a slot is byte-identical.
 *
 * Buckets are lists of pieces.  A bucket's digest is XXH3-128 over the leaf
 * digests of its pieces in order, so that transfer and engines compare one
 * value, while both keep the leaves for the tensor digests.
 *
 * One thread per window; different pieces of one slotfile may be copied by
 * different threads.  Failures are not logged, the caller knows the names:
 *
 *	-E_DATA		the source is shorter than it was
 *	-E_IO		source or destination cannot be read or written
 *	-E_AGAIN	cancelled
 *
 * After a failure the destination's bytes in the piece are undefined.
 */
#ifndef WEIR_PIECES_H
#define WEIR_PIECES_H

#include "digest.h"
#include "slotfile.h"
#include "window.h"

#include <stdatomic.h>

/* Bytes between two looks at the cancel flag. */
#define PIECE_STEP ((size_t)1 << 20)

struct piece {
	uint32_t file;		/* the caller's number of the file */
	uint64_t offset;	/* in the file */
	uint64_t bytes;
};

uint64_t piece_leaves(const struct piece *p);
/* Takes what fits into room off the front of *rest, in whole leaves: at least
 * one. */
struct piece piece_cut(struct piece *rest, uint64_t room);

/* Both fill leaf[piece_leaves(p)].  cancel may be NULL. */
int piece_copy(struct window *src, struct slotfile *dst, const struct piece *p,
	       struct digest *leaf, const atomic_bool *cancel);
int piece_hash(struct window *src, const struct piece *p, struct digest *leaf,
	       const atomic_bool *cancel);

/* The digest over n leaves: a bucket's, or a tensor's. */
void leaves_digest(const struct digest *leaf, size_t n, struct digest *out);

#endif
