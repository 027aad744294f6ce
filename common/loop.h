/*
 * loop.h - one thread's event loop: descriptors, sockets, timers, signals.
 *
 * Callbacks run on the loop's thread, one at a time.  A callback may add and
 * remove anything, its own source included.  A socket's callback must read
 * until sock_recv() returns 0 and sock_news() SOCK_QUIET.  What is ready is
 * read before timers fire.  Nothing here sleeps without a deadline: with no
 * timer armed the loop still wakes every LOOP_IDLE_MS.
 */
#ifndef WEIR_LOOP_H
#define WEIR_LOOP_H

#include "buf.h"
#include "sock.h"

#define LOOP_IDLE_MS	60000

struct loop;
struct loop_timer {		/* embed; zeroed = not armed */
	int64_t due_ms;		/* monotonic; 0 = off */
	void (*fn)(void *arg);
	void *arg;
	size_t slot;		/* loop's own */
};

struct loop *loop_new(void);
void loop_free(struct loop *l);		/* NULL is fine */

/* fn(arg) when fd is readable or hung up.  One callback per fd. */
void loop_add_fd(struct loop *l, int fd, void (*fn)(void *), void *arg);
void loop_want_out(struct loop *l, int fd, bool on, void (*fn)(void *));
void loop_del_fd(struct loop *l, int fd);	/* before close; absent: fine */
/* Inline, so that a program without sockets does not load libzmq: that costs
 * several times the rest of its start. */
typedef int loop_poll_fn(struct sock_poll *v, size_t n, int64_t timeout_ms);
void loop_add_polled(struct loop *l, struct sock *s, void (*fn)(void *),
		     void *arg, loop_poll_fn *poll_fn);
static inline void loop_add_sock(struct loop *l, struct sock *s,
				 void (*fn)(void *), void *arg)
{
	loop_add_polled(l, s, fn, arg, sock_poll);
}
void loop_del_sock(struct loop *l, struct sock *s);

/* (Re)arms t, ms from now; fn and arg must be set.  0: as soon as what is
 * ready was read, without a wait; a timer that arms itself so still lets all
 * others run.  Any number of timers: O(log n). */
void loop_arm(struct loop *l, struct loop_timer *t, int64_t ms);
void loop_disarm(struct loop *l, struct loop_timer *t);

/* fn(signo, arg) for SIGINT SIGTERM SIGHUP SIGCHLD SIGIO; SIGPIPE is ignored.
 * Blocks them in this thread: call before any other thread is made. */
int loop_signals(struct loop *l, void (*fn)(int signo, void *), void *arg);

/* Runs until loop_stop(), also one before it; returns the rc given to it
 * (first one wins).  Nothing is called after a loop_stop(), not even what is
 * ready or due by then: that waits.  May be run again then. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l, int rc);

#endif
