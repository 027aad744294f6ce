#include "pipes/en_cast.h"
#include "common/err.h"
#include "pipes/planfile.h"

#include <stdlib.h>

static int add_tensor(struct http_engine *h, struct cast_bucket *b,
		      const struct m_part *p)
{
	enum st_dtype dtype = st_dtype_of(p->dtype);

	if (p->bytes != p->total)
		return http_say(h, -E_CONFIG,
				"tensor %.*s is split: a broadcast takes whole "
				"ones, push without --split-tensors",
				SLICE_ARG(p->name));
	if (!nccl_dtype_name(dtype))
		return http_say(h, -E_CONFIG,
				"tensor %.*s is of dtype %.*s, which torch "
				"does not have",
				SLICE_ARG(p->name), SLICE_ARG(p->dtype));
	b->piece[b->n] = (struct m_piece){ .file = p->file,
					   .offset = p->offset,
					   .bytes = p->bytes };
	b->tensor[b->n++] = (struct nccl_tensor){ .name = p->name,
						  .dtype = dtype,
						  .dims = p->shape.v,
						  .ndims = p->shape.n,
						  .bytes = p->bytes };
	return 0;
}

static int add_tensors(struct http_engine *h, struct cast_bucket *b,
		       const struct m_bucket *m)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < m->parts.n; i++)
		if (m->parts.v[i].kind == PART_TENSOR)
			rc = add_tensor(h, b, &m->parts.v[i]);
	return rc;
}

int cast_next(struct http_engine *h, struct cast_bucket *b)
{
	const struct plan *p = h->e->goal->plan;
	int rc = 0;

	for (b->n = 0; rc == 0 && b->n == 0; b->next++) {
		struct msg m;

		if (b->next == p->nbuckets)
			return 0;
		rc = plan_bucket(p, b->next, &m, &b->arena);
		if (rc < 0)
			return http_say(h, rc, "%.600s", log_cause());
		b->number = b->next;
		rc = add_tensors(h, b, &m.bucket);
	}
	return rc < 0 ? rc : 1;
}

void cast_release(struct cast_bucket *b)
{
	msg_arena_release(&b->arena);
}

uint64_t cast_room(const struct plan *p)
{
	uint64_t most = 0;

	for (uint32_t b = 0; b < p->nbuckets; b++)
		if (plan_bucket_bytes(p, b) > most)
			most = plan_bucket_bytes(p, b);
	return most;
}

uint64_t cast_chunk(const struct plan *p)
{
	return cast_room(p) / CAST_CHUNKS + 1;
}

int http_cast_check(struct http_engine *h, const struct doc *none)
{
	uint64_t chunk = cast_chunk(h->e->goal->plan);
	struct cast_bucket *b = xcalloc(1, sizeof *b);
	int rc;

	(void)none;
	while ((rc = cast_next(h, b)) > 0)
		if (!nccl_can_pack(b->tensor, b->n, chunk))
			h->packing = NP_NONE;
	cast_release(b);
	free(b);
	return rc;
}
