#include "watchdog.h"

#include "clock.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	const char *what; /* NULL: nothing is watched */
	int64_t due_ns, ms;
} dog;

/* The log may be what hangs: its lock is not taken. */
static void bite(void)
{
	dprintf(STDERR_FILENO, "%s did not return within %lld ms\n", dog.what,
		(long long)dog.ms);
	_exit(WATCHDOG_EXIT);
}

static void *watch(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&dog.lock);
	for (;;) {
		struct timespec t = { dog.due_ns / 1000000000,
				      dog.due_ns % 1000000000 };

		if (!dog.what)
			pthread_cond_wait(&dog.cond, &dog.lock);
		else if (clock_mono_ns() >= dog.due_ns)
			bite();
		else
			pthread_cond_timedwait(&dog.cond, &dog.lock, &t);
	}
	return NULL;
}

int watchdog_start(void)
{
	pthread_condattr_t attr;
	pthread_t thread;
	int rc;

	pthread_mutex_init(&dog.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&dog.cond, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&thread, NULL, watch, NULL);
	if (rc == 0) {
		pthread_detach(thread);
		return 0;
	}
	errno = rc;
	return log_errno(E_IO, "start the watchdog");
}

static void set(const char *what, int64_t ms)
{
	pthread_mutex_lock(&dog.lock);
	dog.what = what;
	dog.ms = ms;
	dog.due_ns = clock_mono_ns() + ms * 1000000;
	pthread_cond_signal(&dog.cond);
	pthread_mutex_unlock(&dog.lock);
}

void watchdog_set(const char *what, int64_t ms)
{
	set(what, ms);
}

void watchdog_clear(void)
{
	set(NULL, 0);
}
