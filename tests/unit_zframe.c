/* zstd frames in pieces, and what is no frame of ours. */
#include "common/err.h"
#include "common/zframe.h"
#include "tests/tap.h"

#include <stdlib.h>

#define N 300000u

static unsigned char plain[N], got[N];

struct feed {
	const struct buf *b;
	size_t at, step;
};

static int more(void *arg, const void **p, size_t *n)
{
	struct feed *f = arg;
	size_t left = f->b->n - f->at;

	*p = f->b->p + f->at;
	*n = left < f->step ? left : f->step;
	f->at += *n;
	return 0;
}

static void pack(struct buf *b, size_t n, size_t piece)
{
	struct zpack z = { 0 };

	buf_clear(b);
	zpack_begin(&z, 1, n, b);
	for (size_t i = 0; i < n; i += piece)
		zpack_add(&z, plain + i, n - i < piece ? n - i : piece);
	eq_i64(zpack_end(&z), 0, "packed");
	zpack_release(&z);
}

/* Reads n bytes in pieces and then the end. */
static int unpack(const struct buf *b, size_t n, size_t piece, size_t step)
{
	struct feed f = { b, 0, step };
	struct zread z = { 0 };
	int rc = zread_begin(&z, more, &f);

	if (rc == 0 && z.total != n && z.total != ZFRAME_UNKNOWN)
		rc = -E_DATA;
	for (size_t i = 0; rc == 0 && i < n; i += piece)
		rc = zread_get(&z, got + i, n - i < piece ? n - i : piece);
	if (rc == 0)
		rc = zread_end(&z);
	zread_release(&z);
	return rc;
}

static void test_round_trip(void)
{
	static const size_t size[] = { 0, 1, 1000, 131072, N };
	struct buf b = { 0 };

	for (size_t i = 0; i < COUNT(size); i++) {
		memset(got, 0, sizeof got);
		pack(&b, size[i], 70000);
		eq_i64(unpack(&b, size[i], 4096, 5000), 0, "unpacked");
		ok(memcmp(got, plain, size[i]) == 0, "%zu bytes", size[i]);
		eq_i64(unpack(&b, size[i], N, N), 0, "at once");
	}
	buf_release(&b);
}

static void test_refuses(void)
{
	struct buf b = { 0 }, other = { 0 };

	pack(&b, N, N);
	eq_i64(unpack(&b, N - 1, 4096, 4096), -E_DATA, "less than is in it");
	eq_i64(unpack(&b, N + 1, 4096, 4096), -E_DATA, "more than is in it");
	for (size_t cut = 1; cut < 20; cut++) {
		struct buf part = { b.p, b.n - cut, 0 };

		if (unpack(&part, N, N, N) != -E_DATA)
			ok(false, "cut by %zu", cut);
	}
	buf_add(&b, "", 1);
	eq_i64(unpack(&b, N, 4096, b.n), -E_DATA, "a byte behind it");
	eq_i64(unpack(&b, N, 4096, b.n - 1), -E_DATA, "in another piece");
	pack(&b, 10, 10);
	pack(&other, 10, 10);
	buf_add(&b, other.p, other.n);
	eq_i64(unpack(&b, 20, 20, N), -E_DATA, "two frames");
	buf_clear(&b);
	buf_add(&b, "\x50\x2a\x4d\x18\0\0\0\0", 8);
	eq_i64(unpack(&b, 0, 1, N), -E_DATA, "a skippable frame");
	buf_clear(&b);
	eq_i64(unpack(&b, 0, 1, N), -E_DATA, "nothing");
	buf_add(&b, "\x28\xb5\x2f\xfd\x00\xff", 6);
	eq_i64(unpack(&b, 0, 1, N), -E_DATA, "a window of terabytes");
	buf_release(&b);
	buf_release(&other);
}

/* Bytes until it has told as many as it may; then it cannot. */
static int more_or_fail(void *arg, const void **p, size_t *n)
{
	struct feed *f = arg;

	if (f->at >= f->b->n)
		return -E_IO;
	return more(arg, p, n);
}

/* What cannot be read is not damaged. */
static void test_unread(void)
{
	struct buf b = { 0 };
	struct zread z = { 0 };

	pack(&b, N, N);
	for (size_t n = 0; n <= b.n; n += b.n / 4) {
		struct buf part = { b.p, n, 0 };
		struct feed f = { &part, 0, b.n / 4 };
		int rc = zread_begin(&z, more_or_fail, &f);

		if (rc == 0)
			rc = zread_skip(&z, N);
		if (rc == 0)
			rc = zread_end(&z);
		ok(rc == -E_IO, "%d: nothing comes after %zu bytes", rc, n);
	}
	zread_release(&z);
	buf_release(&b);
}

static void test_miscount(void)
{
	struct buf b = { 0 };
	struct zpack z = { 0 };

	zpack_begin(&z, 1, 10, &b);
	zpack_add(&z, plain, 9);
	eq_i64(zpack_end(&z), -E_DATA, "a byte less than was said");
	zpack_begin(&z, 1, 10, &b);
	zpack_add(&z, plain, 11);
	eq_i64(zpack_end(&z), -E_DATA, "a byte more");
	zpack_release(&z);
	buf_release(&b);
}

static void test_skip(void)
{
	struct buf b = { 0 };
	struct feed f = { &b, 0, 1000 };
	struct zread z = { 0 };
	char rest[10];

	pack(&b, N, N);
	eq_i64(zread_begin(&z, more, &f), 0, "begun");
	eq_u64(z.total, N, "the frame says its size");
	eq_i64(zread_skip(&z, N - 10), 0, "skipped");
	eq_i64(zread_get(&z, rest, 10), 0, "the rest");
	ok(memcmp(rest, plain + N - 10, 10) == 0, "is right");
	eq_i64(zread_end(&z), 0, "and all");
	zread_release(&z);
	buf_release(&b);
}

/* Runs of zeros of all lengths, whole blocks of them, and none at the end. */
static void test_zeros(void)
{
	struct buf b = { 0 };
	size_t at = 0;

	memset(plain, 0, N);
	for (size_t run = 0; at < N - 140000; at += run++)
		plain[at++] = (unsigned char)(1 + run % 3);
	plain[N - 5] = 9;
	for (size_t n = N - 16; n <= N; n++) {
		pack(&b, n, 65536);
		eq_i64(unpack(&b, n, 65536, 1000), 0, "unpacked");
		ok(memcmp(plain, got, n) == 0, "the same %zu bytes", n);
	}
	ok(b.n < 3000, "packed as %zu bytes", b.n);
	buf_release(&b);
}

int main(void)
{
	srand(1);
	for (size_t i = 0; i < N; i++)
		plain[i] = (unsigned char)(rand() % 7 ? 0 : rand());
	test_round_trip();
	test_refuses();
	test_skip();
	test_unread();
	test_miscount();
	test_zeros();
	return tap_done();
}
