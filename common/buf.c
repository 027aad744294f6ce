#include "buf.h"
#include "err.h"
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*last_act)(void);

void xnomem_act(int (*act)(void))
{
	last_act = act;
}

void xnomem(size_t n)
{
	int (*act)(void) = last_act;

	last_act = NULL;
	log_quiet_thread(0); /* nobody is left who could report it */
	if (n > 0)
		log_error(E_NOMEM, "out of memory: %zu bytes", n);
	else
		log_error(E_NOMEM, "out of memory");
	exit(act ? act() : err_exit_code(-E_NOMEM));
}

static void *check(void *p, size_t n)
{
	if (!p && n > 0)
		xnomem(n);
	return p;
}

void *xmalloc(size_t size)
{
	return check(malloc(size ? size : 1), size ? size : 1);
}

void *xpages(size_t size)
{
	void *p = NULL;

	if (posix_memalign(&p, XPAGE, size) != 0)
		p = NULL;
	return check(p, size);
}

void *xcalloc(size_t n, size_t size)
{
	return check(calloc(n ? n : 1, size ? size : 1), 1);
}

void *xreallocarray(void *p, size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		BUG("allocation of %zu times %zu bytes", n, size);
	return check(realloc(p, total ? total : 1), total ? total : 1);
}

char *xstrndup(const char *s, size_t n)
{
	char *d = xmalloc(n + 1);

	memcpy(d, s, n);
	d[n] = '\0';
	return d;
}

char *xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap, again;
	char *s;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	BUG_ON(n < 0);
	s = xmalloc((size_t)n + 1);
	vsnprintf(s, (size_t)n + 1, fmt, again);
	va_end(again);
	return s;
}

struct slice slice_of(const char *s)
{
	return (struct slice){ s, strlen(s) };
}

int slice_cmp(struct slice a, struct slice b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int c = n ? memcmp(a.p, b.p, n) : 0;

	if (c)
		return c;
	return (a.n > b.n) - (a.n < b.n);
}

void buf_release(struct buf *b)
{
	free(b->p);
	*b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
	b->n = 0;
}

char *buf_reserve(struct buf *b, size_t n)
{
	size_t need, cap = b->cap ? b->cap : 64;

	if (__builtin_add_overflow(b->n, n, &need))
		BUG("buffer of %zu + %zu bytes", b->n, n);
	if (b->p && need <= b->cap)
		return b->p + b->n;
	while (cap < need)
		cap += cap / 2;
	b->p = xreallocarray(b->p, cap, 1);
	b->cap = cap;
	return b->p + b->n;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	char *to;

	if (n == 0)
		return;
	to = n < b->cap - b->n ? b->p + b->n : buf_reserve(b, n);
	memcpy(to, p, n);
	b->n += n;
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	BUG_ON(n < 0);
	vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
	va_end(again);
	b->n += (size_t)n;
}

const char *buf_cstr(struct buf *b)
{
	*buf_reserve(b, 1) = '\0';
	return b->p;
}

struct slice buf_slice(const struct buf *b)
{
	return (struct slice){ b->p, b->n };
}
