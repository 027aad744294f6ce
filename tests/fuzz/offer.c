#include "common/bucket.h"
#include "common/err.h"
#include "pipes/fill.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define VERSION_MAX (UINT64_C(1) << 36) /* bytes; leaves are counted */

static struct msg_arena arena;
static struct store_slot slot;
static struct fill fill;

static void end(void)
{
	if (fill.bucket)
		fill_release(&fill);
	store_slot_release(&slot);
}

/* As the store makes room for it: a version larger than that is refused. */
static void begin(const struct m_begin *b)
{
	uint64_t sum = 0;

	end();
	if (b->buckets > BUCKETS_MAX || store_slot_init(&slot, b) < 0)
		return;
	for (uint32_t i = 0; i < slot.nfiles; i++) {
		BUG_ON(__builtin_add_overflow(sum, slot.file[i].bytes, &sum));
		BUG_ON(slot.file[i].header > slot.file[i].bytes);
	}
	BUG_ON(sum != slot.bytes);
	if (sum > VERSION_MAX)
		store_slot_release(&slot);
	else
		fill_init(&fill, &slot, b->buckets % 1024);
}

static void offer(const struct m_offer *o)
{
	struct fill_bucket *b;
	struct digest *leaf;
	uint32_t n;

	if (!fill.bucket || fill_claim(&fill, o) < 0)
		return;
	b = &fill.bucket[o->bucket];
	n = fill_bucket_leaves(&fill, o->bucket);
	BUG_ON(b->state == FILL_UNKNOWN || b->bytes != o->bytes);
	BUG_ON(b->n != o->pieces.n);
	if (b->state != FILL_CLAIMED)
		return;
	leaf = xcalloc(n, sizeof *leaf);
	fill_hold(&fill, o->bucket, leaf);
	free(leaf);
}

/* All bytes are there only if their sum is: nothing was claimed twice. */
static void check(void)
{
	uint64_t sum = 0;
	struct buf bits = { 0 };

	for (uint32_t b = 0; b < fill.nbuckets; b++)
		if (fill.bucket[b].state == FILL_HELD)
			sum += fill.bucket[b].bytes;
	BUG_ON(sum > slot.bytes);
	BUG_ON((fill_check(&fill) == 0) != (sum == slot.bytes));
	fill_bitmap(&fill, &bits);
	BUG_ON(bits.n != (fill.nbuckets + 7) / 8);
	buf_release(&bits);
	free(fill_order(&fill));
}

/* begin and offer, as they come to an engine. */
void fuzz_offer(struct slice in)
{
	struct msg m;

	while (in.n > 0) {
		if (msg_unpack(&m, &arena, fuzz_part(&in)) < 0)
			continue;
		if (m.type == M_begin)
			begin(&m.begin);
		else if (m.type == M_offer)
			offer(&m.offer);
	}
	if (fill.bucket)
		check();
	end();
}
