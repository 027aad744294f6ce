/*
 * names.h - very many names, sorted at 8 bytes each: which are equal?
 *
 * The names stay where they are; a callback reaches them by number.  They are
 * sorted by hash, then bytewise, and only names of one hash are looked at for
 * it: a million of them lie in no cache.  The order means nothing to people.
 * O(n log n) whatever the names are.  Pure.
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

#define NAMES_NONE UINT32_MAX
/* in_b[i], for each number i of a: the number in b of the same name, any if b
 * has it twice, or NAMES_NONE. */
void names_join(const struct names *a, const struct names *b, uint32_t *in_b);

#endif
