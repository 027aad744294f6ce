/*
 * commit.h - the version fence as a machine: whether.
 *
 * Event in, actions out: no clock, I/O, allocation or log.  The edge table is
 * the specification (share/doc/states.md is made of it).
 *
 *	plan -> lock -> recover -> probe -> open -> begin -> load -> receipt
 *	     [-> hold -> reload] -> decide -> swap -> done
 *	and from anywhere before the decision -> abort -> done
 *
 * Engines of an in-place kind are paused together once every store is sealed
 * (hold), and then load from their stores in waves (reload); the waves are
 * cut once, by engine id, and never refilled.
 *
 * Invariants.
 *   I1  CA_DECIDE only when every engine that is in has given its receipt.
 *   I2  CA_SWAP only after CE_DECIDED.
 *   I3  no wave ends a pause; CA_RELOAD only when all are held (CE_HELD).
 *   I6  the next CA_RELOAD only when each engine of the wave has loaded or is
 *       out; none after a failure.
 *   I11 nothing happens before CE_PLAN.
 *   A join decides nothing: its shell answers CA_DECIDE by comparing.
 *   An engine is excluded only while min engines are left; else the run is
 *   aborted.  The first cause is the run's cause.
 *   Engines are touched from CA_BEGIN on; every touched engine is brought
 *   home (CE_HOME) or given up (CE_AWAY) before CA_VERDICT.
 */
#ifndef WEIR_COMMIT_H
#define WEIR_COMMIT_H

#include "common/fsm.h"

#include <stdbool.h>
#include <stdint.h>

enum commit_state {
	CS_PLAN,	/* the plan is not whole yet */
	CS_LOCK,	/* another run holds the registry */
	CS_RECOVER,	/* what an older run left is being finished */
	CS_PROBE,
	CS_OPEN,	/* number, version directory and `open` are written */
	CS_SEEK,	/* transfer looks where a published content can be had */
	CS_BEGIN,
	CS_LOAD,	/* `opened` is out; until drained */
	CS_HASH,	/* a decided number again: only the source is read */
	CS_RECEIPT,
	CS_HOLD,	/* in-place engines pause and flush: the barrier */
	CS_RELOAD,	/* ... and load, a wave at a time */
	CS_DECIDE,
	CS_SWAP,	/* decided: only forward from here */
	CS_ABORT,
	CS_DONE,
	CS_NSTATES
};

enum commit_ev {
	CE_PLAN,	/* the whole plan is there */
	CE_LOCKED,
	CE_RECOVERED,	/* nothing older is open */
	CE_AHEAD,	/* this run is decided already (we were restarted) */
	CE_PROBED,	/* engine */
	CE_OVER,	/* ... and was brought home by another commit */
	CE_THERE,	/* engine: serves what is to be joined already */
	CE_OPENED,	/* `open` is durable */
	CE_SAME,	/* the number is decided, with equal structure */
	CE_SEEK,	/* an engine does not keep the content */
	CE_FOUND,
	CE_BEGUN,	/* engine */
	CE_DRAINED,
	CE_RECEIPT,	/* engine; checked */
	CE_HELD,	/* engine: paused and flushed */
	CE_LOADED,	/* engine: it says that it holds the version */
	CE_AGREED,	/* receipts are durable, decision linked and synced */
	CE_UNKNOWN,	/* link was called, then something failed */
	CE_HOME,	/* engine: serves what it should, is not paused */
	CE_AWAY,	/* engine: could not be brought home in time */
	CE_LOST,	/* engine: failed before the decision */
	CE_FAIL,	/* the run failed, or a signal asks for the abort */
	CE_LEAVE,	/* a second signal: what is not home is left to the next */
	CE_NEVENTS
};

struct commit_event {
	enum commit_ev type;
	uint32_t engine;	/* where it says so */
	uint8_t code;		/* enum err: LOST, FAIL, UNKNOWN */
	uint8_t signal;		/* FAIL: 0, or which */
};

enum commit_act {
	CA_LOCK, CA_RECOVER,
	CA_PROBE,		/* every engine that is in */
	CA_OPEN,
	CA_SEEK,		/* upstream */
	CA_BEGIN,		/* every engine that is in */
	CA_TELL_OPENED,		/* upstream */
	CA_ASK_RECEIPTS,	/* every engine that is in */
	CA_HOLD,		/* every in-place engine that is in */
	CA_RELOAD,		/* those of c->lo..c->hi that are in */
	CA_DECIDE,
	CA_SWAP,		/* every engine that is in */
	CA_EXCLUDE,		/* engine: durable, upstream, cancel if touched */
	CA_TELL_ABORT,		/* upstream */
	CA_CANCEL,		/* every touched engine that is not excluded */
	CA_VERDICT,
	CA_NACTS
};

struct commit_action {
	enum commit_act type;
	uint32_t engine;
};

#define COMMIT_ACTIONS_MAX 4	/* of one event */

struct commit_engine {
	bool out;		/* excluded, or there */
	bool there;		/* out, as it serves the version already */
	bool answered;		/* in this state */
	bool touched;		/* its begin may have been sent */
	bool in_place;		/* set by who made us */
	bool home, away;	/* at the end of the run */
};

struct commit {
	uint8_t state;
	uint32_t nengines, min;
	uint32_t groups;	/* engines that load at a time; 0: all */
	uint32_t lo, hi;	/* wave of CS_RELOAD: engines lo to hi - 1 */
	struct commit_engine *engine;	/* lent by who made us */
	bool touched, published, unknown, same;
	uint8_t code, signal;		/* of the first failure */
	/* of the event at hand */
	struct commit_action act[COMMIT_ACTIONS_MAX];
	unsigned nacts;
};

extern const struct fsm_table commit_table;

/* engine[n] zeroed; kept until the end.  min 0: all. */
void commit_init(struct commit *c, struct commit_engine *engine, uint32_t n,
		 uint32_t min);
/* We are restarted in a run that has touched these engines. */
void commit_resume(struct commit *c);
/* The same, and its version is decided. */
void commit_resume_decided(struct commit *c);
/* 0 and c->act[0..nacts), or -E_PROTO: not in the table, nothing happened. */
int commit_step(struct commit *c, const struct commit_event *e);
/* Counts of engines that are in; that are out or away. */
uint32_t commit_in(const struct commit *c);
uint32_t commit_lagging(const struct commit *c);
/* The exit code of all four stages (DESIGN 9); in CS_DONE. */
uint8_t commit_exit(const struct commit *c);

/*
 * Which number (I12)?  asked 0: the next one.  served: highest that a probed
 * engine serves.  pulled: highest that one may have a copy of.  0 and *out;
 * -E_AGAIN: asked is the number of a decision, so the content must be
 * compared; -E_DATA: refused (the caller says why, with both numbers).
 */
struct commit_numbers {
	uint64_t asked, decided, served, pulled;
	bool asked_is_decided;
};
int commit_number(const struct commit_numbers *n, uint64_t *out);

#endif
