#include "checksum.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

#define ADLER 65521u
#define ADLER_RUN 5552u /* bytes until the sums must be reduced */

static const struct {
	const char *name;
	unsigned digits;
	bool is_built;
} kinds[] = {
	[CHECKSUM_XXH3] = { "xxh3-128", 32, true },
	[CHECKSUM_ADLER32] = { "adler32", 8, true },
	[CHECKSUM_BLAKE3] = { "blake3", 64, false },
};
_Static_assert(COUNT(kinds) == CHECKSUM_NKINDS, "all kinds");

const char *checksum_name(enum checksum_kind k)
{
	return kinds[k].name;
}

enum checksum_kind checksum_of(struct slice name)
{
	enum checksum_kind k = 0;

	while (k < CHECKSUM_NKINDS && !slice_eq(name, slice_of(kinds[k].name)))
		k++;
	return k;
}

bool checksum_is_built(enum checksum_kind k)
{
	return kinds[k].is_built;
}

bool checksum_is_text(enum checksum_kind k, struct slice text)
{
	for (size_t i = 0; i < text.n; i++)
		if (!memchr("0123456789abcdef", text.p[i], 16))
			return false;
	return text.n == kinds[k].digits;
}

void checksum_begin(struct checksum *c, enum checksum_kind kind)
{
	BUG_ON(!checksum_is_built(kind));
	c->kind = kind;
	c->a = 1;
	c->b = 0;
	digest_begin(&c->xxh);
}

static void adler_run(struct checksum *c, const uint8_t *p, size_t n)
{
	uint32_t a = c->a, b = c->b;

	for (size_t i = 0; i < n; i++) {
		a += p[i];
		b += a;
	}
	c->a = a % ADLER;
	c->b = b % ADLER;
}

void checksum_add(struct checksum *c, const void *p, size_t n)
{
	const uint8_t *b = p;

	if (c->kind == CHECKSUM_XXH3) {
		digest_add(&c->xxh, p, n);
		return;
	}
	for (size_t k; n > 0; n -= k, b += k) {
		k = n < ADLER_RUN ? n : ADLER_RUN;
		adler_run(c, b, k);
	}
}

char *checksum_end(const struct checksum *c, char *out)
{
	struct digest d;

	if (c->kind == CHECKSUM_ADLER32) {
		snprintf(out, CHECKSUM_HEX, "%08x",
			 (unsigned)(c->b << 16 | c->a));
		return out;
	}
	digest_end(&c->xxh, &d);
	return digest_hex(&d, out);
}
