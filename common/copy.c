#include "copy.h"
#include "buf.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LINE 64 /* bytes of a cache line */

static bool always(void)
{
	return true;
}

#if defined(__x86_64__)
/* Moves up to the next line of dst; what is left is aligned there. */
static size_t align_dst(void *dst, const void *src, size_t n)
{
	size_t head = -(uintptr_t)dst % LINE;

	if (head > n)
		head = n;
	memcpy(dst, src, head);
	return head;
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

__attribute__((target("avx2"))) static void copy_avx2(void *dst,
						      const void *src, size_t n)
{
	size_t head = align_dst(dst, src, n);
	const char *s = (const char *)src + head;
	char *d = (char *)dst + head;

	for (n -= head; n >= 2 * LINE; n -= 2 * LINE) {
		__m256i a = _mm256_loadu_si256((const void *)s);
		__m256i b = _mm256_loadu_si256((const void *)(s + 32));
		__m256i c = _mm256_loadu_si256((const void *)(s + 64));
		__m256i e = _mm256_loadu_si256((const void *)(s + 96));

		_mm256_stream_si256((void *)d, a);
		_mm256_stream_si256((void *)(d + 32), b);
		_mm256_stream_si256((void *)(d + 64), c);
		_mm256_stream_si256((void *)(d + 96), e);
		s += 2 * LINE;
		d += 2 * LINE;
	}
	memcpy(d, s, n);
	_mm_sfence();
}

static void copy_sse2(void *dst, const void *src, size_t n)
{
	size_t head = align_dst(dst, src, n);
	const char *s = (const char *)src + head;
	char *d = (char *)dst + head;

	for (n -= head; n >= LINE; n -= LINE) {
		__m128i a = _mm_loadu_si128((const void *)s);
		__m128i b = _mm_loadu_si128((const void *)(s + 16));
		__m128i c = _mm_loadu_si128((const void *)(s + 32));
		__m128i e = _mm_loadu_si128((const void *)(s + 48));

		_mm_stream_si128((void *)d, a);
		_mm_stream_si128((void *)(d + 16), b);
		_mm_stream_si128((void *)(d + 32), c);
		_mm_stream_si128((void *)(d + 48), e);
		s += LINE;
		d += LINE;
	}
	memcpy(d, s, n);
	_mm_sfence();
}
#endif

static void copy_libc(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

/* Best first; the last is always usable. */
static const struct copy_kernel {
	const char *name;
	bool (*is_usable)(void);
	void (*copy)(void *dst, const void *src, size_t n);
} kernel[] = {
#if defined(__x86_64__)
	{ "avx2", has_avx2, copy_avx2 },
	{ "sse2", always, copy_sse2 },
#endif
	{ "libc", always, copy_libc },
};

static const struct copy_kernel *best(void)
{
	const struct copy_kernel *k = kernel;

	while (!k->is_usable())
		k++;
	return k;
}

void copy_hash(void *dst, const void *src, size_t n, struct digest_state *s)
{
	const struct copy_kernel *k = best();
	const char *from = src;
	char *to = dst;

	while (n > 0) {
		size_t m = n < COPY_BLOCK ? n : COPY_BLOCK;

		digest_add(s, from, m);
		k->copy(to, from, m);
		from += m;
		to += m;
		n -= m;
	}
}
