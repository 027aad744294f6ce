#include "pipes/crew.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/log.h"
#include "common/pool.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>

struct seat {
	struct job job; /* first: it is cast */
	const struct crew *crew;
	void *mem;
	uint32_t i;
	int rc;
	char *cause; /* of a failure */
	bool is_taken;
};

struct run {
	const struct crew *crew;
	struct pool *pool;
	struct seat *seat;
	uint32_t nseats, n;
	uint32_t next; /* to be submitted */
	uint32_t busy;
	int rc;
};

static unsigned cores(void)
{
	cpu_set_t set;
	int n = 1;

	if (sched_getaffinity(0, sizeof set, &set) == 0)
		n = CPU_COUNT(&set);
	return n < 1 ? 1 : (unsigned)n;
}

static void work(struct job *job)
{
	struct seat *s = (struct seat *)job;

	log_quiet_thread(1);
	s->rc = s->crew->work(s->crew->ctx, s->i, s->mem);
	if (s->rc < 0)
		s->cause = xstrdup(log_cause());
}

/* For the next job; NULL: all are taken, or none may begin now. */
static struct seat *free_seat(struct run *r)
{
	if (r->busy > 0 && r->crew->is_full && r->crew->is_full(r->crew->ctx))
		return NULL;
	for (uint32_t k = 0; k < r->nseats; k++)
		if (!r->seat[k].is_taken)
			return &r->seat[k];
	return NULL;
}

static void submit(struct run *r)
{
	struct seat *s;

	while (r->rc == 0 && r->next < r->n && (s = free_seat(r))) {
		if (!s->mem)
			s->mem = xcalloc(1, r->crew->seat_size);
		s->i = r->next++;
		s->is_taken = true;
		r->busy++;
		BUG_ON(pool_submit_take(r->pool, &s->job) < 0);
	}
}

static void finish(struct run *r, struct seat *s)
{
	if (r->rc == 0 && s->rc < 0)
		r->rc = log_error(-s->rc, "%s", s->cause);
	if (r->rc == 0 && r->crew->done)
		r->rc = r->crew->done(r->crew->ctx, s->i, s->mem);
	free(s->cause);
	s->cause = NULL;
	s->is_taken = false;
}

static void take_results(struct run *r)
{
	struct job *job;

	while ((job = pool_next(r->pool))) {
		r->busy--;
		finish(r, (struct seat *)job);
	}
}

static int wait_for_one(const struct run *r)
{
	struct pollfd p = { pool_fd(r->pool), POLLIN, 0 };

	while (poll(&p, 1, -1) < 0)
		if (errno != EINTR)
			return log_errno(E_IO, "wait for threads");
	return 0;
}

static void run(struct run *r)
{
	for (submit(r); r->busy > 0; submit(r)) {
		int rc = wait_for_one(r);

		if (rc < 0 && r->rc == 0)
			r->rc = rc;
		take_results(r);
	}
}

int crew_run(const struct crew *c, uint32_t n)
{
	unsigned threads = c->threads ? c->threads : cores();
	struct run r = { .crew = c, .n = n };

	if (n == 0)
		return 0;
	if (threads > n)
		threads = n;
	if (threads > CREW_THREADS_MAX)
		threads = CREW_THREADS_MAX;
	r.nseats = threads * CREW_SEATS;
	r.pool = pool_new("weir-crew", threads, r.nseats);
	if (!r.pool)
		return -E_IO;
	r.seat = xcalloc(r.nseats, sizeof *r.seat);
	for (uint32_t k = 0; k < r.nseats; k++) {
		r.seat[k].crew = c;
		r.seat[k].job.fn = work;
	}
	run(&r);
	pool_free(r.pool);
	for (uint32_t k = 0; k < r.nseats; k++) {
		if (r.seat[k].mem && c->leave)
			c->leave(r.seat[k].mem);
		free(r.seat[k].mem);
	}
	free(r.seat);
	return r.rc;
}
