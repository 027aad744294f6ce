/*
 * supervise.h - when `weir push` starts a stage again, and how it ends.
 *
 * One machine per stage; what a process's end means is decided by its exit
 * code (s6).  Until the run has a verdict, a signal, 71 or 75 is worth another
 * try: such an end may come anywhere, and leaves nobody who could abort.  Tries
 * are bounded: SUPERVISE_TRIES per stage and run; the first at once, as who was
 * killed has done nothing wrong, each later one after a longer pause.  Out of
 * tries, or if it ended for another reason without a verdict, nothing will take
 * its place: the others are asked to abort (SUP_TERMINATE) and end by their own
 * rules.  0 and 76 alone say that others go on.
 *
 * Pure: no clock, no process.  The shell performs the action that each step
 * returns and reports what comes of it.
 */
#ifndef WEIR_SUPERVISE_H
#define WEIR_SUPERVISE_H

#include "common/fsm.h"
#include "pipes/msg.h"

#define SUPERVISE_TRIES		5	/* restarts of one stage in a run */
#define SUPERVISE_PAUSE_MS	100	/* before the second; then doubled */

enum sup_state { SUP_RUNNING, SUP_PAUSING, SUP_ENDED, SUP_NSTATES };
enum sup_event {
	SUP_EXIT_OVER,
	SUP_EXIT_FINAL,
	SUP_EXIT_AGAIN,
	SUP_DUE,
	SUP_NEVENTS
};
enum sup_action { SUP_NOTHING, SUP_START, SUP_WAIT, SUP_TERMINATE };

struct supervised {
	uint8_t state;
	uint32_t restarts;
	uint32_t pause_ms;	/* SUP_WAIT: for how long */
	int code;		/* of its last end */
	enum sup_action action;
};

struct supervisor {
	struct supervised stage[STAGE_N];	/* from STAGE_PLAN on */
	bool ending;	/* a verdict is there, or somebody gave up */
};

extern const struct fsm_table supervise_table;

/* All four are running. */
void supervisor_init(struct supervisor *s);
/* The stage's process ended with this code (128 + n for a signal). */
enum sup_action supervisor_exit(struct supervisor *s, enum stage_id id,
				int code, bool signalled);
/* The pause of a stage is over. */
enum sup_action supervisor_due(struct supervisor *s, enum stage_id id);
/* A verdict is known or the user wants to stop: nothing starts again. */
void supervisor_ending(struct supervisor *s);
bool supervisor_is_done(const struct supervisor *s);
/* Without a verdict: the code of the first stage, from plan on, that failed
 * for a reason of its own (75 and 128 + n only if there is nothing else; a
 * stage that was killed counts as 75, and so does one that was started again:
 * engines may have been touched by then). */
int supervisor_code(const struct supervisor *s);

#endif
