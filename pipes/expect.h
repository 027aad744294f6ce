/*
 * expect.h - are two plans of the same tensors?
 *
 * The same names, each with the same dtype and shape, in each source rank: what
 * an engine that serves one needs to load the other.  In which files and in what order they
 * are is not asked.  Memory: 24 bytes for each tensor of both plans, for the
 * time of the call.
 */
#ifndef WEIR_EXPECT_H
#define WEIR_EXPECT_H

#include "common/buf.h"
#include "pipes/planfile.h"

/* The first tensor that differs: of the newer plan, or, if all of those are as
 * they were, of the older one.  Of the plan that has no such tensor the type
 * is empty. */
struct expect_diff {
	struct buf tensor;		/* its name */
	uint32_t rank;
	struct buf then, now;		/* "BF16 [2,3]" */
};

/* 1; 0 and *out, which must be {0}; -E_DATA: a plan that cannot be read. */
int expect_same(const struct plan *then, const struct plan *now,
		struct expect_diff *out);
void expect_diff_release(struct expect_diff *d);

#endif
