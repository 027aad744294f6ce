/*
 * doc.h - small JSON documents that others wrote: bodies of HTTP answers,
 * lists of tensors on a device.
 *
 * A tree in memory, so only for text that is bounded already; what may be
 * large goes through jsonsax.h.  Looking for what is not there gives NULL, and
 * every function takes NULL, so that a path is one expression:
 *
 *	doc_text(doc_at(doc_item(doc_at(d, "data"), 0), "id"))
 *
 * doc.c is the only includer of jansson.
 */
#ifndef WEIR_DOC_H
#define WEIR_DOC_H

#include "buf.h"

struct doc;

/* NULL: no JSON, or a key twice. */
struct doc *doc_parse(struct slice text);
void doc_free(struct doc *d);			/* of doc_parse() alone */

const struct doc *doc_at(const struct doc *d, const char *key);
const struct doc *doc_item(const struct doc *d, size_t i);
bool doc_is_list(const struct doc *d);
size_t doc_count(const struct doc *d);		/* items of an array */
const char *doc_text(const struct doc *d);	/* of a string; lent */
/* A whole number above 0; else 0. */
uint64_t doc_number(const struct doc *d);
/* A whole number, 0 or more; else false, and *out is untouched. */
bool doc_whole(const struct doc *d, uint64_t *out);
/* A key of an object that is none of these; NULL: there is no other. */
const char *doc_other_key(const struct doc *d, const char *const *known,
			  size_t n);
bool doc_is_true(const struct doc *d);
bool doc_is_false(const struct doc *d);
bool doc_is_null(const struct doc *d);		/* null, not absent */
/* Appended: compact, keys in order: equal documents, equal text. */
void doc_add_text(const struct doc *d, struct buf *out);
/* The same, every string, number and truth left out: what is named there. */
void doc_add_shape(const struct doc *d, struct buf *out);

#endif
