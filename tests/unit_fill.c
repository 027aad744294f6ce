#include "common/err.h"
#include "common/log.h"
#include "pipes/fill.h"
#include "tests/tap.h"

#define BIG (DIGEST_LEAF + 10)

static struct store_file files[] = {
	{ .path = "a", .bytes = 100 },
	{ .path = "b", .bytes = BIG },
	{ .path = "c", .bytes = 0 },
};
static const struct store_slot slot = { .file = files, .nfiles = 3 };
static struct fill f;

static int claim(uint32_t bucket, struct m_piece *v, uint32_t n)
{
	struct m_offer o = { .bucket = bucket, .pieces = { v, n } };

	for (uint32_t i = 0; i < n; i++)
		o.bytes += v[i].bytes;
	return fill_claim(&f, &o);
}

#define CLAIM(bucket, ...)                                \
	claim(bucket, (struct m_piece[]){ __VA_ARGS__ },  \
	      sizeof((struct m_piece[]){ __VA_ARGS__ }) / \
		      sizeof(struct m_piece))

static void refused(int rc, const char *why)
{
	eq_i64(rc, -E_PROTO, why);
	ok(strstr(log_cause(), why), "it says \"%s\": %s", why, log_cause());
	ok(strstr(log_cause(), "bucket"), "and names the bucket");
}

/* VF-03, and every way in which an offer can lie. */
static void test_lies(void)
{
	struct m_piece p = { 0, 0, 10 };
	struct m_offer o = { .bucket = 0, .bytes = 11, .pieces = { &p, 1 } };

	fill_init(&f, &slot, 3);
	refused(fill_claim(&f, &o), "said to have 11");
	refused(CLAIM(3, { 0, 0, 1 }), "only 3 have begun");
	refused(CLAIM(0, { 3, 0, 1 }), "unknown file");
	refused(CLAIM(0, { 0, 0, 0 }), "not within the file");
	refused(CLAIM(0, { 0, 91, 10 }), "not within the file");
	refused(CLAIM(0, { 0, UINT64_MAX, 10 }), "not within the file");
	refused(CLAIM(0, { 2, 0, 1 }), "not within the file");
	refused(CLAIM(0, { 0, 0, 10 }, { 0, 9, 10 }), "overlaps the one");
	refused(CLAIM(0, { 1, 0, 1 }, { 0, 0, 1 }), "out of order");
	ok(CLAIM(0, { 0, 10, 10 }, { 0, 40, 10 }) == 0, "a good one");
	refused(CLAIM(1, { 0, 19, 2 }), "another bucket");
	refused(CLAIM(1, { 0, 0, 11 }), "another bucket");
	refused(CLAIM(1, { 0, 0, 100 }), "another bucket");
	refused(CLAIM(0, { 0, 10, 10 }), "other pieces");
	ok(CLAIM(0, { 0, 10, 10 }, { 0, 40, 10 }) == 0, "the same again");
	ok(CLAIM(1, { 0, 20, 20 }) == 0, "what lies between");
	eq_i64(fill_check(&f), -E_DATA, "not all is there");
	ok(strstr(log_cause(), "a: nothing arrived for the bytes from 0"),
	   "names the hole: %s", log_cause());
	fill_release(&f);
}

static void test_all(void)
{
	struct digest leaf[4], want;
	struct buf bits = { 0 };

	fill_init(&f, &slot, 2);
	for (uint8_t i = 0; i < 4; i++)
		digest_of(&i, 1, &leaf[i]);
	ok(CLAIM(1, { 1, 0, BIG }) == 0, "two leaves");
	eq_u64(fill_bucket_leaves(&f, 1), 2, "counted");
	fill_hold(&f, 1, leaf + 2);
	digest_of(leaf + 2, 2 * sizeof *leaf, &want);
	ok(digest_eq(&f.bucket[1].digest, &want), "the bucket's digest");
	eq_i64(fill_check(&f), -E_DATA, "half is missing");
	ok(CLAIM(0, { 0, 0, 60 }, { 0, 60, 40 }) == 0, "the rest");
	fill_bitmap(&f, &bits);
	eq_u64(bits.n, 1, "one byte of bitmap");
	eq_u64((unsigned char)bits.p[0], 2, "a claim is not held");
	fill_hold(&f, 0, leaf);
	eq_i64(fill_check(&f), 0, "all is there");
	ok(digest_eq(fill_leaf(&f, &f.piece[2]), &leaf[1]), "leaves stay");
	buf_release(&bits);
	fill_release(&f);
}

/* Any order of neighbours ends as one run. */
static void test_orders(void)
{
	static const uint8_t order[][4] = {
		{ 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 0, 2, 1, 3 }, { 2, 0, 3, 1 }
	};

	for (size_t k = 0; k < COUNT(order); k++) {
		int rc = 0;

		fill_init(&f, &slot, 5);
		for (uint32_t i = 0; i < 4; i++)
			rc |= CLAIM(i, { 0, order[k][i] * 25u, 25 });
		rc |= CLAIM(4, { 1, 0, BIG });
		eq_i64(rc, 0, "four neighbours");
		eq_i64(fill_check(&f), 0, "are one run");
		fill_release(&f);
	}
}

int main(void)
{
	log_init("unit_fill", LOG_ERROR);
	log_quiet_thread(1);
	test_lies();
	test_all();
	test_orders();
	return tap_done();
}
