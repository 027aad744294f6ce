/*
 * en_native.c - engines with a weir-engine beside each: one request per
 * receiver over the fan, answered when all receivers have answered.
 *
 * Bytes and post-load are transfer's to move and to seal; flush and
 * set_version are what a swap does by itself.
 */
#include "pipes/engine_ops.h"
#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tag is the part that was asked (two engines of a host may be behind one
 * receiver: recovery), the call and its round. */
#define TAG(route, round, call) \
	((uint64_t)(route) << 40 | (uint64_t)(round) << 8 | (call))
#define TAG_CALL(tag) ((enum engine_call)((tag)&0xff))
#define TAG_ROUND(tag) ((uint32_t)((tag) >> 8))
#define TAG_ROUTE(tag) ((tag) >> 40)
#define ROUTES_MAX (1u << 24)

static void text_of(char *out, size_t size, struct slice s)
{
	snprintf(out, size, "%.*s", SLICE_ARG(s));
}

static int blame(struct engine *e, const struct engine_part *p,
		 enum engine_call call, int rc, const char *why)
{
	snprintf(e->cause, sizeof e->cause, "engine %s (%s): %s: %s", e->name,
		 p->endpoint, engine_call_name(call), why);
	return rc;
}

/* The fan's causes name the endpoint, and what they can of the request. */
static int blame_fan(struct engine *e, enum engine_call call, int rc)
{
	if (rc == -E_TIMEOUT || rc == -E_PROTO || e->absent)
		snprintf(e->cause, sizeof e->cause, "engine %s: %s", e->name,
			 log_cause());
	else
		snprintf(e->cause, sizeof e->cause, "engine %s: %s: %s",
			 e->name, engine_call_name(call), log_cause());
	return rc;
}

static struct m_fence fence(const struct engine_goal *g)
{
	return (struct m_fence){ .registry = slice_of(g->registry),
				 .epoch = g->epoch,
				 .run = slice_of(g->run),
				 .stage = STAGE_COMMIT,
				 .instance = g->instance };
}

static void ask_part(struct engine *e, uint32_t i, uint32_t round,
		     const struct engine_ask *ask, struct msg *m)
{
	struct engine_part *p = &e->part[i];
	uint64_t tag = TAG(p->route, round, ask->call);
	int rc = fan_call(e->host->fan, p->receiver, m, tag, 1,
			  (uint64_t)(ask->ms > 0 ? ask->ms : 1));

	if (rc < 0) {
		e->said = false;
		engine_fail_soon(e, ask->call,
				 blame(e, p, ask->call, rc, err_text(rc)));
	}
}

#define FILL(call)                                                       \
	static void fill_##call(struct engine *e, struct engine_part *p, \
				const struct engine_ask *ask, struct msg *m)

FILL(probe)
{
	(void)ask;
	m->type = M_probe;
	m->probe.fence = fence(e->goal);
	m->probe.name = slice_of(e->name);
	m->probe.version = e->goal->version;
	m->probe.bytes = engine_share(e, p)->bytes;
	m->probe.workers = p->workers;
	m->probe.structure = e->goal->structure;
	if (e->goal->is_again)
		m->probe.content = engine_share(e, p)->content;
}

FILL(begin)
{
	const struct engine_goal *g = e->goal;
	const struct engine_share *s = engine_share(e, p);

	(void)ask;
	m->type = M_begin;
	m->begin.fence = fence(g);
	m->begin.boot = slice_of(p->boot);
	m->begin.version = g->version;
	m->begin.structure = g->structure;
	if (g->is_again)
		m->begin.content = s->content;
	m->begin.bytes = s->bytes;
	m->begin.buckets = g->buckets;
	m->begin.proof = g->proof;
	m->begin.worker = p->worker;
	m->begin.workers = p->workers;
	m->begin.whole = g->whole;
	m->begin.files.v = (struct m_slotfile *)s->files;
	m->begin.files.n = s->nfiles;
}

FILL(receipt)
{
	(void)ask;
	m->type = M_ask_receipt;
	m->ask_receipt.fence = fence(e->goal);
	m->ask_receipt.boot = slice_of(p->boot);
	m->ask_receipt.version = e->goal->version;
}

FILL(pause)
{
	m->type = M_pause;
	m->pause.fence = fence(e->goal);
	m->pause.boot = slice_of(p->boot);
	m->pause.token = ask->token;
	m->pause.lease_ms = e->goal->lease_ms;
}

FILL(swap)
{
	m->type = M_swap;
	m->swap.fence = fence(e->goal);
	m->swap.boot = slice_of(p->boot);
	m->swap.version = e->goal->version;
	m->swap.content = engine_share(e, p)->content;
	m->swap.token = ask->token;
}

FILL(resume)
{
	m->type = M_resume;
	m->resume.fence = fence(e->goal);
	m->resume.boot = slice_of(p->boot);
	m->resume.token = ask->token;
}

FILL(abort)
{
	(void)p;
	m->type = M_cancel;
	m->cancel.fence = fence(e->goal);
	m->cancel.cause = slice_of(ask->cause ? ask->cause : "");
}

static void (*const fill[EC_N])(struct engine *, struct engine_part *,
				const struct engine_ask *, struct msg *) = {
	[EC_PROBE] = fill_probe,     [EC_BEGIN] = fill_begin,
	[EC_RECEIPT] = fill_receipt, [EC_PAUSE] = fill_pause,
	[EC_SWAP] = fill_swap,	     [EC_RESUME] = fill_resume,
	[EC_ABORT] = fill_abort,
};

static bool is_asked(const struct engine *e, const struct engine_part *p,
		     enum engine_call call)
{
	bool fills = call == EC_BEGIN || call == EC_RECEIPT;

	return !fills || !engine_part_is_there(e, p);
}

void native_ask(struct engine *e, const struct engine_ask *ask, uint32_t more)
{
	uint32_t round, n = more;

	for (uint32_t i = 0; i < e->nparts; i++)
		n += is_asked(e, &e->part[i], ask->call);
	if (n == 0) {
		engine_skip(e, ask);
		return;
	}
	round = engine_open_call(e, ask->call, n);
	for (uint32_t i = 0; i < e->nparts; i++) {
		struct msg m = { 0 };

		if (!is_asked(e, &e->part[i], ask->call))
			continue;
		fill[ask->call](e, &e->part[i], ask, &m);
		ask_part(e, i, round, ask, &m);
	}
}

static void native_call(struct engine *e, const struct engine_ask *ask)
{
	native_ask(e, ask, 0);
}

static void native_ended(struct engine *e, enum engine_call c, int rc)
{
	(void)e, (void)c, (void)rc;
}

static const enum msg_type reply_of[EC_N] = {
	[EC_PROBE] = M_state,	  [EC_BEGIN] = M_begun,
	[EC_PAUSE] = M_paused,	  [EC_RECEIPT] = M_receipt,
	[EC_SWAP] = M_swapped,	  [EC_RESUME] = M_resumed,
	[EC_ABORT] = M_cancelled,
};

static void take_state(struct engine_part *p, const struct m_state *s)
{
	struct engine_facts *f = &p->facts;

	if (p->boot[0] && !slice_eq(s->boot, slice_of(p->boot)))
		p->reborn = true;
	text_of(p->boot, sizeof p->boot, s->boot);
	text_of(f->registry, sizeof f->registry, s->registry);
	f->epoch = s->epoch;
	f->serving = s->serving;
	f->staged = s->staged;
	f->room = s->room;
	f->structure = s->structure;
	f->content = s->content;
	f->sealed = s->sealed;
	f->paused = s->paused;
	f->adopts = s->adopts;
	f->keeps = s->keeps;
	free(f->store);
	f->store = s->store.n ? xstrndup(s->store.p, s->store.n) : NULL;
}

static void take_receipt(struct engine_part *p, const struct m_receipt *r)
{
	struct engine_receipt *o = p->receipt;

	if (!o)
		o = p->receipt = xmalloc(sizeof *o);
	*o = (struct engine_receipt){ .worker = r->worker,
				      .workers = r->workers,
				      .epoch = r->epoch,
				      .version = r->version,
				      .bytes = r->bytes,
				      .received = r->received,
				      .installed = r->installed,
				      .proof = r->proof,
				      .varies = r->varies };
	text_of(o->engine, sizeof o->engine, r->engine);
	text_of(o->boot, sizeof o->boot, r->boot);
	text_of(o->registry, sizeof o->registry, r->registry);
	text_of(o->run, sizeof o->run, r->run);
	text_of(o->post_load, sizeof o->post_load, r->post_load);
	text_of(o->place, sizeof o->place, r->place);
}

/* Fenced off because it was started again: not for ever, as by a newer run;
 * a probe learns its new boot. */
static int refusal(const struct engine_part *p, const struct m_refused *r)
{
	bool reborn = p->boot[0] && r->boot.n > 0 &&
		      !slice_eq(r->boot, slice_of(p->boot));

	if (r->code == E_FENCED && reborn)
		return -E_UNAVAIL;
	/* Its disk and memory are not ours: to us it is unavailable. */
	if (r->code == E_IO || r->code == E_NOMEM)
		return -E_UNAVAIL;
	return r->code ? -(int)r->code : -E_PROTO;
}

static bool is_strange(const struct m_state *s, char *why, size_t size)
{
	if (s->table == msg_table_hash())
		return false;
	snprintf(why, size,
		 "it " MSG_STRANGE " (build %.*s): restart it with this build "
		 "(" PACKAGE_VERSION ")",
		 SLICE_ARG(s->build));
	return true;
}

/* A name that is not the fleet's is another engine at that address. */
static int take(struct engine *e, struct engine_part *p, enum engine_call call,
		const struct msg *m)
{
	char why[ENGINE_CAUSE / 2];

	if (m->type == M_refused) {
		snprintf(why, sizeof why, "%.*s", SLICE_ARG(m->refused.cause));
		return blame(e, p, call, refusal(p, &m->refused), why);
	}
	if (m->type != reply_of[call]) {
		snprintf(why, sizeof why, "expected %s, got %s",
			 msg_name(reply_of[call]), msg_name(m->type));
		return blame(e, p, call, -E_PROTO, why);
	}
	if (m->type == M_state && is_strange(&m->state, why, sizeof why))
		return blame(e, p, call, -E_PROTO, why);
	if (m->type == M_state && !slice_eq(m->state.name, slice_of(e->name))) {
		snprintf(why, sizeof why,
			 "it calls itself \"%.*s\": both need one name",
			 SLICE_ARG(m->state.name));
		return blame(e, p, call, -E_CONFIG, why);
	}
	if (m->type == M_swapped && m->swapped.version != e->goal->version) {
		snprintf(why, sizeof why, "it now serves %llu, expected %llu",
			 (unsigned long long)m->swapped.version,
			 (unsigned long long)e->goal->version);
		return blame(e, p, call, -E_PROTO, why);
	}
	if (m->type == M_state)
		take_state(p, &m->state);
	if (m->type == M_receipt)
		take_receipt(p, &m->receipt);
	if (m->type == M_resumed)
		p->pause_us = m->resumed.pause_us;
	return 0;
}

static void on_reply(void *arg, uint32_t receiver, uint64_t tag,
		     const struct msg *m, int rc)
{
	struct engine_host *h = arg;
	struct engine_route *r = &h->route[TAG_ROUTE(tag)];
	struct engine *e = r->e;
	enum engine_call call = TAG_CALL(tag);

	if (e->open[call].left == 0 || TAG_ROUND(tag) != e->open[call].round)
		return; /* of a call that was given up */
	e->absent = rc == -E_UNAVAIL && fan_is_absent(h->fan, receiver);
	e->said = rc >= 0;
	if (rc < 0)
		rc = blame_fan(e, call, rc);
	else
		rc = take(e, &e->part[r->part], call, m);
	engine_part_done(e, call, rc);
}

static void on_stray(void *arg, uint32_t receiver, const struct msg *m)
{
	(void)arg;
	log_debug("receiver %u: late %s dropped", receiver, msg_name(m->type));
}

static void on_lost(void *arg, uint32_t receiver)
{
	struct engine_host *h = arg;

	for (uint32_t i = 0; h->lost && i < h->nroutes; i++) {
		struct engine_route *r = &h->route[i];

		if (r->e->part[r->part].receiver == receiver)
			h->lost(h->arg, r->e);
	}
}

static const struct fan_ops fan_calls = {
	.reply = on_reply,
	.stray = on_stray,
	.lost = on_lost,
};

/* The fan knows each endpoint once. */
static int find_receiver(const struct engine_host *h, const char *endpoint)
{
	for (uint32_t i = 0; i < h->nroutes; i++) {
		const struct engine_route *r = &h->route[i];
		const struct engine_part *p = &r->e->part[r->part];

		if (strcmp(p->endpoint, endpoint) == 0)
			return (int)p->receiver;
	}
	return -E_NOINPUT;
}

static int add_route(struct engine *e, uint32_t i)
{
	struct engine_host *h = e->host;
	int id = find_receiver(h, e->part[i].endpoint);

	if (id < 0) {
		int rc = fan_add(h->fan, e->part[i].endpoint);

		if (rc < 0)
			return rc;
		id = (int)h->nreceivers++;
	}
	BUG_ON(h->nroutes >= ROUTES_MAX);
	e->part[i].receiver = (uint32_t)id;
	e->part[i].route = h->nroutes;
	h->route = xreallocarray(h->route, h->nroutes + 1, sizeof *h->route);
	h->route[h->nroutes].e = e;
	h->route[h->nroutes++].part = i;
	return 0;
}

int native_open(struct engine *e)
{
	struct engine_host *h = e->host;
	int rc = 0;

	if (!h->fan) {
		h->fan = fan_new(h->loop, &fan_calls, h);
		if (!h->fan)
			return -E_IO;
		rc = fan_reserve(h->fan, h->expect, 0);
	}
	for (uint32_t i = 0; rc == 0 && i < e->nparts; i++)
		rc = add_route(e, i);
	return rc;
}

void native_close(struct engine *e)
{
	for (unsigned c = 0; c < EC_N; c++)
		e->open[c].left = 0;
	if (!e->host->fan)
		return;
	for (uint32_t i = 0; i < e->nparts; i++)
		if (e->part[i].receiver != ID_NONE)
			fan_forget(e->host->fan, e->part[i].receiver);
}

const struct engine_ops en_native_ops = {
	.name = "native",
	.kind = ENGINE_NATIVE,
	.open = native_open,
	.call = {
		[EC_PROBE] = native_call,
		[EC_BEGIN] = native_call,
		[EC_PAUSE] = native_call,
		[EC_FLUSH] = engine_skip,
		[EC_LOAD] = engine_skip,
		[EC_SEAL] = engine_skip,
		[EC_RECEIPT] = native_call,
		[EC_SWAP] = native_call,
		[EC_SET_VERSION] = engine_skip,
		[EC_RESUME] = native_call,
		[EC_ABORT] = native_call,
	},
	.ended = native_ended,
	.close = native_close,
};
