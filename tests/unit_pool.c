#include "tests/tap.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/pool.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

#define JOBS 20000
#define ROOM 64
#define PATIENCE_MS 30000

struct sum {
	struct job job; /* first */
	uint64_t in, out;
	char name[16];
	bool signals_blocked;
	sem_t *go;
};

static void square(struct job *job)
{
	struct sum *s = (struct sum *)job;

	s->out = s->in * s->in;
}

static void look(struct job *job)
{
	struct sum *s = (struct sum *)job;
	sigset_t mask;

	pthread_getname_np(pthread_self(), s->name, sizeof s->name);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	s->signals_blocked = sigismember(&mask, SIGTERM) == 1 &&
			     sigismember(&mask, SIGINT) == 1 &&
			     sigismember(&mask, SIGBUS) == 0;
}

static void hold(struct job *job)
{
	struct sum *s = (struct sum *)job;

	while (sem_wait(s->go) < 0)
		continue;
}

static struct sum *next(struct pool *p)
{
	struct pollfd fd = { .fd = pool_fd(p), .events = POLLIN };

	if (poll(&fd, 1, PATIENCE_MS) != 1)
		return NULL;
	return (struct sum *)pool_next(p);
}

static void test_stress(unsigned threads)
{
	struct pool *p = pool_new("stress", threads, ROOM);
	struct sum *s = xcalloc(JOBS, sizeof *s);
	size_t sent = 0, done = 0, right = 0;
	struct sum *d;

	while (done < JOBS) {
		while (sent < JOBS) {
			s[sent].in = sent;
			s[sent].job.fn = square;
			if (pool_submit_take(p, &s[sent].job) < 0)
				break;
			sent++;
		}
		d = next(p);
		if (!d)
			break;
		right += d->job.has_run && d->out == d->in * d->in;
		done++;
	}
	eq_u64(right, JOBS, "every job, once");
	ok(!pool_next(p), "and no more");
	pool_free(p);
	free(s);
}

static void test_thread(void)
{
	struct pool *p = pool_new("a-name-too-long-to-keep", 1, 1);
	struct sum s = { .job.fn = look };

	eq_i64(pool_submit_take(p, &s.job), 0, "submit");
	ok(next(p) == &s, "the same job comes back");
	eq_str(s.name, "a-name-too-long", "threads are named");
	ok(s.signals_blocked, "signals are the owner's, faults are not");
	pool_free(p);
}

static void test_full(void)
{
	struct pool *p = pool_new("full", 1, 2);
	struct pollfd fd = { .fd = pool_fd(p), .events = POLLIN };
	struct sum s[3] = { 0 };
	sem_t go;

	sem_init(&go, 0, 0);
	for (size_t i = 0; i < 3; i++) {
		s[i].job.fn = hold;
		s[i].go = &go;
	}
	pool_submit_take(p, &s[0].job);
	pool_submit_take(p, &s[1].job);
	eq_i64(pool_submit_take(p, &s[2].job), -E_AGAIN, "full");
	eq_i64(poll(&fd, 1, 0), 0, "nothing has finished");
	sem_post(&go);
	ok(next(p) == &s[0], "first in, first started");
	eq_i64(poll(&fd, 1, 0), 0, "the flag is down again");
	eq_i64(pool_submit_take(p, &s[2].job), 0, "room again");
	sem_post(&go);
	sem_post(&go);
	ok(next(p) == &s[1] && next(p) == &s[2], "in order with one thread");
	pool_free(p);
	sem_destroy(&go);
}

static void *release(void *arg)
{
	for (int i = 0; i < 3; i++)
		sem_post(arg);
	return NULL;
}

static void hold_and_say(struct job *job)
{
	hold(job);
	((struct sum *)job)->out = 1;
}

/* Stopped while one runs: it ends, the others may or may not have begun. */
static void test_stop(void)
{
	struct pool *p = pool_new("stop", 1, 8);
	struct sum s[3] = { 0 };
	size_t back = 0;
	bool honest = true;
	struct job *j;
	pthread_t t;
	sem_t go;

	sem_init(&go, 0, 0);
	for (size_t i = 0; i < 3; i++) {
		s[i].job.fn = hold_and_say;
		s[i].go = &go;
		pool_submit_take(p, &s[i].job);
	}
	pthread_create(&t, NULL, release, &go);
	pool_stop(p);
	pthread_join(t, NULL);
	for (; (j = pool_next(p)); back++)
		honest = honest && j->has_run == ((struct sum *)j)->out;
	eq_u64(back, 3, "all come back");
	ok(honest, "and say whether they ran");
	pool_stop(p);
	pool_free(p);
	sem_destroy(&go);
}

static void test_stop_before_start(void)
{
	struct pool *p = pool_new("idle", 0, 2);
	struct sum s[2] = { { .job.fn = square }, { .job.fn = square } };

	pool_submit_take(p, &s[0].job);
	pool_submit_take(p, &s[1].job);
	ok(!pool_next(p), "nobody to run them");
	pool_stop(p);
	ok(next(p) == &s[0] && next(p) == &s[1], "they come back in order");
	ok(!s[0].job.has_run && !s[1].job.has_run, "not run");
	pool_free(p);
	pool_free(NULL);
}

int main(void)
{
	test_thread();
	test_full();
	test_stress(1);
	test_stress(4);
	test_stop();
	test_stop_before_start();
	return tap_done();
}
