/*
 * tcpstore.h - a torch TCPStore's server: what it holds and what it answers.
 *
 * A machine without sockets: bytes of a client in, bytes for clients out.  It
 * holds a few small values while a group of processes forms, and is strict:
 * what is malformed, over a bound or not needed for that ends its connection,
 * with the reason in peer->why.  A client of the current dialect validates
 * itself first.  A client that waits may only cancel that; one of 1.13 has no
 * way to, so there the next request does it.
 *
 * Memory: what all clients have sent and not been answered, and all keys and
 * values, are TCPSTORE_MEMORY_MAX at most; then who asks for more is refused.
 * tcpstore_io.h has the sockets and the deadline.  Pure.
 */
#ifndef WEIR_TCPSTORE_H
#define WEIR_TCPSTORE_H

#include "pipes/tcpstore_req.h"

#define TCPSTORE_KEYS_MAX 4096
#define TCPSTORE_PEERS_MAX 300		/* 1.13 makes two for each rank */
#define TCPSTORE_MEMORY_MAX (8u << 20)	/* bytes */
#define TCPSTORE_REPLY_MAX (128u << 10)	/* bytes */
/* Where clients count themselves. */
#define TCPSTORE_JOINED "init/"

struct tcpstore_peer {
	enum tcpstore_dialect dialect;
	bool valid;			/* it has said VALIDATE */
	struct buf in, out;		/* out: to be sent, by the owner */
	size_t need;			/* bytes of in that make a request */
	struct buf *missing;		/* keys it waits for; owned */
	size_t nmissing;
	char why[TCPSTORE_WHY_MAX];	/* it was refused */
};

struct tcpstore {
	struct tcpstore_entry {
		struct buf key, value;
	} *entry;
	size_t nentries, bytes;
	struct tcpstore_peer *peer[TCPSTORE_PEERS_MAX];
	size_t npeers;
	struct tcpstore_request now;
};

/* {0} is an empty one. */
void tcpstore_release(struct tcpstore *s);

/* NULL: there are TCPSTORE_PEERS_MAX. */
struct tcpstore_peer *tcpstore_join(struct tcpstore *s);
void tcpstore_leave(struct tcpstore *s, struct tcpstore_peer *p);

/* Takes what p sent; with nothing, goes on when p->out was emptied.  Any
 * peer's out may have grown then.  -E_PROTO: p is to leave; see p->why. */
int tcpstore_feed(struct tcpstore *s, struct tcpstore_peer *p,
		  struct slice bytes);

/* Our own, by the key on the wire: -E_NOMEM over a bound. */
int tcpstore_set(struct tcpstore *s, struct slice key, struct slice value);
/* NULL: no such key. */
const struct buf *tcpstore_get(const struct tcpstore *s, struct slice key);
/* How many clients have counted themselves. */
uint64_t tcpstore_joined(const struct tcpstore *s);

/* Calls fn for each key that somebody waits for, as often as it is. */
void tcpstore_each_missing(const struct tcpstore *s,
			   void (*fn)(void *arg, struct slice key), void *arg);

#endif
