/*
 * A server with no store beside it: what its store would have said is made of
 * what the server tells and of the directory that it is to load.
 */
#include "pipes/en_http.h"
#include "common/buf.h"
#include "common/err.h"

#include <stdio.h>
#include <string.h>

int alone_check(struct http_engine *h)
{
	if (h->e->goal->place || engine_pulls(h->e))
		return 0;
	return http_say(h, -E_UNAVAIL,
			"the directory of version %llu is gone, or is another "
			"by now: push again",
			(unsigned long long)h->e->goal->version);
}

/* One for each registry: numbers mean one thing in it. */
static void own_copy(const struct engine *e, char out[ENGINE_PATH])
{
	snprintf(out, ENGINE_PATH, "%s/%s", e->pull, e->goal->registry);
}

bool alone_is_own_copy(const struct engine *e, const char *path)
{
	size_t n = e->pull ? strlen(e->pull) : 0;

	return n && strncmp(path, e->pull, n) == 0 && path[n] == '/';
}

const char *alone_path(const struct engine *e, char out[ENGINE_PATH])
{
	if (!engine_pulls(e))
		return e->goal->place ? e->goal->place : "";
	own_copy(e, out);
	return out;
}

/* Another start of its process is another boot, as of a receiver. */
static void note_boot(struct http_engine *h)
{
	struct engine_part *p = &h->e->part[0];

	p->reborn |= p->boot[0] && strcmp(p->boot, h->start) != 0;
	snprintf(p->boot, sizeof p->boot, "%s", h->start);
}

void alone_probed(struct http_engine *h)
{
	const struct engine_goal *g = h->e->goal;
	struct engine_facts *f = &h->e->part[0].facts;

	note_boot(h);
	f->serving = h->label;
	f->room = UINT64_MAX;
	if (h->label && h->label == g->version)
		f->content = g->content;
}

/* What it is asked to load, and how well it can show that it has. */
void alone_receipt(struct engine *e)
{
	const struct engine_goal *g = e->goal;
	struct engine_part *p = &e->part[0];
	const struct engine_share *s = engine_share(e, p);
	bool has_loaded = e->live.loaded;
	struct engine_receipt *r = p->receipt;

	if (!r)
		r = p->receipt = xmalloc(sizeof *r);
	*r = (struct engine_receipt){ .workers = 1,
				      .epoch = g->epoch,
				      .version = g->version,
				      .bytes = s->bytes,
				      .received = s->content,
				      .installed = s->content,
				      .varies = true };
	r->proof = (uint8_t)load_proof_level(has_loaded ? e->live.proof
							: e->live.offers);
	snprintf(r->engine, sizeof r->engine, "%s", e->name);
	snprintf(r->boot, sizeof r->boot, "%s", p->boot);
	snprintf(r->registry, sizeof r->registry, "%s", g->registry);
	snprintf(r->run, sizeof r->run, "%s", g->run);
	if (!engine_pulls(e))
		snprintf(r->place, sizeof r->place, "%s",
			 g->place ? g->place : "");
}
