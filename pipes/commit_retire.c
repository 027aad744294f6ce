/*
 * Engines that are tried, and fail, in every version cost each run their
 * deadlines.  After --retire-after of them they are left out without being
 * tried, until a join has brought them up.  Nothing is kept for it: decisions
 * say who was tried, and an engine's probe what it serves.
 *
 * A run that needs all engines tries all: there is nobody to go on without.
 */
#include "pipes/commit_io.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>

typedef unsigned long long ull;

/* Versions in which an engine did not take part say nothing of it, and are
 * passed over: so many decisions are read for each that counts. */
#define LOOK_BACK 2

enum part { ABSENT, FAILED, TOOK };

struct commit_past {
	uint64_t version;
	uint8_t *part; /* enum part, by engine id */
};

static enum part part_in(const struct m_decision *d, const char *name)
{
	for (size_t i = 0; i < d->engines.n; i++) {
		const struct m_opened_engine *w = &d->engines.v[i];

		if (!slice_eq(w->name, slice_of(name)))
			continue;
		if (!w->excluded)
			return TOOK;
		return w->tried ? FAILED : ABSENT;
	}
	return ABSENT;
}

static int read_one(struct commit_io *c, uint64_t version)
{
	struct commit_past *p = &c->past[c->npast];
	struct reg_rec d = { 0 };
	int rc = registry_decision(&c->reg, version, &d);

	if (rc > 0) {
		p->version = version;
		p->part = xcalloc(c->m.nengines, sizeof *p->part);
		for (uint32_t i = 0; i < c->m.nengines; i++)
			p->part[i] = part_in(&d.m.decision, c->engine[i]->name);
		c->npast++;
	}
	reg_rec_release(&d);
	return rc < 0 ? rc : 0;
}

static bool can_retire(const struct commit_io *c)
{
	return c->conf->retire_after && c->m.min < c->m.nengines &&
	       c->plan.kind != RUN_JOIN && !c->resumed;
}

int commit_past_read(struct commit_io *c)
{
	uint64_t last[LOOK_BACK * COMMIT_RETIRE_MAX];
	int n, rc = 0;

	if (!can_retire(c) || c->past)
		return 0;
	n = registry_last(&c->reg, last, LOOK_BACK * c->conf->retire_after);
	if (n <= 0)
		return n;
	c->past = xcalloc((size_t)n, sizeof *c->past);
	for (int i = 0; rc == 0 && i < n; i++)
		rc = read_one(c, last[i]);
	return rc;
}

void commit_past_release(struct commit_io *c)
{
	for (size_t i = 0; i < c->npast; i++)
		free(c->past[i].part);
	free(c->past);
}

/* What all of it serves. */
static uint64_t served(const struct engine *e)
{
	uint64_t least = e->ops->in_place ? e->live.label : UINT64_MAX;

	for (uint32_t i = 0; i < e->nparts; i++)
		if (e->part[i].facts.serving < least)
			least = e->part[i].facts.serving;
	return least;
}

/*
 * One that is empty may have lost its store since it took part, and is no
 * failure for that; one that serves something older could not swap.
 */
static bool failed_in(const struct commit_past *p, const struct engine *e)
{
	uint64_t has = served(e);

	if (has >= p->version)
		return false;
	return p->part[e->id] == FAILED || has > 0;
}

int commit_retired(const struct commit_io *c, const struct engine *e)
{
	uint64_t count = 0;

	for (size_t i = 0; i < c->npast; i++) {
		const struct commit_past *p = &c->past[i];

		if (p->part[e->id] == ABSENT)
			continue;
		if (!failed_in(p, e))
			return 0;
		if (++count == c->conf->retire_after)
			return log_error(E_UNAVAIL,
					 "engine %s failed in each of the last "
					 "%llu versions and is retired; weir "
					 "push --only %s brings it back",
					 e->name, (ull)count, e->name);
	}
	return 0;
}
