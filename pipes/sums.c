#include "pipes/sums.h"
#include "common/content.h"
#include "common/err.h"
#include "common/log.h"
#include "common/pieces.h"
#include "pipes/crew.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPAN ((uint64_t)4 * DIGEST_LEAF) /* bytes of one job at most */

struct span {
	uint32_t object;
	uint64_t start, bytes;
};

struct reading {
	const struct sums *sums;
	struct span *span;
	uint32_t n;
};

struct sums_object sums_object(const struct sums *s, uint32_t i)
{
	const struct source *src = s->source;
	struct source_tensor t;

	if (i >= src->ntensors) {
		uint32_t file = i - src->ntensors;

		return (struct sums_object){
			.file = file,
			.bytes = src->file[file].kind == SOURCE_CARRIED
					 ? src->file[file].id.size
					 : 0,
		};
	}
	source_get(src, i, &t);
	return (struct sums_object){ t.file, t.offset, t.bytes };
}

void sums_init(struct sums *s, const struct source *source)
{
	uint64_t total = 0;

	*s = (struct sums){
		.source = source,
		.n = source->ntensors + source->nfiles,
	};
	s->first = xcalloc((size_t)s->n + 1, sizeof *s->first);
	for (uint32_t i = 0; i < s->n; i++) {
		s->first[i] = total;
		total += content_leaves(sums_object(s, i).bytes);
	}
	s->first[s->n] = total;
	s->leaf = xcalloc(total ? total : 1, sizeof *s->leaf);
}

void sums_release(struct sums *s)
{
	free(s->leaf);
	free(s->first);
	*s = (struct sums){ 0 };
}

struct digest *sums_leaves(const struct sums *s, uint32_t i)
{
	return s->leaf + s->first[i];
}

void sums_digest(const struct sums *s, uint32_t i, struct digest *out)
{
	leaves_digest(sums_leaves(s, i), s->first[i + 1] - s->first[i], out);
}

void sums_file_digest(const struct sums *s, uint32_t file, struct digest *out)
{
	const struct source_file *f = &s->source->file[file];
	struct digest_state all;
	struct digest one;

	if (f->kind == SOURCE_CARRIED) {
		sums_digest(s, s->source->ntensors + file, out);
		return;
	}
	digest_begin(&all);
	for (uint32_t k = 0; k < f->st.n; k++) {
		sums_digest(s, f->first + k, &one);
		digest_add(&all, one.b, DIGEST_LEN);
	}
	digest_end(&all, out);
}

/* ---- reading ---- */

int sums_file_open(struct sums_file *f, const struct source *s, uint32_t file)
{
	int fd;

	if (f->source == s && f->file == file)
		return f->fd;
	sums_file_close(f);
	fd = source_open_file(s, file);
	if (fd >= 0)
		*f = (struct sums_file){ s, fd, file };
	return fd;
}

void sums_file_close(struct sums_file *f)
{
	if (f->source)
		close(f->fd);
	f->source = NULL;
}

static int hash_span(void *ctx, uint32_t i, void *seat)
{
	const struct reading *r = ctx;
	const struct sums *s = r->sums;
	const struct span *sp = &r->span[i];
	struct sums_object o = sums_object(s, sp->object);
	struct piece p = { o.file, o.offset + sp->start, sp->bytes };
	int fd = sums_file_open(seat, s->source, o.file), rc;
	struct window w;

	if (fd < 0)
		return fd;
	window_init(&w, fd, s->source->file[o.file].id.size, WINDOW_AUTO);
	rc = piece_hash(&w, &p,
			sums_leaves(s, sp->object) + sp->start / DIGEST_LEAF,
			NULL);
	window_release(&w);
	if (rc < 0)
		return log_error(-rc, "%s/%s: %s", s->source->dir.path,
				 s->source->file[o.file].path,
				 rc == -E_DATA ? "it became shorter while it "
						 "was read"
					       : "it cannot be read");
	return 0;
}

static void add_spans(struct reading *r, uint32_t object)
{
	uint64_t bytes = sums_object(r->sums, object).bytes;

	for (uint64_t at = 0; at < bytes; at += SPAN) {
		if ((r->n & (r->n - 1)) == 0)
			r->span = xreallocarray(r->span,
						r->n ? 2 * (size_t)r->n : 1,
						sizeof *r->span);
		r->span[r->n++] =
			(struct span){ object, at,
				       bytes - at < SPAN ? bytes - at : SPAN };
	}
}

static void leave(void *seat)
{
	sums_file_close(seat);
}

int sums_read(struct sums *s, uint32_t first, unsigned threads)
{
	struct reading r = { .sums = s };
	struct crew c = {
		.threads = threads,
		.seat_size = sizeof(struct sums_file),
		.work = hash_span,
		.leave = leave,
		.ctx = &r,
	};
	int rc;

	for (uint32_t i = first; i < s->n; i++)
		add_spans(&r, i);
	rc = crew_run(&c, r.n);
	free(r.span);
	return rc;
}

int sums_read_one(struct sums *s, uint32_t i)
{
	struct reading r = { .sums = s };
	struct sums_file file = { 0 };
	int rc = 0;

	add_spans(&r, i);
	for (uint32_t k = 0; rc == 0 && k < r.n; k++)
		rc = hash_span(&r, k, &file);
	sums_file_close(&file);
	free(r.span);
	return rc;
}

static int fold(const struct sums *s, struct content *c, uint32_t i)
{
	const struct source *src = s->source;
	bool is_tensor = i < src->ntensors;
	struct source_tensor t;
	struct slice name;

	if (is_tensor) {
		source_get(src, i, &t);
		name = t.name;
	} else if (src->file[i - src->ntensors].kind == SOURCE_CARRIED) {
		name = slice_of(src->file[i - src->ntensors].path);
	} else {
		return 0;
	}
	return content_add(c, is_tensor ? CONTENT_TENSOR : CONTENT_CARRIED,
			   name, sums_object(s, i).bytes, 0, sums_leaves(s, i),
			   (uint32_t)(s->first[i + 1] - s->first[i]));
}

int sums_identity(const struct sums *s, struct identity *out)
{
	struct identity id = { .structure = s->source->structure };
	uint32_t ntensors = s->source->ntensors;
	struct content c = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < s->n; i++) {
		if (i == ntensors)
			rc = content_finish(&c, &id.tensors);
		if (rc == 0)
			rc = fold(s, &c, i);
	}
	if (rc == 0)
		rc = content_finish(&c, &id.content);
	content_release(&c);
	if (rc == 0)
		*out = id;
	return rc;
}
