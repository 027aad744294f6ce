/*
 * fan.h - requests to many receivers, each with a deadline and one end.
 *
 * A stage (commit, transfer) talks to every receiver of the plan through one
 * socket.  A request gets a seq; it ends exactly once: by its reply, by its
 * deadline (-E_TIMEOUT), by the receiver's disconnect (-E_UNAVAIL), or by
 * fan_forget().  Replies to anything else (late, double, unknown, another
 * boot) go to `stray`, and change nothing (I5, I10, ZQ-12).  An offer to a
 * receiver with several workers is answered by one ack per worker: such a
 * request is made with replies > 1 and ends with the last of them.
 */
#ifndef WEIR_FAN_H
#define WEIR_FAN_H

#include "common/loop.h"
#include "pipes/msg.h"

struct fan;

struct fan_ops {
	/* rc 0: m is a reply to call `seq` made with `tag` (M_refused is rc 0
	 * as well: look at m->type); rc < 0: it ended without, m is NULL. */
	void (*reply)(void *arg, uint32_t receiver, uint64_t tag,
		      const struct msg *m, int rc);
	/* A reply that nobody waits for. */
	void (*stray)(void *arg, uint32_t receiver, const struct msg *m);
	/* The receiver's process went away (its open calls end first). */
	void (*lost)(void *arg, uint32_t receiver);
};

struct fan *fan_new(struct loop *l, const struct fan_ops *ops, void *arg);
void fan_free(struct fan *f);
/* Receiver ids count from 0 in the order of adding. */
int fan_add(struct fan *f, const char *endpoint);
/* Sends m (its seq field is set here) and arms the deadline.  Returns 0, or
 * -E_UNAVAIL at once.  tag comes back with the end of the call. */
int fan_call(struct fan *f, uint32_t receiver, struct msg *m, uint64_t tag,
	     uint32_t replies, uint64_t deadline_ms);
/* Ends all calls of a receiver silently; later replies are stray. */
void fan_forget(struct fan *f, uint32_t receiver);
/* Calls not yet ended. */
size_t fan_open_calls(const struct fan *f);

#endif
