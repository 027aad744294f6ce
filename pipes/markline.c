#include "pipes/markline.h"
#include "common/err.h"
#include "common/jsonflat.h"
#include "common/jsonw.h"
#include "common/log.h"

#include <stddef.h>
#include <string.h>

enum kind { number, text, digest };

static const struct {
	const char *key;
	enum kind kind;
	size_t at;
} keys[] = {
#define X(key, kind) { #key, kind, offsetof(struct markline, key) },
	MARK_LIST(X)
#undef X
};
_Static_assert(MARK_NKEYS <= 32, "a bit of has for each");

static void add_value(struct jsonw *j, const struct markline *m, unsigned k)
{
	const char *p = (const char *)m + keys[k].at;

	switch (keys[k].kind) {
	case number:
		jsonw_u64(j, keys[k].key, *(const uint64_t *)(const void *)p);
		break;
	case text:
		jsonw_slice(j, keys[k].key,
			    *(const struct slice *)(const void *)p);
		break;
	case digest:
		jsonw_hex(j, keys[k].key, ((const struct digest *)p)->b,
			  DIGEST_LEN);
		break;
	}
}

void markline_add(struct buf *out, const struct markline *m)
{
	struct jsonw j;

	jsonw_begin(&j, out, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	for (unsigned k = 0; k < MARK_NKEYS; k++)
		if (m->has >> k & 1)
			add_value(&j, m, k);
	jsonw_end(&j);
	BUG_ON(jsonw_finish(&j) < 0);
}

void markline_end(struct buf *out, uint64_t n)
{
	struct markline m = { .has = MARK_BIT(end), .end = n };

	markline_add(out, &m);
}

struct reader {
	const char *name;
	uint64_t line;
	struct markline m;
	struct buf texts; /* as long as the line: it never moves */
};

static int bad(const struct reader *r, const char *what)
{
	return log_error(E_DATA, "%s: line %llu: %s", r->name,
			 (unsigned long long)r->line + 1, what);
}

static int take_value(struct reader *r, unsigned k, struct slice value)
{
	char *p = (char *)&r->m + keys[k].at;

	switch (keys[k].kind) {
	case number:
		return json_uint(value, UINT64_MAX, (uint64_t *)(void *)p);
	case digest:
		return digest_parse(value.p, value.n, (struct digest *)p);
	default:
		buf_add(&r->texts, value.p, value.n);
		*(struct slice *)(void *)p =
			(struct slice){ r->texts.p + r->texts.n - value.n,
					value.n };
		return 0;
	}
}

static int on_pair(void *ctx, struct slice key, struct slice value)
{
	struct reader *r = ctx;
	unsigned k = 0;

	while (k < MARK_NKEYS && !slice_eq(key, slice_of(keys[k].key)))
		k++;
	if (k == MARK_NKEYS)
		return bad(r, "an unknown key");
	if (r->m.has >> k & 1)
		return bad(r, "a key twice");
	r->m.has |= UINT32_C(1) << k;
	if (take_value(r, k, value) < 0)
		return bad(r, "a value that is not what its key says");
	return 0;
}

static int read_line(struct reader *r, struct slice line)
{
	const char *why = NULL;
	int rc;

	r->m = (struct markline){ 0 };
	buf_clear(&r->texts);
	buf_reserve(&r->texts, line.n);
	rc = jsonflat_read(line, on_pair, r, &why);
	return rc < 0 && why ? bad(r, why) : rc;
}

/* The next line without its end; false if there is none, or no end. */
static bool cut_line(struct slice *rest, struct slice *line)
{
	const char *nl = rest->n ? memchr(rest->p, '\n', rest->n) : NULL;

	if (!nl)
		return false;
	*line = (struct slice){ rest->p, (size_t)(nl - rest->p) };
	rest->p += line->n + 1;
	rest->n -= line->n + 1;
	return true;
}

static int read_lines(struct reader *r, struct slice rest, markline_fn *fn,
		      void *ctx)
{
	struct slice line;

	for (; cut_line(&rest, &line); r->line++) {
		int rc = read_line(r, line);

		if (rc == 0 && r->m.has & MARK_BIT(end)) {
			if (r->m.has != MARK_BIT(end) || r->m.end != r->line ||
			    rest.n)
				return bad(r, "an end that is not the end");
			return 0;
		}
		if (rc == 0)
			rc = fn(ctx, &r->m);
		if (rc < 0)
			return rc;
	}
	return bad(r, "expected the end line: the file was cut");
}

int markline_read(const char *name, struct slice in, markline_fn *fn, void *ctx)
{
	struct reader r = { .name = name };
	int rc = read_lines(&r, in, fn, ctx);

	buf_release(&r.texts);
	return rc;
}
