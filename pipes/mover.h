/*
 * mover.h - a mover's process, and messages to and from it.
 *
 * A mover (move.h) has a device's libraries, and so lives in a process of its
 * own: one that is missing, hangs or crashes costs whoever started it no more
 * than an event.  It ends when the struct mover is freed, or when we end, be
 * it by SIGKILL; what it has to say (stderr) goes to our log.
 *
 * What cannot be sent yet waits here.
 */
#ifndef WEIR_MOVER_H
#define WEIR_MOVER_H

#include "common/loop.h"
#include "pipes/loan.h"
#include "pipes/msg.h"

#define MOVER_WAITING_MAX (64u << 20)	/* bytes of messages */
#define MOVER_END_MS 500		/* then it is killed */
#define MOVER_REST_MS 2000		/* then its groups are not kept */
#define MOVER_CHECK_MS 20000		/* a device may have to be woken up */
#define MOVER_LOOK_MS 100		/* between two looks whether to go on */

struct mover;

/* Either may call mover_free(). */
struct mover_ops {
	/* m lives until the callback returns. */
	void (*msg)(void *arg, const struct msg *m);
	/* It has ended, or was never there: -E_*, and why (log_cause()).
	 * Nothing else comes of it then. */
	void (*ended)(void *arg, int rc);
};

/* The program, and what it is for, as messages call it.  Lent for ever. */
struct mover_kind {
	const char *program, *what;
};

extern const struct mover_kind mover_nccl, mover_ipc, mover_slot, mover_source;

/* In $WEIR_LIBEXEC if that is set, else beside this
 * program or in libexec.  -E_UNAVAIL, logged:
 * it is not there.  That a library is missing is told by ended(). */
int mover_start(struct mover **out, struct loop *l,
		const struct mover_kind *kind, const struct mover_ops *ops,
		void *arg);
/* One that weir-keeper has lent, taken over with both descriptors.  Freed, it
 * ends there, unless it is returned. */
void mover_take_lent(struct mover **out, struct loop *l,
		     const struct mover_kind *kind, const struct loan *loan,
		     const struct mover_ops *ops, void *arg);
/* Returned to weir-keeper with its groups, if all that it was sent has left;
 * freed in any case. */
void mover_return(struct mover *m);
/* Its socket, to be passed on; what it says is not told from now on. */
int mover_lend(struct mover *m);
/* The run is over: waits, for MOVER_REST_MS, until it has let go of all files
 * and keeps its groups for the next.  What it says meanwhile is not told, and
 * from its own callbacks what they were told is gone.  -E_*, not printed: it is
 * of no use any more. */
int mover_rest(struct mover *m);
/* Would it start, and find its libraries and the device of that number?  Waits
 * for at most MOVER_CHECK_MS.  0, or -E_UNAVAIL, logged, naming what is
 * missing. */
int mover_check(const struct mover_kind *kind, uint32_t device);
/* One that talks to nobody and has a job: with fd, its number, and file.  To
 * its end, or until is_over(arg): 0; what it ended with, logged with its last
 * line; -E_AGAIN, unlogged. */
int mover_run(const struct mover_kind *kind, int fd, const char *file,
	      bool (*is_over)(const void *arg), const void *arg);
/* The descriptors are lent until it has been sent: until mover_free().
 * -E_AGAIN, logged, if too much waits. */
int mover_send(struct mover *m, const struct msg *msg, const int *fds,
	       size_t n);
/* Takes what it has said by now; not to be called from its own callbacks. */
void mover_look(struct mover *m);
/* It has ended when this returns; it is given MOVER_END_MS to let go of what
 * it has.  NULL is fine. */
void mover_free(struct mover *m);

#endif
