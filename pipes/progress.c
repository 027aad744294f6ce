#include "progress.h"

#include "common/jsonsax.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_STRING_MAX 4096 /* bytes of one string in an event line */

struct seen {
	char key[32], event[32];
	char engine[PROGRESS_NAME_MAX], stage[16];
	uint64_t t_ns, version, wave, bytes, ms;
	uint64_t credit_buckets, credit_bytes, limit_buckets, limit_bytes;
};

static const struct {
	const char *key;
	size_t offset;
} numbers[] = {
	{ "t_ns", offsetof(struct seen, t_ns) },
	{ "version", offsetof(struct seen, version) },
	{ "wave", offsetof(struct seen, wave) },
	{ "bytes", offsetof(struct seen, bytes) },
	{ "ms", offsetof(struct seen, ms) },
	{ "credit_buckets", offsetof(struct seen, credit_buckets) },
	{ "credit_bytes", offsetof(struct seen, credit_bytes) },
	{ "limit_buckets", offsetof(struct seen, limit_buckets) },
	{ "limit_bytes", offsetof(struct seen, limit_bytes) },
};

static void keep(char *out, size_t size, struct slice text)
{
	size_t n = text.n < size - 1 ? text.n : size - 1;

	memcpy(out, text.p, n);
	out[n] = '\0';
}

static void take_string(struct seen *s, struct slice text)
{
	if (strcmp(s->key, "event") == 0)
		keep(s->event, sizeof s->event, text);
	else if (strcmp(s->key, "engine") == 0)
		keep(s->engine, sizeof s->engine, text);
	else if (strcmp(s->key, "stage") == 0)
		keep(s->stage, sizeof s->stage, text);
}

static void take_number(struct seen *s, struct slice text)
{
	uint64_t v;

	for (size_t i = 0; i < COUNT(numbers); i++) {
		if (strcmp(s->key, numbers[i].key) == 0 &&
		    json_uint(text, UINT64_MAX, &v) == 0)
			memcpy((char *)s + numbers[i].offset, &v, sizeof v);
	}
}

static int see(void *ctx, enum json_event ev, struct slice text)
{
	struct seen *s = ctx;

	if (ev == JSON_KEY)
		keep(s->key, sizeof s->key, text);
	else if (ev == JSON_STRING)
		take_string(s, text);
	else if (ev == JSON_NUMBER)
		take_number(s, text);
	return 0;
}

static bool parse(struct seen *s, struct slice line)
{
	struct json j = { 0 };
	int rc;

	*s = (struct seen){ 0 };
	json_begin(&j, LINE_STRING_MAX, see, s);
	rc = json_feed(&j, line.p, line.n);
	if (rc == 0)
		rc = json_end(&j);
	json_release(&j);
	return rc == 0 && s->event[0];
}

static void add_size(struct buf *out, uint64_t bytes)
{
	char size[UNITS_MAX];

	buf_addf(out, "%s", units_size(bytes, size));
}

static int on_opened(struct progress *p, const struct seen *s, struct buf *out)
{
	p->version = s->version;
	buf_addf(out,
		 "version %" PRIu64 ": %u engine%s, %u wave%s, %u bucket%s, ",
		 s->version, p->engines, plural(p->engines), p->waves,
		 plural(p->waves), p->buckets, plural(p->buckets));
	add_size(out, p->bytes);
	return 1;
}

static int on_granted(struct progress *p, const struct seen *s, struct buf *out)
{
	(void)out;
	if (p->first_ns == 0)
		p->first_ns = (int64_t)s->t_ns;
	p->wave = (uint32_t)s->wave;
	p->credit_buckets = s->credit_buckets;
	p->credit_bytes = s->credit_bytes;
	p->limit_buckets = s->limit_buckets;
	p->limit_bytes = s->limit_bytes;
	return 0;
}

static int on_acked(struct progress *p, const struct seen *s, struct buf *out)
{
	(void)out;
	p->acked++;
	p->moved_bytes += s->bytes;
	return 0;
}

static int on_released(struct progress *p, const struct seen *s,
		       struct buf *out)
{
	(void)out;
	p->credit_buckets = s->credit_buckets;
	p->credit_bytes = s->credit_bytes;
	return 0;
}

/* Is it the first time? */
static bool count(struct progress_who *w, const char *name)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (strcmp(w->name[i], name) == 0)
			return false;
	w->name = xreallocarray(w->name, w->n + 1, sizeof *w->name);
	w->name[w->n++] = xstrdup(name);
	return true;
}

static int on_sealed(struct progress *p, const struct seen *s, struct buf *out)
{
	if (!count(&p->sealing, s->engine))
		return 0;
	buf_addf(out, "%s holds version %" PRIu64 " (%u of %u)", s->engine,
		 p->version, p->sealing.n, p->engines);
	return 1;
}

static int on_decided(struct progress *p, const struct seen *s, struct buf *out)
{
	p->decided = true;
	buf_addf(out, "version %" PRIu64 " is decided", s->version);
	return 1;
}

static int on_swapped(struct progress *p, const struct seen *s, struct buf *out)
{
	if (!count(&p->swapping, s->engine))
		return 0;
	buf_addf(out, "%s serves version %" PRIu64 " (%u of %u)", s->engine,
		 p->version, p->swapping.n, p->engines);
	return 1;
}

static int on_restarted(struct progress *p, const struct seen *s,
			struct buf *out)
{
	(void)p;
	buf_addf(out, "weir-%s runs again", s->stage);
	return 1;
}

static const struct {
	const char *event;
	int (*fn)(struct progress *, const struct seen *, struct buf *);
} handlers[] = {
	{ "opened", on_opened },   { "granted", on_granted },
	{ "acked", on_acked },	   { "released", on_released },
	{ "sealed", on_sealed },   { "decided", on_decided },
	{ "swapped", on_swapped }, { "restarted", on_restarted },
};

int progress_line(struct progress *p, struct slice line, struct buf *out)
{
	struct seen s;

	if (!parse(&s, line))
		return 0;
	p->last_ns = (int64_t)s.t_ns;
	for (size_t i = 0; i < COUNT(handlers); i++) {
		if (strcmp(s.event, handlers[i].event) == 0)
			return handlers[i].fn(p, &s, out);
	}
	return 0;
}

/* Rounded up: while something is left, so is time. */
static int64_t whole_seconds(double s)
{
	return 1000 * (int64_t)(s < 1e9 ? s + 1 : 1e9);
}

static void add_rate(const struct progress *p, struct buf *out)
{
	double s = (double)(p->last_ns - p->first_ns) / 1e9;
	uint64_t total = p->bytes * (p->waves ? p->waves : 1);
	uint64_t left = total > p->moved_bytes ? total - p->moved_bytes : 0;
	char time[UNITS_MAX];
	double rate;

	if (p->first_ns == 0 || s <= 0 || p->moved_bytes == 0)
		return;
	rate = (double)p->moved_bytes / s;
	buf_addf(out, ", ");
	add_size(out, (uint64_t)rate);
	buf_addf(out, "/s");
	if (left)
		buf_addf(out, ", %s left",
			 units_time(whole_seconds((double)left / rate), time));
}

static void add_credit(const struct progress *p, struct buf *out)
{
	if (p->limit_buckets == 0 && p->limit_bytes == 0)
		return;
	buf_addf(out, ", credit ");
	if (p->limit_buckets)
		buf_addf(out, "%" PRIu64 "/%" PRIu64, p->credit_buckets,
			 p->limit_buckets);
	if (p->limit_buckets && p->limit_bytes)
		buf_addf(out, " ");
	if (p->limit_bytes) {
		add_size(out, p->credit_bytes);
		buf_addf(out, "/");
		add_size(out, p->limit_bytes);
	}
}

static void add_gauge(const struct progress *p, size_t cells, struct buf *out)
{
	uint64_t all = (uint64_t)p->buckets * (p->waves ? p->waves : 1);
	uint64_t full = all ? (uint64_t)p->acked * cells / all : 0;

	buf_addf(out, "[");
	for (uint64_t i = 0; i < cells; i++)
		buf_addf(out, i < full ? "#" : ".");
	buf_addf(out, "] ");
}

static void add_numbers(const struct progress *p, struct buf *out)
{
	buf_addf(out, "%u/%" PRIu64 " buckets, ", p->acked,
		 (uint64_t)p->buckets * (p->waves ? p->waves : 1));
	add_size(out, p->moved_bytes);
	add_rate(p, out);
	add_credit(p, out);
}

/* The gauge gets what the numbers leave. */
static void add_wave(const struct progress *p, size_t width, struct buf *out)
{
	enum { CELLS_MIN = 5, CELLS_MAX = 20, FRAME = 3 };
	struct buf told = { 0 };
	size_t start = out->n, used;

	add_numbers(p, &told);
	buf_addf(out, "v%" PRIu64 " wave %u/%u ", p->version, p->wave + 1,
		 p->waves);
	used = out->n - start + told.n + FRAME;
	if (used + CELLS_MIN <= width)
		add_gauge(p,
			  width - used < CELLS_MAX ? width - used : CELLS_MAX,
			  out);
	buf_add(out, told.p, told.n);
	buf_release(&told);
}

void progress_bar(const struct progress *p, unsigned width, struct buf *out)
{
	size_t start = out->n;

	if (p->version == 0)
		buf_addf(out, "weir: planning and probing");
	else if (p->decided)
		buf_addf(out,
			 "v%" PRIu64 " decided, %u of %u engine%s serve it",
			 p->version, p->swapping.n, p->engines,
			 plural(p->engines));
	else
		add_wave(p, width, out);
	if (out->n - start > width)
		out->n = start + width;
}

static void forget(struct progress_who *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		free(w->name[i]);
	free(w->name);
}

void progress_release(struct progress *p)
{
	forget(&p->sealing);
	forget(&p->swapping);
}
