#include "guard.h"
#include "log.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

struct frame {
	const struct guard_range *range;
	size_t n;
	struct frame *outer;
	sigjmp_buf env;
};

static _Thread_local struct frame *innermost;
static struct sigaction before;

static int find(const struct frame *f, uintptr_t at)
{
	for (size_t i = 0; i < f->n; i++) {
		uintptr_t lo = (uintptr_t)f->range[i].p;

		if (at >= lo && at - lo < f->range[i].n)
			return (int)i + 1;
	}
	return 0;
}

/* A fault is tried again after the handler and then ends the process; a
 * signal that somebody sent is not. */
static void die(int sig, const siginfo_t *info)
{
	signal(sig, SIG_DFL);
	/* Blocked until the handler returns, then it ends the process. */
	if (info->si_code <= 0)
		raise(sig);
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(sig, info, context);
	else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(sig);
	else
		die(sig, info);
}

/* The mask goes back to what it was at the fault, here and not by
 * sigsetjmp(): so a run without a fault costs no system call. */
static _Noreturn void leave(struct frame *f, int hit, const void *context)
{
	const ucontext_t *at = context;

	pthread_sigmask(SIG_SETMASK, &at->uc_sigmask, NULL);
	siglongjmp(f->env, hit);
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct frame *f = info->si_code > 0 ? innermost : NULL;

	for (; f; f = f->outer) {
		int hit = find(f, (uintptr_t)info->si_addr);

		if (hit)
			leave(f, hit, context);
	}
	pass_on(sig, info, context);
}

static void install(void)
{
	struct sigaction sa = { .sa_flags = SA_SIGINFO };

	sa.sa_sigaction = on_sigbus;
	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGBUS, &sa, &before) < 0)
		BUG("sigaction of SIGBUS");
}

int guard_run(const struct guard_range *range, size_t n, guard_fn *fn,
	      void *arg)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct frame f = { .range = range, .n = n, .outer = innermost };
	int hit;

	pthread_once(&once, install);
	hit = sigsetjmp(f.env, 0);
	if (hit == 0) {
		innermost = &f;
		fn(arg);
	}
	innermost = f.outer;
	return hit;
}
