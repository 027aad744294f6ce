#include "pipes/engine_shell.h"
#include "common/err.h"
#include "common/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool shell_may_connect(const struct shell *sh, uid_t uid)
{
	if (uid == 0 || uid == geteuid())
		return true;
	for (unsigned i = 0; i < sh->conf->nallow; i++)
		if (sh->conf->allow[i] == uid)
			return true;
	return false;
}

/* Copies may still read through it: closed when they have ended. */
static void bury(struct shell *sh, struct source_fd *s)
{
	if (s->fd >= 0 && sh->m.busy == 0)
		close(s->fd);
	if (s->fd >= 0 && sh->m.busy > 0) {
		sh->grave = xreallocarray(sh->grave, sh->ngrave + 1,
					  sizeof *sh->grave);
		sh->grave[sh->ngrave++] = s->fd;
	}
	*s = (struct source_fd){ .fd = -1 };
}

static void close_conn(struct conn *c)
{
	struct shell *sh = c->sh;

	for (uint32_t i = 0; sh->source && i < sh->slot.nfiles; i++)
		if (sh->source[i].conn == c)
			bury(sh, &sh->source[i]);
	loop_del_fd(sh->loop, c->fd);
	close(c->fd);
	c->fd = -1;
}

static void take_packet(struct conn *c, const int *fds, size_t n)
{
	struct shell *sh = c->sh;
	struct asker from = { .conn = c };
	struct msg m;
	int rc = shell_unpack(sh, &m);

	if (rc >= 0 && m.type == M_attach) {
		sh->now_fds = fds;
		sh->now_nfds = n;
		from.seq = m.attach.seq;
		shell_request(sh, &from, &m);
		sh->now_fds = NULL;
		sh->now_nfds = 0;
		return;
	}
	shell_refuse(sh, &from, -E_PROTO, ID_NONE,
		     "only attach is understood here");
}

/* As fdpass_recv(), which logs what it does not take. */
static int receive(struct conn *c, int *fds, size_t *n)
{
	int was = log_quiet_thread(1);
	int rc = fdpass_recv(c->fd, &c->sh->frame, fds, n);

	log_quiet_thread(was);
	if (rc == -E_PROTO && log_few(&c->sh->strangers, LOG_WARN))
		log_warn("%s: closed: %s", c->sh->fd_path, log_cause());
	return rc;
}

static void conn_ready(void *arg)
{
	struct conn *c = arg;
	int fds[FDPASS_MAX];
	size_t n;
	int rc;

	while ((rc = receive(c, fds, &n)) > 0) {
		take_packet(c, fds, n);
		/* attach kept duplicates of those it wanted */
		while (n > 0)
			close(fds[--n]);
		if (c->fd < 0)
			return;
	}
	if (rc < 0)
		close_conn(c);
}

static struct conn *free_conn(struct shell *sh)
{
	for (size_t i = 0; i < SHELL_CONNS_MAX; i++)
		if (sh->conn[i].fd < 0)
			return &sh->conn[i];
	return NULL;
}

static void tell_stranger(struct shell *sh, const struct fdpass_peer *p,
			  bool is_full)
{
	if (!log_few(&sh->strangers, LOG_WARN))
		return;
	log_warn("%s: user %u, pid %d is %s", sh->fd_path, (unsigned)p->uid,
		 (int)p->pid,
		 is_full ? "one too many"
			 : "not allowed to connect; see --allow");
}

static void listener_ready(void *arg)
{
	struct shell *sh = arg;
	struct fdpass_peer peer;
	int fd;

	while ((fd = fdpass_accept(sh->listener, &peer)) >= 0) {
		struct conn *c = free_conn(sh);

		if (!c || !shell_may_connect(sh, peer.uid)) {
			tell_stranger(sh, &peer, c == NULL);
			close(fd);
			continue;
		}
		c->fd = fd;
		loop_add_fd(sh->loop, fd, conn_ready, c);
	}
}

int shell_fd_listen(struct shell *sh)
{
	mode_t mode = sh->conf->nallow ? 0666 : 0600;

	for (size_t i = 0; i < SHELL_CONNS_MAX; i++)
		sh->conn[i] = (struct conn){ .sh = sh, .fd = -1 };
	sh->listener = fdpass_listen(sh->fd_path, mode);
	if (sh->listener < 0)
		return sh->listener;
	loop_add_fd(sh->loop, sh->listener, listener_ready, sh);
	return 0;
}

void shell_fd_close(struct shell *sh)
{
	if (sh->listener < 0)
		return;
	for (size_t i = 0; i < SHELL_CONNS_MAX; i++)
		if (sh->conn[i].fd >= 0)
			close_conn(&sh->conn[i]);
	loop_del_fd(sh->loop, sh->listener);
	close(sh->listener);
	unlink(sh->fd_path);
	sh->listener = -1;
}

/* NULL, or what is wrong with a descriptor for f. */
static const char *wrong_with(int fd, const struct store_file *f)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &st) < 0)
		return "cannot be asked";
	if (!S_ISREG(st.st_mode))
		return "is not a regular file";
	if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH))
		return "is not open for reading only";
	if ((uint64_t)st.st_size != f->bytes)
		return "has another size than was begun";
	return NULL;
}

static int check_fds(const struct shell *sh, const struct m_attach *m,
		     char *cause, size_t size)
{
	if (m->count != sh->now_nfds || m->first > sh->slot.nfiles ||
	    m->count > sh->slot.nfiles - m->first) {
		snprintf(cause, size,
			 "attach of files %u to %u with %zu descriptors: the "
			 "version has %u files",
			 m->first, m->first + m->count, sh->now_nfds,
			 sh->slot.nfiles);
		return -E_PROTO;
	}
	for (uint32_t i = 0; i < m->count; i++) {
		const struct store_file *f = &sh->slot.file[m->first + i];
		const char *why = wrong_with(sh->now_fds[i], f);

		if (!why)
			continue;
		snprintf(cause, size, "attach: the descriptor for %s %s",
			 f->path, why);
		return -E_DATA;
	}
	return 0;
}

void shell_attach(struct shell *sh)
{
	const struct m_attach *m = &sh->now->attach;
	const struct asker *from = &sh->asker[EN_ATTACH];
	struct msg reply = { .type = M_attached };
	char cause[512];
	int rc = check_fds(sh, m, cause, sizeof cause);

	if (rc < 0) {
		shell_refuse(sh, from, rc, ID_NONE, cause);
		return;
	}
	for (uint32_t i = 0; sh->source && i < m->count; i++) {
		struct source_fd *s = &sh->source[m->first + i];

		bury(sh, s);
		s->fd = fcntl(sh->now_fds[i], F_DUPFD_CLOEXEC, 3);
		s->conn = from->conn;
		if (s->fd < 0) {
			shell_refuse(sh, from, -E_IO, ID_NONE,
				     "attach: too many open files");
			return;
		}
	}
	reply.attached.seq = from->seq;
	shell_answer(sh, from, &reply);
}

void shell_close_sources(struct shell *sh)
{
	for (uint32_t i = 0; sh->source && i < sh->slot.nfiles; i++)
		if (sh->source[i].fd >= 0)
			close(sh->source[i].fd);
	while (sh->ngrave > 0)
		close(sh->grave[--sh->ngrave]);
	free(sh->grave);
	free(sh->source);
	sh->grave = NULL;
	sh->source = NULL;
}
