#include "pipes/status_part.h"
#include "common/err.h"
#include "common/fleet.h"
#include "common/http.h"
#include "common/log.h"
#include "common/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MAX (4u << 20) /* bytes of the ledger: since when they serve */

/* ---- the registry ---- */

static int read_registry(struct status *st)
{
	struct reg_rec d = { 0 };
	struct buf line = { 0 };
	int rc = registry_highest(&st->reg, &st->version);

	if (rc == 0 && st->version)
		rc = registry_decision(&st->reg, st->version, &st->decision);
	st->has_decision = rc > 0;
	if (rc >= 0)
		rc = registry_open_read(&st->reg, &st->open);
	st->has_open = rc > 0;
	if (st->has_open) {
		const struct m_open *o = &st->open.m.open;

		rc = registry_decision(&st->reg, o->version, &d);
		st->open_is_decided = rc > 0 && d.m.decision.epoch == o->epoch;
		reg_rec_release(&d);
	}
	if (rc >= 0)
		rc = registry_is_free(&st->reg);
	if (rc < 0)
		return rc;
	st->is_held = rc == 0;
	registry_holder(&st->reg, &st->holder);
	rc = registry_ledger_last(&st->reg, &line);
	if (rc > 0)
		ledger_parse(&st->last, buf_slice(&line));
	buf_release(&line);
	return rc < 0 ? rc : 0;
}

/* ---- which engines ---- */

/* Workers that share a receiver are asked once. */
static bool has_row(const struct status *st, struct slice name,
		    struct slice endpoint)
{
	for (uint32_t i = st->nrows; i-- > 0;) {
		const struct row *r = &st->row[i];

		if (!slice_eq(slice_of(r->name), name))
			return false;
		if (slice_eq(slice_of(r->endpoint), endpoint))
			return true;
	}
	return false;
}

static void add_row(struct status *st, struct slice name, struct slice endpoint,
		    enum engine_kind kind, uint32_t worker, struct slice url)
{
	if (has_row(st, name, endpoint))
		return;
	st->row = xreallocarray(st->row, st->nrows + 1, sizeof *st->row);
	st->row[st->nrows++] = (struct row){
		.name = xstrndup(name.p, name.n),
		.endpoint = xstrndup(endpoint.p, endpoint.n),
		.url = xstrndup(url.p ? url.p : "", url.n),
		.kind = kind,
		.worker = worker,
	};
}

static int rows_of_fleet(struct status *st)
{
	const struct status_conf *conf = st->conf;
	struct fleet f = { 0 };
	int rc = conf->fleet ? fleet_read(&f, conf->fleet) : 0;

	for (size_t i = 0; rc == 0 && i < conf->engines.n; i++)
		rc = fleet_add_endpoint(&f, conf->engines.v[i]);
	if (rc == 0)
		rc = fleet_check(&f, conf->fleet ? conf->fleet : "--engine");
	for (uint32_t i = 0; rc == 0 && i < f.n; i++) {
		const struct fleet_engine *e = &f.engine[i];

		struct slice url = slice_of(e->url ? e->url : "");

		for (uint32_t k = 0; k < e->nworkers; k++)
			add_row(st, slice_of(e->name), slice_of(e->endpoint[k]),
				(enum engine_kind)e->kind, k, url);
		if (e->nworkers == 0)
			add_row(st, slice_of(e->name), SLICE(""),
				(enum engine_kind)e->kind, 0, url);
	}
	fleet_release(&f);
	return rc;
}

static void rows_of_decision(struct status *st)
{
	const struct m_decision *d = &st->decision.m.decision;

	for (uint32_t i = 0; st->has_decision && i < d->engines.n; i++) {
		const struct m_opened_engine *e = &d->engines.v[i];

		for (uint32_t k = 0; k < e->workers.n; k++)
			add_row(st, e->name, e->workers.v[k],
				(enum engine_kind)e->kind, k, e->url);
		if (e->workers.n == 0)
			add_row(st, e->name, SLICE(""),
				(enum engine_kind)e->kind, 0, e->url);
	}
}

/* ---- asking them ---- */

static void text_of(char *out, size_t size, struct slice s)
{
	snprintf(out, size, "%.*s", SLICE_ARG(s));
}

static void take_state(struct row *r, const struct m_state *s)
{
	r->answered = true;
	r->serving = s->serving;
	r->staged = s->staged;
	r->sealed = s->sealed;
	r->paused = s->paused;
	r->content = s->content;
	r->pause_us = s->pause_us;
	text_of(r->boot, sizeof r->boot, s->boot);
}

static void on_reply(void *arg, uint32_t receiver, uint64_t tag,
		     const struct msg *m, int rc)
{
	struct status *st = arg;
	struct row *r = &st->row[tag];

	(void)receiver;
	if (rc < 0)
		snprintf(r->why, sizeof r->why, "%s", log_cause());
	else if (m->type == M_state)
		take_state(r, &m->state);
	else if (m->type == M_refused)
		text_of(r->why, sizeof r->why, m->refused.cause);
	else
		snprintf(r->why, sizeof r->why, "answered %s",
			 msg_name(m->type));
	if (--st->left == 0)
		loop_stop(st->loop, 0);
}

/* What it serves is what its server tells; the rest is its store's. */
static void on_answer(void *arg, struct engine *e, enum engine_call call,
		      int rc)
{
	const struct engine_facts *f = &e->part[0].facts;
	struct status *st = arg;
	struct row *r = &st->row[e->id];

	(void)call;
	if (rc < 0) {
		snprintf(r->why, sizeof r->why, "%.*s", WHY_MAX - 1, e->cause);
	} else {
		r->answered = true;
		r->serving = e->live.label;
		r->staged = f->staged;
		r->sealed = f->sealed;
		r->paused = e->live.paused;
		if (e->alone && e->live.label == st->version)
			r->content = st->decision.m.decision.content;
		else if (f->serving == e->live.label)
			r->content = f->content;
		memcpy(r->boot, e->part[0].boot, sizeof r->boot);
	}
	if (--st->left == 0)
		loop_stop(st->loop, 0);
}

static void on_stray(void *arg, uint32_t receiver, const struct msg *m)
{
	(void)arg;
	(void)receiver;
	(void)m;
}

static void on_lost(void *arg, uint32_t receiver)
{
	(void)arg;
	(void)receiver;
}

static const struct fan_ops calls = {
	.reply = on_reply,
	.stray = on_stray,
	.lost = on_lost,
};

static void ask_server(struct status *st, uint32_t i)
{
	struct engine_ask ask = { .call = EC_PROBE,
				  .ms = st->conf->timeout_ms };
	struct row *r = &st->row[i];
	struct slice worker = slice_of(r->endpoint);
	struct m_opened_engine who = { .name = slice_of(r->name),
				       .kind = (uint8_t)r->kind,
				       .url = slice_of(r->url),
				       .workers = { &worker, worker.n > 0 } };
	struct engine *e = engine_add(&st->host, i, &who, &st->goal);

	if (!e) {
		snprintf(r->why, sizeof r->why, "%.*s", WHY_MAX - 1,
			 log_cause());
		return;
	}
	st->left++;
	engine_ask(e, &ask);
}

static void ask_row(struct status *st, uint32_t i)
{
	struct msg m = { .type = M_status };
	struct row *r = &st->row[i];
	int rc;

	if (r->kind != ENGINE_NATIVE) {
		ask_server(st, i);
		return;
	}
	rc = fan_add(st->fan, r->endpoint);
	if (rc == 0)
		rc = fan_call(st->fan, st->nasked++, &m, i, 1,
			      (uint64_t)st->conf->timeout_ms);
	if (rc < 0) {
		snprintf(r->why, sizeof r->why, "%s", err_text(rc));
		return;
	}
	st->left++;
}

static int ask_engines(struct status *st)
{
	int rc = -E_IO;

	st->goal.registry = st->goal.run = "";
	st->goal.share = &st->share;
	st->goal.nshares = 1;
	st->goal.token = st->token;
	st->loop = loop_new();
	engine_host_init(&st->host, st->loop, st);
	st->host.answer = on_answer;
	st->host.expect = st->nrows;
	st->fan = fan_new(st->loop, &calls, st);
	if (st->fan)
		rc = fan_reserve(st->fan, st->nrows, 0);
	for (uint32_t i = 0; rc == 0 && i < st->nrows; i++)
		ask_row(st, i);
	if (st->left)
		loop_run(st->loop);
	engine_host_release(&st->host);
	if (st->fan)
		fan_free(st->fan);
	loop_free(st->loop);
	sock_end();
	return rc;
}

/* ---- since when ---- */

/* The last time that an engine began to serve what it serves now. */
static void take_serving(struct status *st, const struct ledger_line *l)
{
	for (uint32_t i = 0; i < st->nrows; i++)
		if (strcmp(st->row[i].name, l->engine) == 0 &&
		    st->row[i].serving == l->version)
			st->row[i].since_ms = l->wall_ms;
}

static void read_since(struct status *st)
{
	struct ledger_line l;
	struct buf tail = { 0 };
	const char *at, *end;

	if (!st->has_reg || registry_ledger_tail(&st->reg, LOOK_MAX, &tail) < 0)
		return;
	end = tail.p + tail.n;
	for (at = tail.p; at < end;) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t n = (size_t)((nl ? nl : end) - at);

		if (ledger_parse(&l, (struct slice){ at, n }) &&
		    strcmp(l.event, "serving") == 0)
			take_serving(st, &l);
		at += n + 1;
	}
	buf_release(&tail);
}

/* ---- what it means ---- */

/* What is published, of several source ranks this worker's. */
static const struct digest *content_for(const struct status *st,
					const struct row *r)
{
	const struct m_decision *d = &st->decision.m.decision;

	return r->worker < d->shares.n ? &d->shares.v[r->worker].content
				       : &d->content;
}

bool status_is_lagging(const struct status *st, const struct row *r)
{
	return st->has_decision &&
	       (!r->answered || r->serving != st->version ||
		!digest_eq(&r->content, content_for(st, r)));
}

static bool any_lags(const struct status *st)
{
	for (uint32_t i = 0; i < st->nrows; i++)
		if (status_is_lagging(st, &st->row[i]))
			return true;
	return false;
}

int status_attention(struct status *st,
		     void (*fn)(void *, const struct m_attention *), void *arg)
{
	struct reg_rec a = { 0 };
	int rc = 0, n = 0;

	if (st->has_reg)
		rc = registry_attention_read(&st->reg, &a);
	while (rc > 0 && (rc = rec_next(&a.rec, &a.m, &a.arena)) > 0) {
		if (a.m.type != M_attention)
			continue;
		n++;
		if (fn)
			fn(arg, &a.m.attention);
	}
	reg_rec_release(&a);
	return rc < 0 ? rc : n;
}

/* ---- the whole ---- */

static bool asks_for_engines(const struct status *st)
{
	return st->conf->fleet || st->conf->engines.n;
}

static int look(struct status *st)
{
	int rc = 0;

	if (st->conf->common.registry)
		st->path = xstrdup(st->conf->common.registry);
	else
		rc = registry_default_path(&st->path);
	if (rc == 0)
		rc = registry_look(&st->reg, st->path);
	st->has_reg = rc == 0;
	if (rc == -E_NOINPUT && asks_for_engines(st))
		return 0;
	if (rc == -E_NOINPUT)
		log_error(E_NOINPUT,
			  "no registry at %s: nothing was ever "
			  "published here",
			  st->path);
	return rc;
}

/* Without a registry, somebody must have told something. */
static int has_seen_any(const struct status *st)
{
	for (uint32_t i = 0; i < st->nrows; i++)
		if (st->row[i].answered)
			return 0;
	if (st->has_reg)
		return 0;
	return log_error(E_NOINPUT, "no registry at %s, and no engine answers",
			 st->path);
}

static int print(struct status *st)
{
	int rc = 0;

	if (st->conf->common.json)
		rc = status_print_json(st);
	else
		status_print_text(st);
	if (fflush(stdout) != 0)
		rc = log_errno(E_IO, "write to standard output");
	return rc;
}

static int show(struct status *st)
{
	int rc = st->has_reg ? read_registry(st) : 0, n;

	if (rc == 0 && asks_for_engines(st))
		rc = rows_of_fleet(st);
	else
		rows_of_decision(st);
	if (rc == 0 && st->nrows)
		rc = ask_engines(st);
	if (rc < 0)
		return err_exit_code(rc);
	read_since(st);
	n = status_attention(st, NULL, NULL);
	rc = print(st);
	if (rc == 0)
		rc = has_seen_any(st);
	if (rc < 0 || n < 0)
		return err_exit_code(rc < 0 ? rc : n);
	return n > 0 ? 2 : any_lags(st) ? 3 : 0;
}

int status_run(const struct status_conf *conf)
{
	struct status st = { .conf = conf };
	int rc = 0;

	if (conf->api_key_file)
		rc = http_token_read(conf->api_key_file, &st.token);
	if (rc == 0)
		rc = look(&st);
	rc = rc < 0 ? err_exit_code(rc) : show(&st);
	for (uint32_t i = 0; i < st.nrows; i++) {
		free(st.row[i].name);
		free(st.row[i].endpoint);
		free(st.row[i].url);
	}
	free(st.row);
	free(st.path);
	free(st.token);
	reg_rec_release(&st.decision);
	reg_rec_release(&st.open);
	if (st.has_reg)
		registry_close(&st.reg);
	return rc;
}
