/*
 * delta_enc.h - one tensor's change, encoded; part of delta.h.
 *
 * Old and new are read once, in pieces, and hashed meanwhile: the leaves of
 * both, and the new one's checksum.  xor is packed in that pass, from the
 * first difference on; sparse too, and given up for xor where it does not
 * pay (auto).  overwrite keeps its points while they are few; else it needs
 * two more passes, since positions come before values.
 *
 * Memory: pieces, a context, and the encoded tensor.
 */
#ifndef WEIR_DELTA_ENC_H
#define WEIR_DELTA_ENC_H

#include "common/zframe.h"
#include "pipes/delta.h"

/* sparse is taken while it is smaller than that of a tensor of which one
 * element in so many has changed. */
#define SPARSE_ONE_IN	10u

/* Bytes of positions and values that are kept of any tensor; of a large one,
 * as many as half of it. */
#define ENC_POINTS_MAX	(16u << 20)

struct enc_tensor {
	int fd[2];		/* old, new */
	uint64_t offset[2];	/* in the files */
	uint64_t bytes;
	unsigned element;	/* bytes of one */
	unsigned encoding;	/* patch_kind or DELTA_AUTO */
	enum checksum_kind checksum;
	struct digest *leaf[2];	/* room for both */
	const char *name[2];	/* of the files, for messages */
};

/* Kept from tensor to tensor.  {0} is an empty one. */
struct enc {
	uint8_t *box;		/* pieces: old, new, work */
	uint8_t *piece[2];	/* old, new: in the box, as in their files */
	struct zpack z;
	struct sparse_out sparse;
	struct buf at, value;	/* of overwrite */
	/* The result: */
	bool changed;
	enum patch_kind kind;
	char sum[CHECKSUM_HEX];
	struct buf out;		/* if changed; may be taken */
};

int enc_run(struct enc *e, const struct enc_tensor *t);
void enc_release(struct enc *e);

#endif
