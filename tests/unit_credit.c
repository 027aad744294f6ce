#include "tests/tap.h"

#include "common/buf.h"
#include "common/credit.h"
#include "common/err.h"

#define SLOTS 64

static struct credit c;
static struct credit_slot slot[SLOTS];

static void start(uint64_t buckets, uint64_t bytes)
{
	credit_init(&c, buckets, bytes, slot, SLOTS);
}

static struct credit_key key(uint32_t bucket)
{
	return (struct credit_key){ 0, bucket };
}

static int take(uint32_t bucket, uint64_t bytes)
{
	return credit_take(&c, key(bucket), bytes, false);
}

static bool dim_is_sound(const struct credit_dim *d)
{
	if (d->limit == 0)
		return d->free == 0;
	return d->reserved <= d->limit && d->peak <= d->limit &&
	       d->free + d->reserved == d->limit;
}

static bool is_sound(void)
{
	return dim_is_sound(&c.buckets) && dim_is_sound(&c.bytes);
}

/* Finishes one and returns how many came back. */
static int finish(uint32_t bucket)
{
	struct credit_key k;
	uint64_t bytes;
	int rc = credit_finish(&c, key(bucket)), n = 0;

	if (rc < 0)
		return rc;
	while (credit_release(&c, &k, &bytes) > 0)
		n++;
	return n;
}

static void test_both_limits(void)
{
	uint32_t next = 0, done = 0;
	bool sound = true;

	start(2, 3072);
	while (done < 10) {
		while (next < 10 && take(next, 1536) == 0)
			next++;
		sound &= is_sound();
		sound &= finish(done++) == 1 && is_sound();
	}
	ok(sound, "free + reserved = limit at every step");
	eq_u64(c.buckets.peak, 2, "BK-07 peak is exactly 2 buckets");
	eq_u64(c.bytes.peak, 3072, "BK-07 peak is exactly 3072 bytes");
	ok(c.used == 0, "nothing is reserved at the end");
}

static void test_one_dimension(void)
{
	start(3, 0);
	ok(take(0, 1u << 30) == 0 && take(1, 1u << 30) == 0 &&
		   take(2, UINT32_MAX) == 0,
	   "count alone: any size");
	eq_i64(take(3, 1), -E_AGAIN, "BK-07 count alone binds");
	start(0, 1000);
	for (uint32_t b = 0; b < 10; b++)
		take(b, 100);
	eq_u64(c.buckets.reserved, 10, "bytes alone: many tiny ones");
	eq_i64(take(10, 1), -E_AGAIN, "BK-07 bytes alone bind");
	eq_i64(finish(0), 1, "one finishes");
	eq_i64(take(10, 101), -E_AGAIN, "BK-06 checked before adding");
	eq_i64(take(10, 100), 0, "what fits is taken");
	eq_u64(c.bytes.peak, 1000, "BK-06 peak never passes the limit");
}

static void test_blocking(void)
{
	start(0, 0);
	eq_i64(take(0, UINT64_MAX / 2), 0, "both zero: any size, one bucket");
	eq_i64(take(1, 1), -E_AGAIN, "both zero: one at a time");
	eq_i64(finish(0), 1, "it finishes");
	eq_i64(take(1, 1), 0, "both zero: then the next");
}

static void test_out_of_order(void)
{
	start(4, 0);
	for (uint32_t b = 0; b < 4; b++)
		take(b, 10);
	eq_i64(finish(2), 0, "third first: nothing returns");
	eq_i64(finish(1), 0, "second: nothing returns");
	eq_i64(take(4, 10), -E_AGAIN, "finished is not returned");
	ok(credit_is_open(&c, key(0)) && !credit_is_open(&c, key(1)),
	   "open means taken and not finished");
	eq_i64(finish(0), 3, "first: three return in order");
	eq_i64(finish(0), -E_PROTO, "finished twice, returned: refused");
	eq_i64(finish(9), -E_PROTO, "never taken: refused");
	eq_u64(c.buckets.reserved, 1, "a refusal changes nothing");
	take(4, 10);
	eq_i64(finish(4), 0, "fifth before fourth");
	eq_i64(finish(4), -E_PROTO, "finished twice, still held: refused");
	eq_i64(take(4, 10), -E_PROTO, "a key is never taken twice");
	eq_i64(take(2, 10), -E_PROTO, "nor an older one");
	eq_i64(credit_take(&c, (struct credit_key){ 1, 0 }, 10, false), 0,
	       "a later wave counts from 0 again");
	ok(is_sound(), "free + reserved = limit");
}

static void test_exclusive(void)
{
	start(4, 100);
	take(0, 10);
	eq_i64(credit_take(&c, key(1), 10, true), -E_AGAIN,
	       "exclusive waits until nothing is in flight");
	finish(0);
	eq_i64(credit_take(&c, key(1), 101, true), -E_DATA,
	       "exclusive: the byte ceiling binds");
	eq_i64(credit_take(&c, key(1), 100, true), 0, "exclusive alone");
	eq_i64(take(2, 0), -E_AGAIN, "nothing beside it");
	finish(1);
	eq_i64(take(2, 10), 0, "then the next");
}

static void test_oversize(void)
{
	start(2, 3072);
	ok(credit_is_oversize(&c, 3073) && !credit_is_oversize(&c, 3072),
	   "BK-09 oversize is known beforehand");
	eq_i64(take(0, 3073), -E_DATA, "BK-09 oversize is refused, not kept");
	start(2, 0);
	ok(!credit_is_oversize(&c, UINT64_MAX), "no byte limit, no oversize");
}

static void test_slots_bind(void)
{
	uint64_t bytes;
	struct credit_key k;

	credit_init(&c, 0, 1000, slot, 2);
	take(0, 1);
	take(1, 1);
	eq_i64(take(2, 1), -E_AGAIN, "more than the slots wait");
	credit_finish(&c, key(0));
	eq_i64(credit_release(&c, &k, &bytes), 1, "the first returns");
	ok(k.bucket == 0 && bytes == 1, "and says which");
	eq_i64(take(2, 1), 0, "the ring wraps");
	eq_i64(credit_finish(&c, key(2)), 0, "and finds across the wrap");
	eq_i64(credit_release(&c, &k, &bytes), 0, "but holds the order");
}

int main(void)
{
	test_both_limits();
	test_one_dimension();
	test_blocking();
	test_out_of_order();
	test_exclusive();
	test_oversize();
	test_slots_bind();
	return tap_done();
}
