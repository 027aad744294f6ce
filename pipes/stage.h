/*
 * stage.h - the shell that plan, admit, transfer and commit share.
 *
 * It owns everything that touches the world for all four alike: run
 * directory and instance, hand-off line in and out, the two links, signals,
 * the supervisor's death pipe, deadlines for vanished neighbours, events and
 * the verdict.  A stage adds its own sockets and timers to s->loop.
 *
 * Life of a stage: options -> [stdin: hand-off line | --run] -> run_enter
 * -> verdict there already? exit with it -> ops->prepare -> link up (dial
 * upstream), link down (listen), hand-off line out -> ops->start -> messages,
 * until the verdict: forwarded upstream, acknowledged with bye, exit code
 * from it.
 *
 * Hand-off (a Unix pipe, one line):
 *	weir-link 1 RUNDIR ENDPOINT\n		then open as a sign of life
 *	weir-fail 1 EXITCODE CAUSE\n		upstream failed before its run
 *
 * Neighbours.  A link is `up` between an accepted hello and loss (no beat
 * for --stage-timeout, disconnect, or a newer instance's hello).  On loss the
 * downstream side watches RUN/STAGE.endpoint (inotify) and dials the new
 * one.  Upstream lost without ops->done_with_up for --stage-timeout: a
 * `failed` goes downstream (commit: abort).  Downstream lost for twice that,
 * and no RUN/verdict: exit 75, outcome unknown.  RUN/verdict is watched too,
 * so a verdict reaches a stage whose link is broken.
 *
 * An older instance of a peer, or of ourselves (a newer STAGE.N exists, or
 * the peer refuses us): exit 76, nothing else is sent (I10).
 *
 * Signals (INT TERM HUP): `failed` with the signal goes downstream once; the
 * verdict decides the exit code.  A second one ends the process at once.
 */
#ifndef WEIR_STAGE_H
#define WEIR_STAGE_H

#include "common/loop.h"
#include "pipes/events.h"
#include "pipes/msg.h"
#include "pipes/run.h"

enum dir { UP, DOWN };		/* towards plan, towards commit */

struct stage;

struct stage_ops {
	enum stage_id id;
	/* Before the links and the hand-off line, while no neighbour waits
	 * for an answer; may be NULL.  A failure (already logged) becomes
	 * RUN/verdict with its exit code, and the hand-off line still goes
	 * out, so that all stages exit alike. */
	int (*prepare)(struct stage *s);
	/* Links are there (not yet up).  Make sockets, timers, state. */
	int (*start)(struct stage *s);
	/* A neighbour said hello (again): tell it what you know; messages to
	 * it sent before this are lost.  peer's hello is in s->peer[d]. */
	int (*peer_up)(struct stage *s, enum dir d);
	/* Any message but hello beat bye verdict.  rc < 0 (already logged):
	 * stage_fail() is called with it. */
	int (*msg)(struct stage *s, enum dir d, const struct msg *m);
	/* SIGINT, SIGTERM or SIGHUP, first time.  NULL: stage_fail_signal. */
	void (*signal)(struct stage *s, int signo);
	/* Upstream is not needed any more (its loss is harmless). */
	bool (*done_with_up)(const struct stage *s);
	/* The verdict is known: let go of everything (buffers, fds). */
	void (*stop)(struct stage *s);
};

struct stage_conf {		/* common options, resolved */
	const char *run;	/* --run, or NULL: hand-off line on stdin */
	bool head;		/* no upstream: plan, or admit from a file */
	uint64_t stage_timeout_ms;
	bool json;
	int verbose;
	const char *options;	/* opt_dump() text, for STAGE.options */
};

struct stage {
	const struct stage_ops *ops;
	const struct stage_conf *conf;
	void *self;		/* the stage's own state */
	struct loop *loop;
	struct run run;
	struct events events;
	struct m_hello peer[2];	/* last accepted; slices not valid */
	bool up[2];		/* is the link up? */
	uint64_t epoch;		/* 0 until opened */
	/* below: stage.c's own */
	struct stage_priv *priv;
};

/* Runs to the end; returns the exit code. */
int stage_run(struct stage *s, const struct stage_ops *ops,
	      const struct stage_conf *conf, void *self);
/* 0; -E_AGAIN if the link is down (peer_up will tell).  Frames that do not
 * fit the high-water mark are queued, at most STAGE_QUEUE_MAX of them. */
int stage_send(struct stage *s, enum dir d, const struct msg *m);
#define STAGE_QUEUE_MAX 65536	/* frames */

/* Something of ours failed: rc is -E_*, the cause is log_cause().  Sends
 * `failed` downstream (commit: its own abort path), once.  Before any
 * downstream link it writes RUN/verdict itself. */
void stage_fail(struct stage *s, int rc, uint32_t engine, uint32_t bucket);
/* Ends the run here: commit only.  Writes RUN/verdict, sends it upstream,
 * waits at most a second for bye, then the loop stops. */
void stage_verdict(struct stage *s, const struct msg *verdict);

/* For main(): a failure before stage_run (usage, bad options): tells the
 * next process in the pipe by a weir-fail line and returns the exit code. */
int stage_fail_early(int rc);

#endif
