#include "pipes/status_part.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/jsonw.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- text ---- */

/* Causes name their engine, but for what no engine had a part in. */
static bool is_named(const struct m_attention *a)
{
	char name[80];
	int n = snprintf(name, sizeof name, "engine %.*s",
			 SLICE_ARG(a->engine.name));

	return a->cause.n > (size_t)n && memcmp(a->cause.p, name, n) == 0;
}

static void print_attention(void *arg, const struct m_attention *a)
{
	(void)arg;
	printf("attention  version %llu of run %.*s (%s): ", (ull)a->version,
	       SLICE_ARG(a->run), a->decided ? "decided" : "aborted");
	if (is_named(a))
		printf("%.*s\n", SLICE_ARG(a->cause));
	else
		printf("engine %.*s%s%.*s\n", SLICE_ARG(a->engine.name),
		       a->cause.n ? ": " : "", SLICE_ARG(a->cause));
}

static void print_last(const struct ledger_line *last)
{
	char when[CLOCK_TEXT_MAX];
	struct buf b = { 0 };

	if (!last->event[0])
		return;
	clock_wall_text((int64_t)last->wall_ms, when);
	ledger_text(last, &b);
	printf("last       %s %s\n", when, buf_cstr(&b));
	buf_release(&b);
}

static void print_registry(const struct status *st)
{
	const struct m_open *o = &st->open.m.open;
	char hex[DIGEST_HEX];

	if (!st->has_reg) {
		printf("registry   none at %s\n", st->path);
		return;
	}
	printf("registry   %s\n", st->reg.path);
	if (st->has_decision)
		printf("published  version %llu, content %s, run %.*s\n",
		       (ull)st->version,
		       digest_hex(&st->decision.m.decision.content, hex),
		       SLICE_ARG(st->decision.m.decision.run));
	else
		printf("published  nothing yet\n");
	if (st->is_held)
		printf("held       by pid %ld, started %s, run %s\n",
		       st->holder.pid, st->holder.start, st->holder.run);
	if (st->has_open)
		printf("open       run %.*s, version %llu: %s\n",
		       SLICE_ARG(o->run), (ull)o->version,
		       st->open_is_decided ? "decided" : "not decided");
}

/* Of a registry that was lost, or is an older copy: nothing of it can bring
 * the engine to a lower number. */
static bool is_ahead(const struct status *st, const struct row *r)
{
	return st->has_decision && r->answered && r->serving > st->version;
}

static const char *row_state(const struct status *st, const struct row *r)
{
	if (is_ahead(st, r))
		return "ahead of the registry: push a new version";
	if (status_is_lagging(st, r))
		return "lagging";
	return r->answered ? "ok" : "unreachable";
}

static void print_row(const struct status *st, const struct row *r)
{
	char staged[40] = "-", serving[24] = "-";

	if (r->answered && r->serving)
		snprintf(serving, sizeof serving, "%llu", (ull)r->serving);
	if (r->answered && r->staged)
		snprintf(staged, sizeof staged, "%llu%s", (ull)r->staged,
			 r->sealed ? " sealed" : "");
	printf("%-20s %-8s %-16s %-7s %-10.8s %s%s%s\n", r->name, serving,
	       staged, r->paused ? "paused" : "-", r->answered ? r->boot : "-",
	       row_state(st, r), r->answered ? "" : ": ",
	       r->answered ? "" : r->why);
}

/* As they were given to us. */
static void print_options(const struct status_conf *conf)
{
	if (conf->common.registry)
		printf(" --registry %s", conf->common.registry);
	if (conf->fleet)
		printf(" --fleet %s", conf->fleet);
	for (size_t i = 0; i < conf->engines.n; i++)
		printf(" --engine %s", conf->engines.v[i]);
}

/* One that lags catches up; the others need not be touched. */
static void print_advice(const struct status *st)
{
	struct buf b = { 0 };

	for (uint32_t i = 0; i < st->nrows; i++) {
		const struct row *r = &st->row[i];

		if (!status_is_lagging(st, r) || !r->answered ||
		    is_ahead(st, r) || (i && strcmp(r->name, r[-1].name) == 0))
			continue;
		buf_addf(&b, " --only %s", r->name);
	}
	if (b.n) {
		printf("to catch up: weir push");
		print_options(st->conf);
		printf("%s\n", buf_cstr(&b));
	}
	buf_release(&b);
}

void status_print_text(struct status *st)
{
	print_registry(st);
	status_attention(st, print_attention, NULL);
	print_last(&st->last);
	if (st->nrows == 0)
		return;
	printf("%-20s %-8s %-16s %-7s %-10s %s\n", "ENGINE", "SERVING",
	       "STAGED", "PAUSED", "BOOT", "STATE");
	for (uint32_t i = 0; i < st->nrows; i++)
		print_row(st, &st->row[i]);
	print_advice(st);
}

/* ---- JSON ---- */

static void json_attention(void *arg, const struct m_attention *a)
{
	struct jsonw *j = arg;

	jsonw_object(j, NULL);
	jsonw_slice(j, "engine", a->engine.name);
	jsonw_u64(j, "version", a->version);
	jsonw_slice(j, "run", a->run);
	jsonw_bool(j, "decided", a->decided);
	jsonw_slice(j, "cause", a->cause);
	jsonw_end(j);
}

static void json_published(const struct status *st, struct jsonw *j)
{
	const struct m_decision *d = &st->decision.m.decision;

	if (!st->has_decision) {
		jsonw_null(j, "published");
		return;
	}
	jsonw_object(j, "published");
	jsonw_u64(j, "version", st->version);
	jsonw_hex(j, "content", d->content.b, DIGEST_LEN);
	jsonw_slice(j, "run", d->run);
	jsonw_i64(j, "wall_ms", d->wall_ms);
	jsonw_end(j);
}

static void json_open(const struct status *st, struct jsonw *j)
{
	const struct m_open *o = &st->open.m.open;

	if (!st->has_open) {
		jsonw_null(j, "open");
		return;
	}
	jsonw_object(j, "open");
	jsonw_slice(j, "run", o->run);
	jsonw_u64(j, "version", o->version);
	jsonw_u64(j, "epoch", o->epoch);
	jsonw_bool(j, "decided", st->open_is_decided);
	jsonw_end(j);
}

static void json_last(const struct ledger_line *last, struct jsonw *j)
{
	if (!last->event[0]) {
		jsonw_null(j, "last");
		return;
	}
	jsonw_object(j, "last");
	ledger_json(last, j);
	jsonw_end(j);
}

static void json_row(const struct status *st, const struct row *r,
		     struct jsonw *j)
{
	jsonw_object(j, NULL);
	jsonw_str(j, "name", r->name);
	jsonw_str(j, "kind", engine_kind_name(r->kind));
	if (*r->endpoint)
		jsonw_str(j, "endpoint", r->endpoint);
	if (*r->url)
		jsonw_str(j, "url", r->url);
	jsonw_bool(j, "reachable", r->answered);
	if (r->answered) {
		jsonw_u64(j, "serving", r->serving);
		if (r->since_ms)
			jsonw_u64(j, "since_ms", r->since_ms);
		jsonw_hex(j, "content", r->content.b, DIGEST_LEN);
		jsonw_u64(j, "staged", r->staged);
		jsonw_bool(j, "sealed", r->sealed);
		jsonw_bool(j, "paused", r->paused);
		jsonw_u64(j, "pause_us", r->pause_us);
		jsonw_str(j, "boot", r->boot);
	} else {
		jsonw_str(j, "cause", r->why);
	}
	jsonw_bool(j, "lagging", status_is_lagging(st, r));
	jsonw_end(j);
}

int status_print_json(struct status *st)
{
	struct buf b = { 0 };
	struct jsonw j;
	int rc;

	jsonw_begin(&j, &b, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	if (st->has_reg) {
		jsonw_str(&j, "registry", st->reg.path);
		jsonw_str(&j, "id", st->reg.id);
	} else {
		jsonw_null(&j, "registry");
	}
	json_published(st, &j);
	json_open(st, &j);
	jsonw_bool(&j, "held", st->is_held);
	jsonw_array(&j, "attention");
	status_attention(st, json_attention, &j);
	jsonw_end(&j);
	json_last(&st->last, &j);
	jsonw_array(&j, "engines");
	for (uint32_t i = 0; i < st->nrows; i++)
		json_row(st, &st->row[i], &j);
	jsonw_end(&j);
	jsonw_end(&j);
	rc = jsonw_finish(&j);
	if (rc == 0)
		fwrite(b.p, 1, b.n, stdout);
	buf_release(&b);
	return rc;
}
