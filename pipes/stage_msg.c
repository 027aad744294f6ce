#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/stage_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYE_MS 1000 /* for upstream to take the verdict */

enum stage_id stage_neighbour(const struct stage *s, enum dir d)
{
	return d == UP ? s->ops->id - 1 : s->ops->id + 1;
}

void stage_leave(struct stage *s, int code)
{
	s->priv->left = true;
	loop_stop(s->loop, code);
}

void stage_let_go(struct stage *s)
{
	if (s->priv->started)
		s->ops->stop(s);
	s->priv->started = false;
}

static void on_let_go(void *arg)
{
	stage_let_go(arg);
}

/* ---- the verdict ---- */

static void on_end(void *arg)
{
	struct stage *s = arg;

	stage_leave(s, s->priv->code);
}

static void say_bye(struct stage *s, enum dir d, int code)
{
	struct msg m = { .type = M_bye };

	m.bye.exit = (uint8_t)code;
	link_send(&s->priv->link[d], &m);
}

/* Known now, however it came: tell the neighbours, and end when the one
 * above has it or can read it from the run directory. */
static void take_verdict(struct stage *s, const struct msg *m)
{
	struct stage_priv *p = s->priv;

	if (p->phase == PH_ENDING)
		return;
	p->phase = PH_ENDING;
	p->code = m->verdict.exit;
	log_info("verdict: exit=%d version=%llu %.*s", p->code,
		 (unsigned long long)m->verdict.version,
		 SLICE_ARG(m->verdict.cause));
	/* Later: a callback of what is to be freed may have brought us here. */
	p->wait = (struct loop_timer){ .fn = on_let_go, .arg = s };
	loop_arm(s->loop, &p->wait, 0);
	p->end = (struct loop_timer){ .fn = on_end, .arg = s };
	stage_send(s, UP, m);
	say_bye(s, DOWN, p->code);
	if (s->up[UP])
		loop_arm(s->loop, &p->end, BYE_MS);
	else
		stage_leave(s, p->code);
}

bool stage_has_published(const struct stage *s)
{
	int code = s->priv->code;

	return s->priv->phase == PH_ENDING && (code == 0 || code == 3);
}

/* Has somebody else ended the run? */
void stage_look_for_verdict(struct stage *s)
{
	struct msg_arena arena = { 0 };
	struct buf frame = { 0 };
	struct msg m;

	if (run_verdict_read(&s->run, &m, &arena, &frame) > 0)
		take_verdict(s, &m);
	msg_arena_release(&arena);
	buf_release(&frame);
}

void stage_verdict(struct stage *s, const struct msg *verdict)
{
	if (run_verdict_write(&s->run, verdict) == -E_AGAIN)
		stage_look_for_verdict(s);
	/* Without a disk it still goes through the links. */
	take_verdict(s, verdict);
}

/* ---- failures ---- */

bool stage_was_there(const struct stage *s, enum dir d)
{
	pid_t pid;

	run_is_alive(&s->run, stage_neighbour(s, d), &pid);
	return pid != 0;
}

/* Not before `end` has passed through our link, in this or an earlier
 * instance of ours. */
bool stage_nothing_opened(const struct stage *s)
{
	if (s->ops->id == STAGE_COMMIT)
		return s->priv->phase == PH_EARLY && s->run.instance == 1;
	if (s->priv->ever_up[DOWN])
		return false;
	return s->run.instance == 1 || !stage_was_there(s, DOWN);
}

void stage_end_early(struct stage *s, int code)
{
	struct msg m = { .type = M_verdict };
	char *cause = xstrdup(log_cause());
	int was = log_quiet_thread(1);

	m.verdict.exit = (uint8_t)code;
	m.verdict.cause = slice_of(cause);
	if (run_verdict_write(&s->run, &m) < 0)
		log_debug("verdict: %s", log_cause());
	log_quiet_thread(was);
	/* What ended us is what the next stage is told. */
	log_adopt_cause(E_AGAIN, cause);
	free(cause);
}

static void end_alone(struct stage *s, const struct m_failed *f)
{
	struct msg m = { .type = M_verdict };

	m.verdict.exit = (uint8_t)(f->signal ? 128 + f->signal
					     : err_exit_code(-(int)f->code));
	m.verdict.signal = f->signal;
	m.verdict.cause = f->cause;
	stage_verdict(s, &m);
}

static void fail(struct stage *s, const struct msg *m)
{
	if (s->priv->phase == PH_ENDING)
		return;
	if (stage_nothing_opened(s))
		end_alone(s, &m->failed);
	else if (s->ops->id == STAGE_COMMIT)
		s->ops->msg(s, UP, m);
	else
		stage_send(s, DOWN, m);
}

void stage_fail(struct stage *s, int rc, uint32_t engine, uint32_t bucket)
{
	struct msg m = { .type = M_failed };
	char *cause = xstrdup(log_cause());

	m.failed.engine = engine;
	m.failed.bucket = bucket;
	m.failed.code = (uint8_t)-rc;
	m.failed.said = true;
	m.failed.cause = slice_of(cause);
	fail(s, &m);
	free(cause);
}

void stage_fail_signal(struct stage *s, int signo)
{
	struct msg m = { .type = M_failed };
	char cause[64];

	snprintf(cause, sizeof cause, "%s stopped by SIG%s", log_name(),
		 sigabbrev_np(signo));
	m.failed.engine = m.failed.bucket = ID_NONE;
	m.failed.code = E_AGAIN;
	m.failed.signal = (uint8_t)signo;
	m.failed.said = true;
	m.failed.cause = slice_of(cause);
	fail(s, &m);
}

/* ---- messages ---- */

/* Ours as well, whether it comes by or starts here (commit). */
static void note_epoch(struct stage *s, const struct msg *m)
{
	if (m->type == M_opened)
		s->epoch = s->priv->hello.epoch = m->opened.epoch;
}

int stage_send(struct stage *s, enum dir d, const struct msg *m)
{
	struct stage_priv *p = s->priv;
	bool fact = facts_is_fact(m->type);
	int rc;

	note_epoch(s, m);
	if (!p->has[d])
		return 0;
	if (fact) {
		rc = facts_keep(&p->facts[d], m);
		if (rc <= 0)
			return rc;
	}
	rc = link_send(&p->link[d], m);
	return fact && rc == -E_AGAIN ? 0 : rc;
}

static void to_ops(struct stage *s, enum dir d, const struct msg *m)
{
	int rc = s->ops->msg(s, d, m);

	if (rc < 0)
		stage_fail(s, rc, ID_NONE, ID_NONE);
}

/* From commit, to all: seen here, then passed on. */
static void pass_up(struct stage *s, const struct msg *m)
{
	struct stage_priv *p = s->priv;

	if (m->type == M_exclude)
		facts_drop_failed(&p->facts[DOWN], m->exclude.engine);
	if (m->type == M_abort)
		facts_drop_failed(&p->facts[DOWN], ID_NONE);
	note_epoch(s, m);
	to_ops(s, DOWN, m);
	stage_send(s, UP, m);
}

void stage_give_up(struct stage *s, int code)
{
	say_bye(s, UP, code);
	stage_leave(s, code);
}

/* Upstream has the verdict; or a neighbour refuses us, or knows that there
 * will be none. */
static void take_bye(struct stage *s, enum dir d, const struct m_bye *bye)
{
	if (s->priv->phase == PH_ENDING) {
		if (d == UP)
			stage_leave(s, s->priv->code);
		return;
	}
	if (bye->exit == err_exit_code(-E_FENCED)) {
		log_error(E_FENCED, "refused by weir-%s: fenced off",
			  stage_name(stage_neighbour(s, d)));
		stage_leave(s, bye->exit);
	} else if (d == DOWN) {
		log_error(E_AGAIN,
			  "weir-%s gave up: outcome unknown, ask weir "
			  "status",
			  stage_name(stage_neighbour(s, d)));
		stage_give_up(s, bye->exit);
	}
}

static void on_msg(void *arg, enum dir d, const struct msg *m)
{
	struct stage *s = arg;

	/* The link may have taken several at once. */
	if (s->priv->left)
		return;
	if (m->type == M_bye) {
		take_bye(s, d, &m->bye);
		return;
	}
	if (s->priv->phase == PH_ENDING)
		return;
	if (m->type == M_verdict && d == DOWN)
		take_verdict(s, m);
	else if (m->type == M_failed && d == UP && s->ops->id != STAGE_COMMIT)
		stage_send(s, DOWN, m);
	else if (d == DOWN && (m->type == M_opened || m->type == M_exclude ||
			       m->type == M_abort))
		pass_up(s, m);
	else
		to_ops(s, d, m);
}

static void on_up(void *arg, enum dir d, const struct m_hello *h)
{
	struct stage *s = arg;
	struct stage_priv *p = s->priv;
	int rc;

	if (p->left)
		return;
	p->ever_up[d] = s->up[d] = true;
	p->lost_since[d] = 0;
	if (h) {
		s->peer[d] = *h;
		s->peer[d].build = s->peer[d].run = (struct slice){ 0 };
		log_info("weir-%s instance %u is there",
			 stage_name(stage_neighbour(s, d)), h->instance);
	}
	for (size_t i = 0; i < p->facts[d].n; i++)
		link_send_frame(&p->link[d],
				buf_slice(&p->facts[d].v[i].frame));
	if (p->phase == PH_ENDING) {
		if (d == DOWN)
			say_bye(s, DOWN, p->code);
		return;
	}
	rc = s->ops->peer_up(s, d);
	if (rc < 0)
		stage_fail(s, rc, ID_NONE, ID_NONE);
}

static void on_lost(void *arg, enum dir d, const char *why)
{
	struct stage *s = arg;

	s->up[d] = false;
	s->priv->lost_since[d] = clock_mono_ms();
	log_info("weir-%s is lost: %s", stage_name(stage_neighbour(s, d)), why);
	/* It had the verdict, or reads it from the run directory. */
	if (s->priv->phase == PH_ENDING && d == UP)
		stage_leave(s, s->priv->code);
}

static void on_broken(void *arg, enum dir d, int rc)
{
	(void)d;
	stage_fail(arg, rc, ID_NONE, ID_NONE);
}

const struct link_ops stage_link_ops = {
	.up = on_up,
	.lost = on_lost,
	.msg = on_msg,
	.broken = on_broken,
};
