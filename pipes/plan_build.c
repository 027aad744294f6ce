#include "pipes/plan_build_part.h"

#include "common/bits.h"
#include "common/err.h"
#include "common/expert.h"
#include "common/log.h"
#include "pipes/nccl_wire.h"
#include "pipes/recfile.h"
#include "pipes/trcaps.h"

#include <stdlib.h>
#include <string.h>

/* Upper bounds of what msgpack makes of it: a bucket without its parts, a
 * part without names and shape, one dimension. */
#define BUCKET_COST 32
#define PART_COST 64
#define DIM_COST 9
/* The shares of one tensor, whatever its name, fit a frame. */
_Static_assert(RANKS_MAX *(PART_COST + 1024u + 16u + 64u * DIM_COST) <
		       FRAME_MAX - BUCKET_COST,
	       "an object goes into one bucket");

/* By place.  Of one place the empty ones come first, by name as in their
 * shard. */
static int cmp_parts(const void *x, const void *y)
{
	const struct m_part *a = x, *b = y;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (!a->bytes != !b->bytes)
		return a->bytes ? 1 : -1;
	return slice_cmp(a->name, b->name);
}

static int emit_bucket(struct builder *b)
{
	struct m_bucket bucket = {
		.id = b->sum.buckets,
		.bytes = bucket_longest(b->open, b->ranks->n),
		.parts = { b->parts, b->nparts },
	};
	int rc;

	if (b->unordered)
		qsort(b->parts, b->nparts, sizeof *b->parts, cmp_parts);
	rc = record_bucket(b, &bucket);
	for (uint32_t r = 0; r < b->ranks->n; r++) {
		if (__builtin_add_overflow(b->sum.bytes, b->open[r],
					   &b->sum.bytes))
			return log_error(E_DATA,
					 "source %s: its size overflows",
					 b->ranks->source[r].dir.path);
		b->open[r] = 0;
	}
	b->sum.buckets++;
	b->nparts = 0;
	b->unordered = false;
	return rc;
}

static uint64_t cost_of(const struct m_part *p)
{
	return PART_COST + p->name.n + p->dtype.n +
	       (uint64_t)p->shape.n * DIM_COST;
}

/* Ranks may have fewer headers and carried files than others. */
static bool is_absent(const struct m_part *share)
{
	return share->file == ID_NONE;
}

/* What of a piece is the rank's: an empty share comes once. */
static void add_part(struct builder *b, uint32_t rank,
		     const struct bucket_piece *piece)
{
	const struct m_part *share = &b->object[rank];
	uint64_t bytes = bucket_in_lane(piece, share->total);
	struct m_part *p = &b->parts[b->nparts];

	if (is_absent(share) || (bytes == 0 && piece->start > 0))
		return;
	*p = *share;
	p->offset += piece->start;
	p->start = piece->start;
	p->bytes = bytes;
	b->open[rank] += bytes;
	if (b->nparts++ > 0 && cmp_parts(p - 1, p) > 0)
		b->unordered = true;
}

/* Adds what b->object weighs; bytes saturate. */
static void add_load(const struct builder *b, struct bucket_load *load,
		     uint64_t *bytes)
{
	for (uint32_t r = 0; r < b->ranks->n; r++) {
		const struct m_part *share = &b->object[r];

		if (is_absent(share))
			continue;
		if (__builtin_add_overflow(bytes[r], share->total, &bytes[r]))
			bytes[r] = UINT64_MAX;
		load->cost += cost_of(share);
		load->pieces++;
	}
}

static struct bucket_load no_load(const struct builder *b, uint64_t *bytes)
{
	memset(bytes, 0, b->ranks->n * sizeof *bytes);
	return (struct bucket_load){ .bytes = bytes };
}

static int add_object(struct builder *b, bool split)
{
	struct bucket_load load = no_load(b, b->size);
	struct bucket_piece piece;

	add_load(b, &load, b->size);
	bucket_object(&b->packer, &load, split);
	if (bucket_pieces(&b->packer) > BUCKETS_MAX - b->sum.buckets)
		return log_error(E_DATA,
				 "source %s: more than %u buckets of %llu "
				 "bytes; give a larger --bucket-size",
				 b->ranks->source[0].dir.path, BUCKETS_MAX,
				 (unsigned long long)b->conf->bucket_size);
	while (bucket_next(&b->packer, &piece)) {
		int rc = piece.opens ? emit_bucket(b) : 0;

		if (rc < 0)
			return rc;
		for (uint32_t r = 0; r < b->ranks->n; r++)
			add_part(b, r, &piece);
	}
	return 0;
}

/* Lends what it names. */
static struct m_part part_of(const struct source_tensor *t, uint32_t first)
{
	return (struct m_part){
		.kind = PART_TENSOR,
		.name = t->name,
		.dtype = slice_of(st_dtype_name(t->dtype)),
		/* Lent and only read: lists are not const. */
		.shape = { (uint64_t *)(uintptr_t)t->shape, t->ndims },
		.file = first + t->file,
		.offset = t->offset,
		.total = t->bytes,
	};
}

/* The i-th tensor becomes the object. */
static void take_tensor(struct builder *b, uint32_t i)
{
	for (uint32_t r = 0; r < b->ranks->n; r++) {
		struct source_tensor t;

		ranks_get(b->ranks, r, i, &t);
		b->object[r] = part_of(&t, b->first[r]);
	}
}

/* A broadcast takes whole tensors, of dtypes that torch has. */
static int check_cast(const struct builder *b, const struct m_part *t)
{
	if (!nccl_dtype_name(st_dtype_of(t->dtype)))
		return log_error(E_CONFIG,
				 "transport nccl: tensor \"%.*s\" is of dtype "
				 "%.*s, which torch does not have",
				 SLICE_ARG(t->name), SLICE_ARG(t->dtype));
	if (b->conf->split_tensors && t->total > b->conf->bucket_size &&
	    t->total > DIGEST_LEAF)
		return log_error(E_CONFIG,
				 "transport nccl: tensor \"%.*s\" would be "
				 "split: to broadcast it to a server, push "
				 "without --split-tensors",
				 SLICE_ARG(t->name));
	return 0;
}

static int add_tensor(struct builder *b, uint32_t i)
{
	const struct m_part *t = b->object;
	int rc;

	take_tensor(b, i);
	if (!msg_is_text(t->name))
		return log_error(E_DATA,
				 "%s: tensor \"%.*s\": control characters in "
				 "its name",
				 b->ranks->source[0].file[t->file].path,
				 SLICE_ARG(t->name));
	rc = b->in->is_cast ? check_cast(b, t) : 0;
	if (rc < 0)
		return rc;
	b->sum.tensors++;
	return add_object(b, b->conf->split_tensors);
}

/* The sums over the group that begins with tensor i. */
static struct bucket_load weigh(struct builder *b, uint32_t i)
{
	struct bucket_load load = no_load(b, b->group);

	for (; i != TOGETHER_END; i = b->links.next[i]) {
		take_tensor(b, i);
		add_load(b, &load, b->group);
	}
	return load;
}

/* who: asked for the group. */
static int too_large(const struct builder *b, const char *who,
		     struct slice group, const struct bucket_load *load)
{
	const struct bucket_limits *l = &b->packer.limits;
	uint64_t bytes = bucket_longest(load->bytes, l->lanes);

	if (bytes > l->size)
		return log_error(E_DATA,
				 "%s: group \"%.*s\": its %u tensors have "
				 "%llu bytes, above --bucket-size of %llu",
				 who, SLICE_ARG(group), load->pieces / l->lanes,
				 (unsigned long long)bytes,
				 (unsigned long long)l->size);
	return log_error(E_DATA,
			 "%s: group \"%.*s\": its %u tensors are more than "
			 "one bucket describes (at most %u)",
			 who, SLICE_ARG(group), load->pieces, l->pieces);
}

/* Who says that a group must not be dissolved; or NULL. */
static const char *who_keeps(const struct builder *b, enum together_kind kind)
{
	if (kind == TOGETHER_MUST)
		return "--keep-together";
	if (!b->in->is_cast)
		return NULL;
	return "a server loads bucket by bucket (--keep-together none: it "
	       "fuses nothing)";
}

/* A group that no bucket can hold: a fault, or no group. */
static int dissolve(struct builder *b, uint32_t i,
		    const struct bucket_load *load)
{
	struct buf key = { 0 };
	struct source_tensor t;
	const char *who;
	int rc = 0;

	source_get(&b->ranks->source[0], i, &t);
	who = who_keeps(b, together_key(&b->in->together, t.name, &key));
	if (who)
		rc = too_large(b, who, buf_slice(&key), load);
	buf_release(&key);
	while (rc == 0 && i != TOGETHER_END) {
		uint32_t next = b->links.next[i];

		b->links.next[i] = TOGETHER_END;
		i = next;
	}
	return rc;
}

static int add_group(struct builder *b, uint32_t i)
{
	int rc = 0;

	while (rc == 0 && i != TOGETHER_END) {
		uint32_t next = b->links.next[i];

		rc = add_tensor(b, i);
		b->links.next[i] = TOGETHER_DONE;
		i = next;
	}
	return rc;
}

/* Tensor i, with the group that begins with it. */
static int add_together(struct builder *b, uint32_t i)
{
	struct bucket_load load;
	int rc;

	if (b->links.next[i] == TOGETHER_DONE)
		return 0;
	if (b->links.next[i] == TOGETHER_END)
		return add_tensor(b, i);
	load = weigh(b, i);
	if (!bucket_can_hold(&b->packer.limits, &load)) {
		rc = dissolve(b, i, &load);
		return rc < 0 ? rc : add_tensor(b, i);
	}
	if (!bucket_has_room(&b->packer, &load))
		bucket_break(&b->packer);
	return add_group(b, i);
}

/* What is no tensor: a shard's header or a carried file. */
static struct m_part plain_of(const struct source_file *f, uint32_t id)
{
	bool shard = f->kind == SOURCE_SHARD;

	return (struct m_part){
		.kind = shard ? PART_HEADER : PART_CARRIED,
		.file = id,
		.total = shard ? f->st.data_start : f->id.size,
	};
}

/* That of the i-th file of each rank that has so many. */
static int add_plain(struct builder *b, uint32_t i)
{
	for (uint32_t r = 0; r < b->ranks->n; r++) {
		const struct source *s = &b->ranks->source[r];

		if (i < s->nfiles)
			b->object[r] = plain_of(&s->file[i], b->first[r] + i);
		else
			b->object[r] = (struct m_part){ .file = ID_NONE };
	}
	return add_object(b, true);
}

static uint32_t most_files(const struct ranks *ranks)
{
	uint32_t most = 0;

	for (uint32_t r = 0; r < ranks->n; r++)
		if (ranks->source[r].nfiles > most)
			most = ranks->source[r].nfiles;
	return most;
}

static struct slice name_of(const void *ctx, uint32_t i)
{
	struct source_tensor t;

	source_get(ctx, i, &t);
	return t.name;
}

/* Routed experts, if they go alone, and whatever is in a group with one. */
static void set_apart(struct builder *b)
{
	const struct source *s = &b->ranks->source[0];
	const uint32_t *next = b->links.next;

	b->apart = xcalloc(s->ntensors / 8 + 1, 1);
	if (!b->experts_alone)
		return;
	for (uint32_t i = s->ntensors; i-- > 0;)
		if (expert_is_routed(name_of(s, i)) ||
		    (next[i] != TOGETHER_END && bit_get(b->apart, next[i])))
			bit_set(b->apart, i);
	/* By now the first of each group knows: it tells the others. */
	for (uint32_t i = 0; i < s->ntensors; i++)
		if (next[i] != TOGETHER_END && bit_get(b->apart, i))
			bit_set(b->apart, next[i]);
}

static int add_apart(struct builder *b)
{
	uint32_t n = b->ranks->source[0].ntensors;
	int rc = 0;

	bucket_break(&b->packer);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		if (bit_get(b->apart, i))
			rc = add_together(b, i);
	return rc;
}

/* In file order; the tensors of a file follow its header, those of a group
 * the first of it. */
static int emit_buckets(struct builder *b)
{
	const struct source *s = &b->ranks->source[0];
	uint32_t nfiles = most_files(b->ranks);
	struct source_iter it = { .s = s };
	struct source_tensor t;
	uint32_t file = 0, i = 0;
	int rc = 0;

	together_link(&b->links, &b->in->together, name_of, s, s->ntensors);
	set_apart(b);
	while (rc == 0 && source_next(&it, &t)) {
		while (rc == 0 && file <= t.file)
			rc = add_plain(b, file++);
		if (rc == 0 && !bit_get(b->apart, i))
			rc = add_together(b, i);
		i++;
	}
	while (rc == 0 && file < nfiles)
		rc = add_plain(b, file++);
	if (rc == 0)
		rc = add_apart(b);
	together_unlink(&b->links);
	return rc < 0 ? rc : emit_bucket(b);
}

static int emit_all(struct builder *b)
{
	int rc = record_version(b);

	if (rc == 0)
		rc = record_files(b);
	if (rc == 0)
		rc = record_engines(b);
	if (rc == 0)
		rc = emit_buckets(b);
	return rc < 0 ? rc : record_end(b);
}

static void allocate(struct builder *b)
{
	uint32_t n = b->ranks->n;

	b->parts = xcalloc(MSG_PARTS_MAX, sizeof *b->parts);
	b->first = xcalloc(n, sizeof *b->first);
	b->object = xcalloc(n, sizeof *b->object);
	b->used = xcalloc(n, sizeof *b->used);
	b->open = xcalloc(n, sizeof *b->open);
	b->size = xcalloc(n, sizeof *b->size);
	b->group = xcalloc(n, sizeof *b->group);
}

static void release(struct builder *b)
{
	free(b->parts);
	free(b->first);
	free(b->object);
	free(b->used);
	free(b->open);
	free(b->size);
	free(b->group);
	free(b->apart);
	buf_release(&b->frame);
	buf_release(&b->pending);
}

int plan_build(const struct plan_input *in, const struct plan_conf *conf,
	       const struct plan_output *out, struct m_end *end)
{
	struct builder b = {
		.in = in,
		.conf = conf,
		.out = out,
		.ranks = &in->ranks,
		.experts_alone =
			transport_has(in->transport, TR_SHARED_STAGING),
	};
	struct bucket_limits limits = {
		.size = conf->bucket_size,
		.edge = DIGEST_LEAF,
		.pieces = MSG_PARTS_MAX,
		.cost = FRAME_MAX - BUCKET_COST,
		.lanes = in->ranks.n,
	};
	int rc;

	allocate(&b);
	buf_add(&b.pending, RECFILE_MAGIC, sizeof RECFILE_MAGIC - 1);
	digest_begin(&b.digest);
	if (!in->is_again)
		bucket_begin(&b.packer, &limits, b.used);
	rc = in->is_again ? record_again(&b) : emit_all(&b);
	if (rc == 0)
		*end = b.sum;
	release(&b);
	return rc;
}
