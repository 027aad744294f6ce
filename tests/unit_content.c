#include "common/content.h"
#include "common/err.h"
#include "common/log.h"
#include "tests/tap.h"

#define SPLIT (3 * DIGEST_LEAF + 5) /* an object of four leaves */

static struct digest leaf[8];

static int add(struct content *c, enum content_kind kind, const char *name,
	       uint64_t total, uint64_t start, uint32_t n)
{
	return content_add(c, kind, slice_of(name), total, start,
			   leaf + start / DIGEST_LEAF, n);
}

static struct digest finish(struct content *c)
{
	struct digest d = { { 0 } };

	eq_i64(content_finish(c, &d), 0, "folds");
	content_release(c);
	return d;
}

/* The definition in digest.h, by hand. */
static struct digest by_hand(void)
{
	struct digest all[3], out;

	digest_of(leaf, sizeof *leaf, &all[0]);
	digest_of(leaf, 4 * sizeof *leaf, &all[1]);
	digest_of(leaf, 0, &all[2]);
	digest_of(all, sizeof all, &out);
	return out;
}

static void test_order(void)
{
	struct content a = { 0 }, b = { 0 };
	struct digest want = by_hand(), x, y;

	add(&a, CONTENT_TENSOR, "a", 7, 0, 1);
	add(&a, CONTENT_TENSOR, "ab", SPLIT, 0, 4);
	add(&a, CONTENT_CARRIED, "A", 0, 0, 0);
	x = finish(&a);
	ok(digest_eq(&x, &want), "as digest.h says");
	add(&b, CONTENT_TENSOR, "ab", SPLIT, 2 * DIGEST_LEAF, 2);
	add(&b, CONTENT_CARRIED, "A", 0, 0, 0);
	add(&b, CONTENT_TENSOR, "ab", SPLIT, 0, 1);
	add(&b, CONTENT_TENSOR, "a", 7, 0, 1);
	add(&b, CONTENT_TENSOR, "ab", SPLIT, DIGEST_LEAF, 1);
	y = finish(&b);
	ok(digest_eq(&x, &y), "in any order and split");
}

static void test_empty(void)
{
	struct content c = { 0 };
	struct digest d, want;

	d = finish(&c);
	digest_of(NULL, 0, &want);
	ok(digest_eq(&d, &want), "nothing at all");
}

static void fails(struct content *c, const char *why)
{
	struct digest d = { { 1 } }, before = d;

	eq_i64(content_finish(c, &d), -E_DATA, why);
	ok(strstr(log_cause(), why), "it says \"%s\": %s", why, log_cause());
	ok(digest_eq(&d, &before), "the output is untouched");
	content_release(c);
}

static void test_bad(void)
{
	struct content c = { 0 };

	add(&c, CONTENT_TENSOR, "t", SPLIT, 0, 2);
	add(&c, CONTENT_TENSOR, "t", SPLIT, 3 * DIGEST_LEAF, 1);
	fails(&c, "\"t\": leaf 2 of 4 is missing");
	add(&c, CONTENT_TENSOR, "t", SPLIT, 0, 3);
	fails(&c, "leaf 3 of 4 is missing");
	add(&c, CONTENT_TENSOR, "t", SPLIT, 0, 3);
	add(&c, CONTENT_TENSOR, "t", SPLIT, 2 * DIGEST_LEAF, 2);
	fails(&c, "leaf 2 of 4 is there twice");
	add(&c, CONTENT_TENSOR, "t", 1, 0, 1);
	add(&c, CONTENT_TENSOR, "t", 1, 0, 1);
	fails(&c, "leaf 0 of 1 is there twice");
	add(&c, CONTENT_CARRIED, "f", 0, 0, 0);
	add(&c, CONTENT_CARRIED, "f", 0, 0, 0);
	fails(&c, "file \"f\": leaf 0 of 0 is there twice");
	eq_i64(add(&c, CONTENT_TENSOR, "t", 5, 0, 2), -E_DATA, "too many");
	eq_i64(add(&c, CONTENT_TENSOR, "t", 5, 0, 0), -E_DATA, "too few");
	eq_i64(add(&c, CONTENT_TENSOR, "t", SPLIT, 9, 1), -E_DATA, "no edge");
	eq_i64(add(&c, CONTENT_TENSOR, "t", SPLIT, 9 * DIGEST_LEAF, 1), -E_DATA,
	       "past the end");
	content_release(&c);
}

int main(void)
{
	log_init("unit_content", LOG_ERROR);
	log_quiet_thread(1);
	for (size_t i = 0; i < COUNT(leaf); i++)
		digest_of(&i, sizeof i, &leaf[i]);
	test_order();
	test_empty();
	test_bad();
	return tap_done();
}
