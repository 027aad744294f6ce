#include "tests/files.h"
#include "tests/tap.h"

/* Each of its kernels, not only the one that suits this processor. */
#include "common/copy.c"

#define ROOM ((size_t)256 << 10)
#define EDGE 64 /* bytes on each side that must not change */

static unsigned char *src, *dst, *want;

static const size_t length[] = {
	0,
	1,
	2,
	31,
	32,
	33,
	63,
	64,
	65,
	127,
	128,
	129,
	191,
	255,
	256,
	1000,
	4095,
	4096,
	4097,
	COPY_BLOCK - 1,
	COPY_BLOCK,
	COPY_BLOCK + 1,
	COPY_BLOCK + 65,
	3 * COPY_BLOCK + 17,
};

/* dst must hold n bytes of from at offset d, and nothing else. */
static bool is_exact(size_t d, const unsigned char *from, size_t n)
{
	memset(want, 0xa5, n + d + 2 * EDGE);
	memcpy(want + EDGE + d, from, n);
	return memcmp(want, dst, n + d + 2 * EDGE) == 0;
}

static bool one(const struct copy_kernel *k, size_t s, size_t d, size_t n)
{
	struct digest_state state;
	struct digest got, whole;

	memset(dst, 0xa5, n + d + 2 * EDGE);
	if (k) {
		k->copy(dst + EDGE + d, src + s, n);
		return is_exact(d, src + s, n);
	}
	digest_begin(&state);
	copy_hash(dst + EDGE + d, src + s, n, &state);
	digest_end(&state, &got);
	digest_of(src + s, n, &whole);
	return is_exact(d, src + s, n) && digest_eq(&got, &whole);
}

/* All pairs of alignments for short lengths, a sample for long ones. */
static bool all(const struct copy_kernel *k)
{
	for (size_t i = 0; i < COUNT(length); i++) {
		size_t by = length[i] > 300 ? 13 : 1;

		for (size_t s = 0; s <= 64; s += by)
			for (size_t d = 0; d <= 64; d += by)
				if (!one(k, s, d, length[i])) {
					printf("# src+%zu dst+%zu %zu bytes\n",
					       s, d, length[i]);
					return false;
				}
	}
	return true;
}

/* ST-19: values that arithmetic would change. */
static void test_odd_floats(void)
{
	static const uint32_t odd[] = {
		0x7f800001, 0xff800001, 0x7fa00000, 0x7fc00000,
		0x7fffffff, 0x7f800000, 0xff800000, 0x00000001,
		0x807fffff, 0x80000000, 0x7f817f81, 0x7f817fc1,
	};

	for (size_t i = 0; i < ROOM / 4; i++)
		memcpy(src + 4 * i, &odd[i % COUNT(odd)], 4);
	ok(one(NULL, 0, 0, 100000), "ST-19 NaN, infinity, denormals, aligned");
	ok(one(NULL, 3, 5, 100000), "ST-19 NaN, infinity, denormals, skewed");
}

int main(void)
{
	src = xmalloc(ROOM);
	dst = xmalloc(ROOM);
	want = xmalloc(ROOM);
	fill(src, ROOM, 1);
	for (size_t i = 0; i < COUNT(kernel); i++)
		if (kernel[i].is_usable())
			ok(all(&kernel[i]), "every alignment and length, %s",
			   kernel[i].name);
		else
			ok(true, "# SKIP %s: not on this processor",
			   kernel[i].name);
	ok(kernel[COUNT(kernel) - 1].is_usable(), "the last always is");
	ok(all(NULL), "every alignment and length, with the digest");
	test_odd_floats();
	free(src);
	free(dst);
	free(want);
	return tap_done();
}
