#include "pipes/commit_io.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/http.h"
#include "common/log.h"
#include "common/units.h"
#include "pipes/trcaps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- before the plan ---- */

static int64_t boot_left(uint64_t deadline_ms)
{
	return (int64_t)deadline_ms - clock_boot_ms();
}

static void on_run_deadline(void *arg)
{
	struct commit_io *c = arg;
	char time[UNITS_MAX];

	if (c->m.published)
		return;
	commit_fail(c, log_error(E_TIMEOUT,
				 "the run's time of %s is over "
				 "(--run-timeout)",
				 units_time(c->conf->run_timeout_ms, time)));
}

static void arm_run_deadline(struct commit_io *c)
{
	int64_t left = boot_left(c->deadline_ms);

	c->run_timer.fn = on_run_deadline;
	c->run_timer.arg = c;
	loop_arm(c->s->loop, &c->run_timer, left > 0 ? left : 0);
}

/* Another boot of the machine: the deadline has passed (I13). */
static bool is_expired(const struct m_open *o)
{
	char boot[CLOCK_BOOT_ID_LEN + 1];

	if (clock_boot_id(boot) < 0 || !slice_eq(o->boot, slice_of(boot)))
		return true;
	return boot_left(o->deadline_ms) <= 0;
}

static int read_decision(struct commit_io *c, const struct m_open *o)
{
	struct reg_rec d = { 0 };
	int rc = registry_decision(&c->reg, o->version, &d);

	if (rc < 0)
		return rc;
	c->ahead = rc > 0 && slice_eq(d.m.decision.run, o->run) &&
		   d.m.decision.epoch == o->epoch;
	if (c->ahead)
		c->published = d.m.decision.content;
	reg_rec_release(&d);
	return 0;
}

/* Opened by us: an earlier run may have had the same name.  1, 0, -E_*. */
static int is_mine(const struct commit_io *c, const struct m_open *o)
{
	uint64_t epoch = 0;
	int rc = 0;

	if (!slice_eq(o->run, slice_of(c->s->run.name)))
		return 0;
	rc = run_epoch_read(&c->s->run, &epoch);
	return rc < 0 ? rc : epoch == o->epoch;
}

static int read_mine(struct commit_io *c)
{
	int rc = registry_open_read(&c->reg, &c->mine);
	const struct m_open *o = &c->mine.m.open;

	if (rc > 0)
		rc = is_mine(c, o);
	if (rc <= 0)
		reg_rec_release(&c->mine);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return commit_over_find(c);
	rc = read_decision(c, o);
	if (rc < 0)
		return rc;
	c->resumed = !c->ahead;
	c->deadline_ms = is_expired(o) ? 0 : o->deadline_ms;
	return 0;
}

int commit_prepare(struct stage *s)
{
	struct commit_io *c = s->self;
	char *path = NULL;
	int rc = 0;

	c->s = s;
	if (c->conf->api_key_file)
		rc = http_token_read(c->conf->api_key_file, &c->token);
	if (rc < 0)
		return rc;
	if (c->conf->common.registry)
		path = xstrdup(c->conf->common.registry);
	else
		rc = registry_default_path(&path);
	if (rc < 0)
		return rc;
	rc = registry_make(&c->reg, path);
	free(path);
	if (rc < 0)
		return rc;
	c->has_reg = true;
	c->deadline_ms = (uint64_t)(clock_boot_ms() + c->conf->run_timeout_ms);
	return read_mine(c);
}

/* ---- the plan ---- */

/* One endpoint per worker, as the records of the registry hold them. */
static void list_engines(struct commit_io *c)
{
	const struct plan *p = &c->plan;
	size_t workers = 0, n = 0;

	for (uint32_t i = 0; i < p->nengines; i++)
		workers += p->engine[i].workers;
	c->who = xcalloc(p->nengines, sizeof *c->who);
	c->endpoints = xcalloc(workers, sizeof *c->endpoints);
	for (uint32_t i = 0; i < p->nengines; i++) {
		const struct plan_engine *e = &p->engine[i];
		struct m_opened_engine *w = &c->who[i];

		w->engine = i;
		w->name = slice_of(e->name);
		w->kind = (uint8_t)e->kind;
		w->url = slice_of(e->url ? e->url : "");
		w->pull = slice_of(e->pull ? e->pull : "");
		w->workers.v = c->endpoints + n;
		w->workers.n = e->workers;
		n += e->workers;
	}
	for (uint32_t i = 0; i < p->nreceivers; i++) {
		const struct plan_receiver *r = &p->receiver[i];

		for (uint32_t k = 0; k < r->workers; k++)
			c->who[r->engine].workers.v[r->worker + k] =
				slice_of(r->endpoint);
	}
}

static void list_files(struct commit_io *c)
{
	const struct plan *p = &c->plan;

	c->files = xcalloc(p->nfiles, sizeof *c->files);
	for (uint32_t i = 0; i < p->nfiles; i++) {
		c->files[i].path = slice_of(p->file[i].path);
		c->files[i].kind = (uint8_t)p->file[i].kind;
		c->files[i].bytes = p->file[i].bytes;
		c->files[i].header = p->file[i].header;
		c->files[i].digest = p->file[i].digest;
	}
	c->share = xcalloc(p->nranks, sizeof *c->share);
	c->shares = xcalloc(p->nranks, sizeof *c->shares);
	for (uint32_t r = 0; r < p->nranks; r++) {
		c->share[r].files = c->files + p->rank[r].first;
		c->share[r].nfiles = p->rank[r].files;
		c->share[r].bytes = p->rank[r].bytes;
	}
}

static int set_goal(struct commit_io *c)
{
	const struct plan *p = &c->plan;
	struct engine_goal *g = &c->goal;

	g->registry = c->reg.id;
	g->run = c->s->run.name;
	g->instance = c->s->run.instance;
	g->buckets = c->plan.nbuckets;
	g->proof = (uint8_t)c->conf->accept_proof;
	g->structure = c->plan.structure;
	g->share = c->share;
	g->nshares = c->plan.nranks;
	g->whole = transport_has(p->transport, TR_WHOLE);
	g->disk_dir = g->whole ? p->disk_dir : NULL;
	g->plan = strcmp(p->transport, "nccl") == 0 ? p : NULL;
	g->lease_ms = (uint64_t)c->conf->engine_timeout_ms;
	g->model = c->plan.model ? c->plan.model : "";
	g->token = c->token;
	g->abort_requests = c->conf->pause_mode == PAUSE_ABORT;
	g->rollback = c->conf->on_failure == ON_FAILURE_ROLLBACK;
	/* The number is not known before the probes. */
	g->version = c->conf->weight_version;
	if (p->kind == RUN_JOIN) {
		g->version = p->base;
		c->published = p->content;
	}
	g->joins = p->kind == RUN_JOIN;
	commit_goal_servers(c);
	g->is_again = p->kind != RUN_PUBLISH;
	if (!g->is_again)
		return 0;
	return engine_goal_content(g, &p->content, p->shares, p->nshares);
}

static int add_engines(struct commit_io *c)
{
	uint32_t n = c->plan.nengines;

	c->state = xcalloc(n, sizeof *c->state);
	c->engine = xcalloc(n, sizeof *c->engine);
	c->host.expect = c->plan.nreceivers;
	for (uint32_t i = 0; i < n; i++) {
		c->engine[i] = engine_add(&c->host, i, &c->who[i], &c->goal);
		if (!c->engine[i])
			return -E_CONFIG;
		c->state[i].in_place = c->engine[i]->ops->in_place;
	}
	return 0;
}

static void init_bring(struct commit_io *c)
{
	struct bring b = c->bring;

	bring_init(&c->bring, c->s->loop, c->plan.nengines, c->s->run.instance);
	c->bring.done = b.done;
	c->bring.arg = b.arg;
	c->bring.engine_ms = c->conf->engine_timeout_ms;
	c->bring.load_ms = c->conf->load_timeout_ms;
}

static void restore_boot(struct engine *e, const struct m_boot *b)
{
	for (uint32_t k = 0; k < e->nparts; k++)
		if (e->part[k].worker == b->worker)
			snprintf(e->part[k].boot, ENGINE_TEXT, "%.*s",
				 SLICE_ARG(b->id));
}

/* What was decided is what engines are brought to. */
static int resume_decided(struct commit_io *c)
{
	struct reg_rec d = { 0 };
	const struct m_decision *m = &d.m.decision;
	int rc = registry_decision(&c->reg, c->mine.m.open.version, &d);

	commit_resume_decided(&c->m);
	commit_alone_resume(c);
	if (rc > 0)
		rc = engine_goal_content(&c->goal, &m->content, m->shares.v,
					 m->shares.n);
	reg_rec_release(&d);
	return rc;
}

/* As it was before we were killed: exclusions, boots, whether it is decided. */
static int restore(struct commit_io *c)
{
	const struct m_open *o = &c->mine.m.open;
	int rc = 0;

	if (c->ahead)
		rc = resume_decided(c);
	else
		commit_resume(&c->m);
	c->goal.version = o->version;
	c->goal.epoch = o->epoch;
	c->s->epoch = o->epoch;
	/* One that is not touched was there already. */
	for (uint32_t i = 0; i < c->m.nengines; i++)
		c->state[i].out = c->state[i].there = true;
	for (uint32_t i = 0; i < o->engines.n; i++) {
		const struct m_opened_engine *w = &o->engines.v[i];

		if (w->engine >= c->m.nengines)
			continue;
		c->state[w->engine].out = w->excluded;
		c->state[w->engine].there = false;
		engine_restore(c->engine[w->engine], w);
	}
	for (uint32_t i = 0; i < c->m.nengines; i++)
		c->state[i].touched &= !c->state[i].there;
	for (uint32_t i = 0; i < o->boots.n; i++)
		if (o->boots.v[i].engine < c->m.nengines)
			restore_boot(c->engine[o->boots.v[i].engine],
				     &o->boots.v[i]);
	return rc;
}

/* Not every transport goes on without an engine that fails. */
static int check_min_engines(const struct commit_io *c)
{
	const char *transport = c->plan.transport;
	uint64_t min = c->conf->min_engines;

	if (min > c->plan.nengines)
		return log_error(E_USAGE,
				 "--min-engines %llu: the fleet has "
				 "%u engine%s",
				 (ull)min, c->plan.nengines,
				 plural(c->plan.nengines));
	if (min && min < c->plan.nengines &&
	    !transport_has(transport, TR_CAN_LOSE))
		return log_error(E_CONFIG,
				 "--min-engines %llu: transport %s cannot lose "
				 "an engine on the way",
				 (ull)min, transport);
	return 0;
}

/* Each engine that joins does so by itself. */
static uint32_t min_engines(const struct commit_io *c)
{
	if (c->conf->min_engines == 0 && c->plan.kind == RUN_JOIN)
		return 1;
	return (uint32_t)c->conf->min_engines;
}

int commit_plan_open(struct commit_io *c, const struct m_end *end)
{
	int rc = plan_open(&c->plan, c->s->run.dirfd, PLAN_FILE);

	if (rc == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s holds no plan", c->s->run.path);
	if (rc < 0)
		return rc;
	c->has_plan = true;
	if (end && !digest_eq(&end->digest, &c->plan.end.digest))
		return log_error(E_DATA,
				 "%s/" PLAN_FILE " is not the plan that "
				 "transfer has read",
				 c->s->run.path);
	rc = check_min_engines(c);
	if (rc < 0)
		return rc;
	commit_phase(c, PHASE_PLAN);
	list_engines(c);
	list_files(c);
	rc = set_goal(c);
	if (rc == 0)
		rc = add_engines(c);
	if (rc < 0)
		return rc;
	init_bring(c);
	commit_init(&c->m, c->state, c->plan.nengines, min_engines(c));
	if (c->is_over)
		return commit_over_end(c);
	/* Of an earlier instance it counts once the registry is ours: then it
	 * can end the run.  A decided run goes forward (I13). */
	if (c->resumed || c->ahead)
		rc = restore(c);
	else
		arm_run_deadline(c);
	if (rc < 0)
		return rc;
	commit_feed(c, CE_PLAN, 0);
	return 0;
}

/* ---- the lock ---- */

/* Nobody who could start that run's commit again is left. */
static bool is_run_dead(struct commit_io *c, struct slice run)
{
	const char *own = c->s->run.path;
	const char *slash = strrchr(own, '/');
	char *path;
	struct run r;
	bool alive = false;
	pid_t pid;

	if (!slash)
		return false;
	path = xasprintf("%.*s/%.*s", (int)(slash - own), own, SLICE_ARG(run));
	log_quiet_thread(1);
	if (run_open(&r, path, true) < 0) {
		alive = true; /* not here: we cannot know */
	} else {
		for (unsigned i = STAGE_PLAN; i < STAGE_N; i++)
			alive |= run_is_alive(&r, (enum stage_id)i, &pid);
		run_close(&r);
	}
	log_quiet_thread(0);
	free(path);
	return !alive;
}

/* How long must the lock have been free before we take that run over?  Its
 * commit may be in back-off, between two instances. */
static int64_t takeover_ms(struct commit_io *c)
{
	struct reg_rec o = { 0 };
	int64_t ms = 0;

	if (registry_open_read(&c->reg, &o) <= 0)
		return 0;
	if (is_mine(c, &o.m.open) <= 0 && !is_expired(&o.m.open) &&
	    !is_run_dead(c, o.m.open.run))
		ms = (int64_t)o.m.open.stage_ms;
	reg_rec_release(&o);
	return ms;
}

static int refuse_lock(struct commit_io *c)
{
	struct reg_holder h;

	registry_holder(&c->reg, &h);
	return log_error(E_AGAIN,
			 "registry %s is held by pid %ld, started %s, run %s; "
			 "--wait TIME waits for it",
			 c->reg.path, h.pid, h.start, h.run);
}

static void poll_lock(void *arg)
{
	struct commit_io *c = arg;

	if (c->m.state == CS_LOCK)
		commit_lock(c);
}

static void lock_later(struct commit_io *c)
{
	c->lock_timer.fn = poll_lock;
	c->lock_timer.arg = c;
	loop_arm(c->s->loop, &c->lock_timer, LOCK_POLL_MS);
}

/* An older instance of ours ends, with 76, as soon as it can (TM-02).  Another
 * run may have our name, and a dead one's pid may be anybody's. */
static bool is_held_by_us(struct commit_io *c, int64_t now)
{
	struct reg_holder h;

	if (now - c->lock_since_ms >= c->conf->run_timeout_ms)
		return false;
	registry_holder(&c->reg, &h);
	return run_is_older(&c->s->run, (pid_t)h.pid);
}

/* Is it ours now?  1, 0 (later), -E_*. */
static int try_lock(struct commit_io *c, int64_t now)
{
	int64_t need;
	int rc = registry_is_free(&c->reg);

	if (rc < 0)
		return rc;
	if (rc == 0) {
		bool again = c->seen_held;

		c->free_since_ms = 0;
		c->seen_held = true;
		/* Once may be somebody who only looks, as weir-status does. */
		if (again && now - c->lock_since_ms >= c->conf->wait_ms &&
		    !is_held_by_us(c, now))
			return refuse_lock(c);
		return 0;
	}
	if (c->free_since_ms == 0)
		c->free_since_ms = now;
	need = takeover_ms(c);
	if (now - c->free_since_ms < need)
		return 0;
	rc = registry_lock(&c->reg, c->s->run.name);
	return rc == -E_AGAIN ? 0 : rc < 0 ? rc : 1;
}

void commit_lock(struct commit_io *c)
{
	int64_t now = clock_mono_ms();
	int rc;

	if (c->lock_since_ms == 0)
		c->lock_since_ms = now;
	rc = try_lock(c, now);
	if (rc < 0)
		commit_fail(c, rc);
	else if (rc == 0)
		lock_later(c);
	else if (!run_has_ended(&c->s->run))
		commit_feed(c, CE_LOCKED, 0);
}

/* ---- what was left open ---- */

/* Who recovered our run counted our instance on, and may have died with a
 * cancel on its way: that must be older than what we say. */
static void count_on(struct commit_io *c, uint32_t instance)
{
	if (instance >= c->goal.instance)
		c->goal.instance = instance + 1;
}

/* An older instance of ours may have opened the run, or decided it, between
 * our start and the lock. */
static int look_again(struct commit_io *c)
{
	int rc = read_mine(c);

	if (rc < 0 || !(c->resumed || c->ahead))
		return rc;
	c->open_written = true;
	count_on(c, c->mine.m.open.instance);
	return restore(c);
}

/* While we waited for the lock, another commit may have ended this run. */
static int check_mine(struct commit_io *c)
{
	struct reg_rec now = { 0 };
	int rc = registry_open_read(&c->reg, &now);

	if (rc > 0)
		rc = is_mine(c, &now.m.open);
	c->open_written = rc > 0;
	if (c->open_written)
		count_on(c, now.m.open.instance);
	reg_rec_release(&now);
	/* An older instance of ours may have decided it until then. */
	if (c->open_written && c->resumed) {
		reg_rec_release(&c->mine);
		rc = read_mine(c);
		if (rc == 0 && c->ahead) {
			c->resumed = false;
			rc = resume_decided(c);
		}
	}
	if (rc >= 0 && !c->open_written)
		rc = commit_over_find(c);
	if (rc < 0 || c->open_written || c->is_over)
		return rc < 0 ? rc : 0;
	return log_error(E_FENCED,
			 "run %s was left open and ended by another commit",
			 c->s->run.name);
}

static void on_recovered(void *arg, int rc)
{
	struct commit_io *c = arg;

	commit_inherit(c);
	if (rc < 0)
		commit_fail(c, rc);
	else
		commit_feed(c, c->ahead ? CE_AHEAD : CE_RECOVERED, 0);
}

void commit_recover(struct commit_io *c)
{
	struct recover *r = &c->recover;
	int rc = c->resumed || c->ahead ? check_mine(c) : look_again(c);

	if (rc == 0 && c->is_over)
		rc = commit_over_end(c);
	if (rc < 0) {
		commit_fail(c, rc);
		return;
	}
	if (c->is_over)
		return;
	if (c->resumed)
		arm_run_deadline(c);

	r->reg = &c->reg;
	r->how = &c->goal;
	r->engine_ms = c->conf->engine_timeout_ms;
	r->load_ms = c->conf->load_timeout_ms;
	r->done = on_recovered;
	r->arg = c;
	rc = recover_start(r, c->s->loop);
	if (rc <= 0)
		on_recovered(c, rc);
}
