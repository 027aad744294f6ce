/* Processes, tasks, clock, events and chance.  See sim.h. */
#include "sim.h"

#include "common/log.h"
#include "pipes/msg.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if SIM_WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define STACK_BYTES ((size_t)(SIM_WITH_ASAN ? 1024 : 256) << 10)
#define STEPS_MAX 3000000u /* of one seed: then nothing comes to an end */
#define STEP_NS 20000	   /* at most, of one call */
#define CAUSE_MAX LOG_LINE_MAX
#define GIVES_WAY 4 /* one call in so many lets another task run */

struct task {
	struct proc *p;
	void (*fn)(void *);
	void *arg, *stack, *sp, *fake;
	bool waits, over, began;
	int64_t due;
	int quiet;
	char cause[CAUSE_MAX];
	struct task *free;
};

struct event {
	int64_t when;
	uint64_t order;
	void (*fn)(void *);
	void *arg;
};

struct owned {
	struct owned *next, **at;
	size_t n;
	void (*end)(void *);
	void *p;
};

struct sim sim;
static struct event *heap;
static size_t nevents, events_cap;
static uint64_t order;
static struct task *free_tasks;
static void *kern_sp;
static struct proc *loaded; /* whose variables are in place */

/* The product's own variables: its archives' .data and .bss, renamed. */
extern char __start_weir_data[], __stop_weir_data[];
extern char __start_weir_bss[], __stop_weir_bss[];
static char *pristine;

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

/* ---- memory ---- */

void *__real_malloc(size_t n);
void __real_free(void *p);
void *__real_realloc(void *p, size_t n);

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void enlist(struct owned **list, struct owned *o)
{
	o->next = *list;
	o->at = list;
	if (o->next)
		o->next->at = &o->next;
	*list = o;
}

static void delist(struct owned *o)
{
	*o->at = o->next;
	if (o->next)
		o->next->at = o->at;
}

/* The seed's: all that is left of it goes at the end. */
static struct owned *seed_memory;

void *sim_alloc(size_t n)
{
	struct owned *o = must(__real_malloc(sizeof *o + n));

	enlist(&seed_memory, o);
	return memset(o + 1, 0, n);
}

void sim_free(void *p)
{
	struct owned *o;

	if (!p)
		return;
	o = (struct owned *)p - 1;
	delist(o);
	__real_free(o);
}

void *sim_grow(void *p, size_t n)
{
	struct owned *o;

	if (p)
		delist((struct owned *)p - 1);
	o = must(__real_realloc(p ? (struct owned *)p - 1 : NULL,
				sizeof *o + n));
	enlist(&seed_memory, o);
	return o + 1;
}

static struct owned *no_memory; /* of nobody: before and between processes */

static struct owned **memory_list(void)
{
	return sim.p ? &sim.p->memory : &no_memory;
}

void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	struct owned *o = __real_malloc(sizeof *o + n);

	if (!o)
		return NULL;
	o->n = n;
	enlist(memory_list(), o);
	return o + 1;
}

void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	void *p = __wrap_malloc(n * size);

	return p ? memset(p, 0, n * size) : NULL;
}

void __wrap_free(void *p);
void __wrap_free(void *p)
{
	struct owned *o;

	if (!p)
		return;
	o = (struct owned *)p - 1;
	delist(o);
	__real_free(o);
}

void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
	void *q = __wrap_malloc(n);
	size_t was = p ? ((struct owned *)p - 1)->n : 0;

	if (q && p)
		memcpy(q, p, was < n ? was : n);
	if (q)
		__wrap_free(p);
	return q;
}

void own_foreign(void *p, void (*end)(void *))
{
	struct owned *o;

	if (!sim.p)
		return;
	o = sim_alloc(sizeof *o);
	o->p = p;
	o->end = end;
	enlist(&sim.p->foreign, o);
}

void disown_foreign(void *p)
{
	struct owned *o = sim.p ? sim.p->foreign : NULL;

	while (o && o->p != p)
		o = o->next;
	if (!o)
		return;
	delist(o);
	sim_free(o);
}

static void drop_memory(struct proc *p)
{
	struct owned *o;

	while ((o = p->foreign)) {
		delist(o);
		o->end(o->p);
		sim_free(o);
	}
	while ((o = p->memory)) {
		delist(o);
		__real_free(o);
	}
}

/* ---- switching ---- */

#if defined(__x86_64__)
/* Saves what a call must keep, and goes on where the other stack stopped. */
void sim_switch(void **from, void *to);
__asm__(".text\n.globl sim_switch\n.type sim_switch,@function\nsim_switch:\n"
	"push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
	".size sim_switch,.-sim_switch\n");

static void set_stack(struct task *t, void (*entry)(void))
{
	uintptr_t *sp = (uintptr_t *)(void *)((char *)t->stack + STACK_BYTES);

	*--sp = 0; /* keeps entry's frame aligned as after a call */
	*--sp = (uintptr_t)entry;
	sp -= 6;
	memset(sp, 0, 6 * sizeof *sp);
	t->sp = sp;
}
#else
static void sim_switch(void **from, void *to)
{
	ucontext_t here;

	*from = &here;
	swapcontext(&here, to);
}

static void set_stack(struct task *t, void (*entry)(void))
{
	ucontext_t *u = t->stack;

	getcontext(u);
	u->uc_stack.ss_sp = (char *)t->stack + sizeof *u;
	u->uc_stack.ss_size = STACK_BYTES - sizeof *u;
	u->uc_link = NULL;
	makecontext(u, entry, 0);
	t->sp = u;
}
#endif

static void go(void **from, struct task *to_task, void *to)
{
#if SIM_WITH_ASAN
	static const void *kern_stack;
	static size_t kern_size;
	void *fake = NULL;

	if (to_task)
		__sanitizer_start_switch_fiber(&fake, to_task->stack,
					       STACK_BYTES);
	else
		__sanitizer_start_switch_fiber(&fake, kern_stack, kern_size);
	sim_switch(from, to);
	__sanitizer_finish_switch_fiber(fake, to_task ? NULL : &kern_stack,
					to_task ? NULL : &kern_size);
#else
	(void)to_task;
	sim_switch(from, to);
#endif
}

#if SIM_WITH_ASAN
/* Over the red zones between variables. */
__attribute__((no_sanitize("address", "undefined"))) static void
copy_vars(char *to, const char *from, size_t n)
{
	volatile uint64_t *a = (volatile uint64_t *)(void *)to;
	const uint64_t *b = (const uint64_t *)(const void *)from;

	for (size_t i = 0; i < n / sizeof *b; i++)
		a[i] = b[i];
	for (size_t i = n - n % sizeof *b; i < n; i++)
		*(volatile char *)(to + i) = from[i];
}
#else
static void copy_vars(char *to, const char *from, size_t n)
{
	memcpy(to, from, n);
}
#endif

static size_t data_bytes(void)
{
	return (size_t)(__stop_weir_data - __start_weir_data);
}

static size_t bss_bytes(void)
{
	return (size_t)(__stop_weir_bss - __start_weir_bss);
}

static void save_vars(char *to)
{
	copy_vars(to, __start_weir_data, data_bytes());
	copy_vars(to + data_bytes(), __start_weir_bss, bss_bytes());
}

static void load_vars(const char *from)
{
	copy_vars(__start_weir_data, from, data_bytes());
	copy_vars(__start_weir_bss, from + data_bytes(), bss_bytes());
}

static void load(struct proc *p)
{
	if (loaded == p)
		return;
	if (loaded) {
		save_vars(loaded->data);
		loaded->log_name = log_name();
	}
	load_vars(p->data);
	log_init(p->log_name, LOG_WARN);
	loaded = p;
}

/* The log's variables are a thread's: a task's here. */
static void load_thread(struct task *t)
{
	static struct task *last;
	char *cause = (char *)(uintptr_t)log_cause();

	if (last == t && t->began)
		return;
	if (last && last != t)
		memcpy(last->cause, cause, strlen(cause) + 1);
	memcpy(cause, t->cause, strlen(t->cause) + 1);
	last = t;
	t->began = true;
}

static void enter(struct task *t)
{
	load(t->p);
	load_thread(t);
	log_quiet_thread(t->quiet);
	sim.p = t->p;
	sim.t = t;
	go(&kern_sp, t, t->sp);
	sim.p = NULL;
	sim.t = NULL;
	t->quiet = log_quiet_thread(0);
}

/* Back to the kernel; errno is the task's own. */
static void leave(void)
{
	int saved = errno;

	go(&sim.t->sp, NULL, kern_sp);
	errno = saved;
}

static void entry(void)
{
#if SIM_WITH_ASAN
	__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
	sim.t->fn(sim.t->arg);
	sim.t->over = true;
	for (;;)
		leave();
}

/* ---- tasks ---- */

static struct task *task_new(struct proc *p, void (*fn)(void *), void *arg)
{
	struct task *t = free_tasks;
	void *stack;

	if (t) {
		free_tasks = t->free;
		stack = t->stack;
	} else {
		t = must(__real_malloc(sizeof *t));
		memset(t, 0, sizeof *t);
		stack = __real_mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (stack == MAP_FAILED)
			abort();
	}
#if SIM_WITH_ASAN
	__asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
	t->p = p;
	t->fn = fn;
	t->arg = arg;
	t->stack = stack;
	t->waits = t->over = t->began = false;
	t->quiet = 0;
	t->cause[0] = '\0';
	set_stack(t, entry);
	return t;
}

static void task_free(struct task *t)
{
	t->free = free_tasks;
	free_tasks = t;
}

static void add_task(struct proc *p, struct task *t)
{
	for (int i = 0; i < TASKS_MAX; i++) {
		if (p->task[i])
			continue;
		p->task[i] = t;
		return;
	}
	abort();
}

void task_start(void (*fn)(void *), void *arg)
{
	add_task(sim.p, task_new(sim.p, fn, arg));
}

void task_wait(int64_t due)
{
	sim.t->waits = true;
	sim.t->due = due;
	leave();
}

void task_sleep(int64_t due)
{
	while (sim.now < due)
		task_wait(due);
}

/* ---- processes ---- */

void proc_exit(int code)
{
	sim.p->code = code;
	sim.p->doomed = true;
	for (;;)
		leave();
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
	p->data = sim_alloc(data_bytes() + bss_bytes());
	copy_vars(p->data, pristine, data_bytes() + bss_bytes());
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
	if (loaded == p)
		loaded = NULL;
	drop_memory(p);
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
	if (p->steps == p->kill_at) {
		sim_tell("kill %s before its %s", p->name, what);
		proc_kill(p, SIGKILL);
	}
	if (p->doomed || rng_one_in(&sim.rng, GIVES_WAY))
		leave();
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
		if (p->stopped)
			continue;
		for (int i = 0; i < TASKS_MAX; i++) {
			struct task *t = p->task[i];

			if (!t)
				continue;
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
	enter(t);
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

	if (!pristine) {
		msg_table_hash(); /* made once, for all */
		pristine = must(__real_malloc(data_bytes() + bss_bytes()));
		save_vars(pristine);
	}
	sim = (struct sim){ .trace = t, .mutant = mutant, .seed = seed };
	sim.rng.s = seed * 0x2545f4914f6cdd1du + 1;
	sim.now = SIM_S;
	sim.wall0 = 1764547200 * SIM_S;
	sim.last_pid = 100;
	sim.hash = 0xcbf29ce484222325u;
	loaded = NULL;
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
	while (seed_memory)
		sim_free(seed_memory + 1);
}
