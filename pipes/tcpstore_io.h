/*
 * tcpstore_io.h - a tcpstore at one TCP address, on the event loop.
 *
 * It lives while one group of processes forms, and no longer than its
 * deadline.  Nobody authenticates: whoever reaches the port may take part, so
 * it holds nothing but what the group needs, and the address is a private
 * one's.  A client that is refused is closed and logged (a few of them); the
 * others go on.
 */
#ifndef WEIR_TCPSTORE_IO_H
#define WEIR_TCPSTORE_IO_H

#include "common/loop.h"
#include "pipes/tcpstore.h"

struct tcpstore_io;

struct tcpstore_conf {
	const char *host;		/* lent until closed */
	uint16_t port;			/* 0: any */
	int64_t ms;			/* until it is over */
	/* Something changed: who has joined, or what is waited for. */
	void (*news)(void *arg);
	/* The deadline passed; free it then, or later. */
	void (*over)(void *arg);
	void *arg;
};

/* 0 or -E_*, logged.  Not called back from inside. */
int tcpstore_io_open(struct tcpstore_io **out, struct loop *l,
		     const struct tcpstore_conf *conf);
/* All connections end.  NULL is fine; also from inside of over and news. */
void tcpstore_io_free(struct tcpstore_io *io);

uint16_t tcpstore_io_port(const struct tcpstore_io *io);
/* To look at; to change: */
const struct tcpstore *tcpstore_io_store(const struct tcpstore_io *io);
int tcpstore_io_set(struct tcpstore_io *io, struct slice key,
		    struct slice value);

#endif
