/*
 * kept.h - which group of an older run is the one that is wanted now?
 *
 * Movers that outlive a run tell, when they enroll, what groups they have
 * left, each by its token: that of its id, which no two groups share.  One can
 * be used again if rank 0 and every other rank name it, each with the rank it
 * is to have, and none of its ranks is missing: so it has the same members in
 * the same order, and none of their movers has been another one since.  Pure.
 */
#ifndef WEIR_KEPT_H
#define WEIR_KEPT_H

#include "pipes/msg.h"

struct kept {			/* what one mover has; {0}: nothing */
	struct m_kept *v;	/* owned */
	uint32_t n;
};

void kept_set(struct kept *k, const struct m_kept *v, uint32_t n);
void kept_release(struct kept *k);
/* The token of the group of rank 0 and, from rank 1 on, these n others; rank 0
 * has it no longer then.  False: there is none, and all is as it was. */
bool kept_take(struct kept *rank0, const struct kept *const *other, uint32_t n,
	       struct digest *token);

#endif
