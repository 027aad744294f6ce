#include "pipes/groups.h"
#include "common/err.h"

#include <stdlib.h>
#include <string.h>

static void free_name(struct slice s)
{
	free((void *)(uintptr_t)s.p);
}

void groups_release(struct groups *g)
{
	groups_forget(g, g->n);
}

static bool has(const struct groups *g, struct slice name)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (slice_eq(g->name[i], name))
			return true;
	return false;
}

void groups_add(struct groups *g, struct slice name)
{
	if (has(g, name))
		return;
	if (g->n == GROUPS_MAX)
		groups_forget(g, 1);
	g->name[g->n].p = xstrndup(name.p, name.n);
	g->name[g->n++].n = name.n;
}

void groups_add_all(struct groups *g, const struct slice *name, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		groups_add(g, name[i]);
}

void groups_forget(struct groups *g, uint32_t n)
{
	if (n > g->n)
		n = g->n;
	for (uint32_t i = 0; i < n; i++)
		free_name(g->name[i]);
	g->n -= n;
	memmove(g->name, g->name + n, g->n * sizeof g->name[0]);
}

void groups_forget_newest(struct groups *g)
{
	if (g->n > 0)
		free_name(g->name[--g->n]);
}

void groups_text(const struct groups *g, struct buf *out)
{
	for (uint32_t i = 0; i < g->n; i++)
		buf_addf(out, "%s%.*s", i ? ", " : "", SLICE_ARG(g->name[i]));
}
