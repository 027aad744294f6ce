#include "pool.h"
#include "buf.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fifo {
	struct job *first, **end;
};

struct pool {
	pthread_mutex_t lock; /* guards all below down to stopping */
	pthread_cond_t work;
	struct fifo todo, done;
	size_t owned;
	bool stopping;
	size_t max_jobs;
	int fd; /* readable while done is not empty */
	char name[16];
	unsigned threads;
	pthread_t thread[];
};

static void fifo_init(struct fifo *f)
{
	f->first = NULL;
	f->end = &f->first;
}

static void fifo_put(struct fifo *f, struct job *job)
{
	job->next = NULL;
	*f->end = job;
	f->end = &job->next;
}

static struct job *fifo_take(struct fifo *f)
{
	struct job *job = f->first;

	if (!job)
		return NULL;
	f->first = job->next;
	if (!f->first)
		f->end = &f->first;
	return job;
}

/* Locked.  The counter cannot overflow: one per job that is owned. */
static void finish(struct pool *p, struct job *job)
{
	uint64_t one = 1;

	fifo_put(&p->done, job);
	BUG_ON(write(p->fd, &one, sizeof one) != sizeof one);
}

static struct job *wait_for_job(struct pool *p)
{
	while (!p->stopping && !p->todo.first)
		pthread_cond_wait(&p->work, &p->lock);
	return p->stopping ? NULL : fifo_take(&p->todo);
}

static void *worker(void *arg)
{
	struct pool *p = arg;
	struct job *job;

	pthread_setname_np(pthread_self(), p->name);
	pthread_mutex_lock(&p->lock);
	while ((job = wait_for_job(p))) {
		pthread_mutex_unlock(&p->lock);
		job->fn(job);
		pthread_mutex_lock(&p->lock);
		job->has_run = true;
		finish(p, job);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Returns an errno value.  Threads inherit the mask of their maker. */
static int start_one(struct pool *p)
{
	static const int fault[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL };
	sigset_t mask, before;
	int e;

	sigfillset(&mask);
	for (size_t i = 0; i < COUNT(fault); i++)
		sigdelset(&mask, fault[i]);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	e = pthread_create(&p->thread[p->threads], NULL, worker, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e == 0)
		p->threads++;
	return e;
}

struct pool *pool_new(const char *name, unsigned threads, size_t max_jobs)
{
	struct pool *p = xcalloc(1, sizeof *p + threads * sizeof p->thread[0]);

	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	fifo_init(&p->todo);
	fifo_init(&p->done);
	p->max_jobs = max_jobs;
	snprintf(p->name, sizeof p->name, "%s", name);
	p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->fd < 0) {
		log_errno(E_IO, "eventfd of pool %s", name);
		goto fail;
	}
	while (p->threads < threads) {
		errno = start_one(p);
		if (errno != 0) {
			log_errno(E_IO, "start threads of pool %s", name);
			goto fail;
		}
	}
	return p;
fail:
	pool_free(p);
	return NULL;
}

int pool_submit_take(struct pool *p, struct job *job)
{
	int rc = -E_AGAIN;

	pthread_mutex_lock(&p->lock);
	BUG_ON(p->stopping);
	if (p->owned < p->max_jobs) {
		p->owned++;
		job->has_run = false;
		fifo_put(&p->todo, job);
		pthread_cond_signal(&p->work);
		rc = 0;
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int pool_fd(const struct pool *p)
{
	return p->fd;
}

struct job *pool_next(struct pool *p)
{
	struct job *job;
	uint64_t n;

	pthread_mutex_lock(&p->lock);
	job = fifo_take(&p->done);
	p->owned -= job != NULL;
	/* Empty: lower the flag, under the lock that raises it. */
	if (!p->done.first && read(p->fd, &n, sizeof n) < 0)
		BUG_ON(errno != EAGAIN);
	pthread_mutex_unlock(&p->lock);
	return job;
}

void pool_stop(struct pool *p)
{
	struct job *job;

	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	while (p->threads > 0)
		pthread_join(p->thread[--p->threads], NULL);
	pthread_mutex_lock(&p->lock);
	while ((job = fifo_take(&p->todo)))
		finish(p, job);
	pthread_mutex_unlock(&p->lock);
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	if (p->fd >= 0) {
		pool_stop(p);
		close(p->fd);
	}
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
