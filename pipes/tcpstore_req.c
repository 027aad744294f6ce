#include "pipes/tcpstore_req.h"
#include "common/err.h"
#include "common/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#define MAGIC 0x3c85f7ceu

/* Arguments: k a key, v a value, 4 and 8 an integer of as many bytes, K a list
 * of keys, P a list of keys with their values. */
static const struct shape {
	const char *name, *args;
} shapes[] = {
	[TQ_VALIDATE] = { "VALIDATE", "4" },
	[TQ_SET] = { "SET", "kv" },
	[TQ_COMPARE_SET] = { "COMPARE_SET", "kvv" },
	[TQ_GET] = { "GET", "k" },
	[TQ_ADD] = { "ADD", "k8" },
	[TQ_CHECK] = { "CHECK", "K" },
	[TQ_WAIT] = { "WAIT", "K" },
	[TQ_GETNUMKEYS] = { "GETNUMKEYS", "" },
	[TQ_DELETE_KEY] = { "DELETE_KEY", "k" },
	[TQ_APPEND] = { "APPEND", "kv" },
	[TQ_MULTI_GET] = { "MULTI_GET", "K" },
	[TQ_MULTI_SET] = { "MULTI_SET", "P" },
	[TQ_CANCEL_WAIT] = { "CANCEL_WAIT", "" },
	[TQ_PING] = { "PING", "4" },
};
static_assert(COUNT(shapes) == TQ_N, "every query has a shape");

/* What a number stands for, or why it is refused. */
struct number {
	enum tcpstore_query query;
	const char *refused;
};

static const struct number current[] = {
	{ TQ_VALIDATE, NULL },	  { TQ_SET, NULL },
	{ TQ_COMPARE_SET, NULL }, { TQ_GET, NULL },
	{ TQ_ADD, NULL },	  { TQ_CHECK, NULL },
	{ TQ_WAIT, NULL },	  { TQ_GETNUMKEYS, NULL },
	{ TQ_DELETE_KEY, NULL },  { TQ_APPEND, NULL },
	{ TQ_MULTI_GET, NULL },	  { TQ_MULTI_SET, NULL },
	{ TQ_CANCEL_WAIT, NULL }, { TQ_PING, NULL },
	{ TQ_N, "QUEUE_PUSH" },	  { TQ_N, "QUEUE_POP" },
	{ TQ_N, "QUEUE_LEN" },	  { TQ_N, "LIST_KEYS" },
	{ TQ_N, "BARRIER" },
};

static const struct number in_1_13[] = {
	{ TQ_SET, NULL },	 { TQ_COMPARE_SET, NULL },
	{ TQ_GET, NULL },	 { TQ_ADD, NULL },
	{ TQ_CHECK, NULL },	 { TQ_WAIT, NULL },
	{ TQ_GETNUMKEYS, NULL }, { TQ_N, "WATCH_KEY" },
	{ TQ_DELETE_KEY, NULL },
};

const char *tcpstore_query_name(enum tcpstore_query q)
{
	return shapes[q].name;
}

/* ---- what is left of the bytes ---- */

struct cursor {
	struct slice in;
	size_t at;
	size_t need; /* 0: enough so far */
	char *why;
	bool bad;
};

LOG_PRINTF(2, 3)
static bool refuse(struct cursor *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->why, TCPSTORE_WHY_MAX, fmt, ap);
	va_end(ap);
	c->bad = true;
	return false;
}

static bool has(struct cursor *c, uint64_t n)
{
	if (n > TCPSTORE_REQUEST_MAX - c->at)
		return refuse(c, "a request of more than %u bytes",
			      TCPSTORE_REQUEST_MAX);
	if (n <= c->in.n - c->at)
		return true;
	c->need = c->at + (size_t)n;
	return false;
}

static bool take_number(struct cursor *c, size_t size, uint64_t *out)
{
	uint64_t v = 0;

	if (!has(c, size))
		return false;
	for (size_t i = 0; i < size; i++)
		v |= (uint64_t)(unsigned char)c->in.p[c->at + i] << 8 * i;
	c->at += size;
	*out = v;
	return true;
}

static bool take_bytes(struct cursor *c, const char *what, uint64_t max,
		       struct slice *out)
{
	uint64_t n;

	if (!take_number(c, 8, &n))
		return false;
	if (n > max)
		return refuse(c, "a %s of %llu bytes, more than %llu", what,
			      (unsigned long long)n, (unsigned long long)max);
	if (!has(c, n))
		return false;
	*out = (struct slice){ c->in.p + c->at, (size_t)n };
	c->at += (size_t)n;
	return true;
}

/* ---- arguments ---- */

static bool take_item(struct cursor *c, struct tcpstore_request *r, char kind)
{
	bool is_key = kind == 'k';

	if (!take_bytes(c, is_key ? "key" : "value",
			is_key ? TCPSTORE_KEY_MAX : TCPSTORE_VALUE_MAX,
			&r->item[r->n]))
		return false;
	r->n++;
	return true;
}

static bool take_list(struct cursor *c, struct tcpstore_request *r, bool pairs)
{
	uint64_t n;

	if (!take_number(c, 8, &n))
		return false;
	if (n > TCPSTORE_LIST_MAX)
		return refuse(c, "a list of %llu keys, more than %d",
			      (unsigned long long)n, TCPSTORE_LIST_MAX);
	for (; n > 0; n--)
		if (!take_item(c, r, 'k') || (pairs && !take_item(c, r, 'v')))
			return false;
	return true;
}

static bool take_argument(struct cursor *c, struct tcpstore_request *r,
			  char kind)
{
	switch (kind) {
	case '4':
		return take_number(c, 4, &r->number);
	case '8':
		return take_number(c, 8, &r->number);
	case 'K':
		return take_list(c, r, false);
	case 'P':
		return take_list(c, r, true);
	default:
		return take_item(c, r, kind);
	}
}

/* ---- requests ---- */

/* A 1.13 client may begin with SET, number 0 there: then a length follows,
 * whose bound the magic number is far above. */
static bool tell_dialect(struct cursor *c, enum tcpstore_dialect *dialect)
{
	uint64_t magic;

	if (!has(c, 1))
		return false;
	if (c->in.p[0] != 0) {
		*dialect = TD_1_13;
		return true;
	}
	c->at = 1;
	if (!take_number(c, 4, &magic))
		return false;
	c->at = 0;
	if (magic > TCPSTORE_KEY_MAX && magic != MAGIC)
		return refuse(c,
			      "it opens with 0x%08llx, not with torch's "
			      "0x%08x",
			      (unsigned long long)magic, MAGIC);
	*dialect = magic == MAGIC ? TD_CURRENT : TD_1_13;
	return true;
}

static bool take_query(struct cursor *c, enum tcpstore_dialect dialect,
		       enum tcpstore_query *out)
{
	const struct number *t = dialect == TD_CURRENT ? current : in_1_13;
	size_t n = dialect == TD_CURRENT ? COUNT(current) : COUNT(in_1_13);
	uint64_t number;

	if (!take_number(c, 1, &number))
		return false;
	if (number >= n)
		return refuse(c, "query %llu is unknown",
			      (unsigned long long)number);
	if (t[number].refused)
		return refuse(c, "%s is not served here", t[number].refused);
	*out = t[number].query;
	return true;
}

int tcpstore_request_parse(struct tcpstore_request *r,
			   enum tcpstore_dialect *dialect, struct slice in,
			   size_t *need, char why[TCPSTORE_WHY_MAX])
{
	struct cursor c = { .in = in, .why = why };
	bool whole = *dialect != TD_UNKNOWN || tell_dialect(&c, dialect);
	const char *args;

	r->n = 0;
	r->number = 0;
	whole = whole && take_query(&c, *dialect, &r->query);
	args = whole ? shapes[r->query].args : "";
	for (; whole && *args; args++)
		whole = take_argument(&c, r, *args);
	if (c.bad)
		return -E_PROTO;
	if (!whole) {
		*need = c.need;
		return 0;
	}
	r->size = c.at;
	return 1;
}
