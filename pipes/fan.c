#include "pipes/fan.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fds.h"
#include "common/log.h"
#include "common/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_MS 5 /* a router's mark: nothing tells when it reads again */
#define FDS_MARGIN 16
#define ENDPOINT_MAX 512

struct call {
	struct fan *fan;
	struct call *prev, *next; /* of its receiver, in order of seq */
	struct call *chain;	  /* of its hash bucket */
	struct loop_timer deadline;
	uint64_t seq, tag, deadline_ms;
	uint32_t receiver, replies;
	enum msg_type type;
	struct slice frame; /* ours until sent, then empty */
};

struct receiver {
	char *endpoint;
	struct call *first, *last;
	struct call *unsent; /* from here on */
	bool reached;	     /* somebody listens there */
	bool up;	     /* and has shaken hands */
	bool absent;	     /* calls have waited for it in vain */
	int64_t absent_ms;   /* until when they wait; 0: none does */
};

struct fan {
	struct loop *loop;
	const struct fan_ops *ops;
	void *arg;
	struct sock sock;
	struct receiver *receiver;
	uint32_t n, cap;
	struct call **bucket; /* by seq; a power of two of them */
	size_t nbuckets, open;
	size_t unsent_bytes;
	uint64_t next_seq;
	struct loop_timer flush, absent;
	struct msg_arena arena;
	struct buf in, out;
};

/* Names start with a letter: a router's own start with a zero byte. */
static struct sock_peer name_of(uint32_t r)
{
	struct sock_peer p = { .n = 1 + sizeof r, .id = "r" };

	memcpy(p.id + 1, &r, sizeof r);
	return p;
}

static bool id_of(const struct fan *f, const struct sock_peer *p, uint32_t *r)
{
	if (p->n != 1 + sizeof *r)
		return false;
	memcpy(r, p->id + 1, sizeof *r);
	return *r < f->n;
}

/* All messages to and from engines begin with seq. */
static bool has_seq(enum msg_type t)
{
	return t >= M_probe && t <= M_joined;
}

static bool answers(enum msg_type reply, enum msg_type request)
{
	if (reply == M_refused)
		return true;
	return reply == (request == M_status ? M_state : request + 1);
}

static struct call **find(const struct fan *f, uint64_t seq)
{
	struct call **at = &f->bucket[seq & (f->nbuckets - 1)];

	while (*at && (*at)->seq != seq)
		at = &(*at)->chain;
	return at;
}

static void grow(struct fan *f)
{
	size_t old = f->nbuckets;
	struct call **was = f->bucket;

	f->nbuckets = old ? 2 * old : 64;
	f->bucket = xcalloc(f->nbuckets, sizeof(struct call *));
	for (size_t i = 0; i < old; i++) {
		while (was[i]) {
			struct call *c = was[i], **at = find(f, c->seq);

			was[i] = c->chain;
			c->chain = NULL;
			*at = c;
		}
	}
	free(was);
}

static void link_call(struct fan *f, struct call *c)
{
	struct receiver *r = &f->receiver[c->receiver];

	if (f->open == f->nbuckets)
		grow(f);
	*find(f, c->seq) = c;
	c->prev = r->last;
	if (r->last)
		r->last->next = c;
	else
		r->first = c;
	r->last = c;
	if (!r->unsent)
		r->unsent = c;
	f->open++;
}

static void free_frame(struct fan *f, struct call *c)
{
	f->unsent_bytes -= c->frame.n;
	free((char *)c->frame.p);
	c->frame = (struct slice){ 0 };
}

static void end_call(struct fan *f, struct call *c)
{
	struct receiver *r = &f->receiver[c->receiver];

	*find(f, c->seq) = c->chain;
	if (r->unsent == c)
		r->unsent = c->next;
	if (c->prev)
		c->prev->next = c->next;
	else
		r->first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		r->last = c->prev;
	loop_disarm(f->loop, &c->deadline);
	free_frame(f, c);
	free(c);
	f->open--;
}

static void end_without(struct fan *f, struct call *c, int rc)
{
	uint64_t tag = c->tag;
	uint32_t r = c->receiver;

	end_call(f, c);
	f->ops->reply(f->arg, r, tag, NULL, rc);
}

/* Calls that a callback makes meanwhile are new ones: they stay. */
static void end_all(struct fan *f, uint32_t id, int rc, const char *cause)
{
	uint64_t limit = f->next_seq;

	while (f->receiver[id].first && f->receiver[id].first->seq < limit) {
		log_adopt_cause(-rc, cause);
		end_without(f, f->receiver[id].first, rc);
	}
}

static void flush(struct fan *f, uint32_t id)
{
	struct receiver *r = &f->receiver[id];
	struct sock_peer name = name_of(id);

	while (r->up && r->unsent) {
		struct call *c = r->unsent;
		int rc = sock_send(&f->sock, &name, c->frame);

		if (rc < 0) {
			if (!f->flush.due_ms)
				loop_arm(f->loop, &f->flush, FLUSH_MS);
			return;
		}
		free_frame(f, c);
		r->unsent = c->next;
	}
}

static void on_flush(void *arg)
{
	struct fan *f = arg;

	for (uint32_t i = 0; i < f->n; i++)
		flush(f, i);
}

/* ---- receivers that are not there ---- */

static void watch(struct fan *f, uint32_t id)
{
	struct receiver *r = &f->receiver[id];

	if (r->reached || !r->first || r->absent_ms)
		return;
	r->absent_ms = clock_mono_ms() + FAN_ABSENT_MS;
	if (!f->absent.due_ms)
		loop_arm(f->loop, &f->absent, FAN_ABSENT_MS);
}

static void reach(struct receiver *r)
{
	r->reached = true;
	r->absent = false;
	r->absent_ms = 0;
}

/* Somebody may listen there, but not to us. */
static bool is_barred(const char *endpoint)
{
	static const char ipc[] = "ipc://";

	return strncmp(endpoint, ipc, strlen(ipc)) == 0 &&
	       access(endpoint + strlen(ipc), W_OK) < 0 && errno == EACCES;
}

static void miss(struct fan *f, uint32_t id)
{
	struct receiver *r = &f->receiver[id];
	bool barred = is_barred(r->endpoint);
	char cause[ENDPOINT_MAX + 64];

	r->absent = true;
	r->absent_ms = 0;
	snprintf(cause, sizeof cause,
		 barred ? "not allowed to connect to %s; see weir-engine "
			  "--allow"
			: "nothing listens at %s; start its weir-engine",
		 r->endpoint);
	end_all(f, id, barred ? -E_PERM : -E_UNAVAIL, cause);
	watch(f, id);
}

static void on_sock(void *arg);

/* We were stopped, and so was who connects for us (TM-02); or that is late, or
 * who listens has no time to accept. */
static bool is_spared(const struct receiver *r, int64_t now)
{
	return now - r->absent_ms > FAN_ABSENT_MS / 2 ||
	       sock_has_listener(r->endpoint);
}

/* All wait equally long: who is due first was armed for first. */
static void on_absent(void *arg)
{
	struct fan *f = arg;
	int64_t now = clock_mono_ms(), next = 0;

	on_sock(f);
	for (uint32_t i = 0; i < f->n; i++) {
		struct receiver *r = &f->receiver[i];

		if (!r->absent_ms || r->absent_ms > now)
			continue;
		if (is_spared(r, now))
			r->absent_ms = now + FAN_ABSENT_MS;
		else
			miss(f, i);
	}
	for (uint32_t i = 0; i < f->n; i++) {
		int64_t due = f->receiver[i].absent_ms;

		if (due && (!next || due < next))
			next = due;
	}
	if (next)
		loop_arm(f->loop, &f->absent, next > now ? next - now : 0);
}

/* ---- what comes in ---- */

static void take(struct fan *f, uint32_t id, const struct msg *m)
{
	struct call *c = has_seq(m->type) ? *find(f, m->probe.seq) : NULL;
	uint64_t tag;

	if (!c || c->receiver != id || !answers(m->type, c->type)) {
		f->ops->stray(f->arg, id, m);
		return;
	}
	tag = c->tag;
	if (m->type == M_refused || --c->replies == 0)
		end_call(f, c);
	f->ops->reply(f->arg, id, tag, m, 0);
}

static void take_frame(struct fan *f, uint32_t id)
{
	char cause[ENDPOINT_MAX + 128];
	struct msg m;
	int rc;

	log_quiet_thread(1);
	rc = msg_unpack(&m, &f->arena, buf_slice(&f->in));
	log_quiet_thread(0);
	if (rc >= 0) {
		take(f, id, &m);
		return;
	}
	log_info("%s: %s", f->receiver[id].endpoint, log_cause());
	snprintf(cause, sizeof cause,
		 "%s " MSG_STRANGE ": restart it with this build (%s)",
		 f->receiver[id].endpoint, PACKAGE_VERSION);
	end_all(f, id, -E_PROTO, cause);
}

static void drain(struct fan *f)
{
	struct sock_peer from;
	uint32_t id;

	while (sock_recv(&f->sock, &from, &f->in) > 0)
		if (id_of(f, &from, &id))
			take_frame(f, id);
}

static void lose(struct fan *f, uint32_t id)
{
	char cause[ENDPOINT_MAX + 64];

	f->receiver[id].up = false;
	snprintf(cause, sizeof cause, "%s closed its connection",
		 f->receiver[id].endpoint);
	end_all(f, id, -E_UNAVAIL, cause);
	f->ops->lost(f->arg, id);
}

/* After a failed handshake it was never there. */
static void lost(struct fan *f, uint32_t id)
{
	f->receiver[id].reached = false;
	if (f->receiver[id].up)
		lose(f, id);
	watch(f, id);
}

static void take_news(struct fan *f)
{
	char endpoint[ENDPOINT_MAX];
	enum sock_news news;

	while ((news = sock_news(&f->sock, endpoint, sizeof endpoint))) {
		uint32_t id = 0;

		while (id < f->n && strcmp(f->receiver[id].endpoint, endpoint))
			id++;
		if (id == f->n)
			continue;
		/* What it said before it went counts. */
		drain(f);
		if (news == SOCK_LOST)
			lost(f, id);
		else
			reach(&f->receiver[id]);
		if (news == SOCK_UP)
			f->receiver[id].up = true;
		flush(f, id);
	}
}

static void on_sock(void *arg)
{
	drain(arg);
	take_news(arg);
}

/* What has arrived is read first: we may have been stopped (TM-02). */
static void on_deadline(void *arg)
{
	struct call *c = arg;
	struct fan *f = c->fan;
	uint64_t seq = c->seq;
	char cause[ENDPOINT_MAX + 96], time[UNITS_MAX];

	on_sock(f);
	c = *find(f, seq);
	if (!c)
		return;
	snprintf(cause, sizeof cause, "no answer to %s within %s (%s%s)",
		 msg_name(c->type), units_time((int64_t)c->deadline_ms, time),
		 f->receiver[c->receiver].endpoint,
		 f->receiver[c->receiver].up ? "" : ", not connected");
	log_adopt_cause(E_TIMEOUT, cause);
	end_without(f, c, -E_TIMEOUT);
}

struct fan *fan_new(struct loop *l, const struct fan_ops *ops, void *arg)
{
	struct fan *f = xcalloc(1, sizeof *f);

	f->loop = l;
	f->ops = ops;
	f->arg = arg;
	f->next_seq = 1;
	f->flush.fn = on_flush;
	f->flush.arg = f;
	f->absent.fn = on_absent;
	f->absent.arg = f;
	if (sock_fan(&f->sock, FRAME_MAX) < 0) {
		free(f);
		return NULL;
	}
	grow(f);
	loop_add_sock(l, &f->sock, on_sock, f);
	return f;
}

void fan_free(struct fan *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->n; i++) {
		fan_forget(f, i);
		free(f->receiver[i].endpoint);
	}
	loop_disarm(f->loop, &f->flush);
	loop_disarm(f->loop, &f->absent);
	loop_del_sock(f->loop, &f->sock);
	sock_close(&f->sock);
	msg_arena_release(&f->arena);
	buf_release(&f->in);
	buf_release(&f->out);
	free(f->receiver);
	free(f->bucket);
	free(f);
}

int fan_reserve(struct fan *f, size_t receivers, size_t more)
{
	char what[64];

	(void)f;
	snprintf(what, sizeof what, "%zu receivers", receivers);
	return fds_need(receivers * (1 + more) + FDS_MARGIN, what);
}

void fan_number_from(struct fan *f, uint64_t seq)
{
	BUG_ON(f->open || seq < f->next_seq);
	f->next_seq = seq;
}

int fan_add(struct fan *f, const char *endpoint)
{
	struct sock_peer name = name_of(f->n);
	int rc;

	if (strlen(endpoint) >= ENDPOINT_MAX)
		return log_error(E_CONFIG, "endpoint too long: %s", endpoint);
	rc = sock_fan_add(&f->sock, endpoint, &name);
	if (rc < 0)
		return rc;
	if (f->n == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 16;
		f->receiver =
			xreallocarray(f->receiver, f->cap, sizeof *f->receiver);
	}
	f->receiver[f->n++] = (struct receiver){
		.endpoint = xstrdup(endpoint),
	};
	return 0;
}

int fan_call(struct fan *f, uint32_t receiver, struct msg *m, uint64_t tag,
	     uint32_t replies, uint64_t deadline_ms)
{
	struct call *c;
	int rc;

	BUG_ON(receiver >= f->n || !replies || !has_seq(m->type));
	m->probe.seq = f->next_seq;
	buf_clear(&f->out);
	rc = msg_pack(&f->out, m);
	if (rc < 0)
		return rc;
	if (f->open >= FAN_CALLS_MAX ||
	    f->unsent_bytes + f->out.n > FAN_BYTES_MAX)
		return log_error(E_AGAIN, "%zu requests with %zu bytes wait",
				 f->open, f->unsent_bytes);
	c = xcalloc(1, sizeof *c);
	*c = (struct call){ .fan = f, .tag = tag, .receiver = receiver };
	c->seq = f->next_seq++;
	c->replies = replies;
	c->type = m->type;
	c->frame = (struct slice){ xmalloc(f->out.n), f->out.n };
	memcpy((char *)c->frame.p, f->out.p, f->out.n);
	f->unsent_bytes += f->out.n;
	c->deadline_ms = deadline_ms;
	c->deadline.fn = on_deadline;
	c->deadline.arg = c;
	loop_arm(f->loop, &c->deadline, (int64_t)deadline_ms);
	link_call(f, c);
	watch(f, receiver);
	flush(f, receiver);
	return 0;
}

void fan_forget(struct fan *f, uint32_t receiver)
{
	while (f->receiver[receiver].first)
		end_call(f, f->receiver[receiver].first);
}

bool fan_is_absent(const struct fan *f, uint32_t receiver)
{
	return f->receiver[receiver].absent;
}
