/*
 * common/sock.h without libzmq: routers and dealers between the simulated
 * processes.
 *
 * A connection keeps its frames in order and loses none while it is up; each
 * takes a time of its own, so that frames of different peers overtake each
 * other.  When a connection is lost, what was under way to the dialler is
 * lost with it; of what was under way from it, the older part is lost and the
 * younger is sent again by the next connection, perhaps to another process
 * (libzmq keeps the pipe).  A dialler tries again for ever.  A process that
 * is stopped still accepts, but shakes no hands.
 */
#include "sim.h"

#include "common/err.h"
#include "common/log.h"
#include "common/sock.h"

#include <stdlib.h>
#include <string.h>

#define IPC "ipc://"
#define HOP_NS (300 * SIM_US) /* of a frame, at most */
#define DIAL_NS (2 * SIM_MS)  /* of a handshake, at most */
#define ECHOES 64	      /* frames that may be heard again */
#define RETRY_MS 10
#define RETRY_MAX_MS 500

struct conn;

struct frame {
	struct frame *next;
	struct conn *conn;
	const void *conn_name; /* tells its turns apart */
	uint64_t turn;	       /* of the connection */
	bool to_dialler;
	int64_t due;
	size_t n;
	char p[];
};

struct vsock {
	struct vsock *next;
	struct proc *owner;
	struct sock *sock;
	bool listens, fans;
	struct node *node;
	char path[SOCK_PATH_MAX + 1];
	struct conn *conns; /* dialled */
	struct frame *in, **in_end;
	struct {
		enum sock_news what;
		struct conn *conn;
	} * news;
	size_t nnews, news_cap;
};

enum conn_state { C_TRIES, C_REACHED, C_UP };

struct conn {
	struct conn *next, *every;
	struct vsock *from, *to; /* to: the listener, while it is up */
	char endpoint[SOCK_PATH_MAX + 8];
	struct sock_peer name, id; /* of the listener by us; of us by it */
	enum conn_state state;
	bool closed;
	uint64_t turn;
	int64_t retry_ms, last[2], stalled;
	struct frame *under_way, *kept;
	size_t waiting[2]; /* frames to the dialler; to the listener */
};

/* What was said to engines, to be heard once more. */
struct echo {
	struct frame *frame;
	char endpoint[SOCK_PATH_MAX + 8];
};

static struct echo echo[ECHOES];
static size_t echoes;
static struct proc ghost = { .name = "ghost" };
static struct vsock *socks;
static struct conn *conns;
static uint32_t last_id;

/* ---- frames ---- */

static void frames_free(struct frame *f)
{
	while (f) {
		struct frame *next = f->next;

		sim_free(f);
		f = next;
	}
}

/* Of this connection until it is lost. */
static const void *turn_name(const struct conn *c)
{
	return (const char *)c + c->turn;
}

static void arrive(void *arg);

static void send_frame(struct conn *c, struct frame *f)
{
	int64_t *last = &c->last[f->to_dialler];
	int64_t due = sim.now + (int64_t)rng_below(&sim.rng, HOP_NS);

	if (due < c->stalled)
		due = c->stalled;
	if (due <= *last)
		due = *last + 1;
	*last = f->due = due;
	f->turn = c->turn;
	f->conn_name = turn_name(c);
	f->next = c->under_way;
	c->under_way = f;
	sim_at(due, arrive, f);
}

static void forget_under_way(struct conn *c, struct frame *f)
{
	struct frame **at = &c->under_way;

	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
}

/* Frames of a connection that was lost stay in the event queue, unowned. */
static void arrive(void *arg)
{
	struct frame *f = arg;
	struct conn *c = f->conn;
	struct vsock *s;

	if (!c || f->turn != c->turn) {
		sim_free(f);
		return;
	}
	forget_under_way(c, f);
	s = f->to_dialler ? c->from : c->to;
	f->next = NULL;
	*s->in_end = f;
	s->in_end = &f->next;
	proc_poke(s->owner);
}

static struct frame *frame_new(struct conn *c, bool to_dialler, struct slice s)
{
	struct frame *f = sim_alloc(sizeof *f + s.n);

	f->conn = c;
	f->conn_name = turn_name(c);
	f->to_dialler = to_dialler;
	f->n = s.n;
	memcpy(f->p, s.p, s.n);
	return f;
}

/* ---- connections ---- */

static void tell(struct conn *c, enum sock_news what)
{
	struct vsock *s = c->from;

	if (s->nnews == s->news_cap) {
		s->news_cap = s->news_cap ? 2 * s->news_cap : 16;
		s->news = sim_grow(s->news, s->news_cap * sizeof *s->news);
	}
	s->news[s->nnews].what = what;
	s->news[s->nnews++].conn = c;
	proc_poke(s->owner);
}

static void dial(void *arg);

static void dial_again(struct conn *c)
{
	int64_t ms = c->retry_ms;

	c->retry_ms = 2 * ms < RETRY_MAX_MS ? 2 * ms : RETRY_MAX_MS;
	sim_at(sim.now + ms * SIM_MS, dial, c);
}

static void shake(void *arg)
{
	struct conn *c = arg;
	struct frame *f;

	if (c->closed || c->state != C_REACHED)
		return;
	if (c->to->owner->stopped || c->from->owner->stopped ||
	    sim.now < c->stalled) {
		sim_at(sim.now + 20 * SIM_MS, shake, c);
		return;
	}
	c->state = C_UP;
	c->id = (struct sock_peer){ .n = 5 };
	last_id++;
	memcpy(c->id.id + 1, &last_id, sizeof last_id);
	tell(c, SOCK_UP);
	while ((f = c->kept)) {
		c->kept = f->next;
		send_frame(c, f);
	}
}

static struct vsock *listener_at(const char *path)
{
	struct node *n = disk_find(disk_root(), path, true);

	return n && n->kind == N_SOCK ? n->listener : NULL;
}

static void dial(void *arg)
{
	struct conn *c = arg;
	struct vsock *to;

	if (c->closed || c->state != C_TRIES)
		return;
	to = c->from->owner->stopped ? NULL
				     : listener_at(c->endpoint + strlen(IPC));
	if (!to || !to->sock) {
		dial_again(c);
		return;
	}
	c->to = to;
	c->state = C_REACHED;
	c->retry_ms = RETRY_MS;
	if (c->from->fans)
		tell(c, SOCK_REACHED);
	sim_at(sim.now + (int64_t)rng_below(&sim.rng, DIAL_NS), shake, c);
}

/* The younger part of what was under way from the dialler, in order. */
static void keep_some(struct conn *c)
{
	struct frame *f = c->under_way;
	size_t n = 0, kept;

	for (struct frame *g = f; g; g = g->next)
		n += !g->to_dialler;
	kept = rng_below(&sim.rng, n + 1);
	/* under_way is youngest first; so the list ends oldest first. */
	for (; f; f = f->next) {
		struct frame *copy;

		if (f->to_dialler || kept == 0)
			continue;
		copy = frame_new(c, false, (struct slice){ f->p, f->n });
		copy->next = c->kept;
		c->kept = copy;
		kept--;
	}
}

/* What is in the socket's buffer outlives its sender: the older part. */
static void deliver_some(struct conn *c, bool to_dialler)
{
	struct vsock *s = to_dialler ? c->from : c->to;
	struct frame *f, *oldest = NULL;
	size_t n = 0, skipped;

	for (f = c->under_way; f; f = f->next)
		n += f->to_dialler == to_dialler;
	skipped = rng_below(&sim.rng, n + 1);
	for (f = c->under_way; f; f = f->next) {
		struct frame *copy;

		if (f->to_dialler != to_dialler)
			continue;
		if (skipped > 0) {
			skipped--;
			continue;
		}
		copy = frame_new(c, to_dialler, (struct slice){ f->p, f->n });
		copy->turn = c->turn;
		copy->next = oldest;
		oldest = copy;
	}
	while ((f = oldest)) {
		oldest = f->next;
		f->next = NULL;
		*s->in_end = f;
		s->in_end = &f->next;
	}
	proc_poke(s->owner);
}

static void drop_under_way(struct conn *c)
{
	for (struct frame *f = c->under_way; f; f = f->next)
		f->conn = NULL;
	c->under_way = NULL;
	c->turn++;
}

static void lose(struct conn *c)
{
	enum conn_state was = c->state;

	if (was == C_TRIES)
		return;
	keep_some(c);
	drop_under_way(c);
	c->waiting[0] = c->waiting[1] = 0;
	c->state = C_TRIES;
	c->to = NULL;
	tell(c, SOCK_LOST);
	sim_at(sim.now + RETRY_MS * SIM_MS, dial, c);
}

static struct conn *conn_new(struct vsock *from, const char *endpoint,
			     const struct sock_peer *name)
{
	struct conn *c = sim_alloc(sizeof *c);

	c->from = from;
	if (name)
		c->name = *name;
	snprintf(c->endpoint, sizeof c->endpoint, "%s", endpoint);
	c->retry_ms = RETRY_MS;
	c->next = from->conns;
	from->conns = c;
	c->every = conns;
	conns = c;
	sim_at(sim.now + (int64_t)rng_below(&sim.rng, SIM_MS), dial, c);
	return c;
}

/* ---- sockets ---- */

static struct vsock *vsock_of(const struct sock *s)
{
	return s->zmq;
}

static struct vsock *vsock_new(struct sock *s)
{
	struct vsock *v = sim_alloc(sizeof *v);

	*s = (struct sock){ .zmq = v };
	v->owner = sim.p;
	v->sock = s;
	v->in_end = &v->in;
	v->next = socks;
	socks = v;
	return v;
}

static void close_conn(struct conn *c)
{
	c->closed = true;
	if (c->state == C_UP && c->to && c->to->sock)
		deliver_some(c, false);
	drop_under_way(c);
	frames_free(c->kept);
	c->kept = NULL;
	c->state = C_TRIES;
}

/* The rest of it stays until the seed's end: events may point to it. */
static void vsock_close(struct vsock *v)
{
	v->sock = NULL;
	if (v->node && v->node->listener == v)
		v->node->listener = NULL;
	for (struct conn *c = v->conns; c; c = c->next)
		close_conn(c);
	for (struct conn *c = conns; c; c = c->every)
		if (c->to == v && !c->closed) {
			if (c->state == C_UP)
				deliver_some(c, true);
			lose(c);
		}
	frames_free(v->in);
	v->in = NULL;
	v->in_end = &v->in;
}

static int clear_path(const char *path)
{
	struct node *n = disk_find(disk_root(), path, false);
	char name[256];

	if (!n)
		return 0;
	if (n->kind != N_SOCK)
		return log_error(E_CONFIG, "%s is there and is no socket",
				 path);
	if (n->listener)
		return log_error(E_AGAIN, "%s is in use by a running process",
				 path);
	disk_unlink(disk_parent(disk_root(), path, name), name);
	return 0;
}

int sock_listen(struct sock *s, const char *endpoint, size_t frame_max)
{
	const char *path = endpoint + strlen(IPC);
	char name[256];
	struct node *dir;
	struct vsock *v;
	int rc;

	(void)frame_max;
	*s = (struct sock){ 0 };
	sim_point("listen", 0);
	rc = clear_path(path);
	if (rc < 0)
		return rc;
	dir = disk_parent(disk_root(), path, name);
	if (!dir)
		return log_errno(E_IO, "bind %s", path);
	v = vsock_new(s);
	v->listens = true;
	v->node = disk_make(N_SOCK, 0600);
	v->node->listener = v;
	snprintf(v->path, sizeof v->path, "%s", path);
	disk_link(dir, name, v->node);
	return 0;
}

int sock_dial(struct sock *s, const char *endpoint, size_t frame_max)
{
	(void)frame_max;
	sim_point("dial", 0);
	conn_new(vsock_new(s), endpoint, NULL);
	return 0;
}

int sock_fan(struct sock *s, size_t frame_max)
{
	(void)frame_max;
	vsock_new(s)->fans = true;
	return 0;
}

int sock_fan_add(struct sock *s, const char *endpoint,
		 const struct sock_peer *name)
{
	conn_new(vsock_of(s), endpoint, name);
	return 0;
}

void sock_close(struct sock *s)
{
	struct vsock *v = vsock_of(s);
	char name[256];
	struct node *dir;

	if (!v)
		return;
	if (v->listens) {
		dir = disk_parent(disk_root(), v->path, name);
		if (dir && disk_lookup(dir, name) == v->node)
			disk_unlink(dir, name);
	}
	vsock_close(v);
	*s = (struct sock){ 0 };
}

void sock_end(void)
{
}

int sock_warm(void)
{
	return 0;
}

int sock_need_fds(size_t need, const char *what)
{
	(void)need;
	(void)what;
	return 0;
}

int sock_version(void)
{
	return 40305;
}

static bool same_peer(const struct sock_peer *a, const struct sock_peer *b)
{
	return a->n == b->n && memcmp(a->id, b->id, a->n) == 0;
}

static struct conn *conn_to(const struct vsock *v, const struct sock_peer *to)
{
	if (!to)
		return v->conns;
	if (v->listens) {
		for (struct conn *c = conns; c; c = c->every)
			if (c->to == v && c->state == C_UP &&
			    same_peer(&c->id, to))
				return c;
		return NULL;
	}
	for (struct conn *c = v->conns; c; c = c->next)
		if (same_peer(&c->name, to))
			return c;
	return NULL;
}

static void remember(struct conn *c, struct slice frame)
{
	struct echo *e = &echo[echoes++ % ECHOES];

	sim_free(e->frame);
	e->frame = frame_new(c, false, frame);
	snprintf(e->endpoint, sizeof e->endpoint, "%s", c->endpoint);
}

int sock_send(struct sock *s, const struct sock_peer *to, struct slice frame)
{
	struct vsock *v = vsock_of(s);
	struct conn *c;
	struct frame *f;
	int how = FRAME_SENT;

	sim_point("send", frame.n);
	c = conn_to(v, to);
	if (!c || (to && !v->listens && c->state != C_UP))
		return -E_UNAVAIL;
	if (c->waiting[!v->listens] >= SOCK_HWM)
		return -E_AGAIN;
	if (c->from->owner != &ghost)
		frame = world_lie(sim.p, frame, &how);
	watch_frame(sim.p,
		    v->listens ? c->from->owner->name
		    : c->to    ? c->to->owner->name
			       : "?",
		    turn_name(c), frame, how);
	f = frame_new(c, v->listens, frame);
	if (c->state != C_UP) { /* dialled, not there yet: it waits */
		struct frame **at = &c->kept;

		while (*at)
			at = &(*at)->next;
		*at = f;
		return 0;
	}
	c->waiting[!v->listens]++;
	if (v->fans)
		remember(c, frame);
	send_frame(c, f);
	return 0;
}

int sock_recv(struct sock *s, struct sock_peer *from, struct buf *out)
{
	struct vsock *v = vsock_of(s);
	struct frame *f;

	buf_clear(out);
	sim_point("recv", v->in != NULL);
	f = v->in;
	if (!f)
		return 0;
	v->in = f->next;
	if (!v->in)
		v->in_end = &v->in;
	if (from)
		*from = f->to_dialler ? f->conn->name : f->conn->id;
	if (f->turn == f->conn->turn && f->conn->waiting[!f->to_dialler])
		f->conn->waiting[!f->to_dialler]--;
	buf_add(out, f->p, f->n);
	watch_frame(sim.p, "", f->conn_name, buf_slice(out), FRAME_TAKEN);
	sim_free(f);
	return 1;
}

enum sock_news sock_news(struct sock *s, char *endpoint, size_t size)
{
	struct vsock *v = vsock_of(s);
	enum sock_news what;

	if (v->nnews == 0)
		return SOCK_QUIET;
	what = v->news[0].what;
	snprintf(endpoint, size, "%s", v->news[0].conn->endpoint);
	memmove(v->news, v->news + 1, --v->nnews * sizeof *v->news);
	return what;
}

static int look_at(struct sock_poll *v, size_t n)
{
	int ready = 0;

	for (size_t i = 0; i < n; i++) {
		if (v[i].fd >= 0) {
			struct file *f = fd_get(v[i].fd);

			v[i].ready = f && (file_is_readable(f) ||
					   file_has_hung_up(f));
			v[i].ready_out = v[i].want_out;
		} else {
			const struct vsock *s = vsock_of(v[i].s);

			v[i].ready = s->in || s->nnews;
			v[i].ready_out = false;
		}
		ready += v[i].ready || v[i].ready_out;
	}
	return ready;
}

int sock_poll(struct sock_poll *v, size_t n, int64_t timeout_ms)
{
	int64_t due =
		timeout_ms < 0 ? SIM_NEVER : sim.now + timeout_ms * SIM_MS;
	int ready;

	sim_point("poll", n);
	while ((ready = look_at(v, n)) == 0 && timeout_ms != 0 && sim.now < due)
		task_wait(due);
	return ready;
}

/* ---- what befalls it ---- */

void net_proc_gone(struct proc *p)
{
	for (struct vsock *v = socks; v; v = v->next)
		if (v->owner == p && v->sock)
			vsock_close(v);
}

static struct conn *any_conn(struct rng *r)
{
	struct conn *found = NULL;
	uint64_t n = 0;

	for (struct conn *c = conns; c; c = c->every)
		if (!c->closed && c->state == C_UP && rng_one_in(r, ++n))
			found = c;
	return found;
}

void net_cut(struct rng *r)
{
	struct conn *c = any_conn(r);

	if (!c)
		return;
	sim_tell("cut %s to %s", c->from->owner->name, c->endpoint);
	lose(c);
}

void net_stall(struct rng *r, int64_t ns)
{
	struct conn *c = any_conn(r);

	if (!c)
		return;
	sim_tell("stall %s to %s for %lld ms", c->from->owner->name,
		 c->endpoint, (long long)(ns / SIM_MS));
	c->stalled = sim.now + ns;
}

/* Who says it is somebody else, who waits for no answer. */
static struct conn *ghost_at(struct vsock *to, const char *endpoint)
{
	struct conn *c = sim_alloc(sizeof *c);

	c->from = sim_alloc(sizeof *c->from);
	c->from->owner = &ghost;
	c->from->in_end = &c->from->in;
	c->to = to;
	snprintf(c->endpoint, sizeof c->endpoint, "%s", endpoint);
	c->state = C_UP;
	c->closed = true;
	c->id = (struct sock_peer){ .n = 5 };
	last_id++;
	memcpy(c->id.id + 1, &last_id, sizeof last_id);
	c->every = conns;
	conns = c;
	return c;
}

void net_echo(struct rng *r)
{
	size_t n = echoes < ECHOES ? echoes : ECHOES;
	const struct echo *e = n ? &echo[rng_below(r, n)] : NULL;
	struct vsock *to = e ? listener_at(e->endpoint + strlen(IPC)) : NULL;
	struct conn *c;

	if (!to || !to->sock)
		return;
	c = ghost_at(to, e->endpoint);
	send_frame(c, frame_new(c, false,
				(struct slice){ e->frame->p, e->frame->n }));
}

void net_begin(void)
{
	memset(echo, 0, sizeof echo);
	echoes = 0;
	last_id = 0;
}

/* Its memory goes with the seed's. */
void net_end(void)
{
	socks = NULL;
	conns = NULL;
}
