#include "common/credit.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/wave.h"
#include "pipes/plan.h"
#include "pipes/plan_build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct shown {
	uint64_t bytes;
	bool exclusive;
};

struct show {
	const struct plan_conf *conf;
	const struct plan_input *in;
	struct buf buckets; /* struct shown, of each */
	uint32_t exclusive;
	struct m_end end;
	struct waves waves;
	struct credit credit; /* its peaks, for one wave */
	uint32_t windows;
};

static const struct m_part *largest_tensor(const struct m_bucket *b)
{
	const struct m_part *largest = NULL;

	for (uint32_t i = 0; i < b->parts.n; i++)
		if (b->parts.v[i].kind == PART_TENSOR &&
		    (!largest || b->parts.v[i].bytes > largest->bytes))
			largest = &b->parts.v[i];
	return largest;
}

static int take_bucket(void *arg, const struct m_bucket *b)
{
	struct show *s = arg;
	uint64_t limit = s->conf->limits.bytes;
	const struct shown shown = { b->bytes, b->exclusive };
	const struct m_part *t;

	buf_add(&s->buckets, &shown, sizeof shown);
	s->exclusive += b->exclusive;
	if (limit == 0 || b->bytes <= limit)
		return 0;
	t = largest_tensor(b);
	return log_error(E_DATA,
			 "bucket %u of %" PRIu64 " bytes (largest tensor "
			 "\"%.*s\" of %" PRIu64
			 ") exceeds --max-inflight-bytes "
			 "of %" PRIu64,
			 b->id, b->bytes, t ? (int)t->name.n : 0,
			 t ? t->name.p : "", t ? t->bytes : 0, limit);
}

/* Takes all buckets of a wave as early as credit allows: the peak. */
static void fill_credit(struct show *s)
{
	const struct shown *b = (const void *)s->buckets.p;
	struct credit_slot *slot = xcalloc(s->end.buckets, sizeof *slot);
	struct credit_key oldest = { 0 };
	uint64_t got;

	credit_init(&s->credit, s->conf->limits.buckets, s->conf->limits.bytes,
		    slot, s->end.buckets);
	for (uint32_t i = 0; i < s->end.buckets; i++) {
		struct credit_key k = { 0, i };

		if (credit_take(&s->credit, k, b[i].bytes, b[i].exclusive) == 0)
			continue;
		s->windows++;
		while (credit_take(&s->credit, k, b[i].bytes, b[i].exclusive)) {
			credit_finish(&s->credit, oldest);
			credit_release(&s->credit, &oldest, &got);
			oldest.bucket++;
		}
	}
	free(slot);
	s->credit.slot = NULL;
}

static uint64_t milliseconds(const struct show *s, uint32_t waves)
{
	__uint128_t ms =
		(__uint128_t)s->end.bytes * 1000 * waves / s->conf->rate;

	return ms > UINT64_MAX ? UINT64_MAX : (uint64_t)ms;
}

static void say_time(struct buf *b, uint64_t ms)
{
	buf_addf(b, "%" PRIu64 ".%03" PRIu64 " s", ms / 1000, ms % 1000);
}

static void say_wave(const struct show *s, struct buf *b, uint32_t i)
{
	uint32_t first, count;

	waves_get(&s->waves, i, &first, &count);
	buf_addf(b, "wave %u of %u:", i + 1, waves_count(&s->waves));
	for (uint32_t e = first; e < first + count; e++)
		buf_addf(b, " %s", s->in->fleet.engine[e].name);
	buf_addf(b,
		 "; %u bucket%s, %" PRIu64
		 " bytes to each; peak credit %" PRIu64 " bucket%s, %" PRIu64
		 " bytes%s; ",
		 s->end.buckets, plural(s->end.buckets), s->end.bytes,
		 s->credit.buckets.peak, plural(s->credit.buckets.peak),
		 s->credit.bytes.peak,
		 s->in->ranks.n > 1 ? " of the largest rank" : "");
	say_time(b, milliseconds(s, 1));
	buf_addf(b, "\n");
}

/* What worker r of each engine gets. */
static void say_rank(const struct source *s, uint32_t rank, struct buf *b)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->nfiles; i++)
		bytes += s->file[i].id.size;
	buf_addf(b, "rank %u: %s; %u file%s, %" PRIu64 " bytes\n", rank,
		 s->dir.real, s->nfiles, plural(s->nfiles), bytes);
}

static void say_all(const struct show *s, struct buf *b)
{
	bool window = s->conf->limits.order == ORDER_WINDOW;
	uint32_t waves = waves_count(&s->waves);
	const struct ranks *ranks = &s->in->ranks;

	buf_addf(b,
		 "plan: %u engine%s, %u bucket%s, %" PRIu64
		 " tensor%s, %" PRIu64 " bytes; transport %s, order %s\n",
		 s->end.engines, plural(s->end.engines), s->end.buckets,
		 plural(s->end.buckets), s->end.tensors, plural(s->end.tensors),
		 s->end.bytes, s->in->transport, window ? "window" : "wave");
	if (s->exclusive)
		buf_addf(b,
			 "routed experts: %u bucket%s, each with nothing "
			 "beside it\n",
			 s->exclusive, plural(s->exclusive));
	for (uint32_t r = 0; ranks->n > 1 && r < ranks->n; r++)
		say_rank(&ranks->source[r], r, b);
	for (uint32_t i = 0; i < waves; i++)
		say_wave(s, b, i);
	buf_addf(b, "total: %u wave%s, ", waves, plural(waves));
	say_time(b, milliseconds(s, waves));
	buf_addf(b, " at %" PRIu64 " bytes/s to each engine\n", s->conf->rate);
}

static int json_wave(const struct show *s, struct buf *b, uint32_t i)
{
	uint32_t first, count;
	struct jsonw j;

	waves_get(&s->waves, i, &first, &count);
	jsonw_begin(&j, b, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_u64(&j, "wave", i);
	jsonw_array(&j, "engines");
	for (uint32_t e = first; e < first + count; e++)
		jsonw_str(&j, NULL, s->in->fleet.engine[e].name);
	jsonw_end(&j);
	jsonw_u64(&j, "ranks", s->in->ranks.n);
	jsonw_u64(&j, "buckets", s->end.buckets);
	jsonw_u64(&j, "exclusive", s->exclusive);
	jsonw_u64(&j, "bytes", s->end.bytes);
	jsonw_u64(&j, "peak_credit_buckets", s->credit.buckets.peak);
	jsonw_u64(&j, "peak_credit_bytes", s->credit.bytes.peak);
	jsonw_u64(&j, "ms", milliseconds(s, 1));
	jsonw_end(&j);
	return jsonw_finish(&j);
}

static int write_out(const struct show *s)
{
	struct buf b = { 0 };
	int rc = 0;

	if (!s->conf->common.json)
		say_all(s, &b);
	else
		for (uint32_t i = 0; i < waves_count(&s->waves) && rc == 0; i++)
			rc = json_wave(s, &b, i);
	if (rc == 0)
		rc = io_write_full(STDOUT_FILENO, b.p, b.n);
	buf_release(&b);
	return rc < 0 ? rc : 0;
}

static int make_waves(struct show *s)
{
	const struct fleet *f = &s->in->fleet;

	return waves_init(&s->waves, fleet_staged(f), f->n,
			  (int64_t)s->conf->limits.groups);
}

int plan_show(const struct plan_conf *conf)
{
	struct plan_input in;
	struct show s = { .conf = conf, .in = &in };
	struct plan_output out = { .bucket = take_bucket, .arg = &s };
	int rc = plan_input_open(&in, conf, NULL);

	if (rc < 0)
		return rc;
	rc = make_waves(&s);
	if (rc == 0)
		rc = plan_build(&in, conf, &out, &s.end);
	if (rc == 0) {
		fill_credit(&s);
		rc = write_out(&s);
	}
	buf_release(&s.buckets);
	plan_input_release(&in);
	return rc;
}
