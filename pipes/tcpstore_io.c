#include "pipes/tcpstore_io.h"
#include "common/err.h"
#include "common/log.h"
#include "common/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE 4096

struct client {
	struct tcpstore_io *io;
	struct tcpstore_peer *peer;
	int fd; /* -1: closed */
	char name[TCP_NAME_MAX];
};

struct tcpstore_io {
	struct loop *loop;
	struct tcpstore_conf conf;
	struct tcpstore store;
	int listener;
	struct client client[TCPSTORE_PEERS_MAX];
	struct loop_timer deadline, news;
	struct log_few refused;
};

static void end_client(struct client *c)
{
	if (c->fd < 0)
		return;
	loop_del_fd(c->io->loop, c->fd);
	close(c->fd);
	c->fd = -1;
	tcpstore_leave(&c->io->store, c->peer);
}

static void tell(const struct tcpstore_io *io, const char *name,
		 const char *why, struct log_few *few)
{
	if (log_few(few, LOG_WARN))
		log_warn("store at %s:%u: %s is closed: %s", io->conf.host,
			 io->conf.port, name, why);
}

/* ---- out ---- */

/* 1: all is sent; 0: the rest must wait. */
static int send_some(struct client *c)
{
	struct buf *out = &c->peer->out;
	size_t done = 0;
	ssize_t n = 0;

	while (done < out->n) {
		n = send(c->fd, out->p + done, out->n - done, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		done += (size_t)n;
	}
	if (n < 0 && errno != EAGAIN)
		return -E_UNAVAIL;
	out->n -= done;
	memmove(out->p, out->p + done, out->n);
	if (out->n > 0)
		return 0;
	buf_release(out);
	return 1;
}

static void on_out(void *arg);

static int feed(struct client *c, struct slice bytes)
{
	int rc = tcpstore_feed(&c->io->store, c->peer, bytes);

	if (rc < 0)
		tell(c->io, c->name, c->peer->why, &c->io->refused);
	return rc;
}

/* Answers what can be: what was sent makes room for more. */
static void drain(struct client *c)
{
	int rc = 1;

	while (rc > 0 && c->peer->out.n > 0) {
		rc = send_some(c);
		if (rc > 0)
			rc = feed(c, SLICE("")) < 0 ? -E_PROTO : 1;
	}
	if (rc < 0)
		end_client(c);
	else
		loop_want_out(c->io->loop, c->fd, rc == 0, on_out);
}

static void drain_all(struct tcpstore_io *io)
{
	for (size_t i = 0; i < COUNT(io->client); i++)
		if (io->client[i].fd >= 0 && io->client[i].peer->out.n > 0)
			drain(&io->client[i]);
	loop_arm(io->loop, &io->news, 0);
}

static void on_out(void *arg)
{
	struct client *c = arg;

	drain(c);
	drain_all(c->io);
}

/* ---- in ---- */

static void on_in(void *arg)
{
	struct client *c = arg;
	char bytes[READ_SIZE];
	ssize_t n = 1;

	while (c->fd >= 0 && n > 0) {
		n = recv(c->fd, bytes, sizeof bytes, 0);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n == 0 || (n < 0 && errno != EAGAIN))
			end_client(c);
		else if (n > 0 &&
			 feed(c, (struct slice){ bytes, (size_t)n }) < 0)
			end_client(c);
	}
	drain_all(c->io);
}

static struct client *free_client(struct tcpstore_io *io)
{
	for (size_t i = 0; i < COUNT(io->client); i++)
		if (io->client[i].fd < 0)
			return &io->client[i];
	return NULL;
}

static void on_listener(void *arg)
{
	struct tcpstore_io *io = arg;
	char name[TCP_NAME_MAX];
	struct client *c;
	int fd;

	while ((fd = tcp_accept(io->listener, name)) >= 0) {
		c = free_client(io);
		if (!c) {
			tell(io, name, "it is one too many", &io->refused);
			close(fd);
			continue;
		}
		c->fd = fd;
		memcpy(c->name, name, sizeof name);
		c->peer = tcpstore_join(&io->store);
		loop_add_fd(io->loop, fd, on_in, c);
	}
}

/* ---- all of it ---- */

static void on_news(void *arg)
{
	struct tcpstore_io *io = arg;

	io->conf.news(io->conf.arg);
}

static void on_deadline(void *arg)
{
	struct tcpstore_io *io = arg;

	io->conf.over(io->conf.arg);
}

int tcpstore_io_open(struct tcpstore_io **out, struct loop *l,
		     const struct tcpstore_conf *conf)
{
	struct tcpstore_io *io = xcalloc(1, sizeof *io);

	io->loop = l;
	io->conf = *conf;
	io->listener = tcp_listen(conf->host, &io->conf.port);
	if (io->listener < 0) {
		int rc = io->listener;

		free(io);
		return rc;
	}
	io->refused.what = "clients that were closed";
	for (size_t i = 0; i < COUNT(io->client); i++)
		io->client[i] = (struct client){ .io = io, .fd = -1 };
	io->deadline = (struct loop_timer){ .fn = on_deadline, .arg = io };
	io->news = (struct loop_timer){ .fn = on_news, .arg = io };
	loop_add_fd(l, io->listener, on_listener, io);
	loop_arm(l, &io->deadline, conf->ms);
	*out = io;
	return 0;
}

void tcpstore_io_free(struct tcpstore_io *io)
{
	if (!io)
		return;
	for (size_t i = 0; i < COUNT(io->client); i++)
		end_client(&io->client[i]);
	loop_del_fd(io->loop, io->listener);
	close(io->listener);
	loop_disarm(io->loop, &io->deadline);
	loop_disarm(io->loop, &io->news);
	log_few_end(&io->refused);
	tcpstore_release(&io->store);
	free(io);
}

uint16_t tcpstore_io_port(const struct tcpstore_io *io)
{
	return io->conf.port;
}

const struct tcpstore *tcpstore_io_store(const struct tcpstore_io *io)
{
	return &io->store;
}

int tcpstore_io_set(struct tcpstore_io *io, struct slice key,
		    struct slice value)
{
	int rc = tcpstore_set(&io->store, key, value);

	drain_all(io);
	return rc;
}
