/*
 * push_show.h - what push shows: a bar on a terminal, plain lines elsewhere,
 * event objects on stdout with --json, nothing with -q.
 *
 * Commit's stdout comes through here and, unless quiet, the stages' stderr:
 * their lines and the bar do not overwrite each other, and what a stage says
 * stands after the events that led to it.
 */
#ifndef WEIR_PUSH_SHOW_H
#define WEIR_PUSH_SHOW_H

#include "common/loop.h"
#include "pipes/progress.h"
#include "pipes/push.h"
#include "pipes/run.h"

struct push_show;

struct push_text {		/* what stages write, on its way to one of us */
	struct push_show *show;
	int pipe[2], to;	/* pipe: -1: none, they write to `to` */
	struct buf part;	/* not yet a whole line */
};

struct push_show {
	struct progress progress;
	struct loop *loop;
	struct run *run;
	const struct push_conf *conf;
	struct buf events;	/* of RUN/events, not yet a whole line */
	struct buf bar;		/* as drawn */
	uint64_t offset;	/* bytes of RUN/events read */
	bool cannot_read;	/* them, the last time */
	struct push_text out, err;
	bool bar_on, bar_drawn, planned;
};

int push_show_open(struct push_show *s, struct loop *l, struct run *r,
		   const struct push_conf *conf);
void push_show_close(struct push_show *s);
/* The stdout for commit, the stderr for a stage: our pipe's end, or
 * PROC_KEEP. */
int push_show_stdout(const struct push_show *s);
int push_show_stderr(const struct push_show *s);
/* Passes on what stages have written so far, as it is; allocates nothing. */
void push_show_pass(const struct push_show *s);
/* Reads what RUN/events has grown by, and shows it. */
void push_show_update(struct push_show *s);

#endif
