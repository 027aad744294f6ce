/* net.h - sockets and connections: what net.c and sock.c share. */
#ifndef WEIR_SIM_NET_H
#define WEIR_SIM_NET_H

#include "common/sock.h"
#include "sim.h"

#define IPC "ipc://"

struct conn;

struct frame {
	struct frame *next;
	struct conn *conn;
	const void *conn_name; /* tells its turns apart */
	uint64_t turn;	       /* of the connection */
	bool to_dialler, held, late; /* late: it would have arrived */
	int64_t due;
	size_t n;
	char p[];
};

struct vsock {
	struct vsock *next;
	struct proc *owner;
	struct sock *sock;
	bool listens, fans;
	struct node *node;
	char path[SOCK_PATH_MAX + 1];
	struct conn *conns; /* dialled */
	struct frame *in, **in_end;
	struct {
		enum sock_news what;
		struct conn *conn;
	} * news;
	size_t nnews, news_cap;
};

enum conn_state { C_TRIES, C_REACHED, C_UP };

struct conn {
	struct conn *next, *every;
	struct vsock *from, *to; /* to: the listener, while it is up */
	char endpoint[SOCK_PATH_MAX + 8];
	struct sock_peer name, id; /* of the listener by us; of us by it */
	enum conn_state state;
	bool closed, holds[2]; /* ... frames to the listener; the dialler */
	uint64_t turn;
	int64_t retry_ms, last[2], stalled;
	struct frame *under_way, *kept;
	size_t waiting[2]; /* frames to the dialler; to the listener */
};

extern struct vsock *net_socks;
extern struct conn *net_conns;

/* A name of the connection until it is lost. */
const void *net_turn(const struct conn *c);
struct frame *net_frame(struct conn *c, bool to_dialler, struct slice s);
void net_send(struct conn *c, struct frame *f);
void net_frames_free(struct frame *f);
struct conn *net_dial(struct vsock *from, const char *endpoint,
		      const struct sock_peer *name);
/* The rest of it stays until the seed's end: events may point to it. */
void net_close(struct vsock *v);
/* What was said to an engine, to be heard once more. */
void net_remember(struct conn *c, struct slice frame);
bool net_is_ghost(const struct conn *c);

#endif
