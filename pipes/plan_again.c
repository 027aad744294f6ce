#include "pipes/plan_again.h"
#include "common/err.h"
#include "common/fleet_fill.h"
#include "common/log.h"
#include "pipes/registry.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

bool plan_is_again(const struct plan_conf *conf)
{
	return conf->only.n || conf->to;
}

/* ---- which version ---- */

static int open_registry(struct registry *r, const struct plan_conf *conf)
{
	char *path = NULL;
	int rc = 0;

	if (conf->common.registry)
		path = xstrdup(conf->common.registry);
	else
		rc = registry_default_path(&path);
	if (rc == 0)
		rc = registry_look(r, path);
	if (rc == -E_NOINPUT)
		log_error(E_NOINPUT,
			  "no registry at %s: nothing was ever published here",
			  path);
	free(path);
	return rc;
}

static int nothing_before(const struct registry *r, uint64_t version)
{
	return log_error(E_NOINPUT,
			 "registry %s: nothing else was published before "
			 "version %llu",
			 r->path, (ull)version);
}

/* The number that --to means; top: the highest decision. */
static int choose(struct registry *r, const struct plan_conf *conf,
		  const struct m_decision *top, uint64_t *out)
{
	int rc;

	*out = top->version;
	if (!conf->to)
		return 0;
	if (strcmp(conf->to, "previous") != 0) {
		if (opt_read_uint(conf->to, out) && *out > 0)
			return 0;
		return log_error(E_USAGE,
				 "--to \"%s\": expected a version's number, or "
				 "\"previous\"",
				 conf->to);
	}
	rc = registry_previous(r, top->version, &top->content, out);
	return rc == 0 ? nothing_before(r, top->version) : rc < 0 ? rc : 0;
}

static int read_decision(struct registry *r, uint64_t version,
			 struct reg_rec *out)
{
	int rc = registry_decision(r, version, out);

	if (rc == 0)
		return log_error(E_NOINPUT,
				 "version %llu is not published in registry %s",
				 (ull)version, r->path);
	return rc < 0 ? rc : 0;
}

static int read_top(struct registry *r, struct reg_rec *out)
{
	uint64_t version;
	int rc = registry_highest(r, &version);

	if (rc < 0)
		return rc;
	if (version == 0)
		return log_error(E_NOINPUT, "registry %s: nothing is published",
				 r->path);
	return read_decision(r, version, out);
}

/* ---- which engines ---- */

static int take_fleet(struct fleet *f, const struct m_decision *d)
{
	for (uint32_t i = 0; i < d->engines.n; i++) {
		const struct m_opened_engine *e = &d->engines.v[i];
		struct fleet_engine *n = fleet_add_engine(f);

		n->name = xstrndup(e->name.p, e->name.n);
		n->kind = (enum fleet_kind)e->kind;
		if (e->url.n)
			n->url = xstrndup(e->url.p, e->url.n);
		if (e->pull.n)
			n->pull = xstrndup(e->pull.p, e->pull.n);
		for (uint32_t k = 0; k < e->workers.n; k++)
			fleet_add_worker(n, e->workers.v[k]);
	}
	return fleet_check(f, "the last decision");
}

/* ---- where the bytes may be ---- */

/* A directory for each rank; all of them, or it is no place. */
static void add_place(struct plan_again *a, const struct slice *dir)
{
	uint32_t nranks = a->old.nranks;

	for (uint32_t r = 0; r < nranks; r++)
		if (dir[r].n == 0)
			return;
	for (uint32_t i = 0; i < a->nplaces; i += nranks)
		if (slice_eq(slice_of(a->place[i]), dir[0]))
			return;
	if (a->nplaces + nranks > PLACES_MAX)
		return;
	for (uint32_t r = 0; r < nranks; r++)
		a->place[a->nplaces++] = xstrndup(dir[r].p, dir[r].n);
}

/* The receipts of one engine follow each other, one for each receiver; of
 * several ranks each worker has its own. */
static int add_places(struct plan_again *a, struct registry *r)
{
	struct slice *dir = xcalloc(a->old.nranks, sizeof *dir);
	struct reg_rec all = { 0 };
	const struct m_receipt *m = &all.m.receipt;
	int rc = registry_receipts_read(r, a->base, &all);

	while (rc > 0 && (rc = rec_next(&all.rec, &all.m, &all.arena)) > 0) {
		if (all.m.type != M_receipt || m->worker >= a->old.nranks)
			continue;
		if (m->worker == 0)
			memset(dir, 0, a->old.nranks * sizeof *dir);
		/* Borrows the file, which stays until all are read. */
		dir[m->worker] = m->place;
		if (m->worker == a->old.nranks - 1)
			add_place(a, dir);
	}
	reg_rec_release(&all);
	free(dir);
	return rc;
}

/* The plan's own sources come after those of --source, which may be files
 * that were moved. */
static int take_given(struct plan_again *a, const struct opt_list *given)
{
	uint32_t nranks = a->old.nranks;
	struct slice *own = xcalloc(nranks, sizeof *own);

	for (uint32_t r = 0; r < nranks; r++)
		own[r] = slice_of(a->old.rank[r].source);
	add_place(a, own);
	free(own);
	for (uint32_t r = 0; r < nranks; r++) {
		char real[PATH_MAX];

		if (!realpath(given->v[r], real))
			return log_errno(E_IO, "find source %s", given->v[r]);
		a->source[r] = xstrdup(real);
	}
	return 0;
}

static int take_sources(struct plan_again *a, const struct opt_list *given)
{
	uint32_t nranks = a->old.nranks;

	if (given->n && given->n != nranks)
		return log_error(E_USAGE,
				 "--source: %zu given, version %llu has %u "
				 "rank%s",
				 given->n, (ull)a->base, nranks,
				 plural(nranks));
	a->source = xcalloc(nranks, sizeof *a->source);
	a->place = xcalloc(PLACES_MAX, sizeof *a->place);
	if (given->n)
		return take_given(a, given);
	for (uint32_t r = 0; r < nranks; r++)
		a->source[r] = xstrdup(a->old.rank[r].source);
	return 0;
}

/* ---- the whole ---- */

static void take_content(struct plan_again *a, const struct m_decision *d)
{
	a->content = d->content;
	a->nshares = d->shares.n;
	a->shares = xcalloc(d->shares.n + 1, sizeof *a->shares);
	for (uint32_t i = 0; i < d->shares.n; i++)
		a->shares[i] = d->shares.v[i];
}

static int read_plan(struct plan_again *a, struct registry *r)
{
	int rc = registry_plan(r, a->base, &a->old);

	if (rc == 0)
		return log_error(E_NOINPUT,
				 "registry %s has no plan of version %llu",
				 r->path, (ull)a->base);
	return rc < 0 ? rc : 0;
}

static int take_version(struct plan_again *a, struct registry *r,
			const struct plan_conf *conf)
{
	struct reg_rec d = { 0 };
	int rc = read_decision(r, a->base, &d);

	if (rc == 0)
		rc = read_plan(a, r);
	if (rc == 0) {
		take_content(a, &d.m.decision);
		rc = take_sources(a, &conf->sources);
	}
	if (rc == 0)
		rc = add_places(a, r);
	reg_rec_release(&d);
	return rc;
}

int plan_again_open(struct plan_again *a, struct fleet *f,
		    const struct plan_conf *conf)
{
	struct registry r;
	struct reg_rec top = { 0 };
	int rc = open_registry(&r, conf);

	*a = (struct plan_again){ .kind = conf->to ? RUN_ROLLBACK : RUN_JOIN };
	if (rc < 0)
		return rc;
	rc = read_top(&r, &top);
	if (rc == 0)
		rc = choose(&r, conf, &top.m.decision, &a->base);
	if (rc == 0)
		rc = take_version(a, &r, conf);
	if (rc == 0 && f->n == 0)
		rc = take_fleet(f, &top.m.decision);
	if (rc == 0 && conf->only.n)
		rc = fleet_keep(f, conf->only.v, conf->only.n);
	reg_rec_release(&top);
	registry_close(&r);
	if (rc < 0)
		plan_again_release(a);
	return rc;
}

void plan_again_release(struct plan_again *a)
{
	for (uint32_t r = 0; a->source && r < a->old.nranks; r++)
		free(a->source[r]);
	plan_close(&a->old);
	for (uint32_t i = 0; i < a->nplaces; i++)
		free(a->place[i]);
	free(a->shares);
	free(a->place);
	free(a->source);
	*a = (struct plan_again){ 0 };
}
