/*
 * fill.h - what has arrived of a version, and whether that is all of it.
 *
 * Buckets are offered as pieces; every byte of every file must come exactly
 * once.  A bucket's pieces are fixed by its first offer that is in order: a
 * later offer of the same bucket must name the same ones, so that no claim is
 * ever taken back.  The leaf digests that the copies made are kept per piece;
 * from them comes the received content digest.
 *
 * Memory: about 32 bytes per piece, 16 per leaf, 40 per bucket; nothing per
 * byte.  For one thread; a sealing thread may read it while nobody writes.
 */
#ifndef WEIR_FILL_H
#define WEIR_FILL_H

#include "common/content.h"
#include "common/pieces.h"
#include "pipes/store.h"

#define FILL_PIECES_MAX (1u << 26) /* of a version */

struct fill_piece {
	struct piece p;
	uint32_t leaf; /* into leaves */
};

struct fill_bucket {
	uint64_t bytes;
	uint32_t first, n;    /* into piece */
	struct digest digest; /* when held */
	uint8_t state;	      /* enum fill_state */
};

enum fill_state { FILL_UNKNOWN, FILL_CLAIMED, FILL_HELD };

struct fill_runs;

struct fill {
	const struct store_slot *slot; /* lent */
	struct fill_bucket *bucket;
	uint32_t nbuckets, held;
	struct fill_piece *piece;
	uint32_t npieces, cap;
	struct buf leaves;	/* struct digest */
	struct fill_runs *runs; /* claimed bytes, per file */
};

void fill_init(struct fill *f, const struct store_slot *slot,
	       uint32_t nbuckets);
void fill_release(struct fill *f);

/* Claims an offer's bytes.  0, or -E_PROTO (logged, naming the bucket): out
 * of the files' ranges, overlapping, out of order, sums that differ, a bucket
 * beyond those begun, other pieces than before. */
int fill_claim(struct fill *f, const struct m_offer *o);
/* The leaves of a claimed bucket, all in a row; it is held from then on. */
void fill_hold(struct fill *f, uint32_t bucket, const struct digest *leaf);
uint32_t fill_bucket_leaves(const struct fill *f, uint32_t bucket);
void fill_bitmap(const struct fill *f, struct buf *out);

/* Is every byte of every file there?  -E_DATA naming file and hole. */
int fill_check(const struct fill *f);

/* Pieces by place, for the fold.  Owned array of numbers. */
uint32_t *fill_order(const struct fill *f);
const struct digest *fill_leaf(const struct fill *f,
			       const struct fill_piece *p);

#endif
