/* What an answer means, and what the rows of the dialects share. */
#include "pipes/en_http.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/utf8.h"
#include "pipes/store_dir.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- for rows ---- */

int http_say(struct http_engine *h, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->why, sizeof h->why, fmt, ap);
	va_end(ap);
	return rc;
}

int64_t http_left_ms(const struct http_engine *h)
{
	int64_t left = h->job[0].due_ms - clock_mono_ms();

	return left > 0 ? left : 1;
}

const char *http_load_path(const struct http_engine *h, char out[ENGINE_PATH])
{
	const struct engine *e = h->e;
	char name[STORE_NAME_SIZE];

	if (h->job[0].call == EC_ABORT)
		return e->live.previous;
	if (e->alone)
		return alone_path(e, out);
	/* The store serves it already when a swap comes to load. */
	store_name(name, h->job[0].call == EC_SWAP ? "versions" : "staging",
		   e->goal->version);
	snprintf(out, ENGINE_PATH, "%.4000s/%s", e->part[0].facts.store, name);
	return out;
}

/* The number in canonical form, or 0. */
static uint64_t number_of(const char *text)
{
	unsigned long long n;
	char again[24], *end;

	if (text[0] < '1' || text[0] > '9')
		return 0;
	n = strtoull(text, &end, 10);
	snprintf(again, sizeof again, "%llu", n);
	return *end || strcmp(again, text) ? 0 : n;
}

int http_take_label(struct http_engine *h, const struct doc *label)
{
	const char *text = doc_text(label);
	struct buf b = { 0 };

	h->label = 0;
	if (!label || (text && strcmp(text, "default") == 0))
		return 0;
	h->label = text ? number_of(text) : 0;
	if (h->label)
		return 0;
	doc_add_text(label, &b);
	http_say(h, -E_DATA,
		 "its weight version is %.100s: expected a whole number, as a "
		 "string",
		 buf_cstr(&b));
	buf_release(&b);
	return -E_DATA;
}

int http_take_told(struct http_engine *h, const struct doc *label)
{
	int rc = http_take_label(h, label);

	if (rc < 0 || http_is_told(h))
		return rc;
	return http_say(h, -E_PROTO, "it says done, but tells version %llu",
			(unsigned long long)h->label);
}

bool http_is_told(const struct http_engine *h)
{
	return h->label == h->e->goal->version;
}

bool http_is_paused(const struct http_engine *h)
{
	return h->paused;
}

bool http_is_running(const struct http_engine *h)
{
	return !h->paused;
}

bool http_is_loaded(const struct http_engine *h)
{
	char path[ENGINE_PATH];

	return strcmp(h->path, http_load_path(h, path)) == 0;
}

bool http_has_loaded(const struct http_engine *h)
{
	return !h->told_before && http_is_loaded(h);
}

int http_take_held(struct http_engine *h, const struct doc *d)
{
	(void)d;
	h->paused = true;
	return 0;
}

int http_check_still(struct http_engine *h)
{
	if (h->paused)
		return 0;
	h->e->live.loaded = false;
	return http_say(h, -E_UNAVAIL,
			"it is not paused any more: was it restarted, or does "
			"another push use it?");
}

void http_no_body(const struct http_engine *h, struct jsonw *j)
{
	(void)h;
	(void)j;
}

static void sum_of(const struct doc *d, struct digest *out)
{
	struct buf b = { 0 };

	doc_add_text(d, &b);
	digest_of(b.p, b.n, out);
	buf_release(&b);
}

void http_take_start(struct http_engine *h, const struct doc *start)
{
	char hex[DIGEST_HEX];
	struct digest d;

	if (!start || doc_is_null(start))
		return;
	sum_of(start, &d);
	digest_hex(&d, hex);
	if (h->start[0] && strcmp(h->start, hex) != 0)
		h->e->part[0].reborn = true;
	memcpy(h->start, hex, sizeof hex);
}

int http_check_model(struct http_engine *h, const char *served)
{
	const char *want = h->e->goal->model;

	if (!want || !want[0] || served[0] == '/' || strcmp(want, served) == 0)
		return 0;
	return http_say(h, -E_CONFIG,
			"it serves \"%.100s\", the fleet's model "
			"is \"%.100s\"",
			served, want);
}

int http_check_architecture(struct http_engine *h, const struct doc *all)
{
	const char *want = h->e->goal->architecture;
	const char *has = doc_text(doc_item(all, 0));

	if (!want || !has || strcmp(want, has) == 0)
		return 0;
	return http_say(h, -E_CONFIG,
			"it is a %.100s, config.json is of a %.100s; --expect "
			"any publishes another model",
			has, want);
}

int http_check_quantization(struct http_engine *h)
{
	const char *const *known = h->d->reloads;
	const char *want = h->e->goal->quantization;

	if (!want)
		return 0;
	for (; *known; known++)
		if (strcmp(*known, want) == 0)
			return 0;
	return http_say(h, -E_CONFIG,
			"config.json is of weights quantized by %.60s, which "
			"%s is not known to load again (share/doc/interop.md); "
			"--expect any tries",
			want, h->d->name);
}

void http_offer(struct http_engine *h, enum load_proof p)
{
	if (p > h->e->live.offers)
		h->e->live.offers = (uint8_t)p;
}

static void shape_of(const struct doc *d, struct digest *out)
{
	struct buf b = { 0 };

	doc_add_shape(d, &b);
	digest_of(b.p, b.n, out);
	buf_release(&b);
}

void http_take_sum(struct http_engine *h, const struct doc *sums,
		   const struct doc *layout)
{
	struct engine_live *l = &h->e->live;

	if (!sums || doc_is_null(sums))
		return;
	l->proof = LOAD_CHECKED;
	sum_of(sums, &l->sum);
	shape_of(layout, &l->layout);
}

const char *http_sample(const struct http_engine *h)
{
	const char *const *name = h->e->goal->sample;

	if (!name || h->e->live.proof == LOAD_CHECKED)
		return NULL;
	return name[h->turn];
}

unsigned http_samples(const struct http_engine *h)
{
	(void)h;
	return LOAD_SAMPLES;
}

/* Of those that it has given: all in one sum, each place in one layout. */
void http_take_sample(struct http_engine *h, const struct doc *values)
{
	struct engine_live *l = &h->e->live;
	struct digest all[2] = { { { 0 } } };

	if (l->proof == LOAD_SAMPLED)
		all[0] = l->sum;
	else
		memset(&l->layout, 0, sizeof l->layout);
	sum_of(values, &all[1]);
	digest_of(all, sizeof all, &l->sum);
	l->layout.b[0] |= (unsigned char)(1u << h->turn);
	l->proof = LOAD_SAMPLED;
}

uint32_t http_ranks(const struct doc *d)
{
	uint64_t n = doc_number(d);

	return n < NCCL_RANKS_MAX ? (uint32_t)n : NCCL_RANKS_MAX;
}

int http_check_ranks(struct http_engine *h, const char *but)
{
	uint32_t n = h->e->live.ranks;

	if (n > 0 && n < NCCL_RANKS_MAX)
		return 0;
	return http_say(h, -E_CONFIG,
			"its group would be of %u workers: 1 to %d%s can be "
			"broadcast to",
			n, NCCL_RANKS_MAX - 1, but);
}

/* ---- what is wanted ---- */

bool http_keeps_requests(const struct http_engine *h)
{
	return !h->e->goal->abort_requests;
}

bool http_aborts_requests(const struct http_engine *h)
{
	return h->e->goal->abort_requests;
}

bool http_may_pull(const struct http_engine *h)
{
	return h->e->pull;
}

bool http_pulls(const struct http_engine *h)
{
	return engine_pulls(h->e);
}

bool http_casts(const struct http_engine *h)
{
	return engine_casts(h->e);
}

bool http_casts_now(const struct http_engine *h)
{
	return h->job[0].call == EC_LOAD && engine_casts(h->e);
}

bool http_loads_now(const struct http_engine *h)
{
	return !http_casts_now(h);
}

bool http_has_sample(const struct http_engine *h)
{
	return http_sample(h);
}

uint32_t http_groups(const struct http_engine *h)
{
	uint32_t n = h->e->live.groups.n;

	return n > 0 && http_casts_now(h) ? n - 1 : n;
}

bool http_is_grouped(const struct http_engine *h)
{
	return http_groups(h) > 0;
}

bool http_must_end(const struct http_engine *h)
{
	return engine_casts(h->e) && h->e->goal->quantization;
}

/* ---- judging an answer ---- */

void http_cite(const struct http_reply *r, char out[HTTP_CITED])
{
	char text[HTTP_CITE + 1];
	size_t n = r->body.n < HTTP_CITE ? r->body.n : HTTP_CITE, k = 0;

	for (size_t i = 0; i < n;) {
		size_t len = utf8_print_len(r->body.p + i, r->body.n - i);

		if (len == 0 || k + len > HTTP_CITE) {
			text[k++] = ' ';
			i++;
			continue;
		}
		memcpy(text + k, r->body.p + i, len);
		k += len;
		i += len;
	}
	text[k] = '\0';
	snprintf(out, HTTP_CITED, "%ld: %s", r->status, k ? text : "(nothing)");
}

static enum http_op op_of(const struct http_engine *h)
{
	return h->asking ? h->asking : *h->script;
}

const struct http_row *http_row_of(const struct http_engine *h)
{
	return &h->d->row[op_of(h)];
}

static int says_one(const struct http_row *row, const struct doc *d)
{
	const struct doc *m = doc_at(d, row->key);
	const char *text = doc_text(m);

	if (!m)
		return 0;
	if (row->want)
		return text && strcmp(text, row->want) == 0 ? 1 : -1;
	return doc_is_true(m) ? 1 : -1;
}

/* 1: the body says yes, -1: no, 0: neither.  Of a list, one for each rank, the
 * worst counts. */
static int says(const struct http_row *row, const struct doc *d)
{
	size_t n = doc_count(d);
	int worst = 1;

	if (n == 0)
		return says_one(row, d);
	for (size_t i = 0; i < n; i++) {
		int one = says_one(row, doc_item(d, i));

		worst = one < worst ? one : worst;
	}
	return worst;
}

/* What it says instead of a document. */
static void cite_also(struct http_engine *h, const char *said)
{
	char why[ENGINE_CAUSE / 4];

	snprintf(why, sizeof why, "%.180s", h->why);
	http_say(h, 0, "%s (%s)", why, said);
}

static enum http_verdict judge_ok(struct http_engine *h,
				  const struct http_row *row,
				  const struct doc *d, int *rc)
{
	int yes = row->key ? says(row, d) : 1;
	char said[HTTP_CITED];

	if (yes <= 0)
		return yes < 0 ? V_FAILED : V_UNKNOWN;
	snprintf(said, sizeof said, "%.*s", HTTP_CITED - 1, h->why);
	*rc = row->take ? row->take(h, d) : 0;
	if (*rc == 0)
		return V_DONE;
	if (!d)
		cite_also(h, said);
	return row->patient && *rc == -E_AGAIN ? V_BUSY : V_FAILED;
}

/* It has no time for us. */
static bool is_overloaded(long status)
{
	return status == 429 || status == 503;
}

int http_refusal(long status)
{
	if (status == 401 || status == 403)
		return -E_PERM;
	return is_overloaded(status) ? -E_UNAVAIL : -E_IO;
}

static bool is_lacking(const struct http_row *row, long status)
{
	if (strcmp(row->method, "OPTIONS") == 0)
		return status == 404;
	return status == 404 || status == 405 || status == 501;
}

static enum http_verdict judge_bad(struct http_engine *h,
				   const struct http_row *row,
				   const struct http_reply *r,
				   const struct doc *d, int *rc)
{
	bool gateway = r->status == 502 || r->status == 504;

	*rc = http_refusal(r->status);
	if (r->status >= 300 && r->status < 400) {
		*rc = http_say(
			h, -E_CONFIG,
			"%ld: a redirect to %.150s, which is not followed",
			r->status, r->location ? r->location : "nowhere");
		return V_FAILED;
	}
	if (r->status < 300 || gateway || (row->key && says(row, d) > 0))
		return V_UNKNOWN;
	return row->patient && (r->status == 400 || is_overloaded(r->status))
		       ? V_BUSY
		       : V_FAILED;
}

static enum http_verdict judge_answer(struct http_engine *h,
				      const struct http_row *row,
				      const struct http_reply *r, int *rc)
{
	bool asks = strcmp(row->method, "OPTIONS") == 0;
	char said[HTTP_CITED];
	struct doc *d;
	enum http_verdict v;

	h->status = r->status;
	http_cite(r, said);
	http_say(h, 0, "%s", said);
	*rc = -E_IO;
	if (is_lacking(row, r->status))
		return V_LACKS;
	if (asks && (r->status < 300 || r->status == 405)) {
		*rc = row->take ? row->take(h, NULL) : 0;
		return *rc < 0 ? V_FAILED : V_DONE;
	}
	d = r->body.n ? doc_parse(r->body) : NULL;
	if (r->status == 200 || r->status == row->also)
		v = judge_ok(h, row, d, rc);
	else
		v = judge_bad(h, row, r, d, rc);
	doc_free(d);
	return v;
}

enum http_verdict http_judge(struct http_engine *h, const struct http_reply *r,
			     int *rc)
{
	if (r->rc == 0)
		return judge_answer(h, http_row_of(h), r, rc);
	*rc = http_say(h, r->rc, "%s", r->why);
	h->e->absent = r->refused;
	return r->sent ? V_UNKNOWN : V_FAILED;
}
