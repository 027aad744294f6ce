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
 * Hand-off (a Unix pipe, one line; see handoff.h): `weir-link`, then open as
 * a sign of life; or `weir-fail`: upstream failed before it had a link, and
 * its exit code is ours, without a second error line.  End of file without a
 * line: one line of error, exit 76.  stdout is the hand-off's alone: the
 * number 1 is stderr from stage_run() on (UX-04).
 *
 * Neighbours.  A link is `up` between an accepted hello and loss (no beat
 * for --stage-timeout, disconnect, or a newer instance's hello).  On loss the
 * downstream side watches RUN/STAGE.endpoint (inotify) and dials the new
 * one.  Upstream lost without ops->done_with_up for --stage-timeout: a
 * `failed` goes downstream (commit: abort).  Downstream lost for twice that,
 * and no RUN/verdict: exit 75, outcome unknown, and upstream likewise.
 * RUN/verdict is watched too, so a verdict reaches a stage whose link is
 * broken.  Ends of the two pipes are hints; only if the next stage has never
 * been there, and nobody supervises us, does the end of its pipe end us (75).
 *
 * What the shell does with messages:
 *	hello beat bye verdict	are its own
 *	failed (from UP)	forwarded down, ops do not see it; commit's do
 *	opened exclude abort	(from DOWN) to ops->msg, then forwarded up
 *	all others		to ops->msg, who send on what must go on
 * The level-triggered ones are kept and sent again after each reconnect:
 * `end` and every `failed` that no abort or exclude has answered, downstream;
 * the last `opened`, all `exclude`, `abort` and `verdict`, upstream.
 *
 * An older instance of a peer, or of ourselves (a newer STAGE.N exists, or
 * the peer refuses us): exit 76, nothing else is sent (I10).  A neighbour of
 * another build is refused by both, with 76, before anything else is said.
 *
 * Signals (INT TERM HUP): `failed` with the signal goes downstream once; the
 * verdict decides the exit code.  A second one ends the process at once: with
 * the verdict, if that is known or ops->signal_again gives one, else 128 + n.
 * WEIR_SUPERVISOR_FD=n: the end of that pipe is as SIGTERM, and five seconds
 * later the process is gone in any case.
 */
#ifndef WEIR_STAGE_H
#define WEIR_STAGE_H

#include "common/loop.h"
#include "pipes/events.h"
#include "pipes/link.h"
#include "pipes/msg.h"
#include "pipes/run.h"

struct stage;

struct stage_ops {
	enum stage_id id;
	/* Before the links and the hand-off line, while no neighbour waits
	 * for an answer; may be NULL.  A failure (already logged) becomes
	 * RUN/verdict with its exit code, and a weir-fail line goes out, so
	 * that all stages exit alike. */
	int (*prepare)(struct stage *s);
	/* Links are there (not yet up).  Make sockets, timers, state. */
	int (*start)(struct stage *s);
	/* A neighbour said hello (again): tell it what you know; messages to
	 * it sent before this are lost.  peer's hello is in s->peer[d]. */
	int (*peer_up)(struct stage *s, enum dir d);
	/* See above for which.  rc < 0 (already logged): stage_fail() is
	 * called with it.  Nothing comes after stop. */
	int (*msg)(struct stage *s, enum dir d, const struct msg *m);
	/* SIGINT, SIGTERM or SIGHUP, first time.  NULL: stage_fail_signal. */
	void (*signal)(struct stage *s, int signo);
	/* Again: gives the verdict without waiting any more.  NULL: the process
	 * ends without one. */
	void (*signal_again)(struct stage *s);
	/* Upstream is not needed any more (its loss is harmless). */
	bool (*done_with_up)(const struct stage *s);
	/* The verdict is known, or the process ends without one: let go of
	 * everything (buffers, sockets, timers).  Once, if start was called,
	 * and from the loop, never inside a callback of yours. */
	void (*stop)(struct stage *s);
	/* SIGCHLD, SIGIO.  May be NULL. */
	void (*wakeup)(struct stage *s, int signo);
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
/* 0; -E_AGAIN if the link is down (peer_up will tell), but 0 then for what is
 * kept.  Frames that do not fit the high-water mark are queued, within
 * LINK_QUEUE_MAX and LINK_BYTES_MAX; then the peer counts as lost. */
int stage_send(struct stage *s, enum dir d, const struct msg *m);

/* Something of ours failed: rc is -E_*, the cause is log_cause().  Sends
 * `failed` downstream, once per engine (ID_NONE: once); commit gets it as if
 * it came from UP.  While nobody downstream can have opened anything it
 * writes RUN/verdict itself instead. */
void stage_fail(struct stage *s, int rc, uint32_t engine, uint32_t bucket);
/* The same, for a signal. */
void stage_fail_signal(struct stage *s, int signo);
/* Ends the run here: commit only.  Writes RUN/verdict, sends it upstream,
 * waits at most a second for bye, then the loop stops. */
void stage_verdict(struct stage *s, const struct msg *verdict);
/* In prepare, of a stage that needs a file that plan makes: the line on stdin
 * says that it is there, but with --run a stage may come before it.  Waits
 * for it, while plan lives and for --stage-timeout.  0 (also if it has not
 * come), or what prepare must return. */
int stage_await(struct stage *s, const char *name);
/* In stop: the verdict is known, and the version is published. */
bool stage_has_published(const struct stage *s);
/* For long work outside the loop (prepare): has a signal arrived, or has the
 * supervisor died?  Then give up with -E_AGAIN; the shell does the rest. */
bool stage_is_interrupted(const struct stage *s);

/* For main(): a failure before stage_run (bad options): tells the next
 * process in the pipe by a weir-fail line and returns the exit code.  Not for
 * commit, whose stdout is the result. */
int stage_fail_early(int rc);
/* The descriptor of the real stdout (commit's result line); see handoff.h. */
int stage_stdout(void);

#endif
