/* common/pool.h without threads: each job is a task of the process, and may
 * take any time. */
#include "world.h"

#include "common/err.h"
#include "common/pool.h"

#include <stdlib.h>

#define JOB_NS (3 * SIM_MS) /* at most, mostly */
#define LOOK_NS (200 * SIM_MS)
#define SLOW_NS (3000 * SIM_MS) /* at most, one in world.slow_one_in */

struct pool {
	unsigned threads, running;
	size_t max, owned;
	struct job *todo, **todo_end, *done, **done_end;
	struct file *file;
	int fd;
	bool stopping;
};

struct pool *pool_new(const char *name, unsigned threads, size_t max_jobs)
{
	struct pool *p = calloc(1, sizeof *p);

	(void)name;
	p->threads = threads < TASKS_MAX - 2 ? threads : TASKS_MAX - 2;
	p->max = max_jobs;
	p->todo_end = &p->todo;
	p->done_end = &p->done;
	p->file = file_new(F_EVENT);
	p->fd = fd_put(p->file);
	return p;
}

static struct job *take(struct job **list, struct job ***end)
{
	struct job *j = *list;

	if (!j)
		return NULL;
	*list = j->next;
	if (!*list)
		*end = list;
	return j;
}

static void add(struct job ***end, struct job *j)
{
	j->next = NULL;
	**end = j;
	*end = &j->next;
}

/* One that was asked to be slow, but not beyond what the world has time for. */
static void be_slow(int64_t ns)
{
	int64_t end = sim.now + ns;

	while (sim.now < end && !world_is_kind())
		task_sleep(end < sim.now + LOOK_NS ? end : sim.now + LOOK_NS);
}

static int64_t takes(void)
{
	uint64_t most =
		rng_one_in(&sim.rng, world.slow_one_in) ? SLOW_NS : JOB_NS;

	return (int64_t)rng_below(&sim.rng, most);
}

/* What a slow one does it does at once, or at last. */
static void run(struct job *j)
{
	int64_t ns = sim.p->job_ns;
	bool at_once = ns && rng_one_in(&sim.rng, 2);

	sim.p->job_ns = 0;
	if (at_once)
		j->fn(j);
	if (ns)
		be_slow(ns);
	else
		task_sleep(sim.now + takes());
	if (!at_once)
		j->fn(j);
}

static void work(void *arg)
{
	struct pool *p = arg;
	struct job *j;

	while (!p->stopping && (j = take(&p->todo, &p->todo_end))) {
		run(j);
		j->has_run = true;
		add(&p->done_end, j);
		p->file->ready = true;
		proc_poke(sim.p);
	}
	p->running--;
	proc_poke(sim.p);
}

int pool_submit_take(struct pool *p, struct job *job)
{
	if (p->owned == p->max)
		return -E_AGAIN;
	p->owned++;
	job->has_run = false;
	add(&p->todo_end, job);
	if (p->running < p->threads) {
		p->running++;
		task_start(work, p);
	}
	return 0;
}

int pool_fd(const struct pool *p)
{
	return p->fd;
}

struct job *pool_next(struct pool *p)
{
	struct job *j = take(&p->done, &p->done_end);

	if (!j && p->stopping)
		j = take(&p->todo, &p->todo_end);
	if (j)
		p->owned--;
	p->file->ready = p->done != NULL;
	return j;
}

void pool_stop(struct pool *p)
{
	p->stopping = true;
	while (p->running)
		task_wait(SIM_NEVER);
}

int __wrap_close(int fd);

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pool_stop(p);
	__wrap_close(p->fd);
	free(p);
}
