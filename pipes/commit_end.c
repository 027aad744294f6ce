#include "pipes/commit_io.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- receipts ---- */

static bool serves(const struct engine *e, uint64_t version)
{
	for (uint32_t k = 0; k < e->nparts; k++)
		if (e->part[k].facts.serving != version)
			return false;
	return engine_tells(e, version);
}

/* A decided number again: equal content is success, for those who serve it. */
static void compare_content(struct commit_io *c)
{
	char want[DIGEST_HEX], got[DIGEST_HEX];

	if (!digest_eq(&c->drained.content, &c->published)) {
		commit_fail(c, log_error(E_DATA,
					 "version %llu is published with "
					 "content %s, this source has %s",
					 (ull)c->goal.version,
					 digest_hex(&c->published, want),
					 digest_hex(&c->drained.content, got)));
		return;
	}
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (!serves(c->engine[i], c->goal.version))
			commit_feed(c, CE_AWAY, i);
	commit_feed(c, CE_DRAINED, 0);
}

void commit_drained(struct commit_io *c, const struct m_drained *d)
{
	if (c->m.state > CS_HASH)
		return; /* said again after a restart */
	if (d->shares.n > c->plan.nranks) {
		commit_fail(c, log_error(E_PROTO, "drained of %u shares",
					 d->shares.n));
		return;
	}
	c->drained = *d;
	c->drained.shares.v = c->shares;
	for (uint32_t i = 0; i < d->shares.n; i++)
		c->shares[i] = d->shares.v[i];
	c->has_drained = true;
	commit_take_drained(c);
}

/* Transfer says it once on a link; a restarted commit may still be probing
 * then. */
void commit_take_drained(struct commit_io *c)
{
	int rc;

	if (!c->has_drained || (c->m.state != CS_LOAD && c->m.state != CS_HASH))
		return;
	rc = engine_goal_content(&c->goal, &c->drained.content,
				 c->drained.shares.v, c->drained.shares.n);
	if (rc == 0 && c->plan.kind != RUN_PUBLISH &&
	    !digest_eq(&c->drained.content, &c->plan.content))
		rc = log_error(E_DATA, "the source has another content than "
				       "was published");
	commit_phase(c, PHASE_SEAL);
	if (rc < 0)
		commit_fail(c, rc);
	else if (c->m.state == CS_HASH)
		compare_content(c);
	else
		commit_feed(c, CE_DRAINED, 0);
}

static void take_receipt(struct commit_io *c, struct engine *e, int rc)
{
	struct receipt_want w = { .proof = (uint8_t)c->conf->accept_proof };

	if (rc < 0) {
		commit_lose(c, e->id, rc, e->cause, false);
		return;
	}
	rc = receipt_check(e, &w);
	if (rc < 0)
		commit_lose(c, e->id, rc, log_cause(), true);
	else
		commit_feed(c, CE_RECEIPT, e->id);
}

void commit_receipt(struct commit_io *c, struct engine *e, int rc)
{
	take_receipt(c, e, rc);
	commit_pulled(c, e);
}

/* ---- the decision ---- */

static bool *list_skipped(const struct commit_io *c)
{
	bool *skip = xcalloc(c->m.nengines, sizeof *skip);

	for (uint32_t i = 0; i < c->m.nengines; i++)
		skip[i] = c->m.engine[i].out;
	return skip;
}

static int append_receipts(const struct engine *e, struct buf *b,
			   uint32_t *count)
{
	for (uint32_t k = 0; k < e->nparts; k++) {
		struct msg m;
		int rc;

		receipt_msg(e->part[k].receipt, &m);
		++*count;
		rc = b ? rec_append(b, &m) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int write_receipts(struct commit_io *c, const bool *skip)
{
	struct msg head = { .type = M_receipts };
	uint32_t count = 0;
	struct buf b = { 0 };
	int rc;

	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (!skip[i])
			append_receipts(c->engine[i], NULL, &count);
	head.receipts.registry = slice_of(c->reg.id);
	head.receipts.run = slice_of(c->s->run.name);
	head.receipts.epoch = c->goal.epoch;
	head.receipts.count = count;
	rc = rec_append(&b, &head);
	for (uint32_t i = 0; rc == 0 && i < c->m.nengines; i++)
		if (!skip[i])
			rc = append_receipts(c->engine[i], &b, &count);
	if (rc == 0)
		rc = registry_receipts_write(&c->reg, c->goal.version,
					     buf_slice(&b));
	buf_release(&b);
	return rc;
}

static void fill_decision(struct commit_io *c, const bool *skip,
			  struct m_decision *d)
{
	d->registry = slice_of(c->reg.id);
	d->run = slice_of(c->s->run.name);
	d->epoch = c->goal.epoch;
	d->version = c->goal.version;
	d->content = c->goal.content;
	d->shares.v = c->shares;
	d->shares.n = engine_goal_shares(&c->goal, c->shares);
	d->structure = c->plan.structure;
	d->proof = receipt_proof(c->engine, c->m.nengines, skip);
	d->bytes = c->plan.bytes;
	d->wall_ms = clock_wall_ms();
	d->source = slice_of(c->plan.rank[0].source);
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		c->who[i].excluded = skip[i];
		c->who[i].tried = c->m.engine[i].touched;
	}
	d->engines.v = c->who;
	d->engines.n = c->m.nengines;
}

/* Derived; a decision stands whether or not they could be written. */
static void derive(struct commit_io *c)
{
	struct reg_event ev = { .event = "decided",
				.run = c->s->run.name,
				.epoch = c->goal.epoch,
				.version = c->goal.version,
				.content = &c->goal.content };

	int was = log_quiet_thread(1), rc = registry_repair_current(&c->reg);

	log_quiet_thread(was);
	if (rc < 0)
		log_warn("version %llu is decided, but not the registry's "
			 "current yet: %s",
			 (ull)c->goal.version, log_cause());
	registry_ledger(&c->reg, &ev);
}

/* Once link was called all that is said is that nobody knows. */
static int decide_once(struct commit_io *c, const struct msg *decision,
		       bool *linked)
{
	int was = log_quiet_thread(1);
	int rc = registry_decide(&c->reg, decision, linked);

	log_quiet_thread(was);
	return rc < 0 && !*linked ? log_error(-rc, "%s", log_cause()) : rc;
}

/* Each is as it was asked to be, but they do not serve the same bytes. */
static void warn_mixed(const struct commit_io *c, const bool *skip)
{
	const struct engine *odd =
		receipt_odd_load(c->engine, c->m.nengines, skip);

	if (odd)
		log_warn("engines differ in --post-load: that of engine %s is "
			 "\"%s\"; they serve version %llu in different forms",
			 odd->name, receipt_of(odd)->post_load,
			 (ull)c->goal.version);
}

/* 0: decided.  *linked as io_create_once(). */
static int decide(struct commit_io *c, const bool *skip, bool *linked)
{
	struct msg d = { .type = M_decision };
	uint32_t odd;
	int rc = receipt_agree(c->engine, c->m.nengines, skip, &odd);

	if (rc == 0)
		rc = load_agree(c->engine, c->m.nengines, skip);
	if (rc == 0)
		rc = commit_alone_check(c);
	if (rc == 0)
		warn_mixed(c, skip);
	/* A join's receipts have been compared with the decision. */
	if (rc < 0 || c->plan.kind == RUN_JOIN)
		return rc;
	rc = write_receipts(c, skip);
	if (rc < 0)
		return rc;
	fill_decision(c, skip, &d.decision);
	return decide_once(c, &d, linked);
}

void commit_decide(struct commit_io *c)
{
	bool *skip = list_skipped(c), linked = false;
	int rc = decide(c, skip, &linked);

	free(skip);
	if (rc < 0 && linked) {
		log_error(E_AGAIN,
			  "version %llu: whether it is decided is unknown: %s; "
			  "the next commit finds out, see weir status",
			  (ull)c->goal.version,
			  rc == -E_AGAIN ? "it was decided beside us"
					 : log_cause());
		commit_feed(c, CE_UNKNOWN, 0);
		return;
	}
	if (rc < 0) {
		commit_fail(c, rc);
		return;
	}
	commit_phase(c, PHASE_DECIDE);
	if (c->plan.kind != RUN_JOIN) {
		events_tell(&c->s->events,
			    &HAPPENED("decided", .version = EV(c->goal.version),
				      .bytes = EV(c->plan.bytes)));
		derive(c);
	}
	commit_feed(c, CE_AGREED, 0);
}

/* ---- home ---- */

void commit_swap(struct commit_io *c)
{
	enum homing_ev how = c->ahead ? HE_FIND : HE_FORWARD;

	c->bring.cause = "excluded from the run";
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (c->m.engine[i].touched)
			bring_it(&c->bring, c->engine[i],
				 c->m.engine[i].out ? HE_BACK : how);
}

void commit_cancel(struct commit_io *c)
{
	c->bring.cause = c->cause ? c->cause : "aborted";
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (c->m.engine[i].touched)
			bring_it(&c->bring, c->engine[i], HE_BACK);
}

static uint64_t longest_pause(const struct engine *e)
{
	uint64_t us = 0;

	for (uint32_t k = 0; k < e->nparts; k++)
		if (e->part[k].pause_us > us)
			us = e->part[k].pause_us;
	return us;
}

static void tell_swapped(struct commit_io *c, const struct engine *e)
{
	struct reg_event ev = { .event = "serving",
				.run = c->s->run.name,
				.engine = e->name,
				.version = c->goal.version,
				.content = &c->goal.content };

	events_tell(&c->s->events,
		    &HAPPENED("swapped", .version = EV(c->goal.version),
			      .ms = EV(longest_pause(e) / 1000),
			      .engine = e->name));
	registry_ledger(&c->reg, &ev);
}

/* What ended the run, or left it out, was an error, and has been said. */
static void tell_away(struct commit_io *c, const struct engine *e, bool forward)
{
	static const char to[] = "it goes into the registry's attention";

	if (!log_few(&c->left, forward ? LOG_ERROR : LOG_WARN))
		return;
	if (forward)
		log_error(E_UNAVAIL, "%s; %s", e->cause, to);
	else
		log_warn("%s; %s", e->cause, to);
}

void commit_brought(struct commit_io *c, struct engine *e, bool home)
{
	bool forward = c->m.published && !c->m.engine[e->id].out;

	if (home && forward)
		tell_swapped(c, e);
	if (!home) {
		tell_away(c, e, forward);
		events_tell(&c->s->events,
			    &HAPPENED("lagging", .engine = e->name,
				      .cause = e->cause));
	}
	commit_feed(c, home ? CE_HOME : CE_AWAY, e->id);
}

/* ---- the end ---- */

/* Is this engine owed our version? */
static bool is_owed(const struct commit_io *c, const struct commit_engine *g)
{
	return c->m.published && !g->out;
}

/* A decided version mends what an older run left; a newer record is enough,
 * but not for a decided version that our run, undecided, has not brought. */
static bool is_mended(const struct commit_io *c, const struct m_attention *a)
{
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct commit_engine *g = &c->m.engine[i];

		if (!slice_eq(a->engine.name, slice_of(c->engine[i]->name)))
			continue;
		if (g->away && g->touched)
			return is_owed(c, g) || !a->decided;
		return g->home && is_owed(c, g);
	}
	return false;
}

/* Records that recovery kept stay, but of engines that are home now; this
 * run's are added. */
static int keep_attention(struct commit_io *c, struct buf *b, uint32_t *mended)
{
	struct reg_rec old = { 0 };
	struct msg_arena arena = { 0 };
	struct slice frame;
	struct msg m;
	int rc = registry_attention_read(&c->reg, &old);

	if (rc > 0)
		rc = rec_next_frame(&old.rec, &frame);
	while (rc > 0) {
		rc = msg_unpack(&m, &arena, frame);
		if (rc < 0)
			break;
		if (is_mended(c, &m.attention))
			++*mended;
		else
			rc = rec_append(b, &m);
		if (rc == 0)
			rc = rec_next_frame(&old.rec, &frame);
	}
	msg_arena_release(&arena);
	reg_rec_release(&old);
	return rc;
}

static int write_attention(struct commit_io *c)
{
	struct buf b = { 0 };
	uint32_t n = 0;
	int rc = keep_attention(c, &b, &n);

	for (uint32_t i = 0; rc == 0 && i < c->m.nengines; i++) {
		const struct commit_engine *g = &c->m.engine[i];

		if (!g->away || !g->touched)
			continue;
		n++;
		rc = attention_append(&b, c->engine[i], &c->who[i],
				      is_owed(c, g));
	}
	if (rc == 0 && n)
		rc = registry_attention_write(&c->reg, buf_slice(&b));
	buf_release(&b);
	return rc;
}

static void ledger_end(struct commit_io *c)
{
	bool joins = c->plan.kind == RUN_JOIN;
	struct reg_event ev = { .event = !c->m.published ? "aborted"
					 : joins	 ? "joined"
							 : "published",
				.run = c->s->run.name,
				.epoch = c->goal.epoch,
				.version = c->goal.version,
				.cause = c->cause };

	if (c->open_written)
		registry_ledger(&c->reg, &ev);
	events_tell(&c->s->events,
		    &HAPPENED(ev.event, .version = EV(c->goal.version),
			      .code = commit_exit(&c->m), .cause = c->cause));
}

static char *verdict_cause(const struct commit_io *c, uint8_t code)
{
	struct buf b = { 0 };

	if (code == 0)
		return NULL;
	if (c->m.unknown)
		return xasprintf("whether version %llu is decided is unknown",
				 (ull)c->goal.version);
	if (code == 3)
		buf_addf(&b, "version %llu is published, engines lag: ",
			 (ull)c->goal.version);
	else if (code == 2)
		buf_addf(&b, "%s; engines need attention: ",
			 c->cause ? c->cause : "aborted");
	else
		buf_addf(&b, "%s", c->cause ? c->cause : "failed");
	if (code == 2 || code == 3)
		commit_names_lagging(c, &b);
	if (b.n > 2048)
		b.n = 2048;
	buf_cstr(&b);
	return b.p;
}

/* The verdict is on disk before `open` goes: killed between the two, the
 * next commit only finishes a finished run again. */
static void give_verdict(void *arg)
{
	struct commit_io *c = arg;

	stage_verdict(c->s, &c->verdict);
	if (c->open_written && !c->m.unknown)
		registry_open_remove(&c->reg);
	commit_prune(c);
	registry_unlock(&c->reg);
}

/* Given a moment later: it closes the engines, whose answer may have brought
 * us here. */
void commit_verdict(struct commit_io *c)
{
	uint8_t code = commit_exit(&c->m);
	struct m_verdict *v = &c->verdict.verdict;

	/* A signal may have come while it was waited for: it must not write to
	 * the registry behind us. */
	recover_stop(&c->recover);
	/* Without attention on disk, `open` must stay. */
	if (c->open_written && !c->m.unknown && write_attention(c) < 0)
		c->open_written = false;
	commit_phase(c, PHASE_SWAP);
	log_few_end(&c->excluded);
	log_few_end(&c->left);
	c->verdict.type = M_verdict;
	c->verdict_cause = verdict_cause(c, code);
	v->exit = code;
	v->signal = c->m.signal;
	v->version = c->m.published ? c->goal.version : 0;
	if (c->m.published)
		v->content = c->m.same ? c->published : c->goal.content;
	v->cause = slice_of(c->verdict_cause ? c->verdict_cause : "");
	ledger_end(c);
	commit_tell_result(c, code);
	c->end_timer.fn = give_verdict;
	c->end_timer.arg = c;
	loop_arm(c->s->loop, &c->end_timer, 0);
}
