/* Processes, clock, events and chance.  See sim.h. */
#include "kern.h"

#include "count.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 3000000u /* of one seed: then nothing comes to an end */
#define STEP_NS 20000	   /* at most, of one call */
#define GIVES_WAY 4	   /* one call in so many lets another task run */

struct event {
	int64_t when;
	uint64_t order;
	void (*fn)(void *);
	void *arg;
};

struct sim sim;
static struct event *heap;
static size_t nevents, events_cap;
static uint64_t order;

/* ---- chance ---- */

uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->s += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	return (rng_next(r) >> 32) * n >> 32; /* n < 2^32 */
}

bool rng_one_in(struct rng *r, uint64_t n)
{
	return rng_below(r, n) == 0;
}

/* ---- processes ---- */

static void add_task(struct proc *p, struct task *t)
{
	for (int i = 0; i < TASKS_MAX; i++) {
		if (p->task[i])
			continue;
		p->task[i] = t;
		p->ntasks++;
		return;
	}
	abort();
}

void task_start(void (*fn)(void *), void *arg)
{
	add_task(sim.p, task_new(sim.p, fn, arg));
}

void proc_exit(int code)
{
	sim.p->code = code;
	sim.p->doomed = true;
	for (;;)
		task_leave();
}

static void run_main(void *arg)
{
	struct proc *p = arg;

	proc_exit(p->main(p->argc, p->argv));
}

struct proc *proc_start(const char *name, prog_main *main, char *const *argv,
			struct file *const files[3])
{
	struct proc *p = sim_alloc(sizeof *p);

	snprintf(p->name, sizeof p->name, "%s", name);
	p->main = main;
	p->pid = ++sim.last_pid;
	p->began = sim.now;
	p->log_name = "weir";
	p->supervisor_fd = -1;
	while (argv[p->argc])
		p->argc++;
	p->argv = sim_alloc(((size_t)p->argc + 1) * sizeof *p->argv);
	for (int i = 0; i < p->argc; i++) {
		p->argv[i] = sim_alloc(strlen(argv[i]) + 1);
		strcpy(p->argv[i], argv[i]);
	}
	p->data = vars_new();
	for (int i = 0; i < 3; i++) {
		p->fd[i] = files[i];
		files[i]->owner = p;
	}
	add_task(p, task_new(p, run_main, p));
	p->next = sim.procs;
	sim.procs = p;
	sim_tell("start %s", name);
	return p;
}

static void proc_free(struct proc *p)
{
	for (int i = 0; i < p->argc; i++)
		sim_free(p->argv[i]);
	sim_free(p->argv);
	sim_free(p->data);
	sim_free(p);
}

/* What the kernel does for whatever ends, however it ends. */
static void bury(struct proc *p)
{
	p->dead = true;
	for (int i = 0; i < TASKS_MAX; i++) {
		if (p->task[i])
			task_free(p->task[i]);
		p->task[i] = NULL;
	}
	net_proc_gone(p);
	maps_drop(p);
	for (int i = 0; i < FDS_MAX; i++) {
		if (p->fd[i])
			file_drop(p->fd[i]);
		p->fd[i] = NULL;
	}
	vars_forget(p);
	memory_drop(p);
}

static void reap(struct proc *p)
{
	struct proc **at = &sim.procs;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	bury(p);
	sim_tell("%s[%d] ends with %d", p->name, p->pid, p->code);
	watch_exit(p);
	if (p->ended)
		p->ended(p, p->arg);
	proc_free(p);
}

void proc_kill(struct proc *p, int signo)
{
	p->code = 128 + signo;
	p->doomed = true;
}

void proc_poke(struct proc *p)
{
	for (int i = 0; i < TASKS_MAX; i++)
		if (p->task[i])
			p->task[i]->waits = false;
}

void proc_signal(struct proc *p, int signo)
{
	p->pending |= (uint64_t)1 << signo;
	proc_poke(p);
}

void proc_stop(struct proc *p)
{
	sim_tell("stop %s", p->name);
	p->stopped = true;
}

void proc_continue(struct proc *p)
{
	sim_tell("continue %s", p->name);
	p->stopped = false;
	proc_poke(p);
}

/* ---- events ---- */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void swap_events(size_t a, size_t b)
{
	struct event e = heap[a];

	heap[a] = heap[b];
	heap[b] = e;
}

void sim_at(int64_t when, void (*fn)(void *), void *arg)
{
	size_t i = nevents++;

	if (nevents > events_cap) {
		events_cap = events_cap ? 2 * events_cap : 256;
		heap = must(__real_realloc(heap, events_cap * sizeof *heap));
	}
	heap[i] = (struct event){ when, order++, fn, arg };
	for (; i > 0 && is_before(&heap[i], &heap[(i - 1) / 2]);
	     i = (i - 1) / 2)
		swap_events(i, (i - 1) / 2);
}

static struct event take_event(void)
{
	struct event e = heap[0];

	heap[0] = heap[--nevents];
	for (size_t i = 0, k; (k = 2 * i + 1) < nevents; i = k) {
		if (k + 1 < nevents && is_before(&heap[k + 1], &heap[k]))
			k++;
		if (!is_before(&heap[k], &heap[i]))
			break;
		swap_events(i, k);
	}
	return e;
}

/* ---- the schedule ---- */

static void trace(uint64_t x)
{
	sim.hash = (sim.hash ^ x) * 0x100000001b3u;
	sim.hash ^= sim.hash >> 29;
}

/* Just before the durable move that is chosen, or just after. */
static bool is_at_move(const struct proc *p)
{
	if (!p->kill_move)
		return false;
	if (p->kill_after)
		return p->moves >= p->kill_move;
	return p->coming && p->moves + 1 >= p->kill_move;
}

void sim_point(const char *what, uint64_t detail)
{
	struct proc *p = sim.p;

	if (!p)
		return;
	p->steps++;
	sim.steps++;
	sim.now += 1 + (int64_t)rng_below(&sim.rng, STEP_NS);
	trace((uint64_t)sim.now ^ (uint64_t)p->pid << 48);
	trace(detail + (uint64_t)what[0] + ((uint64_t)what[1] << 8));
	if (p->steps == p->kill_at || is_at_move(p)) {
		sim_tell("kill %s before its %s", p->name, what);
		count_death(p);
		proc_kill(p, SIGKILL);
	}
	p->coming = 0;
	if (p->doomed || rng_one_in(&sim.rng, GIVES_WAY))
		task_leave();
}

static bool is_ready(const struct task *t)
{
	return !t->waits || t->due <= sim.now;
}

/* Any of those that can run; *due: when the first of the others will. */
static struct task *choose(int64_t *due)
{
	struct task *ready[PROCS_MAX * TASKS_MAX];
	size_t n = 0;

	*due = SIM_NEVER;
	for (struct proc *p = sim.procs; p; p = p->next) {
		int left = p->stopped ? 0 : p->ntasks;

		for (int i = 0; left > 0; i++) {
			struct task *t = p->task[i];

			if (!t)
				continue;
			left--;
			if (is_ready(t))
				ready[n++] = t;
			else if (t->due < *due)
				*due = t->due;
		}
	}
	return n ? ready[n == 1 ? 0 : rng_below(&sim.rng, n)] : NULL;
}

static void end_task(struct task *t)
{
	for (int i = 0; i < TASKS_MAX; i++)
		if (t->p->task[i] == t)
			t->p->task[i] = NULL;
	t->p->ntasks--;
	task_free(t);
}

static void reap_doomed(void)
{
	struct proc *p = sim.procs;

	while (p) {
		if (p->doomed) {
			reap(p);
			p = sim.procs; /* its end may have started others */
		} else {
			p = p->next;
		}
	}
}

static void run_task(struct task *t)
{
	struct proc *p = t->p;

	t->waits = false;
	task_enter(t);
	if (t->over && !p->doomed)
		end_task(t);
	if (p->doomed)
		reap_doomed();
}

static void run_event(void)
{
	struct event e = take_event();

	if (e.when > sim.now)
		sim.now = e.when;
	e.fn(e.arg);
	reap_doomed();
}

/* False: nobody will ever do anything again. */
static bool step(void)
{
	int64_t due;
	struct task *t;

	if (nevents && heap[0].when <= sim.now) {
		run_event();
		return true;
	}
	t = choose(&due);
	if (t) {
		run_task(t);
		return true;
	}
	if (nevents && heap[0].when <= due) {
		run_event();
		return true;
	}
	if (due == SIM_NEVER)
		return false;
	sim.now = due;
	return true;
}

void sim_run(bool (*until)(void))
{
	while (!sim.broken && !until() && step()) {
		if (sim.steps > STEPS_MAX)
			sim_break("I13", "%u steps and no end", STEPS_MAX);
	}
}

/* ---- telling ---- */

void sim_tell(const char *fmt, ...)
{
	va_list ap;

	if (!sim.trace)
		return;
	fprintf(sim.trace, "%12.6f ", (double)sim.now / 1e9);
	va_start(ap, fmt);
	vfprintf(sim.trace, fmt, ap);
	va_end(ap);
	fputc('\n', sim.trace);
}

void sim_break(const char *invariant, const char *fmt, ...)
{
	va_list ap;

	if (sim.broken)
		return;
	sim.broken = invariant;
	va_start(ap, fmt);
	vsnprintf(sim.why, sizeof sim.why, fmt, ap);
	va_end(ap);
	sim_tell("%s broken: %s", invariant, sim.why);
}

/* ---- life ---- */

void kern_begin(uint64_t seed)
{
	FILE *t = sim.trace;
	int mutant = sim.mutant;

	sim = (struct sim){ .trace = t, .mutant = mutant, .seed = seed };
	sim.rng.s = seed * 0x2545f4914f6cdd1du + 1;
	sim.now = SIM_S;
	sim.wall0 = 1764547200 * SIM_S;
	sim.last_pid = 100;
	sim.hash = 0xcbf29ce484222325u;
	memory_begin();
	vars_begin();
	nevents = 0;
	order = 0;
}

void kern_end(void)
{
	while (sim.procs) {
		struct proc *p = sim.procs;

		sim.procs = p->next;
		bury(p);
		proc_free(p);
	}
	memory_end();
}
