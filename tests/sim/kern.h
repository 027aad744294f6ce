/*
 * kern.h - what the simulated kernel's parts know of each other: memory.c,
 * task.c and kern.c.
 */
#ifndef WEIR_SIM_KERN_H
#define WEIR_SIM_KERN_H

#include "common/log.h"
#include "sim.h"

#define CAUSE_MAX LOG_LINE_MAX

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

/* The C library's own, past the wrappers. */
void *__real_malloc(size_t n);
void __real_free(void *p);
void *__real_realloc(void *p, size_t n);

void *must(void *p);			/* NULL: the end */
void memory_begin(void);		/* of a seed */
void memory_drop(struct proc *p);	/* all that it has */
void memory_end(void);			/* all that the seed has */

struct task *task_new(struct proc *p, void (*fn)(void *), void *arg);
void task_free(struct task *t);
void task_enter(struct task *t);	/* until it gives way */
void task_leave(void);			/* back to the kernel */

/* The product's variables: of a seed's first process, of a process. */
void vars_begin(void);
char *vars_new(void);
void vars_forget(const struct proc *p);

#endif
