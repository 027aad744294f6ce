#include "pipes/en_http.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/store_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void advance(struct http_engine *h);

static bool is_question(const struct http_row *row)
{
	return strcmp(row->method, "POST") != 0;
}

/* ---- the end of a call ---- */

static void forget_jobs(struct http_engine *h, unsigned from, int rc)
{
	unsigned n = h->njobs;

	h->njobs = from < n ? from : n;
	for (unsigned i = from; i < n; i++)
		if (h->e->open[h->job[i].call].left)
			engine_fail_soon(h->e, h->job[i].call, rc);
}

static void pop(struct http_engine *h)
{
	h->njobs--;
	memmove(h->job, h->job + 1, h->njobs * sizeof h->job[0]);
	h->script = NULL;
	h->asking = HO_NONE;
}

static void blame(struct http_engine *h, enum engine_call call)
{
	const struct http_row *row = h->script ? http_row_of(h) : NULL;
	struct engine *e = h->e;

	if (row && row->method)
		snprintf(e->cause, sizeof e->cause,
			 "engine %s (%.200s): %s: %.60s: %s", e->name, e->url,
			 engine_call_name(call), row->path, h->why);
	else
		snprintf(e->cause, sizeof e->cause,
			 "engine %s (%.200s): %s: %s", e->name, e->url,
			 engine_call_name(call), h->why);
}

bool http_is_aborted(const struct http_engine *h)
{
	return h->njobs > 1 && h->job[1].call == EC_ABORT;
}

static void fail(struct http_engine *h, int rc)
{
	enum engine_call call = h->job[0].call;
	/* An abort behind it is what is left to do. */
	bool aborts = http_is_aborted(h);

	blame(h, call);
	forget_jobs(h, 1 + aborts, -E_AGAIN);
	pop(h);
	engine_part_done(h->e, call, rc);
	advance(h);
}

/* The directory that a rollback has to load. */
static void note_previous(struct http_engine *h)
{
	const struct engine_facts *f = &h->e->part[0].facts;
	struct engine_live *l = &h->e->live;
	char name[STORE_NAME_SIZE];

	if (l->previous || l->held || l->poisoned)
		return;
	if (f->store && f->serving && f->serving == h->label)
		l->previous =
			xasprintf("%s/%s", f->store,
				  store_name(name, "versions", f->serving));
	/* A broadcast leaves the path as it was. */
	else if (h->path[0] && !alone_is_own_copy(h->e, h->path) &&
		 !(h->label && engine_casts(h->e)))
		l->previous = xstrdup(h->path);
}

static void note_probe(struct http_engine *h)
{
	struct engine_live *l = &h->e->live;

	l->label = h->label;
	l->paused = h->paused;
	/* The label is set last: what it names is loaded. */
	l->loaded |= l->label && l->label == h->e->goal->version;
	if (h->e->alone)
		alone_probed(h);
	note_previous(h);
}

static void note(struct http_engine *h, enum engine_call call)
{
	struct engine_live *l = &h->e->live;

	switch (call) {
	case EC_PROBE:
		note_probe(h);
		break;
	case EC_RECEIPT:
		alone_receipt(h->e);
		break;
	case EC_PAUSE:
		if (h->paused_ms == 0)
			h->paused_ms = clock_mono_ms();
		l->held = true;
		break;
	case EC_LOAD:
		l->loaded = true;
		break;
	case EC_SWAP:
		l->loaded = true;
		l->poisoned = false;
		break;
	case EC_SET_VERSION:
		l->label = h->e->goal->version;
		break;
	case EC_ABORT:
		l->held = l->poisoned = l->paused = false;
		break;
	case EC_RESUME:
		l->held = l->poisoned = l->paused = false;
		break;
	default:
		break;
	}
}

/* Measured here: from the answer to pause until that to resume. */
static void note_pause(struct http_engine *h)
{
	if (h->paused_ms)
		h->e->part[0].pause_us =
			(uint64_t)(clock_mono_ms() - h->paused_ms) * 1000;
	h->paused_ms = 0;
}

static void succeed(struct http_engine *h)
{
	enum engine_call call = h->job[0].call;

	note(h, call);
	if (call == EC_RESUME)
		note_pause(h);
	pop(h);
	engine_part_done(h->e, call, 0);
	advance(h);
}

/* ---- one operation ---- */

/* It has answered to its leaving a group: of that name, or of all. */
static void note_left(struct http_engine *h, const struct http_row *row)
{
	uint32_t n = http_groups(h);

	if (*h->script == HO_LEAVE && !h->unheard)
		groups_forget(&h->e->live.groups, row->turns && n ? 1 : n);
}

static void next_op(struct http_engine *h)
{
	const struct http_row *row = &h->d->row[*h->script];

	note_left(h, row);
	h->asking = HO_NONE;
	h->older = false;
	h->tries = 0;
	if (row->turns && !(row->brief && h->unheard) &&
	    ++h->turn < row->turns(h))
		return;
	h->turn = 0;
	h->script++;
}

/* Busy: later, if there is time. */
static void back_off(struct http_engine *h)
{
	int64_t ms = HTTP_BACKOFF_MIN_MS << (h->tries < 6 ? h->tries : 6);
	char last[ENGINE_CAUSE / 4];

	if (ms > HTTP_BACKOFF_MAX_MS)
		ms = HTTP_BACKOFF_MAX_MS;
	h->tries++;
	if (ms < http_left_ms(h)) {
		loop_arm(h->e->host->loop, &h->retry, ms);
		return;
	}
	snprintf(last, sizeof last, "%.180s", h->why);
	fail(h, http_say(h, -E_TIMEOUT, "refused %u times, last with %s",
			 h->tries, last));
}

/* Unknown, and when asked it did not say that it is done. */
static void fail_asked(struct http_engine *h)
{
	char now[ENGINE_CAUSE / 4];

	snprintf(now, sizeof now, "%.180s", h->why);
	h->asking = HO_NONE;
	fail(h, http_say(h, h->first_rc, "outcome unknown: %s; asked: %s",
			 h->first, now));
}

/* It need not succeed. */
static void pass_over(struct http_engine *h)
{
	log_debug("engine %s: %s: %s", h->e->name, http_row_of(h)->path,
		  h->why);
	next_op(h);
	advance(h);
}

static void unknown(struct http_engine *h, int rc)
{
	const struct http_row *row = http_row_of(h);
	char why[ENGINE_CAUSE / 4];

	snprintf(why, sizeof why, "%.180s", h->why);
	if (row->patient) {
		back_off(h);
		return;
	}
	if (row->soft && !h->asking) {
		h->unheard |= row->brief;
		pass_over(h);
		return;
	}
	if (is_question(row) && h->tries++ == 0 && http_left_ms(h) > 1) {
		advance(h);
		return;
	}
	if (h->asking) {
		fail_asked(h);
		return;
	}
	if (!row->ask) {
		fail(h, http_say(h, rc, "outcome unknown: %s", why));
		return;
	}
	memcpy(h->first, why, sizeof why);
	h->first_rc = rc;
	log_warn("engine %s: %s: outcome unknown: %s; asking %s", h->e->name,
		 engine_call_name(h->job[0].call), why,
		 h->d->row[row->ask].path);
	h->asking = row->ask;
	h->older = false;
	h->tries = 0;
	advance(h);
}

static void lacks(struct http_engine *h)
{
	const struct http_row *row = http_row_of(h);

	if (row->older && !h->older) {
		h->older = true;
		advance(h);
	} else if (h->asking) {
		http_say(h, 0, "it cannot tell");
		fail_asked(h);
	} else if (row->optional) {
		next_op(h);
		advance(h);
	} else {
		fail(h, http_say(h, -E_CONFIG, "it has no such path: %s",
				 h->d->hint));
	}
}

static void done(struct http_engine *h)
{
	const struct http_row *row = &h->d->row[*h->script];

	if (h->asking && !row->is_done(h)) {
		http_say(h, 0, "it is not done");
		fail_asked(h);
		return;
	}
	next_op(h);
	advance(h);
}

static void failed(struct http_engine *h, int rc)
{
	if (h->asking)
		fail_asked(h);
	else if (http_row_of(h)->soft && rc != -E_CONFIG)
		pass_over(h);
	else
		fail(h, rc);
}

static void on_reply(void *arg, const struct http_reply *r)
{
	struct http_engine *h = arg;
	int rc = 0;

	h->e->said = r->rc >= 0;
	h->unheard |= http_row_of(h)->brief && r->rc < 0 && !r->refused;
	switch (http_judge(h, r, &rc)) {
	case V_DONE:
		done(h);
		break;
	case V_FAILED:
		failed(h, rc);
		break;
	case V_LACKS:
		lacks(h);
		break;
	case V_BUSY:
		back_off(h);
		break;
	case V_UNKNOWN:
		unknown(h, rc);
		break;
	}
}

/* What need not succeed leaves time for what must; and there has to be time to
 * ask what became of it. */
static int64_t time_for(const struct http_engine *h, const struct http_row *row)
{
	int64_t left = http_left_ms(h);

	if (row->brief)
		return left / 4 < HTTP_BRIEF_MS ? left / 4 + 1 : HTTP_BRIEF_MS;
	return row->ask && !h->asking ? left - left / 4 : left;
}

static void ask_server(struct http_engine *h)
{
	const struct http_row *row = http_row_of(h);
	struct http_request q = { .method = row->method, .path = row->path };
	struct buf b = { 0 };
	struct jsonw j;

	if (h->older)
		q.path = row->older;
	if (*h->script == HO_LOAD && !h->asking)
		h->told_before = !h->path[0] || http_is_loaded(h);
	q.ms = time_for(h, row);
	if (row->body) {
		jsonw_begin(&j, &b, JSONW_LINE_MAX);
		jsonw_object(&j, NULL);
		row->body(h, &j);
		jsonw_end(&j);
		jsonw_finish(&j);
	}
	q.body = buf_slice(&b);
	q.most = row->big ? HTTP_SUM_MAX : 0;
	http_call(h->http, &q, on_reply, h);
	buf_release(&b);
}

/* ---- calls ---- */

/* Once unheard, each further one might wait as long. */
static bool is_wanted(const struct http_engine *h)
{
	const struct http_row *row = &h->d->row[*h->script];

	if (row->brief && h->unheard)
		return false;
	return !row->is_wanted || row->is_wanted(h);
}

/* All stores of an engine lie at one path: it loads from one. */
static int check_stores(struct http_engine *h)
{
	const struct engine *e = h->e;
	const char *first = e->part[0].facts.store;

	if (e->alone)
		return alone_check(h);
	if (!first)
		return http_say(h, -E_PROTO, "its store's path is unknown");
	for (uint32_t i = 1; i < e->nparts; i++) {
		const char *p = e->part[i].facts.store;

		if (!p || strcmp(p, first) != 0)
			return http_say(h, -E_CONFIG,
					"its stores lie at %.100s and %.100s: "
					"they must be one path",
					first, p ? p : "?");
	}
	return 0;
}

static const enum http_op nothing[] = { HO_NONE };

/* Back to what it served: as it is, by a load, or not at all. */
static const enum http_op *abort_script(const struct http_engine *h)
{
	const struct engine *e = h->e;

	if (!e->live.held)
		return nothing;
	if (!e->live.poisoned)
		return h->d->script[EC_ABORT];
	return e->goal->rollback && e->live.previous ? h->d->back : h->d->stay;
}

static int stay(struct http_engine *h)
{
	const struct engine_goal *g = h->e->goal;
	struct buf left = { 0 };

	if (http_is_grouped(h)) {
		buf_addf(&left, "; it does not leave its weight-update group ");
		groups_text(&h->e->live.groups, &left);
		buf_addf(&left, ": restart it");
	}
	http_say(h, 0,
		 "version %llu may be partly loaded: it %s until a full load "
		 "(%s)%.200s",
		 (unsigned long long)g->version,
		 h->paused ? "stays paused"
			   : "may not be paused: keep requests away from it",
		 g->rollback ? "what it served before is unknown"
			     : "the next push, or --on-failure rollback",
		 left.n ? buf_cstr(&left) : "");
	buf_release(&left);
	return -E_UNAVAIL;
}

static int begin_job(struct http_engine *h)
{
	enum engine_call call = h->job[0].call;
	const struct engine_live *l = &h->e->live;

	h->asking = HO_NONE;
	h->older = h->unheard = false;
	h->tries = h->turn = 0;
	h->script = h->d->script[call] ? h->d->script[call] : nothing;
	if (call == EC_PROBE)
		h->packing = NP_AT_LOAD;
	if (call == EC_ABORT)
		h->script = abort_script(h);
	/* Of a pause that was, one that runs by now needs another. */
	if (l->loaded && l->held &&
	    (call == EC_SWAP || (call == EC_PAUSE && h->paused)))
		h->script = nothing;
	if (call == EC_LOAD || (call == EC_SWAP && h->script != nothing)) {
		h->e->live.proof = LOAD_ACK;
		h->loaded[0] = '\0';
		return check_stores(h);
	}
	return 0;
}

/* What was under way when the abort came has ended: its script ends here. */
static void yield_to_abort(struct http_engine *h)
{
	enum engine_call call = h->job[0].call;

	if (!http_is_aborted(h))
		return;
	pop(h);
	if (h->e->open[call].left)
		engine_fail_soon(h->e, call, -E_AGAIN);
}

/* Does the next thing of the first job, unless one is under way. */
static void advance(struct http_engine *h)
{
	int rc = 0;

	if (http_is_busy(h->http) || h->cast || h->retry.due_ms)
		return;
	yield_to_abort(h);
	if (h->njobs == 0 || h->job[0].waits)
		return;
	if (!h->script)
		rc = begin_job(h);
	while (rc == 0 && *h->script && !is_wanted(h))
		next_op(h);
	if (rc < 0) {
		h->script = NULL;
		fail(h, rc);
	} else if (!*h->script) {
		succeed(h);
	} else if (*h->script == HO_STAY) {
		fail(h, stay(h));
	} else if (h->job[0].due_ms <= clock_mono_ms()) {
		fail(h, http_say(h, -E_TIMEOUT, "no time is left"));
	} else if (*h->script == HO_CAST) {
		http_cast_start(h);
	} else {
		ask_server(h);
	}
}

/* It has left its own; behind older ones nobody can look any more. */
static void forget_groups(struct http_engine *h)
{
	struct groups *g = &h->e->live.groups;
	struct buf b = { 0 };

	groups_forget_newest(g);
	groups_text(g, &b);
	if (g->n)
		log_warn("engine %s: it may be in weight-update group %s still",
			 h->e->name, buf_cstr(&b));
	groups_release(g);
	buf_release(&b);
}

void http_cast_ended(struct http_engine *h, int rc)
{
	if (rc < 0) {
		fail(h, rc);
		return;
	}
	forget_groups(h);
	next_op(h);
	advance(h);
}

static struct http_job *find_job(struct http_engine *h, enum engine_call c)
{
	for (unsigned i = 0; i < h->njobs; i++)
		if (h->job[i].call == c)
			return &h->job[i];
	return NULL;
}

static void on_soon(void *arg)
{
	advance(arg);
}

/* A request that is under way ends first: nobody can call it back. */
static void forget_idle(struct http_engine *h)
{
	bool busy = http_is_busy(h->http) || h->cast;

	forget_jobs(h, busy, -E_AGAIN);
	if (busy)
		return;
	loop_disarm(h->e->host->loop, &h->retry);
	h->script = NULL;
}

/* An abort takes the place of all that has not begun. */
static void put_job(struct http_engine *h, const struct engine_ask *ask,
		    bool waits)
{
	struct http_job *j = find_job(h, ask->call);

	if (ask->call == EC_ABORT && !j)
		forget_idle(h);
	if (!j)
		j = &h->job[h->njobs++];
	j->call = ask->call;
	j->due_ms = clock_mono_ms() + (ask->ms > 0 ? ask->ms : 1);
	j->waits = waits;
	if (!h->retry.due_ms && !http_is_busy(h->http))
		loop_arm(h->e->host->loop, &h->retry, 0);
}

void http_engine_store(struct engine *e, const struct engine_ask *ask)
{
	if (!e->alone) {
		native_ask(e, ask, 0);
		return;
	}
	engine_skip(e, ask);
}

/* Its own copy can be brought up to the version while it serves. */
void http_engine_receipt(struct engine *e, const struct engine_ask *ask)
{
	if (e->alone)
		http_engine_server(e, ask);
	else
		native_ask(e, ask, 0);
}

void http_engine_server(struct engine *e, const struct engine_ask *ask)
{
	engine_open_call(e, ask->call, 1);
	put_job(e->own, ask, false);
}

/* A pause with no token is that of the barrier: the store serves nobody. */
void http_engine_both(struct engine *e, const struct engine_ask *ask)
{
	bool waits = ask->call == EC_SWAP || ask->call == EC_ABORT ||
		     ask->call == EC_PROBE;

	if (e->alone || (ask->call == EC_PAUSE && ask->token == 0)) {
		http_engine_server(e, ask);
		return;
	}
	native_ask(e, ask, 1);
	if (e->open[ask->call].left)
		put_job(e->own, ask, waits);
}

void http_engine_ended(struct engine *e, enum engine_call c, int rc)
{
	struct http_engine *h = e->own;
	struct http_job *j = find_job(h, c);

	if (!j || !j->waits)
		return;
	j->waits = false;
	/* A newer run has it (fenced off): then it is not ours to resume.  A
	 * store that is away must not keep its engine paused. */
	if (rc < 0 && (c != EC_ABORT || rc == -E_FENCED))
		forget_jobs(h, (unsigned)(j - h->job), -E_AGAIN);
	if (!h->retry.due_ms && !http_is_busy(h->http))
		loop_arm(e->host->loop, &h->retry, 0);
}

int http_engine_open(struct engine *e, const struct http_dialect *d)
{
	struct http_engine *h = xcalloc(1, sizeof *h);

	e->own = h;
	h->e = e;
	h->d = d;
	h->retry.fn = on_soon;
	h->retry.arg = h;
	h->http = http_new(e->host->loop, e->url, e->goal->token);
	if (!h->http)
		return -E_CONFIG;
	return e->alone ? 0 : native_open(e);
}

void http_engine_close(struct engine *e)
{
	struct http_engine *h = e->own;

	native_close(e);
	if (!h)
		return;
	loop_disarm(e->host->loop, &h->retry);
	http_cast_free(h->cast);
	http_free(h->http);
	free(h);
	e->own = NULL;
}
