/*
 * world.h - a fleet, its pushes, what befalls them, and what it was all
 * about: the checks of watch.c know the truth from here.
 */
#ifndef WEIR_SIM_WORLD_H
#define WEIR_SIM_WORLD_H

#include "pipes/supervise.h"
#include "sim.h"

#define ENGINES_MAX 5
#define PUSHES_MAX 6
#define FAULTS_MAX 24
#define BUCKETS_MAX 64
#define FILES_MAX 4

enum fault_kind {
	FAULT_KILL_STAGE,	/* at a step of its own */
	FAULT_KILL_ENGINE,
	FAULT_STOP_STAGE,	/* and continued, sometimes too late */
	FAULT_STOP_ENGINE,
	FAULT_CUT,		/* a connection */
	FAULT_STALL,		/* the same: silence */
	FAULT_DISK,		/* a write of a stage or an engine fails */
	FAULT_POWER,		/* all die, what was not synced is lost */
	FAULT_SIGNAL,		/* the user wants an abort */
	FAULT_PUSH,		/* weir push is killed */
	FAULT_TWICE,		/* a stage is started beside itself */
	FAULT_LIE,		/* an engine's word is not true */
	FAULT_ECHO,		/* old requests are heard again */
	FAULT_FULL,		/* no room on any disk for a while */
	FAULT_SERVER,		/* an in-place engine's starts again */
	FAULT_SLOW,		/* an engine's next job or command takes long */
	FAULT_BUSY,		/* a server answers nothing for a while */
	FAULT_FLOW,		/* what a stall holds back goes on */
	FAULT_RISE,		/* a stage of the push before, by hand */
	FAULT_ROT,		/* a byte of an engine's slot */
	FAULT_NKINDS,
	FAULT_NDRAWN = FAULT_SLOW /* the others are placed by aims */
};

struct conn;
struct fsm_table;

/* For moments that are no state of a machine: a message of this type is sent,
 * from or to the fault's engine if it is an engine's. */
extern const struct fsm_table world_frames;

struct fault {
	enum fault_kind kind;
	uint32_t push, who;	/* stage or engine */
	/* ns after the push began, or after a machine has entered a state;
	 * how long */
	int64_t when, len;
	const struct fsm_table *machine;	/* NULL: at a time */
	uint8_t state;
	uint32_t engine;	/* whose message it is, or whose machine */
	bool own;		/* of engines' machines only that one's */
	bool other;		/* another one is meant by `who` */
	bool now;		/* in the same step */
	bool then;		/* not before the fault above */
	bool befell;
	struct conn *conn;	/* that the message was sent on */
	bool to_dialler;
	bool loses;		/* cuts: all that was under way; the
				 * push: its stages */
	bool again;		/* ... in a stage that was started again */
	int pid;		/* whose that was, then; 0: not met */
	bool met;		/* the machine has entered it */
	bool at_move;		/* kills: at a durable move */
	bool repeats;		/* kills: each that takes its place, too; of
				 * messages: each */
	enum {
		CUT_ANY,
		CUT_LINK,	/* the one that stage `who` has dialled */
		CUT_ENGINE	/* stage `who`'s to an engine */
	} cut;
	uint64_t steps;
};

enum push_kind {
	PUSH_ALL,	/* a checkpoint of its own */
	PUSH_JOIN,	/* the published version, to some engines */
	PUSH_BACK,	/* an older version under a new number */
	PUSH_AGAIN,	/* a number that is decided */
	PUSH_FOREIGN,	/* of a registry that owns none of the engines */
	PUSH_NKINDS
};

struct push {
	uint32_t index;
	enum push_kind kind;
	uint32_t source;	/* whose checkpoint it plans */
	uint64_t number;	/* --weight-version, --to; 0: not given */
	/* Its engines by their numbers in the plan. */
	uint32_t fleet[ENGINES_MAX], nfleet;
	char run[16];
	struct supervisor sup;
	struct proc *stage[STAGE_N];
	struct file *death[STAGE_N];	/* closed when push dies */
	enum stage_id doomed;	/* each of it dies early; 0: none */
	bool started[STAGE_N];
	bool live, killed, over;
	int code;		/* -1: none */
	int64_t began, ended, stop_by;
};

struct world {
	uint32_t engines, pushes, nfaults;
	/* The last of the engines are servers, with a store beside them. */
	uint32_t in_place, http_fails_one_in;
	bool rolls_back; /* --on-failure rollback */
	uint64_t groups, buckets, bytes;	/* admit's limits */
	uint64_t bucket_size;
	int64_t stage_ms, engine_ms, load_ms, run_ms;
	uint32_t min_engines;
	bool by_window;
	uint32_t slow_one_in;	/* of a pool's jobs */
	/* Commands of the engines, and how many of them fail; 0: none. */
	bool hooks, post_load;
	uint32_t hook_fails_one_in, hook_long_one_in;
	uint32_t restart_ms;	/* of an engine that has ended, at most */
	bool echoes;		/* what the dead had sent is heard again */
	bool unleased;		/* no file can be leased for reading */
	bool plain;		/* pushes are not refused before they begin */
	struct fault fault[FAULTS_MAX];
	uint64_t only;		/* bit i: fault i happens */
	struct push push[PUSHES_MAX];
	struct proc *engine[ENGINES_MAX];
	uint32_t now;		/* push at hand */
	uint32_t lies;		/* engine + 1 that lies, 0: none */
	bool lies_early, done;
};
extern struct world world;

/* Runs one seed; true if nothing broke. */
bool world_run(uint64_t seed, uint64_t only);
/* Which push has this run; NULL: none. */
const struct push *world_push(struct slice run);
/* The files of a source, as they are. */
struct node *world_source(uint32_t source);
const char *world_registry(const struct push *p);
const char *world_fault_name(enum fault_kind k);
/* "commit" and "swap"; "frame" and "holds". */
const char *world_fault_state(const struct fault *f);
/* A machine of the process that runs has entered a state. */
void world_entered(const struct fsm_table *machine, uint8_t state);
/* It has sent a message. */
void world_sent(struct conn *c, bool to_dialler, uint8_t type);
/* The last push meets nothing new. */
bool world_is_kind(void);
/* Seeds from this one on are those of aims_close.c. */
#define WORLD_CLOSE ((uint64_t)1 << 32)

#endif
