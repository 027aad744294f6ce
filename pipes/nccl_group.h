/*
 * nccl_group.h - the life of one weight-update group: who is asked when, and
 * when rank 0 joins and broadcasts.
 *
 *	form	the store is open; every engine is asked to join it
 *	begin	every engine opens its update
 *	bucket	every engine is asked to take it *and* rank 0 broadcasts it:
 *		neither ends without the other
 *	end	every engine closes its update
 *	leave	every engine leaves; rank 0, too
 *
 * Two kinds of engines.  Eager ones (vLLM) make their communicator when they
 * join, and answer when it stands: rank 0 joins at once.  Lazy ones (SGLang)
 * have joined when they have met at the store, and make it for the first
 * bucket: rank 0 joins then.  The id is put into the store when it is wanted.
 * The store closes when the communicator stands.
 *
 * Each command is answered once: done, or broken.  After a failure the group
 * is of no use: rank 0 aborts, and the engines are to be told to leave by who
 * knows which of them live.  Pure: the owner has sockets, mover and deadlines.
 */
#ifndef WEIR_NCCL_GROUP_H
#define WEIR_NCCL_GROUP_H

#include "common/fsm.h"
#include "pipes/nccl_wire.h"

enum nccl_state {
	NS_NEW, NS_FORMING, NS_IDLE, NS_BEGINNING, NS_OPEN, NS_LOADING,
	NS_ENDING, NS_LEAVING, NS_GONE, NS_BROKEN,
	NS_NSTATES
};

enum nccl_ev {
	/* commands */
	NE_FORM, NE_BEGIN, NE_BUCKET, NE_END, NE_LEAVE,
	/* what happened */
	NE_WANTED,	/* somebody waits for the id at the store */
	NE_ANSWER,	/* one engine's good answer to what it was asked last */
	NE_JOINED,	/* rank 0's communicator stands */
	NE_MOVED,	/* rank 0's broadcasts of the bucket have ended */
	NE_FAILED,	/* anything of these, or a deadline */
	NE_NEVENTS
};

enum nccl_act {
	NA_ASK,		/* all engines; call says what */
	NA_ID,		/* put it into the store */
	NA_JOIN,	/* rank 0 */
	NA_CAST,	/* rank 0: the bucket, when it has joined */
	NA_CLOSE,	/* the store */
	NA_ABORT,	/* rank 0's communicator */
	NA_DONE,	/* the command */
	NA_BROKEN,
	NA_NACTS
};

#define NCCL_ACTS_MAX 4

struct nccl_group {
	uint8_t state;
	bool lazy, has_id, joined;
	bool asks;			/* rank 0 was told to join */
	bool casting;			/* a bucket is on its way */
	uint32_t engines, waiting;	/* answers that are missing */
	/* What the last event asks for, in this order. */
	enum nccl_act act[NCCL_ACTS_MAX];
	enum nccl_call call;		/* of NA_ASK */
	unsigned nacts;
};

extern const struct fsm_table nccl_group_table;

/* engines > 0, all of this kind. */
void nccl_group_init(struct nccl_group *g, enum engine_kind kind,
		     uint32_t engines);
/* 0, or -E_PROTO: it has no place here, and nothing happened. */
int nccl_group_step(struct nccl_group *g, enum nccl_ev ev);

#endif
