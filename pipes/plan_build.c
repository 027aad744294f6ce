#include "pipes/plan_build.h"
#include "common/bucket.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/recfile.h"

#include <stdlib.h>
#include <string.h>

#define FLUSH (1u << 20) /* bytes written at once */
/* Upper bounds of what msgpack makes of it: a bucket without its parts, a
 * part without names and shape, one dimension. */
#define BUCKET_COST 32
#define PART_COST 64
#define DIM_COST 9

/* The wire's enums are the vocabulary's. */
_Static_assert((int)ENGINE_NATIVE == (int)FLEET_NATIVE &&
		       (int)ENGINE_SGLANG == (int)FLEET_SGLANG &&
		       (int)ENGINE_VLLM == (int)FLEET_VLLM,
	       "one order of kinds");

struct builder {
	const struct plan_input *in;
	const struct plan_conf *conf;
	const struct plan_output *out;
	struct digest_state digest;
	struct buf frame, pending;
	struct bucket_packer packer;
	struct m_part *parts; /* of the open bucket */
	uint32_t nparts;
	uint64_t bucket_bytes;
	bool unordered; /* parts of the open bucket */
	struct together_links links;
	struct m_end sum;
};

static int flush(struct builder *b)
{
	int rc = 0;

	if (b->out->file)
		rc = io_stream_add(b->out->file, b->pending.p, b->pending.n);
	buf_clear(&b->pending);
	return rc;
}

/* what: the thing that a fault is about. */
static int emit(struct builder *b, const struct msg *m, const char *what)
{
	struct slice frame;
	int rc, was = log_quiet_thread(1);

	buf_clear(&b->frame);
	rc = msg_pack(&b->frame, m);
	log_quiet_thread(was);
	if (rc < 0)
		return log_error(E_DATA, "%s: %s", what, log_cause());
	frame = buf_slice(&b->frame);
	if (m->type != M_end) {
		digest_add(&b->digest, frame.p, frame.n);
		b->sum.records++;
	}
	rec_append_frame(&b->pending, frame);
	return b->pending.n < FLUSH ? 0 : flush(b);
}

static struct slice text_of(const char *s)
{
	return slice_of(s ? s : "");
}

static int emit_version(struct builder *b)
{
	struct msg m = { .type = M_version };
	struct slice source = text_of(b->in->source.dir.real);

	m.version = (struct m_version){
		.format = 1,
		.model = text_of(b->in->fleet.model),
		.sources = { &source, 1 },
		.transport = text_of(b->in->transport),
		.bucket_size = b->conf->bucket_size,
		.split = b->conf->split_tensors,
		.structure = b->in->source.structure,
	};
	return emit(b, &m, b->in->source.dir.real);
}

static int emit_file(struct builder *b, uint32_t i)
{
	const struct source_file *f = &b->in->source.file[i];
	struct msg m = { .type = M_file };

	m.file = (struct m_file){
		.id = i,
		.path = text_of(f->path),
		.kind = f->kind == SOURCE_SHARD ? FILE_SHARD : FILE_CARRIED,
		.bytes = f->id.size,
		.header = f->st.data_start,
		.digest = f->st.header,
		.dev = f->id.dev,
		.ino = f->id.ino,
		.mtime_ns = f->id.mtime_ns,
	};
	b->sum.files++;
	return emit(b, &m, f->path);
}

static int emit_engine(struct builder *b, const struct fleet_engine *e)
{
	struct msg m = { .type = M_engine };
	struct slice *worker = xcalloc(e->nworkers, sizeof *worker);
	int rc;

	for (uint32_t i = 0; i < e->nworkers; i++)
		worker[i] = slice_of(e->endpoint[i]);
	m.engine = (struct m_engine){
		.id = b->sum.engines++,
		.name = slice_of(e->name),
		.kind = (uint8_t)e->kind,
		.url = text_of(e->url),
		.workers = { worker, e->nworkers },
	};
	rc = emit(b, &m, e->name);
	free(worker);
	return rc;
}

/* Staged kinds first (I6); they are the first of the enum. */
static int emit_engines(struct builder *b)
{
	const struct fleet *f = &b->in->fleet;
	int rc = 0;

	for (unsigned kind = 0; kind < FLEET_NKINDS; kind++)
		for (uint32_t i = 0; i < f->n && rc == 0; i++)
			if (f->engine[i].kind == kind)
				rc = emit_engine(b, &f->engine[i]);
	return rc;
}

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
	struct msg m = { .type = M_bucket };
	int rc = 0;

	if (b->unordered)
		qsort(b->parts, b->nparts, sizeof *b->parts, cmp_parts);
	m.bucket.id = b->sum.buckets;
	m.bucket.bytes = b->bucket_bytes;
	m.bucket.parts.v = b->parts;
	m.bucket.parts.n = b->nparts;
	if (b->out->bucket)
		rc = b->out->bucket(b->out->arg, &m.bucket);
	if (rc == 0)
		rc = emit(b, &m, "bucket");
	if (__builtin_add_overflow(b->sum.bytes, b->bucket_bytes,
				   &b->sum.bytes))
		return log_error(E_DATA, "source %s: its size overflows",
				 b->in->source.dir.path);
	b->sum.buckets++;
	b->nparts = 0;
	b->bucket_bytes = 0;
	b->unordered = false;
	return rc;
}

static uint64_t cost_of(const struct m_part *p)
{
	return PART_COST + p->name.n + p->dtype.n +
	       (uint64_t)p->shape.n * DIM_COST;
}

/* part: the whole object, starting at part->offset. */
static int add_object(struct builder *b, const struct m_part *part, bool split)
{
	struct bucket_piece piece;
	int rc;

	bucket_object(&b->packer, part->total, cost_of(part), split);
	while (bucket_next(&b->packer, &piece)) {
		struct m_part *p;

		rc = piece.opens ? emit_bucket(b) : 0;
		if (rc < 0)
			return rc;
		p = &b->parts[b->nparts++];
		*p = *part;
		p->offset += piece.start;
		p->start = piece.start;
		p->bytes = piece.bytes;
		b->bucket_bytes += piece.bytes;
		if (b->nparts > 1 && cmp_parts(p - 1, p) > 0)
			b->unordered = true;
	}
	return 0;
}

/* Lends what it names. */
static struct m_part part_of(const struct source_tensor *t)
{
	return (struct m_part){
		.kind = PART_TENSOR,
		.name = t->name,
		.dtype = slice_of(st_dtype_name(t->dtype)),
		/* Lent and only read: lists are not const. */
		.shape = { (uint64_t *)(uintptr_t)t->shape, t->ndims },
		.file = t->file,
		.offset = t->offset,
		.total = t->bytes,
	};
}

static int add_tensor(struct builder *b, const struct source_tensor *t)
{
	struct m_part part = part_of(t);

	if (!msg_is_text(t->name))
		return log_error(E_DATA,
				 "%s: tensor \"%.*s\": control characters in "
				 "its name",
				 b->in->source.file[t->file].path,
				 SLICE_ARG(t->name));
	b->sum.tensors++;
	return add_object(b, &part, b->conf->split_tensors);
}

/* The sums over the group that begins with tensor i; bytes saturate. */
static struct bucket_load weigh(const struct builder *b, uint32_t i)
{
	struct bucket_load load = { 0 };

	for (; i != TOGETHER_END; i = b->links.next[i]) {
		struct source_tensor t;
		struct m_part part;

		source_get(&b->in->source, i, &t);
		part = part_of(&t);
		if (__builtin_add_overflow(load.bytes, t.bytes, &load.bytes))
			load.bytes = UINT64_MAX;
		load.cost += cost_of(&part);
		load.pieces++;
	}
	return load;
}

static int too_large(const struct builder *b, struct slice group,
		     const struct bucket_load *load)
{
	const struct bucket_limits *l = &b->packer.limits;

	if (load->bytes > l->size)
		return log_error(E_DATA,
				 "--keep-together: group \"%.*s\": its %u "
				 "tensors have %llu bytes, above --bucket-size "
				 "of %llu",
				 SLICE_ARG(group), load->pieces,
				 (unsigned long long)load->bytes,
				 (unsigned long long)l->size);
	return log_error(E_DATA,
			 "--keep-together: group \"%.*s\": its %u tensors are "
			 "more than one bucket describes (at most %u)",
			 SLICE_ARG(group), load->pieces, l->pieces);
}

/* A group that no bucket can hold: a fault, or no group. */
static int dissolve(struct builder *b, uint32_t i,
		    const struct bucket_load *load)
{
	struct buf key = { 0 };
	struct source_tensor t;
	int rc = 0;

	source_get(&b->in->source, i, &t);
	if (together_key(&b->in->together, t.name, &key) == TOGETHER_MUST)
		rc = too_large(b, buf_slice(&key), load);
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
		struct source_tensor t;

		source_get(&b->in->source, i, &t);
		rc = add_tensor(b, &t);
		b->links.next[i] = TOGETHER_DONE;
		i = next;
	}
	return rc;
}

/* Tensor i, with the group that begins with it. */
static int add_together(struct builder *b, uint32_t i,
			const struct source_tensor *t)
{
	struct bucket_load load;
	int rc;

	if (b->links.next[i] == TOGETHER_DONE)
		return 0;
	if (b->links.next[i] == TOGETHER_END)
		return add_tensor(b, t);
	load = weigh(b, i);
	if (!bucket_can_hold(&b->packer.limits, &load)) {
		rc = dissolve(b, i, &load);
		return rc < 0 ? rc : add_tensor(b, t);
	}
	if (!bucket_has_room(&b->packer, &load))
		bucket_break(&b->packer);
	return add_group(b, i);
}

/* What is no tensor: a shard's header or a carried file. */
static int add_plain(struct builder *b, uint32_t file)
{
	const struct source_file *f = &b->in->source.file[file];
	bool shard = f->kind == SOURCE_SHARD;
	struct m_part part = {
		.kind = shard ? PART_HEADER : PART_CARRIED,
		.file = file,
		.total = shard ? f->st.data_start : f->id.size,
	};

	return add_object(b, &part, true);
}

static struct slice name_of(const void *ctx, uint32_t i)
{
	struct source_tensor t;

	source_get(ctx, i, &t);
	return t.name;
}

/* In file order; the tensors of a file follow its header, those of a group
 * the first of it. */
static int emit_buckets(struct builder *b)
{
	const struct source *s = &b->in->source;
	struct source_iter it = { .s = s };
	struct source_tensor t;
	uint32_t file = 0, i = 0;
	int rc = 0;

	together_link(&b->links, &b->in->together, name_of, s, s->ntensors);
	while (rc == 0 && source_next(&it, &t)) {
		while (rc == 0 && file <= t.file)
			rc = add_plain(b, file++);
		if (rc == 0)
			rc = add_together(b, i++, &t);
	}
	together_unlink(&b->links);
	while (rc == 0 && file < s->nfiles)
		rc = add_plain(b, file++);
	return rc < 0 ? rc : emit_bucket(b);
}

static int emit_end(struct builder *b)
{
	struct msg m = { .type = M_end };
	int rc;

	digest_end(&b->digest, &b->sum.digest);
	m.end = b->sum;
	rc = emit(b, &m, "end");
	return rc < 0 ? rc : flush(b);
}

static int emit_all(struct builder *b)
{
	int rc = emit_version(b);

	for (uint32_t i = 0; i < b->in->source.nfiles && rc == 0; i++)
		rc = emit_file(b, i);
	if (rc == 0)
		rc = emit_engines(b);
	if (rc == 0)
		rc = emit_buckets(b);
	return rc < 0 ? rc : emit_end(b);
}

int plan_build(const struct plan_input *in, const struct plan_conf *conf,
	       const struct plan_output *out, struct m_end *end)
{
	struct builder b = { .in = in, .conf = conf, .out = out };
	int rc;

	b.parts = xcalloc(MSG_PARTS_MAX, sizeof *b.parts);
	buf_add(&b.pending, RECFILE_MAGIC, sizeof RECFILE_MAGIC - 1);
	digest_begin(&b.digest);
	bucket_begin(&b.packer, &(struct bucket_limits){
					.size = conf->bucket_size,
					.edge = DIGEST_LEAF,
					.pieces = MSG_PARTS_MAX,
					.cost = FRAME_MAX - BUCKET_COST,
				});
	rc = emit_all(&b);
	if (rc == 0)
		*end = b.sum;
	free(b.parts);
	buf_release(&b.frame);
	buf_release(&b.pending);
	return rc;
}
