#include "pipes/commit_io.h"

/* Only an older instance that came to open the run can have decided. */
int commit_over_find(struct commit_io *c)
{
	uint64_t epoch;
	int rc = run_epoch_read(&c->s->run, &epoch);

	if (rc == 0 && epoch && !c->is_over)
		rc = registry_decision_of(&c->reg, c->s->run.name, epoch,
					  &c->over);
	c->is_over |= rc > 0;
	return rc < 0 ? rc : 0;
}

static void feed_away(struct commit_io *c, const struct m_attention *a)
{
	if (!a->decided || a->version != c->goal.version)
		return;
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (slice_eq(a->engine.name, slice_of(c->engine[i]->name)))
			commit_feed(c, CE_AWAY, i);
}

/* Who could not be brought home is in attention. */
static int feed_attention(struct commit_io *c)
{
	struct reg_rec a = { 0 };
	int rc = registry_attention_read(&c->reg, &a);

	while (rc > 0 && (rc = rec_next(&a.rec, &a.m, &a.arena)) > 0)
		feed_away(c, &a.m.attention);
	reg_rec_release(&a);
	return rc;
}

static void restore_excluded(struct commit_io *c, const struct m_decision *d)
{
	for (uint32_t i = 0; i < d->engines.n; i++) {
		const struct m_opened_engine *w = &d->engines.v[i];

		if (w->engine < c->m.nengines)
			c->state[w->engine].out = w->excluded;
	}
}

int commit_over_end(struct commit_io *c)
{
	const struct m_decision *d = &c->over.m.decision;
	int rc;

	c->goal.version = d->version;
	c->goal.epoch = c->s->epoch = d->epoch;
	c->published = d->content;
	restore_excluded(c, d);
	rc = feed_attention(c);
	if (rc == 0)
		commit_feed(c, CE_OVER, 0);
	return rc;
}
