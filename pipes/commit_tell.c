#include "pipes/commit_io.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/units.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull;

#define EVENT_LINE_MAX (64u << 10) /* bytes read at once */
#define UNREAD " (each engine keeps the version: no source was read)"
#define UNCOMPARED_MAX 8 /* engines that are named */

static const char *const phase_names[PHASE_N] = {
	[PHASE_PLAN] = "plan", [PHASE_OPEN] = "open",	  [PHASE_MOVE] = "move",
	[PHASE_SEAL] = "seal", [PHASE_DECIDE] = "decide", [PHASE_SWAP] = "swap",
};

void commit_names_lagging(const struct commit_io *c, struct buf *out)
{
	const char *sep = "";

	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct commit_engine *g = &c->m.engine[i];

		if (g->there || (!g->away && !(g->out && c->m.published)))
			continue;
		buf_addf(out, "%s%s", sep, c->engine[i]->name);
		sep = ", ";
	}
}

void commit_tell_signal(const struct commit_io *c)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < c->m.nengines; i++)
		left += !c->m.engine[i].out && !c->m.engine[i].home &&
			!c->m.engine[i].away;
	fprintf(stderr,
		"%s: version %llu is published, %u engine%s still to swap\n",
		log_name(), (ull)c->goal.version, left, plural(left));
}

/* ---- what the summary is made of ---- */

struct summary {
	int64_t ms[PHASE_N]; /* of each phase, not up to it */
	uint64_t pause_us;   /* the longest */
	const char *slowest; /* who had it */
	uint64_t peak_buckets, peak_bytes;
	uint8_t proof;
	uint32_t serving, compared;
	struct buf rest;	/* why the others' installed digests were not */
	bool servers;		/* there are some that load */
	enum load_proof loaded; /* the weakest that they showed */
	uint32_t loaded_compared;
};

/* The number after "name": in a line of RUN/events, or 0. */
static uint64_t number_in(const char *line, const char *name)
{
	const char *at = strstr(line, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Credit is admit's: it tells what is out with every grant. */
static void read_peaks(const struct commit_io *c, struct summary *s)
{
	int fd = openat(c->s->run.dirfd, "events", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char *line;

	if (!f) {
		if (fd >= 0)
			close(fd);
		return;
	}
	line = xmalloc(EVENT_LINE_MAX);
	while (fgets(line, EVENT_LINE_MAX, f)) {
		uint64_t n = number_in(line, "\"credit_buckets\":");
		uint64_t b = number_in(line, "\"credit_bytes\":");

		s->peak_buckets = n > s->peak_buckets ? n : s->peak_buckets;
		s->peak_bytes = b > s->peak_bytes ? b : s->peak_bytes;
	}
	free(line);
	fclose(f);
}

/* Why an installed digest was compared with no other. */
static void add_uncompared(const struct engine *e, uint32_t n, struct buf *b)
{
	const struct engine_receipt *r = receipt_of(e);

	if (n > UNCOMPARED_MAX)
		return;
	buf_addf(b, "%s%s", n > 1 ? ", " : "", e->name);
	if (!r)
		buf_addf(b, " (nothing was loaded)");
	else if (r->varies)
		buf_addf(b, " (its --post-load varies)");
	else if (r->post_load[0])
		buf_addf(b, " (no other has --post-load \"%s\")", r->post_load);
	else
		buf_addf(b, " (no other has no --post-load)");
}

static void read_installed(const struct commit_io *c, const bool *skip,
			   struct summary *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (skip[i])
			continue;
		else if (receipt_has_peer(c->engine, c->m.nengines, i, skip))
			s->compared++;
		else
			add_uncompared(c->engine[i], ++n, &s->rest);
	if (n > UNCOMPARED_MAX)
		buf_addf(&s->rest, " and %u more", n - UNCOMPARED_MAX);
}

static void read_engines(const struct commit_io *c, struct summary *s)
{
	bool *skip = xcalloc(c->m.nengines + 1, sizeof *skip);

	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		skip[i] = c->m.engine[i].out;
		s->servers |= !skip[i] && e->ops->in_place;
		s->serving += c->m.engine[i].there ||
			      (!c->m.engine[i].out && !c->m.engine[i].away);
		for (uint32_t k = 0; k < e->nparts; k++)
			if (e->part[k].pause_us > s->pause_us) {
				s->pause_us = e->part[k].pause_us;
				s->slowest = e->name;
			}
	}
	read_installed(c, skip, s);
	s->proof = receipt_proof(c->engine, c->m.nengines, skip);
	s->loaded = load_proof_of(c->engine, c->m.nengines, skip,
				  &s->loaded_compared);
	free(skip);
}

static void read_phases(const struct commit_io *c, struct summary *s)
{
	int64_t last = 0;

	for (unsigned p = 0; p < PHASE_N; p++) {
		if (c->phase_ms[p] == 0)
			continue;
		s->ms[p] = c->phase_ms[p] - last;
		last = c->phase_ms[p];
	}
}

/* ---- text ---- */

static void pauses(const struct commit_io *c, struct buf *b)
{
	const char *sep = "";

	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct engine *e = c->engine[i];

		if (e->part[0].pause_us == 0)
			continue;
		buf_addf(b, "%s%s %.1f ms", sep, e->name,
			 (double)e->part[0].pause_us / 1000);
		sep = ", ";
	}
}

/* What there is to do about those that lag. */
static void catch_up(const struct commit_io *c, struct buf *b)
{
	const char *registry = c->conf->common.registry;

	if (!commit_lagging(&c->m))
		return;
	buf_addf(b, "\n  to catch up: weir push");
	if (registry)
		buf_addf(b, " --registry %s", registry);
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct commit_engine *g = &c->m.engine[i];

		if (g->away || (g->out && !g->there))
			buf_addf(b, " --only %s", c->engine[i]->name);
	}
}

static void summary_text(const struct commit_io *c, struct summary *s)
{
	char resent[UNITS_MAX], credit[UNITS_MAX], moved[UNITS_MAX];
	char pinned[UNITS_MAX];
	struct buf b = { 0 };

	units_size(c->drained.resent, resent);
	units_size(s->peak_bytes, credit);
	buf_addf(&b, "  seconds:");
	for (unsigned p = 0; p < PHASE_N; p++)
		buf_addf(&b, " %s %.3f", phase_names[p],
			 (double)s->ms[p] / 1000);
	if (!c->m.same) {
		buf_addf(&b, "\n  pause:   ");
		pauses(c, &b);
		if (s->slowest)
			buf_addf(&b, " (slowest: %s)", s->slowest);
		if (c->plan.kind != RUN_PUBLISH)
			buf_addf(&b, "\n  moved:   %s%s",
				 units_size(c->drained.bytes, moved),
				 c->drained.bytes ? "" : UNREAD);
		buf_addf(&b,
			 "\n  credit:  peak %llu bucket%s, %s%s; sent again: "
			 "%s",
			 (ull)s->peak_buckets, plural(s->peak_buckets), credit,
			 c->plan.nranks > 1 ? " of the largest rank" : "",
			 resent);
		if (c->drained.pinned)
			buf_addf(&b, "; pinned: %s",
				 units_size(c->drained.pinned, pinned));
		buf_addf(&b,
			 "\n  proof:   %s; installed digests compared: %u of "
			 "%u engine%s",
			 proof_name(s->proof), s->compared, commit_in(&c->m),
			 plural(commit_in(&c->m)));
		if (s->rest.n && commit_in(&c->m) > 1)
			buf_addf(&b, "; not compared: %s", buf_cstr(&s->rest));
		if (s->servers)
			buf_addf(&b, "\n  loaded:  %s; servers compared: %u",
				 load_proof_name(s->loaded),
				 s->loaded_compared);
	}
	catch_up(c, &b);
	fprintf(stderr, "%s\n", buf_cstr(&b));
	buf_release(&b);
}

/* What has become of the version. */
static const char *what_was_done(const struct commit_io *c)
{
	if (c->plan.kind == RUN_JOIN)
		return c->m.same ? "was there already" : "joined";
	return c->m.same ? "was published already" : "published";
}

static void result_text(const struct commit_io *c, const struct summary *s)
{
	const struct digest *d = c->m.same ? &c->published : &c->goal.content;
	char hex[DIGEST_HEX], size[UNITS_MAX], ranks[32] = "";
	struct buf b = { 0 };

	units_size(c->plan.bytes, size);
	if (c->plan.nranks > 1)
		snprintf(ranks, sizeof ranks, " in %u ranks", c->plan.nranks);
	buf_addf(&b, "version %llu %s: ", (ull)c->goal.version,
		 what_was_done(c));
	if (s->serving == c->m.nengines)
		buf_addf(&b, "%u engine%s", s->serving, plural(s->serving));
	else
		buf_addf(&b, "%u of %u engine%s", s->serving, c->m.nengines,
			 plural(c->m.nengines));
	buf_addf(&b, ", %s%s, content %s", size, ranks, digest_hex(d, hex));
	if (s->serving < c->m.nengines) {
		buf_addf(&b, "; lagging: ");
		commit_names_lagging(c, &b);
	}
	buf_add(&b, "\n", 1);
	io_write_full(stage_stdout(), b.p, b.n);
	buf_release(&b);
}

/* Where the engines are now, unless an error line has said why the version
 * is not published and nothing more is to be told. */
static void failure_text(const struct commit_io *c, uint8_t code)
{
	const char *done = c->plan.kind == RUN_JOIN ? "joined" : "published";
	struct buf b = { 0 };

	if (code != 2 && code < 128)
		return;
	if (c->goal.version == 0) /* it ended before it had a number */
		buf_addf(&b, "nothing is %s; ", done);
	else
		buf_addf(&b, "version %llu is not %s; ", (ull)c->goal.version,
			 done);
	if (code == 2) {
		buf_addf(&b, "engines need attention: ");
		commit_names_lagging(c, &b);
	} else {
		buf_addf(&b, "all engines serve the old version");
	}
	fprintf(stderr, "%s\n", buf_cstr(&b));
	buf_release(&b);
}

/* ---- JSON ---- */

/* The receipt is the store's; what the server itself says is told beside. */
static void json_live(const struct engine_live *l, struct jsonw *j)
{
	jsonw_bool(j, "paused", l->held);
	jsonw_bool(j, "poisoned", l->poisoned);
	jsonw_str(j, "loaded", l->loaded ? load_proof_name(l->proof) : "no");
}

static void json_engines(const struct commit_io *c, struct jsonw *j)
{
	jsonw_array(j, "engines");
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		const struct commit_engine *g = &c->m.engine[i];

		jsonw_object(j, NULL);
		jsonw_str(j, "name", c->engine[i]->name);
		jsonw_bool(j, "excluded", g->out && !g->there);
		jsonw_bool(j, "lagging", g->away);
		if (c->engine[i]->ops->in_place)
			json_live(&c->engine[i]->live, j);
		jsonw_u64(j, "pause_us", c->engine[i]->part[0].pause_us);
		jsonw_end(j);
	}
	jsonw_end(j);
}

static void json_members(const struct commit_io *c, const struct summary *s,
			 uint8_t code, struct jsonw *j)
{
	const struct digest *d = c->m.same ? &c->published : &c->goal.content;
	char key[32];

	jsonw_u64(j, "version", c->goal.version);
	jsonw_bool(j, "published", c->m.published);
	jsonw_u64(j, "exit", code);
	jsonw_u64(j, "bytes", c->plan.bytes);
	jsonw_u64(j, "ranks", c->plan.nranks);
	if (c->m.published)
		jsonw_hex(j, "content", d->b, DIGEST_LEN);
	for (unsigned p = 0; p < PHASE_N; p++) {
		snprintf(key, sizeof key, "%s_ms", phase_names[p]);
		jsonw_i64(j, key, s->ms[p]);
	}
	if (s->slowest)
		jsonw_str(j, "slowest", s->slowest);
	jsonw_u64(j, "peak_credit_buckets", s->peak_buckets);
	jsonw_u64(j, "peak_credit_bytes", s->peak_bytes);
	jsonw_u64(j, "moved_bytes", c->drained.bytes);
	jsonw_u64(j, "resent_bytes", c->drained.resent);
	jsonw_u64(j, "pinned_bytes", c->drained.pinned);
	if (c->m.published && !c->m.same) {
		jsonw_str(j, "proof", proof_name(s->proof));
		jsonw_u64(j, "installed_compared", s->compared);
	}
	if (c->cause)
		jsonw_str(j, "cause", c->cause);
	json_engines(c, j);
}

static void summary_json(const struct commit_io *c, const struct summary *s,
			 uint8_t code)
{
	struct buf b = { 0 };
	struct jsonw j;

	jsonw_begin(&j, &b, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	json_members(c, s, code, &j);
	jsonw_end(&j);
	if (jsonw_finish(&j) < 0) {
		buf_release(&b);
		return;
	}
	if (c->conf->common.json)
		io_write_full(stage_stdout(), b.p, b.n);
	/* The members alone: without braces and newline. */
	events_summary(&c->s->events, (struct slice){ b.p + 1, b.n - 3 });
	buf_release(&b);
}

static void result(const struct commit_io *c, struct summary *s, uint8_t code)
{
	summary_json(c, s, code);
	if (c->conf->common.json)
		return;
	if (!c->m.published) {
		failure_text(c, code);
		return;
	}
	result_text(c, s);
	if (!c->conf->common.quiet)
		summary_text(c, s);
}

void commit_tell_result(const struct commit_io *c, uint8_t code)
{
	struct summary s = { 0 };

	if (!c->has_plan || !c->state)
		return;
	read_phases(c, &s);
	read_engines(c, &s);
	read_peaks(c, &s);
	result(c, &s, code);
	buf_release(&s.rest);
}
