/*
 * guard.h - reading and writing mapped files that others can break.
 *
 * A mapped file that is truncated, or whose disk fails or fills up, answers
 * a load or store with SIGBUS.  guard_run() turns that into a return value:
 * the file fails, the process lives.
 *
 * Only faults of the calling thread inside the given ranges are caught; all
 * others go to whoever handled SIGBUS before (by default the process dies).
 * The handler is installed by the first call and stays.  Runs may nest.
 *
 * fn is left in its middle like by longjmp: it may only compute and touch
 * memory of its own (no locks, no allocation, no open file), and what it was
 * writing is worthless afterwards.
 */
#ifndef WEIR_GUARD_H
#define WEIR_GUARD_H

#include <stddef.h>

struct guard_range {
	const void *p;
	size_t n;
};

typedef void guard_fn(void *arg);

/* Runs fn(arg); 0, or 1 + the index of the range that faulted. */
int guard_run(const struct guard_range *range, size_t n, guard_fn *fn,
	      void *arg);

#endif
