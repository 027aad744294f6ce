/*
 * ranks.h - the sources of one version, joined name by name.
 *
 * One source is the version itself.  Of several, each is the share of one
 * rank: every tensor is in every rank, once, under one name, with one dtype
 * and as many dimensions; sizes may differ, and be 0.  A whole tensor is never
 * put together here: rank r's workers get rank r's share.  Files beside the
 * weights are each rank's own.
 *
 * The order of the tensors is rank 0's (source.h), whatever the others'.  The
 * structure digest is digest_fold() of the sources'.
 *
 * Memory: the sources', and 4 bytes for each tensor of each further rank (24
 * while they are joined).
 */
#ifndef WEIR_RANKS_H
#define WEIR_RANKS_H

#include "source.h"

#define RANKS_MAX 256u

struct ranks {
	struct source *source;
	uint32_t n;
	uint32_t **twin;	/* of rank 1 ...: its number of rank 0's i-th */
	struct digest structure;
};

/* 0; source_open()'s failures; -E_DATA naming tensor and ranks if they do not
 * belong together; -E_USAGE if there are too many. */
int ranks_open(struct ranks *r, char *const *path, size_t n);
void ranks_release(struct ranks *r);
/* What rank has of the tensor that is rank 0's i-th. */
void ranks_get(const struct ranks *r, uint32_t rank, uint32_t i,
	       struct source_tensor *out);

#endif
