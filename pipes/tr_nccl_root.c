#include "pipes/tr_nccl.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/units.h"

#include <stdio.h>
#include <string.h>

/* ---- what its mover says ---- */

static struct group *group_by_seq(struct nccl *n, uint64_t seq)
{
	for (uint32_t i = n->ngroups; i > 0; i--)
		if (n->group[i - 1]->seq == seq)
			return n->group[i - 1];
	return NULL;
}

static struct cast *cast_by_seq(struct nccl *n, uint64_t seq)
{
	struct cast *c = n->cast;

	while (c && c->seq != seq)
		c = c->next;
	return c;
}

static void refused(struct transport *t, const struct m_refused *r)
{
	struct nccl *n = tr_nccl_of(t);
	struct group *g = group_by_seq(n, r->seq);
	struct cast *c = cast_by_seq(n, r->seq);
	char cause[TR_CAUSE_MAX];

	snprintf(cause, sizeof(cause), "%.*s", SLICE_ARG(r->cause));
	if (g && g->state == GROUP_FORMING) {
		tr_nccl_not_formed(t, g, r->code, cause);
	} else if (c && c->is_launched) {
		tr_nccl_break_group(t, c->group, r->code, cause);
	} else if (c) {
		c->is_moved = true;
		tr_nccl_fail_cast(t, c, r->code, cause);
		tr_nccl_sweep(n);
	}
}

static void enrolled(struct root *r, const struct m_enrolled *e)
{
	tr_nccl_take_device(&r->device, e);
	for (uint32_t i = 0; i < r->t->env->plan->nreceivers; i++)
		tr_nccl_try_attach(r->t, i);
}

static void note_pinned(struct root *r, uint64_t bytes)
{
	r->t->pinned += bytes - r->pinned;
	r->pinned = bytes;
}

static void said(void *arg, const struct msg *m)
{
	struct root *r = arg;
	struct nccl *n = tr_nccl_of(r->t);
	struct group *g;
	struct cast *c;

	switch (m->type) {
	case M_enrolled:
		enrolled(r, &m->enrolled);
		break;
	case M_grouped:
		g = group_by_seq(n, m->grouped.seq);
		if (g)
			tr_nccl_ask_to_join(r->t, g, &m->grouped);
		break;
	case M_joined:
		note_pinned(r, m->joined.pinned);
		g = group_by_seq(n, m->joined.seq);
		if (g && m->joined.formed)
			tr_nccl_one_formed(r->t, g);
		break;
	case M_launched:
		c = cast_by_seq(n, m->launched.seq);
		if (c)
			tr_nccl_launched(r->t, c, m->launched.buffer);
		break;
	case M_ack:
		c = cast_by_seq(n, m->ack.seq);
		if (c)
			tr_nccl_moved(r->t, c);
		break;
	case M_refused:
		refused(r->t, &m->refused);
		break;
	default:
		log_debug("%s sent %s", n->way->mover->program,
			  msg_name(m->type));
	}
	tr_nccl_watch_root(r);
}

/* ---- its end ---- */

/* Nothing of its rank can go on without it. */
static void lose(struct root *r, int code, const char *cause)
{
	struct transport *t = r->t;
	struct nccl *n = tr_nccl_of(t);
	char whose[32] = "";

	if (t->env->plan->nranks > 1)
		snprintf(whose, sizeof(whose), "source rank %u: ", r->rank);
	loop_disarm(t->env->loop, &r->silence);
	r->gone_code = code;
	snprintf(r->gone, sizeof(r->gone), "%s%s", whose, cause);
	mover_free(r->mover);
	r->mover = NULL;
	for (uint32_t i = 0; i < t->env->plan->nreceivers; i++) {
		if (!n->wants[i] || tr_nccl_root_of(t, i) != r)
			continue;
		n->wants[i] = false;
		tr_tell_failed(t, i, ID_NONE, code, slice_of(r->gone));
	}
	for (uint32_t i = 0; i < n->ngroups; i++)
		if (n->group[i]->root == r)
			tr_nccl_break_group(t, n->group[i], code, r->gone);
}

static void ended(void *arg, int rc)
{
	lose(arg, -rc, log_cause());
}

static const struct mover_ops mover_ops = {
	.msg = said,
	.ended = ended,
};

static void silent(void *arg)
{
	struct root *r = arg;
	char time[UNITS_MAX], cause[128];

	snprintf(cause, sizeof(cause), "%s said nothing for %s",
		 tr_nccl_of(r->t)->way->mover->program,
		 units_time((int64_t)r->patience_ms, time));
	lose(r, E_TIMEOUT, cause);
}

static bool is_forming(const struct root *r)
{
	const struct nccl *n = tr_nccl_of(r->t);

	for (uint32_t i = 0; i < n->ngroups; i++)
		if (n->group[i]->root == r &&
		    n->group[i]->state == GROUP_FORMING)
			return true;
	return false;
}

static bool owes_bucket(const struct root *r)
{
	const struct nccl *n = tr_nccl_of(r->t);

	for (const struct cast *c = n->cast; c; c = c->next)
		if (c->group->root == r && tr_nccl_is_owed(n, c))
			return true;
	return false;
}

/* 0: it owes nothing. */
static uint64_t patience_with(const struct root *r)
{
	const struct tr_env *env = r->t->env;

	if (!r->mover)
		return 0;
	if (!r->device.is_known)
		return env->engine_ms;
	/* Its own deadline, and then those of the others, say more. */
	if (is_forming(r))
		return 2 * env->load_ms;
	return owes_bucket(r) ? env->load_ms : 0;
}

void tr_nccl_watch_root(struct root *r)
{
	struct loop *l = r->t->env->loop;

	r->patience_ms = patience_with(r);
	if (r->patience_ms)
		loop_arm(l, &r->silence, (int64_t)r->patience_ms);
	else
		loop_disarm(l, &r->silence);
}

/* ---- its start ---- */

void tr_nccl_init_root(struct root *r, struct transport *t, uint32_t rank)
{
	const struct plan *p = t->env->plan;

	*r = (struct root){ .t = t, .rank = rank };
	r->silence = (struct loop_timer){ .fn = silent, .arg = r };
	for (uint32_t b = 0; b < p->nbuckets; b++)
		if (plan_share(p, b, rank) > r->room)
			r->room = plan_share(p, b, rank);
}

static int borrow_mover(struct root *r, const char *keeper)
{
	const struct tr_env *env = r->t->env;
	const struct m_borrow what = { .run = env->fence.run,
				       .instance = env->fence.instance,
				       .rank = r->rank };
	struct loan loan;
	int rc = loan_open(keeper, &what, &loan);

	if (rc < 0)
		return rc;
	r->keep_ms = loan.keep_ms;
	mover_take_lent(&r->mover, env->loop, tr_nccl_of(r->t)->way->mover,
			&loan, &mover_ops, r);
	return 0;
}

static int get_mover(struct root *r)
{
	const struct tr_env *env = r->t->env;

	if (env->conf && env->conf->keeper)
		return borrow_mover(r, env->conf->keeper);
	return mover_start(&r->mover, env->loop, tr_nccl_of(r->t)->way->mover,
			   &mover_ops, r);
}

int tr_nccl_start_root(struct root *r)
{
	const struct tr_env *env = r->t->env;
	struct nccl *n = tr_nccl_of(r->t);
	struct msg m = { .type = M_enroll };
	int rc = get_mover(r);

	if (rc < 0)
		return rc;
	m.enroll = (struct m_enroll){ .seq = ++n->seq,
				      .fence = env->fence,
				      .transport = slice_of(n->way->name),
				      .bytes = env->plan->rank[r->rank].bytes,
				      .device = r->rank,
				      .room = r->room,
				      .keep_ms = r->keep_ms };
	rc = mover_send(r->mover, &m, NULL, 0);
	tr_nccl_watch_root(r);
	return rc;
}

int tr_nccl_give_files(struct root *r)
{
	const struct tr_env *env = r->t->env;
	const struct plan_rank *rank = &env->plan->rank[r->rank];
	int rc = 0;

	if (!r->mover)
		return log_adopt_cause(r->gone_code, r->gone);
	if (r->has_files)
		return 0;
	for (uint32_t i = 0; i < rank->files && rc == 0; i += FDPASS_MAX) {
		uint32_t left = rank->files - i;
		struct msg m = { .type = M_attach };

		m.attach = (struct m_attach){
			.fence = env->fence,
			.first = i,
			.count = left < FDPASS_MAX ? left : FDPASS_MAX,
		};
		rc = mover_send(r->mover, &m, env->fd + rank->first + i,
				m.attach.count);
	}
	r->has_files = rc == 0;
	return rc;
}

void tr_nccl_return_root(struct root *r)
{
	if (!r->mover || r->keep_ms == 0)
		return;
	loop_disarm(r->t->env->loop, &r->silence);
	mover_return(r->mover);
	r->mover = NULL;
}

void tr_nccl_free_root(struct root *r)
{
	loop_disarm(r->t->env->loop, &r->silence);
	mover_free(r->mover);
	kept_release(&r->device.kept);
}
