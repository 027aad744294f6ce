/*
 * tr_host.c - engines on this machine copy for themselves.
 *
 * Descriptors of the source go to PATH.fd beside the receiver's endpoint, at
 * most FDPASS_MAX in a packet, each answered before the next; that connection
 * stays open, and its end is the end of the receiver.  Offers are requests
 * over a fan of the transport's own, numbered from instance << 40, so that no
 * number is used twice in a run (I5).
 *
 * A receiver reads the source once for all its workers, so its first ack
 * means moved.
 */
#include "pipes/transport.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/units.h"
#include "pipes/fan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IPC "ipc://"

struct conn {
	struct transport *t;
	uint32_t receiver;
	int fd;		    /* -1: none */
	uint32_t next_file; /* of its rank, first that was not sent */
	bool attached;
	struct loop_timer deadline;
};

struct host {
	struct fan *fan;
	struct conn *conn;
	struct msg_arena arena;
	struct tr_pieces pieces;
	uint32_t wave;
	struct buf in, out;
	uint64_t attach_seq;
	int got[FDPASS_MAX];
};

static struct host *host_of(const struct transport *t)
{
	return t->self;
}

/* ---- descriptors ---- */

static void hang_up(struct conn *c)
{
	struct transport *t = c->t;

	loop_disarm(t->env->loop, &c->deadline);
	if (c->fd < 0)
		return;
	loop_del_fd(t->env->loop, c->fd);
	close(c->fd);
	c->fd = -1;
}

static void refuse_attach(struct conn *c, int code, struct slice cause)
{
	hang_up(c);
	tr_tell_failed(c->t, c->receiver, ID_NONE, code, cause);
}

/* What the receiver is to have. */
static const struct plan_rank *rank_of(const struct transport *t,
				       uint32_t receiver)
{
	const struct plan *p = t->env->plan;

	return &p->rank[p->receiver[receiver].rank];
}

static int send_files(struct conn *c)
{
	const struct tr_env *env = c->t->env;
	const struct plan_rank *rank = rank_of(c->t, c->receiver);
	struct host *h = host_of(c->t);
	uint32_t left = rank->files - c->next_file;
	uint32_t n = left < FDPASS_MAX ? left : FDPASS_MAX;
	struct msg m = { .type = M_attach };
	int rc;

	m.attach = (struct m_attach){
		.seq = ++h->attach_seq,
		.fence = env->fence,
		.boot = slice_of(env->boot[c->receiver]),
		.first = c->next_file,
		.count = n,
	};
	buf_clear(&h->out);
	rc = msg_pack(&h->out, &m);
	if (rc < 0)
		return rc;
	rc = fdpass_send(c->fd, buf_slice(&h->out),
			 env->fd + rank->first + c->next_file, n);
	if (rc < 0)
		return log_error(-rc, "%s.fd does not take descriptors",
				 env->plan->receiver[c->receiver].endpoint);
	c->next_file += n;
	return 0;
}

static void attached(struct conn *c)
{
	if (c->attached)
		return;
	if (c->next_file < rank_of(c->t, c->receiver)->files) {
		if (send_files(c) < 0)
			refuse_attach(c, E_UNAVAIL, slice_of(log_cause()));
		return;
	}
	c->attached = true;
	loop_disarm(c->t->env->loop, &c->deadline);
	tr_tell_attached(c->t, c->receiver);
}

static void take_reply(struct conn *c, const struct msg *m)
{
	if (m->type == M_attached)
		attached(c);
	else if (m->type == M_refused)
		refuse_attach(c, m->refused.code, m->refused.cause);
	else
		refuse_attach(c, E_PROTO,
			      slice_of("an answer on .fd that is none"));
}

static void conn_ready(void *arg)
{
	struct conn *c = arg;
	struct host *h = host_of(c->t);
	size_t nfds = 0;
	struct msg m;
	int rc = 0;

	while (c->fd >= 0 &&
	       (rc = fdpass_recv(c->fd, &h->in, h->got, &nfds)) > 0) {
		for (size_t i = 0; i < nfds; i++)
			close(h->got[i]);
		rc = msg_unpack(&m, &h->arena, buf_slice(&h->in));
		if (rc < 0)
			refuse_attach(c, -rc, slice_of(log_cause()));
		else
			take_reply(c, &m);
	}
	if (c->fd < 0 || rc == 0)
		return;
	hang_up(c);
	tr_tell_lost(c->t, c->receiver);
}

static void attach_expired(void *arg)
{
	struct conn *c = arg;
	char cause[TR_CAUSE_MAX], time[UNITS_MAX];

	snprintf(cause, sizeof(cause), "%s.fd: no answer to attach within %s",
		 c->t->env->plan->receiver[c->receiver].endpoint,
		 units_time((int64_t)c->t->env->engine_ms, time));
	refuse_attach(c, E_TIMEOUT, slice_of(cause));
}

static int dial(struct conn *c)
{
	const char *endpoint = c->t->env->plan->receiver[c->receiver].endpoint;
	char *path;
	int fd;

	if (strncmp(endpoint, IPC, strlen(IPC)) != 0)
		return log_error(E_CONFIG,
				 "transport host needs ipc:// endpoints, not "
				 "%s",
				 endpoint);
	path = xasprintf("%s.fd", endpoint + strlen(IPC));
	fd = fdpass_dial(path);
	free(path);
	return fd;
}

static int host_attach(struct transport *t, uint32_t receiver)
{
	struct conn *c = &host_of(t)->conn[receiver];
	int rc = dial(c);

	if (rc < 0)
		return rc;
	c->fd = rc;
	c->deadline = (struct loop_timer){ .fn = attach_expired, .arg = c };
	loop_add_fd(t->env->loop, c->fd, conn_ready, c);
	loop_arm(t->env->loop, &c->deadline, (int64_t)t->env->engine_ms);
	rc = send_files(c);
	if (rc < 0)
		hang_up(c);
	return rc;
}

/* ---- offers ---- */

static void take_ack(struct transport *t, uint32_t receiver,
		     const struct m_ack *a)
{
	struct tr_event e = { .kind = TR_MOVED,
			      .receiver = receiver,
			      .bucket = a->bucket,
			      .worker = a->worker,
			      .bytes = a->bytes,
			      .digest = a->digest };

	if (!slice_eq(a->boot, slice_of(t->env->boot[receiver]))) {
		tr_tell_failed(t, receiver, a->bucket, E_FENCED,
			       SLICE("it was restarted"));
		return;
	}
	tr_tell(t, &e);
	e.kind = TR_ACK;
	tr_tell(t, &e);
}

static void offer_ended(void *arg, uint32_t receiver, uint64_t tag,
			const struct msg *m, int rc)
{
	uint32_t bucket = (uint32_t)tag;

	if (rc < 0)
		tr_tell_failed(arg, receiver, bucket, -rc,
			       slice_of(log_cause()));
	else if (m->type == M_refused)
		tr_tell_failed(arg, receiver, bucket, m->refused.code,
			       m->refused.cause);
	else if (m->ack.bucket != bucket)
		tr_tell_failed(
			arg, receiver, bucket, E_PROTO,
			SLICE("acknowledged another bucket than offered"));
	else
		take_ack(arg, receiver, &m->ack);
}

/* An ack of an offer of this instance that has ended is passed on, to be
 * judged; what older instances asked for is nobody's. */
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
}

static const struct fan_ops host_fan = {
	.reply = offer_ended,
	.stray = stray,
	.lost = lost,
};

static int host_offer(struct transport *t, uint32_t wave, uint32_t bucket)
{
	struct host *h = host_of(t);

	h->wave = wave;
	return tr_pieces_of(&h->pieces, t->env->plan, bucket, &h->arena);
}

static int host_post(struct transport *t, uint32_t receiver)
{
	const struct plan *p = t->env->plan;
	const struct plan_receiver *to = &p->receiver[receiver];
	struct host *h = host_of(t);
	const uint32_t *first = h->pieces.first + to->rank;
	struct msg m = { .type = M_offer };

	m.offer = (struct m_offer){
		.fence = t->env->fence,
		.boot = slice_of(t->env->boot[receiver]),
		.version = t->env->version,
		.wave = h->wave,
		.bucket = h->pieces.bucket,
		.bytes = plan_share(p, h->pieces.bucket, to->rank),
		.pieces = { h->pieces.v + first[0], first[1] - first[0] },
	};
	return fan_call(h->fan, receiver, &m, h->pieces.bucket, to->workers,
			t->env->load_ms);
}

/* ---- life ---- */

static void host_abort(struct transport *t, uint32_t receiver)
{
	struct host *h = host_of(t);

	fan_forget(h->fan, receiver);
	hang_up(&h->conn[receiver]);
}

static void host_close(struct transport *t)
{
	struct host *h = host_of(t);

	fan_free(h->fan);
	free(h->conn);
	msg_arena_release(&h->arena);
	tr_pieces_release(&h->pieces);
	buf_release(&h->in);
	buf_release(&h->out);
	free(h);
}

static int add_receivers(struct transport *t)
{
	struct host *h = host_of(t);

	for (uint32_t r = 0; r < t->env->plan->nreceivers; r++)
		h->conn[r] = (struct conn){ .t = t, .receiver = r, .fd = -1 };
	return tr_add_receivers(t, h->fan, 1);
}

static int host_open(struct transport *t)
{
	struct host *h = xcalloc(1, sizeof(*h));
	int rc = -E_IO;

	t->self = h;
	tr_pieces_init(&h->pieces, t->env->plan);
	h->conn = xcalloc(t->env->plan->nreceivers, sizeof(*h->conn));
	h->fan = fan_new(t->env->loop, &host_fan, t);
	if (h->fan)
		rc = add_receivers(t);
	if (rc < 0)
		host_close(t);
	return rc;
}

const struct transport_ops tr_host_ops = {
	.name = "host",
	.check = tr_no_check,
	.open = host_open,
	.attach = host_attach,
	.offer = host_offer,
	.post = host_post,
	.load = tr_no_load,
	.poll = tr_no_poll,
	.keep = tr_no_keep,
	.abort = host_abort,
	.close = host_close,
};
