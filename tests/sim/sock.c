/* common/sock.h over the simulated network: net.c. */
#include "net.h"
#include "world.h"

#include "common/err.h"
#include "common/fds.h"
#include "common/log.h"

#include <string.h>

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
	v->next = net_socks;
	net_socks = v;
	return v;
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
	net_dial(vsock_new(s), endpoint, NULL);
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
	net_dial(vsock_of(s), endpoint, name);
	return 0;
}

bool sock_has_listener(const char *endpoint)
{
	const struct node *n =
		disk_find(disk_root(), endpoint + strlen(IPC), false);

	return n && n->kind == N_SOCK && n->listener;
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
	net_close(v);
	*s = (struct sock){ 0 };
}

/* What is under way may be lost here as well. */
void sock_finish(struct sock *s, int ms)
{
	(void)ms;
	sock_close(s);
}

void sock_end(void)
{
}

int sock_warm(void)
{
	return 0;
}

int fds_need(size_t need, const char *what)
{
	(void)need;
	(void)what;
	return 0;
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
		for (struct conn *c = net_conns; c; c = c->every)
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
	if (!net_is_ghost(c))
		frame = world_lie(sim.p, frame, &how);
	watch_frame(sim.p,
		    v->listens ? c->from->owner->name
		    : c->to    ? c->to->owner->name
			       : "?",
		    net_turn(c), frame, how);
	f = net_frame(c, v->listens, frame);
	if (c->state != C_UP) { /* dialled, not there yet: it waits */
		struct frame **at = &c->kept;

		while (*at)
			at = &(*at)->next;
		*at = f;
		return 0;
	}
	c->waiting[!v->listens]++;
	if (v->fans)
		net_remember(c, frame);
	net_send(c, f);
	world_sent(c, v->listens, watch_sent());
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
