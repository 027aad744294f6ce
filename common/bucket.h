/*
 * bucket.h - which bytes go together: objects in, pieces in buckets out.
 *
 * Objects (tensors, headers of shards, carried files) come in the order of
 * the plan and stay in it.  A bucket is closed *before* it would exceed its
 * size, its count of pieces or its frame (BK-06), so that only an object
 * that is larger by itself makes a larger bucket, alone.  If such an object
 * may be split, its pieces fall on edges of `edge` bytes counted from its
 * start: as many whole edges as the size holds, but never less than one, so
 * that a size below the edge gives pieces of one edge.  Empty objects ride
 * along and never close a bucket by their bytes.
 *
 * With several source ranks an object has a share in each, of whatever size:
 * a lane.  All lanes close a bucket at the same object and are split at the
 * same edges; sizes hold for each lane, counts and frames for all together.
 *
 * Objects that must share a bucket are weighed together first: if there is
 * no room for all of them in the open one, bucket_break() closes it.
 *
 *	bucket_begin(&b, &limits, used);
 *	for each object:
 *		bucket_object(&b, &load, may_split);
 *		while (bucket_next(&b, &piece))
 *			if (piece.opens) the bucket before this piece is done
 *
 * Pure: no I/O, no allocation.
 */
#ifndef WEIR_BUCKET_H
#define WEIR_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BUCKETS_MAX (1u << 22) /* of a version: one bit each in `held` */

struct bucket_limits {
	uint64_t size;	 /* bytes, not 0 */
	uint64_t edge;	 /* bytes, not 0 */
	uint32_t pieces; /* not 0 */
	uint64_t cost;	 /* of all pieces together; each must be below */
	uint32_t lanes;	 /* not 0 */
};

/* An object, or the sums of several whole ones. */
struct bucket_load {
	const uint64_t *bytes; /* in each lane; lent */
	uint64_t cost;	       /* of an object: of each of its pieces */
	uint32_t pieces;       /* in all lanes */
};

struct bucket_piece {
	uint64_t start, bytes; /* in the object, of its longest lane */
	bool opens;	       /* a new bucket, and not the first */
};

struct bucket_packer {
	struct bucket_limits limits;
	uint64_t *used; /* bytes of the open bucket, in each lane */
	uint64_t cost;
	uint32_t pieces;
	struct bucket_load object;
	uint64_t left, start; /* of it: still to come, and where */
	uint64_t step;
	bool more, broken;
};

/* used: room for each lane, lent for the packer's life. */
void bucket_begin(struct bucket_packer *b, const struct bucket_limits *l,
		  uint64_t *used);
/* Lent until it is done. */
void bucket_object(struct bucket_packer *b, const struct bucket_load *object,
		   bool may_split);
/* Pieces of it that are still to come. */
uint64_t bucket_pieces(const struct bucket_packer *b);
/* false: the object is done. */
bool bucket_next(struct bucket_packer *b, struct bucket_piece *out);
/* What of a piece is in a lane that has so many bytes of the object. */
uint64_t bucket_in_lane(const struct bucket_piece *p, uint64_t bytes);
/* Bytes of the longest lane. */
uint64_t bucket_longest(const uint64_t *bytes, uint32_t lanes);

/* Would an empty bucket take them all?  And the open one? */
bool bucket_can_hold(const struct bucket_limits *l,
		     const struct bucket_load *load);
bool bucket_has_room(const struct bucket_packer *b,
		     const struct bucket_load *load);
/* The next piece opens a bucket. */
void bucket_break(struct bucket_packer *b);

#endif
