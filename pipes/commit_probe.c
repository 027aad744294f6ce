#include "pipes/commit_io.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

void commit_ask_all(struct commit_io *c, enum engine_call call, int64_t ms)
{
	struct engine_ask a = { .call = call, .ms = ms };

	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (!c->m.engine[i].out)
			engine_ask(c->engine[i], &a);
}

void commit_probe(struct commit_io *c)
{
	int rc;

	/* Excluded before we were killed: its cancel may not have arrived. */
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (c->m.engine[i].out)
			bring_it(&c->bring, c->engine[i], HE_BACK);
	c->miss = xcalloc(c->m.nengines, sizeof *c->miss);
	c->probes_left = commit_in(&c->m);
	rc = commit_past_read(c);
	if (rc < 0)
		commit_fail(c, rc);
	else
		commit_ask_all(c, EC_PROBE, c->conf->engine_timeout_ms);
}

static void forget(struct commit_io *c)
{
	for (uint32_t i = 0; c->miss && i < c->m.nengines; i++) {
		free(c->miss[i].cause);
		c->miss[i] = (struct commit_miss){ 0 };
	}
}

void commit_probe_release(struct commit_io *c)
{
	forget(c);
	free(c->miss);
}

/* ---- engines that cannot take part ---- */

/* One line: why the first cannot, and the names of the others. */
static int refuse(const struct commit_io *c, uint32_t n)
{
	const struct commit_miss *first = NULL;
	const char *sep = "";
	struct buf b = { 0 };
	int rc;

	for (uint32_t i = 0; i < c->m.nengines; i++) {
		if (!c->miss[i].rc)
			continue;
		if (!first) {
			first = &c->miss[i];
			buf_addf(&b, "%s", first->cause);
			if (n > 1)
				buf_addf(&b, "; and %u more: ", n - 1);
			continue;
		}
		buf_addf(&b, "%s%s", sep, c->engine[i]->name);
		sep = ", ";
	}
	rc = log_error(-first->rc, "%s", buf_cstr(&b));
	buf_release(&b);
	return rc;
}

static uint32_t count_missing(const struct commit_io *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->m.nengines; i++)
		n += c->miss[i].rc != 0;
	return n;
}

/* What has been gathered counts: they are left out, or the run is refused. */
static void settle(void *arg)
{
	struct commit_io *c = arg;
	uint32_t n = count_missing(c);

	loop_disarm(c->s->loop, &c->gather_timer);
	if (c->m.state == CS_PROBE && n + c->m.min > commit_in(&c->m))
		commit_fail(c, refuse(c, n));
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (c->miss[i].rc && c->m.state == CS_PROBE)
			commit_lose(c, i, c->miss[i].rc, c->miss[i].cause,
				    false);
	forget(c);
}

static void miss(struct commit_io *c, const struct engine *e, int rc,
		 const char *cause)
{
	struct commit_miss *m = &c->miss[e->id];

	free(m->cause);
	*m = (struct commit_miss){ rc, xstrdup(cause) };
	if (c->probes_left == 0 || c->gather_timer.due_ms)
		return;
	c->gather_timer.fn = settle;
	c->gather_timer.arg = c;
	loop_arm(c->s->loop, &c->gather_timer, PROBE_GATHER_MS);
}

/* ---- what engines say of themselves ---- */

static int check_part(struct commit_io *c, struct engine *e,
		      const struct engine_part *p)
{
	const struct engine_facts *f = &p->facts;
	uint64_t need = engine_share(e, p)->bytes;

	if (p->reborn)
		return log_error(E_UNAVAIL,
				 "engine %s (%s) was restarted during the run",
				 e->name, p->endpoint);
	if (f->registry[0] && strcmp(f->registry, c->reg.id) != 0 && !f->adopts)
		return log_error(E_FENCED,
				 "engine %s (%s) belongs to registry %s, ours "
				 "is %s; start it with --adopt to take it over",
				 e->name, p->endpoint, f->registry, c->reg.id);
	if (!c->resumed && c->m.state == CS_PROBE && !f->keeps &&
	    f->room < need)
		return log_error(E_UNAVAIL,
				 "engine %s (%s) has room for %llu bytes, the "
				 "version needs %llu",
				 e->name, p->endpoint, (ull)f->room, (ull)need);
	return 0;
}

/* ---- a join ---- */

/* An engine's number never goes back, nor means two things. */
static int check_join(const struct commit_io *c, const struct engine *e,
		      const struct engine_part *p)
{
	const struct engine_facts *f = &p->facts;

	if (f->serving > c->plan.base)
		return log_error(E_DATA,
				 "engine %s (%s) serves version %llu, above "
				 "the published %llu",
				 e->name, p->endpoint, (ull)f->serving,
				 (ull)c->plan.base);
	if (f->serving == c->plan.base &&
	    !digest_eq(&f->content, &engine_share(e, p)->content))
		return log_error(E_DATA,
				 "engine %s (%s) serves a version %llu with "
				 "another content",
				 e->name, p->endpoint, (ull)f->serving);
	return 0;
}

static bool is_there(const struct commit_io *c, const struct engine *e)
{
	for (uint32_t i = 0; i < e->nparts; i++)
		if (e->part[i].facts.serving != c->plan.base)
			return false;
	if (!engine_tells(e, c->plan.base))
		return false;
	return c->plan.kind == RUN_JOIN && c->m.state == CS_PROBE;
}

/* Not printed: the cause of several may be one line. */
static int check(struct commit_io *c, struct engine *e)
{
	int rc = 0, quiet = log_quiet_thread(1);

	for (uint32_t i = 0; rc == 0 && i < e->nparts; i++)
		rc = check_part(c, e, &e->part[i]);
	if (rc == 0 && e->alone)
		rc = commit_alone_probed(c, e);
	for (uint32_t i = 0;
	     rc == 0 && c->plan.kind == RUN_JOIN && i < e->nparts; i++)
		rc = check_join(c, e, &e->part[i]);
	if (rc == 0 && c->m.state == CS_PROBE)
		rc = commit_retired(c, e);
	log_quiet_thread(quiet);
	return rc;
}

void commit_probed(struct commit_io *c, struct engine *e, int rc)
{
	bool gathers = c->m.state == CS_PROBE && !c->m.engine[e->id].out;
	const char *cause = e->cause;

	if (rc == 0) {
		rc = check(c, e);
		cause = log_cause();
	}
	if (gathers && c->probes_left)
		c->probes_left--;
	if (rc == 0)
		commit_feed(c, is_there(c, e) ? CE_THERE : CE_PROBED, e->id);
	else if (gathers)
		miss(c, e, rc, cause);
	else
		commit_lose(c, e->id, rc, cause, false);
	if (gathers && c->probes_left == 0)
		settle(c);
}
