#include "pipes/keeper.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/fence.h"
#include "common/io.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/notify.h"
#include "pipes/mover.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt rows[] = {
	{ .name = "listen",
	  OPT_TO_STRING(struct keeper_conf, listen),
	  .value = "PATH",
	  .help = "socket that is made there, for --keeper of weir-push" },
	{ .name = "ranks",
	  OPT_TO_UINT(struct keeper_conf, ranks),
	  .value = "N",
	  .def = "1",
	  .min = 1,
	  .max = KEEPER_RANKS_MAX,
	  .help = "source ranks, each on the device of its number" },
	{ .name = "idle",
	  OPT_TO_DURATION(struct keeper_conf, idle_ms),
	  .value = "TIME",
	  .def = "1h",
	  .min = 1,
	  .help = "groups that no version used for so long end, here and at "
		  "the engines" },
	{ .name = "ready-fd",
	  OPT_TO_UINT(struct keeper_conf, ready_fd),
	  .value = "FD",
	  .max = 1 << 20,
	  .help = "gets a newline when the keeper listens" },
};

const struct opt_spec keeper_spec = {
	.program = "weir-keeper",
	.summary = "keep groups of devices from one version to the next",
	.opts = rows,
	.nopts = COUNT(rows),
	.common = offsetof(struct keeper_conf, common),
};

struct seat { /* of a source rank */
	struct keeper *k;
	struct mover *mover; /* NULL: none */
	struct conn *holder; /* NULL: it is here */
	struct loop_timer idle;
};

struct conn {
	struct keeper *k;
	int fd; /* -1: free */
	pid_t pid;
	struct seat *seat; /* NULL: it has none */
	char run[FENCE_ID_MAX + 1];
	uint32_t instance;
};

struct keeper {
	const struct keeper_conf *conf;
	struct loop *loop;
	int listener;
	struct seat *seat; /* by rank */
	struct conn conn[KEEPER_CONNS_MAX];
	struct buf frame, out;
	struct msg_arena arena;
};

/* ---- loans ---- */

static void end_mover(struct seat *s)
{
	loop_disarm(s->k->loop, &s->idle);
	mover_free(s->mover);
	s->mover = NULL;
}

static void close_conn(struct conn *c)
{
	struct seat *s = c->seat;

	loop_del_fd(c->k->loop, c->fd);
	close(c->fd);
	c->fd = -1;
	c->seat = NULL;
	if (!s)
		return;
	log_info("source rank %d: not returned by process %d: its groups end",
		 (int)(s - c->k->seat), (int)c->pid);
	s->holder = NULL;
	end_mover(s);
}

static int answer(struct conn *c, const struct msg *m, const int *fd)
{
	struct keeper *k = c->k;
	int rc;

	buf_clear(&k->out);
	rc = msg_pack(&k->out, m);
	return rc < 0 ? rc
		      : fdpass_send(c->fd, buf_slice(&k->out), fd, fd != NULL);
}

static int refuse(struct conn *c, uint64_t seq, int code, const char *cause)
{
	struct msg m = { .type = M_refused };

	m.refused = (struct m_refused){ .seq = seq,
					.code = (uint8_t)code,
					.bucket = ID_NONE,
					.cause = slice_of(cause) };
	return answer(c, &m, NULL);
}

/* Who borrowed it hears why. */
static void mover_ended(void *arg, int rc)
{
	struct seat *s = arg;
	struct conn *c = s->holder;

	log_warn("source rank %d: %s", (int)(s - s->k->seat), log_cause());
	if (c) {
		refuse(c, 0, -rc, log_cause());
		c->seat = NULL;
		s->holder = NULL;
		close_conn(c);
	}
	end_mover(s);
}

/* What it says is for who has borrowed it. */
static void mover_said(void *arg, const struct msg *m)
{
	(void)arg;
	log_debug("a mover that is not lent sent %s", msg_name(m->type));
}

static const struct mover_ops mover_ops = {
	.msg = mover_said,
	.ended = mover_ended,
};

static void conn_ready(void *arg);

/* A holder's last word, or its end, may not have been heard yet.  0, or who
 * else has it. */
static int check_free(const struct seat *s, const struct conn *c)
{
	const struct conn *h = s->holder;
	int rc, was;

	if (h)
		conn_ready(s->holder);
	h = s->holder;
	if (!h || (strcmp(c->run, h->run) == 0 && c->instance > h->instance))
		return 0;
	/* Who asks is told; here it is no fault. */
	was = log_quiet_thread(1);
	rc = log_error(E_AGAIN, "it is lent to process %d, of run %s",
		       (int)h->pid, h->run);
	log_quiet_thread(was);
	return rc;
}

static int lend(struct conn *c, struct seat *s, uint64_t seq)
{
	struct msg m = { .type = M_lent };
	int rc = 0, sock;

	if (s->holder)
		close_conn(s->holder);
	if (!s->mover)
		rc = mover_start(&s->mover, c->k->loop, &mover_nccl, &mover_ops,
				 s);
	if (rc < 0)
		return rc;
	loop_disarm(c->k->loop, &s->idle);
	c->seat = s;
	s->holder = c;
	m.lent = (struct m_lent){ seq, (uint64_t)c->k->conf->idle_ms };
	sock = mover_lend(s->mover);
	return answer(c, &m, &sock);
}

static int answer_borrow(struct conn *c, struct seat *s, uint64_t seq,
			 bool asks)
{
	struct msg yes = { .type = M_lent, .lent = { .seq = seq } };
	int rc = check_free(s, c);

	if (rc == 0)
		rc = asks ? answer(c, &yes, NULL) : lend(c, s, seq);
	return rc < 0 ? refuse(c, seq, -rc, log_cause()) : 0;
}

/* Its movers are of our build as well. */
static int refuse_strange(struct conn *c, uint64_t seq)
{
	return refuse(c, seq, E_PROTO,
		      "it " MSG_STRANGE " (build " PACKAGE_VERSION
		      "): restart it with this build");
}

/* The message does not outlive what check_free() reads. */
static int take_borrow(struct conn *c, const struct m_borrow *b)
{
	struct keeper *k = c->k;
	char cause[128];

	if (c->seat)
		return log_error(E_PROTO, "one loan for each connection");
	if (b->table != msg_table_hash())
		return refuse_strange(c, b->seq);
	if (b->rank >= k->conf->ranks) {
		snprintf(cause, sizeof(cause),
			 "no mover for source rank %u: it was started with "
			 "--ranks %u",
			 b->rank, (unsigned)k->conf->ranks);
		return refuse(c, b->seq, E_CONFIG, cause);
	}
	c->instance = b->instance;
	snprintf(c->run, sizeof(c->run), "%.*s", SLICE_ARG(b->run));
	return answer_borrow(c, &k->seat[b->rank], b->seq, b->ask);
}

static int take_back(struct conn *c)
{
	struct seat *s = c->seat;

	if (!s)
		return log_error(E_PROTO, "returned, but nothing was lent");
	c->seat = NULL;
	s->holder = NULL;
	if (mover_rest(s->mover) < 0)
		end_mover(s);
	else
		loop_arm(c->k->loop, &s->idle, c->k->conf->idle_ms);
	return 0;
}

static int take_message(struct conn *c, const struct msg *m)
{
	switch (m->type) {
	case M_borrow:
		return take_borrow(c, &m->borrow);
	case M_returned:
		return take_back(c);
	default:
		return log_error(E_PROTO, "a %s is nothing to ask weir-keeper",
				 msg_name(m->type));
	}
}

/* ---- connections ---- */

static void conn_ready(void *arg)
{
	struct conn *c = arg;
	struct keeper *k = c->k;
	int fd[FDPASS_MAX], rc = 0;
	size_t n;

	while (c->fd >= 0 && rc == 0) {
		struct msg m;

		rc = fdpass_recv(c->fd, &k->frame, fd, &n);
		if (rc == 0)
			return;
		while (rc > 0 && n > 0)
			close(fd[--n]);
		if (rc < 0)
			break;
		rc = msg_unpack(&m, &k->arena, buf_slice(&k->frame));
		if (rc == 0)
			rc = take_message(c, &m);
		else
			refuse_strange(c, 0);
	}
	if (c->fd >= 0)
		close_conn(c);
}

static struct conn *free_conn(struct keeper *k)
{
	for (size_t i = 0; i < KEEPER_CONNS_MAX; i++)
		if (k->conn[i].fd < 0)
			return &k->conn[i];
	return NULL;
}

static void add_conn(struct keeper *k, int fd, const struct fdpass_peer *peer)
{
	struct conn *c = free_conn(k);

	if (!c || (peer->uid != geteuid() && peer->uid != 0)) {
		log_warn("process %d of user %u is not let in: %s",
			 (int)peer->pid, (unsigned)peer->uid,
			 c ? "it is another user's" : "too many are there");
		close(fd);
		return;
	}
	*c = (struct conn){ .k = k, .fd = fd, .pid = peer->pid };
	loop_add_fd(k->loop, fd, conn_ready, c);
}

static void listener_ready(void *arg)
{
	struct keeper *k = arg;
	struct fdpass_peer peer;
	int fd;

	while ((fd = fdpass_accept(k->listener, &peer)) >= 0)
		add_conn(k, fd, &peer);
}

/* ---- life ---- */

static void idle_too_long(void *arg)
{
	struct seat *s = arg;

	log_info("source rank %d: no version for long: its groups end",
		 (int)(s - s->k->seat));
	end_mover(s);
}

static void on_signal(int signo, void *arg)
{
	struct keeper *k = arg;

	if (signo == SIGTERM || signo == SIGINT || signo == SIGHUP)
		loop_stop(k->loop, 0);
}

static int listen_here(struct keeper *k)
{
	k->listener = fdpass_listen(k->conf->listen, 0600);
	if (k->listener < 0)
		return k->listener;
	loop_add_fd(k->loop, k->listener, listener_ready, k);
	return 0;
}

static void say_ready(const struct keeper *k)
{
	log_info("listens at %s", k->conf->listen);
	notify_ready();
	if (opt_is_given(&keeper_spec, k->conf, "ready-fd"))
		io_write_full((int)k->conf->ready_fd, "\n", 1);
}

/* What is missing here is said now, not to the first who borrows. */
static int start(struct keeper *k)
{
	int rc = loop_signals(k->loop, on_signal, k);

	if (rc == 0)
		rc = mover_check(&mover_nccl, (uint32_t)k->conf->ranks - 1);
	return rc == 0 ? listen_here(k) : rc;
}

static void stop(struct keeper *k)
{
	for (size_t i = 0; i < KEEPER_CONNS_MAX; i++)
		if (k->conn[i].fd >= 0)
			close_conn(&k->conn[i]);
	for (size_t i = 0; i < k->conf->ranks; i++)
		end_mover(&k->seat[i]);
	if (k->listener >= 0) {
		loop_del_fd(k->loop, k->listener);
		close(k->listener);
		unlink(k->conf->listen);
	}
	free(k->seat);
	buf_release(&k->frame);
	buf_release(&k->out);
	msg_arena_release(&k->arena);
	loop_free(k->loop);
}

int keeper_run(const struct keeper_conf *conf)
{
	struct keeper k = { .conf = conf, .listener = -1 };
	int rc;

	if (!conf->listen)
		return log_error(E_USAGE, "--listen is missing");
	k.loop = loop_new();
	k.seat = xcalloc(conf->ranks, sizeof(*k.seat));
	for (size_t i = 0; i < conf->ranks; i++)
		k.seat[i] = (struct seat){ .k = &k,
					   .idle = { .fn = idle_too_long,
						     .arg = &k.seat[i] } };
	for (size_t i = 0; i < KEEPER_CONNS_MAX; i++)
		k.conn[i].fd = -1;
	rc = start(&k);
	if (rc == 0) {
		say_ready(&k);
		rc = loop_run(k.loop);
	}
	stop(&k);
	return rc;
}
