#include "pipes/transport.h"

#include "common/err.h"
#include "common/log.h"
#include "pipes/fan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEW, ATTACHING, ATTACHED, GONE };

static const struct transport_ops *const all[] = {
	&tr_host_ops,  &tr_mem_ops,  &tr_disk_ops,
	&tr_delta_ops, &tr_nccl_ops, &tr_ipc_ops,
};

const struct transport_ops *transport_find(const char *name)
{
	for (size_t i = 0; i < COUNT(all); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}

static int misuse(const struct transport *t, const char *what)
{
	return log_error(E_BUG, "transport %s: %s", t->ops->name, what);
}

static void release(struct transport *t)
{
	free(t->queue.v);
	free(t->state);
	*t = (struct transport){ 0 };
}

int transport_check(const struct transport_ops *ops,
		    const struct transfer_conf *conf, uint32_t ranks)
{
	if (conf->keeper && !transport_has(ops->name, TR_KEEPS))
		return log_error(E_CONFIG,
				 "--keeper %s: transport %s has no groups to "
				 "keep",
				 conf->keeper, ops->name);
	return ops->check(conf, ranks);
}

int transport_open(struct transport *t, const struct transport_ops *ops,
		   const struct tr_env *env)
{
	int rc;

	*t = (struct transport){ .ops = ops, .env = env, .bucket = ID_NONE };
	t->state = xcalloc(env->plan->nreceivers, 1);
	rc = ops->open(t);
	if (rc < 0)
		release(t);
	return rc;
}

int transport_attach(struct transport *t, uint32_t receiver)
{
	if (receiver >= t->env->plan->nreceivers || t->state[receiver] != NEW)
		return misuse(t, "attach twice, or after abort");
	t->state[receiver] = ATTACHING;
	return t->ops->attach(t, receiver);
}

int transport_offer(struct transport *t, uint32_t wave, uint32_t bucket)
{
	int rc;

	if (bucket >= t->env->plan->nbuckets)
		return misuse(t, "offer of a bucket that is not in the plan");
	t->bucket = ID_NONE;
	rc = t->ops->offer(t, wave, bucket);
	if (rc == 0) {
		t->wave = wave;
		t->bucket = bucket;
	}
	return rc;
}

int transport_post(struct transport *t, uint32_t receiver)
{
	if (receiver >= t->env->plan->nreceivers || t->bucket == ID_NONE ||
	    t->state[receiver] != ATTACHED)
		return misuse(t, "post to a receiver that is not attached");
	return t->ops->post(t, receiver);
}

int transport_load(struct transport *t, uint32_t receiver)
{
	if (receiver >= t->env->plan->nreceivers ||
	    t->state[receiver] != ATTACHED)
		return misuse(t, "load by a receiver that is not attached");
	return t->ops->load(t, receiver);
}

static int pop(struct tr_queue *q, struct tr_event *e)
{
	if (q->n == 0)
		return 0;
	*e = q->v[q->head++];
	if (--q->n == 0)
		q->head = 0;
	return 1;
}

int transport_poll(struct transport *t, struct tr_event *e)
{
	for (;;) {
		if (t->queue.n == 0)
			t->ops->poll(t);
		if (pop(&t->queue, e) == 0)
			return 0;
		if (e->receiver == ID_NONE)
			return 1;
		if (t->state[e->receiver] == GONE)
			continue;
		if (e->kind == TR_ATTACHED)
			t->state[e->receiver] = ATTACHED;
		return 1;
	}
}

void transport_keep(struct transport *t)
{
	t->ops->keep(t);
}

void transport_abort(struct transport *t, uint32_t receiver)
{
	if (receiver >= t->env->plan->nreceivers || t->state[receiver] == GONE)
		return;
	t->state[receiver] = GONE;
	t->ops->abort(t, receiver);
}

void transport_abort_all(struct transport *t)
{
	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		transport_abort(t, r);
}

void transport_close(struct transport *t)
{
	if (!t->ops)
		return;
	transport_abort_all(t);
	t->ops->close(t);
	release(t);
}

/* ---- for transports ---- */

int tr_no_check(const struct transfer_conf *conf, uint32_t ranks)
{
	(void)conf;
	(void)ranks;
	return 0;
}

int tr_no_offer(struct transport *t, uint32_t wave, uint32_t bucket)
{
	(void)wave;
	(void)bucket;
	return misuse(t, "it carries no buckets");
}

int tr_no_post(struct transport *t, uint32_t receiver)
{
	(void)receiver;
	return misuse(t, "it carries no buckets");
}

int tr_no_load(struct transport *t, uint32_t receiver)
{
	(void)receiver;
	return misuse(t, "it carries buckets, no whole versions");
}

void tr_no_keep(struct transport *t)
{
	(void)t;
}

void tr_no_poll(struct transport *t)
{
	(void)t;
}

static void push(struct tr_queue *q, const struct tr_event *e)
{
	if (q->n && q->head + q->n == q->cap) {
		memmove(q->v, q->v + q->head, q->n * sizeof(*q->v));
		q->head = 0;
	}
	if (q->n == q->cap) {
		q->cap = q->cap ? 2 * q->cap : 16;
		q->v = xreallocarray(q->v, q->cap, sizeof(*q->v));
	}
	q->v[q->head + q->n++] = *e;
}

void tr_tell(struct transport *t, const struct tr_event *e)
{
	push(&t->queue, e);
	t->env->wake(t->env->arg);
}

void tr_tell_attached(struct transport *t, uint32_t receiver)
{
	tr_tell(t, &(struct tr_event){ .kind = TR_ATTACHED,
				       .receiver = receiver,
				       .bucket = ID_NONE });
}

void tr_tell_failed(struct transport *t, uint32_t receiver, uint32_t bucket,
		    int code, struct slice cause)
{
	struct tr_event e = { .kind = TR_FAILED,
			      .receiver = receiver,
			      .bucket = bucket,
			      .code = code };

	snprintf(e.cause, sizeof(e.cause), "%.*s", SLICE_ARG(cause));
	tr_tell(t, &e);
}

void tr_tell_lost(struct transport *t, uint32_t receiver)
{
	struct tr_event e = { .kind = TR_LOST,
			      .receiver = receiver,
			      .bucket = ID_NONE,
			      .code = E_UNAVAIL };

	snprintf(e.cause, sizeof(e.cause), "%s closed its connection",
		 t->env->plan->receiver[receiver].endpoint);
	tr_tell(t, &e);
}

int tr_add_receivers(const struct transport *t, struct fan *f, size_t fds)
{
	const struct plan *p = t->env->plan;
	int rc = fan_reserve(f, p->nreceivers, fds);

	for (uint32_t r = 0; r < p->nreceivers && rc >= 0; r++)
		rc = fan_add(f, p->receiver[r].endpoint);
	fan_number_from(f, (uint64_t)t->env->fence.instance << 40);
	return rc < 0 ? rc : 0;
}

void tr_pieces_init(struct tr_pieces *t, const struct plan *p)
{
	t->first = xcalloc(p->nranks + 1, sizeof(*t->first));
}

void tr_pieces_release(struct tr_pieces *t)
{
	free(t->first);
	t->first = NULL;
}

/* Parts are in file order, and so in rank order. */
int tr_pieces_of(struct tr_pieces *t, const struct plan *p, uint32_t bucket,
		 struct msg_arena *a)
{
	struct msg m;
	int rc = plan_bucket(p, bucket, &m, a);
	uint32_t n = 0, i = 0;

	if (rc < 0)
		return rc;
	for (uint32_t r = 0; r < p->nranks; r++) {
		t->first[r] = n;
		for (; i < m.bucket.parts.n; i++) {
			const struct m_part *part = &m.bucket.parts.v[i];

			if (p->file[part->file].rank != r)
				break;
			if (part->bytes == 0)
				continue;
			t->v[n++] = (struct m_piece){
				.file = part->file - p->rank[r].first,
				.offset = part->offset,
				.bytes = part->bytes,
			};
		}
	}
	t->first[p->nranks] = n;
	t->bucket = bucket;
	return 0;
}
