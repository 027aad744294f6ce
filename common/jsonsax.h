/*
 * jsonsax.h - a strict JSON reader that is fed chunks and reports events.
 *
 * RFC 8259 and nothing beside it: no comments, no trailing commas, no second
 * document, no byte order mark, well-formed UTF-8 only, escapes of lone
 * surrogates refused.  Numbers stay text, so that integers are exact.  Text
 * may hold NUL (from \u0000): who wants C strings refuses it.  Two equal keys
 * of one object are the caller's to find: only it knows which it remembers.
 *
 * json_allow_python() takes what Python's json writes beside that: NaN, Infinity
 * and -Infinity are numbers.  For documents that others read with it only.
 *
 * Memory: one string, at most string_max bytes; never the document.  Nesting
 * is bounded by JSON_DEPTH_MAX.  Pure: no I/O, nothing logged.
 *
 * (yajl was tried: it takes overlong and surrogate UTF-8, turns a lone \ud800
 * into "?", and nests without a limit.)
 */
#ifndef WEIR_JSONSAX_H
#define WEIR_JSONSAX_H

#include "utf8.h"

#define JSON_DEPTH_MAX 64	/* objects and arrays inside one another */

enum json_event {
	JSON_OBJECT, JSON_OBJECT_END,
	JSON_ARRAY, JSON_ARRAY_END,
	JSON_KEY, JSON_STRING, JSON_NUMBER,
	JSON_TRUE, JSON_FALSE, JSON_NULL,
	JSON_NEVENTS
};

/* text: of keys, strings and numbers, never NULL; lent for the call.  Returns 0, or a
 * negative E_* (logged by who returns it) that stops the reader. */
typedef int json_fn(void *ctx, enum json_event ev, struct slice text);

/* One member of an object whose values are texts; both lent for the call.
 * 0, or a negative E_* (logged by who returns it). */
typedef int json_pair_fn(void *ctx, struct slice key, struct slice value);

struct json {
	json_fn *fn;
	void *ctx;
	struct buf text;	/* of the string or number being read */
	size_t string_max;
	uint64_t offset;	/* bytes read so far, or of the error */
	uint64_t objects;	/* bit d: level d is an object */
	unsigned depth;
	unsigned state;
	unsigned cp, high;	/* \u escape; the first half of a pair */
	unsigned left;		/* digits of \u that must still come */
	struct utf8 utf8;
	bool is_key, is_python;
	const char *word;	/* what must still come of a literal */
	enum json_event word_event;
	const char *error;
	int rc;
};

void json_begin(struct json *j, size_t string_max, json_fn *fn, void *ctx);
void json_allow_python(struct json *j);	/* before it is fed */
/* 0; -E_DATA with json_error() set and nothing logged; or fn's error.  After
 * a failure the same comes back until json_begin. */
int json_feed(struct json *j, const void *p, size_t n);
/* The input ends here: -E_DATA if the document does not. */
int json_end(struct json *j);
void json_release(struct json *j);

/* Why the text is no JSON, or NULL if fn stopped; where: byte offset. */
const char *json_error(const struct json *j);
uint64_t json_offset(const struct json *j);

/* "an object", "a string" ... for messages. */
const char *json_event_name(enum json_event ev);
/* A number's text as an integer of 0..max: digits only.  -E_DATA, unlogged */
int json_uint(struct slice text, uint64_t max, uint64_t *out);

#endif
