#include "pipes/facts.h"
#include "common/err.h"

#include <stdlib.h>

bool facts_is_fact(enum msg_type t)
{
	return t == M_end || t == M_failed || t == M_opened || t == M_exclude ||
	       t == M_abort || t == M_verdict;
}

static uint32_t engine_of(const struct msg *m)
{
	if (m->type == M_failed)
		return m->failed.engine;
	return m->type == M_exclude ? m->exclude.engine : ID_NONE;
}

static struct fact *find(struct facts *f, enum msg_type t, uint32_t engine)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->v[i].type == t && f->v[i].engine == engine)
			return &f->v[i];
	return NULL;
}

int facts_keep(struct facts *f, const struct msg *m)
{
	struct fact *at = find(f, m->type, engine_of(m));
	struct buf frame = { 0 };
	int rc;

	if (at && m->type == M_failed)
		return 0;
	rc = msg_pack(&frame, m);
	if (rc < 0) {
		buf_release(&frame);
		return rc;
	}
	if (at) {
		buf_release(&at->frame);
		at->frame = frame;
		return 1;
	}
	if (f->n == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 8;
		f->v = xreallocarray(f->v, f->cap, sizeof *f->v);
	}
	f->v[f->n++] = (struct fact){ m->type, engine_of(m), frame };
	return 1;
}

void facts_drop_failed(struct facts *f, uint32_t engine)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->n; i++) {
		struct fact *v = &f->v[i];

		if (v->type == M_failed &&
		    (engine == ID_NONE || v->engine == engine))
			buf_release(&v->frame);
		else
			f->v[kept++] = *v;
	}
	f->n = kept;
}

void facts_release(struct facts *f)
{
	for (size_t i = 0; i < f->n; i++)
		buf_release(&f->v[i].frame);
	free(f->v);
	*f = (struct facts){ 0 };
}
