/*
 * fence.h - whose word counts: registry, epoch, run, instance per stage.
 *
 * An engine keeps one fence, durably, and shows it every request.  What is
 * older than the fence changes nothing (I10); what is newer moves it, and the
 * caller makes that durable before it acts.  An epoch that was closed by a
 * cancel stays closed.  Pure.
 */
#ifndef WEIR_FENCE_H
#define WEIR_FENCE_H

#include "buf.h"

#define FENCE_ID_MAX	64	/* bytes of a registry id, of a run's name */
#define FENCE_STAGES	8	/* numbers of stages */
#define FENCE_WHY_MAX	400	/* bytes of a reason */

struct fence {
	char registry[FENCE_ID_MAX + 1];	/* "": nobody's yet */
	char run[FENCE_ID_MAX + 1];		/* of this epoch */
	uint64_t epoch;				/* highest seen */
	uint32_t instance[FENCE_STAGES];	/* highest seen in it */
	bool closed;				/* it was cancelled */
	char former[FENCE_ID_MAX + 1];		/* owner before an adoption */
	bool spent;				/* which used --adopt up */
};

struct fence_speaker {
	struct slice registry, run;
	uint64_t epoch;
	uint32_t instance;
	unsigned stage;
};

enum fence_use {
	FENCE_WORK,	/* only within the epoch that has begun */
	FENCE_SERVE,	/* pause, swap, resume: a later run may bring home
			   what an older one left */
	FENCE_CANCEL,	/* also of a closed epoch, and of one not begun: its
			   late begin is refused then */
	FENCE_BEGIN,	/* an ownerless store gets its owner */
	FENCE_ADOPT,	/* begin, and another registry may take over */
};

/*
 * 0: pass.  1: pass, but the fence must be moved first.  -E_FENCED: refuse;
 * why, of FENCE_WHY_MAX bytes, says which rule (nothing is logged).
 */
int fence_check(const struct fence *f, const struct fence_speaker *who,
		enum fence_use use, char *why);
/* Moves it to who, who was let pass.  A cancel closes the epoch; another
 * registry than the owner is an adoption. */
void fence_move(struct fence *f, const struct fence_speaker *who,
		enum fence_use use);

#endif
