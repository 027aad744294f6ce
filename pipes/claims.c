#include "pipes/claims.h"

#include "common/bits.h"
#include "common/buf.h"
#include "common/err.h"

#include <stdlib.h>

void claims_init(struct claims *c, uint32_t engines, uint32_t buckets)
{
	*c = (struct claims){ .engines = engines, .row = buckets / 8 + 1 };
	c->own = xcalloc(buckets, sizeof(*c->own));
	c->first = xcalloc(buckets, sizeof(*c->first));
	c->hashed = xcalloc(c->row, 1);
	c->same = xcalloc(engines, c->row);
}

void claims_release(struct claims *c)
{
	free(c->own);
	free(c->first);
	free(c->hashed);
	free(c->same);
	*c = (struct claims){ 0 };
}

static int keep(struct claims *c, uint32_t engine, uint32_t bucket,
		const struct digest *d)
{
	/* Zero is no digest: it marks that nobody has claimed yet. */
	if (digest_is_zero(&c->first[bucket]))
		c->first[bucket] = *d;
	if (digest_eq(&c->first[bucket], d)) {
		bit_set(c->same + engine * c->row, bucket);
		return 0;
	}
	if (c->ndisputes == DISPUTES_MAX)
		return -E_AGAIN;
	c->dispute[c->ndisputes++] = (struct claims_dispute){ .engine = engine,
							      .bucket = bucket,
							      .digest = *d };
	return 0;
}

int claims_say(struct claims *c, uint32_t engine, uint32_t bucket,
	       const struct digest *d)
{
	if (digest_is_zero(d))
		return -E_DATA;
	if (bit_get(c->hashed, bucket))
		return digest_eq(d, &c->own[bucket]) ? 0 : -E_DATA;
	return keep(c, engine, bucket, d);
}

void claims_judge(struct claims *c, uint32_t bucket, const struct digest *d,
		  void (*wrong)(void *arg, uint32_t engine, uint32_t bucket),
		  void *arg)
{
	uint32_t kept = 0;

	c->own[bucket] = *d;
	bit_set(c->hashed, bucket);
	if (!digest_eq(&c->first[bucket], d))
		for (uint32_t e = 0; e < c->engines; e++)
			if (bit_get(c->same + e * c->row, bucket))
				wrong(arg, e, bucket);
	for (uint32_t i = 0; i < c->ndisputes; i++) {
		struct claims_dispute k = c->dispute[i];

		if (k.bucket != bucket)
			c->dispute[kept++] = k;
		else if (!digest_eq(&k.digest, d))
			wrong(arg, k.engine, bucket);
	}
	c->ndisputes = kept;
}
