/*
 * names.h - the order of very many names, at 8 bytes each.
 *
 * The names stay where they are; a callback reaches them by number.  The
 * order is by hash, then bytewise, so that comparing seldom touches a name:
 * it finds equal names and joins two sets (step through both with
 * names_cmp()), and means nothing to people.  O(n log n) whatever the names
 * are.  Pure.
 */
#ifndef WEIR_NAMES_H
#define WEIR_NAMES_H

#include "buf.h"

typedef struct slice names_fn(const void *ctx, uint32_t i);

struct names {
	names_fn *get;
	const void *ctx;	/* lent until names_release */
	uint64_t *key;		/* sorted: hash and number */
	uint32_t n;
};

void names_sort(struct names *t, names_fn *get, const void *ctx, uint32_t n);
void names_release(struct names *t);

/* The number, as get() takes it, and the name in place k of the order. */
uint32_t names_id(const struct names *t, uint32_t k);
struct slice names_at(const struct names *t, uint32_t k);

/* <, =, > 0 as a's place ka comes before, with or after b's place kb. */
int names_cmp(const struct names *a, uint32_t ka, const struct names *b,
	      uint32_t kb);
/* Is a name there twice?  The numbers of the two, smaller first. */
bool names_find_twice(const struct names *t, uint32_t *first,
		      uint32_t *second);

#endif
