#include "pipes/kept.h"

#include "common/buf.h"

#include <stdlib.h>
#include <string.h>

void kept_set(struct kept *k, const struct m_kept *v, uint32_t n)
{
	kept_release(k);
	k->v = xcalloc(n, sizeof(*v));
	k->n = n;
	if (n > 0)
		memcpy(k->v, v, n * sizeof(*v));
}

void kept_release(struct kept *k)
{
	free(k->v);
	*k = (struct kept){ 0 };
}

static bool has(const struct kept *k, const struct m_kept *want)
{
	for (uint32_t i = 0; i < k->n; i++)
		if (k->v[i].rank == want->rank &&
		    k->v[i].world == want->world &&
		    digest_eq(&k->v[i].token, &want->token))
			return true;
	return false;
}

static bool all_have(const struct kept *const *other, uint32_t n,
		     const struct m_kept *group)
{
	for (uint32_t i = 0; i < n; i++) {
		struct m_kept want = *group;

		want.rank = i + 1;
		if (!has(other[i], &want))
			return false;
	}
	return true;
}

bool kept_take(struct kept *rank0, const struct kept *const *other, uint32_t n,
	       struct digest *token)
{
	for (uint32_t i = 0; i < rank0->n; i++) {
		const struct m_kept *group = &rank0->v[i];

		if (group->rank != 0 || group->world != n + 1 ||
		    !all_have(other, n, group))
			continue;
		*token = group->token;
		rank0->v[i] = rank0->v[--rank0->n];
		return true;
	}
	return false;
}
