#include "pipes/tr_nccl.h"

#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- posts and their ends ---- */

static void free_cast(struct cast *c)
{
	for (uint32_t i = 0; i < c->group->n; i++)
		free(c->post[i].ack);
	free(c->post);
	free(c);
}

static bool has_ended(const struct cast *c)
{
	for (uint32_t i = 0; i < c->group->n; i++)
		if (!c->post[i].has_ended)
			return false;
	return true;
}

void tr_nccl_sweep(struct nccl *n)
{
	struct cast **at = &n->cast;

	while (*at) {
		struct cast *c = *at;
		bool is_out = c->seq && !c->is_moved && n->mover &&
			      c->group->state != GROUP_BROKEN;

		if (!has_ended(c) || is_out) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free_cast(c);
	}
}

void tr_nccl_fail_post(struct transport *t, struct cast *c, struct post *p,
		       int code, const char *cause)
{
	if (p->has_ended)
		return;
	p->has_ended = true;
	tr_tell_failed(t, p->receiver, c->bucket, code, slice_of(cause));
}

void tr_nccl_fail_cast(struct transport *t, struct cast *c, int code,
		       const char *cause)
{
	for (uint32_t i = 0; i < c->group->n; i++)
		tr_nccl_fail_post(t, c, &c->post[i], code, cause);
}

struct post *tr_nccl_find_post(struct nccl *n, uint32_t receiver,
			       uint32_t bucket, struct cast **of_cast)
{
	for (struct cast *c = n->cast; c; c = c->next) {
		for (uint32_t i = 0; i < c->group->n; i++) {
			struct post *p = &c->post[i];

			if (c->bucket != bucket || p->receiver != receiver ||
			    p->has_ended)
				continue;
			*of_cast = c;
			return p;
		}
	}
	return NULL;
}

static bool is_acked(const struct transport *t, const struct post *p)
{
	return p->acks == t->env->plan->receiver[p->receiver].workers;
}

/* Rank 0 may use its buffer again once nobody reads it any more. */
static void tell_taken(struct transport *t, struct cast *c)
{
	struct msg m = { .type = M_taken, .taken = { c->seq } };
	struct nccl *n = tr_nccl_of(t);

	if (!n->way->is_mapped || c->is_taken || c->is_moved || !n->mover)
		return;
	for (uint32_t i = 0; i < c->group->n; i++)
		if (!c->post[i].has_ended && !is_acked(t, &c->post[i]))
			return;
	c->is_taken = true;
	/* If it cannot be sent, it is not answered in time. */
	mover_send(n->mover, &m, NULL, 0);
	tr_nccl_watch_mover(t);
}

/* A worker's ack waits until rank 0 has moved the bucket. */
void tr_nccl_settle(struct transport *t, struct cast *c, struct post *p)
{
	tell_taken(t, c);
	if (!c->is_moved || p->has_ended || !is_acked(t, p))
		return;
	p->has_ended = true;
	for (uint32_t i = 0; i < p->acks; i++)
		tr_tell(t, &p->ack[i]);
}

void tr_nccl_moved(struct transport *t, struct cast *c)
{
	c->is_moved = true;
	for (uint32_t i = 0; i < c->group->n; i++) {
		struct post *p = &c->post[i];

		if (p->has_ended)
			continue;
		tr_tell(t, &(struct tr_event){ .kind = TR_MOVED,
					       .receiver = p->receiver,
					       .bucket = c->bucket });
		tr_nccl_settle(t, c, p);
	}
	tr_nccl_sweep(tr_nccl_of(t));
}

void tr_nccl_free_casts(struct nccl *n)
{
	while (n->cast) {
		struct cast *c = n->cast;

		n->cast = c->next;
		free_cast(c);
	}
}

/* ---- offers ---- */

static void fill_offer(struct transport *t, const struct cast *c,
		       struct m_offer *o)
{
	struct nccl *n = tr_nccl_of(t);
	uint32_t count = n->pieces.first[1];

	*o = (struct m_offer){
		.fence = t->env->fence,
		.version = t->env->version,
		.wave = c->wave,
		.bucket = c->bucket,
		.bytes = plan_share(t->env->plan, c->bucket, 0),
		.pieces = { n->pieces.v, count },
		.group = c->group->number,
		.buffer = c->buffer,
	};
}

static void send_to_mover(struct transport *t, struct cast *c)
{
	struct nccl *n = tr_nccl_of(t);
	struct msg m = { .type = M_offer };
	int rc = tr_pieces_of(&n->pieces, t->env->plan, c->bucket, &n->arena);

	c->seq = ++n->seq;
	if (rc == 0) {
		fill_offer(t, c, &m.offer);
		m.offer.seq = c->seq;
		rc = mover_send(n->mover, &m, NULL, 0);
	}
	if (rc < 0) {
		c->is_moved = true;
		tr_nccl_fail_cast(t, c, -rc, log_cause());
	}
}

void tr_nccl_launched(struct transport *t, struct cast *c, uint8_t buffer)
{
	const struct tr_env *env = t->env;
	struct nccl *n = tr_nccl_of(t);
	int rc = tr_pieces_of(&n->pieces, env->plan, c->bucket, &n->arena);

	c->is_launched = true;
	c->buffer = buffer;
	for (uint32_t i = 0; i < c->group->n; i++) {
		uint32_t r = c->post[i].receiver;
		struct msg m = { .type = M_offer };

		if (c->post[i].has_ended)
			continue;
		fill_offer(t, c, &m.offer);
		m.offer.boot = slice_of(env->boot[r]);
		if (rc == 0)
			rc = fan_call(n->fan, r, &m, TAG_OFFER | c->bucket,
				      env->plan->receiver[r].workers,
				      env->load_ms);
		if (rc < 0) {
			tr_nccl_lose(t, r, -rc, log_cause());
			return;
		}
	}
}

/* Of a bucket that others read from it, they owe the next one. */
static bool waits_for_readers(const struct nccl *n, const struct cast *c)
{
	return n->way->is_mapped && c->is_launched && !c->is_taken;
}

/* It owes a word on what it was sent. */
void tr_nccl_watch_mover(struct transport *t)
{
	struct nccl *n = tr_nccl_of(t);

	for (const struct cast *c = n->cast; c; c = c->next) {
		if (!c->seq || c->is_moved || waits_for_readers(n, c))
			continue;
		loop_arm(t->env->loop, &n->silence, (int64_t)t->env->load_ms);
		return;
	}
	loop_disarm(t->env->loop, &n->silence);
}

/* Casts start in the order of posting: a group is formed before what is
 * behind it goes on. */
static void start_casts(struct transport *t)
{
	struct nccl *n = tr_nccl_of(t);

	for (struct cast *c = n->cast; c && n->mover; c = c->next) {
		if (c->seq || has_ended(c))
			continue;
		if (c->group->state == GROUP_NEW)
			tr_nccl_form(t, c->group);
		if (c->group->state != GROUP_FORMED)
			break;
		send_to_mover(t, c);
	}
	tr_nccl_sweep(n);
	tr_nccl_watch_mover(t);
}

static void add_cast(struct nccl *n, const struct pending *what,
		     struct group *g)
{
	struct cast *c = xcalloc(1, sizeof(*c)), **at = &n->cast;

	c->group = g;
	c->wave = what->wave;
	c->bucket = what->bucket;
	c->post = xcalloc(g->n, sizeof(*c->post));
	for (uint32_t i = 0; i < g->n; i++)
		c->post[i].receiver = g->member[i];
	while (*at)
		at = &(*at)->next;
	*at = c;
}

static uint32_t count_attached(const struct transport *t)
{
	uint32_t count = 0;

	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		count += tr_nccl_of(t)->attached[r];
	return count;
}

/* One bucket for these receivers: all there are, or engine by engine. */
static void add_casts(struct transport *t, const struct pending *what,
		      const uint32_t *to, uint32_t count)
{
	const struct plan_receiver *r = t->env->plan->receiver;
	struct nccl *n = tr_nccl_of(t);
	uint32_t last;

	if (count == count_attached(t)) {
		add_cast(n, what, tr_nccl_group_of(n, to, count));
		return;
	}
	for (uint32_t first = 0; first < count; first = last) {
		last = first;
		while (last < count &&
		       r[to[last]].engine == r[to[first]].engine)
			last++;
		add_cast(n, what,
			 tr_nccl_group_of(n, to + first, last - first));
	}
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

void tr_nccl_turn(void *arg)
{
	struct transport *t = arg;
	struct nccl *n = tr_nccl_of(t);
	uint32_t *to = xcalloc(n->npending, sizeof(*to));
	size_t i = 0;

	while (!n->mover && n->npending > 0) {
		const struct pending *p = &n->pending[--n->npending];

		tr_tell_failed(t, p->receiver, p->bucket, n->gone_code,
			       slice_of(n->gone));
	}
	while (i < n->npending) {
		const struct pending *first = &n->pending[i];
		uint32_t count = 0;

		while (i < n->npending &&
		       n->pending[i].bucket == first->bucket &&
		       n->pending[i].wave == first->wave)
			to[count++] = n->pending[i++].receiver;
		qsort(to, count, sizeof(*to), compare);
		add_casts(t, first, to, count);
	}
	n->npending = 0;
	free(to);
	start_casts(t);
}
