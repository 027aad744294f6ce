/*
 * fan.h - requests to many receivers, each with a deadline and one end.
 *
 * A stage (commit, transfer) talks to every receiver of the plan through one
 * socket.  A request gets a seq; it ends exactly once: by its reply, by its
 * deadline (-E_TIMEOUT), by the receiver's disconnect or absence (-E_UNAVAIL),
 * by a frame of the receiver's that is none (-E_PROTO), or by fan_forget().  Replies to
 * anything else (late, double, unknown, of the wrong type) go to `stray`, and
 * change nothing (I5, I10, ZQ-12).  An offer to a receiver with several
 * workers is answered by one ack per worker: such a request is made with
 * replies > 1 and ends with the last of them, or with the first `refused`.
 * Boot ids are the caller's to compare.
 *
 * Requests to a receiver that is not connected (not yet, or not again), or
 * that does not read, wait here until their deadlines; nothing is sent into
 * a pipe that has no peer (ZQ-05).  What waits is bounded by FAN_CALLS_MAX
 * and FAN_BYTES_MAX.  At an endpoint where nobody even listens (the process
 * is dead, or was never there) they wait no longer than FAN_ABSENT_MS: time
 * for a start.  A stopped process still listens.
 */
#ifndef WEIR_FAN_H
#define WEIR_FAN_H

#include "common/loop.h"
#include "pipes/msg.h"

#define FAN_CALLS_MAX	(1u << 18)	/* not yet ended */
#define FAN_BYTES_MAX	(256u << 20)	/* of frames not yet sent */
#define FAN_ABSENT_MS	2000		/* then nobody is there */

struct fan;

struct fan_ops {
	/* rc 0: m is a reply to the call made with `tag` (M_refused is rc 0
	 * as well: look at m->type); rc < 0: it ended without, m is NULL, and
	 * log_cause() says why (not printed: the caller knows the engine's
	 * name and whether it matters). */
	void (*reply)(void *arg, uint32_t receiver, uint64_t tag,
		      const struct msg *m, int rc);
	/* A reply that nobody waits for. */
	void (*stray)(void *arg, uint32_t receiver, const struct msg *m);
	/* The receiver's process went away (its open calls end first). */
	void (*lost)(void *arg, uint32_t receiver);
};

/* NULL: logged.  No callback may free the fan. */
struct fan *fan_new(struct loop *l, const struct fan_ops *ops, void *arg);
void fan_free(struct fan *f);
/* Says how many are going to be added: -E_CONFIG, naming limit and need, if
 * there are too few descriptors; `more` are what the caller needs beside, for
 * each (ZQ-11).  Before the first fan_add(). */
int fan_reserve(struct fan *f, size_t receivers, size_t more);
/* The next call's seq, when they must differ between instances. */
void fan_number_from(struct fan *f, uint64_t seq);
/* Receiver ids count from 0 in the order of adding.  Endpoints differ. */
int fan_add(struct fan *f, const char *endpoint);
/* Sends m (its seq field is set here) and arms the deadline.  Returns 0, or
 * -E_AGAIN at the bounds above, or -E_PROTO from the encoder; no callback
 * comes then.  tag comes back with every reply and with the end. */
int fan_call(struct fan *f, uint32_t receiver, struct msg *m, uint64_t tag,
	     uint32_t replies, uint64_t deadline_ms);
/* Ends all calls of a receiver silently; later replies are stray. */
void fan_forget(struct fan *f, uint32_t receiver);
/* Did the last calls end because nobody listens there, and does still nobody,
 * as far as we know? */
bool fan_is_absent(const struct fan *f, uint32_t receiver);

#endif
