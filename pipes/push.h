/*
 * push.h - `weir push`: the same four stages, started, watched, shown.
 *
 * push is no stage: it has no link, no part in the protocol, and nothing
 * depends on its being alive but its children, who hold the read end of its
 * death pipe (WEIR_SUPERVISOR_FD) and abort when it is gone.  It composes the
 * pipeline with the same pipes and options that a shell would, starts a stage
 * that dies again in the same run (supervise.h), renders RUN/events
 * (progress.h) and exits with the verdict's code.
 *
 * Signals: the stages are in sessions of their own, so that a Ctrl-C of the
 * terminal comes to push alone, which passes on every signal once.  The second
 * of any ends push, and with it the stages.
 */
#ifndef WEIR_PUSH_H
#define WEIR_PUSH_H

#include "pipes/options.h"

struct push_conf {
	struct opt_common common;
	struct plan_conf plan;
	struct admit_conf admit;
	struct transfer_conf transfer;
	struct commit_conf commit;
};

/* The rows of all four stages; made once, on first use. */
const struct opt_spec *push_spec(void);

/* weir-rollback's: those of push that say nothing of a source's layout. */
const struct opt_spec *rollback_spec(void);

/* Runs one push to its end; returns the exit code.  spec: one of the two. */
int push_run(const struct opt_spec *spec, const struct push_conf *conf);

#endif
