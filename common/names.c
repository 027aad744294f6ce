#include "names.h"

#include <stdlib.h>

/* FNV-1a, its better half: the high bits have seen every byte. */
static uint64_t hash_of(struct slice s)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < s.n; i++)
		h = (h ^ (unsigned char)s.p[i]) * UINT64_C(0x100000001b3);
	return (h ^ h << 32) & ~UINT64_C(0xffffffff);
}

static uint32_t id_of(uint64_t key)
{
	return (uint32_t)key;
}

static int cmp_keys(const void *pa, const void *pb, void *ctx)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
	const struct names *t = ctx;
	int c = 0;

	if (a >> 32 == b >> 32)
		c = slice_cmp(t->get(t->ctx, id_of(a)),
			      t->get(t->ctx, id_of(b)));
	return c ? c : (a > b) - (a < b);
}

void names_sort(struct names *t, names_fn *get, const void *ctx, uint32_t n)
{
	*t = (struct names){ .get = get, .ctx = ctx, .n = n };
	t->key = xreallocarray(NULL, n, sizeof *t->key);
	for (uint32_t i = 0; i < n; i++)
		t->key[i] = hash_of(get(ctx, i)) | i;
	qsort_r(t->key, n, sizeof *t->key, cmp_keys, t);
}

void names_release(struct names *t)
{
	free(t->key);
	*t = (struct names){ 0 };
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
	uint64_t ha = a->key[ka] >> 32, hb = b->key[kb] >> 32;

	if (ha != hb)
		return ha < hb ? -1 : 1;
	return slice_cmp(names_at(a, ka), names_at(b, kb));
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
