/* The encodings of a tensor's change, both ways, and what is refused. */
#include "common/checksum.h"
#include "common/err.h"
#include "common/jsonflat.h"
#include "common/patch.h"
#include "tests/tap.h"

#include <stdlib.h>

#define N 4000u /* bytes of the tensors here; all element sizes divide it */

static uint8_t before[N], after[N], got[N];

static void fill(unsigned seed, unsigned one_in)
{
	srand(seed);
	for (size_t i = 0; i < N; i++) {
		before[i] = (uint8_t)rand();
		after[i] = before[i];
		if (one_in && rand() % (int)one_in == 0)
			after[i] = (uint8_t)rand();
	}
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Encoded in pieces of one length, applied in pieces of another. */
static bool sparse_goes_round(unsigned size, size_t in, size_t out, size_t n)
{
	struct buf b = { 0 };
	struct sparse_out o;
	struct sparse_in s;
	int rc = 0;

	sparse_begin(&o, size, &b);
	for (size_t i = 0; i < n; i += in)
		sparse_add(&o, before + i, after + i, min(in, n - i));
	sparse_finish(&o);
	memcpy(got, before, n);
	for (int again = 0; rc >= 0 && again < 2; again++) {
		rc = sparse_open(&s, buf_slice(&b), size, n);
		for (size_t i = 0; rc >= 0 && i < n; i += out)
			rc = sparse_apply(&s, got + i, i, min(out, n - i));
		if (rc >= 0)
			rc = sparse_close(&s);
	}
	rc = rc < 0 || b.n > sparse_bound(size, n) || memcmp(got, after, n);
	buf_release(&b);
	return !rc;
}

static void test_sparse(void)
{
	static const unsigned one_in[] = { 0, 1, 2, 10, 300, 5000 };
	static const size_t piece[] = { 8, 64, 72, 1000, N };
	bool good = true;

	for (unsigned size = 1; size <= 8; size *= 2) {
		for (size_t k = 0; k < COUNT(one_in); k++) {
			fill(size, one_in[k]);
			for (size_t p = 0; p < COUNT(piece); p++)
				good = good &&
				       sparse_goes_round(size, piece[p],
							 piece[4 - p], N) &&
				       sparse_goes_round(size, N, 8, 8 * p);
		}
		ok(good, "sparse, elements of %u bytes", size);
	}
	eq_u64(sparse_element(4), 1, "F4 has elements of a byte");
	eq_u64(sparse_element(64), 8, "C64 has elements of eight");
}

static int sparse_says(const struct buf *b, uint64_t bytes)
{
	struct sparse_in s;
	uint8_t piece[64] = { 0 };
	int rc = sparse_open(&s, buf_slice(b), 2, bytes);

	if (rc == 0)
		rc = sparse_apply(&s, piece, 0, bytes);
	return rc < 0 ? rc : sparse_close(&s);
}

static void make_sparse(struct buf *b)
{
	uint8_t a[64] = { 0 }, c[64] = { 0 };
	struct sparse_out o;

	c[3] = 1;
	c[40] = 2;
	buf_clear(b);
	sparse_begin(&o, 2, b);
	sparse_add(&o, a, c, 64);
	sparse_finish(&o);
}

static void test_sparse_refuses(void)
{
	struct buf b = { 0 };

	make_sparse(&b);
	eq_u64(b.n, SPARSE_HEAD + 2 * 3, "three bytes for each change");
	eq_i64(sparse_says(&b, 64), 0, "it is a patch of 64 bytes");
	eq_i64(sparse_says(&b, 32), -E_DATA, "and none of 32");
	for (size_t n = 0; n < b.n; n++) {
		struct buf cut = { b.p, n, 0 };

		if (sparse_says(&cut, 64) == 0)
			ok(false, "cut to %zu bytes", n);
	}
	buf_add(&b, "", 1);
	eq_i64(sparse_says(&b, 64), -E_DATA, "a byte too many");
	make_sparse(&b);
	b.p[4] = 4;
	eq_i64(sparse_says(&b, 64), -E_DATA, "another element size");
	make_sparse(&b);
	b.p[8] = 1;
	eq_i64(sparse_says(&b, 64), -E_DATA, "a change more than announced");
	b.p[8] = 3;
	eq_i64(sparse_says(&b, 64), -E_DATA, "a change less");
	make_sparse(&b);
	b.p[15] = 1;
	eq_i64(sparse_says(&b, 64), -E_DATA, "more changes than elements");
	make_sparse(&b);
	b.p[SPARSE_HEAD] = (char)0x81;
	eq_i64(sparse_says(&b, 64), -E_DATA, "a gap longer than needed");
	buf_release(&b);
}

static void test_xor(void)
{
	static uint8_t made[N];

	fill(9, 3);
	patch_xor(got, before, after, N - 3);
	memcpy(made, before, N);
	ok(patch_xor_into(made, got, N - 3), "there is a difference");
	ok(memcmp(made, after, N - 3) == 0, "applied, it is the new tensor");
	patch_xor(got, got, before, N - 3);
	ok(memcmp(got, after, N - 3) == 0, "and so it is in place");
	memset(got, 0, N);
	ok(!patch_xor_into(made, got, N) && !patch_xor_into(made, got, 3),
	   "there is none in zeros");
	ok(memcmp(made, after, N - 3) == 0, "which change nothing");
	for (size_t i = 0; i < N; i++) {
		got[i] = 1;
		if (!patch_xor_into(made, got, N) || made[i] == after[i])
			break;
		patch_xor_into(made, got, N);
		got[i] = 0;
	}
	eq_u64(got[N - 1], 0, "each byte counts");
	ok(memcmp(made, after, N - 3) == 0, "twice is not at all");
}

static void test_overwrite(void)
{
	static uint8_t pos[4 * N], val[N];
	uint64_t n, want = 0;

	fill(5, 7);
	for (size_t i = 0; i < N; i++)
		want += before[i] != after[i];
	n = patch_points(before, after, N, 0x01020304, pos, val);
	eq_u64(n, want, "each byte that differs is a point");
	memcpy(got, before, N);
	for (size_t i = 0; i < n; i++) {
		uint32_t p = pos[4 * i] | pos[4 * i + 1] << 8 |
			     pos[4 * i + 2] << 16 |
			     (uint32_t)pos[4 * i + 3] << 24;

		got[p - 0x01020304] = val[i];
	}
	ok(memcmp(got, after, N) == 0, "written over, it is the new tensor");
	eq_u64(patch_points(before, before, N, 0, pos, val), 0,
	       "nothing changed");
}

static void checks(enum checksum_kind k, const char *text, const char *want)
{
	struct checksum c;
	char hex[CHECKSUM_HEX];

	checksum_begin(&c, k);
	for (size_t i = 0; i < strlen(text); i++)
		checksum_add(&c, text + i, 1);
	eq_str(checksum_end(&c, hex), want, checksum_name(k));
	ok(checksum_is_text(k, slice_of(hex)), "it looks like one");
}

static void test_checksum(void)
{
	static char big[100000];
	struct checksum c;
	char hex[CHECKSUM_HEX];

	checks(CHECKSUM_ADLER32, "", "00000001");
	checks(CHECKSUM_ADLER32, "Wikipedia", "11e60398");
	checks(CHECKSUM_XXH3, "", "99aa06d3014798d86001c324468d497f");
	memset(big, 0xff, sizeof big);
	checksum_begin(&c, CHECKSUM_ADLER32);
	checksum_add(&c, big, sizeof big);
	eq_str(checksum_end(&c, hex), "149a302c", "sums do not overflow");
	eq_u64(checksum_of(SLICE("blake3")), CHECKSUM_BLAKE3, "blake3");
	ok(!checksum_is_built(CHECKSUM_BLAKE3), "is known and not built in");
	eq_u64(checksum_of(SLICE("md5")), CHECKSUM_NKINDS, "md5 is not");
	ok(!checksum_is_text(CHECKSUM_ADLER32, SLICE("0000000A")),
	   "capitals are not");
}

static int count_pairs(void *ctx, struct slice key, struct slice value)
{
	int *n = ctx;

	*n += (int)(key.n + value.n);
	return 0;
}

static int refuse_pair(void *ctx, struct slice key, struct slice value)
{
	(void)ctx, (void)key, (void)value;
	return -E_PERM;
}

static void test_jsonflat(void)
{
	const char *why;
	int n = 0;

	eq_i64(jsonflat_read(SLICE("{\"a\":\"bc\",\"d\":12}"), count_pairs, &n,
			     &why),
	       0, "an object");
	eq_i64(n, 6, "of two members");
	eq_i64(jsonflat_read(SLICE("{\"a\":{}}"), count_pairs, &n, &why),
	       -E_DATA, "an object in it");
	eq_i64(jsonflat_read(SLICE("[]"), count_pairs, &n, &why), -E_DATA,
	       "an array");
	eq_str(why, "no object", "why");
	eq_i64(jsonflat_read(SLICE("{\"a\":1"), count_pairs, &n, &why), -E_DATA,
	       "its end is missing");
	eq_i64(jsonflat_read(SLICE("{\"a\":1}"), refuse_pair, NULL, &why),
	       -E_PERM, "a member that is refused");
	ok(!why, "by who asked");
}

int main(void)
{
	test_xor();
	test_overwrite();
	test_sparse();
	test_sparse_refuses();
	test_checksum();
	test_jsonflat();
	return tap_done();
}
