#include "pipes/engine_ops.h"
#include "common/err.h"
#include "common/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const call_names[] = {
	[EC_PROBE] = "probe",	      [EC_BEGIN] = "begin",
	[EC_PAUSE] = "pause",	      [EC_FLUSH] = "flush",
	[EC_LOAD] = "load",	      [EC_SEAL] = "seal",
	[EC_RECEIPT] = "receipt",     [EC_SWAP] = "swap",
	[EC_SET_VERSION] = "version", [EC_RESUME] = "resume",
	[EC_ABORT] = "abort",
};
static_assert(COUNT(call_names) == EC_N, "name every call");

const char *engine_call_name(enum engine_call c)
{
	return call_names[c];
}

static const char *const load_proof_names[] = {
	[LOAD_ACK] = "ack",
	[LOAD_SAMPLED] = "sampled",
	[LOAD_CHECKED] = "checked",
};
static_assert(COUNT(load_proof_names) == LOAD_N, "name every proof");

const char *load_proof_name(enum load_proof p)
{
	return load_proof_names[p];
}

enum proof_level load_proof_level(enum load_proof p)
{
	return p == LOAD_ACK ? PROOF_ACK : PROOF_SAMPLED;
}

/* NULL if this build has no adapter for the kind. */
static const struct engine_ops *engine_ops_of(enum engine_kind kind)
{
	static const struct engine_ops *const all[] = { &en_native_ops,
							&en_sglang_ops,
							&en_vllm_ops };

	for (size_t i = 0; i < COUNT(all); i++)
		if (all[i]->kind == kind)
			return all[i];
	return NULL;
}

static void deliver_engine(struct engine *e)
{
	for (unsigned c = 0; c < EC_N; c++) {
		if (!e->pending[c].due)
			continue;
		e->pending[c].due = false;
		e->host->answer(e->host->arg, e, c, e->pending[c].rc);
	}
}

static void deliver(void *arg)
{
	struct engine_host *h = arg;

	for (uint32_t i = 0; i < h->nengines; i++)
		deliver_engine(h->engine[i]);
}

void engine_host_init(struct engine_host *h, struct loop *l, void *arg)
{
	*h = (struct engine_host){ .loop = l, .arg = arg };
	h->soon.fn = deliver;
	h->soon.arg = h;
}

static void engine_free(struct engine *e)
{
	e->ops->close(e);
	for (uint32_t i = 0; i < e->nparts; i++) {
		free(e->part[i].endpoint);
		free(e->part[i].receipt);
		free(e->part[i].facts.store);
	}
	free(e->live.previous);
	groups_release(&e->live.groups);
	free(e->part);
	free(e->name);
	free(e->url);
	free(e->pull);
	free(e);
}

void engine_host_release(struct engine_host *h)
{
	if (h->loop)
		loop_disarm(h->loop, &h->soon);
	for (uint32_t i = 0; i < h->nengines; i++)
		engine_free(h->engine[i]);
	free(h->engine);
	free(h->route);
	if (h->fan)
		fan_free(h->fan);
	*h = (struct engine_host){ 0 };
}

static void add_parts(struct engine *e, const struct m_opened_engine *m)
{
	e->part = xcalloc(m->workers.n + 1, sizeof *e->part);
	for (uint32_t i = 0; i < m->workers.n; i++) {
		struct slice w = m->workers.v[i];

		if (i > 0 && slice_eq(w, m->workers.v[i - 1])) {
			e->part[e->nparts - 1].workers++;
			continue;
		}
		e->part[e->nparts].endpoint = xstrndup(w.p, w.n);
		e->part[e->nparts].worker = i;
		e->part[e->nparts].receiver = ID_NONE;
		e->part[e->nparts++].workers = 1;
	}
	if (!e->alone)
		return;
	e->part[0] = (struct engine_part){ .endpoint = xstrdup(e->url),
					   .workers = 1,
					   .receiver = ID_NONE };
	e->nparts = 1;
}

struct engine *engine_add(struct engine_host *h, uint32_t id,
			  const struct m_opened_engine *m,
			  const struct engine_goal *goal)
{
	const struct engine_ops *ops = engine_ops_of(m->kind);
	struct engine *e;

	if (!ops) {
		log_error(E_CONFIG,
			  "engine %.*s: kind %s is not supported by "
			  "this build",
			  SLICE_ARG(m->name), engine_kind_name(m->kind));
		return NULL;
	}
	e = xcalloc(1, sizeof *e);
	e->ops = ops;
	e->host = h;
	e->goal = goal;
	e->id = id;
	e->name = xstrndup(m->name.p, m->name.n);
	e->url = xstrndup(m->url.p, m->url.n);
	e->alone = m->workers.n == 0;
	if (m->pull.n)
		e->pull = xstrndup(m->pull.p, m->pull.n);
	add_parts(e, m);
	engine_restore(e, m);
	h->engine = xreallocarray(h->engine, h->nengines + 1,
				  sizeof(struct engine *));
	h->engine[h->nengines++] = e;
	return ops->open(e) < 0 ? NULL : e;
}

const struct engine_share *engine_share(const struct engine *e,
					const struct engine_part *p)
{
	const struct engine_goal *g = e->goal;

	return &g->share[g->nshares > 1 ? p->worker : 0];
}

static bool serves_goal(const struct engine *e, const struct engine_part *p)
{
	return p->facts.serving == e->goal->version &&
	       digest_eq(&p->facts.content, &engine_share(e, p)->content);
}

bool engine_part_is_there(const struct engine *e, const struct engine_part *p)
{
	if (e->alone && e->live.poisoned)
		return false;
	return e->goal->joins && serves_goal(e, p);
}

int engine_goal_content(struct engine_goal *g, const struct digest *content,
			const struct m_share *share, uint32_t n)
{
	if (n != (g->nshares > 1 ? g->nshares : 0))
		return log_error(E_DATA, "a version of %u shares, not of %u", n,
				 g->nshares);
	g->content = *content;
	for (uint32_t i = 0; i < g->nshares; i++)
		g->share[i].content = n ? share[i].content : *content;
	return 0;
}

uint32_t engine_goal_shares(const struct engine_goal *g, struct m_share *out)
{
	for (uint32_t i = 0; g->nshares > 1 && i < g->nshares; i++)
		out[i].content = g->share[i].content;
	return g->nshares > 1 ? g->nshares : 0;
}

void engine_ask(struct engine *e, const struct engine_ask *ask)
{
	e->pending[ask->call].due = false;
	e->ops->call[ask->call](e, ask);
}

void engine_fail_soon(struct engine *e, enum engine_call c, int rc)
{
	e->open[c].left = 0;
	e->pending[c] = (struct engine_pending){ .due = true, .rc = rc };
	loop_arm(e->host->loop, &e->host->soon, 0);
}

void engine_skip(struct engine *e, const struct engine_ask *ask)
{
	engine_fail_soon(e, ask->call, 0);
}

uint32_t engine_open_call(struct engine *e, enum engine_call c, uint32_t n)
{
	e->open[c].left = n;
	return ++e->open[c].round;
}

void engine_part_done(struct engine *e, enum engine_call c, int rc)
{
	struct engine_open *o = &e->open[c];

	if (o->left == 0)
		return;
	o->left = rc < 0 ? 0 : o->left - 1;
	if (rc < 0 || o->left == 1)
		e->ops->ended(e, c, rc);
	if (o->left == 0)
		e->host->answer(e->host->arg, e, c, rc);
}

void engine_restore(struct engine *e, const struct m_opened_engine *m)
{
	e->live.held |= m->held;
	e->live.poisoned |= m->poisoned;
	groups_add_all(&e->live.groups, m->groups.v, m->groups.n);
	if (m->previous.n && !e->live.previous)
		e->live.previous = xstrndup(m->previous.p, m->previous.n);
}

void engine_record(struct engine *e, struct m_opened_engine *m)
{
	struct engine_live *l = &e->live;

	m->held = l->held;
	m->poisoned = l->poisoned;
	m->groups.v = l->groups.name;
	m->groups.n = l->groups.n;
	m->previous = slice_of(l->previous ? l->previous : "");
}

bool engine_pulls(const struct engine *e)
{
	return e->pull && e->goal->disk_dir;
}

bool engine_casts(const struct engine *e)
{
	return e->alone && e->goal->plan;
}

void engine_note_group(struct engine *e)
{
	const struct engine_goal *g = e->goal;
	char name[GROUP_NAME_MAX + 1];

	snprintf(name, sizeof name, "weir-%.16s-%llu-%u", g->registry,
		 (unsigned long long)g->epoch, g->instance);
	groups_add(&e->live.groups, slice_of(name));
}

bool engine_tells(const struct engine *e, uint64_t version)
{
	if (!e->ops->in_place)
		return true;
	return !e->live.poisoned && e->live.label == version;
}

bool engine_is_there(const struct engine *e)
{
	for (uint32_t i = 0; i < e->nparts; i++) {
		const struct engine_part *p = &e->part[i];

		if (p->facts.serving <= e->goal->version && !serves_goal(e, p))
			return false;
	}
	return !e->ops->in_place || e->live.label >= e->goal->version;
}

bool engine_is_paused(const struct engine *e)
{
	for (uint32_t i = 0; i < e->nparts; i++)
		if (e->part[i].facts.paused)
			return true;
	return e->ops->in_place && (e->live.paused || e->live.held);
}

bool engine_is_poisoned(const struct engine *e)
{
	return e->ops->in_place && e->live.poisoned;
}
