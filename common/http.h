/*
 * http.h - asks one HTTP server, one request at a time, on the event loop.
 *
 * Every request has two deadlines (connected by, whole by) and bounds for
 * head and body of the answer, so that a server that is slow, silent,
 * trickles or floods costs time and memory that are known before.  Each
 * request has a connection of its own: an idle one that the server is just
 * closing would make libcurl send a request twice, unasked.  No redirect is
 * followed, and nothing is tried again here.  Servers are asked directly,
 * whatever http_proxy says; WEIR_HTTP_PROXY names a proxy that is meant.
 *
 * An answer is no judgement: what a status means is the caller's.  http.c is
 * the only includer of curl.
 */
#ifndef WEIR_HTTP_H
#define WEIR_HTTP_H

#include "buf.h"
#include "loop.h"

#define HTTP_BODY_MAX	(1u << 20)	/* bytes of an answer's body */
#define HTTP_HEAD_MAX	(64u << 10)	/* ... of its head */
#define HTTP_CONNECT_MS	5000
#define HTTP_WHY_MAX	320
#define HTTP_TOKEN_MAX	4096		/* bytes of a key file */

struct http;

struct http_request {
	const char *method, *path;	/* "POST", "/pause?mode=keep" */
	struct slice body;		/* JSON; empty: none */
	int64_t ms;			/* whole; connecting: HTTP_CONNECT_MS */
	uint32_t most;			/* bytes of body; 0: HTTP_BODY_MAX */
};

struct http_reply {
	/* 0: there is a whole answer.  -E_UNAVAIL: not connected.
	 * -E_TIMEOUT, -E_IO, -E_PROTO (over a bound, no HTTP). */
	int rc;
	bool sent;			/* the server may have acted on it */
	bool refused;			/* nobody listens there */
	long status;
	struct slice body;		/* lent for the call */
	const char *location;		/* of a redirect, or NULL; lent */
	const char *why;		/* of rc < 0; lent */
};

typedef void http_fn(void *arg, const struct http_reply *r);

/* url: http[s]://HOST[:PORT][/BASE].  token: sent as Authorization: Bearer,
 * or NULL.  Both copied.  NULL, logged: libcurl cannot be loaded. */
struct http *http_new(struct loop *l, const char *url, const char *token);
/* An open request ends unanswered.  NULL is fine. */
void http_free(struct http *h);
/* fn is called once, never from inside; then it may call http_call() and
 * http_free().  A second request before that: a BUG. */
void http_call(struct http *h, const struct http_request *q, http_fn *fn,
	       void *arg);
/* The open request ends unanswered; the server may act on it all the same. */
void http_cancel(struct http *h);
bool http_is_busy(const struct http *h);
/* Our address on the last connection, as text; NULL: none was made. */
const char *http_here(const struct http *h);

/* The one line of a key file: -E_PERM if others may read it, -E_DATA if it is
 * no single line of graphic characters.  *out is owned. */
int http_token_read(const char *path, char **out);

#endif
