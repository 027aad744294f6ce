#include "names.h"
#include "digest.h"

#include <stdlib.h>
#include <string.h>

#define HASH_SHIFT 32 /* a key: hash above, number below */
#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)
#define RADIX_MIN 4096u /* below, the counts of digits cost more */

static uint64_t hash_of(struct slice s)
{
	struct digest d;
	uint64_t h;

	digest_of(s.p, s.n, &d);
	memcpy(&h, d.b, sizeof h);
	return h >> HASH_SHIFT << HASH_SHIFT;
}

static uint32_t id_of(uint64_t key)
{
	return (uint32_t)key;
}

static uint64_t hash_at(const struct names *t, uint32_t k)
{
	return t->key[k] >> HASH_SHIFT;
}

uint32_t names_id(const struct names *t, uint32_t k)
{
	return id_of(t->key[k]);
}

struct slice names_at(const struct names *t, uint32_t k)
{
	return t->get(t->ctx, names_id(t, k));
}

int names_cmp(const struct names *a, uint32_t ka, const struct names *b,
	      uint32_t kb)
{
	uint64_t ha = hash_at(a, ka), hb = hash_at(b, kb);

	if (ha != hb)
		return ha < hb ? -1 : 1;
	return slice_cmp(names_at(a, ka), names_at(b, kb));
}

/* The place behind those of the hash in place k. */
static uint32_t end_of_run(const struct names *t, uint32_t k)
{
	uint64_t hash = hash_at(t, k);

	while (k < t->n && hash_at(t, k) == hash)
		k++;
	return k;
}

static int cmp_keys(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return (a > b) - (a < b);
}

static int cmp_names(const void *pa, const void *pb, void *ctx)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
	const struct names *t = ctx;
	int c = slice_cmp(t->get(t->ctx, id_of(a)), t->get(t->ctx, id_of(b)));

	return c ? c : (a > b) - (a < b);
}

/* By one digit of the hash, stably. */
static void sort_digit(const uint64_t *from, uint64_t *to, uint32_t n,
		       unsigned shift)
{
	uint32_t at[DIGITS] = { 0 }, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		at[from[i] >> shift & (DIGITS - 1)]++;
	for (uint32_t d = 0; d < DIGITS; d++) {
		uint32_t count = at[d];

		at[d] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < n; i++)
		to[at[from[i] >> shift & (DIGITS - 1)]++] = from[i];
}

static void sort_keys(struct names *t)
{
	uint64_t *other;

	if (t->n < RADIX_MIN) {
		qsort(t->key, t->n, sizeof *t->key, cmp_keys);
		return;
	}
	other = xreallocarray(NULL, t->n, sizeof *other);
	for (unsigned shift = HASH_SHIFT; shift < 64; shift += DIGIT_BITS) {
		uint64_t *swap = t->key;

		sort_digit(t->key, other, t->n, shift);
		t->key = other;
		other = swap;
	}
	free(other);
}

void names_sort(struct names *t, names_fn *get, const void *ctx, uint32_t n)
{
	*t = (struct names){ .get = get, .ctx = ctx, .n = n };
	t->key = xreallocarray(NULL, n, sizeof *t->key);
	for (uint32_t i = 0; i < n; i++)
		t->key[i] = hash_of(get(ctx, i)) | i;
	sort_keys(t);
	for (uint32_t k = 0, end; k < n; k = end) {
		end = end_of_run(t, k);
		if (end - k > 1)
			qsort_r(t->key + k, end - k, sizeof *t->key, cmp_names,
				t);
	}
}

void names_release(struct names *t)
{
	free(t->key);
	*t = (struct names){ 0 };
}

bool names_find_twice(const struct names *t, uint32_t *first, uint32_t *second)
{
	for (uint32_t k = 1; k < t->n; k++) {
		if (names_cmp(t, k - 1, t, k) != 0)
			continue;
		*first = names_id(t, k - 1);
		*second = names_id(t, k);
		return true;
	}
	return false;
}

/* Places i..iend of a and k..kend of b have one hash. */
static void join_run(const struct names *a, uint32_t i, uint32_t iend,
		     const struct names *b, uint32_t k, uint32_t kend,
		     uint32_t *in_b)
{
	while (i < iend && k < kend) {
		int c = slice_cmp(names_at(a, i), names_at(b, k));

		if (c == 0)
			in_b[id_of(a->key[i])] = id_of(b->key[k]);
		i += c <= 0;
		k += c > 0;
	}
}

/* One walk along both orders: of one hash is mostly one name, which is taken
 * unseen. */
static void join_hashes(const struct names *a, const struct names *b,
			uint32_t *in_b)
{
	uint32_t i = 0, k = 0;

	while (i < a->n && k < b->n) {
		uint64_t ha = hash_at(a, i), hb = hash_at(b, k);
		uint32_t iend = ha <= hb ? end_of_run(a, i) : i;
		uint32_t kend = hb <= ha ? end_of_run(b, k) : k;

		if (iend - i == 1 && kend - k == 1)
			in_b[id_of(a->key[i])] = id_of(b->key[k]);
		else if (iend > i && kend > k)
			join_run(a, i, iend, b, k, kend, in_b);
		i = iend;
		k = kend;
	}
}

/* Seen now, in the order of the names, in which memory is near. */
void names_join(const struct names *a, const struct names *b, uint32_t *in_b)
{
	for (uint32_t i = 0; i < a->n; i++)
		in_b[i] = NAMES_NONE;
	join_hashes(a, b, in_b);
	for (uint32_t i = 0; i < a->n; i++)
		if (in_b[i] != NAMES_NONE &&
		    !slice_eq(a->get(a->ctx, i), b->get(b->ctx, in_b[i])))
			in_b[i] = NAMES_NONE;
}
