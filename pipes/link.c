#include "pipes/link.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDPOINT_MAX 512

static void clear_queue(struct link *l)
{
	for (; l->queued > 0; l->queued--)
		free((char *)l->queue[l->head++].p);
	l->head = 0;
	l->queued_bytes = 0;
	loop_disarm(l->loop, &l->flush);
}

static void lose(struct link *l, const char *why)
{
	bool was_up = l->up;

	l->up = false;
	clear_queue(l);
	if (was_up)
		l->ops->lost(l->arg, l->dir, why);
}

static int put(struct link *l, struct slice frame)
{
	l->sent_ms = clock_mono_ms();
	return sock_send(&l->sock, l->dir == DOWN ? &l->peer : NULL, frame);
}

/* Outside the queue: to peers that are not up yet. */
static void put_msg(struct link *l, const struct sock_peer *to,
		    const struct msg *m)
{
	buf_clear(&l->out);
	if (msg_pack(&l->out, m) < 0)
		return;
	l->sent_ms = clock_mono_ms();
	sock_send(&l->sock, l->dir == DOWN ? to : NULL, buf_slice(&l->out));
}

static void put_hello(struct link *l, const struct sock_peer *to)
{
	struct msg m = { .type = M_hello };

	m.hello = *l->hello;
	put_msg(l, to, &m);
}

static void put_refusal(struct link *l, const struct sock_peer *to)
{
	struct msg m = { .type = M_bye };

	m.bye.exit = (uint8_t)err_exit_code(-E_FENCED);
	put_msg(l, to, &m);
}

/* ---- sending ---- */

static void on_flush(void *arg)
{
	struct link *l = arg;
	int rc = 0;

	while (l->queued > 0) {
		rc = put(l, l->queue[l->head]);
		if (rc < 0)
			break;
		l->queued_bytes -= l->queue[l->head].n;
		free((char *)l->queue[l->head++].p);
		if (--l->queued == 0)
			l->head = 0;
	}
	if (rc == -E_AGAIN)
		loop_arm(l->loop, &l->flush, LINK_FLUSH_MS);
	else if (rc < 0)
		lose(l, "its connection is gone");
}

static int enqueue(struct link *l, struct slice frame)
{
	char *copy;

	if (l->queued == LINK_QUEUE_MAX ||
	    frame.n > LINK_BYTES_MAX - l->queued_bytes) {
		lose(l, "it does not read");
		return -E_AGAIN;
	}
	if (l->head > 0 && l->head + l->queued == l->cap) {
		memmove(l->queue, l->queue + l->head,
			l->queued * sizeof *l->queue);
		l->head = 0;
	}
	if (l->head + l->queued == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 64;
		l->queue = xreallocarray(l->queue, l->cap, sizeof *l->queue);
	}
	copy = xmalloc(frame.n);
	memcpy(copy, frame.p, frame.n);
	l->queue[l->head + l->queued++] = (struct slice){ copy, frame.n };
	l->queued_bytes += frame.n;
	if (!l->flush.due_ms)
		loop_arm(l->loop, &l->flush, LINK_FLUSH_MS);
	return 0;
}

int link_send_frame(struct link *l, struct slice frame)
{
	int rc;

	if (!l->up)
		return -E_AGAIN;
	rc = l->queued ? -E_AGAIN : put(l, frame);
	if (rc == -E_AGAIN)
		return enqueue(l, frame);
	if (rc == -E_UNAVAIL) {
		lose(l, "its connection is gone");
		return -E_AGAIN;
	}
	return rc;
}

int link_send(struct link *l, const struct msg *m)
{
	int rc;

	if (!l->up)
		return -E_AGAIN;
	buf_clear(&l->out);
	rc = msg_pack(&l->out, m);
	return rc < 0 ? rc : link_send_frame(l, buf_slice(&l->out));
}

/* ---- receiving ---- */

/* The peer has another table: says who is who, once, to both. */
static void take_stranger(struct link *l, const struct sock_peer *from,
			  const struct m_hello *h)
{
	int rc;

	if (l->dir == DOWN)
		put_hello(l, from);
	rc = log_error(E_PROTO,
		       "weir-%s is build %.*s (messages %016llx), weir-%s is "
		       "build %.*s (messages %016llx): use one build",
		       stage_name(l->hello->stage), SLICE_ARG(l->hello->build),
		       (unsigned long long)l->hello->table,
		       stage_name(h->stage) ? stage_name(h->stage) : "?",
		       SLICE_ARG(h->build), (unsigned long long)h->table);
	l->ops->broken(l->arg, l->dir, rc);
}

static const char *why_refused(const struct link *l, const struct m_hello *h)
{
	unsigned want = l->hello->stage + (l->dir == DOWN ? 1u : -1u);

	if (!slice_eq(h->run, l->hello->run))
		return "another run";
	if (h->stage != want)
		return "not our neighbour";
	if (h->instance < l->instance)
		return "an older instance";
	if (h->epoch && l->hello->epoch && h->epoch != l->hello->epoch)
		return "another epoch";
	return NULL;
}

static void take_hello(struct link *l, const struct sock_peer *from,
		       const struct m_hello *h)
{
	const char *why = why_refused(l, h);

	if (why) {
		if (log_few(&l->refusals, LOG_INFO))
			log_info("hello of %s.%u refused: %s",
				 stage_name(h->stage) ? stage_name(h->stage)
						      : "?",
				 h->instance, why);
		put_refusal(l, from);
		return;
	}
	/* Of our run, so it is our neighbour: anybody else ends nothing. */
	if (h->table != l->hello->table) {
		take_stranger(l, from, h);
		return;
	}
	clear_queue(l);
	l->instance = h->instance;
	l->known = true;
	l->peer = *from;
	l->seen_ms = clock_mono_ms();
	if (l->dir == DOWN)
		put_hello(l, from);
	l->up = true;
	l->ops->up(l->arg, l->dir, h);
}

/* It was silent for too long and speaks again: both start over. */
static void revive(struct link *l)
{
	put_hello(l, &l->peer);
	l->up = true;
	l->ops->up(l->arg, l->dir, NULL);
}

static bool is_peer(const struct link *l, const struct sock_peer *from)
{
	if (l->dir == UP)
		return l->known;
	return l->known && from->n == l->peer.n &&
	       !memcmp(from->id, l->peer.id, from->n);
}

static void take(struct link *l, const struct sock_peer *from,
		 const struct msg *m)
{
	bool refusal = m->type == M_bye && l->dir == UP && !l->known;

	if (m->type == M_hello) {
		take_hello(l, from, &m->hello);
		return;
	}
	if (!is_peer(l, from) && !refusal)
		return; /* before its hello: of another connection */
	if (!l->up && !refusal)
		revive(l);
	if (m->type != M_beat)
		l->ops->msg(l->arg, l->dir, m);
}

static void take_frame(struct link *l, const struct sock_peer *from)
{
	bool peer = is_peer(l, from);
	struct msg m;
	int rc, was;

	if (peer)
		l->seen_ms = clock_mono_ms();
	was = log_quiet_thread(!peer);
	rc = msg_unpack(&m, &l->arena, buf_slice(&l->in));
	log_quiet_thread(was);
	if (rc >= 0)
		take(l, from, &m);
	else if (peer)
		l->ops->broken(l->arg, l->dir, rc);
}

static void drain(struct link *l)
{
	struct sock_peer from = { 0 };

	while (l->open &&
	       sock_recv(&l->sock, l->dir == DOWN ? &from : NULL, &l->in) > 0)
		take_frame(l, &from);
}

static void take_news(struct link *l)
{
	struct sock_peer none = { 0 };
	char endpoint[ENDPOINT_MAX];
	enum sock_news news;

	while ((news = sock_news(&l->sock, endpoint, sizeof endpoint))) {
		drain(l);
		l->known = false;
		lose(l, "it closed the connection");
		l->connected = news == SOCK_UP;
		if (l->connected)
			put_hello(l, &none);
	}
}

static void on_sock(void *arg)
{
	struct link *l = arg;

	drain(l);
	if (l->dir == UP)
		take_news(l);
}

/* ---- life ---- */

static void opened(struct link *l)
{
	l->open = true;
	l->refusals.what = "refused hellos";
	l->flush.fn = on_flush;
	l->flush.arg = l;
	loop_add_sock(l->loop, &l->sock, on_sock, l);
}

int link_listen(struct link *l, const char *endpoint)
{
	int rc = sock_listen(&l->sock, endpoint, FRAME_MAX);

	if (rc == 0)
		opened(l);
	return rc;
}

static void hang_up(struct link *l)
{
	if (!l->open)
		return;
	loop_del_sock(l->loop, &l->sock);
	sock_close(&l->sock);
	l->open = false;
	l->known = false;
	l->connected = false;
}

int link_dial(struct link *l, const char *endpoint)
{
	int rc;

	hang_up(l);
	lose(l, "a newer instance has started");
	rc = sock_dial(&l->sock, endpoint, FRAME_MAX);
	if (rc == 0)
		opened(l);
	return rc;
}

void link_close(struct link *l)
{
	hang_up(l);
	log_few_end(&l->refusals);
	if (l->loop)
		clear_queue(l);
	free(l->queue);
	msg_arena_release(&l->arena);
	buf_release(&l->in);
	buf_release(&l->out);
	*l = (struct link){ 0 };
}

static void put_beat(struct link *l)
{
	struct msg m = { .type = M_beat };

	m.beat.mono_ms = (uint64_t)clock_mono_ms();
	link_send(l, &m);
}

void link_tick(struct link *l)
{
	char why[64], time[UNITS_MAX];

	bool idle = clock_mono_ms() - l->sent_ms >= LINK_BEAT_MS;

	/* The first may have met a full queue of the connection before. */
	if (idle && l->connected && !l->known)
		put_hello(l, &l->peer);
	if (!l->up)
		return;
	if (idle)
		put_beat(l);
	if (clock_mono_ms() - l->seen_ms < l->silence_ms)
		return;
	on_sock(l);
	if (!l->up || clock_mono_ms() - l->seen_ms < l->silence_ms)
		return;
	snprintf(why, sizeof why, "it said nothing for %s",
		 units_time(l->silence_ms, time));
	lose(l, why);
}

void link_forgive(struct link *l)
{
	l->seen_ms = clock_mono_ms();
}
