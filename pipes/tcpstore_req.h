/*
 * tcpstore_req.h - one request of a client of torch's TCPStore, from bytes.
 *
 * Two dialects that number the same queries differently; the first bytes of a
 * connection tell them apart (share/doc/interop.md says where each was read):
 *
 *	current	opens with VALIDATE and torch's magic number
 *	1.13	(to 2.0) opens with any other query
 *
 * A request is a byte, the query's number, then its arguments: integers are
 * little endian, a key or value is a u64 length and its bytes, a list a u64
 * count and its items.  Nothing tells how long a request is: a partial one
 * says how many bytes must be there before it is worth another look.  Pure.
 */
#ifndef WEIR_TCPSTORE_REQ_H
#define WEIR_TCPSTORE_REQ_H

#include "common/buf.h"

#define TCPSTORE_KEY_MAX 1024		/* bytes */
#define TCPSTORE_VALUE_MAX (64u << 10)	/* bytes */
#define TCPSTORE_LIST_MAX 256		/* keys, or keys with values */
#define TCPSTORE_REQUEST_MAX (128u << 10) /* bytes */
#define TCPSTORE_WHY_MAX 256		/* bytes */

enum tcpstore_query {
	TQ_VALIDATE, TQ_SET, TQ_COMPARE_SET, TQ_GET, TQ_ADD, TQ_CHECK, TQ_WAIT,
	TQ_GETNUMKEYS, TQ_DELETE_KEY, TQ_APPEND, TQ_MULTI_GET, TQ_MULTI_SET,
	TQ_CANCEL_WAIT, TQ_PING,
	TQ_N
};
const char *tcpstore_query_name(enum tcpstore_query q);

enum tcpstore_dialect { TD_UNKNOWN, TD_CURRENT, TD_1_13 };

struct tcpstore_request {
	enum tcpstore_query query;
	/* Keys and values in their order; they borrow from the bytes. */
	struct slice item[2 * TCPSTORE_LIST_MAX];
	size_t n;
	uint64_t number;		/* delta, nonce, magic */
	size_t size;			/* bytes of the request */
};

/* 1: *r is whole.  0: partial; *need is more than in.n.  -E_PROTO, and why:
 * no such request, refused by its name, or over a bound.  *dialect is set by
 * the first bytes. */
int tcpstore_request_parse(struct tcpstore_request *r,
			   enum tcpstore_dialect *dialect, struct slice in,
			   size_t *need, char why[TCPSTORE_WHY_MAX]);

#endif
