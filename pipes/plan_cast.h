/*
 * plan_cast.h - may a published version's buckets be broadcast to a server?
 *
 * A join or a rollback moves a version in the buckets of its own plan.  A
 * server loads them one by one (en_cast.c) and fuses what lies in one, so a
 * group of tensors (common/together.h) must not lie in two: of a plan for
 * other engines it may, as of one with --keep-together none or of small
 * buckets.  A plan that was broadcast to a server was checked when it was
 * made, with its own groups.
 *
 * Memory: 16 bytes and the key for each tensor.
 */
#ifndef WEIR_PLAN_CAST_H
#define WEIR_PLAN_CAST_H

#include "common/together.h"
#include "pipes/plan_again.h"

/* -E_CONFIG: a group lies in two; -E_DATA. */
int plan_cast_check(const struct plan_again *a, const struct together *t);

#endif
