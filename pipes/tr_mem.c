/*
 * tr_mem.c - a transport inside one process: template and test double.
 *
 * Each receiver is memory with the files' sizes.  A post is kept until poll,
 * which carries out the youngest first, so that completions come out of
 * order; every worker acks.  A source that got shorter fails the bucket.
 */
#include "pipes/transport.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>

struct mem_post {
	uint32_t receiver, bucket;
};

struct mem {
	char ***file; /* [receiver][file of its rank] */
	struct mem_post *post;
	size_t nposts, cap;
	struct msg_arena arena;
	struct tr_pieces pieces;
	struct buf leaves;
	uint32_t bucket;
};

static const struct plan_rank *rank_of(const struct transport *t,
				       uint32_t receiver)
{
	const struct plan *p = t->env->plan;

	return &p->rank[p->receiver[receiver].rank];
}

static int mem_open(struct transport *t)
{
	struct mem *m = xcalloc(1, sizeof(*m));

	m->file = xcalloc(t->env->plan->nreceivers, sizeof(*m->file));
	tr_pieces_init(&m->pieces, t->env->plan);
	t->self = m;
	return 0;
}

static void free_files(const struct transport *t, uint32_t receiver)
{
	struct mem *m = t->self;

	if (!m->file[receiver])
		return;
	for (uint32_t f = 0; f < rank_of(t, receiver)->files; f++)
		free(m->file[receiver][f]);
	free(m->file[receiver]);
	m->file[receiver] = NULL;
}

static int mem_attach(struct transport *t, uint32_t receiver)
{
	const struct plan_rank *k = rank_of(t, receiver);
	const struct plan_file *file = t->env->plan->file + k->first;
	struct mem *m = t->self;

	m->file[receiver] = xcalloc(k->files, sizeof(char *));
	for (uint32_t f = 0; f < k->files; f++)
		m->file[receiver][f] = xcalloc(file[f].bytes + 1, 1);
	tr_tell_attached(t, receiver);
	return 0;
}

static int mem_offer(struct transport *t, uint32_t wave, uint32_t bucket)
{
	struct mem *m = t->self;

	(void)wave;
	m->bucket = bucket;
	return 0;
}

static int mem_post(struct transport *t, uint32_t receiver)
{
	struct mem *m = t->self;

	if (m->nposts == m->cap) {
		m->cap = m->cap ? 2 * m->cap : 16;
		m->post = xreallocarray(m->post, m->cap, sizeof(*m->post));
	}
	m->post[m->nposts++] = (struct mem_post){ receiver, m->bucket };
	t->env->wake(t->env->arg);
	return 0;
}

static void add_leaves(struct mem *m, const char *p, uint64_t n)
{
	for (uint64_t off = 0; off < n; off += DIGEST_LEAF) {
		struct digest d;

		digest_of(p + off,
			  n - off < DIGEST_LEAF ? n - off : DIGEST_LEAF, &d);
		buf_add(&m->leaves, d.b, DIGEST_LEN);
	}
}

static int copy(struct transport *t, const struct mem_post *post)
{
	const struct plan *plan = t->env->plan;
	const struct plan_rank *k = rank_of(t, post->receiver);
	uint32_t rank = plan->receiver[post->receiver].rank;
	struct mem *m = t->self;
	int rc = tr_pieces_of(&m->pieces, plan, post->bucket, &m->arena);

	if (rc < 0)
		return rc;
	buf_clear(&m->leaves);
	for (uint32_t i = m->pieces.first[rank]; i < m->pieces.first[rank + 1];
	     i++) {
		const struct m_piece *p = &m->pieces.v[i];
		char *to = m->file[post->receiver][p->file] + p->offset;
		int got = io_pread_full(t->env->fd[k->first + p->file], to,
					p->bytes, (off_t)p->offset);

		if (got < 0)
			return got;
		if ((uint64_t)got < p->bytes)
			return log_error(E_DATA, "%s is shorter than planned",
					 plan->file[k->first + p->file].path);
		add_leaves(m, to, p->bytes);
	}
	return 0;
}

static void carry_out(struct transport *t, const struct mem_post *post)
{
	const struct plan_receiver *r = &t->env->plan->receiver[post->receiver];
	struct tr_event e = { .receiver = post->receiver,
			      .bucket = post->bucket };
	struct mem *m = t->self;
	int rc = copy(t, post);

	if (rc < 0) {
		tr_tell_failed(t, post->receiver, post->bucket, -rc,
			       slice_of(log_cause()));
		return;
	}
	e.kind = TR_MOVED;
	tr_tell(t, &e);
	e.kind = TR_ACK;
	e.bytes = plan_share(t->env->plan, post->bucket, r->rank);
	digest_of(m->leaves.p, m->leaves.n, &e.digest);
	for (uint32_t w = 0; w < r->workers; w++) {
		e.worker = r->worker + w;
		tr_tell(t, &e);
	}
}

static void mem_poll(struct transport *t)
{
	struct mem *m = t->self;

	if (m->nposts) {
		struct mem_post post = m->post[--m->nposts];

		carry_out(t, &post);
	}
}

static void mem_abort(struct transport *t, uint32_t receiver)
{
	struct mem *m = t->self;
	size_t kept = 0;

	for (size_t i = 0; i < m->nposts; i++)
		if (m->post[i].receiver != receiver)
			m->post[kept++] = m->post[i];
	m->nposts = kept;
	free_files(t, receiver);
}

static void mem_close(struct transport *t)
{
	struct mem *m = t->self;

	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		free_files(t, r);
	free(m->file);
	free(m->post);
	msg_arena_release(&m->arena);
	tr_pieces_release(&m->pieces);
	buf_release(&m->leaves);
	free(m);
}

const struct transport_ops tr_mem_ops = {
	.name = "mem",
	.check = tr_no_check,
	.open = mem_open,
	.attach = mem_attach,
	.offer = mem_offer,
	.post = mem_post,
	.load = tr_no_load,
	.poll = mem_poll,
	.keep = tr_no_keep,
	.abort = mem_abort,
	.close = mem_close,
};
