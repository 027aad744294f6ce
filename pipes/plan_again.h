/*
 * plan_again.h - a published version, planned once more: for some engines
 * (--only, a join) or under a new number (--to, a rollback).
 *
 * Files and buckets are those of the plan that the registry keeps of it;
 * engines come from the command line, or else from the highest decision.  No
 * source is looked at: whether bytes are needed at all, only the engines know,
 * and where they are, transfer finds out: in --source or the plan's own
 * source, or in a directory that a receipt named.
 */
#ifndef WEIR_PLAN_AGAIN_H
#define WEIR_PLAN_AGAIN_H

#include "common/fleet.h"
#include "pipes/options.h"
#include "pipes/planfile.h"

#define PLACES_MAX 4096u	/* as in msg.def */

struct plan_again {
	struct plan old;
	enum run_kind kind;
	uint64_t base;			/* whose plan it is */
	struct digest content;
	struct m_share *shares;		/* of several source ranks */
	uint32_t nshares;
	char **source;			/* where to look first, by rank */
	char **place;			/* and then: the same, again and again */
	uint32_t nplaces;
};

bool plan_is_again(const struct plan_conf *conf);
/* Fills f too.  -E_NOINPUT: no registry, no such version; -E_USAGE: --to is
 * no number, --only names no engine. */
int plan_again_open(struct plan_again *a, struct fleet *f,
		    const struct plan_conf *conf);
void plan_again_release(struct plan_again *a);	/* fine on a zeroed one */

#endif
