#include "sock.h"
#include "clock.h"
#include "err.h"
#include "fds.h"
#include "log.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define IPC "ipc://"
#define INPROC "inproc://"
#define RECONNECT_MS 10
#define RECONNECT_MAX_MS 500
#define BACKLOG 1024	 /* connections waiting to be accepted */
#define SOCKETS_MAX 4096 /* zmq sockets of this process */
#define FDS_BASE 24	 /* context, its threads, and a few sockets */
#define POLL_ON_STACK 64 /* items; more are allocated */
#define MONITOR_NAME_MAX 32
#define THREADS 2	      /* of the context */
#define ROOM_BYTES (4u << 20) /* beside their stacks */
#define VERSION_SAFE 40302    /* older ones have known holes (ZQ-15) */

static void *ctx;
static unsigned open_sockets;

/* 10000 * major + 100 * minor + patch */
static int version(void)
{
	int major, minor, patch;

	zmq_version(&major, &minor, &patch);
	return 10000 * major + 100 * minor + patch;
}

/* libzmq takes memory for each message: a frame that is not sent for want of
 * it would be waited for up to its deadline. */
static int zmq_failed(int code, const char *what)
{
	if (errno == ENOMEM)
		xnomem(0);
	return log_error(code, "zmq %s: %s", what, zmq_strerror(errno));
}

/* libzmq aborts where it gets no memory for its threads. */
static int has_room(void)
{
	pthread_attr_t attr;
	size_t stack = 0, n;
	void *p;

	pthread_attr_init(&attr);
	pthread_attr_getstacksize(&attr, &stack);
	pthread_attr_destroy(&attr);
	n = THREADS * stack + ROOM_BYTES;
	p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return log_error(E_NOMEM, "out of memory: links need %zu bytes",
				 n);
	munmap(p, n);
	return 0;
}

static int context(void)
{
	int rc;

	if (ctx)
		return 0;
	if (version() < VERSION_SAFE)
		log_warn("libzmq %d is older than %d and has known holes",
			 version(), VERSION_SAFE);
	rc = fds_need(FDS_BASE, "links");
	if (rc == 0)
		rc = has_room();
	if (rc < 0)
		return rc;
	ctx = zmq_ctx_new();
	if (!ctx)
		return zmq_failed(E_CONFIG, "context");
	zmq_ctx_set(ctx, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
	return 0;
}

void sock_end(void)
{
	BUG_ON(open_sockets != 0);
	if (!ctx)
		return;
	while (zmq_ctx_term(ctx) < 0 && errno == EINTR)
		;
	ctx = NULL;
}

/*
 * libzmq takes a socket's commands before it binds or connects, and a signal
 * there ends the call before it has done anything: once more is right, each
 * time.
 */
static int bind_to(void *z, const char *endpoint)
{
	int rc;

	do
		rc = zmq_bind(z, endpoint);
	while (rc < 0 && errno == EINTR);
	return rc;
}

static int join_to(void *z, const char *endpoint)
{
	int rc;

	do
		rc = zmq_connect(z, endpoint);
	while (rc < 0 && errno == EINTR);
	return rc;
}

/* Binds a socket of its own, so a signal ends it as it ends a bind. */
static int watch(void *z, const char *name, int events)
{
	int rc;

	do
		rc = zmq_socket_monitor(z, name, events);
	while (rc < 0 && errno == EINTR);
	return rc;
}

static int new_socket(int type, void **out)
{
	void *z = zmq_socket(ctx, type);

	if (!z)
		return zmq_failed(E_CONFIG, "socket");
	open_sockets++;
	*out = z;
	return 0;
}

static void close_socket(void *z)
{
	if (!z)
		return;
	zmq_close(z);
	open_sockets--;
}

static const struct {
	int option, value;
} common_options[] = {
	{ ZMQ_LINGER, 0 },
	{ ZMQ_SNDHWM, SOCK_HWM },
	{ ZMQ_RCVHWM, SOCK_HWM },
	{ ZMQ_RECONNECT_IVL, RECONNECT_MS },
	{ ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS },
};

static int set_int(void *z, int option, int value)
{
	if (zmq_setsockopt(z, option, &value, sizeof value) == 0)
		return 0;
	return log_error(E_BUG, "zmq option %d = %d: %s", option, value,
			 zmq_strerror(errno));
}

static int set_options(void *z, int type, size_t frame_max)
{
	int64_t max = (int64_t)frame_max;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < COUNT(common_options); i++)
		rc = set_int(z, common_options[i].option,
			     common_options[i].value);
	if (rc == 0 && type == ZMQ_ROUTER)
		rc = set_int(z, ZMQ_ROUTER_MANDATORY, 1);
	if (rc == 0 && zmq_setsockopt(z, ZMQ_MAXMSGSIZE, &max, sizeof max) < 0)
		rc = log_error(E_BUG, "zmq frame limit %zu: %s", frame_max,
			       zmq_strerror(errno));
	return rc;
}

/*
 * Only the dialling side asks for signs of life; its time to live makes the
 * listener let go of a silent one too.  A listener must not ask: libzmq 4.3.4
 * aborts (stream_engine_base.cpp: !_io_error) when it is due to ask a peer
 * that went away while its input was held back at the high-water mark, and
 * who dials a listener is not ours to choose.
 */
static int set_heartbeat(void *z)
{
	int rc = set_int(z, ZMQ_HEARTBEAT_IVL, SOCK_HEARTBEAT_MS);

	if (rc == 0)
		rc = set_int(z, ZMQ_HEARTBEAT_TIMEOUT,
			     SOCK_HEARTBEAT_TIMEOUT_MS);
	if (rc == 0)
		rc = set_int(z, ZMQ_HEARTBEAT_TTL, SOCK_HEARTBEAT_TIMEOUT_MS);
	return rc;
}

/* News of connections; before the first one, so that none is missed. */
static int monitor(struct sock *s, int events)
{
	static atomic_uint serial;
	char name[MONITOR_NAME_MAX];
	int rc;

	snprintf(name, sizeof name, INPROC "monitor.%u",
		 atomic_fetch_add(&serial, 1));
	if (watch(s->zmq, name, ZMQ_EVENT_DISCONNECTED | events) < 0)
		return zmq_failed(E_CONFIG, "monitor");
	rc = new_socket(ZMQ_PAIR, &s->monitor);
	/* No mark: at one, libzmq's I/O thread itself would block. */
	if (rc == 0)
		rc = set_int(s->monitor, ZMQ_RCVHWM, 0);
	if (rc == 0)
		rc = set_int(s->monitor, ZMQ_LINGER, 0);
	if (rc == 0 && join_to(s->monitor, name) < 0)
		rc = zmq_failed(E_CONFIG, "monitor");
	return rc;
}

/* Threads start with the first socket. */
int sock_warm(void)
{
	int rc = context();
	void *z = NULL;

	if (rc == 0)
		rc = new_socket(ZMQ_DEALER, &z);
	close_socket(z);
	return rc;
}

static int open_socket(struct sock *s, int type, size_t frame_max)
{
	int rc = context();

	*s = (struct sock){ 0 };
	if (rc < 0)
		return rc;
	rc = new_socket(type, &s->zmq);
	if (rc == 0)
		rc = set_options(s->zmq, type, frame_max);
	if (rc < 0)
		sock_close(s);
	return rc;
}

static bool starts(const char *s, const char *with)
{
	return strncmp(s, with, strlen(with)) == 0;
}

static int check_endpoint(const char *endpoint)
{
	size_t n;

	if (starts(endpoint, INPROC) && endpoint[strlen(INPROC)])
		return 0;
	if (!starts(endpoint, IPC))
		return log_error(E_CONFIG, "endpoint %s: only ipc://PATH",
				 endpoint);
	n = strlen(endpoint) - strlen(IPC);
	if (n > SOCK_PATH_MAX)
		return log_error(E_CONFIG,
				 "endpoint %s: a path of %zu bytes, at most "
				 "%d are possible",
				 endpoint, n, SOCK_PATH_MAX);
	/* "*" would be a name of libzmq's choice, "@" one without a mode. */
	if (endpoint[strlen(IPC)] != '/')
		return log_error(E_CONFIG, "endpoint %s: no absolute path",
				 endpoint);
	return 0;
}

static size_t peers_max(void)
{
	size_t used = fds_open(), half;
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return SOCK_PEERS_MAX;
	half = lim.rlim_cur > used ? (size_t)(lim.rlim_cur - used) / 2 : 0;
	return half < SOCK_PEERS_MAX ? half + 1 : SOCK_PEERS_MAX;
}

static int listen_ipc(struct sock *s, const char *endpoint)
{
	int fd = sockpath_listen(&s->file, endpoint + strlen(IPC), BACKLOG);
	int rc;

	if (fd < 0)
		return fd;
	s->shut.what = "connections one too many";
	s->peers_max = peers_max();
	rc = monitor(s, ZMQ_EVENT_ACCEPTED);
	if (rc == 0)
		rc = set_int(s->zmq, ZMQ_USE_FD, fd);
	if (rc == 0 && bind_to(s->zmq, endpoint) == 0)
		return 0;
	if (rc == 0)
		rc = log_error(E_IO, "listen at %s: %s", endpoint,
			       zmq_strerror(errno));
	close(fd);
	return rc;
}

int sock_listen(struct sock *s, const char *endpoint, size_t frame_max)
{
	int rc = check_endpoint(endpoint);

	*s = (struct sock){ 0 };
	if (rc < 0)
		return rc;
	rc = open_socket(s, ZMQ_ROUTER, frame_max);
	if (rc < 0)
		return rc;
	if (starts(endpoint, IPC))
		rc = listen_ipc(s, endpoint);
	else if (bind_to(s->zmq, endpoint) < 0)
		rc = log_error(E_AGAIN, "listen at %s: %s", endpoint,
			       zmq_strerror(errno));
	if (rc < 0)
		sock_close(s);
	return rc;
}

static int connect_to(struct sock *s, const char *endpoint)
{
	int rc = check_endpoint(endpoint);

	if (rc < 0)
		return rc;
	if (join_to(s->zmq, endpoint) == 0)
		return 0;
	return log_error(E_CONFIG, "connect to %s: %s", endpoint,
			 zmq_strerror(errno));
}

int sock_dial(struct sock *s, const char *endpoint, size_t frame_max)
{
	int rc = open_socket(s, ZMQ_DEALER, frame_max);

	if (rc < 0)
		return rc;
	rc = set_heartbeat(s->zmq);
	if (rc == 0)
		rc = monitor(s, ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
	if (rc == 0)
		rc = connect_to(s, endpoint);
	if (rc < 0)
		sock_close(s);
	return rc;
}

int sock_fan(struct sock *s, size_t frame_max)
{
	int rc = open_socket(s, ZMQ_ROUTER, frame_max);

	if (rc < 0)
		return rc;
	rc = set_heartbeat(s->zmq);
	if (rc == 0)
		rc = monitor(s, ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
					ZMQ_EVENT_CONNECTED);
	if (rc < 0)
		sock_close(s);
	return rc;
}

int sock_fan_add(struct sock *s, const char *endpoint,
		 const struct sock_peer *name)
{
	if (zmq_setsockopt(s->zmq, ZMQ_CONNECT_ROUTING_ID, name->id, name->n) <
	    0)
		return log_error(E_BUG, "name of %s: %s", endpoint,
				 zmq_strerror(errno));
	return connect_to(s, endpoint);
}

bool sock_has_listener(const char *endpoint)
{
	return starts(endpoint, IPC) &&
	       sockpath_has_listener(endpoint + strlen(IPC));
}

void sock_close(struct sock *s)
{
	if (s->monitor)
		zmq_socket_monitor(s->zmq, NULL, 0);
	close_socket(s->monitor);
	sockpath_remove(&s->file);
	close_socket(s->zmq);
	log_few_end(&s->shut);
	*s = (struct sock){ 0 };
}

void sock_finish(struct sock *s, int ms)
{
	if (s->zmq)
		set_int(s->zmq, ZMQ_LINGER, ms);
	sock_close(s);
}

static int send_part(void *z, const void *p, size_t n, int flags)
{
	int rc;

	do
		rc = zmq_send(z, p, n, ZMQ_DONTWAIT | flags);
	while (rc < 0 && errno == EINTR);
	if (rc >= 0)
		return 0;
	if (errno == EAGAIN)
		return -E_AGAIN;
	if (errno == EHOSTUNREACH)
		return -E_UNAVAIL;
	return zmq_failed(E_IO, "send");
}

int sock_send(struct sock *s, const struct sock_peer *to, struct slice frame)
{
	int rc = 0;

	if (to)
		rc = send_part(s->zmq, to->id, to->n, ZMQ_SNDMORE);
	return rc < 0 ? rc : send_part(s->zmq, frame.p, frame.n, 0);
}

/* 1 and *more, or 0: nothing there. */
static int recv_part(void *z, zmq_msg_t *m, bool *more)
{
	int rc;

	do
		rc = zmq_msg_recv(m, z, ZMQ_DONTWAIT);
	while (rc < 0 && errno == EINTR);
	if (rc < 0 && errno == EAGAIN)
		return 0;
	if (rc < 0)
		return zmq_failed(E_IO, "receive");
	*more = zmq_msg_more(m) != 0;
	return 1;
}

/* The parts of a message arrive together: reads what is left of this one. */
static int skip_parts(struct sock *s, zmq_msg_t *m)
{
	bool more = true;
	int rc = 1;

	while (rc > 0 && more)
		rc = recv_part(s->zmq, m, &more);
	s->dropped++;
	return rc;
}

/* A router's messages start with who sent them. */
static int recv_from(struct sock *s, struct sock_peer *from, zmq_msg_t *m)
{
	bool more = false;
	int rc = recv_part(s->zmq, m, &more);

	if (rc <= 0)
		return rc;
	if (!more || zmq_msg_size(m) > SOCK_ID_MAX)
		BUG("a router's message without a peer");
	from->n = (uint8_t)zmq_msg_size(m);
	memcpy(from->id, zmq_msg_data(m), from->n);
	return 1;
}

/* libzmq asked for it when the peer connected: "HOST:UID:GID:PID". */
static uid_t user_of(zmq_msg_t *m)
{
	const char *peer = zmq_msg_gets(m, "Peer-Address");
	const char *colon = peer ? strchr(peer, ':') : NULL;
	unsigned uid;

	return colon && sscanf(colon, ":%u:", &uid) == 1 ? (uid_t)uid
							 : SOCK_NO_USER;
}

static int recv_message(struct sock *s, struct sock_peer *from, zmq_msg_t *m,
			struct buf *out)
{
	bool more = false;
	int rc;

	for (;;) {
		rc = from ? recv_from(s, from, m) : 1;
		if (rc > 0)
			rc = recv_part(s->zmq, m, &more);
		if (rc <= 0)
			return rc;
		if (!more)
			break;
		rc = skip_parts(s, m);
		if (rc <= 0)
			return rc;
	}
	if (from)
		from->uid = user_of(m);
	buf_add(out, zmq_msg_data(m), zmq_msg_size(m));
	return 1;
}

struct event {
	uint16_t type;
	uint32_t value; /* of ACCEPTED: the descriptor */
};

/* A monitor tells (16 bits event, 32 bits value), then the endpoint. */
static bool next_event(struct sock *s, struct event *e, zmq_msg_t *endpoint)
{
	const unsigned char *p;
	bool more = false;

	*e = (struct event){ 0 };
	if (recv_part(s->monitor, endpoint, &more) <= 0)
		return false;
	p = zmq_msg_data(endpoint);
	if (zmq_msg_size(endpoint) >= sizeof e->type + sizeof e->value) {
		memcpy(&e->type, p, sizeof e->type);
		memcpy(&e->value, p + sizeof e->type, sizeof e->value);
	}
	return more && recv_part(s->monitor, endpoint, &more) > 0;
}

/* The descriptor is libzmq's, and may be another's by now: then most likely
 * one of this listener, and one too many as well. */
static void shut(struct sock *s, int fd)
{
	if (!sockpath_is_of(&s->file, fd))
		return;
	shutdown(fd, SHUT_RDWR);
	if (log_few(&s->shut, LOG_WARN))
		log_warn("%s: %zu connections, as many as it keeps: one more "
			 "is closed",
			 s->file.path, s->peers_max);
}

static void count_peers(struct sock *s)
{
	struct event e;
	zmq_msg_t m;

	zmq_msg_init(&m);
	while (next_event(s, &e, &m)) {
		if (e.type == ZMQ_EVENT_DISCONNECTED && s->peers > 0)
			s->peers--;
		if (e.type == ZMQ_EVENT_ACCEPTED && ++s->peers > s->peers_max)
			shut(s, (int)e.value);
	}
	zmq_msg_close(&m);
}

int sock_recv(struct sock *s, struct sock_peer *from, struct buf *out)
{
	zmq_msg_t m;
	int rc;

	if (s->peers_max > 0)
		count_peers(s);
	buf_clear(out);
	zmq_msg_init(&m);
	rc = recv_message(s, from, &m, out);
	zmq_msg_close(&m);
	return rc;
}

static enum sock_news news_of(uint16_t event)
{
	switch (event) {
	case ZMQ_EVENT_DISCONNECTED:
		return SOCK_LOST;
	case ZMQ_EVENT_CONNECTED:
		return SOCK_REACHED;
	default:
		return SOCK_UP;
	}
}

enum sock_news sock_news(struct sock *s, char *endpoint, size_t size)
{
	enum sock_news news = SOCK_QUIET;
	struct event e;
	zmq_msg_t m;
	size_t n;

	zmq_msg_init(&m);
	if (next_event(s, &e, &m)) {
		n = zmq_msg_size(&m);
		if (n >= size)
			BUG("endpoint of %zu bytes in %zu", n, size);
		memcpy(endpoint, zmq_msg_data(&m), n);
		endpoint[n] = '\0';
		news = news_of(e.type);
	}
	zmq_msg_close(&m);
	return news;
}

/* Items first for each entry, then for each monitor. */
static size_t fill_items(zmq_pollitem_t *item, struct sock_poll *v, size_t n)
{
	size_t k = n;

	for (size_t i = 0; i < n; i++) {
		short out = v[i].want_out ? ZMQ_POLLOUT : 0;

		if (v[i].fd >= 0) {
			item[i] = (zmq_pollitem_t){ NULL, v[i].fd,
						    ZMQ_POLLIN | out, 0 };
			continue;
		}
		item[i] = (zmq_pollitem_t){ v[i].s->zmq, 0, ZMQ_POLLIN, 0 };
		if (v[i].s->monitor)
			item[k++] = (zmq_pollitem_t){ v[i].s->monitor, 0,
						      ZMQ_POLLIN, 0 };
	}
	return k;
}

static int take_items(const zmq_pollitem_t *item, struct sock_poll *v, size_t n)
{
	size_t k = n;
	int ready = 0;

	for (size_t i = 0; i < n; i++) {
		short got = item[i].revents;

		v[i].ready_out = v[i].want_out && (got & ZMQ_POLLOUT);
		/* An error is for who reads. */
		v[i].ready = (got & ~ZMQ_POLLOUT) != 0;
		if (v[i].fd < 0 && v[i].s->monitor)
			v[i].ready |= item[k++].revents != 0;
		ready += v[i].ready || v[i].ready_out;
	}
	return ready;
}

/* Signals do not make it longer: the deadline is fixed before. */
static int poll_items(zmq_pollitem_t *item, size_t n, int64_t timeout_ms)
{
	int64_t end = clock_mono_ms() + timeout_ms, left = timeout_ms;
	int rc;

	for (;;) {
		rc = zmq_poll(item, (int)n, (long)left);
		if (rc >= 0 || errno != EINTR)
			break;
		if (timeout_ms < 0)
			continue;
		left = end - clock_mono_ms();
		if (left < 0)
			left = 0;
	}
	if (rc < 0)
		return zmq_failed(E_IO, "poll");
	return rc;
}

int sock_poll(struct sock_poll *v, size_t n, int64_t timeout_ms)
{
	zmq_pollitem_t few[2 * POLL_ON_STACK], *item = few;
	int rc;

	if (n > POLL_ON_STACK)
		item = xreallocarray(NULL, 2 * n, sizeof *item);
	rc = poll_items(item, fill_items(item, v, n), timeout_ms);
	if (rc >= 0)
		rc = take_items(item, v, n);
	if (item != few)
		free(item);
	return rc;
}
