#include "fp8.h"
#include "buf.h"
#include "err.h"

#include <float.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#define F32_SIGN 0x80000000u
#define DROP 20 /* mantissa bits that F8_E4M3 has not */
/* Rounds to even with the last bit kept, and takes 127 - 7 off the exponent. */
#define ROUND ((1u << (DROP - 1)) - 1 - (120u << 23))
#define NORMAL_MIN 0x1p-6f
#define SUB_MAGIC 0x1p14f /* its last bit is worth 2^-9 */
#define F16_REBIAS 0x1p112f

static const struct {
	size_t size;
	uint32_t abs, inf; /* mask; the first value that is not finite */
} format[] = {
	[FP8_FROM_BF16] = { 2, 0x7fff, 0x7f80 },
	[FP8_FROM_F16] = { 2, 0x7fff, 0x7c00 },
	[FP8_FROM_F32] = { 4, 0x7fffffff, 0x7f800000 },
};

size_t fp8_size(enum fp8_from from)
{
	return format[from].size;
}

uint64_t fp8_blocks(uint64_t n)
{
	return n / FP8_BLOCK + (n % FP8_BLOCK != 0);
}

INLINE float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

INLINE uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static bool always(void)
{
	return true;
}

/* ---- plain C ---- */

INLINE uint32_t raw(enum fp8_from from, const char *row, size_t i)
{
	uint16_t h;
	uint32_t w;

	if (from == FP8_FROM_F32) {
		memcpy(&w, row + 4 * i, sizeof w);
		return w;
	}
	memcpy(&h, row + 2 * i, sizeof h);
	return h;
}

/* Exact: an F16, subnormal or not, is an F32 of another bias. */
INLINE float widen(enum fp8_from from, uint32_t bits)
{
	uint32_t sign = (bits & 0x8000) << 16;

	if (from == FP8_FROM_BF16)
		return float_of(bits << 16);
	if (from == FP8_FROM_F32)
		return float_of(bits);
	return float_of(sign |
			bits_of(float_of((bits & 0x7fff) << 13) * F16_REBIAS));
}

INLINE uint8_t code_of(float y)
{
	uint32_t sign = bits_of(y) & F32_SIGN;
	float a = float_of(bits_of(y) ^ sign);
	uint32_t n;

	n = bits_of(a);
	if (a < NORMAL_MIN)
		n = bits_of(a + SUB_MAGIC) - bits_of(SUB_MAGIC);
	else
		n = (n + ROUND + (n >> DROP & 1)) >> DROP;
	return (uint8_t)(n | sign >> 24);
}

static uint32_t amax_plain(const struct fp8_part *p)
{
	const char *row = p->src;
	uint32_t mask = format[p->from].abs, max = 0;

	for (size_t r = 0; r < p->rows; r++, row += p->src_step)
		for (size_t c = 0; c < p->cols; c++) {
			uint32_t v = raw(p->from, row, c) & mask;

			max = v > max ? v : max;
		}
	return max;
}

static void code_plain(const struct fp8_part *p, float scale)
{
	const char *row = p->src;
	uint8_t *to = p->dst;

	for (size_t r = 0; r < p->rows; r++) {
		for (size_t c = 0; c < p->cols; c++) {
			float x = widen(p->from, raw(p->from, row, c));

			to[c] = code_of(x / scale);
		}
		row += p->src_step;
		to += p->dst_step;
	}
}

/* ---- AVX2 ---- */

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

/* The largest of the lanes' 16-bit (or 32-bit) numbers. */
AVX2 INLINE uint32_t fold_max(__m256i v, bool is_wide)
{
	uint32_t lane[8], max = 0;

	_mm256_storeu_si256((void *)lane, v);
	for (size_t i = 0; i < 8; i++) {
		uint32_t low = lane[i] & 0xffff, high = lane[i] >> 16;

		if (is_wide)
			low = high = lane[i];
		max = low > max ? low : max;
		max = high > max ? high : max;
	}
	return max;
}

AVX2 INLINE uint32_t amax_rows(const struct fp8_part *p, bool is_wide)
{
	const __m256i mask = is_wide ? _mm256_set1_epi32(0x7fffffff)
				     : _mm256_set1_epi16(0x7fff);
	const size_t size = is_wide ? 4 : 2, step = 32 / size;
	__m256i max = _mm256_setzero_si256();
	const char *row = p->src;

	for (size_t r = 0; r < p->rows; r++, row += p->src_step)
		for (size_t c = 0; c + step <= p->cols; c += step) {
			__m256i v = _mm256_and_si256(
				_mm256_loadu_si256(
					(const void *)(row + size * c)),
				mask);

			max = is_wide ? _mm256_max_epu32(max, v)
				      : _mm256_max_epu16(max, v);
		}
	return fold_max(max, is_wide);
}

/* The columns behind the last whole vector of so many elements. */
INLINE struct fp8_part tail_of(const struct fp8_part *p, size_t step)
{
	size_t done = p->cols - p->cols % step;
	struct fp8_part t = *p;

	t.src = (const char *)p->src + done * format[p->from].size;
	t.dst = p->dst + done;
	t.cols -= done;
	return t;
}

AVX2 static uint32_t amax_avx2(const struct fp8_part *p)
{
	struct fp8_part tail = tail_of(p, 32 / format[p->from].size);
	uint32_t a = p->from == FP8_FROM_F32 ? amax_rows(p, true)
					     : amax_rows(p, false);
	uint32_t b = amax_plain(&tail);

	return a > b ? a : b;
}

AVX2 INLINE __m256 load8(enum fp8_from from, const char *row, size_t i)
{
	__m256i w, sign;
	__m256 f;

	if (from == FP8_FROM_F32)
		return _mm256_loadu_ps((const void *)(row + 4 * i));
	w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(row + 2 * i)));
	if (from == FP8_FROM_BF16)
		return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
	sign = _mm256_slli_epi32(_mm256_and_si256(w, _mm256_set1_epi32(0x8000)),
				 16);
	w = _mm256_slli_epi32(_mm256_and_si256(w, _mm256_set1_epi32(0x7fff)),
			      13);
	f = _mm256_mul_ps(_mm256_castsi256_ps(w), _mm256_set1_ps(F16_REBIAS));
	return _mm256_or_ps(f, _mm256_castsi256_ps(sign));
}

/* code_of() of eight numbers, each in 32 bits. */
AVX2 INLINE __m256i code8(__m256 x, __m256 scale)
{
	const __m256 sign =
		_mm256_castsi256_ps(_mm256_set1_epi32((int)F32_SIGN));
	const __m256 magic = _mm256_set1_ps(SUB_MAGIC);
	__m256 a = _mm256_div_ps(_mm256_andnot_ps(sign, x), scale);
	__m256i neg = _mm256_srli_epi32(
		_mm256_castps_si256(_mm256_and_ps(x, sign)), 24);
	__m256i n = _mm256_castps_si256(a);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(n, DROP),
				       _mm256_set1_epi32(1));
	__m256i small =
		_mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(a, magic)),
				 _mm256_castps_si256(magic));
	__m256 is_small =
		_mm256_cmp_ps(a, _mm256_set1_ps(NORMAL_MIN), _CMP_LT_OQ);

	n = _mm256_add_epi32(n, _mm256_set1_epi32((int)ROUND));
	n = _mm256_srli_epi32(_mm256_add_epi32(n, odd), DROP);
	n = _mm256_blendv_epi8(n, small, _mm256_castps_si256(is_small));
	return _mm256_or_si256(n, neg);
}

AVX2 INLINE void code_rows(const struct fp8_part *p, enum fp8_from from,
			   float scale)
{
	/* Packing works on halves of registers: put their words in order. */
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	const __m256 s = _mm256_set1_ps(scale);
	const char *row = p->src;
	uint8_t *to = p->dst;

	for (size_t r = 0; r < p->rows; r++) {
		for (size_t c = 0; c + 32 <= p->cols; c += 32) {
			__m256i a = _mm256_packus_epi32(
				code8(load8(from, row, c), s),
				code8(load8(from, row, c + 8), s));
			__m256i b = _mm256_packus_epi32(
				code8(load8(from, row, c + 16), s),
				code8(load8(from, row, c + 24), s));

			_mm256_storeu_si256(
				(void *)(to + c),
				_mm256_permutevar8x32_epi32(
					_mm256_packus_epi16(a, b), order));
		}
		row += p->src_step;
		to += p->dst_step;
	}
}

AVX2 static void code_avx2(const struct fp8_part *p, float scale)
{
	struct fp8_part tail = tail_of(p, 32);

	switch (p->from) {
	case FP8_FROM_BF16:
		code_rows(p, FP8_FROM_BF16, scale);
		break;
	case FP8_FROM_F16:
		code_rows(p, FP8_FROM_F16, scale);
		break;
	default:
		code_rows(p, FP8_FROM_F32, scale);
	}
	if (tail.cols > 0)
		code_plain(&tail, scale);
}
#endif

/* Best first; the last is always usable.  A part is one block here. */
static const struct fp8_kernel {
	const char *name;
	bool (*is_usable)(void);
	/* the largest element without its sign, as an integer */
	uint32_t (*amax)(const struct fp8_part *p);
	void (*code)(const struct fp8_part *p, float scale);
} kernel[] = {
#if defined(__x86_64__)
	{ "avx2", has_avx2, amax_avx2, code_avx2 },
#endif
	{ "plain", always, amax_plain, code_plain },
};

static const struct fp8_kernel *best(void)
{
	const struct fp8_kernel *k = kernel;

	while (!k->is_usable())
		k++;
	return k;
}

/* Of a block whose largest element has these bits, or 0 if that is not
 * finite. */
static float scale_of(enum fp8_from from, uint32_t amax)
{
	float scale = widen(from, amax) / FP8_MAX;

	if (amax >= format[from].inf)
		return 0;
	if (amax == 0)
		return 1;
	return scale < FLT_MIN ? FLT_MIN : scale;
}

int fp8_convert(const struct fp8_part *p, float *scale)
{
	const struct fp8_kernel *k = best();
	struct fp8_part block = *p;

	for (size_t done = 0; done < p->cols; done += block.cols) {
		block.src = (const char *)p->src + done * format[p->from].size;
		block.dst = p->dst + done;
		block.cols = p->cols - done;
		if (block.cols > FP8_BLOCK)
			block.cols = FP8_BLOCK;
		*scale = scale_of(p->from, k->amax(&block));
		if (*scale == 0)
			return -E_DATA;
		k->code(&block, *scale++);
	}
	return 0;
}

bool fp8_find_bad(const struct fp8_part *p, size_t *row, size_t *col)
{
	const char *from = p->src;

	for (size_t r = 0; r < p->rows; r++, from += p->src_step)
		for (size_t c = 0; c < p->cols; c++)
			if ((raw(p->from, from, c) & format[p->from].abs) >=
			    format[p->from].inf) {
				*row = r;
				*col = c;
				return true;
			}
	return false;
}
