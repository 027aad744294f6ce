/*
 * jsonw.h - writing JSON: one object a line, for --json, events and ledgers.
 *
 *	jsonw_begin(&j, &out, JSONW_LINE_MAX);
 *	jsonw_object(&j, NULL);
 *	jsonw_str(&j, "event", "opened");
 *	jsonw_u64(&j, "version", 7);
 *	jsonw_end(&j);
 *	rc = jsonw_finish(&j);		adds the newline
 *
 * Bounded: a line that would exceed its limit is taken back whole, and
 * jsonw_finish() says so; nothing is ever cut in the middle.  A wrong nesting
 * or a key in the wrong place is a BUG.  Text may be any bytes: invalid
 * UTF-8 becomes U+FFFD, so that readers never choke.  Numbers are integers;
 * units go into the key ("pause_us").  No I/O, no locale.
 */
#ifndef WEIR_JSONW_H
#define WEIR_JSONW_H

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSONW_DEPTH_MAX	8	/* objects and arrays in each other */
#define JSONW_LINE_MAX	(1u << 20)	/* bytes; as a frame's limit */

struct jsonw {
	struct buf *out;	/* lent */
	size_t start, max;
	unsigned depth;
	uint8_t is_array[JSONW_DEPTH_MAX];
	bool comma;		/* the next value needs one before it */
	bool full;		/* over max: all further calls do nothing */
};

/* Appends to out, at most max bytes. */
void jsonw_begin(struct jsonw *j, struct buf *out, size_t max);
/* Closes the line.  0, or -E_DATA (logged) if it was longer than max: then
 * out is as it was before jsonw_begin(). */
int jsonw_finish(struct jsonw *j);

/* key is NULL in arrays and for the outermost value, else not. */
void jsonw_object(struct jsonw *j, const char *key);
void jsonw_array(struct jsonw *j, const char *key);
void jsonw_end(struct jsonw *j);		/* of the innermost of both */
void jsonw_str(struct jsonw *j, const char *key, const char *s);
void jsonw_slice(struct jsonw *j, const char *key, struct slice s);
void jsonw_u64(struct jsonw *j, const char *key, uint64_t v);
void jsonw_i64(struct jsonw *j, const char *key, int64_t v);
void jsonw_bool(struct jsonw *j, const char *key, bool v);
void jsonw_null(struct jsonw *j, const char *key);
/* n bytes as 2n lower-case hexadecimal digits: digests. */
void jsonw_hex(struct jsonw *j, const char *key, const uint8_t *p, size_t n);

/* Appends s as a JSON string, quotes and all, to what others write. */
void jsonw_quote(struct buf *out, struct slice s);

#endif
