/*
 * pool.h - a few threads that do jobs, for a loop that must not block.
 *
 * The owner submits jobs and polls pool_fd(); finished jobs are taken back
 * with pool_next().  A job is owned by the pool from pool_submit_take() until
 * pool_next() returns it; jobs start in the order of submission and finish in
 * any.  The queue is bounded: the owner decides what to do when it is full.
 *
 * All but pool functions run in the owner's thread; job functions run in
 * workers and share with the owner only what they synchronise.  Workers block
 * every signal except those that faults raise (SIGBUS, SIGSEGV, SIGFPE,
 * SIGILL), so that process signals go to the owner's loop.
 */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct pool;

/* Put it first in a struct of your own. */
struct job {
	void (*fn)(struct job *job);
	bool has_run;		/* set before it comes back */
	struct job *next;	/* the pool's */
};

/* name: of the threads, 15 characters at most are kept.  NULL if threads or
 * descriptors are refused (logged). */
struct pool *pool_new(const char *name, unsigned threads, size_t max_jobs);
/* 0, or -E_AGAIN if max_jobs are owned by the pool. */
int pool_submit_take(struct pool *p, struct job *job);
/* Readable while pool_next() has something to give. */
int pool_fd(const struct pool *p);
struct job *pool_next(struct pool *p);	/* NULL: none has finished */

/* Waits for the jobs that run, which must end soon (a cancel flag of the
 * owner's); those not yet begun come back from pool_next() with has_run
 * false.  Nothing may be submitted afterwards. */
void pool_stop(struct pool *p);
/* Stops; jobs not taken back are forgotten.  NULL is fine. */
void pool_free(struct pool *p);

#endif
