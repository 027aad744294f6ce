#include "common/buf.h"
#include "common/bucket.h"
#include "tests/tap.h"

#define EDGE 16

/* Packs objects (bytes, 0 at the end; EMPTY for 0 bytes) and says how:
 * pieces in brackets, "start+bytes" where a piece is not a whole object. */
#define EMPTY UINT64_MAX

static struct buf said;

static void say_object(struct bucket_packer *b, uint64_t bytes, bool split)
{
	struct bucket_load load = { &bytes, 1, 1 };
	struct bucket_piece p;

	bucket_object(b, &load, split);
	while (bucket_next(b, &p)) {
		buf_addf(&said, "%s", p.opens ? "|" : said.n ? " " : "");
		if (p.bytes != bytes)
			buf_addf(&said, "%llu+", (unsigned long long)p.start);
		buf_addf(&said, "%llu", (unsigned long long)p.bytes);
	}
}

static void packs(struct bucket_limits l, bool split, const uint64_t *objects,
		  const char *want, const char *name)
{
	struct bucket_packer b;
	uint64_t used;

	buf_clear(&said);
	bucket_begin(&b, &l, &used);
	for (; *objects; objects++)
		say_object(&b, *objects == EMPTY ? 0 : *objects, split);
	eq_str(buf_cstr(&said), want, name);
}

#define SIZE(n) ((struct bucket_limits){ n, EDGE, 100, 100, 1 })
#define OBJECTS(...) ((const uint64_t[]){ __VA_ARGS__, 0 })

static void test_sizes(void)
{
	packs(SIZE(10), false, OBJECTS(3, 3, 4, 1), "3 3 4|1",
	      "a bucket is full at its size exactly");
	packs(SIZE(10), false, OBJECTS(3, 3, 5), "3 3|5",
	      "BK-06 closed before it would exceed, not after");
	packs(SIZE(10), false, OBJECTS(9, 1, 9), "9 1|9", "one below, and one");
	packs(SIZE(10), false, OBJECTS(10, 10), "10|10", "BK-01 size exactly");
	packs(SIZE(10), false, OBJECTS(1, 11, 1), "1|11|1",
	      "BK-01 one above: a bucket of its own");
	packs(SIZE(1), false, OBJECTS(1, 2, 1), "1|2|1", "size 1");
	packs(SIZE(10), false, OBJECTS(1, UINT64_MAX - 1, 1),
	      "1|18446744073709551614|1", "sums do not overflow");
}

static void test_empty(void)
{
	packs(SIZE(10), false, OBJECTS(EMPTY, 10, EMPTY, 1), "0 10 0|1",
	      "empty objects ride along");
	packs(SIZE(10), false, OBJECTS(EMPTY, 11, EMPTY, 1), "0 11 0|1",
	      "also beside a large one");
	packs(SIZE(10), true, OBJECTS(EMPTY, EMPTY), "0 0", "only they");
}

static void test_split(void)
{
	packs(SIZE(32), true, OBJECTS(32), "32", "as large as the size: whole");
	packs(SIZE(32), true, OBJECTS(33), "0+32|32+1", "one above");
	packs(SIZE(40), true, OBJECTS(8, 100, 8), "8 0+32|32+32|64+32 96+4|8",
	      "pieces fall on edges and are packed like others");
	packs(SIZE(5), true, OBJECTS(40), "0+16|16+16|32+8",
	      "BK-02 a size below the edge: pieces of one edge");
	packs(SIZE(5), true, OBJECTS(16, 6), "16|6",
	      "BK-02 what fits one edge is whole");
	packs(SIZE(16), true, OBJECTS(15, 17), "15|0+16|16+1", "size = edge");
}

static void test_counts(void)
{
	struct bucket_limits l = { 100, EDGE, 2, 100, 1 };

	packs(l, false, OBJECTS(1, 1, 1, EMPTY, EMPTY), "1 1|1 0|0",
	      "closed at the count of pieces");
	l = (struct bucket_limits){ 100, EDGE, 100, 3, 1 };
	packs(l, false, OBJECTS(1, 1, 1, 1), "1 1 1|1",
	      "closed before its frame is too long");
}

static void test_together(void)
{
	struct bucket_packer b;
	struct bucket_piece p;
	struct bucket_limits l = SIZE(10);
	uint64_t used, bytes = 6, one = 4;
	struct bucket_load load = { &bytes, 2, 2 }, object = { &one, 1, 1 };

	bucket_begin(&b, &l, &used);
	bucket_break(&b);
	bucket_object(&b, &object, false);
	ok(bucket_next(&b, &p) && !p.opens, "no break before the first");
	ok(!bucket_next(&b, &p), "one piece");
	ok(bucket_has_room(&b, &load), "4 and 6 of 10");
	bytes = 7;
	ok(!bucket_has_room(&b, &load), "7 are too many");
	ok(bucket_can_hold(&l, &load), "but not for an empty one");
	load.pieces = 101;
	ok(!bucket_can_hold(&l, &load), "too many pieces");
	bytes = 0;
	load = (struct bucket_load){ .bytes = &bytes, .cost = 101 };
	ok(!bucket_can_hold(&l, &load), "too long a frame");
	bucket_break(&b);
	one = 1;
	bucket_object(&b, &object, false);
	ok(bucket_next(&b, &p) && p.opens, "a break opens");
	ok(!bucket_next(&b, &p), "one piece");
	one = 9;
	bucket_object(&b, &object, false);
	ok(bucket_next(&b, &p) && !p.opens, "once");
}

/* Two ranks: objects are pairs, "first/second" of each piece. */
static void packs_pairs(struct bucket_limits l, bool split,
			const uint64_t (*objects)[2], const char *want,
			const char *name)
{
	struct bucket_packer b;
	struct bucket_piece p;
	uint64_t used[2];

	l.lanes = 2;
	buf_clear(&said);
	bucket_begin(&b, &l, used);
	for (; (*objects)[0] || (*objects)[1]; objects++) {
		struct bucket_load load = { *objects, 1, 2 };

		bucket_object(&b, &load, split);
		while (bucket_next(&b, &p))
			buf_addf(&said, "%s%llu/%llu",
				 p.opens  ? "|"
				 : said.n ? " "
					  : "",
				 (unsigned long long)bucket_in_lane(
					 &p, (*objects)[0]),
				 (unsigned long long)bucket_in_lane(
					 &p, (*objects)[1]));
	}
	eq_str(buf_cstr(&said), want, name);
}

#define PAIRS(...) ((const uint64_t[][2]){ __VA_ARGS__, { 0, 0 } })

static void test_lanes(void)
{
	struct bucket_limits l = { 100, EDGE, 4, 100, 2 };

	packs_pairs(SIZE(1536), false,
		    PAIRS({ 512, 1024 }, { 1024, 512 }, { 1, 1 }),
		    "512/1024 1024/512|1/1",
		    "each rank fills the bucket by itself");
	packs_pairs(SIZE(10), false, PAIRS({ 1, 8 }, { 1, 3 }, { 8, 1 }),
		    "1/8|1/3 8/1", "BK-06 the fuller rank closes it for all");
	packs_pairs(SIZE(10), false, PAIRS({ 1, 1 }, { 1, 11 }, { 1, 0 }),
		    "1/1|1/11 1/0",
		    "one rank's is oversize: a bucket of its own");
	packs_pairs(SIZE(10), false, PAIRS({ 0, 9 }, { 9, 0 }, { 1, 1 }),
		    "0/9 9/0 1/1", "an empty share rides along");
	packs_pairs(SIZE(16), true, PAIRS({ 40, 20 }, { 8, 8 }),
		    "16/16|16/4|8/0 8/8", "split at the same edges");
	packs_pairs(l, false, PAIRS({ 1, 1 }, { 1, 1 }, { 1, 1 }),
		    "1/1 1/1|1/1", "pieces are counted in all ranks");
}

int main(void)
{
	test_lanes();
	test_sizes();
	test_empty();
	test_split();
	test_counts();
	test_together();
	buf_release(&said);
	return tap_done();
}
