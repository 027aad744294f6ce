/*
 * Commit's part of transports with version directories: where a new one is
 * to be, what a delta may be made from, and which old ones may go.
 */
#include "pipes/commit_io.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/vdir_keep.h"

#include <stdlib.h>
#include <string.h>

#define PLACES_MAX 256u /* as in msg.def */

/* ---- before the run is opened ---- */

static void add_place(struct commit_base *b, struct slice place)
{
	for (uint32_t i = 0; i < b->nplaces; i++)
		if (slice_eq(slice_of(b->place[i]), place))
			return;
	if (place.n && b->nplaces < PLACES_MAX)
		b->place[b->nplaces++] = xstrndup(place.p, place.n);
}

/* Stores first: nobody else writes there. */
static void add_places(struct commit_io *c, struct commit_base *b,
		       struct slice source)
{
	struct reg_rec all = { 0 };
	int rc = registry_receipts_read(&c->reg, b->version, &all);

	b->place = xcalloc(PLACES_MAX, sizeof *b->place);
	while (rc > 0 && (rc = rec_next(&all.rec, &all.m, &all.arena)) > 0)
		if (all.m.type == M_receipt)
			add_place(b, all.m.receipt.place);
	reg_rec_release(&all);
	add_place(b, source);
}

/* Of what was decided last, before this run's own number. */
static int find_base(struct commit_io *c, struct commit_base *b)
{
	struct reg_rec d = { 0 };
	uint64_t version = 0;
	int rc = registry_highest(&c->reg, &version);

	if (rc < 0 || version == 0 || version >= c->goal.version)
		return rc;
	/* Copies may have pulled what was tried between the two. */
	if (commit_has_pulls(c) && version + 1 != c->goal.version)
		return 0;
	rc = registry_decision(&c->reg, version, &d);
	if (rc > 0) {
		b->version = version;
		b->content = d.m.decision.content;
		add_places(c, b, d.m.decision.source);
	}
	reg_rec_release(&d);
	return rc < 0 ? rc : 0;
}

int commit_set_place(struct commit_io *c)
{
	if (!c->goal.whole)
		return 0;
	free(c->goal.place);
	c->goal.place = vdir_path(c->plan.disk_dir, c->goal.version);
	commit_base_release(c);
	return find_base(c, &c->base);
}

void commit_tell_base(struct commit_io *c, struct m_opened *o)
{
	struct commit_base *b = &c->base;

	free(b->slice);
	b->slice = xcalloc(b->nplaces + 1, sizeof *b->slice);
	for (uint32_t i = 0; i < b->nplaces; i++)
		b->slice[i] = slice_of(b->place[i]);
	o->base = b->version;
	o->base_content = b->content;
	o->base_places.v = b->slice;
	o->base_places.n = b->nplaces;
}

void commit_base_release(struct commit_io *c)
{
	for (uint32_t i = 0; i < c->base.nplaces; i++)
		free(c->base.place[i]);
	free(c->base.place);
	free(c->base.slice);
	c->base = (struct commit_base){ 0 };
}

/* ---- after it has ended ---- */

static bool is_published(void *ctx, uint64_t version,
			 const struct digest *content)
{
	struct commit_io *c = ctx;
	struct reg_rec d = { 0 };
	int rc = registry_decision(&c->reg, version, &d);
	bool is = rc > 0 && digest_eq(content, &d.m.decision.content);

	reg_rec_release(&d);
	/* What cannot be read is no reason to remove anything. */
	return is || rc < 0;
}

/* What engines were seen to serve, and this run's own: engines that lag may
 * have to load it yet. */
static uint64_t *list_used(const struct commit_io *c, size_t *n)
{
	size_t room = 1;
	uint64_t *v;

	for (uint32_t i = 0; i < c->m.nengines; i++)
		room += c->engine[i]->nparts + 1;
	v = xcalloc(room, sizeof *v);
	*n = 0;
	v[(*n)++] = c->goal.version;
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		for (uint32_t k = 0; k < e->nparts; k++)
			v[(*n)++] = e->part[k].facts.serving;
		v[(*n)++] = e->live.label;
	}
	return v;
}

void commit_prune(struct commit_io *c)
{
	struct vdir_keep k = {
		.disk_dir = c->plan.disk_dir,
		.registry = c->reg.id,
		.keep = c->conf->keep,
		.is_published = is_published,
		.ctx = c,
	};
	uint64_t *used;

	if (!c->goal.whole || !c->open_written || c->m.unknown)
		return;
	k.used = used = list_used(c, &k.nused);
	vdir_prune(&k);
	free(used);
}
