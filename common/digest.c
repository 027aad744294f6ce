#include "digest.h"
#include "err.h"

/* The state's size is only declared for those who ask for it; weir keeps
 * states in its own structs so that a push allocates nothing per leaf. */
#define XXH_STATIC_LINKING_ONLY
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <assert.h>
#include <string.h>

static_assert(sizeof(XXH3_state_t) <= sizeof(struct digest_state),
	      "the state fits");
static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct digest_state),
	      "the state is aligned");
static_assert(sizeof(XXH128_canonical_t) == DIGEST_LEN, "one form, one size");
static_assert(sizeof(struct digest) == DIGEST_LEN, "arrays have no holes");

static void put(XXH128_hash_t h, struct digest *out)
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, h);
	memcpy(out->b, c.digest, DIGEST_LEN);
}

void digest_begin(struct digest_state *s)
{
	XXH3_128bits_reset((XXH3_state_t *)s->opaque);
}

void digest_add(struct digest_state *s, const void *p, size_t n)
{
	if (n > 0)
		XXH3_128bits_update((XXH3_state_t *)s->opaque, p, n);
}

void digest_end(const struct digest_state *s, struct digest *out)
{
	put(XXH3_128bits_digest((const XXH3_state_t *)s->opaque), out);
}

void digest_of(const void *p, size_t n, struct digest *out)
{
	put(XXH3_128bits(n > 0 ? p : "", n), out);
}

/* Of seed 0 it is the one that is built in. */
void digest_secret(unsigned char out[DIGEST_SECRET])
{
	static_assert(DIGEST_SECRET == XXH3_SECRET_DEFAULT_SIZE, "as long");
	XXH3_generateSecret_fromSeed(out, 0);
}

void digest_fold(const struct digest *share, uint32_t n, struct digest *out)
{
	if (n == 1)
		*out = share[0];
	else
		digest_of(share, n * sizeof *share, out);
}

bool digest_eq(const struct digest *a, const struct digest *b)
{
	return memcmp(a->b, b->b, DIGEST_LEN) == 0;
}

bool digest_is_zero(const struct digest *d)
{
	static const struct digest zero;

	return digest_eq(d, &zero);
}

char *digest_hex(const struct digest *d, char *out)
{
	static const char digit[] = "0123456789abcdef";

	for (size_t i = 0; i < DIGEST_LEN; i++) {
		out[2 * i] = digit[d->b[i] >> 4];
		out[2 * i + 1] = digit[d->b[i] & 15];
	}
	out[2 * DIGEST_LEN] = '\0';
	return out;
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int digest_parse(const char *hex, size_t n, struct digest *out)
{
	struct digest d;

	if (n != 2 * DIGEST_LEN)
		return -E_DATA;
	for (size_t i = 0; i < DIGEST_LEN; i++) {
		int hi = nibble(hex[2 * i]), lo = nibble(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -E_DATA;
		d.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*out = d;
	return 0;
}
