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
#include "net.h"

#include <stdlib.h>
#include <string.h>

#define SOCKS "ipc:///sock/e"
#define HOP_NS (300 * SIM_US) /* of a frame, at most */
#define DIAL_NS (2 * SIM_MS)  /* of a handshake, at most */
#define ECHOES 64	      /* frames that may be heard again */
#define RETRY_MS 10
#define RETRY_MAX_MS 500

/* What was said to engines, to be heard once more. */
struct echo {
	struct frame *frame;
	int pid; /* who sent it */
	char endpoint[SOCK_PATH_MAX + 8];
};

struct vsock *net_socks;
struct conn *net_conns;
static struct echo echo[ECHOES];
static size_t echoes;
static struct proc ghost = { .name = "ghost" };
static uint32_t last_id;

/* ---- frames ---- */

void net_frames_free(struct frame *f)
{
	while (f) {
		struct frame *next = f->next;

		sim_free(f);
		f = next;
	}
}

/* Of this connection until it is lost. */
const void *net_turn(const struct conn *c)
{
	return (const char *)c + c->turn;
}

static void arrive(void *arg);

void net_send(struct conn *c, struct frame *f)
{
	int64_t *last = &c->last[f->to_dialler];
	int64_t due = sim.now + (int64_t)rng_below(&sim.rng, HOP_NS);

	if (due < c->stalled)
		due = c->stalled;
	if (due <= *last)
		due = *last + 1;
	*last = f->due = due;
	f->held = c->holds[f->to_dialler];
	f->turn = c->turn;
	f->conn_name = net_turn(c);
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
	f->late = f->held;
	if (f->late)
		return;
	forget_under_way(c, f);
	s = f->to_dialler ? c->from : c->to;
	f->next = NULL;
	*s->in_end = f;
	s->in_end = &f->next;
	proc_poke(s->owner);
}

struct frame *net_frame(struct conn *c, bool to_dialler, struct slice s)
{
	struct frame *f = sim_alloc(sizeof *f + s.n);

	f->conn = c;
	f->conn_name = net_turn(c);
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
		net_send(c, f);
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
		copy = net_frame(c, false, (struct slice){ f->p, f->n });
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
		copy = net_frame(c, to_dialler, (struct slice){ f->p, f->n });
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

static void lose(struct conn *c, bool all)
{
	enum conn_state was = c->state;

	if (was == C_TRIES)
		return;
	if (!all)
		keep_some(c);
	drop_under_way(c);
	c->holds[0] = c->holds[1] = false;
	c->waiting[0] = c->waiting[1] = 0;
	c->state = C_TRIES;
	c->to = NULL;
	tell(c, SOCK_LOST);
	sim_at(sim.now + RETRY_MS * SIM_MS, dial, c);
}

struct conn *net_dial(struct vsock *from, const char *endpoint,
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
	c->every = net_conns;
	net_conns = c;
	sim_at(sim.now + (int64_t)rng_below(&sim.rng, SIM_MS), dial, c);
	return c;
}

/* ---- ends ---- */

static void close_conn(struct conn *c)
{
	c->closed = true;
	if (c->state == C_UP && c->to && c->to->sock)
		deliver_some(c, false);
	drop_under_way(c);
	net_frames_free(c->kept);
	c->kept = NULL;
	c->state = C_TRIES;
}

/* The rest of it stays until the seed's end: events may point to it. */
void net_close(struct vsock *v)
{
	v->sock = NULL;
	if (v->node && v->node->listener == v)
		v->node->listener = NULL;
	for (struct conn *c = v->conns; c; c = c->next)
		close_conn(c);
	for (struct conn *c = net_conns; c; c = c->every) {
		if (c->to != v)
			continue;
		if (net_is_ghost(c)) {
			drop_under_way(c);
		} else if (!c->closed) {
			if (c->state == C_UP)
				deliver_some(c, true);
			lose(c, false);
		}
	}
	net_frames_free(v->in);
	v->in = NULL;
	v->in_end = &v->in;
}

/* ---- what befalls it ---- */

void net_proc_gone(struct proc *p)
{
	for (struct vsock *v = net_socks; v; v = v->next)
		if (v->owner == p && v->sock)
			net_close(v);
}

static struct conn *any_conn(struct rng *r, const char *dialler,
			     const char *prefix)
{
	struct conn *found = NULL;
	uint64_t n = 0;

	for (struct conn *c = net_conns; c; c = c->every)
		if (!c->closed && c->state == C_UP &&
		    strncmp(c->endpoint, prefix, strlen(prefix)) == 0 &&
		    (!dialler || strcmp(c->from->owner->name, dialler) == 0) &&
		    rng_one_in(r, ++n))
			found = c;
	return found;
}

void net_lose(struct conn *c, bool loses)
{
	if (c->closed || c->state != C_UP)
		return;
	sim_tell("cut %s to %s", c->from->owner->name, c->endpoint);
	lose(c, loses);
}

void net_cut(struct rng *r, const char *dialler, const char *prefix)
{
	struct conn *c = any_conn(r, dialler, prefix);

	if (c)
		net_lose(c, false);
}

int net_engine(const struct conn *c)
{
	const size_t n = strlen(SOCKS);

	return strncmp(c->endpoint, SOCKS, n) == 0 ? atoi(c->endpoint + n) : -1;
}

/* Oldest first: under_way begins with the youngest. */
static void let_go(struct frame *f, bool to_dialler)
{
	if (!f)
		return;
	let_go(f->next, to_dialler);
	if (!f->held || f->to_dialler != to_dialler)
		return;
	f->held = false;
	if (f->late)
		sim_at(sim.now, arrive, f);
}

static void go_on(void *arg)
{
	struct conn *c = arg;

	for (int i = 0; i < 2; i++) {
		if (!c->holds[i])
			continue;
		sim_tell("%s to %s goes on", c->from->owner->name, c->endpoint);
		c->holds[i] = false;
		let_go(c->under_way, i);
	}
}

void net_hold(struct conn *c, bool to_dialler, int64_t ns)
{
	if (c->closed || c->state != C_UP)
		return;
	sim_tell("hold %s to %s", c->from->owner->name, c->endpoint);
	c->holds[to_dialler] = true;
	for (struct frame *f = c->under_way; f; f = f->next)
		f->held |= f->to_dialler == to_dialler;
	sim_at(sim.now + ns, go_on, c);
}

void net_flow(void)
{
	for (struct conn *c = net_conns; c; c = c->every)
		go_on(c);
}

void net_stall(struct rng *r, const char *dialler, const char *prefix,
	       int64_t ns)
{
	struct conn *c = any_conn(r, dialler, prefix);

	if (!c)
		return;
	sim_tell("stall %s to %s for %lld ms", c->from->owner->name,
		 c->endpoint, (long long)(ns / SIM_MS));
	c->stalled = sim.now + ns;
}

bool net_is_ghost(const struct conn *c)
{
	return c->from->owner == &ghost;
}

void net_remember(struct conn *c, struct slice frame)
{
	struct echo *e = &echo[echoes++ % ECHOES];

	sim_free(e->frame);
	e->frame = net_frame(c, false, frame);
	e->pid = sim.p->pid;
	snprintf(e->endpoint, sizeof e->endpoint, "%s", c->endpoint);
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
	c->every = net_conns;
	net_conns = c;
	return c;
}

static size_t remembered(void)
{
	return echoes < ECHOES ? echoes : ECHOES;
}

static void hear_again(const struct echo *e)
{
	struct vsock *to = listener_at(e->endpoint + strlen(IPC));
	struct conn *c;

	if (!to || !to->sock)
		return;
	c = ghost_at(to, e->endpoint);
	net_send(c, net_frame(c, false,
			      (struct slice){ e->frame->p, e->frame->n }));
}

void net_echo(struct rng *r)
{
	if (remembered())
		hear_again(&echo[rng_below(r, remembered())]);
}

static bool lives(int pid)
{
	const struct proc *p = sim.procs;

	while (p && p->pid != pid)
		p = p->next;
	return p != NULL;
}

void net_echo_of_dead(struct rng *r)
{
	const struct echo *found = NULL;
	uint64_t n = 0;

	for (size_t i = 0; i < remembered(); i++)
		if (!lives(echo[i].pid) && rng_one_in(r, ++n))
			found = &echo[i];
	if (found)
		hear_again(found);
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
	net_socks = NULL;
	net_conns = NULL;
}
