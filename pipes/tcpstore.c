#include "pipes/tcpstore.h"
#include "common/err.h"
#include "common/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { READY, NOT_READY };
enum { STOP_WAITING, WAIT_CANCELED };

LOG_PRINTF(2, 3)
static int refuse(struct tcpstore_peer *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->why, sizeof p->why, fmt, ap);
	va_end(ap);
	return -E_PROTO;
}

/* ---- keys and values ---- */

static struct tcpstore_entry *find(const struct tcpstore *s, struct slice key)
{
	for (size_t i = 0; i < s->nentries; i++)
		if (slice_eq(buf_slice(&s->entry[i].key), key))
			return &s->entry[i];
	return NULL;
}

static size_t memory_of(const struct tcpstore *s)
{
	size_t n = s->bytes;

	for (size_t i = 0; i < s->npeers; i++) {
		const struct tcpstore_peer *p = s->peer[i];

		n += p->in.n + p->out.n;
		for (size_t k = 0; k < p->nmissing; k++)
			n += p->missing[k].n;
	}
	return n;
}

static struct tcpstore_entry *add_entry(struct tcpstore *s, struct slice key)
{
	struct tcpstore_entry *e;

	s->entry = xreallocarray(s->entry, s->nentries + 1, sizeof *s->entry);
	e = &s->entry[s->nentries++];
	*e = (struct tcpstore_entry){ 0 };
	buf_add(&e->key, key.p, key.n);
	s->bytes += key.n;
	return e;
}

static void drop_entry(struct tcpstore *s, struct tcpstore_entry *e)
{
	s->bytes -= e->key.n + e->value.n;
	buf_release(&e->key);
	buf_release(&e->value);
	*e = s->entry[--s->nentries];
}

/* ---- who waits ---- */

static void stop_waiting(struct tcpstore_peer *p)
{
	for (size_t i = 0; i < p->nmissing; i++)
		buf_release(&p->missing[i]);
	free(p->missing);
	p->missing = NULL;
	p->nmissing = 0;
}

static void add_byte(struct tcpstore_peer *p, unsigned char b)
{
	buf_add(&p->out, &b, 1);
}

static void wake(struct tcpstore_peer *p, struct slice key)
{
	size_t kept = 0;

	if (p->nmissing == 0)
		return;
	for (size_t i = 0; i < p->nmissing; i++) {
		if (slice_eq(buf_slice(&p->missing[i]), key))
			buf_release(&p->missing[i]);
		else
			p->missing[kept++] = p->missing[i];
	}
	p->nmissing = kept;
	if (kept > 0)
		return;
	stop_waiting(p);
	add_byte(p, STOP_WAITING);
}

static int put(struct tcpstore *s, struct slice key, struct slice value,
	       bool append)
{
	struct tcpstore_entry *e = find(s, key);
	size_t had = e ? e->value.n : 0, base = append ? had : 0;

	if (base + value.n > TCPSTORE_VALUE_MAX ||
	    (!e && s->nentries >= TCPSTORE_KEYS_MAX) ||
	    memory_of(s) + key.n + value.n > TCPSTORE_MEMORY_MAX)
		return -E_NOMEM;
	if (!e)
		e = add_entry(s, key);
	if (!append)
		buf_clear(&e->value);
	buf_add(&e->value, value.p, value.n);
	s->bytes += e->value.n - had;
	for (size_t i = 0; i < s->npeers; i++)
		wake(s->peer[i], key);
	return 0;
}

int tcpstore_set(struct tcpstore *s, struct slice key, struct slice value)
{
	return put(s, key, value, false);
}

const struct buf *tcpstore_get(const struct tcpstore *s, struct slice key)
{
	const struct tcpstore_entry *e = find(s, key);

	return e ? &e->value : NULL;
}

/* ---- answers ---- */

static void add_number(struct tcpstore_peer *p, uint64_t v, size_t size)
{
	for (size_t i = 0; i < size; i++)
		add_byte(p, (unsigned char)(v >> 8 * i));
}

static void add_bytes(struct tcpstore_peer *p, struct slice v)
{
	add_number(p, v.n, 8);
	buf_add(&p->out, v.p, v.n);
}

static struct slice value_of(const struct tcpstore *s, struct slice key)
{
	const struct buf *v = tcpstore_get(s, key);

	return v ? buf_slice(v) : SLICE("");
}

static int put_for(struct tcpstore *s, struct tcpstore_peer *p,
		   struct slice key, struct slice value, bool append)
{
	if (put(s, key, value, append) == 0)
		return 0;
	return refuse(p, "%s: no room", tcpstore_query_name(s->now.query));
}

static int answer_validate(struct tcpstore *s, struct tcpstore_peer *p)
{
	(void)s;
	if (p->valid)
		return refuse(p, "it validates itself twice");
	p->valid = true;
	return 0;
}

static int answer_set(struct tcpstore *s, struct tcpstore_peer *p)
{
	return put_for(s, p, s->now.item[0], s->now.item[1], false);
}

static int answer_append(struct tcpstore *s, struct tcpstore_peer *p)
{
	return put_for(s, p, s->now.item[0], s->now.item[1], true);
}

static int answer_multi_set(struct tcpstore *s, struct tcpstore_peer *p)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->now.n; i += 2)
		rc = put_for(s, p, s->now.item[i], s->now.item[i + 1], false);
	return rc;
}

/* The old value is answered if it is not the expected one; a key that is not
 * there is expected to be empty. */
static int answer_compare_set(struct tcpstore *s, struct tcpstore_peer *p)
{
	const struct slice *a = s->now.item;
	const struct buf *v = tcpstore_get(s, a[0]);
	int rc;

	if (v && !slice_eq(buf_slice(v), a[1])) {
		add_bytes(p, buf_slice(v));
		return 0;
	}
	if (!v && a[1].n > 0) {
		add_bytes(p, a[1]);
		return 0;
	}
	rc = put_for(s, p, a[0], a[2], false);
	if (rc == 0)
		add_bytes(p, a[2]);
	return rc;
}

static int answer_get(struct tcpstore *s, struct tcpstore_peer *p)
{
	add_bytes(p, value_of(s, s->now.item[0]));
	return 0;
}

static int answer_multi_get(struct tcpstore *s, struct tcpstore_peer *p)
{
	size_t size = 8 * s->now.n;

	for (size_t i = 0; i < s->now.n; i++)
		size += value_of(s, s->now.item[i]).n;
	if (size > TCPSTORE_REPLY_MAX)
		return refuse(p, "MULTI_GET of %zu bytes, more than %u", size,
			      TCPSTORE_REPLY_MAX);
	for (size_t i = 0; i < s->now.n; i++)
		add_bytes(p, value_of(s, s->now.item[i]));
	return 0;
}

static bool read_number(const struct buf *v, int64_t *out)
{
	char text[24], *end;

	if (v->n == 0 || v->n >= sizeof text)
		return false;
	memcpy(text, v->p, v->n);
	text[v->n] = '\0';
	errno = 0;
	*out = strtoll(text, &end, 10);
	return errno == 0 && end == text + v->n;
}

static int answer_add(struct tcpstore *s, struct tcpstore_peer *p)
{
	const struct buf *v = tcpstore_get(s, s->now.item[0]);
	int64_t sum = 0;
	char text[24];
	int rc;

	if (v && !read_number(v, &sum))
		return refuse(p, "ADD to what is no number");
	if (__builtin_add_overflow(sum, (int64_t)s->now.number, &sum))
		return refuse(p, "ADD over 64 bits");
	snprintf(text, sizeof text, "%" PRId64, sum);
	rc = put_for(s, p, s->now.item[0], slice_of(text), false);
	if (rc == 0)
		add_number(p, (uint64_t)sum, 8);
	return rc;
}

static bool has_all(const struct tcpstore *s)
{
	for (size_t i = 0; i < s->now.n; i++)
		if (!find(s, s->now.item[i]))
			return false;
	return true;
}

static int answer_check(struct tcpstore *s, struct tcpstore_peer *p)
{
	add_byte(p, has_all(s) ? READY : NOT_READY);
	return 0;
}

static int answer_wait(struct tcpstore *s, struct tcpstore_peer *p)
{
	if (has_all(s)) {
		add_byte(p, STOP_WAITING);
		return 0;
	}
	p->missing = xcalloc(s->now.n, sizeof *p->missing);
	for (size_t i = 0; i < s->now.n; i++)
		if (!find(s, s->now.item[i]))
			buf_add(&p->missing[p->nmissing++], s->now.item[i].p,
				s->now.item[i].n);
	return 0;
}

/* Also after the wait has ended: the client reads both. */
static int answer_cancel_wait(struct tcpstore *s, struct tcpstore_peer *p)
{
	(void)s;
	stop_waiting(p);
	add_byte(p, WAIT_CANCELED);
	return 0;
}

static int answer_getnumkeys(struct tcpstore *s, struct tcpstore_peer *p)
{
	add_number(p, s->nentries, 8);
	return 0;
}

static int answer_delete_key(struct tcpstore *s, struct tcpstore_peer *p)
{
	struct tcpstore_entry *e = find(s, s->now.item[0]);

	add_number(p, e != NULL, 8);
	if (e)
		drop_entry(s, e);
	return 0;
}

static int answer_ping(struct tcpstore *s, struct tcpstore_peer *p)
{
	add_number(p, s->now.number, 4);
	return 0;
}

static int (*const answer[])(struct tcpstore *, struct tcpstore_peer *) = {
	[TQ_VALIDATE] = answer_validate,
	[TQ_SET] = answer_set,
	[TQ_COMPARE_SET] = answer_compare_set,
	[TQ_GET] = answer_get,
	[TQ_ADD] = answer_add,
	[TQ_CHECK] = answer_check,
	[TQ_WAIT] = answer_wait,
	[TQ_GETNUMKEYS] = answer_getnumkeys,
	[TQ_DELETE_KEY] = answer_delete_key,
	[TQ_APPEND] = answer_append,
	[TQ_MULTI_GET] = answer_multi_get,
	[TQ_MULTI_SET] = answer_multi_set,
	[TQ_CANCEL_WAIT] = answer_cancel_wait,
	[TQ_PING] = answer_ping,
};
static_assert(COUNT(answer) == TQ_N, "every query has an answer");

/* ---- peers ---- */

struct tcpstore_peer *tcpstore_join(struct tcpstore *s)
{
	struct tcpstore_peer *p;

	if (s->npeers == TCPSTORE_PEERS_MAX)
		return NULL;
	p = xcalloc(1, sizeof *p);
	s->peer[s->npeers++] = p;
	return p;
}

void tcpstore_leave(struct tcpstore *s, struct tcpstore_peer *p)
{
	size_t i = 0;

	while (s->peer[i] != p)
		i++;
	s->peer[i] = s->peer[--s->npeers];
	stop_waiting(p);
	buf_release(&p->in);
	buf_release(&p->out);
	free(p);
}

void tcpstore_release(struct tcpstore *s)
{
	while (s->npeers > 0)
		tcpstore_leave(s, s->peer[0]);
	while (s->nentries > 0)
		drop_entry(s, &s->entry[0]);
	free(s->entry);
	*s = (struct tcpstore){ 0 };
}

static int answer_one(struct tcpstore *s, struct tcpstore_peer *p)
{
	enum tcpstore_query q = s->now.query;

	if (p->nmissing > 0 && p->dialect == TD_CURRENT && q != TQ_CANCEL_WAIT)
		return refuse(p, "%s while it waits for a key",
			      tcpstore_query_name(q));
	stop_waiting(p);
	return answer[q](s, p);
}

/* 1: one more request is answered; 0: there is none, or no room to. */
static int take_request(struct tcpstore *s, struct tcpstore_peer *p,
			size_t *done)
{
	struct slice in = { p->in.p + *done, p->in.n - *done };
	int rc;

	if (in.n < p->need || p->out.n >= TCPSTORE_REPLY_MAX)
		return 0;
	rc = tcpstore_request_parse(&s->now, &p->dialect, in, &p->need, p->why);
	if (rc <= 0)
		return rc;
	p->need = 0;
	*done += s->now.size;
	rc = answer_one(s, p);
	return rc < 0 ? rc : 1;
}

int tcpstore_feed(struct tcpstore *s, struct tcpstore_peer *p,
		  struct slice bytes)
{
	size_t done = 0;
	int rc = 1;

	if (memory_of(s) + bytes.n > TCPSTORE_MEMORY_MAX)
		return refuse(p, "the store's %u bytes are full",
			      TCPSTORE_MEMORY_MAX);
	buf_add(&p->in, bytes.p, bytes.n);
	while (rc > 0 && done < p->in.n)
		rc = take_request(s, p, &done);
	p->in.n -= done;
	if (done > 0)
		memmove(p->in.p, p->in.p + done, p->in.n);
	if (p->in.n == 0)
		buf_release(&p->in);
	if (rc >= 0 && p->in.n >= TCPSTORE_REQUEST_MAX)
		return refuse(p, "it sends on, and reads no answer");
	return rc < 0 ? rc : 0;
}

uint64_t tcpstore_joined(const struct tcpstore *s)
{
	const struct buf *v = tcpstore_get(s, SLICE(TCPSTORE_JOINED));
	int64_t n;

	return v && read_number(v, &n) && n > 0 ? (uint64_t)n : 0;
}

void tcpstore_each_missing(const struct tcpstore *s,
			   void (*fn)(void *arg, struct slice key), void *arg)
{
	for (size_t i = 0; i < s->npeers; i++)
		for (size_t k = 0; k < s->peer[i]->nmissing; k++)
			fn(arg, buf_slice(&s->peer[i]->missing[k]));
}
