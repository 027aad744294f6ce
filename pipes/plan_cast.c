#include "pipes/plan_cast.h"

#include "common/err.h"
#include "common/log.h"
#include "common/names.h"

#include <stdlib.h>
#include <string.h>

struct member {
	size_t key; /* offset in the keys */
	uint32_t len, bucket;
};

struct members {
	struct buf keys;
	struct member *v;
	uint32_t n;
};

static struct slice key_of(const void *ctx, uint32_t i)
{
	const struct members *all = ctx;

	return (struct slice){ all->keys.p + all->v[i].key, all->v[i].len };
}

static void add_tensors(struct members *all, const struct together *t,
			const struct m_bucket *b, uint32_t bucket)
{
	all->v = xreallocarray(all->v, all->n + b->parts.n + 1, sizeof *all->v);
	for (uint32_t i = 0; i < b->parts.n; i++) {
		const struct m_part *part = &b->parts.v[i];
		size_t at = all->keys.n;

		if (part->kind != PART_TENSOR ||
		    together_key(t, part->name, &all->keys) == TOGETHER_ALONE)
			continue;
		all->v[all->n++] =
			(struct member){ at, (uint32_t)(all->keys.n - at),
					 bucket };
	}
}

static int read_members(struct members *all, const struct plan *p,
			const struct together *t)
{
	struct msg_arena arena = { 0 };
	struct msg m;
	int rc = 0;

	for (uint32_t b = 0; rc >= 0 && b < p->nbuckets; b++) {
		rc = plan_bucket(p, b, &m, &arena);
		if (rc >= 0)
			add_tensors(all, t, &m.bucket, b);
	}
	msg_arena_release(&arena);
	return rc < 0 ? rc : 0;
}

/* Equal keys stand side by side in the order of names. */
static int check_members(const struct members *all, uint64_t version)
{
	struct names order;
	int rc = 0;

	names_sort(&order, key_of, all, all->n);
	for (uint32_t k = 1; rc == 0 && k < all->n; k++) {
		struct slice key = names_at(&order, k);
		uint32_t one = all->v[names_id(&order, k - 1)].bucket;
		uint32_t two = all->v[names_id(&order, k)].bucket;

		if (one != two && slice_eq(names_at(&order, k - 1), key))
			rc = log_error(E_CONFIG,
				       "transport nccl: group \"%.*s\" lies in "
				       "two buckets of version %llu, and a "
				       "server loads bucket by bucket: use "
				       "another transport, or publish it again",
				       SLICE_ARG(key),
				       (unsigned long long)version);
	}
	names_release(&order);
	return rc;
}

static bool was_cast(const struct plan *p)
{
	bool is_alone = false;

	for (uint32_t i = 0; i < p->nengines; i++)
		is_alone |= p->engine[i].workers == 0;
	return is_alone && strcmp(p->transport, "nccl") == 0;
}

int plan_cast_check(const struct plan_again *a, const struct together *t)
{
	struct members all = { 0 };
	int rc;

	if (was_cast(&a->old))
		return 0;
	rc = read_members(&all, &a->old, t);
	if (rc == 0)
		rc = check_members(&all, a->base);
	buf_release(&all.keys);
	free(all.v);
	return rc;
}
