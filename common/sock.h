/*
 * sock.h - ZeroMQ sockets (the only includer of zmq.h).
 *
 * Only ROUTER and DEALER: patterns that block, never drop (ZQ-03).  Always
 * set: MANDATORY on routers, LINGER 0, MAXMSGSIZE, high-water marks, and
 * heartbeats, for which the dialling side asks.  One context per process,
 * made by the first socket and ended by sock_end(); no socket may be used
 * between fork and exec, and all descriptors are close-on-exec.  EINTR is
 * retried inside (ZQ-09).
 *
 * Ids of peers are the router's own making, so none is met again (ZQ-13), and
 * HANDOVER has nothing to hand over.
 *
 * A listener keeps SOCK_PEERS_MAX connections, or half as many as there are
 * descriptors left when it starts: libzmq accepts whoever comes, and aborts
 * when descriptors run out.  One more is shut at once, and logged.
 *
 * Endpoints: "ipc://PATH" (at most SOCK_PATH_MAX bytes of path; the file is
 * made with mode 0600 of an 0700 directory) and "inproc://NAME".  tcp:// is
 * refused until it can be done with CURVE.
 */
#ifndef WEIR_SOCK_H
#define WEIR_SOCK_H

#include "buf.h"
#include "log.h"
#include "sockpath.h"

#include <sys/types.h>

#define SOCK_HWM		1024	/* messages, each direction */
#define SOCK_ID_MAX		255	/* bytes of a routing id; ZMTP's limit */
#define SOCK_PEERS_MAX		256	/* connections to one listener */
#define SOCK_HEARTBEAT_MS	2000
/* A peer that was stopped (TM-02) must find its connections alive; a dead
 * one is seen by the end of its socket at once. */
#define SOCK_HEARTBEAT_TIMEOUT_MS 60000

/* Makes the context and its threads before the first socket needs them: they
 * cost a stage a millisecond that its neighbours would wait for. */
int sock_warm(void);

/* {0} is a closed one. */
struct sock {
	void *zmq, *monitor;
	struct sockpath file;	/* that we listen at */
	uint64_t dropped;	/* multipart messages */
	size_t peers, peers_max; /* of a listener; monitored */
	struct log_few shut;
};

#define SOCK_NO_USER ((uid_t)-1)

/* A peer on a router, by its routing id. */
struct sock_peer {
	uint8_t n;
	unsigned char id[SOCK_ID_MAX];
	uid_t uid; /* received: whose it is, the kernel's word; SOCK_NO_USER:
		    * there is no Unix socket between us */
};

/* Binds; frame_max bounds what a peer may send (larger: disconnected).  A
 * dead process's socket file is replaced, a live one's never (-E_AGAIN); what
 * is no socket is left alone (-E_CONFIG). */
int sock_listen(struct sock *s, const char *endpoint, size_t frame_max);
/* One connection to one peer, reconnecting for ever in the background. */
int sock_dial(struct sock *s, const char *endpoint, size_t frame_max);
/* A router that dials many: sock_fan_add() names each peer itself. */
int sock_fan(struct sock *s, size_t frame_max);
int sock_fan_add(struct sock *s, const char *endpoint,
		 const struct sock_peer *name);
/* Does anybody listen there just now?  The kernel's word: news of connections
 * come by a thread, which may be late. */
bool sock_has_listener(const char *endpoint);
/* Closes at once; what is queued is dropped.  Fine on a zeroed one. */
void sock_close(struct sock *s);
/* The same, but what is queued for peers that read still goes out: sock_end()
 * waits for it, for at most ms. */
void sock_finish(struct sock *s, int ms);
void sock_end(void);

/* 0; -E_AGAIN at the high-water mark; -E_UNAVAIL: no such peer.  Neither is
 * logged.  to is NULL on a dialled socket.  Frames for a peer that is not
 * connected wait inside: send after SOCK_UP (ZQ-05). */
int sock_send(struct sock *s, const struct sock_peer *to, struct slice frame);
/* 1 and a frame in out (cleared first), 0 if none waits.  Multipart messages
 * are dropped and counted.  from may be NULL if dialled. */
int sock_recv(struct sock *s, struct sock_peer *from, struct buf *out);

/* What happened to connections that we dialled, oldest first: somebody listens
 * there (a fan only: a stopped process does, a dead one does not), the
 * endpoint is there (handshake done), or it was lost (also after a failed
 * handshake: be ready for SOCK_LOST without SOCK_UP).  Frames that came before
 * a loss can be received when it is told: read them first.  Only for sock_dial
 * and sock_fan; endpoint as it was given. */
enum sock_news { SOCK_QUIET, SOCK_REACHED, SOCK_UP, SOCK_LOST };
enum sock_news sock_news(struct sock *s, char *endpoint, size_t size);

/* poll(2) over descriptors and sockets: exactly one of fd/s is set (fd < 0:
 * s).  ready is set for readable; for a sock also when sock_news may say
 * something.  out asks for writability of an fd as well. */
struct sock_poll {
	struct sock *s;
	int fd;
	bool want_out, ready, ready_out;
};
/* timeout_ms < 0 waits for ever.  Count of ready ones, 0 at the time-out. */
int sock_poll(struct sock_poll *v, size_t n, int64_t timeout_ms);

#endif
