/*
 * bring.h - brings engines home: each on its own, to its own deadline, no
 * barrier between them.  Used after the decision, after an abort, for an
 * excluded engine, and for what an older run left (pipes/recover.h).
 *
 * Drives the machine of pipes/homing.h with the calls of
 * pipes/engine_ops.h.  A swap is pause, swap, set_version and resume sent
 * back to back, so that the pause lasts one rename and one fsync; each
 * attempt has a fresh token.
 */
#ifndef WEIR_BRING_H
#define WEIR_BRING_H

#include "pipes/engine_ops.h"
#include "pipes/homing.h"

#define BRING_RETRY_MS	200	/* between two attempts */
#define BRING_ATTEMPTS	3	/* of which each has its part of the time */

struct bring_one {
	struct homing m;
	struct bring *b;
	struct engine *e;
	struct loop_timer retry, deadline;
	int64_t due_ms;			/* monotonic */
	uint64_t token;			/* of the attempt at hand */
	unsigned waiting;		/* bits of enum engine_call */
	int rc;				/* of the attempt: the first failure */
	bool used, fenced;		/* fenced: a newer run owns it */
	bool loading;			/* its deadline, for one load */
	bool extended;			/* its deadline, for one receipt */
	bool hasty;			/* nobody there: waits for no load */
	int64_t left_ms;		/* of it, for what comes after that */
	bool cut;			/* the attempt has less than its part */
	char said[ENGINE_CAUSE];	/* why the last one failed that had it */
	bool own;			/* ... by the engine's own word */
	bool gone;			/* ... because nobody was there */
};

struct bring {
	struct loop *loop;
	struct bring_one *one;		/* by engine id */
	uint32_t n;
	int64_t engine_ms, load_ms;
	uint64_t tokens;		/* last one given out */
	const char *cause;		/* of a cancel */
	/* home: serves what it should, and is not paused; else e->cause says
	 * why not.  Called once per engine, never from inside bring_it(). */
	void (*done)(void *arg, struct engine *e, bool home);
	void *arg;
};

/* Engine ids are below n.  instance makes tokens differ between restarts. */
void bring_init(struct bring *b, struct loop *l, uint32_t n,
		uint32_t instance);
void bring_release(struct bring *b);
/* how: HE_FORWARD, HE_FIND, HE_LOOK or HE_BACK.  A second time: ignored. */
void bring_it(struct bring *b, struct engine *e, enum homing_ev how);
/* The host's answer: true if it belonged to an engine that is being brought
 * home. */
bool bring_answer(struct bring *b, struct engine *e, enum engine_call call,
		  int rc);

#endif
