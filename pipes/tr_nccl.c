/*
 * tr_nccl.c - one broadcast, or one buffer that all can map, reaches every
 * engine of a wave: transports nccl and cuda-ipc.
 *
 * The proxy of weir-move-nccl or weir-move-ipc (move.h), which is rank 0.  Each
 * receiver has a mover of its own; it is asked to enroll, to join a group and
 * to take offers over a fan, and the fan's deadlines are ours.
 *
 * Who is posted a bucket at once decides the group: all attached receivers
 * make one group, else each engine has its own.  A group is formed when a
 * bucket first goes to it, one after another in the order of the fleet, and
 * used for the rest of the run.
 *
 * An offer goes to rank 0 first: receivers hear of it when it has been read
 * and launched, so that a source that fails does not leave them waiting in a
 * broadcast.  An ack is passed on after rank 0 has let go of the bucket, which
 * by cuda-ipc it does when it hears that all of the group have acked it.
 *
 * A member that fails takes its group with it: what its others were posted
 * fails as well.
 */
#include "pipes/tr_nccl.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tr_nccl_way by_nccl = {
	.name = "nccl",
	.mover = &mover_nccl,
};

static const struct tr_nccl_way by_ipc = {
	.name = "cuda-ipc",
	.mover = &mover_ipc,
	.is_mapped = true,
};

struct nccl *tr_nccl_of(const struct transport *t)
{
	return t->self;
}

const char *tr_nccl_name_of(const struct transport *t, uint32_t receiver)
{
	const struct plan *p = t->env->plan;

	return p->engine[p->receiver[receiver].engine].name;
}

/* ---- enrolling ---- */

static void take_device(struct device *d, const struct m_enrolled *e)
{
	d->is_known = e->uuid.n == GPU_UUID_LEN;
	if (d->is_known)
		memcpy(d->uuid, e->uuid.p, GPU_UUID_LEN);
	d->library = e->library;
}

static bool is_same_device(const struct device *a, const struct device *b)
{
	return a->is_known && b->is_known &&
	       memcmp(a->uuid, b->uuid, GPU_UUID_LEN) == 0;
}

/* What is on another device could be read over peer access: not built. */
static int check_one_device(const struct nccl *n, uint32_t receiver)
{
	char its[GPU_UUID_TEXT], ours[GPU_UUID_TEXT];

	if (is_same_device(&n->device[receiver], &n->root))
		return 0;
	gpu_uuid_text(n->device[receiver].uuid, its);
	gpu_uuid_text(n->root.uuid, ours);
	return log_error(E_CONFIG,
			 "it is on %s, the source on %s: cuda-ipc needs one "
			 "device for both; use transport nccl",
			 its, ours);
}

/* 0, or why it cannot be in a group with the others. */
static int check_device(const struct transport *t, uint32_t receiver)
{
	const struct nccl *n = tr_nccl_of(t);
	const struct device *d = &n->device[receiver];
	char uuid[GPU_UUID_TEXT], have[NCCL_TEXT], want[NCCL_TEXT];

	if (n->way->is_mapped)
		return check_one_device(n, receiver);
	gpu_uuid_text(d->uuid, uuid);
	nccl_version_text(d->library, have);
	nccl_version_text(n->root.library, want);
	if (!nccl_is_compatible(d->library, n->root.library))
		return log_error(E_CONFIG, "it has NCCL %s, the source %s",
				 have, want);
	if (is_same_device(d, &n->root))
		return log_error(E_CONFIG,
				 "it and the source are both on %s: NCCL needs "
				 "a device for each; use transport host or "
				 "cuda-ipc",
				 uuid);
	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		if (r != receiver && n->attached[r] &&
		    is_same_device(d, &n->device[r]))
			return log_error(E_CONFIG,
					 "it and engine %s are both on %s: "
					 "NCCL needs a device for each",
					 tr_nccl_name_of(t, r), uuid);
	return 0;
}

/* When both ends are known. */
static void try_attach(struct transport *t, uint32_t receiver)
{
	struct nccl *n = tr_nccl_of(t);

	if (!n->wants[receiver] || !n->root.is_known ||
	    !n->device[receiver].is_known)
		return;
	n->wants[receiver] = false;
	if (check_device(t, receiver) < 0) {
		tr_tell_failed(t, receiver, ID_NONE, E_CONFIG,
			       slice_of(log_cause()));
		return;
	}
	n->attached[receiver] = true;
	tr_tell_attached(t, receiver);
}

/* ---- what the mover says ---- */

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

static void mover_refused(struct transport *t, const struct m_refused *r)
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

static void mover_enrolled(struct transport *t, const struct m_enrolled *e)
{
	struct nccl *n = tr_nccl_of(t);

	take_device(&n->root, e);
	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		try_attach(t, r);
}

static void mover_said(void *arg, const struct msg *m)
{
	struct transport *t = arg;
	struct nccl *n = tr_nccl_of(t);
	struct group *g;
	struct cast *c;

	switch (m->type) {
	case M_enrolled:
		mover_enrolled(t, &m->enrolled);
		break;
	case M_grouped:
		g = group_by_seq(n, m->grouped.seq);
		if (g)
			tr_nccl_ask_to_join(t, g, &m->grouped);
		break;
	case M_joined:
		g = group_by_seq(n, m->joined.seq);
		if (g && m->joined.formed)
			tr_nccl_one_formed(t, g);
		break;
	case M_launched:
		c = cast_by_seq(n, m->launched.seq);
		if (c)
			tr_nccl_launched(t, c, m->launched.buffer);
		break;
	case M_ack:
		c = cast_by_seq(n, m->ack.seq);
		if (c)
			tr_nccl_moved(t, c);
		break;
	case M_refused:
		mover_refused(t, &m->refused);
		break;
	default:
		log_debug("%s sent %s", n->way->mover->program,
			  msg_name(m->type));
	}
	tr_nccl_watch_mover(t);
}

/* Nothing can go on without it. */
static void mover_lost(struct transport *t, int code, const char *cause)
{
	struct nccl *n = tr_nccl_of(t);

	n->gone_code = code;
	snprintf(n->gone, sizeof(n->gone), "%s", cause);
	mover_free(n->mover);
	n->mover = NULL;
	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		if (n->wants[r])
			tr_tell_failed(t, r, ID_NONE, code, slice_of(n->gone));
	for (uint32_t i = 0; i < n->ngroups; i++)
		tr_nccl_break_group(t, n->group[i], code, n->gone);
}

static void mover_ended(void *arg, int rc)
{
	mover_lost(arg, -rc, log_cause());
}

static const struct mover_ops mover_ops = {
	.msg = mover_said,
	.ended = mover_ended,
};

static void silent(void *arg)
{
	struct transport *t = arg;
	char time[UNITS_MAX], cause[128];

	snprintf(cause, sizeof(cause), "%s said nothing for %s",
		 tr_nccl_of(t)->way->mover->program,
		 units_time((int64_t)t->env->load_ms, time));
	mover_lost(t, E_TIMEOUT, cause);
}

/* ---- what receivers say ---- */

static void member_joined(struct transport *t, uint32_t receiver,
			  struct group *g, const struct m_joined *j)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->member[i] == receiver)
			g->entered[i] = true;
	if (j->formed)
		tr_nccl_one_formed(t, g);
}

static void take_ack(struct transport *t, uint32_t receiver,
		     const struct m_ack *a)
{
	uint32_t workers = t->env->plan->receiver[receiver].workers;
	struct cast *c;
	struct post *p =
		tr_nccl_find_post(tr_nccl_of(t), receiver, a->bucket, &c);
	struct tr_event e = { .kind = TR_ACK,
			      .receiver = receiver,
			      .bucket = a->bucket,
			      .worker = a->worker,
			      .bytes = a->bytes,
			      .digest = a->digest };

	if (!slice_eq(a->boot, slice_of(t->env->boot[receiver]))) {
		tr_nccl_lose(t, receiver, E_FENCED, "it was restarted");
		return;
	}
	/* Once too often: judged by whoever counts. */
	if (!p || p->acks == workers) {
		tr_tell(t, &e);
		return;
	}
	if (!p->ack)
		p->ack = xcalloc(workers, sizeof(*p->ack));
	p->ack[p->acks++] = e;
	tr_nccl_settle(t, c, p);
	tr_nccl_sweep(tr_nccl_of(t));
}

static void take_reply(struct transport *t, uint32_t receiver, uint64_t tag,
		       const struct msg *m)
{
	struct nccl *n = tr_nccl_of(t);

	switch (m->type) {
	case M_enrolled:
		take_device(&n->device[receiver], &m->enrolled);
		try_attach(t, receiver);
		break;
	case M_joined:
		if (m->joined.group == (uint32_t)tag)
			member_joined(t, receiver, n->group[(uint32_t)tag - 1],
				      &m->joined);
		break;
	default:
		take_ack(t, receiver, &m->ack);
	}
}

static void request_failed(struct transport *t, uint32_t receiver, uint64_t tag,
			   int code, const char *cause)
{
	struct nccl *n = tr_nccl_of(t);
	char kept[TR_CAUSE_MAX];

	snprintf(kept, sizeof(kept), "%s", cause);
	if (tag == TAG_ENROLL) {
		n->wants[receiver] = false;
		tr_tell_failed(t, receiver, ID_NONE, code, slice_of(kept));
	} else if ((tag & TAG_OFFER) == TAG_JOIN && code == E_TIMEOUT) {
		tr_nccl_not_formed(t, n->group[(uint32_t)tag - 1], code, kept);
	} else {
		tr_nccl_lose(t, receiver, code, kept);
	}
}

/* Rank 0 says who did not come before it leaves, and by that the others fail:
 * which of the two is read first is chance. */
static void hear_rank0(struct transport *t, uint64_t tag)
{
	struct nccl *n = tr_nccl_of(t);

	if ((tag & TAG_OFFER) == TAG_JOIN && n->mover)
		mover_look(n->mover);
}

static void replied(void *arg, uint32_t receiver, uint64_t tag,
		    const struct msg *m, int rc)
{
	struct transport *t = arg;
	char cause[TR_CAUSE_MAX];

	if (rc < 0) {
		request_failed(t, receiver, tag, -rc, log_cause());
	} else if (m->type == M_refused) {
		snprintf(cause, sizeof(cause), "%.*s",
			 SLICE_ARG(m->refused.cause));
		hear_rank0(t, tag);
		request_failed(t, receiver, tag, m->refused.code, cause);
	} else {
		take_reply(t, receiver, tag, m);
	}
}

static void stray(void *arg, uint32_t receiver, const struct msg *m)
{
	struct transport *t = arg;

	if (m->type == M_ack && m->ack.seq >> 40 == t->env->fence.instance &&
	    m->ack.bucket < t->env->plan->nbuckets)
		take_ack(t, receiver, &m->ack);
}

static void lost(void *arg, uint32_t receiver)
{
	tr_tell_lost(arg, receiver);
	tr_nccl_lose(arg, receiver, E_UNAVAIL, "it closed its connection");
}

static const struct fan_ops fan_ops = {
	.reply = replied,
	.stray = stray,
	.lost = lost,
};

/* ---- the transport ---- */

static int send_files(struct transport *t)
{
	const struct tr_env *env = t->env;
	struct nccl *n = tr_nccl_of(t);
	int rc = 0;

	for (uint32_t i = 0; i < env->plan->nfiles && rc == 0;
	     i += FDPASS_MAX) {
		uint32_t left = env->plan->nfiles - i;
		struct msg m = { .type = M_attach };

		m.attach = (struct m_attach){
			.fence = env->fence,
			.first = i,
			.count = left < FDPASS_MAX ? left : FDPASS_MAX,
		};
		rc = mover_send(n->mover, &m, env->fd + i, m.attach.count);
	}
	n->has_files = rc == 0;
	return rc;
}

static int nccl_attach(struct transport *t, uint32_t receiver)
{
	const struct tr_env *env = t->env;
	struct nccl *n = tr_nccl_of(t);
	struct msg m = { .type = M_enroll };
	int rc = 0;

	if (!n->mover)
		return log_adopt_cause(n->gone_code, n->gone);
	if (!n->has_files)
		rc = send_files(t);
	if (rc < 0)
		return rc;
	n->wants[receiver] = true;
	m.enroll = (struct m_enroll){
		.fence = env->fence,
		.boot = slice_of(env->boot[receiver]),
		.transport = slice_of(n->way->name),
		.bytes = env->plan->rank[0].bytes,
	};
	return fan_call(n->fan, receiver, &m, TAG_ENROLL, 1, env->engine_ms);
}

static int nccl_offer(struct transport *t, uint32_t wave, uint32_t bucket)
{
	tr_nccl_of(t)->wave = wave;
	tr_nccl_of(t)->bucket = bucket;
	return 0;
}

static int nccl_post(struct transport *t, uint32_t receiver)
{
	struct nccl *n = tr_nccl_of(t);

	if (!n->mover)
		return log_adopt_cause(n->gone_code, n->gone);
	if (n->npending == n->cap) {
		n->cap = n->cap ? 2 * n->cap : 16;
		n->pending =
			xreallocarray(n->pending, n->cap, sizeof(*n->pending));
	}
	n->pending[n->npending++] =
		(struct pending){ n->wave, n->bucket, receiver };
	loop_arm(t->env->loop, &n->turn, 0);
	return 0;
}

static void forget_pending(struct nccl *n, uint32_t receiver)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->npending; i++)
		if (n->pending[i].receiver != receiver)
			n->pending[kept++] = n->pending[i];
	n->npending = kept;
}

static void nccl_abort(struct transport *t, uint32_t receiver)
{
	struct nccl *n = tr_nccl_of(t);

	fan_forget(n->fan, receiver);
	forget_pending(n, receiver);
	n->wants[receiver] = n->attached[receiver] = false;
	tr_nccl_lose(t, receiver, E_UNAVAIL, "it was let go of");
}

static void nccl_close(struct transport *t)
{
	struct nccl *n = tr_nccl_of(t);

	loop_disarm(t->env->loop, &n->turn);
	loop_disarm(t->env->loop, &n->silence);
	mover_free(n->mover);
	fan_free(n->fan);
	tr_nccl_free_casts(n);
	tr_nccl_free_groups(n);
	free(n->pending);
	free(n->device);
	free(n->wants);
	free(n->attached);
	msg_arena_release(&n->arena);
	tr_pieces_release(&n->pieces);
	free(n);
}

static int start_mover(struct transport *t)
{
	struct nccl *n = tr_nccl_of(t);
	struct msg m = { .type = M_enroll };
	int rc = mover_start(&n->mover, t->env->loop, n->way->mover, &mover_ops,
			     t);

	if (rc < 0)
		return rc;
	m.enroll = (struct m_enroll){ .seq = ++n->seq,
				      .fence = t->env->fence,
				      .transport = slice_of(n->way->name),
				      .bytes = t->env->plan->rank[0].bytes };
	return mover_send(n->mover, &m, NULL, 0);
}

static void init(struct transport *t, struct nccl *n)
{
	const struct plan *p = t->env->plan;

	tr_pieces_init(&n->pieces, p);
	n->device = xcalloc(p->nreceivers, sizeof(*n->device));
	n->wants = xcalloc(p->nreceivers, sizeof(*n->wants));
	n->attached = xcalloc(p->nreceivers, sizeof(*n->attached));
	n->turn = (struct loop_timer){ .fn = tr_nccl_turn, .arg = t };
	n->silence = (struct loop_timer){ .fn = silent, .arg = t };
	for (uint32_t b = 0; b < p->nbuckets; b++)
		if (plan_share(p, b, 0) > n->room)
			n->room = plan_share(p, b, 0);
	n->fan = fan_new(t->env->loop, &fan_ops, t);
}

static int nccl_check(void)
{
	return mover_check(&mover_nccl);
}

static int ipc_check(void)
{
	return mover_check(&mover_ipc);
}

static int open_by(struct transport *t, const struct tr_nccl_way *way)
{
	struct nccl *n;
	int rc;

	if (t->env->plan->nranks > 1)
		return log_error(E_CONFIG,
				 "transport %s: several source ranks are not "
				 "built yet",
				 way->name);
	t->self = n = xcalloc(1, sizeof(*n));
	n->way = way;
	init(t, n);
	rc = n->fan ? tr_add_receivers(t, n->fan, 0) : -E_IO;
	if (rc == 0)
		rc = start_mover(t);
	if (rc < 0)
		nccl_close(t);
	return rc;
}

static int nccl_open(struct transport *t)
{
	return open_by(t, &by_nccl);
}

static int ipc_open(struct transport *t)
{
	return open_by(t, &by_ipc);
}

#define SHARED_SLOTS                                                \
	.caps = TR_DEVICE | TR_FANOUT, .attach = nccl_attach,       \
	.offer = nccl_offer, .post = nccl_post, .load = tr_no_load, \
	.poll = tr_no_poll, .abort = nccl_abort, .close = nccl_close

const struct transport_ops tr_nccl_ops = {
	.name = "nccl",
	.check = nccl_check,
	.open = nccl_open,
	SHARED_SLOTS,
};

const struct transport_ops tr_ipc_ops = {
	.name = "cuda-ipc",
	.check = ipc_check,
	.open = ipc_open,
	SHARED_SLOTS,
};
