/*
 * engine.h - the receiver beside an inference engine, as a pure machine.
 *
 * Two states that move apart: the *slot* (the version being filled, sealed,
 * dropped) and the *gate* (does the engine process serve, is it paused, is it
 * being switched).  The edge tables in engine.c are the specification; what
 * is not in them is refused, with a text that says what was the matter.
 *
 * The shell (engine_run.h) does the world: it decodes, asks engine_admit(),
 * makes a moved fence durable, calls engine_step(), and then performs what
 * engine_next() hands out, in order.  A request stays *pending* until a reply
 * or a refusal for it is handed out, exactly once; the shell remembers who
 * asked.  No I/O, clock, allocation or log here.
 *
 * Invariants: what is served changes only by an accepted swap (I2); a swap
 * needs a sealed slot of this life (hashed again after a restart), equal
 * content and the pause's token; a lease that ends resumes the old version
 * before an accepted swap, the new one after it.
 */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include "common/digest.h"
#include "common/fence.h"
#include "common/fsm.h"

#define EN_ACTIONS_MAX	16	/* that one step may ask for */

enum en_slot {
	EN_IDLE,	/* nothing has begun */
	EN_MAKING,	/* files and space for a version */
	EN_FILLING,	/* buckets arrive */
	EN_SEALING,	/* coverage, digests, post-load, fsync, record */
	EN_SEALED,	/* may be served */
	EN_CHECKING,	/* sealed in an earlier life: hashed again */
	EN_BROKEN,	/* seal or check failed: only good to be dropped */
	EN_DROPPING,	/* copies and jobs are being stopped */
	EN_NSLOT
};

enum en_gate {
	EN_OPEN,	/* serving */
	EN_PAUSING,	/* --on-pause runs */
	EN_PAUSED,
	EN_SWAPPING,	/* current is switched, --on-swap runs */
	EN_RESUMING,	/* --on-resume runs */
	EN_NGATE
};

/* Requests first: their numbers index pending[]. */
enum en_ev {
	EN_BEGIN, EN_ATTACH, EN_OFFER, EN_HOLDING, EN_FINISH, EN_LOAD,
	EN_RECEIPT,
	EN_PAUSE, EN_SWAP, EN_RESUME, EN_CANCEL,
	EN_NREQ,
	EN_MADE = EN_NREQ, EN_MAKE_FAILED,
	EN_LINKED,			/* made, and sealed: a kept version */
	EN_COPY_BEGUN, EN_COPIED, EN_COPY_FAILED,
	EN_SEAL_OK, EN_SEAL_FAILED,	/* of a check as well */
	EN_PUBLISHED, EN_PUBLISH_FAILED,
	EN_HOOK_OK, EN_HOOK_FAILED,
	EN_LEASE_END,
	EN_GO,				/* the machine's own */
	EN_NEV
};

struct en_event {
	enum en_ev on;
	uint64_t epoch, version;	/* of the speaker; of the request */
	struct digest content, structure;
	uint64_t bytes, token, lease_ms;
	uint32_t buckets, worker, workers;
	bool whole;			/* begin: it comes by load */
	int code;			/* of a failure, negative */
	const char *cause;		/* of it; lent */
};

enum en_do {
	EN_DO_REPLY,		/* req, positively */
	EN_DO_REFUSE,		/* req, code, cause */
	EN_DO_ATTACH,		/* take the descriptors, reply */
	EN_DO_OFFER,		/* check, copy or ack again */
	EN_DO_HOLDING,		/* reply with the bitmap */
	EN_DO_MAKE,		/* of the pending begin -> MADE, LINKED,
				   MAKE_FAILED */
	EN_DO_SEAL,		/* -> SEAL_OK, SEAL_FAILED */
	EN_DO_LOAD,		/* the same, of a directory that is fetched */
	EN_DO_CHECK,		/* the same, of a slot sealed before */
	EN_DO_STOP,		/* copies and jobs, soon; each still ends */
	EN_DO_DROP,		/* staging, descriptors */
	EN_DO_HOOK_PAUSE,	/* -> HOOK_OK, HOOK_FAILED; at once if none */
	EN_DO_HOOK_SWAP,
	EN_DO_HOOK_RESUME,
	EN_DO_PUBLISH,		/* -> PUBLISHED, PUBLISH_FAILED */
	EN_DO_UNPUBLISH,	/* for code, cause -> PUBLISH_FAILED with them */
	EN_DO_LEASE,		/* (re)arm, lease_ms */
	EN_DO_LEASE_OFF,
	EN_DO_PAUSED,		/* the pause applies from here: its clock */
	EN_DO_SERVING,		/* and ends here */
	EN_NDO
};

struct en_action {
	enum en_do what;
	enum en_ev req;
	int code;			/* negative */
	char cause[512];
};

struct engine {
	uint8_t slot, gate;		/* enum en_slot, en_gate */
	struct fence fence;

	uint64_t version, epoch;	/* of the slot; 0: none */
	struct digest structure, content; /* content: when sealed */
	uint64_t bytes;
	uint32_t buckets, held;
	uint32_t busy;			/* copies and jobs that have not ended */
	uint32_t worker, workers;
	bool whole;			/* comes by load, not by offers */
	bool fresh;			/* sealed or hashed in this life */
	int broken_code;
	char broken[256];

	uint64_t serving, serving_epoch;
	struct digest serving_structure, serving_content;
	uint64_t token, lease_ms;	/* of the pause */
	uint64_t resume_token;		/* of the last resume asked for */
	bool lapsed;			/* the lease ended under a swap */
	struct en_event begin, swap;	/* the pending ones */
	uint64_t cancel_epoch;
	bool pending[EN_NREQ];

	struct en_action queue[EN_ACTIONS_MAX];
	uint32_t head, queued;
};

/* What the store found: version served and version sealed (0: none). */
void engine_init(struct engine *e, const struct fence *f);
struct en_version {
	uint64_t version, epoch;
	struct digest structure, content;
};
void engine_set_serving(struct engine *e, const struct en_version *v);
void engine_set_sealed(struct engine *e, const struct en_version *v);
/* An earlier life may have paused the engine process: it is resumed as at
 * the end of a lease, and tried again every lease_ms. */
void engine_set_paused(struct engine *e, uint64_t lease_ms);

/* The fence's word on a request: 0; 1 and *moved must become durable and then
 * e->fence, before engine_step; -E_FENCED and why (FENCE_WHY_MAX bytes). */
int engine_admit(const struct engine *e, enum en_ev req,
		 const struct fence_speaker *who, bool adopt,
		 struct fence *moved, char *why);
/* Takes one event; any is safe at any time. */
void engine_step(struct engine *e, const struct en_event *ev);
/* The next thing to do: true and *a, or false. */
bool engine_next(struct engine *e, struct en_action *a);

const char *engine_event_name(enum en_ev ev);
const char *engine_do_name(enum en_do what);
extern const struct fsm_table engine_slot_table, engine_gate_table;

#endif
