/*
 * stage_priv.h - what stage.c (life), stage_enter.c (into the run) and
 * stage_msg.c (messages, failures and the verdict) share.  Nobody else
 * includes it.
 */
#ifndef WEIR_STAGE_PRIV_H
#define WEIR_STAGE_PRIV_H

#include "pipes/facts.h"
#include "pipes/handoff.h"
#include "pipes/stage.h"

enum phase {
	PH_EARLY,	/* no links yet: a signal ends us */
	PH_RUNNING,	/* until the verdict is known */
	PH_ENDING,	/* it is passed on */
};

struct stage_priv {
	enum phase phase;
	int code;	/* of the verdict */
	bool started;	/* ops->start was called, ops->stop was not */
	bool left;	/* the loop is stopping */
	bool signalled, up_failed, reader_gone;
	bool has[2], ever_up[2];
	struct link link[2];
	struct facts facts[2];	/* to be said in that direction */
	struct m_hello hello;
	char *endpoint;		/* dialled */
	char *announced;	/* ours; NULL: nobody dials us */
	int64_t lost_since[2];
	struct loop_timer tick, end, grace, wait;
	int64_t tick_due;	/* when it should come */
	int supervisor_fd, inotify_fd;
	const char *awaited;	/* file in the run directory */
	int64_t plan_seen_ms;	/* alive, while we wait for it */
	struct buf line;	/* of the hand-off, while it comes */
	struct handoff handoff;
};

extern const struct link_ops stage_link_ops;

/* A step before the links says: p->code is the exit code.  (0: go on.) */
#define STAGE_ENDED 1

/* Takes the hand-off line if one is due, opens the run, takes an instance.
 * 0, STAGE_ENDED (upstream or the run has ended, or a signal came), -E_*. */
int stage_enter(struct stage *s);
/* The stage before or after ours. */
enum stage_id stage_neighbour(const struct stage *s, enum dir d);
/* Was there ever an instance of it in this run? */
bool stage_was_there(const struct stage *s, enum dir d);
/* Stops the loop with an exit code; the first one wins. */
void stage_leave(struct stage *s, int code);
/* Calls ops->stop, if that is due. */
void stage_let_go(struct stage *s);
/* Takes a verdict from the run directory, if there is one. */
void stage_look_for_verdict(struct stage *s);
/* Nobody downstream can have opened engines. */
bool stage_nothing_opened(const struct stage *s);
/* RUN/verdict for an end before there were links; cause: log_cause(). */
void stage_end_early(struct stage *s, int code);
/* Downstream is lost for good. */
void stage_give_up(struct stage *s, int code);

#endif
