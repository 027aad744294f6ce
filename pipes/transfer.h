/*
 * transfer.h - which bytes go where, and what has become of them.
 *
 * A pure machine: events in, actions out through `out`; no I/O, no clock, no
 * log, and no allocation after transfer_init().  Bytes move behind the
 * transport, digests are made behind the hasher; here it is only known of
 * which engine which bucket is held, and each of staged, moved, acked and
 * sealed is said when it is true (I5, I7).
 *
 * A grant is open from its arrival until every engine of its wave holds the
 * bucket or is severed; then `released`.  An engine that failed is offered
 * nothing more, and its grants stay open until commit has excluded it (its
 * access severed: targets shrink) or aborts.
 *
 * Of a transport that carries versions whole nothing is granted: every engine
 * counts as holding all buckets, once the version is placed, and what seals it
 * is its load.  An engine without receivers loads later, by commit's word.
 *
 * `holds` are told to admit when nothing is in flight, once for each time
 * that its link comes up; see internals.md 6.
 */
#ifndef WEIR_TRANSFER_H
#define WEIR_TRANSFER_H

#include "common/fsm.h"
#include "pipes/admit.h"
#include "pipes/claims.h"
#include "pipes/planfile.h"

enum xf_state {
	XF_WAIT,	/* opened is missing */
	XF_ASK,		/* receivers are asked what they hold */
	XF_RUN,
	XF_VERIFY,	/* all sealed: the rest of the source is hashed */
	XF_DONE,	/* drained */
	XF_ABORT,
	XF_NSTATE
};

enum xf_ev {
	XF_EV_OPENED,		/* hash_only */
	XF_EV_ADMIT_UP, XF_EV_ADMIT_DOWN, XF_EV_COMMIT_UP,
	XF_EV_HELD,		/* receiver, sealed, kept, bitmap */
	XF_EV_GRANT,		/* wave, bucket, first, count */
	XF_EV_READY,		/* bucket may be offered */
	XF_EV_DIGEST,		/* bucket, rank, digest: the source's own */
	XF_EV_MOVED,		/* receiver, bucket */
	XF_EV_ACK,		/* receiver, bucket, worker, bytes, digest */
	XF_EV_SEAL,		/* first, count */
	XF_EV_FINISHED,		/* receiver */
	XF_EV_PLACED,		/* whole: the version can be loaded */
	XF_EV_FAULT,		/* engine or ID_NONE, bucket, code, cause */
	XF_EV_EXCLUDE,		/* engine */
	XF_EV_SEVERED,		/* engine */
	XF_EV_VERIFIED,		/* the whole source is hashed, unchanged */
	XF_EV_ABORT,
	XF_EV_GO,		/* the machine's own: one step if it can */
	XF_NEV
};

struct xf_event {
	enum xf_ev on;
	uint32_t engine, receiver, worker, wave, bucket, rank, first, count;
	uint64_t bytes;
	struct digest digest;
	struct slice bitmap;
	bool sealed, kept, hash_only;
	int code;			/* enum err, positive */
	const char *cause;
};

enum xf_do {
	XF_ASK_HOLDING,		/* receiver: attach, then ask */
	XF_PREPARE,		/* bucket: READY follows (cold: hashed first) */
	XF_OFFER,		/* receiver, wave, bucket */
	XF_FINISH,		/* receiver; whole: it loads, then seals */
	XF_SEVER,		/* engine: SEVERED follows */
	XF_HASH_REST,		/* VERIFIED follows */
	XF_STOP,		/* abort: let go of everything */
	/* to admit */
	XF_SAY_HOLDS,		/* engine, sealed, bitmap */
	XF_SAY_RELEASED,	/* wave, bucket */
	/* to commit */
	XF_SAY_STAGED, XF_SAY_MOVED, XF_SAY_ACKED, /* wave, bucket */
	XF_SAY_FAILED,		/* engine, bucket, code, cause (NULL: again) */
	XF_SAY_DRAINED,
	/* to both */
	XF_SAY_SEALED,		/* engine */
	XF_SAY_EXCLUDED,	/* engine */
	XF_NDO
};

struct xf_action {
	enum xf_do what;
	uint32_t engine, receiver, wave, bucket;
	struct slice bitmap;
	bool sealed;
	int code;
	const char *cause;
};

struct xf_engine {
	uint32_t unanswered;	/* receivers that have not said what they hold */
	uint32_t unfinished;	/* receivers that are sealing */
	uint32_t first_worker;	/* counted over the whole plan */
	bool receivers_sealed;	/* those that answered, all of them */
	bool kept;		/* it linked a slot of its own */
	bool sealed, excluded, severed, failed;
	int code;
};

struct xf_grant {
	uint32_t wave, bucket, first, count;
	bool open, ready, said_moved, said_acked;
	uint8_t *acked, *moved;	/* bit per worker, per receiver of the plan */
};

struct transfer {
	uint8_t state;			/* enum xf_state */
	const struct plan *plan;	/* lent: engines, receivers, buckets */
	struct xf_engine *engine;
	struct xf_grant *grant;		/* nslots of them */
	uint32_t nslots, nopen;
	uint32_t nworkers;		/* of all engines */
	uint16_t *slot_of;		/* per bucket: 1 + its slot, or 0 */
	uint8_t *held;			/* per engine, `row` bytes each */
	uint8_t *staged;		/* bit per bucket */
	uint8_t *kept;			/* bit per receiver: it linked a slot */
	size_t row;
	struct claims claims;		/* of each rank's share of a bucket */
	uint32_t waiting;		/* engines neither sealed nor severed */
	bool whole, placed;
	bool admit_up, told, restarted, has_released;
	uint64_t resent;		/* bytes as credit counts them: at most */
	void (*out)(void *arg, const struct xf_action *a);
	void *arg;
};

extern const struct fsm_table transfer_table;

/* plan is lent for life.  restarted: an earlier instance may have offered. */
void transfer_init(struct transfer *t, const struct plan *plan,
		   bool restarted);
/* Right after that: the transport carries versions whole. */
void transfer_set_whole(struct transfer *t);
void transfer_release(struct transfer *t);
/* 0, or -E_PROTO for an event that the table or the plan does not know. */
int transfer_step(struct transfer *t, const struct xf_event *e);
/* Does the plan know what e names? */
bool transfer_knows(const struct transfer *t, const struct xf_event *e);
/* Engines that take part to the end and were sent the bytes. */
uint32_t transfer_receiving(const struct transfer *t);

#endif
