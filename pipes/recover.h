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

#include "common/log.h"
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
	struct log_few kept;		/* what is told of engines */
	/* Ours: what in-place engines need, and which run is not touched. */
	const struct engine_goal *how;
	int64_t engine_ms, load_ms;	/* ours; the open run's if longer */
	/* Called once, never from inside recover_start(). */
	void (*done)(void *arg, int rc);
	void *arg;
};

/* `open` is not touched if it is of our own run and epoch (we were restarted).
 * 0: there is nothing to do, done is not called; 1: under way; -E_*.  The
 * registry is locked by the caller. */
int recover_start(struct recover *r, struct loop *l);
/* Ends it, if it is under way: what is not home stays in `attention` as it
 * was, and done is not called. */
void recover_stop(struct recover *r);
void recover_release(struct recover *r);

/* What recovery has left an in-place engine of e's name in, paused or
 * poisoned, e is in. */
void recover_inherit(const struct recover *r, struct engine *e);

/* Appends an attention record for an engine to b. */
int attention_append(struct buf *b, struct engine *e,
		     const struct m_opened_engine *who, bool decided);

#endif
