#include "pipes/loan.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

struct answer {
	struct buf frame;
	struct msg_arena arena;
	struct msg m;
	int fd[FDPASS_MAX];
	size_t fds;
};

static void release(struct answer *a)
{
	while (a->fds > 0)
		close(a->fd[--a->fds]);
	buf_release(&a->frame);
	msg_arena_release(&a->arena);
}

static int wait_for(int conn, const char *path, struct answer *a)
{
	int64_t deadline = clock_mono_ms() + LOAN_MS;
	int rc;

	while ((rc = fdpass_recv(conn, &a->frame, a->fd, &a->fds)) == 0) {
		struct pollfd p = { .fd = conn, .events = POLLIN };
		int64_t left = deadline - clock_mono_ms();

		if (left <= 0)
			return log_error(E_TIMEOUT,
					 "weir-keeper at %s said nothing for "
					 "%d s",
					 path, LOAN_MS / 1000);
		poll(&p, 1, (int)left);
	}
	if (rc == -E_UNAVAIL)
		return log_error(E_UNAVAIL, "weir-keeper at %s has ended",
				 path);
	return rc < 0 ? rc : msg_unpack(&a->m, &a->arena, buf_slice(&a->frame));
}

static int ask(int conn, const char *path, const struct m_borrow *what,
	       struct answer *a)
{
	struct msg m = { .type = M_borrow, .borrow = *what };
	int rc;

	m.borrow.table = msg_table_hash();
	rc = msg_pack(&a->frame, &m);
	if (rc == 0)
		rc = fdpass_send(conn, buf_slice(&a->frame), NULL, 0);
	/* What it said before it closed tells more. */
	if (rc == 0 || rc == -E_UNAVAIL || rc == -E_AGAIN)
		rc = wait_for(conn, path, a);
	if (rc < 0)
		return rc;
	if (a->m.type == M_refused) {
		char cause[512];

		snprintf(cause, sizeof(cause), "%.*s",
			 SLICE_ARG(a->m.refused.cause));
		return log_error(a->m.refused.code ? a->m.refused.code
						   : E_PROTO,
				 "weir-keeper at %s: %s", path, cause);
	}
	if (a->m.type != M_lent || a->fds != !what->ask)
		return log_error(E_PROTO, "weir-keeper at %s sent a %s", path,
				 msg_name(a->m.type));
	return 0;
}

int loan_open(const char *path, const struct m_borrow *what, struct loan *out)
{
	struct answer a = { 0 };
	int conn = fdpass_dial(path), rc;

	if (conn < 0)
		return conn;
	rc = ask(conn, path, what, &a);
	if (rc < 0) {
		close(conn);
	} else {
		*out = (struct loan){ .conn = conn,
				      .sock = a.fds ? a.fd[0] : -1,
				      .keep_ms = a.m.lent.keep_ms };
		a.fds = 0;
	}
	release(&a);
	return rc;
}

int loan_check(const char *path, const struct m_borrow *what)
{
	struct m_borrow question = *what;
	struct loan none;
	int rc;

	question.ask = true;
	rc = loan_open(path, &question, &none);
	if (rc == 0)
		close(none.conn);
	return rc;
}
