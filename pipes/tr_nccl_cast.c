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
		bool is_out = c->seq && !c->is_moved && c->group->root->mover &&
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
	struct root *root = c->group->root;

	if (!tr_nccl_of(t)->way->is_mapped || c->is_taken || c->is_moved ||
	    !root->mover)
		return;
	for (uint32_t i = 0; i < c->group->n; i++)
		if (!c->post[i].has_ended && !is_acked(t, &c->post[i]))
			return;
	c->is_taken = true;
	/* If it cannot be sent, it is not answered in time. */
	mover_send(root->mover, &m, NULL, 0);
	tr_nccl_watch_root(root);
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
	uint32_t rank = c->group->root->rank;
	const uint32_t *first = n->pieces.first + rank;

	*o = (struct m_offer){
		.fence = t->env->fence,
		.version = t->env->version,
		.wave = c->wave,
		.bucket = c->bucket,
		.bytes = plan_share(t->env->plan, c->bucket, rank),
		.pieces = { n->pieces.v + first[0], first[1] - first[0] },
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
		rc = mover_send(c->group->root->mover, &m, NULL, 0);
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

bool tr_nccl_is_owed(const struct nccl *n, const struct cast *c)
{
	return c->seq && !c->is_moved && !waits_for_readers(n, c);
}

/* Casts of a root start in the order of posting: a group is formed before what
 * is behind it goes on. */
static void start_casts(struct transport *t, struct root *root)
{
	struct nccl *n = tr_nccl_of(t);

	for (struct cast *c = n->cast; c && root->mover; c = c->next) {
		struct group *g = c->group;

		if (g->root != root || c->seq || has_ended(c))
			continue;
		/* If that fails, c is no more. */
		if (g->state == GROUP_NEW)
			tr_nccl_form(t, g);
		if (g->state != GROUP_FORMED)
			break;
		send_to_mover(t, c);
	}
	tr_nccl_sweep(n);
	tr_nccl_watch_root(root);
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

/* To this root. */
static uint32_t count_attached(const struct transport *t,
			       const struct root *root)
{
	uint32_t count = 0;

	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		count += tr_nccl_of(t)->attached[r] &&
			 tr_nccl_root_of(t, r) == root;
	return count;
}

/* One bucket for these receivers of a root: all there are, or engine by
 * engine. */
static void add_casts(struct transport *t, const struct pending *what,
		      const struct root *root, const uint32_t *to,
		      uint32_t count)
{
	const struct plan_receiver *r = t->env->plan->receiver;
	struct nccl *n = tr_nccl_of(t);
	uint32_t last;

	if (count == count_attached(t, root)) {
		add_cast(n, what, tr_nccl_group_of(t, to, count));
		return;
	}
	for (uint32_t first = 0; first < count; first = last) {
		last = first;
		while (last < count &&
		       r[to[last]].engine == r[to[first]].engine)
			last++;
		add_cast(n, what,
			 tr_nccl_group_of(t, to + first, last - first));
	}
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* One bucket, posted to as many: what of it is this root's. */
static void take_posts(struct transport *t, const struct root *root,
		       const struct pending *p, size_t n)
{
	uint32_t *to = xcalloc(n, sizeof(*to)), count = 0;

	for (size_t i = 0; i < n; i++) {
		if (tr_nccl_root_of(t, p[i].receiver) != root)
			continue;
		if (root->mover)
			to[count++] = p[i].receiver;
		else
			tr_tell_failed(t, p[i].receiver, p[i].bucket,
				       root->gone_code, slice_of(root->gone));
	}
	qsort(to, count, sizeof(*to), compare);
	if (count > 0)
		add_casts(t, p, root, to, count);
	free(to);
}

void tr_nccl_turn(void *arg)
{
	struct transport *t = arg;
	struct nccl *n = tr_nccl_of(t);
	uint32_t nranks = t->env->plan->nranks;
	size_t end;

	for (size_t i = 0; i < n->npending; i = end) {
		const struct pending *p = &n->pending[i];

		end = i;
		while (end < n->npending &&
		       n->pending[end].bucket == p->bucket &&
		       n->pending[end].wave == p->wave)
			end++;
		for (uint32_t k = 0; k < nranks; k++)
			take_posts(t, &n->root[k], p, end - i);
	}
	n->npending = 0;
	for (uint32_t k = 0; k < nranks; k++)
		start_casts(t, &n->root[k]);
}
