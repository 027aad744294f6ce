#include "pipes/commit_io.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/stageconf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- events in, actions out ---- */

static void tell_abort(struct commit_io *c)
{
	struct msg m = { .type = M_abort };

	m.abort.code = c->m.code;
	m.abort.cause = slice_of(c->cause ? c->cause : "");
	stage_send(c->s, UP, &m);
}

static void perform(struct commit_io *c, const struct commit_action *a)
{
	static void (*const run[CA_NACTS])(struct commit_io *) = {
		[CA_LOCK] = commit_lock,
		[CA_RECOVER] = commit_recover,
		[CA_PROBE] = commit_probe,
		[CA_OPEN] = commit_open,
		[CA_SEEK] = commit_seek,
		[CA_BEGIN] = commit_begin,
		[CA_TELL_OPENED] = commit_tell_opened,
		[CA_ASK_RECEIPTS] = commit_ask_receipts,
		[CA_HOLD] = commit_hold,
		[CA_RELOAD] = commit_reload,
		[CA_DECIDE] = commit_decide,
		[CA_SWAP] = commit_swap,
		[CA_TELL_ABORT] = tell_abort,
		[CA_CANCEL] = commit_cancel,
		[CA_VERDICT] = commit_verdict,
	};

	if (a->type == CA_EXCLUDE)
		commit_exclude(c, a->engine);
	else
		run[a->type](c);
}

/* The cause of the run is that of the event that ended it. */
static void note_cause(struct commit_io *c, struct commit_input *in)
{
	if (in->cause == NULL || c->cause)
		return;
	c->cause = in->cause;
	in->cause = NULL;
	if (!in->printed)
		log_error(c->m.code, "%s", c->cause);
}

/* Nothing may be opened or decided after an exclusion that is not durable. */
static bool has_failed(const struct commit_io *c, size_t queued)
{
	for (size_t i = queued; i < c->queue.n; i++)
		if (c->queue.v[i].ev.type == CE_FAIL)
			return true;
	return false;
}

static void perform_all(struct commit_io *c)
{
	struct commit_action act[COMMIT_ACTIONS_MAX];
	size_t queued = c->queue.n;
	unsigned n = c->m.nacts;

	memcpy(act, c->m.act, sizeof act);
	for (unsigned i = 0; i < n; i++) {
		perform(c, &act[i]);
		if (act[i].type == CA_EXCLUDE && has_failed(c, queued))
			return;
	}
}

/* Somebody has to bring it back: why is said once, by whom it was seen; of
 * many, of the first ones. */
static void tell_excluded(struct commit_io *c, const struct commit_input *in)
{
	const char *name = c->plan.engine[in->ev.engine].name;
	bool is_news = in->cause && !in->printed;

	if (!log_few(&c->excluded, is_news ? LOG_ERROR : LOG_WARN))
		return;
	if (is_news)
		log_error(in->ev.code, "engine %s is excluded: %s", name,
			  in->cause);
	else
		log_warn("engine %s is excluded", name);
}

static void drive_one(struct commit_io *c, struct commit_input *in)
{
	bool blamed = c->m.code || c->m.signal;
	const char *from = commit_table.states[c->m.state];

	if (commit_step(&c->m, &in->ev) < 0) {
		log_debug("state %s: %s dropped", from,
			  commit_table.events[in->ev.type]);
		return;
	}
	if (from != commit_table.states[c->m.state])
		log_info("%s -> %s", from, commit_table.states[c->m.state]);
	if (!blamed && (c->m.code || c->m.signal))
		note_cause(c, in);
	if (c->m.nacts && c->m.act[0].type == CA_EXCLUDE)
		tell_excluded(c, in);
	perform_all(c);
}

/* Before the lock is ours nothing can be excluded: it waits. */
static bool is_early(const struct commit_io *c, const struct commit_input *in)
{
	return in->ev.type == CE_LOST &&
	       (c->m.state == CS_LOCK || c->m.state == CS_RECOVER);
}

static void put(struct commit_queue *q, const struct commit_input *in)
{
	q->v = xreallocarray(q->v, q->n + 1, sizeof *q->v);
	q->v[q->n++] = *in;
}

static void recall_early(struct commit_io *c)
{
	if (c->m.state < CS_PROBE)
		return;
	for (size_t i = 0; i < c->early.n; i++)
		put(&c->queue, &c->early.v[i]);
	c->early.n = 0;
}

static void drive(struct commit_io *c)
{
	if (c->driving)
		return;
	c->driving = true;
	for (size_t i = 0; i < c->queue.n; i++) {
		struct commit_input in = c->queue.v[i];

		if (is_early(c, &in)) {
			put(&c->early, &in);
			continue;
		}
		drive_one(c, &in);
		free(in.cause);
		recall_early(c);
	}
	c->queue.n = 0;
	c->driving = false;
}

static void feed(struct commit_io *c, const struct commit_input *in)
{
	put(&c->queue, in);
	drive(c);
}

void commit_feed(struct commit_io *c, enum commit_ev type, uint32_t engine)
{
	struct commit_input in = { .ev = { .type = type, .engine = engine } };

	feed(c, &in);
}

void commit_fail(struct commit_io *c, int rc)
{
	struct commit_input in = { .ev = { .type = CE_FAIL,
					   .code = (uint8_t)-rc },
				   .cause = xstrdup(log_cause()),
				   .printed = true };

	feed(c, &in);
}

void commit_lose(struct commit_io *c, uint32_t engine, int rc,
		 const char *cause, bool printed)
{
	struct commit_input in = { .ev = { .type = CE_LOST,
					   .engine = engine,
					   .code = (uint8_t)-rc },
				   .cause = xstrdup(cause),
				   .printed = printed };

	feed(c, &in);
}

void commit_phase(struct commit_io *c, enum phase p)
{
	c->phase_ms[p] = clock_mono_ms() - c->start_ms;
}

/* ---- the engines' answers ---- */

static void on_answer(void *arg, struct engine *e, enum engine_call call,
		      int rc)
{
	struct commit_io *c = arg;

	if (bring_answer(&c->bring, e, call, rc))
		return;
	if (call == EC_PROBE)
		commit_probed(c, e, rc);
	else if (call == EC_RECEIPT)
		commit_receipt(c, e, rc);
	else if (call == EC_PAUSE || call == EC_FLUSH || call == EC_LOAD)
		commit_held(c, e, call, rc);
	else if (rc < 0)
		commit_lose(c, e->id, rc, e->cause, false);
	else if (call == EC_BEGIN)
		commit_feed(c, CE_BEGUN, e->id);
}

/* A connection may break without its process: only another boot is a failed
 * engine. */
static void on_lost(void *arg, struct engine *e)
{
	struct engine_ask ask = { .call = EC_PROBE };
	struct commit_io *c = arg;

	ask.ms = c->conf->engine_timeout_ms;
	if (c->m.state == CS_LOAD && !c->m.engine[e->id].out)
		engine_ask(e, &ask);
}

static void on_brought(void *arg, struct engine *e, bool home)
{
	commit_brought(arg, e, home);
}

/* ---- the stage ---- */

static int start(struct stage *s)
{
	struct commit_io *c = s->self;

	engine_host_init(&c->host, s->loop, c);
	c->host.answer = on_answer;
	c->host.lost = on_lost;
	c->bring.done = on_brought;
	c->bring.arg = c;
	/* This run opened: its plan was whole, upstream need not say so. */
	if (c->resumed || c->ahead || c->is_over)
		return commit_plan_open(c, NULL);
	return 0;
}

/* The shell keeps what was said upstream, and says it again. */
static int peer_up(struct stage *s, enum dir d)
{
	struct commit_io *c = s->self;

	(void)d;
	if (c->m.state == CS_SEEK)
		commit_seek(c);
	return 0;
}

static void take_failed(struct commit_io *c, const struct m_failed *f)
{
	struct commit_input in = {
		.ev = { .type = CE_FAIL, .code = f->code, .signal = f->signal },
		.cause = xstrndup(f->cause.p, f->cause.n),
		.printed = f->said
	};

	/* Never the exit code of a success. */
	if (in.ev.code == E_OK)
		in.ev.code = E_PROTO;
	if (f->engine != ID_NONE && f->engine < c->m.nengines && !f->signal) {
		in.ev.type = CE_LOST;
		in.ev.engine = f->engine;
	}
	feed(c, &in);
}

static int on_msg(struct stage *s, enum dir d, const struct msg *m)
{
	struct commit_io *c = s->self;

	(void)d;
	switch (m->type) {
	case M_end:
		return c->has_plan ? 0 : commit_plan_open(c, &m->end);
	case M_acked:
		commit_phase(c, PHASE_MOVE);
		return 0;
	case M_drained:
		commit_drained(c, &m->drained);
		return 0;
	case M_failed:
		take_failed(c, &m->failed);
		return 0;
	case M_found:
		commit_found(c, &m->found);
		return 0;
	case M_staged:
	case M_moved:
	case M_sealed:
	case M_holds:
	case M_excluded:
		return 0; /* progress: transfer tells it */
	default:
		return log_error(E_PROTO, "transfer sent a %s",
				 msg_name(m->type));
	}
}

static void on_signal(struct stage *s, int signo)
{
	struct commit_io *c = s->self;
	struct commit_input in = { .ev = { .type = CE_FAIL,
					   .code = E_AGAIN,
					   .signal = (uint8_t)signo },
				   .printed = true };

	if (c->m.published) {
		commit_tell_signal(c);
		return;
	}
	in.cause = xasprintf("signal %d (%s) asked for the abort", signo,
			     strsignal(signo));
	log_warn("%s", in.cause);
	feed(c, &in);
}

/* `open` stays, unless all is over: the next commit brings home what is not.
 */
static void on_signal_again(struct stage *s)
{
	struct commit_io *c = s->self;

	c->open_written &= c->m.state == CS_DONE;
	commit_feed(c, CE_LEAVE, 0);
}

static bool done_with_up(const struct stage *s)
{
	const struct commit_io *c = s->self;

	return c->m.state >= CS_RECEIPT;
}

static void stop(struct stage *s)
{
	struct commit_io *c = s->self;

	loop_disarm(s->loop, &c->lock_timer);
	loop_disarm(s->loop, &c->run_timer);
	loop_disarm(s->loop, &c->end_timer);
	loop_disarm(s->loop, &c->gather_timer);
	recover_release(&c->recover);
	bring_release(&c->bring);
	engine_host_release(&c->host);
}

static void release_queue(struct commit_queue *q)
{
	for (size_t i = 0; i < q->n; i++)
		free(q->v[i].cause);
	free(q->v);
}

static void release(struct commit_io *c)
{
	if (c->has_reg)
		registry_close(&c->reg);
	if (c->has_plan)
		plan_close(&c->plan);
	reg_rec_release(&c->mine);
	reg_rec_release(&c->over);
	release_queue(&c->queue);
	release_queue(&c->early);
	commit_probe_release(c);
	commit_past_release(c);
	commit_alone_release(c);
	free(c->token);
	free(c->goal.place);
	commit_base_release(c);
	free(c->cause);
	free(c->verdict_cause);
	free(c->state);
	free(c->who);
	free(c->endpoints);
	free(c->files);
	free(c->share);
	free(c->shares);
	free(c->boots);
	free(c->engine);
}

static const struct stage_ops commit_stage = {
	.id = STAGE_COMMIT,
	.prepare = commit_prepare,
	.start = start,
	.peer_up = peer_up,
	.msg = on_msg,
	.signal = on_signal,
	.signal_again = on_signal_again,
	.done_with_up = done_with_up,
	.stop = stop,
};

int commit_run(struct commit_conf *conf)
{
	struct commit_io c = { .conf = conf,
			       .start_ms = clock_mono_ms(),
			       .excluded.what = "excluded engines",
			       .left.what = "engines for attention" };
	struct stage s = { 0 };
	struct stage_conf sc;
	struct buf dump = { 0 };
	int rc = stageconf_make(&commit_spec, conf, STAGE_COMMIT,
				&conf->stage_timeout_ms, &dump, &sc);

	if (rc < 0)
		return err_exit_code(rc);
	rc = stage_run(&s, &commit_stage, &sc, &c);
	release(&c);
	buf_release(&dump);
	return rc;
}
