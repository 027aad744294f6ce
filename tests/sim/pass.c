/* common/fdpass.h without a kernel: packets between two processes, at once
 * and in order, with the open files that ride along. */
#include "sim.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define QUEUE_MAX 64 /* packets that are not read */

struct packet {
	struct packet *next;
	struct file *file[FDPASS_MAX];
	size_t files, n;
	char p[];
};

struct end {
	struct end *peer; /* NULL: closed */
	struct file *file;
	struct fdpass_peer who;
	struct packet *in;
	size_t waiting;
};

struct acceptor {
	struct node *node;
	struct file *file;
	struct end *waiting[FDPASS_BACKLOG];
	size_t n;
};

static struct end *pair(struct proc *dialler)
{
	struct end *a = sim_alloc(sizeof *a), *b = sim_alloc(sizeof *b);

	a->peer = b;
	b->peer = a;
	b->who = (struct fdpass_peer){ dialler->pid, geteuid(), 0 };
	return a;
}

static struct acceptor *acceptor_at(const char *path)
{
	struct node *n = disk_find(disk_root(), path, true);

	return n && n->kind == N_SOCK ? n->listener : NULL;
}

static struct file *file_of(struct end *e)
{
	e->file = file_new(F_PASS);
	e->file->obj = e;
	return e->file;
}

int fdpass_dial(const char *path)
{
	struct acceptor *l;
	struct end *e;

	sim_point("connect", 0);
	l = acceptor_at(path);
	if (!l || l->n == FDPASS_BACKLOG)
		return log_error(E_UNAVAIL, "connect to %s: %s", path,
				 strerror(ECONNREFUSED));
	e = pair(sim.p);
	l->waiting[l->n++] = e->peer;
	proc_poke(l->file->owner);
	return fd_put(file_of(e));
}

int fdpass_listen(const char *path, mode_t mode)
{
	char name[256];
	struct node *dir = disk_parent(disk_root(), path, name);
	struct acceptor *l;

	sim_point("listen", 1);
	if (acceptor_at(path))
		return log_error(E_AGAIN, "%s: somebody listens there", path);
	if (disk_lookup(dir, name))
		disk_unlink(dir, name);
	l = sim_alloc(sizeof *l);
	l->node = disk_make(N_SOCK, mode);
	l->node->listener = l;
	disk_link(dir, name, l->node);
	l->file = file_new(F_ACCEPT);
	l->file->obj = l;
	return fd_put(l->file);
}

int fdpass_accept(int listener, struct fdpass_peer *peer)
{
	struct acceptor *l = fd_get(listener)->obj;
	struct end *e;

	if (l->n == 0)
		return -E_AGAIN;
	e = l->waiting[0];
	memmove(l->waiting, l->waiting + 1, --l->n * sizeof l->waiting[0]);
	*peer = e->who;
	return fd_put(file_of(e));
}

int fdpass_send(int fd, struct slice frame, const int *fds, size_t n)
{
	struct end *e = fd_get(fd)->obj, *to;
	struct packet *p, **at;

	sim_point("sendmsg", n);
	to = e->peer;
	if (!to)
		return -E_UNAVAIL;
	if (to->waiting == QUEUE_MAX)
		return -E_AGAIN;
	p = sim_alloc(sizeof *p + frame.n);
	memcpy(p->p, frame.p, frame.n);
	p->n = frame.n;
	for (; p->files < n; p->files++) {
		p->file[p->files] = fd_get(fds[p->files]);
		p->file[p->files]->refs++;
	}
	for (at = &to->in; *at; at = &(*at)->next)
		;
	*at = p;
	to->waiting++;
	if (to->file)
		proc_poke(to->file->owner);
	return 0;
}

static void packet_free(struct packet *p)
{
	for (size_t i = 0; i < p->files; i++)
		if (p->file[i])
			file_drop(p->file[i]);
	sim_free(p);
}

int fdpass_recv(int fd, struct buf *out, int fds[FDPASS_MAX], size_t *n)
{
	struct end *e = fd_get(fd)->obj;
	struct packet *p = e->in;

	buf_clear(out);
	sim_point("recvmsg", p != NULL);
	if (!p)
		return e->peer ? 0 : -E_UNAVAIL;
	e->in = p->next;
	e->waiting--;
	buf_add(out, p->p, p->n);
	*n = p->files;
	for (size_t i = 0; i < p->files; i++) {
		fds[i] = fd_put(p->file[i]);
		p->file[i] = NULL;
	}
	packet_free(p);
	return 1;
}

static void end_free(struct end *e)
{
	if (e->peer) {
		e->peer->peer = NULL;
		if (e->peer->file)
			proc_poke(e->peer->file->owner);
	}
	while (e->in) {
		struct packet *p = e->in;

		e->in = p->next;
		packet_free(p);
	}
	sim_free(e);
}

void pass_close(struct file *f)
{
	struct acceptor *l = f->obj;

	if (f->kind == F_PASS) {
		end_free(f->obj);
		return;
	}
	if (l->node->listener == l)
		l->node->listener = NULL;
	for (size_t i = 0; i < l->n; i++)
		end_free(l->waiting[i]);
	sim_free(l);
}

bool pass_is_readable(const struct file *f)
{
	const struct end *e = f->obj;
	const struct acceptor *l = f->obj;

	if (f->kind == F_ACCEPT)
		return l->n > 0;
	return e->in || !e->peer;
}
