/*
 * common/child.h without a shell: a command takes a while, and then has
 * succeeded or not.  It is a task of the process that started it, and ends
 * with it.
 */
#include "world.h"

#include "common/child.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>

#define QUICK_NS (5 * SIM_MS)	/* at most, mostly */
#define LONG_NS (3000 * SIM_MS) /* at most, some */
#define LOOK_NS (100 * SIM_MS)	/* at the cancel flag */

struct command {
	struct file *file; /* NULL: nobody waits any more */
	int64_t ends;
};

static bool happens(uint32_t one_in)
{
	return one_in && rng_one_in(&sim.rng, one_in);
}

static int64_t takes(void)
{
	int64_t ns = sim.p->job_ns;
	uint64_t most = happens(world.hook_long_one_in) ? LONG_NS : QUICK_NS;

	sim.p->job_ns = 0;
	return ns ? ns : (int64_t)rng_below(&sim.rng, most);
}

static int result(const char *what)
{
	if (!happens(world.hook_fails_one_in))
		return 1;
	return log_error(E_IO, "%s: exit status 1", what);
}

static void work(void *arg)
{
	struct command *c = arg;

	task_sleep(c->ends);
	if (c->file) {
		c->file->ready = true;
		proc_poke(sim.p);
	}
	free(c);
}

int child_start(struct child *c, const char *what, const char *command,
		const char *const *env)
{
	struct command *k = malloc(sizeof *k);

	(void)command;
	(void)env;
	sim_point("spawn", 0);
	k->file = file_new(F_EVENT);
	k->file->obj = k;
	k->ends = sim.now + takes();
	*c = (struct child)CHILD_NONE;
	c->what = what;
	c->pid = 1;
	c->pidfd = fd_put(k->file);
	task_start(work, k);
	return 0;
}

/* No mover is simulated. */
int child_start_with(struct child *c, const char *what, const char *command,
		     const char *const *env, int fd)
{
	(void)fd;
	return child_start(c, what, command, env);
}

int __wrap_close(int fd);

/* work() has freed what it had, or finds that nobody waits. */
void child_kill(struct child *c)
{
	struct file *f = c->pid ? fd_get(c->pidfd) : NULL;

	if (!f)
		return;
	if (!f->ready)
		((struct command *)f->obj)->file = NULL;
	__wrap_close(c->pidfd);
	*c = (struct child)CHILD_NONE;
}

int child_step(struct child *c)
{
	const struct file *f = fd_get(c->pidfd);
	const char *what = c->what;

	if (!f || !f->ready)
		return 0;
	child_kill(c);
	return result(what);
}

int child_run(const char *what, const char *command, const char *const *env,
	      int64_t ms, const atomic_bool *cancel)
{
	int64_t ends = sim.now + takes(), late = sim.now + ms * SIM_MS;

	(void)command;
	(void)env;
	while (sim.now < ends && sim.now < late) {
		int64_t look = sim.now + LOOK_NS;

		if (cancel && atomic_load(cancel))
			return -E_AGAIN;
		task_sleep(look < ends ? look : ends);
	}
	if (sim.now < ends)
		return log_error(E_TIMEOUT, "%s did not end", what);
	return result(what) < 0 ? -E_IO : 0;
}
