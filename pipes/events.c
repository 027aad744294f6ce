#include "pipes/events.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 8192 /* of one event; a summary may have more */

int events_open(struct events *e, int run_dirfd, enum stage_id stage,
		uint32_t instance, bool json)
{
	*e = (struct events){ .json = json, .stage = stage };
	e->instance = instance;
	e->max = EVENTS_MAX;
	e->fd = openat(run_dirfd, "events",
		       O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (e->fd < 0)
		log_warn("no events are told: %s", strerror(errno));
	return 0;
}

void events_close(struct events *e)
{
	if (e->fd >= 0)
		close(e->fd);
	buf_release(&e->line);
	e->fd = -1;
}

/* One write, so that lines of different stages do not mix. */
static void put(struct events *e)
{
	ssize_t w;

	if (e->json && io_write_full(STDERR_FILENO, e->line.p, e->line.n) < 0)
		e->json = false;
	if (e->fd < 0)
		return;
	do
		w = write(e->fd, e->line.p, e->line.n);
	while (w < 0 && errno == EINTR);
	e->told += w > 0 ? (uint64_t)w : 0;
	if (w == (ssize_t)e->line.n)
		return;
	log_warn("no further events are told: %s",
		 w < 0 ? strerror(errno) : "disk full");
	close(e->fd);
	e->fd = -1;
}

static void number(struct jsonw *j, const char *key, struct ev_number v)
{
	if (v.set)
		jsonw_u64(j, key, v.n);
}

static void common_fields(struct events *e, struct jsonw *j, const char *event)
{
	jsonw_u64(j, "t_ns", (uint64_t)clock_mono_ns());
	jsonw_u64(j, "wall_ms", (uint64_t)clock_wall_ms());
	jsonw_str(j, "stage", stage_name(e->stage));
	jsonw_u64(j, "instance", e->instance);
	jsonw_str(j, "event", event);
}

/* The boundaries are told to the end: they are few. */
static bool is_too_much(struct events *e, const struct happening *h)
{
	if (!h->bucket.set || e->told < e->max)
		return false;
	if (e->max)
		log_warn("no further buckets are told: %llu bytes of events",
			 (unsigned long long)e->told);
	e->max = 0;
	return true;
}

void events_tell(struct events *e, const struct happening *h)
{
	struct jsonw j;

	if (is_too_much(e, h))
		return;
	buf_clear(&e->line);
	jsonw_begin(&j, &e->line, LINE_MAX_BYTES);
	jsonw_object(&j, NULL);
	common_fields(e, &j, h->event);
	number(&j, "version", h->version);
	number(&j, "wave", h->wave);
	number(&j, "bucket", h->bucket);
	if (h->engine)
		jsonw_str(&j, "engine", h->engine);
	number(&j, "worker", h->worker);
	number(&j, "bytes", h->bytes);
	number(&j, "credit_buckets", h->credit_buckets);
	number(&j, "credit_bytes", h->credit_bytes);
	number(&j, "limit_buckets", h->limit_buckets);
	number(&j, "limit_bytes", h->limit_bytes);
	number(&j, "ms", h->ms);
	if (h->code)
		jsonw_i64(&j, "code", h->code);
	if (h->cause)
		jsonw_str(&j, "cause", h->cause);
	jsonw_end(&j);
	if (jsonw_finish(&j) == 0)
		put(e);
}

void events_summary(struct events *e, struct slice fields)
{
	struct jsonw j;

	buf_clear(&e->line);
	jsonw_begin(&j, &e->line, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	common_fields(e, &j, "summary");
	jsonw_end(&j);
	if (jsonw_finish(&j) < 0)
		return;
	/* The ready-made members go before the closing brace and newline. */
	e->line.n -= 2;
	if (fields.n)
		buf_addf(&e->line, ",%.*s", SLICE_ARG(fields));
	buf_add(&e->line, "}\n", 2);
	put(e);
}
