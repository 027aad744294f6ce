/*
 * homing.h - one engine on its way home, as a machine: forward to a decided
 * version, or back to the one it served.
 *
 *	forward	[find ->] [receipt ->] swap -> home
 *	back	cancel -> home
 *
 * A failed call is tried again after a pause (wait), until the deadline: then
 * the engine is away (lagging, or for the registry's attention).  Swap and
 * cancel are idempotent, so that a lost reply costs a repetition and no more.
 * After a failed swap the engine is probed again: it may have been restarted
 * and then rehashes its slot for a fresh receipt first.  A dead engine is
 * waited for on the way forward only: there is nothing to cancel in it.  Pure.
 */
#ifndef WEIR_HOMING_H
#define WEIR_HOMING_H

#include "common/fsm.h"

enum homing_state {
	HS_IDLE, HS_FIND, HS_RECEIPT, HS_SWAP, HS_WAIT,
	HS_CANCEL, HS_WAIT_BACK, HS_HOME, HS_AWAY,
	HS_NSTATES
};

enum homing_ev {
	HE_FORWARD,	/* boot known, receipt given in this run */
	HE_FIND,	/* forward, but nothing is known of the engine */
	HE_LOOK,	/* the same, but a dead one is not waited for */
	HE_BACK,
	HE_OK,		/* the call at hand succeeded */
	HE_THERE,	/* find: serves the version already, not paused */
	HE_HELD,	/* find: serves it, but is paused */
	HE_FAILED,	/* the call at hand failed; may be tried again */
	HE_GONE,	/* ... because nobody is there */
	HE_REFUSED,	/* ... and will fail for ever (fenced off) */
	HE_TIMER, HE_DEADLINE,
	HE_NEVENTS
};

enum homing_act {
	HA_NONE, HA_PROBE, HA_RECEIPT, HA_SWAP, HA_CANCEL, HA_TIMER, HA_HOME,
	HA_AWAY,
	HA_NACTS
};

struct homing {
	uint8_t state;
	uint8_t act;		/* enum homing_act of the event at hand */
	bool hurried;		/* HE_LOOK started it */
};

extern const struct fsm_table homing_table;

/* The action is h->act.  -E_PROTO: not in the table, nothing happened. */
int homing_step(struct homing *h, enum homing_ev e);

#endif
