/*
 * common/http.h without a network: what a process asks is answered by the
 * server of an engine (server.c), after a while, wrongly or not at all.
 */
#include "server.h"

#include "common/err.h"
#include "common/http.h"
#include "common/loop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOP_NS (2 * SIM_MS) /* at most, to a server or back */

/* A request on its way, which may outlive who asked. */
struct call {
	struct http *h; /* while that process lives and waits */
	int pid;
	struct server_ask ask;
	struct server_answer answer;
	int64_t due;
};

struct http {
	struct loop *loop;
	struct file *file;
	int fd;
	uint32_t server;
	struct call *call;
	bool over; /* its answer is there */
	http_fn *fn;
	void *arg;
};

static void on_ready(void *arg)
{
	struct http *h = arg;
	struct call *k = h->call;
	struct server_answer a;

	h->file->ready = false;
	if (!k || !h->over)
		return;
	a = k->answer;
	h->call = NULL;
	sim_free(k);
	h->fn(h->arg,
	      &(struct http_reply){ .rc = a.rc,
				    .sent = a.sent,
				    .refused = a.refused,
				    .status = a.status,
				    .body = slice_of(a.body),
				    .why = a.rc ? "the simulator" : NULL });
}

struct http *http_new(struct loop *l, const char *url, const char *token)
{
	struct http *h = calloc(1, sizeof *h);

	(void)token;
	h->loop = l;
	h->server = server_number(url);
	h->file = file_new(F_EVENT);
	h->fd = fd_put(h->file);
	loop_add_fd(l, h->fd, on_ready, h);
	return h;
}

static struct proc *process(int pid)
{
	struct proc *p = sim.procs;

	while (p && p->pid != pid)
		p = p->next;
	return p;
}

/* Nobody waits any more: the answer is nobody's. */
static bool is_forgotten(const struct call *k)
{
	return !k->h || !process(k->pid);
}

static void arrive(void *arg)
{
	struct call *k = arg;

	if (is_forgotten(k)) {
		sim_free(k);
		return;
	}
	k->h->over = true;
	k->h->file->ready = true;
	proc_poke(process(k->pid));
}

static int64_t hop(void)
{
	return (int64_t)rng_below(&sim.rng, HOP_NS);
}

/* The server has done it, or not. */
static void answer(void *arg)
{
	struct call *k = arg;
	int64_t when = sim.now + hop();

	server_end(&k->ask, &k->answer);
	if (k->answer.rc == -E_TIMEOUT || when > k->due) {
		k->answer = (struct server_answer){ .rc = -E_TIMEOUT,
						    .sent = true };
		when = k->due > sim.now ? k->due : sim.now;
	}
	sim_at(when, arrive, k);
}

static void reach(void *arg)
{
	struct call *k = arg;
	int64_t takes = server_begin(&k->ask);

	sim_at(sim.now + takes, answer, k);
}

void http_call(struct http *h, const struct http_request *q, http_fn *fn,
	       void *arg)
{
	struct call *k = sim_alloc(sizeof *k);

	sim_point("http", h->server);
	h->fn = fn;
	h->arg = arg;
	h->call = k;
	h->over = false;
	k->h = h;
	k->pid = sim.p->pid;
	k->due = sim.now + q->ms * SIM_MS;
	k->ask.server = h->server;
	k->ask.pid = sim.p->pid;
	k->ask.posts = strcmp(q->method, "POST") == 0;
	snprintf(k->ask.path, sizeof k->ask.path, "%s", q->path);
	snprintf(k->ask.body, sizeof k->ask.body, "%.*s", (int)q->body.n,
		 q->body.n ? q->body.p : "");
	sim_at(sim.now + hop(), reach, k);
}

void http_cancel(struct http *h)
{
	if (!h->call)
		return;
	if (h->over)
		sim_free(h->call);
	else
		h->call->h = NULL;
	h->call = NULL;
	h->file->ready = false;
}

bool http_is_busy(const struct http *h)
{
	return h->call != NULL;
}

/* No group meets in a world. */
const char *http_here(const struct http *h)
{
	(void)h;
	return NULL;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_cancel(h);
	loop_del_fd(h->loop, h->fd);
	close(h->fd);
	free(h);
}

int http_token_read(const char *path, char **out)
{
	(void)path;
	(void)out;
	return -E_NOINPUT; /* no world has one */
}
