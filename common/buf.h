/*
 * buf.h - memory vocabulary: slices, growing buffers, checked allocation.
 *
 * x*alloc never return NULL: out of memory prints one line and exits 71, or as
 * xnomem_act() says: one of the two places outside bin/ that may exit (STYLE
 * 3.3).  Sizes that come from outside must be bounded by the caller *before*
 * they get here.
 */
#ifndef WEIR_BUF_H
#define WEIR_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* How all of these end, and whoever asked a library for n bytes in vain (0: it
 * does not say for how many): said even in quiet threads, exit 71. */
_Noreturn void xnomem(size_t n);
/* For a process whose end is not its own affair: what it does first, without
 * allocating anything; returns the exit code.  Once.  NULL: nothing. */
void xnomem_act(int (*act)(void));
void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);		/* n * size is checked */
void *xreallocarray(void *p, size_t n, size_t size);
/* On the start of a page.  The kernel's copy is four times slower (Zen 3)
 * where the two sides lie differently within a line: what is read from, or
 * written to, some place of a file lies best at the same place of a page. */
void *xpages(size_t size);
#define XPAGE		((size_t)4096)
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Lent bytes, not terminated.  Dies with what it points into. */
struct slice {
	const char *p;
	size_t n;
};

#define SLICE_INIT(lit) { (lit), sizeof(lit) - 1 }	/* in a table */
#define SLICE(lit) ((struct slice)SLICE_INIT(lit))
/* for printf("%.*s", SLICE_ARG(s)) */
#define SLICE_ARG(s) ((int)(s).n), ((s).p ? (s).p : "")

/* What a noun takes after n of them: "%u bucket%s". */
static inline const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

struct slice slice_of(const char *s);
static inline bool slice_eq(struct slice a, struct slice b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
int slice_cmp(struct slice a, struct slice b);	/* bytewise, as memcmp */

/* Owned bytes that grow.  {0} is an empty one. */
struct buf {
	char *p;
	size_t n, cap;
};

void buf_release(struct buf *b);
void buf_clear(struct buf *b);			/* keeps the memory */
/* Room for n more bytes; returns where they go (b->n is not moved), never
 * NULL. */
char *buf_reserve(struct buf *b, size_t n);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_addf(struct buf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
const char *buf_cstr(struct buf *b);		/* terminated; lent */
struct slice buf_slice(const struct buf *b);

#endif
