/*
 * Servers: what they are told of the plan, and those with no store beside
 * them, which load the source's directory itself.
 *
 * What a store would have proved is shown in other ways: that the directory
 * held the same files when transfer digested it and after the last load, and
 * what the server says of what it has loaded.
 */
#include "pipes/commit_io.h"
#include "common/doc.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_MAX (1u << 20) /* bytes of config.json */

typedef unsigned long long ull;

static bool is_in(const struct commit_io *c, uint32_t i)
{
	return !c->m.engine[i].out;
}

static bool has_alone(const struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (is_in(c, i) && c->engine[i]->alone)
			return true;
	return false;
}

bool commit_has_stores(const struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (is_in(c, i) && !c->engine[i]->alone)
			return true;
	return false;
}

/* ---- what they are told ---- */

static char *dup_text(const struct doc *d)
{
	const char *text = doc_text(d);

	return text ? xstrdup(text) : NULL;
}

static void take_config(struct commit_io *c, struct slice config)
{
	struct doc *d = doc_parse(config);
	const struct doc *quant = doc_at(d, "quantization_config");

	c->architecture = dup_text(doc_item(doc_at(d, "architectures"), 0));
	c->quantization = dup_text(doc_at(quant, "quant_method"));
	doc_free(d);
}

/* A source that is gone by now (a join, a rollback) says nothing. */
static void read_config(struct commit_io *c)
{
	int dir = open(c->plan.rank[0].source,
		       O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int quiet = log_quiet_thread(1);
	struct buf b = { 0 };

	if (dir >= 0 && io_read_file(dir, "config.json", CONFIG_MAX, &b) >= 0)
		take_config(c, buf_slice(&b));
	log_quiet_thread(quiet);
	if (dir >= 0)
		close(dir);
	buf_release(&b);
}

static bool ends_with(struct slice s, const char *end)
{
	size_t n = strlen(end);

	return s.n >= n && memcmp(s.p + s.n - n, end, n) == 0;
}

static void keep_name(char **at, struct slice name)
{
	free(*at);
	*at = xstrndup(name.p, name.n);
}

/* Of the first and the last layer a matrix of which every server, however
 * many workers it has, can show the first row; and the last norm. */
static void consider(struct commit_io *c, const struct m_part *p)
{
	if (p->kind != PART_TENSOR || p->start)
		return;
	if (p->shape.n == 2 && ends_with(p->name, ".q_proj.weight")) {
		if (!c->sample[0])
			keep_name(&c->sample[0], p->name);
		else
			keep_name(&c->sample[1], p->name);
	} else if (p->shape.n == 1 && ends_with(p->name, "norm.weight")) {
		keep_name(&c->sample[2], p->name);
	}
}

static void choose_samples(struct commit_io *c)
{
	struct msg_arena arena = { 0 };
	struct msg m;

	for (uint32_t b = 0; b < c->plan.nbuckets; b++) {
		if (plan_bucket(&c->plan, b, &m, &arena) < 0)
			break;
		for (uint32_t i = 0; i < m.bucket.parts.n; i++)
			consider(c, &m.bucket.parts.v[i]);
	}
	msg_arena_release(&arena);
}

void commit_goal_servers(struct commit_io *c)
{
	bool servers = false, samples = false;

	for (uint32_t i = 0; i < c->plan.nengines; i++) {
		servers |= c->plan.engine[i].kind != ENGINE_NATIVE;
		samples |= c->plan.engine[i].kind == ENGINE_SGLANG;
	}
	if (servers && c->conf->expect == EXPECT_SAME)
		read_config(c);
	if (samples)
		choose_samples(c);
	c->goal.architecture = c->architecture;
	c->goal.quantization = c->quantization;
	c->goal.sample = (const char *const *)c->sample;
}

/* ---- one that is alone ---- */

/* Where it can go back to: the source of what it serves, if that is what it
 * was.  Of a version that the registry does not have, what it says itself. */
static void set_previous(struct commit_io *c, struct engine *e)
{
	struct engine_live *l = &e->live;

	if (l->held || l->poisoned)
		return;
	free(l->previous);
	l->previous = place_of_version(&c->reg, e->part[0].facts.serving);
}

static int take_decision(struct commit_io *c, struct engine *e)
{
	struct engine_facts *f = &e->part[0].facts;
	struct reg_rec d = { 0 };
	int rc = f->serving ? registry_decision(&c->reg, f->serving, &d) : 0;

	if (rc > 0) {
		f->structure = d.m.decision.structure;
		f->content = d.m.decision.content;
		set_previous(c, e);
	}
	reg_rec_release(&d);
	return rc < 0 ? rc : 0;
}

int commit_alone_probed(struct commit_io *c, struct engine *e)
{
	enum proof_level best = load_proof_level(e->live.offers);

	if (best < (enum proof_level)c->conf->accept_proof)
		return log_error(E_CONFIG,
				 "engine %s (%s): without workers, a "
				 "weir-engine beside it, it gives the proof "
				 "\"%s\" at best: --accept-proof %s",
				 e->name, e->url, proof_name(best),
				 proof_name(best));
	return take_decision(c, e);
}

int commit_alone_open(struct commit_io *c)
{
	int rc;

	if (!has_alone(c) || c->goal.whole)
		return 0;
	if (c->plan.kind != RUN_PUBLISH && !c->found_at)
		return log_error(E_AGAIN,
				 "where version %llu is to be loaded from was "
				 "known to a commit that is gone; try again",
				 (ull)c->plan.base);
	rc = place_note(&c->place, &c->plan, c->found_at);
	free(c->goal.place);
	c->goal.place = rc == 0 ? xstrdup(c->place.path) : NULL;
	return rc;
}

int commit_alone_check(struct commit_io *c)
{
	return c->place.path ? place_check(&c->place, &c->plan) : 0;
}

int commit_alone_loaded(struct commit_io *c, struct engine *e)
{
	struct receipt_want w = { .proof = (uint8_t)c->conf->accept_proof };

	e->part[0].receipt->proof = (uint8_t)load_proof_level(e->live.proof);
	return receipt_check(e, &w);
}

void commit_alone_resume(struct commit_io *c)
{
	free(c->goal.place);
	c->goal.place = place_of_version(&c->reg, c->mine.m.open.version);
}

void commit_alone_release(struct commit_io *c)
{
	place_release(&c->place);
	for (unsigned i = 0; i < LOAD_SAMPLES; i++)
		free(c->sample[i]);
	free(c->architecture);
	free(c->quantization);
	free(c->found_at);
}
