#include "pipes/commit_io.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/version.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- the number, and `open` ---- */

/* The highest number that an engine serves, and one that does. */
static uint64_t highest_served(const struct commit_io *c, const char **who)
{
	uint64_t top = 0;

	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		for (uint32_t k = 0; !c->m.engine[i].out && k < e->nparts; k++)
			if (e->part[k].facts.serving > top) {
				top = e->part[k].facts.serving;
				*who = e->name;
			}
		if (!c->m.engine[i].out && e->live.label > top) {
			top = e->live.label;
			*who = e->name;
		}
	}
	return top;
}

static uint64_t highest_epoch(const struct commit_io *c)
{
	uint64_t top = c->reg.epoch;

	for (uint32_t i = 0; i < c->m.nengines; i++)
		for (uint32_t k = 0; k < c->engine[i]->nparts; k++)
			if (c->engine[i]->part[k].facts.epoch > top)
				top = c->engine[i]->part[k].facts.epoch;
	return top;
}

/* A decided number again: equal structure is needed before reading it all. */
static int compare_decided(struct commit_io *c, uint64_t version,
			   const struct m_decision *d)
{
	char want[DIGEST_HEX], got[DIGEST_HEX];

	if (digest_eq(&d->structure, &c->plan.structure)) {
		c->goal.version = version;
		c->published = d->content;
		return 1;
	}
	return log_error(E_DATA,
			 "version %llu is published with structure %s, this "
			 "source has %s",
			 (ull)version, digest_hex(&d->structure, want),
			 digest_hex(&c->plan.structure, got));
}

/* ---- a published version again ---- */

static int check_again(struct commit_io *c, const struct m_decision *d,
		       uint64_t highest)
{
	const struct plan *p = &c->plan;
	uint64_t asked = c->conf->weight_version;

	if (!digest_eq(&d->content, &p->content) ||
	    !digest_eq(&d->structure, &p->structure))
		return log_error(E_DATA,
				 "version %llu of registry %s has another "
				 "content than the one that was planned",
				 (ull)p->base, c->reg.path);
	if (p->kind == RUN_ROLLBACK)
		return 0;
	if (highest != p->base)
		return log_error(E_AGAIN,
				 "version %llu was published since version "
				 "%llu was planned; try again",
				 (ull)highest, (ull)p->base);
	if (asked && asked != p->base)
		return log_error(E_USAGE,
				 "--weight-version %llu: what is published is "
				 "version %llu",
				 (ull)asked, (ull)p->base);
	return 0;
}

/* What is joined, or published again, is what the registry says. */
static int find_again(struct commit_io *c)
{
	struct reg_rec d = { 0 };
	uint64_t highest = 0;
	int rc = registry_highest(&c->reg, &highest);

	if (rc == 0)
		rc = registry_decision(&c->reg, c->plan.base, &d);
	if (rc == 0)
		rc = log_error(E_NOINPUT,
			       "version %llu is not published in registry %s",
			       (ull)c->plan.base, c->reg.path);
	if (rc > 0)
		rc = check_again(c, &d.m.decision, highest);
	reg_rec_release(&d);
	return rc;
}

/* One that does not keep the content, or NULL: none needs bytes. */
static const struct engine *find_needy(const struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		for (uint32_t k = 0; !c->m.engine[i].out && k < e->nparts; k++)
			if (!e->part[k].facts.keeps)
				return e;
	}
	return NULL;
}

void commit_seek(struct commit_io *c)
{
	const struct engine *e = find_needy(c);
	struct msg m = { .type = M_seek };

	m.seek.engine = slice_of(e ? e->name : "");
	stage_send(c->s, UP, &m);
}

void commit_found(struct commit_io *c, const struct m_found *f)
{
	if (c->m.state == CS_SEEK)
		log_info("version %llu can be had from %.*s", (ull)c->plan.base,
			 SLICE_ARG(f->place));
	c->found = true;
	free(c->found_at);
	c->found_at = xstrndup(f->place.p, f->place.n);
	commit_feed(c, CE_FOUND, 0);
}

static int refuse_number(const struct commit_numbers *n, const char *who)
{
	if (!n->asked)
		return log_error(E_DATA,
				 "no number is left: %llu is the last, and one "
				 "as high is in use",
				 (ull)VERSION_MAX);
	if (n->pulled > n->served && n->pulled > n->decided)
		return log_error(E_DATA,
				 "version %llu is not above %llu, which was "
				 "tried before: an engine may have pulled that",
				 (ull)n->asked, (ull)n->pulled);
	if (n->served > n->decided)
		return log_error(E_DATA,
				 "version %llu is not above %llu, which engine "
				 "%s serves",
				 (ull)n->asked, (ull)n->served, who);
	return log_error(E_DATA,
			 "version %llu is not above %llu, the highest "
			 "published",
			 (ull)n->asked, (ull)n->decided);
}

/* 0: a new number, in goal; 1: a decided one, with equal structure. */
static int choose_number(struct commit_io *c)
{
	struct commit_numbers n = { .asked = c->conf->weight_version };
	struct reg_rec d = { 0 };
	const char *who = "?";
	int rc = c->plan.kind == RUN_PUBLISH ? 0 : find_again(c);

	if (rc < 0 || c->plan.kind == RUN_JOIN)
		return rc;
	rc = registry_highest(&c->reg, &n.decided);
	if (rc < 0)
		return rc;
	n.served = highest_served(c, &who);
	if (commit_has_pulls(c))
		rc = registry_tried(&c->reg, &n.pulled);
	if (rc < 0)
		return rc;
	if (n.asked) {
		rc = registry_decision(&c->reg, n.asked, &d);
		if (rc < 0)
			return rc;
		/* A rollback takes a new number. */
		n.asked_is_decided = rc > 0 && c->plan.kind == RUN_PUBLISH;
	}
	rc = commit_number(&n, &c->goal.version);
	if (rc == 0)
		rc = commit_expect(c, n.decided);
	else if (rc == -E_AGAIN)
		rc = compare_decided(c, n.asked, &d.m.decision);
	else if (rc < 0)
		rc = refuse_number(&n, who);
	reg_rec_release(&d);
	return rc;
}

static struct m_boot boot_of(const struct engine *e,
			     const struct engine_part *p)
{
	return (struct m_boot){ .engine = e->id,
				.worker = p->worker,
				.id = slice_of(p->boot) };
}

/* Of those that may be touched (for a record). */
static void list_boots(struct commit_io *c)
{
	c->nboots = 0;
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		if (c->m.engine[i].out)
			continue;
		c->boots = xreallocarray(c->boots, c->nboots + e->nparts,
					 sizeof *c->boots);
		for (uint32_t k = 0; k < e->nparts; k++)
			c->boots[c->nboots++] = boot_of(e, &e->part[k]);
	}
}

/* Those that the run may touch, into v.  How many. */
static uint32_t list_touched(struct commit_io *c, struct m_opened_engine *v)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->m.nengines; i++) {
		if (c->m.engine[i].there && !c->m.engine[i].touched)
			continue;
		v[n] = c->who[i];
		v[n].excluded = c->m.engine[i].out;
		v[n].tried = c->m.engine[i].touched;
		engine_record(c->engine[i], &v[n++]);
	}
	return n;
}

int commit_write_open(struct commit_io *c)
{
	struct m_opened_engine *touched;
	char boot[CLOCK_BOOT_ID_LEN + 1];
	struct msg m = { .type = M_open };
	struct m_open *o = &m.open;
	int rc = clock_boot_id(boot);

	if (rc < 0)
		return rc;
	list_boots(c);
	touched = xcalloc(c->m.nengines, sizeof *touched);
	o->registry = slice_of(c->reg.id);
	o->run = slice_of(c->s->run.name);
	o->epoch = c->goal.epoch;
	o->instance = c->goal.instance;
	o->kind = (uint8_t)c->plan.kind;
	o->version = c->goal.version;
	o->structure = c->plan.structure;
	o->boot = slice_of(boot);
	o->deadline_ms = c->deadline_ms;
	o->engine_ms = (uint64_t)c->conf->engine_timeout_ms;
	o->load_ms = (uint64_t)c->conf->load_timeout_ms;
	o->stage_ms = (uint64_t)c->conf->stage_timeout_ms;
	o->engines.v = touched;
	o->engines.n = list_touched(c, touched);
	o->boots.v = c->boots;
	o->boots.n = c->nboots;
	rc = registry_open_write(&c->reg, &m);
	free(touched);
	return rc;
}

static void tell_opened_ledger(struct commit_io *c)
{
	struct reg_event ev = { .event = "opened",
				.run = c->s->run.name,
				.epoch = c->goal.epoch,
				.version = c->goal.version };

	registry_ledger(&c->reg, &ev);
}

/* A join has its version already. */
static int open_new(struct commit_io *c)
{
	int rc;

	c->s->epoch = c->goal.epoch = highest_epoch(c) + 1;
	rc = run_epoch_write(&c->s->run, c->goal.epoch);
	if (rc < 0 || c->plan.kind == RUN_JOIN)
		return rc;
	return registry_version_make(&c->reg, c->goal.version, c->s->run.dirfd);
}

void commit_open(struct commit_io *c)
{
	int rc = c->resumed ? 0 : choose_number(c);

	if (rc == 1) {
		c->s->epoch = c->goal.epoch = highest_epoch(c) + 1;
		commit_feed(c, CE_SAME, 0);
		return;
	}
	if (rc == 0 && !c->resumed && c->plan.kind != RUN_PUBLISH &&
	    !c->found && find_needy(c)) {
		commit_feed(c, CE_SEEK, 0);
		return;
	}
	if (rc == 0 && !c->resumed)
		rc = open_new(c);
	if (rc == 0)
		rc = commit_set_place(c);
	if (rc == 0)
		rc = commit_alone_open(c);
	if (rc == 0)
		rc = commit_write_open(c);
	if (rc < 0) {
		commit_fail(c, rc);
		return;
	}
	c->open_written = true;
	tell_opened_ledger(c);
	commit_feed(c, CE_OPENED, 0);
}

/* Reserving the room of a large version may take long: that is loading. */
void commit_begin(struct commit_io *c)
{
	commit_ask_all(c, EC_BEGIN, c->conf->load_timeout_ms);
}

/* Stores of in-place engines are filled while these serve: all may load at
 * once. */
static uint8_t phase(const struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (c->m.engine[i].in_place)
			return 2;
	return 1;
}

/* Whom transfer has to do with: those that are begun. */
static void list_begun(struct commit_io *c)
{
	uint32_t n = 0;

	list_boots(c);
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		for (uint32_t k = 0; !c->m.engine[i].out && k < e->nparts; k++)
			if (!engine_part_is_there(e, &e->part[k]))
				c->boots[n++] = boot_of(e, &e->part[k]);
	}
	c->nboots = n;
}

/* Engines that no bytes are moved to. */
static void tell_left_out(struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct commit_engine *g = &c->m.engine[i];
		struct msg x = { .type = M_exclude };

		x.exclude.engine = i;
		if (!g->out && c->engine[i]->alone)
			x.exclude.cause = SLICE("loads the source itself");
		else if (g->there)
			x.exclude.cause = SLICE("serves the version already");
		else
			x.exclude.cause =
				SLICE("excluded before the run was opened");
		if (g->out || c->engine[i]->alone)
			stage_send(c->s, UP, &x);
	}
}

void commit_tell_opened(struct commit_io *c)
{
	struct msg m = { .type = M_opened };
	struct m_opened *o = &m.opened;

	if (!c->told_opened) {
		commit_phase(c, PHASE_OPEN);
		events_tell(
			&c->s->events,
			&HAPPENED("opened", .version = EV(c->goal.version)));
	}
	c->told_opened = true;
	list_begun(c);
	o->registry = slice_of(c->reg.id);
	o->epoch = c->goal.epoch;
	o->version = c->goal.version;
	o->phase = phase(c);
	o->hash_only = c->m.same || (!c->goal.whole && !commit_has_stores(c));
	o->proof = c->goal.proof;
	o->engine_ms = (uint64_t)c->conf->engine_timeout_ms;
	o->load_ms = (uint64_t)c->conf->load_timeout_ms;
	o->boots.v = c->boots;
	o->boots.n = c->nboots;
	commit_tell_base(c, o);
	stage_send(c->s, UP, &m);
	tell_left_out(c);
	commit_take_drained(c);
}

void commit_exclude(struct commit_io *c, uint32_t engine)
{
	struct msg m = { .type = M_exclude };
	int rc;

	events_tell(&c->s->events,
		    &HAPPENED("excluded", .version = EV(c->goal.version),
			      .engine = c->engine[engine]->name));
	if (c->open_written) {
		rc = commit_write_open(c);
		if (rc < 0) {
			commit_fail(c, rc);
			return;
		}
	}
	m.exclude.engine = engine;
	if (c->told_opened)
		stage_send(c->s, UP, &m);
	/* Its epoch is closed at once: then it reads no source memory. */
	if (c->m.engine[engine].touched)
		bring_it(&c->bring, c->engine[engine], HE_BACK);
}
