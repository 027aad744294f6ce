#include "pipes/recover.h"
#include "common/err.h"
#include "pipes/place.h"

#include <stdlib.h>
#include <string.h>

struct recover_item {
	struct engine_goal goal;
	struct engine_share *share; /* the goal's */
	char *registry, *run;	    /* the goal's */
	char *place, *disk_dir;	    /* the goal's; of one that is alone */
	struct m_opened_engine who; /* borrows; see `copy` */
	struct buf copy;	    /* a record that outlives its arena */
	struct msg_arena arena;
	struct engine *e;
	char *cause;		   /* why there is no e */
	bool decided, known, home; /* known: from attention, to be away */
};

static struct recover_item *new_item(struct recover *r)
{
	r->item = xreallocarray(r->item, r->nitems + 1, sizeof *r->item);
	r->item[r->nitems] = (struct recover_item){ 0 };
	return &r->item[r->nitems++];
}

/* The shares that a record names; of an undecided run it is only known that
 * there is a goal. */
static int set_content(struct recover_item *it, const struct digest *content,
		       const struct m_share *share, uint32_t n)
{
	if (n && n != it->who.workers.n)
		return log_error(E_DATA,
				 "engine %.*s: %u workers, the version has %u "
				 "shares",
				 SLICE_ARG(it->who.name), it->who.workers.n, n);
	it->goal.nshares = n ? n : 1;
	it->share = it->goal.share =
		xcalloc(it->goal.nshares, sizeof *it->share);
	return engine_goal_content(&it->goal, content, share, n);
}

static void name_goal(struct recover_item *it, const char *registry,
		      struct slice run)
{
	it->registry = xstrdup(registry);
	it->run = xstrndup(run.p, run.n);
}

/* Ours, after a restart: another run may have had its name. */
static bool is_own(const struct recover *r, struct slice run, uint64_t epoch)
{
	return epoch == r->how->epoch && slice_eq(run, slice_of(r->how->run));
}

/* What `open` names.  An excluded engine was cancelled; it is again. */
static int add_open(struct recover *r, bool decided)
{
	const struct m_open *o = &r->open.m.open;
	const struct m_decision none = { 0 };
	const struct m_decision *d = decided ? &r->decision.m.decision : &none;
	int rc = 0;

	for (uint32_t i = 0; i < o->engines.n && rc == 0; i++) {
		struct recover_item *it = new_item(r);

		it->who = o->engines.v[i];
		it->decided = decided && !it->who.excluded;
		it->goal.epoch = o->epoch;
		it->goal.instance = o->instance;
		it->goal.version = o->version;
		name_goal(it, r->reg->id, o->run);
		rc = set_content(it, &d->content, d->shares.v, d->shares.n);
	}
	return rc;
}

/* Lists of a record live until the arena's next use: each gets its own. */
static int add_attention(struct recover *r, struct slice frame)
{
	struct recover_item *it = new_item(r);
	struct msg m;
	int rc;

	buf_add(&it->copy, frame.p, frame.n);
	rc = msg_unpack(&m, &it->arena, buf_slice(&it->copy));
	if (rc < 0)
		return rc;
	if (m.type != M_attention)
		return log_error(E_DATA, "attention holds a record of %s",
				 msg_name(m.type));
	it->who = m.attention.engine;
	it->decided = m.attention.decided;
	it->known = true;
	it->goal.epoch = m.attention.epoch;
	/* Nobody speaks for that run any more, unless it is ours. */
	it->goal.instance = is_own(r, m.attention.run, m.attention.epoch)
				    ? r->how->instance
				    : UINT32_MAX;
	it->goal.version = m.attention.version;
	name_goal(it, r->reg->id, m.attention.run);
	return set_content(it, &m.attention.content, m.attention.shares.v,
			   m.attention.shares.n);
}

static int read_attention(struct recover *r)
{
	int rc = registry_attention_read(r->reg, &r->attention);
	struct slice frame;

	if (rc <= 0)
		return rc;
	while ((rc = rec_next_frame(&r->attention.rec, &frame)) > 0) {
		rc = add_attention(r, frame);
		if (rc < 0)
			break;
	}
	return rc;
}

/* A decision of the same number by another run or epoch is not this one's. */
static int is_decided(struct recover *r)
{
	const struct m_open *o = &r->open.m.open;
	const struct m_decision *d = &r->decision.m.decision;
	int rc = registry_decision(r->reg, o->version, &r->decision);

	if (rc <= 0)
		return rc;
	return d->epoch == o->epoch && slice_eq(d->run, o->run);
}

static int read_open(struct recover *r)
{
	int rc = registry_open_read(r->reg, &r->open);

	if (rc <= 0)
		return rc;
	if (is_own(r, r->open.m.open.run, r->open.m.open.epoch)) {
		reg_rec_release(&r->open);
		return 0;
	}
	r->has_open = true;
	rc = is_decided(r);
	if (rc < 0)
		return rc;
	log_warn("registry %s: run %.*s, version %llu, was left open: %s",
		 r->reg->path, SLICE_ARG(r->open.m.open.run),
		 (unsigned long long)r->open.m.open.version,
		 rc ? "decided, going forward" : "undecided, aborting it");
	r->open.m.open.instance++;
	if ((int64_t)r->open.m.open.engine_ms > r->engine_ms)
		r->engine_ms = (int64_t)r->open.m.open.engine_ms;
	if ((int64_t)r->open.m.open.load_ms > r->load_ms)
		r->load_ms = (int64_t)r->open.m.open.load_ms;
	rc = add_open(r, rc > 0);
	return rc < 0 ? rc : registry_open_write(r->reg, &r->open.m);
}

static int append(struct buf *b, const struct engine_goal *g,
		  const struct m_opened_engine *who, bool decided,
		  const char *cause)
{
	struct m_share *share = xcalloc(g->nshares, sizeof *share);
	struct msg m = { .type = M_attention };
	int rc;

	m.attention.run = slice_of(g->run);
	m.attention.epoch = g->epoch;
	m.attention.version = g->version;
	if (decided) {
		m.attention.content = g->content;
		m.attention.shares.v = share;
		m.attention.shares.n = engine_goal_shares(g, share);
	}
	m.attention.decided = decided;
	m.attention.engine = *who;
	m.attention.cause = slice_of(cause);
	rc = rec_append(b, &m);
	free(share);
	return rc;
}

int attention_append(struct buf *b, struct engine *e,
		     const struct m_opened_engine *who, bool decided)
{
	struct m_opened_engine now = *who;

	engine_record(e, &now);
	return append(b, e->goal, &now, decided, e->cause);
}

/* What was not home, as it was found. */
static int keep(struct recover *r, struct buf *b, const struct recover_item *it)
{
	if (log_few(&r->kept, LOG_WARN))
		log_warn("%s; it stays in attention",
			 it->e ? it->e->cause : it->cause);
	if (it->e)
		return attention_append(b, it->e, &it->who, it->decided);
	return append(b, &it->goal, &it->who, it->decided, it->cause);
}

/* Two runs have left the same engine.  The newer one's record is enough, but
 * not for a decided version that it, undecided, has not brought. */
static bool replaces(const struct recover_item *it,
		     const struct recover_item *old)
{
	if (it->home || !slice_eq(it->who.name, old->who.name))
		return false;
	if (it->goal.epoch == old->goal.epoch)
		return it < old; /* what `open` says comes first */
	return it->goal.epoch > old->goal.epoch &&
	       (it->decided || !old->decided);
}

static bool is_replaced(const struct recover *r, const struct recover_item *old)
{
	for (uint32_t i = 0; i < r->nitems; i++)
		if (replaces(&r->item[i], old))
			return true;
	return false;
}

/* Attention first: killed between the two, `open` is only tried again. */
static int settle(struct recover *r)
{
	struct buf b = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < r->nitems; i++) {
		if (!r->item[i].home && !is_replaced(r, &r->item[i]))
			rc = keep(r, &b, &r->item[i]);
	}
	log_few_end(&r->kept);
	if (rc == 0)
		rc = registry_attention_write(r->reg, buf_slice(&b));
	if (rc == 0 && r->has_open) {
		struct reg_event ev = { .event = "recovered",
					.run = r->item[0].run,
					.epoch = r->open.m.open.epoch,
					.version = r->open.m.open.version };

		registry_ledger(r->reg, &ev);
		rc = registry_open_remove(r->reg);
	}
	buf_release(&b);
	return rc;
}

static bool is_past(const struct recover_item *it)
{
	for (uint32_t i = 0; i < it->e->nparts; i++)
		if (it->e->part[i].facts.serving < it->goal.version)
			return false;
	return true;
}

/* Fenced off: a newer run has it.  Nothing is left of what was not decided;
 * a decided version is owed until the engine serves that or a later one, as
 * the newer run may have been aborted. */
static bool is_settled(const struct recover_item *it, bool fenced)
{
	return fenced && (!it->decided || is_past(it));
}

static void tell_serving(struct recover *r, const struct recover_item *it)
{
	struct reg_event ev = { .event = "serving",
				.run = it->run,
				.engine = it->e->name,
				.version = it->goal.version,
				.content = &it->goal.content };

	registry_ledger(r->reg, &ev);
}

/* An in-place engine has one set of weights: what the newest run left there
 * comes first.  The debt of an older one would resume a part of that. */
static bool overtakes(const struct recover_item *it,
		      const struct recover_item *older)
{
	return older->who.kind != ENGINE_NATIVE &&
	       it->goal.epoch > older->goal.epoch &&
	       slice_eq(it->who.name, older->who.name);
}

static bool is_overtaken(const struct recover *r, const struct recover_item *it)
{
	for (uint32_t i = 0; i < r->nitems; i++)
		if (overtakes(&r->item[i], it))
			return true;
	return false;
}

/* It serves a later version: nothing older is owed, or left half. */
static void settle_older(struct recover *r, const struct recover_item *it)
{
	for (uint32_t i = 0; i < r->nitems; i++)
		r->item[i].home |= overtakes(it, &r->item[i]);
}

static void on_done(void *arg, struct engine *e, bool home)
{
	struct recover *r = arg;
	struct recover_item *it = &r->item[e->id];

	if (home && it->decided) {
		tell_serving(r, it);
		settle_older(r, it);
	}
	it->home = home || is_settled(it, r->bring.one[e->id].fenced);
	if (--r->left == 0)
		r->done(r->arg, settle(r));
}

static void on_answer(void *arg, struct engine *e, enum engine_call call,
		      int rc)
{
	struct recover *r = arg;

	bring_answer(&r->bring, e, call, rc);
}

/* One that was away already is not waited for again at each push. */
static enum homing_ev direction(const struct recover_item *it)
{
	if (!it->decided)
		return HE_BACK;
	return it->known ? HE_LOOK : HE_FIND;
}

/* What one that is alone may load: what was decided, or what it served, if
 * that is where it was and untouched.  Somebody may have written over it. */
static void find_places(struct recover *r, struct recover_item *it)
{
	struct slice *previous = &it->who.previous;
	uint64_t highest = 0;
	char *at;

	if (it->decided) {
		it->place = place_of_version(r->reg, it->goal.version);
		it->goal.place = it->place;
		it->disk_dir = place_disk_dir(r->reg, it->goal.version);
		it->goal.disk_dir = it->disk_dir;
	}
	if (registry_highest(r->reg, &highest) < 0 || highest == 0)
		return;
	at = place_of_version(r->reg, highest);
	if (!at || !slice_eq(slice_of(at), *previous))
		previous->n = 0;
	free(at);
}

/* What this host cannot reach, as a server without libcurl, is away: it must
 * not keep the others from what they wait for. */
static void open_engine(struct recover *r, uint32_t i)
{
	struct recover_item *it = &r->item[i];
	int was;

	it->goal.registry = it->registry;
	it->goal.run = it->run;
	it->goal.lease_ms = (uint64_t)r->engine_ms;
	it->goal.model = "";
	it->goal.token = r->how->token;
	it->goal.abort_requests = r->how->abort_requests;
	it->goal.rollback = r->how->rollback;
	if (is_overtaken(r, it)) {
		it->cause = xasprintf("engine %.*s: what a newer run left "
				      "there comes first",
				      SLICE_ARG(it->who.name));
		return;
	}
	if (it->who.workers.n == 0)
		find_places(r, it);
	was = log_quiet_thread(1);
	it->e = engine_add(&r->host, i, &it->who, &it->goal);
	log_quiet_thread(was);
	if (it->e)
		r->left++;
	else
		it->cause = xasprintf("engine %.*s: %.600s",
				      SLICE_ARG(it->who.name), log_cause());
}

/* Goals are lent to the engines: the items do not move any more. */
static int ask_all(struct recover *r, struct loop *l)
{
	engine_host_init(&r->host, l, r);
	r->host.answer = on_answer;
	r->host.expect = r->nitems;
	bring_init(&r->bring, l, r->nitems, 0);
	r->bring.engine_ms = r->engine_ms;
	r->bring.load_ms = r->load_ms;
	r->bring.cause = "the run was left open and is aborted";
	r->bring.done = on_done;
	r->bring.arg = r;
	for (uint32_t i = 0; i < r->nitems; i++)
		open_engine(r, i);
	if (r->left == 0)
		return settle(r);
	for (uint32_t i = 0; i < r->nitems; i++)
		if (r->item[i].e)
			bring_it(&r->bring, r->item[i].e,
				 direction(&r->item[i]));
	return 1;
}

int recover_start(struct recover *r, struct loop *l)
{
	int rc = read_open(r);

	r->kept.what = "engines that stay in attention";
	if (rc < 0)
		return rc;
	rc = read_attention(r);
	if (rc < 0)
		return rc;
	if (r->nitems == 0)
		return r->has_open ? registry_open_remove(r->reg) : 0;
	return ask_all(r, l);
}

void recover_inherit(const struct recover *r, struct engine *e)
{
	for (uint32_t i = 0; i < r->nitems; i++) {
		const struct recover_item *it = &r->item[i];
		const struct engine_live *l = it->e ? &it->e->live : NULL;

		if (!l || it->home || strcmp(it->e->name, e->name) != 0)
			continue;
		e->live.held |= l->held;
		e->live.poisoned |= l->poisoned;
		groups_add_all(&e->live.groups, l->groups.name, l->groups.n);
		if ((l->held || l->poisoned) && !e->live.previous &&
		    l->previous)
			e->live.previous = xstrdup(l->previous);
	}
}

void recover_stop(struct recover *r)
{
	if (r->left)
		recover_release(r);
}

void recover_release(struct recover *r)
{
	bring_release(&r->bring);
	engine_host_release(&r->host);
	for (uint32_t i = 0; i < r->nitems; i++) {
		free(r->item[i].share);
		free(r->item[i].registry);
		free(r->item[i].run);
		free(r->item[i].place);
		free(r->item[i].disk_dir);
		free(r->item[i].cause);
		buf_release(&r->item[i].copy);
		msg_arena_release(&r->item[i].arena);
	}
	free(r->item);
	reg_rec_release(&r->open);
	reg_rec_release(&r->decision);
	reg_rec_release(&r->attention);
	*r = (struct recover){ 0 };
}
