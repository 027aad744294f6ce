#include "credit.h"

#include "err.h"

#include <stddef.h>

static void dim_init(struct credit_dim *d, uint64_t limit)
{
	*d = (struct credit_dim){ .limit = limit, .free = limit };
}

static bool dim_fits(const struct credit_dim *d, uint64_t n)
{
	return d->limit == 0 || n <= d->free;
}

static void dim_take(struct credit_dim *d, uint64_t n)
{
	d->reserved += n;
	if (d->limit)
		d->free -= n;
	if (d->reserved > d->peak)
		d->peak = d->reserved;
}

static void dim_return(struct credit_dim *d, uint64_t n)
{
	d->reserved -= n;
	if (d->limit)
		d->free += n;
}

static bool key_is_below(struct credit_key a, struct credit_key b)
{
	return a.wave != b.wave ? a.wave < b.wave : a.bucket < b.bucket;
}

static struct credit_slot *nth(const struct credit *c, uint32_t i)
{
	return &c->slot[((uint64_t)c->head + i) % c->nslots];
}

/* Keys rise along the ring. */
static struct credit_slot *find(const struct credit *c, struct credit_key k)
{
	uint32_t lo = 0, hi = c->used;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (key_is_below(nth(c, mid)->key, k))
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == c->used || key_is_below(k, nth(c, lo)->key))
		return NULL;
	return nth(c, lo);
}

void credit_init(struct credit *c, uint64_t max_buckets, uint64_t max_bytes,
		 struct credit_slot *slot, uint32_t nslots)
{
	/* Neither limit given: as slow and as small as it gets. */
	if (max_buckets == 0 && max_bytes == 0)
		max_buckets = 1;
	*c = (struct credit){ .slot = slot, .nslots = nslots };
	dim_init(&c->buckets, max_buckets);
	dim_init(&c->bytes, max_bytes);
}

bool credit_is_oversize(const struct credit *c, uint64_t bytes)
{
	return c->bytes.limit && bytes > c->bytes.limit;
}

bool credit_has_room(const struct credit *c, uint64_t bytes, bool exclusive)
{
	if (c->used == c->nslots)
		return false;
	if (c->used && (exclusive || nth(c, 0)->exclusive))
		return false;
	return dim_fits(&c->buckets, 1) && dim_fits(&c->bytes, bytes);
}

int credit_take(struct credit *c, struct credit_key k, uint64_t bytes,
		bool exclusive)
{
	if (key_is_below(k, c->next))
		return -E_PROTO;
	if (credit_is_oversize(c, bytes))
		return -E_DATA;
	if (!credit_has_room(c, bytes, exclusive))
		return -E_AGAIN;
	*nth(c, c->used++) = (struct credit_slot){ .key = k,
						   .bytes = bytes,
						   .exclusive = exclusive };
	c->next = (struct credit_key){ k.wave, k.bucket + 1 };
	dim_take(&c->buckets, 1);
	dim_take(&c->bytes, bytes);
	return 0;
}

int credit_finish(struct credit *c, struct credit_key k)
{
	struct credit_slot *s = find(c, k);

	if (!s || s->finished)
		return -E_PROTO;
	s->finished = true;
	return 0;
}

void credit_finish_all(struct credit *c)
{
	for (uint32_t i = 0; i < c->used; i++)
		nth(c, i)->finished = true;
}

int credit_release(struct credit *c, struct credit_key *k, uint64_t *bytes)
{
	const struct credit_slot *s;

	if (c->used == 0 || !nth(c, 0)->finished)
		return 0;
	s = nth(c, 0);
	*k = s->key;
	*bytes = s->bytes;
	c->head = (c->head + 1) % c->nslots;
	c->used--;
	dim_return(&c->buckets, 1);
	dim_return(&c->bytes, *bytes);
	return 1;
}

bool credit_is_open(const struct credit *c, struct credit_key k)
{
	const struct credit_slot *s = find(c, k);

	return s && !s->finished;
}
