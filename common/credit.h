/*
 * credit.h - room for buckets under way: taken in order, finished in any
 * order, returned in the order taken (I4, I5).
 *
 * A reservation is one bucket and its bytes, keyed (wave, bucket), however
 * many engines receive it.  Keys are taken in strictly rising order, so that
 * a key is found in O(log n) and no key is ever taken twice.
 *
 * Invariant, at every instant: reserved <= limit and free + reserved = limit
 * in each dimension that is on (limit 0 = off; reserved and peak count all
 * the same).  Both off: one bucket at a time.  An exclusive bucket is taken
 * only when nothing is reserved, and nothing beside it.
 *
 * Pure: no I/O, no clock, no allocation; the slots are the caller's.
 */
#ifndef WEIR_CREDIT_H
#define WEIR_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

struct credit_key {
	uint32_t wave, bucket;
};

struct credit_slot {
	struct credit_key key;
	uint64_t bytes;
	bool finished, exclusive;
};

struct credit_dim {
	uint64_t limit, reserved, free, peak;
};

struct credit {
	struct credit_dim buckets, bytes;
	struct credit_slot *slot;	/* a ring */
	uint32_t nslots, head, used;	/* used 0: nothing is reserved */
	struct credit_key next;		/* the lowest key that may be taken */
};

/* Limits of 0 are off.  Keeps slot: as many reservations at most can be
 * open; as many slots as there are buckets never bind. */
void credit_init(struct credit *c, uint64_t max_buckets, uint64_t max_bytes,
		 struct credit_slot *slot, uint32_t nslots);
/* The byte limit is below this bucket: it could never be taken (I8). */
bool credit_is_oversize(const struct credit *c, uint64_t bytes);
/* Would credit_take() find room for it now? */
bool credit_has_room(const struct credit *c, uint64_t bytes, bool exclusive);
/* 0; -E_AGAIN: no room now; -E_DATA: oversize; -E_PROTO: key not above all
 * those taken before.  Changes nothing unless 0. */
int credit_take(struct credit *c, struct credit_key k, uint64_t bytes,
		bool exclusive);
/* This reservation is finished.  -E_PROTO: not open, or finished before. */
int credit_finish(struct credit *c, struct credit_key k);
/* Every one is finished: what was in flight has ended some other way. */
void credit_finish_all(struct credit *c);
/* Returns the oldest reservation if it is finished: 1 and *k, *bytes, else 0.
 * Call until 0 after each credit_finish(). */
int credit_release(struct credit *c, struct credit_key *k, uint64_t *bytes);
/* Is k taken and not finished? */
bool credit_is_open(const struct credit *c, struct credit_key k);

#endif
