/*
 * recover.h - finishes what older runs left, before a new one begins.
 *
 * `open` of another run: decided -> its engines go forward, undecided -> they
 * are cancelled, whatever our own fleet file says; its instance of commit is
 * counted on in `open` first, so that a late sender of that run is fenced
 * off.  `attention`: every engine in it is tried again.  Each to its
 * deadline; who is not home then, or cannot be asked from this host, is
 * (still) in `attention`, durable before `open` goes.  An engine that a newer
 * run owns is nobody's concern here.  One that our own run has left in
 * `attention`, before we were restarted, is asked by our instance: the run goes
 * on, and may begin with it again.
 */
#ifndef WEIR_RECOVER_H
#define WEIR_RECOVER_H

#include "pipes/bring.h"
#include "pipes/registry.h"

struct recover_item;

struct recover {
	struct registry *reg;
	struct engine_host host;
	struct bring bring;
	struct recover_item *item;
	uint32_t nitems, left;
	struct reg_rec open, decision, attention;
	bool has_open;
	const struct engine_goal *how;	/* ours: what in-place engines need */
	const char *own_run;		/* lent by recover_start()'s caller */
	int64_t engine_ms, load_ms;	/* ours; the open run's if longer */
	/* Called once, never from inside recover_start(). */
	void (*done)(void *arg, int rc);
	void *arg;
};

/* own_run: its `open` is not touched (we were restarted).  0: there is
 * nothing to do, done is not called; 1: under way; -E_*.  The registry is
 * locked by the caller. */
int recover_start(struct recover *r, struct loop *l, const char *own_run);
/* Ends it, if it is under way: what is not home stays in `attention` as it
 * was, and done is not called. */
void recover_stop(struct recover *r);
void recover_release(struct recover *r);

/* The engine of that name that is poisoned still, or NULL.  Until release. */
const struct engine *recover_poisoned(const struct recover *r,
				      const char *name);

/* Appends an attention record for an engine to b. */
int attention_append(struct buf *b, struct engine *e,
		     const struct m_opened_engine *who, bool decided);

#endif
