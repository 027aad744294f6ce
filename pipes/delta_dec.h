/*
 * delta_dec.h - one tensor's payload, decoded and applied; part of delta.h.
 *
 * The old tensor is read in pieces, changed, hashed and written to the same
 * place of another file.  What unpacks to more than the tensor, to less, or
 * to something that is no patch of it, is refused; memory does not depend
 * on what the payload says:
 *
 *	xor		pieces and zstd's window
 *	overwrite	the same twice: positions and values are read at once
 *	sparse		the payload, no larger than such a tensor's can be
 *
 * The whole new tensor's checksum decides in the end.
 */
#ifndef WEIR_DELTA_DEC_H
#define WEIR_DELTA_DEC_H

#include "common/zframe.h"
#include "pipes/delta.h"

#define DEC_FEED	(128u << 10)	/* packed bytes read at a time */
#define DEC_FEED_BOX	(DEC_FEED + XPAGE)
#define DEC_POINTS	4096u		/* of overwrite, at a time */

struct dec_tensor {
	const struct delta *delta;
	const struct delta_tensor *t;
	int packed;		/* file of the payload */
	int from, to;		/* files of the old and of the new tensor */
	uint64_t offset, bytes;	/* of it, in both */
	bool is_clone;		/* to holds the old bytes already */
	unsigned element;
	struct digest *leaf[2];	/* room for the old one's and the new one's */
	const char *name;	/* of the new file, for messages */
};

/* Packed bytes of one tensor, from a file. */
struct dec_feed {
	int fd;
	uint64_t at, end;
	uint8_t *box;		/* DEC_FEED_BOX bytes on a page */
};

/* Kept from tensor to tensor.  {0} is an empty one. */
struct dec {
	uint8_t *box;		/* piece, work */
	uint8_t *piece;		/* in the box, as in the file */
	struct zread z[2];	/* the second: values of overwrite */
	struct dec_feed feed[2];
	struct buf payload;	/* sparse */
	struct sparse_in sparse;
	uint32_t left;		/* of overwrite: points not yet read */
	uint32_t n, at;		/* points in work; those done */
};

/* How much of what is `bytes` long and at `offset` in its file is done at a
 * time, from off on: to the edge of a page, for half a page costs as much to
 * write as a whole one, and never beyond a leaf. */
size_t dec_step(uint64_t offset, uint64_t bytes, uint64_t off);

/* -E_DATA, logged: a damaged payload, or another old tensor than it is for. */
int dec_run(struct dec *d, const struct dec_tensor *t);
/* Only: does it unpack?  from, to and what stands behind them is not used. */
int dec_check(struct dec *d, const struct dec_tensor *t);
void dec_release(struct dec *d);

#endif
