#include "common/jsonw.h"
#include "pipes/dump.h"

#include <stdlib.h>

/* An escaped name may be six times as long; shapes and paths beside it. */
#define PART_LINE_MAX (1u << 16)

static const char *const kinds[] = {
	[PART_TENSOR] = "tensor",
	[PART_HEADER] = "header",
	[PART_CARRIED] = "carried",
};
_Static_assert(COUNT(kinds) == PART_N, "name every kind");

struct dump_file {
	char *path;
	uint32_t rank;
};

static struct dump_file file_of(const struct dump_parts *d, uint32_t file)
{
	static char none[] = "";
	const struct dump_file *v = (const void *)d->files.p;

	return file < d->files.n / sizeof *v ? v[file]
					     : (struct dump_file){ none, 0 };
}

static int file_line(struct dump_parts *d, const struct m_file *f,
		     struct buf *out)
{
	struct dump_file file = {
		.path = xstrndup(f->path.n ? f->path.p : "", f->path.n),
		.rank = f->rank,
	};
	struct jsonw j;

	buf_add(&d->files, &file, sizeof file);
	jsonw_begin(&j, out, PART_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_u64(&j, "rank", f->rank);
	jsonw_slice(&j, "file", f->path);
	jsonw_u64(&j, "bytes", f->bytes);
	jsonw_hex(&j, "header", f->digest.b, DIGEST_LEN);
	jsonw_end(&j);
	return jsonw_finish(&j);
}

static int part_line(const struct dump_parts *d, const struct m_part *p,
		     struct buf *out)
{
	struct dump_file file = file_of(d, p->file);
	struct jsonw j;

	jsonw_begin(&j, out, PART_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_str(&j, "part", p->kind < PART_N ? kinds[p->kind] : "");
	jsonw_slice(&j, "name", p->name);
	jsonw_slice(&j, "dtype", p->dtype);
	jsonw_array(&j, "shape");
	for (uint32_t i = 0; i < p->shape.n; i++)
		jsonw_u64(&j, NULL, p->shape.v[i]);
	jsonw_end(&j);
	jsonw_u64(&j, "rank", file.rank);
	jsonw_str(&j, "file", file.path);
	jsonw_u64(&j, "start", p->start);
	jsonw_u64(&j, "bytes", p->bytes);
	jsonw_end(&j);
	return jsonw_finish(&j);
}

static int bucket_lines(const struct dump_parts *d, const struct m_bucket *b,
			struct buf *out)
{
	struct jsonw j;
	int rc;

	jsonw_begin(&j, out, PART_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_u64(&j, "bucket_bytes", b->bytes);
	jsonw_u64(&j, "parts", b->parts.n);
	jsonw_end(&j);
	rc = jsonw_finish(&j);
	for (uint32_t i = 0; i < b->parts.n && rc == 0; i++)
		rc = part_line(d, &b->parts.v[i], out);
	return rc;
}

int dump_parts_add(struct dump_parts *d, const struct msg *m, struct buf *out)
{
	if (m->type == M_file)
		return file_line(d, &m->file, out);
	if (m->type == M_bucket)
		return bucket_lines(d, &m->bucket, out);
	msg_json(out, m);
	buf_add(out, "\n", 1);
	return 0;
}

void dump_parts_release(struct dump_parts *d)
{
	struct dump_file *v = (void *)d->files.p;

	for (size_t i = 0; i < d->files.n / sizeof *v; i++)
		free(v[i].path);
	buf_release(&d->files);
}
