/*
 * trcaps.h - what each transport can do.
 *
 * Apart from transport.h, for those that ask and move no bytes: plan, admit
 * and commit carry no transport's code, nor the libraries that it needs.
 */
#ifndef WEIR_TRCAPS_H
#define WEIR_TRCAPS_H

#include <stdbool.h>

enum tr_caps {
	TR_DEVICE = 1,		/* device memory */
	TR_FANOUT = 2,		/* one send reaches many */
	TR_DURABLE = 4,		/* what arrived outlives the receiver */
	TR_SOURCE_ONCE = 8,	/* the source can be read once only */
	TR_SHARED_STAGING = 16,	/* exclusive buckets make sense */
	TR_CAN_LOSE = 32,	/* goes on without a member */
	TR_WHOLE = 64,		/* load, no offers; hence no credit */
	TR_KEEPS = 128,		/* has what can be kept between runs */
};

/* False if there is none of that name, too. */
bool transport_has(const char *name, enum tr_caps cap);

#endif
