#include "pipes/transfer_io.h"

#include "common/err.h"
#include "common/log.h"
#include "pipes/stageconf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- events in ---- */

void xfer_add(struct xfer *x, const struct xf_event *ev, const char *cause)
{
	if (x->head + x->n == x->cap && x->head) {
		memmove(x->queue, x->queue + x->head, x->n * sizeof(*x->queue));
		x->head = 0;
	}
	if (x->n == x->cap) {
		x->cap = x->cap ? 2 * x->cap : 64;
		x->queue = xreallocarray(x->queue, x->cap, sizeof(*x->queue));
	}
	x->queue[x->head + x->n++] =
		(struct xfer_input){ .ev = *ev,
				     .cause = cause ? xstrdup(cause) : NULL };
}

static int step(struct xfer *x, struct xfer_input *in)
{
	int rc;

	in->ev.cause = in->cause;
	rc = transfer_step(&x->m, &in->ev);
	if (rc < 0)
		rc = log_error(E_PROTO, "%s does not fit the plan",
			       transfer_table.events[in->ev.on]);
	free(in->cause);
	if (rc == 0)
		rc = x->rc;
	x->rc = 0;
	return rc;
}

void xfer_drive(struct xfer *x)
{
	int rc = 0;

	if (x->driving)
		return;
	x->driving = true;
	while (x->n) {
		struct xfer_input in = x->queue[x->head++];

		if (--x->n == 0)
			x->head = 0;
		rc = step(x, &in);
		if (rc < 0)
			stage_fail(x->s, rc, ID_NONE, ID_NONE);
	}
	x->driving = false;
}

/* ---- what the machine says ---- */

static void send_to(struct xfer *x, enum dir d, const struct msg *m)
{
	int rc = stage_send(x->s, d, m);

	/* A link that is down is told again when it comes up. */
	if (rc < 0 && rc != -E_AGAIN && x->rc == 0)
		x->rc = rc;
}

/* An engine that holds other bytes, or finds too few, is not to blame for a
 * source that was written meanwhile (BK-12). */
static bool is_sources_fault(struct xfer *x, const struct xf_action *a)
{
	return a->engine == ID_NONE || (a->code == E_DATA && x->files.plan &&
					srcfiles_check(&x->files) < 0);
}

static const char *cause_of_source(const struct xf_action *a)
{
	if (a->engine == ID_NONE)
		log_error(a->code, "%s", a->cause);
	return log_cause();
}

/* An ack has one digest for all of its bucket: which of several tensors
 * differs, nobody knows. */
static char *what_differs(struct xfer *x, const struct xf_action *a)
{
	struct buf text = { 0 };
	char *what = NULL;

	if (a->code == E_DATA && a->bucket != ID_NONE &&
	    plan_bucket_text(&x->plan, a->bucket, &text) == 0)
		what = xasprintf(" (%.*s)", (int)text.n, text.p);
	buf_release(&text);
	return what;
}

static const struct xfer_cause *cause_of_engine(struct xfer *x,
						const struct xf_action *a)
{
	struct xfer_cause *c = &x->cause[a->engine];
	char where[32] = "", *what;
	int was;

	/* Told again: commit's link was lost. */
	if (!a->cause)
		return c;
	if (a->bucket != ID_NONE)
		snprintf(where, sizeof(where), "bucket %" PRIu32 ": ",
			 a->bucket);
	/* Fenced off, mostly by commit's own cancel, of which it has said why;
	 * or all has been moved, and it asks the engines itself: commit knows
	 * whether this is news. */
	what = what_differs(x, a);
	c->said = a->code != E_FENCED && !x->has_drained &&
		  log_few(&x->lost, LOG_ERROR);
	was = log_quiet_thread(!c->said);
	log_error(a->code, "engine %s: %s%s%s", x->plan.engine[a->engine].name,
		  where, a->cause, what ? what : "");
	log_quiet_thread(was);
	free(what);
	free(c->text);
	c->text = xstrdup(log_cause());
	return c;
}

static void say_failed(struct xfer *x, const struct xf_action *a)
{
	struct msg m = { .type = M_failed,
			 .failed = { .engine = a->engine,
				     .bucket = a->bucket,
				     .code = (uint8_t)a->code } };
	const struct xfer_cause *of;
	const char *cause;

	if (x->source_failed)
		return;
	if (is_sources_fault(x, a)) {
		x->source_failed = m.failed.said = true;
		m.failed.engine = ID_NONE;
		cause = cause_of_source(a);
	} else {
		of = cause_of_engine(x, a);
		m.failed.said = of->said;
		cause = of->text;
	}
	m.failed.cause = slice_of(cause ? cause : "");
	send_to(x, DOWN, &m);
}

static void say_drained(struct xfer *x)
{
	struct msg m = { .type = M_drained };
	uint64_t each = xfer_is_whole(x) ? x->placed.bytes : x->plan.bytes;
	uint64_t bytes = x->is_moving ? transfer_receiving(&x->m) * each : 0;

	m.drained = (struct m_drained){ .content = x->content,
					.bytes = bytes,
					.resent = x->m.resent,
					.unchanged = x->proof,
					.pinned = x->tr.pinned };
	if (x->plan.nranks > 1) {
		m.drained.shares.v = x->share;
		m.drained.shares.n = x->plan.nranks;
	}
	x->has_drained = true;
	send_to(x, DOWN, &m);
	events_tell(&x->s->events, &HAPPENED("drained", .bytes = EV(bytes)));
}

static void say_holds(struct xfer *x, const struct xf_action *a)
{
	struct msg m = { .type = M_holds,
			 .holds = { .engine = a->engine,
				    .sealed = a->sealed,
				    .count = x->plan.nbuckets } };

	/* The machine's row may have a spare byte. */
	m.holds.bitmap = a->bitmap;
	m.holds.bitmap.n = x->plan.nbuckets / 8 + (x->plan.nbuckets % 8 != 0);
	send_to(x, UP, &m);
}

static void say_bucket(struct xfer *x, const struct xf_action *a)
{
	uint64_t bytes = plan_bucket_bytes(&x->plan, a->bucket);
	struct happening h =
		HAPPENED("moved", .wave = EV(a->wave), .bucket = EV(a->bucket),
			 .bytes = EV(bytes));
	struct msg m = { .type = M_moved, .moved = { a->wave, a->bucket } };

	if (a->what == XF_SAY_STAGED) {
		h.event = "staged";
		h.wave.set = false;
		m = (struct msg){ .type = M_staged, .staged = { a->bucket } };
	} else if (a->what == XF_SAY_ACKED) {
		h.event = "acked";
		m = (struct msg){ .type = M_acked,
				  .acked = { a->wave, a->bucket, bytes } };
	}
	events_tell(&x->s->events, &h);
	send_to(x, DOWN, &m);
}

static void say_engine(struct xfer *x, const struct xf_action *a)
{
	const char *name = x->plan.engine[a->engine].name;
	struct msg m = { .type = M_sealed, .sealed = { a->engine } };

	if (a->what == XF_SAY_EXCLUDED)
		m = (struct msg){ .type = M_excluded,
				  .excluded = { a->engine } };
	else
		events_tell(&x->s->events, &HAPPENED("sealed", .engine = name));
	send_to(x, UP, &m);
	send_to(x, DOWN, &m);
}

static void perform(void *arg, const struct xf_action *a)
{
	struct xfer *x = arg;
	struct msg m;

	switch (a->what) {
	case XF_SAY_HOLDS:
		say_holds(x, a);
		break;
	case XF_SAY_RELEASED:
		m = (struct msg){ .type = M_released,
				  .released = { a->wave, a->bucket } };
		send_to(x, UP, &m);
		break;
	case XF_SAY_STAGED:
	case XF_SAY_MOVED:
	case XF_SAY_ACKED:
		say_bucket(x, a);
		break;
	case XF_SAY_FAILED:
		say_failed(x, a);
		break;
	case XF_SAY_DRAINED:
		say_drained(x);
		break;
	case XF_SAY_SEALED:
	case XF_SAY_EXCLUDED:
		say_engine(x, a);
		break;
	default:
		xfer_do(x, a);
	}
}

/* ---- links ---- */

static int peer_up(struct stage *s, enum dir d)
{
	struct xfer *x = s->self;

	if (d == DOWN) {
		XFER(x, COMMIT_UP, .engine = ID_NONE);
	} else {
		XFER(x, ADMIT_DOWN, .engine = ID_NONE);
		XFER(x, ADMIT_UP, .engine = ID_NONE);
	}
	xfer_drive(x);
	return 0;
}

static void take_boots(struct xfer *x, const struct m_opened *o)
{
	x->opened.boot = xcalloc(x->plan.nreceivers, sizeof(char *));
	for (uint32_t r = 0; r < x->plan.nreceivers; r++) {
		const struct plan_receiver *v = &x->plan.receiver[r];

		for (uint32_t i = 0; i < o->boots.n; i++) {
			const struct m_boot *b = &o->boots.v[i];

			if (b->engine != v->engine || b->worker != v->worker)
				continue;
			free(x->opened.boot[r]);
			x->opened.boot[r] = xstrndup(b->id.p, b->id.n);
		}
		if (!x->opened.boot[r])
			x->opened.boot[r] = xstrdup("");
	}
}

static void take_base(struct tr_base *b, const struct m_opened *o)
{
	b->version = o->base;
	b->content = o->base_content;
	b->place = xcalloc(o->base_places.n + 1, sizeof *b->place);
	for (; b->nplaces < o->base_places.n; b->nplaces++) {
		const struct slice *s = &o->base_places.v[b->nplaces];

		b->place[b->nplaces] = xstrndup(s->p, s->n);
	}
}

static bool has_boots(const struct xfer *x, const struct plan_engine *p)
{
	uint32_t end = p->first_receiver + p->receivers;

	for (uint32_t r = p->first_receiver; r < end; r++)
		if (*x->opened.boot[r])
			return true;
	return false;
}

/* Whom commit left out before the run was opened has no boot: it is never
 * attached, and not known by what it answers to that. */
static void leave_out(struct xfer *x)
{
	for (uint32_t e = 0; e < x->plan.nengines; e++) {
		const struct plan_engine *p = &x->plan.engine[e];

		if (p->receivers && !has_boots(x, p))
			XFER(x, EXCLUDE, .engine = e);
	}
}

static int first_opened(struct xfer *x, const struct m_opened *o)
{
	x->opened.known = true;
	x->opened.registry = xstrndup(o->registry.p, o->registry.n);
	x->opened.epoch = x->s->epoch = o->epoch;
	x->opened.version = o->version;
	x->opened.engine_ms = o->engine_ms;
	x->opened.load_ms = o->load_ms;
	x->opened.proof = o->proof;
	take_boots(x, o);
	take_base(&x->opened.base, o);
	leave_out(x);
	return xfer_start_moving(x, o->hash_only);
}

static int take_opened(struct xfer *x, const struct m_opened *o)
{
	int rc = 0;

	if (!x->opened.known)
		rc = first_opened(x, o);
	else if (o->epoch != x->opened.epoch)
		rc = log_error(E_FENCED,
			       "opened again with epoch %" PRIu64
			       " after %" PRIu64,
			       o->epoch, x->opened.epoch);
	if (rc < 0)
		return rc;
	XFER(x, OPENED, .hash_only = o->hash_only);
	return 0;
}

static int from_commit(struct xfer *x, const struct msg *m)
{
	switch (m->type) {
	case M_opened:
		return take_opened(x, &m->opened);
	case M_exclude:
		XFER(x, EXCLUDE, .engine = m->exclude.engine);
		return 0;
	case M_seek:
		if (!xfer_is_again(x))
			return log_error(E_PROTO, "commit seeks a source that "
						  "is planned");
		xfer_seek(x, &m->seek);
		return 0;
	case M_abort:
		XFER(x, ABORT, .engine = ID_NONE);
		return 0;
	default:
		return log_error(E_PROTO, "commit sent %s", msg_name(m->type));
	}
}

/* The shell keeps it for whoever comes, and says it once. */
static int pass_end(struct xfer *x)
{
	struct msg end = { .type = M_end, .end = x->plan.end };
	int rc = stage_send(x->s, DOWN, &end);

	return rc == -E_AGAIN ? 0 : rc;
}

static int take_end(struct xfer *x, const struct m_end *end)
{
	if (digest_eq(&end->digest, &x->plan.end.digest))
		return pass_end(x);
	return log_error(E_DATA, "%s/%s is not what admit says it is",
			 x->s->run.path, PLAN_FILE);
}

static int from_admit(struct xfer *x, const struct msg *m)
{
	switch (m->type) {
	case M_end:
		return take_end(x, &m->end);
	case M_grant:
		XFER(x, GRANT, .wave = m->grant.wave, .bucket = m->grant.bucket,
		     .first = m->grant.first, .count = m->grant.count);
		return 0;
	case M_seal:
		XFER(x, SEAL, .first = m->seal.first, .count = m->seal.count);
		return 0;
	default:
		return log_error(E_PROTO, "admit sent %s", msg_name(m->type));
	}
}

static int message(struct stage *s, enum dir d, const struct msg *m)
{
	struct xfer *x = s->self;
	int rc = d == UP ? from_admit(x, m) : from_commit(x, m);

	if (rc == 0)
		xfer_drive(x);
	return rc;
}

/* ---- the stage ---- */

static int prepare(struct stage *s)
{
	struct xfer *x = s->self;
	int rc = stage_await(s, PLAN_FILE);

	x->s = s;
	if (rc == 0)
		rc = plan_open(&x->plan, s->run.dirfd, PLAN_FILE);
	if (rc == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s holds no plan", s->run.path);
	if (rc != 0)
		return rc;
	x->has_plan = true;
	x->cause = xcalloc(x->plan.nengines, sizeof *x->cause);
	transfer_init(&x->m, &x->plan, s->run.instance > 1);
	if (xfer_is_whole(x))
		transfer_set_whole(&x->m);
	x->m.out = perform;
	x->m.arg = x;
	return xfer_open_source(x);
}

/* Admit listens once it has found that every bucket fits (I8); started by hand
 * before that, we wait for its word. */
static int start(struct stage *s)
{
	char *endpoint;

	if (run_lookup(&s->run, STAGE_ADMIT, &endpoint) < 0)
		return 0;
	free(endpoint);
	return pass_end(s->self);
}

/* All is granted and sealed, or will never be. */
static bool done_with_up(const struct stage *s)
{
	const struct xfer *x = s->self;

	return x->m.state >= XF_VERIFY;
}

static void stop(struct stage *s)
{
	xfer_close_moving(s->self);
}

static const struct stage_ops ops = {
	.id = STAGE_TRANSFER,
	.prepare = prepare,
	.start = start,
	.peer_up = peer_up,
	.msg = message,
	.done_with_up = done_with_up,
	.stop = stop,
};

static void release(struct xfer *x)
{
	if (!x->has_plan)
		return;
	for (uint32_t r = 0; x->opened.boot && r < x->plan.nreceivers; r++)
		free(x->opened.boot[r]);
	for (uint32_t e = 0; e < x->plan.nengines; e++)
		free(x->cause[e].text);
	for (size_t i = 0; i < x->n; i++)
		free(x->queue[x->head + i].cause);
	for (uint32_t i = 0; i < x->opened.base.nplaces; i++)
		free(x->opened.base.place[i]);
	free(x->opened.base.place);
	free(x->opened.boot);
	free(x->opened.registry);
	free(x->cause);
	free(x->queue);
	free(x->awaited);
	free(x->every);
	free(x->share);
	xfer_seek_release(x);
	srcfiles_close(&x->files);
	transfer_release(&x->m);
	plan_close(&x->plan);
}

int transfer_run(struct transfer_conf *conf)
{
	struct xfer x = { .conf = conf, .lost.what = "lost engines" };
	struct stage stage = { 0 };
	struct stage_conf sc;
	struct buf dump = { 0 };
	int rc = stageconf_make(&transfer_spec, conf, STAGE_TRANSFER,
				&conf->stage_timeout_ms, &dump, &sc);

	if (rc < 0)
		rc = stage_fail_early(rc);
	else
		rc = stage_run(&stage, &ops, &sc, &x);
	release(&x);
	buf_release(&dump);
	return rc;
}
