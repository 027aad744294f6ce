/*
 * commit_io.h - commit's shell: performs the actions of pipes/commit.h on
 * the registry, the engines and the link to transfer.
 *
 * Split by time: commit_io.c (the stage, events in, actions out),
 * commit_lock.c (plan, lock, recovery), commit_over.c (decided and brought home
 * before we started), commit_probe.c, commit_retire.c (engines that always
 * fail), commit_open.c (number, open, begin),
 * commit_expect.c (the tensors that engines expect), commit_end.c (receipts,
 * decision, swap, verdict), commit_pull.c, commit_hold.c and commit_alone.c
 * (in-place engines), commit_tell.c (what people read).
 */
#ifndef WEIR_COMMIT_IO_H
#define WEIR_COMMIT_IO_H

#include "common/log.h"
#include "pipes/bring.h"
#include "pipes/commit.h"
#include "pipes/options.h"
#include "pipes/place.h"
#include "pipes/planfile.h"
#include "pipes/receipt.h"
#include "pipes/recover.h"
#include "pipes/registry.h"
#include "pipes/stage.h"

#define LOCK_POLL_MS 50		/* while another run holds the registry */
/* After the first engine that cannot take part: so that one line names all. */
#define PROBE_GATHER_MS 500

/* Ends of the phases that the summary shows (DESIGN 10). */
enum phase {
	PHASE_PLAN, PHASE_OPEN, PHASE_MOVE, PHASE_SEAL, PHASE_DECIDE,
	PHASE_SWAP,
	PHASE_N
};

struct commit_input {			/* an event waiting for its turn */
	struct commit_event ev;
	char *cause;			/* owned; LOST, FAIL */
	bool printed;			/* somebody has logged it already */
};

struct commit_queue {
	struct commit_input *v;
	size_t n;
};

struct commit_io {
	struct stage *s;
	const struct commit_conf *conf;
	struct commit m;
	struct commit_engine *state;	/* m's, by engine id */

	struct commit_queue queue;
	struct commit_queue early;	/* lost engines, until they count */
	bool driving;
	struct log_few excluded, left;	/* what is told of engines */
	char *cause;			/* of the abort, or of the refusal */

	struct registry reg;
	bool has_reg;
	struct recover recover;
	struct reg_rec mine;		/* `open`, if it names this run */
	bool resumed, ahead;		/* ... undecided, decided */
	struct reg_rec over;		/* our decision, if `open` has gone */
	bool is_over;
	bool open_written;
	struct loop_timer lock_timer, run_timer;
	int64_t lock_since_ms, free_since_ms;
	bool seen_held;			/* the lock, by somebody else */
	uint64_t deadline_ms;		/* CLOCK_BOOTTIME */

	struct plan plan;
	bool has_plan;
	struct m_opened_engine *who;	/* by engine id; borrows from plan */
	struct slice *endpoints;	/* who's workers */
	struct m_slotfile *files;	/* by file id */
	struct engine_share *share;	/* goal's, by source rank */
	struct m_boot *boots;		/* as sent in `opened` */
	uint32_t nboots;

	struct engine_host host;
	struct commit_miss {		/* by engine id: a failed probe */
		int rc;			/* 0: none */
		char *cause;		/* owned */
	} *miss;
	uint32_t probes_left;
	struct commit_past *past;	/* recent decisions, newest first */
	size_t npast;
	struct loop_timer gather_timer;
	struct engine **engine;		/* by engine id; host's */
	struct engine_goal goal;
	char *token, *architecture, *quantization; /* goal's */
	char *sample[LOAD_SAMPLES];	/* goal's */
	struct place place;		/* goal's */
	uint32_t pulling, pull_next;	/* engines: under way; to be asked */
	struct commit_base {		/* what a delta may be made from */
		uint64_t version;	/* 0: nothing */
		struct digest content;
		char **place;		/* where it may be; owned */
		uint32_t nplaces;
		struct slice *slice;	/* of them, for a message */
	} base;
	struct bring bring;
	bool told_opened;
	bool found;			/* the content can be had, if needed */
	char *found_at;			/* ... in this directory */

	struct msg verdict;		/* ready, about to be given */
	char *verdict_cause;
	struct loop_timer end_timer;

	struct m_drained drained;	/* of whenever it was said */
	struct m_share *shares;		/* its own, and room for the goal's */
	bool has_drained;
	struct digest published;	/* content of an already decided one */
	int64_t start_ms, phase_ms[PHASE_N];
};

/* The whole life of weir-commit; returns the exit code.  conf's options of
 * an earlier instance are taken over if --run names its run. */
int commit_run(struct commit_conf *conf);

/* Events; performed in order, those of actions after the action. */
void commit_feed(struct commit_io *c, enum commit_ev type, uint32_t engine);
/* rc is -E_*, and log_cause() its printed cause. */
void commit_fail(struct commit_io *c, int rc);
void commit_lose(struct commit_io *c, uint32_t engine, int rc,
		 const char *cause, bool printed);
void commit_phase(struct commit_io *c, enum phase p);

/* commit_lock.c */
int commit_prepare(struct stage *s);
int commit_plan_open(struct commit_io *c, const struct m_end *end);
void commit_lock(struct commit_io *c);
void commit_recover(struct commit_io *c);

/* commit_over.c */
/* Sets is_over if this run has a decision, though `open` does not name it. */
int commit_over_find(struct commit_io *c);
/* Ends the run with that decision's verdict: nothing is sent to engines. */
int commit_over_end(struct commit_io *c);

/* commit_retire.c */
/* Reads the decisions that commit_retired() goes by. */
int commit_past_read(struct commit_io *c);
void commit_past_release(struct commit_io *c);
/* 0; -E_UNAVAIL, logged: a probed engine that is not to be tried again. */
int commit_retired(const struct commit_io *c, const struct engine *e);

/* commit_open.c */
void commit_open(struct commit_io *c);
/* Asks transfer; again when its link is new. */
void commit_seek(struct commit_io *c);
void commit_found(struct commit_io *c, const struct m_found *f);
void commit_begin(struct commit_io *c);
void commit_tell_opened(struct commit_io *c);
void commit_exclude(struct commit_io *c, uint32_t engine);

/* commit_disk.c: transports with version directories; else they do nothing */
/* The number is known. */
int commit_set_place(struct commit_io *c);
void commit_tell_base(struct commit_io *c, struct m_opened *o);
void commit_base_release(struct commit_io *c);
/* Old directories go; the registry is locked still. */
void commit_prune(struct commit_io *c);

/* commit_expect.c */
/* Are the tensors those of the version that each engine serves?  0, or
 * -E_DATA, logged. */
int commit_expect(struct commit_io *c, uint64_t decided);

int commit_write_open(struct commit_io *c);

/* commit_pull.c */
bool commit_has_pulls(const struct commit_io *c);
void commit_ask_receipts(struct commit_io *c);
/* An answer of EC_RECEIPT was taken. */
void commit_pulled(struct commit_io *c, const struct engine *e);

/* commit_hold.c */
/* How many load at a time is admit's to say; every stage reads the same run
 * directory.  0, or -E_IO. */
int commit_learn_groups(struct commit_io *c);
void commit_hold(struct commit_io *c);
void commit_reload(struct commit_io *c);
/* The answer to a pause, flush or load. */
void commit_held(struct commit_io *c, struct engine *e, enum engine_call call,
		 int rc);
/* What recovery could not mend stays poisoned in this run. */
void commit_inherit(struct commit_io *c);

/* commit_alone.c */
/* What servers are to be told or asked of the plan. */
void commit_goal_servers(struct commit_io *c);
/* Is one with a store in? */
bool commit_has_stores(const struct commit_io *c);
/* What a probe of one says is completed from the registry.  0, or -E_*. */
int commit_alone_probed(struct commit_io *c, struct engine *e);
/* They are to load from a directory: which files does it hold?  And, after
 * the loads: are they the same? */
int commit_alone_open(struct commit_io *c);
int commit_alone_check(struct commit_io *c);
/* It has loaded: how well has it shown that?  0, or -E_*. */
int commit_alone_loaded(struct commit_io *c, struct engine *e);
/* A decided version is loaded again from where it was. */
void commit_alone_resume(struct commit_io *c);
void commit_alone_release(struct commit_io *c);

/* commit_probe.c */
/* The same call to every engine that is not excluded. */
void commit_ask_all(struct commit_io *c, enum engine_call call, int64_t ms);
void commit_probe(struct commit_io *c);
void commit_probed(struct commit_io *c, struct engine *e, int rc);
void commit_probe_release(struct commit_io *c);

/* commit_end.c */
void commit_drained(struct commit_io *c, const struct m_drained *d);
/* `opened` is out: a `drained` that came before it counts now. */
void commit_take_drained(struct commit_io *c);
void commit_receipt(struct commit_io *c, struct engine *e, int rc);
void commit_decide(struct commit_io *c);
void commit_swap(struct commit_io *c);
void commit_cancel(struct commit_io *c);
void commit_brought(struct commit_io *c, struct engine *e, bool home);
void commit_verdict(struct commit_io *c);

/* commit_tell.c */
void commit_tell_signal(const struct commit_io *c);
void commit_tell_result(const struct commit_io *c, uint8_t code);
/* "rollout-1, rollout-3": out or away.  Appends. */
void commit_names_lagging(const struct commit_io *c, struct buf *out);

#endif
