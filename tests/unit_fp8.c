/* Every kernel of fp8.c against a search for the nearest number. */
#include "tests/files.h"
#include "tests/tap.h"

#include "common/fp8.c"

#include <float.h>
#include <math.h>

#define EDGE 64 /* bytes behind a row that must not change */
#define ROWS_MAX 130
#define COLS_MAX 400

static const char *const from_name[] = { "BF16", "F16", "F32" };

/* By the format's description: sign, 4 bits of exponent, 3 of mantissa. */
static double number_of(uint8_t code)
{
	int e = code >> 3 & 15, m = code & 7;
	double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);

	return code & 0x80 ? -v : v;
}

/* The nearest of all 127; of two that are as near, the even one. */
static uint8_t nearest(float y)
{
	uint8_t best = 0;

	for (uint8_t c = 1; c < 127; c++) {
		double d = fabs(fabs((double)y) - number_of(c));
		double b = fabs(fabs((double)y) - number_of(best));

		if (d < b || (d == b && c % 2 == 0))
			best = c;
	}
	return (uint8_t)(best | (signbit(y) ? 0x80 : 0));
}

/* F16 as its description has it. */
static float half_of(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return (float)(h & 0x8000 ? -v : v);
}

static float value_of(enum fp8_from from, uint32_t bits)
{
	float f;

	if (from == FP8_FROM_F16)
		return half_of((uint16_t)bits);
	if (from == FP8_FROM_BF16)
		bits <<= 16;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint32_t element(enum fp8_from from, const void *src, size_t i)
{
	uint16_t h;
	uint32_t w;

	memcpy(&h, (const char *)src + 2 * i, sizeof h);
	if (from != FP8_FROM_F32)
		return h;
	memcpy(&w, (const char *)src + 4 * i, sizeof w);
	return w;
}

/* n elements in one row, by that kernel, each compared. */
static size_t count_wrong(const struct fp8_kernel *k, enum fp8_from from,
			  const void *src, size_t n, float scale)
{
	static uint8_t code[65536];
	const struct fp8_part p = { from, src, code, 0, 0, 1, n };
	size_t wrong = 0;

	k->code(&p, scale);
	for (size_t i = 0; i < n; i++) {
		float x = value_of(from, element(from, src, i));

		wrong += code[i] != nearest(x / scale);
	}
	return wrong;
}

/* All numbers of 16 bits up to 448 * scale, both signs. */
static void test_all_halves(const struct fp8_kernel *k, enum fp8_from from,
			    float scale)
{
	static uint16_t v[65536];
	size_t n = 0;

	for (uint32_t h = 0; h < 65536; h++)
		if (fabsf(value_of(from, h)) / scale <= FP8_MAX)
			v[n++] = (uint16_t)h;
	eq_u64(count_wrong(k, from, v, n, scale), 0, k->name);
	ok(n > 30000, "%s: %zu numbers, scale %g", from_name[from], n,
	   (double)scale);
}

/* Codes, what lies between two, and the next number on each side of both. */
static void test_ties(const struct fp8_kernel *k, float scale)
{
	float v[127 * 12];
	size_t n = 0;

	for (uint8_t c = 0; c < 126; c++) {
		float at = (float)number_of(c) * scale;
		float mid =
			(float)(number_of(c) + number_of(c + 1)) / 2 * scale;
		const float six[] = {
			at,  nextafterf(at, -1),  nextafterf(at, INFINITY),
			mid, nextafterf(mid, -1), nextafterf(mid, INFINITY)
		};

		for (size_t i = 0; i < COUNT(six); i++) {
			v[n++] = six[i];
			v[n++] = -six[i];
		}
	}
	v[n++] = FP8_MAX * scale;
	v[n++] = -FP8_MAX * scale;
	eq_u64(count_wrong(k, FP8_FROM_F32, v, n, scale), 0, k->name);
}

static void test_signs(const struct fp8_kernel *k)
{
	const float v[] = {
		0.0f,	    -0.0f,	0x1p-149f,
		-0x1p-149f, 0x1p-10f, /* a tie of 0 and the smallest code */
		-0x1p-10f,  448.00003f, -448.00003f
	};
	const uint8_t want[] = { 0, 0x80, 0, 0x80, 0, 0x80, 0x7e, 0xfe };
	uint8_t code[COUNT(v)];
	const struct fp8_part p = { FP8_FROM_F32, v, code, 0, 0, 1, COUNT(v) };

	k->code(&p, 1);
	for (size_t i = 0; i < COUNT(v); i++)
		ok(code[i] == want[i], "%s: %a is 0x%02x", k->name,
		   (double)v[i], code[i]);
}

static char *src;
static uint8_t *one, *two;

/* Two kernels, the same bits, and none outside of the part. */
static bool is_same(const struct fp8_kernel *a, const struct fp8_kernel *b,
		    enum fp8_from from, size_t rows, size_t cols)
{
	size_t step = cols + EDGE;
	struct fp8_part p = { from, src,  one, cols * fp8_size(from) + 2,
			      step, rows, cols };
	uint32_t most = a->amax(&p);

	memset(one, 0xa5, rows * step);
	memset(two, 0xa5, rows * step);
	a->code(&p, 0.01f);
	p.dst = two;
	b->code(&p, 0.01f);
	for (size_t r = 0; r < rows; r++)
		for (size_t c = cols; c < step; c++)
			if (one[r * step + c] != 0xa5)
				return false;
	return memcmp(one, two, rows * step) == 0 && most == b->amax(&p);
}

static void test_shapes(const struct fp8_kernel *a, const struct fp8_kernel *b,
			enum fp8_from from)
{
	static const size_t rows[] = { 1, 2, 127, 128 };
	bool good = true;

	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t cols = 1; cols <= 2 * FP8_BLOCK + 1; cols++)
			good = good && is_same(a, b, from, rows[i], cols);
	ok(good, "%s and %s agree on any shape of %s", a->name, b->name,
	   from_name[from]);
}

static void test_scale(void)
{
	uint32_t bits;
	float f = 448 * 0x1p-3f;

	memcpy(&bits, &f, sizeof f);
	ok(scale_of(FP8_FROM_F32, bits) == 0x1p-3f, "the largest over 448");
	ok(scale_of(FP8_FROM_F32, 0) == 1, "zeros: 1");
	ok(scale_of(FP8_FROM_F32, 1) == FLT_MIN, "never subnormal");
	ok(scale_of(FP8_FROM_BF16, 1) == FLT_MIN, "nor of BF16");
	ok(scale_of(FP8_FROM_F16, 1) == 0x1p-24f / 448, "F16 subnormal");
	ok(scale_of(FP8_FROM_F32, 0x7f7fffff) == FLT_MAX / 448, "largest");
	ok(scale_of(FP8_FROM_F32, 0x7f800000) == 0, "infinity: none");
	ok(scale_of(FP8_FROM_F16, 0x7c00) == 0, "infinity of F16");
	ok(scale_of(FP8_FROM_BF16, 0x7fff) == 0, "NaN of BF16");
}

/* What the largest element becomes must be the largest code, whatever the
 * division for the scale was rounded to. */
static void test_largest(const struct fp8_kernel *k)
{
	uint32_t x = 1, wrong = 0;

	for (int i = 0; i < 100000; i++) {
		struct fp8_part p = { FP8_FROM_F32, NULL, one, 0, 0, 1, 1 };
		float f;

		x = x * 1664525u + 1013904223u;
		p.src = &f;
		memcpy(&f, &x, sizeof f);
		if (!isfinite(f) || fabsf(f) < 448 * FLT_MIN)
			continue;
		k->code(&p, scale_of(FP8_FROM_F32, x & 0x7fffffff));
		wrong += (*one & 0x7f) != 0x7e;
	}
	eq_u64(wrong, 0, "the largest is 448, always");
}

static void test_bad(enum fp8_from from, uint32_t bad, const char *what)
{
	size_t size = fp8_size(from), row = 0, col = 0;
	struct fp8_part p = { from, src, one, 300 * size, 300, 100, 300 };
	float scale[3];

	memset(src, 0, 100 * 300 * size);
	ok(fp8_convert(&p, scale) == 0 && scale[0] == 1 && scale[2] == 1,
	   "%s: zeros have scale 1", from_name[from]);
	ok(!fp8_find_bad(&p, &row, &col), "%s: none is bad", from_name[from]);
	memcpy(src + (7 * 300 + 299) * size, &bad, size);
	eq_i64(fp8_convert(&p, scale), -E_DATA, what);
	ok(fp8_find_bad(&p, &row, &col) && row == 7 && col == 299,
	   "%s at %zu, %zu", what, row, col);
}

/* Blocks that are cut off: each scale is of its own columns. */
static void test_blocks(void)
{
	float v[2][130] = { { 0 } }, scale[2];
	struct fp8_part p = { FP8_FROM_F32, v, one, sizeof v[0], 130, 2, 130 };

	v[0][3] = -896;
	v[1][129] = 1344;
	ok(fp8_convert(&p, scale) == 0, "130 columns");
	ok(scale[0] == 2 && scale[1] == 3, "two scales");
	ok(one[3] == 0xfe && one[130 + 129] == 0x7e, "two largest");
	eq_u64(fp8_blocks(0), 0, "no blocks in nothing");
	eq_u64(fp8_blocks(128), 1, "one in 128");
	eq_u64(fp8_blocks(129), 2, "two in 129");
}

int main(void)
{
	const struct fp8_kernel *plain = &kernel[COUNT(kernel) - 1];
	size_t room = ROWS_MAX * (COLS_MAX * 4 + EDGE);

	src = xmalloc(room);
	one = xmalloc(room);
	two = xmalloc(room);
	for (size_t i = 0; i < COUNT(kernel); i++) {
		const struct fp8_kernel *k = &kernel[i];

		if (!k->is_usable())
			continue;
		for (size_t s = 0; s < 3; s++) {
			static const float scale[] = { 1, 0x1.23456p-7f,
						       0x1.fffp-12f };

			test_all_halves(k, FP8_FROM_BF16, scale[s]);
			if (s < 2)
				test_all_halves(k, FP8_FROM_F16, 200);
			test_ties(k, scale[s]);
		}
		test_signs(k);
		test_largest(k);
		fill(src, room, 7);
		for (size_t at = 0; at < room; at++)
			src[at] &= (char)0xbf; /* finite, and not too large */
		for (enum fp8_from f = 0; f < FP8_NFROM; f++)
			test_shapes(k, plain, f);
	}
	test_scale();
	test_blocks();
	test_bad(FP8_FROM_BF16, 0x7f80, "infinity of BF16");
	test_bad(FP8_FROM_BF16, 0xffc0, "NaN of BF16");
	test_bad(FP8_FROM_F16, 0xfc00, "-infinity of F16");
	test_bad(FP8_FROM_F32, 0x7f800001, "NaN of F32");
	free(src);
	free(one);
	free(two);
	return tap_done();
}
