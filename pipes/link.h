/*
 * link.h - the connection to one neighbour, both ways.
 *
 * The downstream stage dials, the upstream one listens; the side is named by
 * where the peer is (UP: we dial).  The dialler says hello whenever it is
 * connected, and is answered with hello: then the link is up at both ends,
 * and both tell what the other must know, for what was sent before may be
 * lost.  `hello` and `bye` must keep their form in every version: a peer with
 * another table is told so before anything else is sent (UX-11).
 *
 * Refused: another table or run, the wrong stage, and an instance older than
 * the newest seen (I10).  A refused peer gets `bye` with 76.
 *
 * Life: `beat` when nothing else was said for LINK_BEAT_MS; a peer that says
 * nothing for the silence limit is lost, and up again when it speaks.
 */
#ifndef WEIR_LINK_H
#define WEIR_LINK_H

#include "common/loop.h"
#include "pipes/msg.h"

#define LINK_BEAT_MS	400
#define LINK_QUEUE_MAX	65536	/* frames that wait for the peer to read */
#define LINK_BYTES_MAX	(256u << 20)	/* of those frames */
#define LINK_FLUSH_MS	5

enum dir { UP, DOWN };		/* towards plan, towards commit */

struct link_ops {
	/* The peer said hello (again); NULL: the same, after a silence. */
	void (*up)(void *arg, enum dir d, const struct m_hello *peer);
	/* It was up. */
	void (*lost)(void *arg, enum dir d, const char *why);
	/* Anything but hello and beat; `bye` also from a peer that refuses
	 * us. */
	void (*msg)(void *arg, enum dir d, const struct msg *m);
	/* The peer does not speak our language, rc is -E_PROTO (logged). */
	void (*broken)(void *arg, enum dir d, int rc);
};

struct link {
	enum dir dir;
	struct loop *loop;
	const struct link_ops *ops;
	void *arg;
	const struct m_hello *hello;	/* ours, lent; may change */
	int64_t silence_ms;
	/* below: link.c's own */
	struct sock sock;
	bool open, connected, known, up;	/* connected: UP only */
	struct sock_peer peer;		/* DOWN: whose hello we took */
	uint32_t instance;		/* newest seen */
	int64_t seen_ms, sent_ms;
	struct slice *queue;
	size_t head, queued, cap, queued_bytes;
	struct loop_timer flush;
	struct msg_arena arena;
	struct buf in, out;
	struct log_few refusals;
};

/* The fields above "link.c's own" are set by the caller, the rest zeroed. */
int link_listen(struct link *l, const char *endpoint);
/* Leaves the endpoint dialled before, if any (lost() is called if it was
 * up).  Not from a callback of the link's. */
int link_dial(struct link *l, const char *endpoint);
/* Silently; fine on a zeroed one. */
void link_close(struct link *l);

/* 0, queued perhaps; -E_AGAIN, not logged, if the link is not up; -E_PROTO
 * from the encoder. */
int link_send(struct link *l, const struct msg *m);
int link_send_frame(struct link *l, struct slice frame);
/* Now and then: sends beats, judges silence. */
void link_tick(struct link *l);
/* We were stopped: the peer's silence was ours. */
void link_forgive(struct link *l);

#endif
