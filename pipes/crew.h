/*
 * crew.h - numbered jobs over a few threads.
 *
 * A job works at a *seat*: memory of the caller's type, zeroed before its
 * first use, kept from job to job (buffers, contexts, descriptors) and given
 * to leave() at the end.  There are CREW_SEATS seats for each thread, so
 * memory is bounded however many jobs there are.
 *
 * Jobs begin in the order of their numbers.  done() runs in the caller's
 * thread, for each as it ends; then its seat is free again.  While is_full()
 * says so no job begins, unless none is at work.
 *
 * The first failure is logged once, here; jobs that have not begun are then
 * left out.
 */
#ifndef WEIR_CREW_H
#define WEIR_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CREW_SEATS	4u	/* for each thread */
#define CREW_THREADS_MAX 256u

typedef int crew_fn(void *ctx, uint32_t i, void *seat);

struct crew {
	unsigned threads;		/* 0: as many as there are cores */
	size_t seat_size;
	crew_fn *work;			/* in some thread */
	crew_fn *done;			/* or NULL */
	bool (*is_full)(const void *ctx);	/* or NULL */
	void (*leave)(void *seat);	/* or NULL */
	void *ctx;
};

/* Jobs 0 .. n - 1.  0, or the first failure's negative E_*. */
int crew_run(const struct crew *c, uint32_t n);

#endif
