#include "tests/tap.h"

#include "common/buf.h"
#include "common/digest.h"
#include "common/err.h"

#include <stdlib.h>

#define BYTES ((size_t)17 << 20)

/* Made by xxHash's scalar code from the bytes of fill(). */
static const struct {
	size_t n;
	const char *hex;
} vector[] = {
	{ 0, "99aa06d3014798d86001c324468d497f" },
	{ 1, "beff62be44bc9be4429e81bc6744101c" },
	{ 3, "9dce807f4a9aaa5632dbb5c7774cc94f" },
	{ 16, "f8ae1a6f144fb00b4c6929dc65a535a0" },
	{ 17, "0ad716e7cfed9dc843287186cdfec85d" },
	{ 128, "2b83749a25627c556772960c7e09e15b" },
	{ 129, "d2c5fdf14399d768d15020c0444d308f" },
	{ 240, "b2c3c2aa029b2279e16f608e11e76335" },
	{ 241, "e75e577a31d24834d6afac6f8fa85b01" },
	{ 1024, "1ac8856c8b289d9abb9f0c3761cdfd54" },
	{ 65537, "bbb4683662baea6849235290459c83cc" },
	{ 16777216, "663735f4a008f63891a68291e782fedb" },
};

static void fill(unsigned char *p, size_t n)
{
	uint32_t x = 1;

	for (size_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = (unsigned char)(x >> 24);
	}
}

static void test_vectors(const unsigned char *p)
{
	char hex[DIGEST_HEX], name[64];
	struct digest d;

	for (size_t i = 0; i < COUNT(vector); i++) {
		snprintf(name, sizeof name, "%zu bytes", vector[i].n);
		digest_of(p, vector[i].n, &d);
		eq_str(digest_hex(&d, hex), vector[i].hex, name);
	}
	digest_of("abc", 3, &d);
	eq_str(digest_hex(&d, hex), "06b05ab6733a618578af5f94892f3950",
	       "the published vector of \"abc\"");
	digest_of(NULL, 0, &d);
	eq_str(digest_hex(&d, hex), vector[0].hex, "nothing at NULL");
}

static bool streams_alike(const unsigned char *p, size_t n, size_t step)
{
	struct digest_state s;
	struct digest once, parts;

	digest_begin(&s);
	for (size_t i = 0; i < n; i += step)
		digest_add(&s, p + i, n - i < step ? n - i : step);
	digest_add(&s, NULL, 0);
	digest_end(&s, &parts);
	digest_of(p, n, &once);
	return digest_eq(&once, &parts);
}

static void test_streams(const unsigned char *p)
{
	static const size_t step[] = { 1, 7, 64, 255, 256, 257, 4096, 32768 };

	for (size_t i = 0; i < COUNT(step); i++)
		ok(streams_alike(p, 70001, step[i]), "in steps of %zu",
		   step[i]);
	ok(streams_alike(p, BYTES, 32768), "17 MiB in steps of 32 KiB");
	ok(streams_alike(p + 1, 70001, 4096), "from an odd address");
}

static void test_text(void)
{
	static const char good[] = "00112233445566778899aabbccddeeff";
	struct digest d = { { 1 } }, zero = { { 0 } };
	char hex[DIGEST_HEX];

	eq_i64(digest_parse(good, 31, &d), -E_DATA, "31 digits");
	eq_i64(digest_parse("00112233445566778899AABBCCDDEEFF", 32, &d),
	       -E_DATA, "upper case");
	eq_i64(digest_parse("0011223344556677 899aabbccddeeff", 32, &d),
	       -E_DATA, "a blank");
	eq_u64(d.b[0], 1, "nothing written on failure");
	eq_i64(digest_parse(good, 32, &d), 0, "32 digits");
	eq_str(digest_hex(&d, hex), good, "and back");
	ok(!digest_is_zero(&d) && digest_is_zero(&zero), "zero is zero");
	ok(digest_eq(&d, &d) && !digest_eq(&d, &zero), "equal is equal");
}

int main(void)
{
	unsigned char *p = xmalloc(BYTES);

	fill(p, BYTES);
	test_vectors(p);
	test_streams(p);
	test_text();
	free(p);
	return tap_done();
}
