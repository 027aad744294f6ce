/*
 * facts.h - what a neighbour must know, and is told again after a reconnect.
 *
 * Level-triggered messages only: `end` and unacknowledged `failed` go down,
 * the last `opened`, all `exclude`, `abort` and `verdict` go up.  One fact per
 * (type, engine): of `failed` the first stays, of the others the last.  Kept
 * as frames, in the order in which they were first said.
 */
#ifndef WEIR_FACTS_H
#define WEIR_FACTS_H

#include "pipes/msg.h"

struct fact {
	enum msg_type type;
	uint32_t engine;	/* ID_NONE: of none */
	struct buf frame;
};

struct facts {			/* {0} is empty */
	struct fact *v;
	size_t n, cap;
};

bool facts_is_fact(enum msg_type t);
/* 1: kept; 0: said already, for good; -E_PROTO from the encoder. */
int facts_keep(struct facts *f, const struct msg *m);
/* Forgets failures of this engine; ID_NONE: all of them. */
void facts_drop_failed(struct facts *f, uint32_t engine);
void facts_release(struct facts *f);

#endif
