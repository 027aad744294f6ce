/*
 * tr_nccl.c - one broadcast, or one buffer that all can map, reaches every
 * engine of a wave: transports nccl and cuda-ipc.
 *
 * The proxy of weir-move-nccl or weir-move-ipc (move.h), which is rank 0: one
 * for each source rank, on a device of its own.  Each receiver has a mover of
 * its own; it is asked to enroll, to join a group and to take offers over a
 * fan, and the fan's deadlines are ours.
 *
 * Who is posted a bucket at once decides the group: all attached receivers
 * make one group, else each engine has its own; of several source ranks, for
 * each of them apart.  A group is formed when a bucket first goes to it, one
 * after another in the order of the fleet, and used for the rest of the run.
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

struct root *tr_nccl_root_of(const struct transport *t, uint32_t receiver)
{
	return &tr_nccl_of(t)->root[t->env->plan->receiver[receiver].rank];
}

/* ---- enrolling ---- */

void tr_nccl_take_device(struct device *d, const struct m_enrolled *e)
{
	d->is_known = e->uuid.n == GPU_UUID_LEN;
	if (d->is_known)
		memcpy(d->uuid, e->uuid.p, GPU_UUID_LEN);
	d->library = e->library;
	d->peers_len = e->peers.n;
	if (e->peers.n > 0)
		memcpy(d->peers, e->peers.p, e->peers.n);
	kept_set(&d->kept, e->kept.v, e->kept.n);
}

static bool is_same_device(const struct device *a, const struct device *b)
{
	return a->is_known && b->is_known &&
	       memcmp(a->uuid, b->uuid, GPU_UUID_LEN) == 0;
}

#define WHO_MAX 128

/* As the engine's fault calls it: "engine a: it is on ...". */
static const char *its_name(const struct transport *t, uint32_t receiver,
			    char out[WHO_MAX])
{
	const struct plan *p = t->env->plan;

	snprintf(out, WHO_MAX, "it");
	if (p->nranks > 1)
		snprintf(out, WHO_MAX, "its worker %u",
			 p->receiver[receiver].worker);
	return out;
}

static const char *root_name(const struct root *r, char out[WHO_MAX])
{
	snprintf(out, WHO_MAX, "the source");
	if (r->t->env->plan->nranks > 1)
		snprintf(out, WHO_MAX, "source rank %u", r->rank);
	return out;
}

static bool is_peer(const struct device *d, const struct device *of)
{
	for (size_t i = 0; i + GPU_UUID_LEN <= d->peers_len; i += GPU_UUID_LEN)
		if (memcmp(d->peers + i, of->uuid, GPU_UUID_LEN) == 0)
			return true;
	return false;
}

static int check_reach(const struct transport *t, uint32_t receiver)
{
	const struct device *d = &tr_nccl_of(t)->device[receiver];
	const struct root *root = tr_nccl_root_of(t, receiver);
	char its[GPU_UUID_TEXT], ours[GPU_UUID_TEXT];
	char who[WHO_MAX], source[WHO_MAX];

	if (is_same_device(d, &root->device) || is_peer(d, &root->device))
		return 0;
	gpu_uuid_text(d->uuid, its);
	gpu_uuid_text(root->device.uuid, ours);
	return log_error(E_CONFIG,
			 "%s is on %s, %s on %s, which it cannot read: another "
			 "host, no peer access, or hidden by its "
			 "CUDA_VISIBLE_DEVICES; use transport nccl",
			 its_name(t, receiver, who), its,
			 root_name(root, source), ours);
}

/* NULL, or whoever of the others has this receiver's device. */
static const char *who_is_there(const struct transport *t, uint32_t receiver,
				char out[WHO_MAX])
{
	const struct plan *p = t->env->plan;
	const struct nccl *n = tr_nccl_of(t);
	const struct device *d = &n->device[receiver];

	for (uint32_t k = 0; k < p->nranks; k++)
		if (is_same_device(d, &n->root[k].device))
			return root_name(&n->root[k], out);
	for (uint32_t r = 0; r < p->nreceivers; r++) {
		if (r == receiver || !n->attached[r] ||
		    !is_same_device(d, &n->device[r]))
			continue;
		snprintf(out, WHO_MAX, "engine %s", tr_nccl_name_of(t, r));
		return out;
	}
	return NULL;
}

static int check_own_device(const struct transport *t, uint32_t receiver)
{
	char uuid[GPU_UUID_TEXT], who[WHO_MAX], other[WHO_MAX];
	const char *there = who_is_there(t, receiver, other);

	if (!there)
		return 0;
	gpu_uuid_text(tr_nccl_of(t)->device[receiver].uuid, uuid);
	return log_error(E_CONFIG,
			 "%s and %s are both on %s: NCCL needs a device for "
			 "each; use transport host or cuda-ipc",
			 its_name(t, receiver, who), there, uuid);
}

/* 0, or why it cannot be in a group with the others. */
static int check_device(const struct transport *t, uint32_t receiver)
{
	const struct nccl *n = tr_nccl_of(t);
	const struct device *d = &n->device[receiver];
	const struct device *root = &tr_nccl_root_of(t, receiver)->device;
	char have[NCCL_TEXT], want[NCCL_TEXT];

	if (n->way->is_mapped)
		return check_reach(t, receiver);
	nccl_version_text(d->library, have);
	nccl_version_text(root->library, want);
	if (!nccl_is_compatible(d->library, root->library))
		return log_error(E_CONFIG, "it has NCCL %s, the source %s",
				 have, want);
	return check_own_device(t, receiver);
}

/* Or one that is known later could be on the same. */
static bool knows_roots(const struct transport *t)
{
	for (uint32_t k = 0; k < t->env->plan->nranks; k++)
		if (!tr_nccl_of(t)->root[k].device.is_known)
			return false;
	return true;
}

void tr_nccl_try_attach(struct transport *t, uint32_t receiver)
{
	struct nccl *n = tr_nccl_of(t);

	if (!n->wants[receiver] || !n->device[receiver].is_known ||
	    !knows_roots(t))
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
		tr_nccl_take_device(&n->device[receiver], &m->enrolled);
		tr_nccl_try_attach(t, receiver);
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
static void hear_rank0(const struct root *root, uint64_t tag)
{
	if ((tag & TAG_OFFER) == TAG_JOIN && root->mover)
		mover_look(root->mover);
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
		hear_rank0(tr_nccl_root_of(t, receiver), tag);
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

static int nccl_attach(struct transport *t, uint32_t receiver)
{
	const struct tr_env *env = t->env;
	struct nccl *n = tr_nccl_of(t);
	struct root *root = tr_nccl_root_of(t, receiver);
	struct msg m = { .type = M_enroll };
	int rc = tr_nccl_give_files(root);

	if (rc < 0)
		return rc;
	n->wants[receiver] = true;
	m.enroll = (struct m_enroll){
		.fence = env->fence,
		.boot = slice_of(env->boot[receiver]),
		.transport = slice_of(n->way->name),
		.bytes = env->plan->rank[root->rank].bytes,
		.room = root->room,
		.keep_ms = root->keep_ms,
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
	const struct root *root = tr_nccl_root_of(t, receiver);

	if (!root->mover)
		return log_adopt_cause(root->gone_code, root->gone);
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

static void nccl_keep(struct transport *t)
{
	for (uint32_t k = 0; k < t->env->plan->nranks; k++)
		tr_nccl_return_root(&tr_nccl_of(t)->root[k]);
}

static void nccl_close(struct transport *t)
{
	struct nccl *n = tr_nccl_of(t);

	loop_disarm(t->env->loop, &n->turn);
	for (uint32_t k = 0; k < t->env->plan->nranks; k++)
		tr_nccl_free_root(&n->root[k]);
	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		kept_release(&n->device[r].kept);
	fan_free(n->fan);
	tr_nccl_free_casts(n);
	tr_nccl_free_groups(n);
	free(n->pending);
	free(n->root);
	free(n->device);
	free(n->wants);
	free(n->attached);
	msg_arena_release(&n->arena);
	tr_pieces_release(&n->pieces);
	free(n);
}

static void init(struct transport *t, struct nccl *n)
{
	const struct plan *p = t->env->plan;

	tr_pieces_init(&n->pieces, p);
	n->device = xcalloc(p->nreceivers, sizeof(*n->device));
	n->wants = xcalloc(p->nreceivers, sizeof(*n->wants));
	n->attached = xcalloc(p->nreceivers, sizeof(*n->attached));
	n->turn = (struct loop_timer){ .fn = tr_nccl_turn, .arg = t };
	n->root = xcalloc(p->nranks, sizeof(*n->root));
	for (uint32_t k = 0; k < p->nranks; k++)
		tr_nccl_init_root(&n->root[k], t, k);
	n->fan = fan_new(t->env->loop, &fan_ops, t);
}

/* The last one's device is there: so are all. */
static int check_devices(const struct mover_kind *mover, uint32_t ranks)
{
	int rc, was;

	if (ranks == 1)
		return mover_check(mover, 0);
	was = log_quiet_thread(1);
	rc = mover_check(mover, ranks - 1);
	log_quiet_thread(was);
	return rc == 0 ? 0
		       : log_error(-rc,
				   "%u source ranks, each on a device of its "
				   "own: %s",
				   ranks, log_cause());
}

static int nccl_check(const struct transfer_conf *conf, uint32_t ranks)
{
	int rc = 0;

	if (!conf->keeper)
		return check_devices(&mover_nccl, ranks);
	for (uint32_t k = 0; rc == 0 && k < ranks; k++)
		rc = loan_check(conf->keeper, &(struct m_borrow){ .rank = k });
	return rc;
}

static int ipc_check(const struct transfer_conf *conf, uint32_t ranks)
{
	(void)conf;
	return check_devices(&mover_ipc, ranks);
}

static int open_by(struct transport *t, const struct tr_nccl_way *way)
{
	struct nccl *n;
	int rc;

	t->self = n = xcalloc(1, sizeof(*n));
	n->way = way;
	init(t, n);
	rc = n->fan ? tr_add_receivers(t, n->fan, 0) : -E_IO;
	for (uint32_t k = 0; rc == 0 && k < t->env->plan->nranks; k++)
		rc = tr_nccl_start_root(&n->root[k]);
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

#define SHARED_SLOTS                                                   \
	.attach = nccl_attach, .offer = nccl_offer, .post = nccl_post, \
	.load = tr_no_load, .poll = tr_no_poll, .keep = nccl_keep,     \
	.abort = nccl_abort, .close = nccl_close

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
