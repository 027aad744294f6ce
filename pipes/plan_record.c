#include "pipes/plan_build_part.h"

#include "common/err.h"
#include "common/expert.h"
#include "common/log.h"
#include "pipes/recfile.h"

#include <stdlib.h>

#define FLUSH (1u << 20) /* bytes written at once */

/* The wire's enums are the vocabulary's. */
_Static_assert((int)ENGINE_NATIVE == (int)FLEET_NATIVE &&
		       (int)ENGINE_SGLANG == (int)FLEET_SGLANG &&
		       (int)ENGINE_VLLM == (int)FLEET_VLLM,
	       "one order of kinds");

static int flush(struct builder *b)
{
	int rc = 0;

	if (b->out->file)
		rc = io_stream_add(b->out->file, b->pending.p, b->pending.n);
	buf_clear(&b->pending);
	return rc;
}

int record_add(struct builder *b, const struct msg *m, const char *what)
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

static bool has_experts(const struct m_bucket *bucket)
{
	for (uint32_t i = 0; i < bucket->parts.n; i++)
		if (expert_is_routed(bucket->parts.v[i].name))
			return true;
	return false;
}

int record_bucket(struct builder *b, struct m_bucket *bucket)
{
	struct msg m = { .type = M_bucket };
	int rc = 0;

	bucket->exclusive = b->experts_alone && has_experts(bucket);
	if (b->out->bucket)
		rc = b->out->bucket(b->out->arg, bucket);
	m.bucket = *bucket;
	return rc < 0 ? rc : record_add(b, &m, "bucket");
}

static struct slice text_of(const char *s)
{
	return slice_of(s ? s : "");
}

int record_version(struct builder *b)
{
	struct msg m = { .type = M_version };
	struct slice *source = xcalloc(b->ranks->n, sizeof *source);
	int rc;

	for (uint32_t r = 0; r < b->ranks->n; r++)
		source[r] = text_of(b->ranks->source[r].dir.real);
	m.version = (struct m_version){
		.format = 1,
		.model = text_of(b->in->fleet.model),
		.sources = { source, b->ranks->n },
		.transport = text_of(b->in->transport),
		.bucket_size = b->conf->bucket_size,
		.split = b->conf->split_tensors,
		.structure = b->ranks->structure,
		.disk_dir = text_of(b->in->disk_dir),
	};
	rc = record_add(b, &m, b->ranks->source[0].dir.real);
	free(source);
	return rc;
}

static int emit_file(struct builder *b, uint32_t rank, uint32_t i)
{
	const struct source_file *f = &b->ranks->source[rank].file[i];
	struct msg m = { .type = M_file };

	m.file = (struct m_file){
		.id = b->sum.files,
		.rank = rank,
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
	return record_add(b, &m, f->path);
}

int record_files(struct builder *b)
{
	int rc = 0;

	for (uint32_t r = 0; r < b->ranks->n; r++) {
		b->first[r] = b->sum.files;
		for (uint32_t i = 0; i < b->ranks->source[r].nfiles && rc == 0;
		     i++)
			rc = emit_file(b, r, i);
	}
	return rc;
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
		.pull = text_of(e->pull),
		.workers = { worker, e->nworkers },
	};
	rc = record_add(b, &m, e->name);
	free(worker);
	return rc;
}

int record_engines(struct builder *b)
{
	const struct fleet *f = &b->in->fleet;
	int rc = 0;

	for (uint32_t i = 0; i < f->n && rc == 0; i++)
		rc = emit_engine(b, &f->engine[i]);
	return rc;
}

int record_end(struct builder *b)
{
	struct msg m = { .type = M_end };
	int rc;

	digest_end(&b->digest, &b->sum.digest);
	m.end = b->sum;
	rc = record_add(b, &m, "end");
	return rc < 0 ? rc : flush(b);
}

/* ---- a published version again ---- */

/* Its first record, but for where it is and what it is for. */
static int emit_version_again(struct builder *b, struct msg *m)
{
	const struct plan_again *a = &b->in->again;
	const char *model = b->in->fleet.model;
	uint32_t nranks = a->old.nranks;
	struct slice *place = xcalloc(a->nplaces + nranks, sizeof *place);
	struct slice *source = place + a->nplaces;
	int rc;

	for (uint32_t i = 0; i < a->nplaces; i++)
		place[i] = slice_of(a->place[i]);
	for (uint32_t r = 0; r < nranks; r++)
		source[r] = slice_of(a->source[r]);
	if (model)
		m->version.model = slice_of(model);
	m->version.sources.v = source;
	m->version.sources.n = nranks;
	m->version.transport = text_of(b->in->transport);
	m->version.disk_dir = text_of(b->in->disk_dir);
	m->version.kind = (uint8_t)a->kind;
	m->version.base = a->base;
	m->version.content = a->content;
	m->version.shares.v = a->shares;
	m->version.shares.n = a->nshares;
	m->version.places.v = place;
	m->version.places.n = a->nplaces;
	rc = record_add(b, m, a->source[0]);
	free(place);
	return rc;
}

static int emit_record_again(struct builder *b, struct msg *m)
{
	int rc = 0;

	switch (m->type) {
	case M_version:
		rc = emit_version_again(b, m);
		return rc < 0 ? rc : 0;
	case M_file:
		return record_add(b, m, "file");
	case M_bucket:
		return record_bucket(b, &m->bucket);
	default:
		return 0;
	}
}

/* Engines stand between files and buckets. */
int record_again(struct builder *b)
{
	const struct m_end *old = &b->in->again.old.end;
	struct rec_reader r = b->in->again.old.rec;
	struct msg_arena arena = { 0 };
	bool has_engines = false;
	struct msg m;
	int rc;

	r.off = sizeof RECFILE_MAGIC - 1;
	while ((rc = rec_next(&r, &m, &arena)) > 0) {
		if (m.type == M_engine && !has_engines) {
			has_engines = true;
			rc = record_engines(b);
		} else {
			rc = emit_record_again(b, &m);
		}
		if (rc < 0)
			break;
	}
	msg_arena_release(&arena);
	if (rc < 0)
		return rc;
	b->sum.files = old->files;
	b->sum.buckets = old->buckets;
	b->sum.tensors = old->tensors;
	b->sum.bytes = old->bytes;
	return record_end(b);
}
