/*
 * admit.h - when a bucket may move: waves of engines, credit for buckets.
 *
 * A pure machine: events in, actions out through `out`; no I/O, no clock, no
 * log, and no allocation after admit_init().  It never touches bytes or
 * engines.  Invariants: I3 to I6, I8 of the design.
 *
 * Its state is a function of (plan, what each engine holds, exclusions).  So
 * its own restart, transfer's and a link that was lost are one case: from
 * ADM_EV_LINK on it grants nothing until `opened` and, on that link, `holds`
 * of every engine that is not excluded have been heard; transfer sends those
 * only when it has nothing in flight.  Then all is rebuilt from nothing, with
 * no credit taken.
 *
 * Order `wave`: for each wave all buckets through the credit window; the next
 * wave when this one is sealed.  Order `window`: credit is taken for a run of
 * buckets, which goes through wave after wave; after the last window, one
 * more pass of waves seals.
 */
#ifndef WEIR_ADMIT_H
#define WEIR_ADMIT_H

#include "common/credit.h"
#include "common/fsm.h"
#include "common/wave.h"
#include "pipes/planfile.h"

#define GRANTS_MAX 1024		/* buckets granted at once, whatever the credit */

enum admit_order { ADM_BY_WAVE, ADM_BY_WINDOW };

struct admit_limits {
	uint64_t groups;	/* engines of a wave; 0: all at once */
	uint64_t buckets, bytes; /* credit; 0: this dimension is off */
	enum admit_order order;
};

enum admit_state {
	ADM_WAIT,	/* opened or holds are missing: no grant */
	ADM_LOAD,	/* buckets move */
	ADM_SEAL,	/* the wave's engines seal */
	ADM_HOLD,	/* the next wave is in-place: until phase 2 */
	ADM_HASH,	/* a decided number again: nothing to grant */
	ADM_DONE,	/* every wave is complete */
	ADM_ABORT,
	ADM_NSTATE
};

enum admit_ev {
	ADM_EV_LINK,		/* the link to transfer is up, perhaps again */
	ADM_EV_OPENED,		/* phase, hash_only */
	ADM_EV_HOLDS,		/* engine, sealed, bitmap */
	ADM_EV_RELEASED,	/* wave, bucket */
	ADM_EV_SEALED,		/* engine */
	ADM_EV_EXCLUDE,		/* engine */
	ADM_EV_EXCLUDED,	/* engine: its access is severed */
	ADM_EV_ABORT,
	ADM_EV_GO,		/* the machine's own: one step if it can */
	ADM_NEV
};

struct admit_event {
	enum admit_ev on;
	uint32_t engine, wave, bucket;
	uint32_t count;			/* bits of the bitmap */
	struct slice bitmap;
	uint8_t phase;
	bool sealed, hash_only;
};

enum admit_do {
	ADM_GRANT,		/* wave, bucket, first, count */
	ADM_SEAL_WAVE,		/* wave, first, count */
	ADM_CREDIT_BACK,	/* wave, bucket, bytes: credit was returned */
	ADM_WAVE_COMPLETE,	/* wave */
	ADM_NDO
};

struct admit_action {
	enum admit_do what;
	uint32_t wave, bucket, first, count;
	uint64_t bytes;
};

struct admit_engine {
	bool heard, sealed, excluded, severed;
};

struct admit {
	uint8_t state;			/* enum admit_state */
	enum admit_order order;
	struct waves waves;
	struct credit credit;
	const struct plan_bucket *bucket;	/* lent */
	uint32_t nbuckets, nwaves;
	struct admit_engine *engine;
	uint8_t *held;			/* a row per wave: all of it hold it */
	size_t row;
	bool opened, hash_only;
	uint8_t phase;
	uint32_t wave;			/* current */
	uint32_t lo, hi;		/* run of buckets of this pass */
	uint32_t cursor;		/* next of them to grant */
	uint32_t pending;		/* granted and not released */
	bool sealing;			/* window: the pass that seals */
	void (*out)(void *arg, const struct admit_action *a);
	void *arg;
};

extern const struct fsm_table admit_table;

/* The first bucket that no credit could ever hold, or ID_NONE (I8). */
uint32_t admit_oversize(const struct plan_bucket *bucket, uint32_t nbuckets,
			uint64_t max_bytes);
/* bucket is lent for life.  -E_USAGE, -E_DATA as waves_init(). */
int admit_init(struct admit *a, const struct admit_limits *lim,
	       const struct plan_bucket *bucket, uint32_t nbuckets,
	       uint32_t staged, uint32_t engines);
void admit_release(struct admit *a);	/* fine on a zeroed one */
/* 0, or -E_PROTO for an event that the table or the plan does not know. */
int admit_step(struct admit *a, const struct admit_event *e);

#endif
