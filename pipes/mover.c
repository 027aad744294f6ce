#include "pipes/mover.h"

#include "common/child.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/proc.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct packet {
	struct packet *next;
	struct buf frame;
	int *fd;
	size_t n;
};

const struct mover_kind mover_nccl = { "weir-move-nccl", "transport nccl" };
const struct mover_kind mover_ipc = { "weir-move-ipc", "transport cuda-ipc" };
const struct mover_kind mover_slot = { "weir-move-slot", "--device" };
const struct mover_kind mover_source = { "weir-move-source", "--source gpu" };

struct mover {
	struct loop *loop;
	const struct mover_kind *kind;
	const struct mover_ops *ops;
	void *arg;
	struct child child;
	int sock, pidfd, out_fd; /* the latter two as the loop knows them */
	int keeper;		 /* the loan; -1: it is our child */
	struct packet *first, **last;
	size_t waiting; /* bytes */
	struct buf in, out;
	struct msg_arena arena;
	bool is_calling, is_over; /* in a callback; freed in it */
};

/* ---- its end ---- */

static void unwatch(struct mover *m)
{
	loop_del_fd(m->loop, m->sock);
	loop_del_fd(m->loop, m->pidfd);
	loop_del_fd(m->loop, m->out_fd);
	loop_del_fd(m->loop, m->keeper);
}

static void release(struct mover *m);

static void end_callback(struct mover *m)
{
	m->is_calling = false;
	if (m->is_over)
		release(m);
}

/* "PATH: error while loading shared libraries: NAME: ...", and 127. */
static int explain(const struct mover_kind *kind, const struct child *c)
{
	static const char loading[] = "shared libraries: ";
	const char *at = strstr(c->line, loading);

	if (!at)
		return -E_UNAVAIL; /* and child_step() has said it */
	at += strlen(loading);
	return log_error(E_UNAVAIL, "%s: unavailable, %.*s not found",
			 kind->what, (int)strcspn(at, ":"), at);
}

static void tell_end(struct mover *m, int rc)
{
	unwatch(m);
	m->is_calling = true;
	m->ops->ended(m->arg, rc);
	end_callback(m);
}

static void child_ready(void *arg)
{
	struct mover *m = arg;
	int was = log_quiet_thread(1);
	int rc = child_step(&m->child);

	log_quiet_thread(was);
	/* Closed there: the number may be another's by now. */
	if (m->child.out_fd < 0 && m->out_fd >= 0) {
		loop_del_fd(m->loop, m->out_fd);
		m->out_fd = -1;
	}
	if (rc == 0)
		return;
	if (rc > 0)
		rc = log_error(E_UNAVAIL, "%s ended", m->kind->program);
	else
		rc = explain(m->kind, &m->child);
	tell_end(m, rc);
}

/* Its last word, or that there is none. */
static int why_it_ended(const struct msg *m)
{
	char cause[512];

	if (m->type != M_refused || m->refused.code == 0)
		return log_error(E_UNAVAIL, "weir-keeper has ended");
	snprintf(cause, sizeof(cause), "%.*s", SLICE_ARG(m->refused.cause));
	return log_error(m->refused.code, "%s", cause);
}

/* Nothing comes from there but the end of the loan. */
static void keeper_ready(void *arg)
{
	struct mover *m = arg;
	int fds[FDPASS_MAX], was = log_quiet_thread(1), rc;
	struct msg msg = { .type = MSG_NONE };
	size_t n = 0;

	rc = fdpass_recv(m->keeper, &m->in, fds, &n);
	while (n > 0)
		close(fds[--n]);
	if (rc > 0)
		msg_unpack(&msg, &m->arena, buf_slice(&m->in));
	if (rc != 0)
		rc = why_it_ended(&msg);
	log_quiet_thread(was);
	if (rc < 0)
		tell_end(m, rc);
}

/* ---- messages ---- */

static void take(struct mover *m)
{
	struct msg msg;

	if (!m->is_over && msg_unpack(&msg, &m->arena, buf_slice(&m->in)) == 0)
		m->ops->msg(m->arg, &msg);
}

/* Its end is told by the process. */
static void sock_ready(void *arg)
{
	struct mover *m = arg;
	int fds[FDPASS_MAX], rc = 0;
	size_t n;

	m->is_calling = true;
	while (!m->is_over &&
	       (rc = fdpass_recv(m->sock, &m->in, fds, &n)) > 0) {
		while (n > 0)
			close(fds[--n]);
		take(m);
	}
	if (!m->is_over && rc < 0)
		loop_del_fd(m->loop, m->sock);
	end_callback(m);
}

void mover_look(struct mover *m)
{
	BUG_ON(m->is_calling);
	sock_ready(m);
}

static void drop_first(struct mover *m)
{
	struct packet *p = m->first;

	m->first = p->next;
	if (!m->first)
		m->last = &m->first;
	m->waiting -= p->frame.n;
	buf_release(&p->frame);
	free(p->fd);
	free(p);
}

static void flush(void *arg)
{
	struct mover *m = arg;

	while (m->first) {
		struct packet *p = m->first;

		if (fdpass_send(m->sock, buf_slice(&p->frame), p->fd, p->n) ==
		    -E_AGAIN)
			break;
		drop_first(m);
	}
	loop_want_out(m->loop, m->sock, m->first != NULL, flush);
}

static void keep(struct mover *m, const int *fds, size_t n)
{
	struct packet *p = xcalloc(1, sizeof(*p));

	buf_add(&p->frame, m->out.p, m->out.n);
	p->fd = xcalloc(n, sizeof(*p->fd));
	for (size_t i = 0; i < n; i++)
		p->fd[i] = fds[i];
	p->n = n;
	*m->last = p;
	m->last = &p->next;
	m->waiting += p->frame.n;
	loop_want_out(m->loop, m->sock, true, flush);
}

int mover_send(struct mover *m, const struct msg *msg, const int *fds, size_t n)
{
	int rc;

	buf_clear(&m->out);
	rc = msg_pack(&m->out, msg);
	if (rc < 0)
		return rc;
	if (m->waiting > MOVER_WAITING_MAX)
		return log_error(E_AGAIN, "%s does not read what it is sent",
				 m->kind->program);
	rc = m->first ? -E_AGAIN
		      : fdpass_send(m->sock, buf_slice(&m->out), fds, n);
	if (rc == -E_AGAIN)
		keep(m, fds, n);
	/* That it is gone will be told. */
	return rc == -E_AGAIN || rc == -E_UNAVAIL ? 0 : rc;
}

/* ---- life ---- */

static char *find_program(const char *name)
{
	const char *dir = getenv("WEIR_LIBEXEC");
	char *path;

	if (dir)
		return xasprintf("%s/%s", dir, name);
	path = proc_sibling(name);
	if (strchr(path, '/'))
		return path;
	free(path);
	return xasprintf(PKGLIBEXECDIR "/%s", name);
}

/* how: its arguments, for a shell; file: what is "$WEIR_FILE" there.  fd: what
 * it has besides; -1: nothing. */
static int spawn_path(const struct mover_kind *kind, struct child *c,
		      const char *path, const char *how, const char *file,
		      int fd)
{
	char *mover = xasprintf("WEIR_MOVER=%s", path);
	char *named = xasprintf("WEIR_FILE=%s", file);
	const char *const envs[] = { mover, named, NULL };
	char command[64];
	int rc;

	snprintf(command, sizeof(command), "exec \"$WEIR_MOVER\" %s", how);
	rc = child_start_with(c, kind->program, command, envs, fd);
	free(mover);
	free(named);
	return rc;
}

static int spawn(const struct mover_kind *kind, struct child *c,
		 const char *how, const char *file, int fd)
{
	char *path = find_program(kind->program);
	int rc = 0;

	if (access(path, X_OK) < 0)
		rc = log_error(E_UNAVAIL,
			       "%s: unavailable, %s is not installed: this "
			       "build has it not",
			       kind->what, path);
	if (rc == 0)
		rc = spawn_path(kind, c, path, how, file, fd);
	free(path);
	return rc;
}

static int open_mover(struct mover *m)
{
	char number[16];
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0, pair) < 0)
		return log_errno(E_IO, "a socket pair");
	m->sock = pair[0];
	snprintf(number, sizeof(number), "%d", pair[1]);
	rc = spawn(m->kind, &m->child, number, "", pair[1]);
	close(pair[1]);
	if (rc < 0)
		return rc;
	m->pidfd = m->child.pidfd;
	m->out_fd = m->child.out_fd;
	loop_add_fd(m->loop, m->sock, sock_ready, m);
	loop_add_fd(m->loop, m->pidfd, child_ready, m);
	loop_add_fd(m->loop, m->out_fd, child_ready, m);
	return 0;
}

static struct mover *new_mover(struct loop *l, const struct mover_kind *kind,
			       const struct mover_ops *ops, void *arg)
{
	struct mover *m = xcalloc(1, sizeof(*m));

	*m = (struct mover){ .loop = l,
			     .kind = kind,
			     .ops = ops,
			     .arg = arg,
			     .child = CHILD_NONE,
			     .sock = -1,
			     .pidfd = -1,
			     .out_fd = -1,
			     .keeper = -1 };
	m->last = &m->first;
	return m;
}

int mover_start(struct mover **out, struct loop *l,
		const struct mover_kind *kind, const struct mover_ops *ops,
		void *arg)
{
	struct mover *m = new_mover(l, kind, ops, arg);
	int rc = open_mover(m);

	if (rc < 0)
		mover_free(m);
	else
		*out = m;
	return rc;
}

void mover_take_lent(struct mover **out, struct loop *l,
		     const struct mover_kind *kind, const struct loan *loan,
		     const struct mover_ops *ops, void *arg)
{
	struct mover *m = new_mover(l, kind, ops, arg);

	m->sock = loan->sock;
	m->keeper = loan->conn;
	loop_add_fd(l, m->sock, sock_ready, m);
	loop_add_fd(l, m->keeper, keeper_ready, m);
	*out = m;
}

void mover_return(struct mover *m)
{
	struct msg msg = { .type = M_returned };

	buf_clear(&m->out);
	if (!m->first && msg_pack(&m->out, &msg) == 0)
		fdpass_send(m->keeper, buf_slice(&m->out), NULL, 0);
	mover_free(m);
}

int mover_lend(struct mover *m)
{
	loop_del_fd(m->loop, m->sock);
	return m->sock;
}

/* What comes before it was for whoever had it. */
static int wait_for_rested(struct mover *m, struct buf *in, struct msg *msg)
{
	int64_t deadline = clock_mono_ms() + MOVER_REST_MS;
	int fds[FDPASS_MAX], rc;
	size_t n;

	do {
		struct pollfd p = { .fd = m->sock, .events = POLLIN };
		int64_t left = deadline - clock_mono_ms();

		if (left <= 0)
			return log_error(E_TIMEOUT, "%s does not come to rest",
					 m->kind->program);
		poll(&p, 1, (int)left);
		rc = fdpass_recv(m->sock, in, fds, &n);
		while (rc > 0 && n > 0)
			close(fds[--n]);
		if (rc > 0)
			rc = msg_unpack(msg, &m->arena, buf_slice(in));
		else if (rc == 0)
			msg->type = MSG_NONE;
	} while (rc == 0 && msg->type != M_rested && msg->type != M_refused);
	return rc;
}

int mover_rest(struct mover *m)
{
	struct msg msg = { .type = M_rest };
	int was = log_quiet_thread(1);
	struct buf in = { 0 };
	int rc;

	buf_clear(&m->out);
	rc = msg_pack(&m->out, &msg);
	if (rc == 0)
		rc = m->first ? -E_AGAIN
			      : fdpass_send(m->sock, buf_slice(&m->out), NULL,
					    0);
	if (rc == 0)
		rc = wait_for_rested(m, &in, &msg);
	if (rc == 0 && msg.type == M_refused)
		rc = log_error(E_AGAIN, "%s has something under way",
			       m->kind->program);
	buf_release(&in);
	log_quiet_thread(was);
	return rc;
}

static int wait_for_check(const struct mover_kind *kind, struct child *c)
{
	int64_t deadline = clock_mono_ms() + MOVER_CHECK_MS;
	int rc = 0;

	while (rc == 0) {
		struct pollfd p[] = { { .fd = c->pidfd, .events = POLLIN },
				      { .fd = c->out_fd, .events = POLLIN } };
		int64_t left = deadline - clock_mono_ms();

		if (left <= 0)
			return log_error(E_UNAVAIL,
					 "%s: unavailable, %s says nothing for "
					 "%d s",
					 kind->what, kind->program,
					 MOVER_CHECK_MS / 1000);
		poll(p, 2, (int)left);
		rc = child_step(c);
	}
	return rc > 0 ? 0 : explain(kind, c);
}

int mover_check(const struct mover_kind *kind, uint32_t device)
{
	struct child c = CHILD_NONE;
	char how[32];
	int rc;

	snprintf(how, sizeof(how), "check %u", device);
	rc = spawn(kind, &c, how, "", -1);
	if (rc == 0)
		rc = wait_for_check(kind, &c);
	child_kill(&c);
	return rc;
}

/* Its own word for it, without its name and pid. */
static int how_it_ended(const struct mover_kind *kind, const struct child *c)
{
	static const char error[] = "] error ";
	const char *at = strstr(c->line, error);

	if (strstr(c->line, "shared libraries: "))
		return explain(kind, c);
	return log_error(err_of_exit_code(c->code), "%s: %s", kind->what,
			 at ? at + strlen(error) : log_cause());
}

static int wait_for_job(const struct mover_kind *kind, struct child *c,
			bool (*is_over)(const void *arg), const void *arg)
{
	int rc = 0, was = log_quiet_thread(1);

	while (rc == 0) {
		struct pollfd p[] = { { .fd = c->pidfd, .events = POLLIN },
				      { .fd = c->out_fd, .events = POLLIN } };

		poll(p, 2, MOVER_LOOK_MS);
		rc = child_step(c);
		if (rc == 0 && is_over(arg))
			rc = -E_AGAIN;
	}
	log_quiet_thread(was);
	return rc == -E_IO ? how_it_ended(kind, c) : rc > 0 ? 0 : rc;
}

int mover_run(const struct mover_kind *kind, int fd, const char *file,
	      bool (*is_over)(const void *arg), const void *arg)
{
	struct child c = CHILD_NONE;
	char how[32];
	int rc;

	snprintf(how, sizeof(how), "%d \"$WEIR_FILE\"", fd);
	rc = spawn(kind, &c, how, file, fd);
	if (rc == 0)
		rc = wait_for_job(kind, &c, is_over, arg);
	child_kill(&c);
	return rc;
}

/* It ends when it reads the end of its socket, unless it hangs. */
static void wait_for_end(struct mover *m)
{
	struct pollfd p = { .fd = m->child.pidfd, .events = POLLIN };

	if (m->child.pid > 0)
		poll(&p, 1, MOVER_END_MS);
	child_kill(&m->child);
}

static void release(struct mover *m)
{
	while (m->first)
		drop_first(m);
	buf_release(&m->in);
	buf_release(&m->out);
	msg_arena_release(&m->arena);
	free(m);
}

void mover_free(struct mover *m)
{
	if (!m)
		return;
	unwatch(m);
	if (m->sock >= 0)
		close(m->sock);
	if (m->keeper >= 0)
		close(m->keeper);
	wait_for_end(m);
	m->is_over = true;
	if (!m->is_calling)
		release(m);
}
