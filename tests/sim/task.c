/*
 * Tasks: a stack each, and the product's variables of the process that they
 * belong to, put in place before they run.
 */
#include "kern.h"

#include "common/log.h"
#include "pipes/msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if SIM_WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define STACK_BYTES ((size_t)(SIM_WITH_ASAN ? 1024 : 256) << 10)

static struct task *free_tasks;
static void *kern_sp;
static struct proc *loaded; /* whose variables are in place */

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);

/* The product's own variables: its archives' .data and .bss, renamed. */
extern char __start_weir_data[], __stop_weir_data[];
extern char __start_weir_bss[], __stop_weir_bss[];
static char *pristine;

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

void task_enter(struct task *t)
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
void task_leave(void)
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
		task_leave();
}

/* ---- variables ---- */

void vars_begin(void)
{
	if (!pristine) {
		msg_table_hash(); /* made once, for all */
		pristine = must(__real_malloc(data_bytes() + bss_bytes()));
		save_vars(pristine);
	}
	loaded = NULL;
}

char *vars_new(void)
{
	char *v = sim_alloc(data_bytes() + bss_bytes());

	copy_vars(v, pristine, data_bytes() + bss_bytes());
	return v;
}

void vars_forget(const struct proc *p)
{
	if (loaded == p)
		loaded = NULL;
}

/* ---- tasks ---- */

struct task *task_new(struct proc *p, void (*fn)(void *), void *arg)
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

void task_free(struct task *t)
{
	t->free = free_tasks;
	free_tasks = t;
}

void task_wait(int64_t due)
{
	sim.t->waits = true;
	sim.t->due = due;
	task_leave();
}

void task_sleep(int64_t due)
{
	while (sim.now < due)
		task_wait(due);
}
