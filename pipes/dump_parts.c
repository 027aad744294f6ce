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

static const char *path_of(const struct dump_parts *d, uint32_t file)
{
	char *const *v = (void *)d->paths.p;

	return file < d->paths.n / sizeof *v ? v[file] : "";
}

static int file_line(struct dump_parts *d, const struct m_file *f,
		     struct buf *out)
{
	char *path = xstrndup(f->path.n ? f->path.p : "", f->path.n);
	struct jsonw j;

	buf_add(&d->paths, &path, sizeof path);
	jsonw_begin(&j, out, PART_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_slice(&j, "file", f->path);
	jsonw_u64(&j, "bytes", f->bytes);
	jsonw_hex(&j, "header", f->digest.b, DIGEST_LEN);
	jsonw_end(&j);
	return jsonw_finish(&j);
}

static int part_line(const struct dump_parts *d, const struct m_part *p,
		     struct buf *out)
{
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
	jsonw_str(&j, "file", path_of(d, p->file));
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
	char **v = (void *)d->paths.p;

	for (size_t i = 0; i < d->paths.n / sizeof *v; i++)
		free(v[i]);
	buf_release(&d->paths);
}
