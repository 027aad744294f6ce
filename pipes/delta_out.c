#include "pipes/delta_out.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/version.h"
#include "pipes/beside.h"
#include "pipes/markline.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME_SIZE 48 /* of a file of a delta */

/* An encoded tensor; its payload is owned until it is written. */
struct delta_encoded {
	uint32_t tensor; /* of the old version */
	uint32_t file;
	enum patch_kind kind;
	char sum[CHECKSUM_HEX];
	struct buf payload;
};

struct delta_written {
	uint64_t bytes;
	struct digest digest;
};

static char *own_name(const struct delta_out *o, const struct delta_encoded *e)
{
	struct source_tensor t;

	source_get(o->before->source, e->tensor, &t);
	return xstrndup(t.name.p, t.name.n);
}

static void part_name(char out[NAME_SIZE], uint32_t i)
{
	snprintf(out, NAME_SIZE, "part-%05u", i);
}

static void file_name(char out[NAME_SIZE], uint32_t i, uint32_t n)
{
	snprintf(out, NAME_SIZE, "model-%05u-of-%05u.safetensors", i, n);
}

/* u64 N | N bytes, padded so that the data are aligned to eight bytes. */
static void make_header(const struct delta_out *o, struct buf *out)
{
	uint64_t at = 0, n;
	struct jsonw j;

	buf_add(out, "\0\0\0\0\0\0\0\0", 8);
	jsonw_begin(&j, out, ST_HEADER_MAX);
	jsonw_object(&j, NULL);
	jsonw_object(&j, "__metadata__");
	for (uint32_t i = o->first; i < o->n; i++) {
		char *name = own_name(o, &o->enc[i]);

		jsonw_str(&j, name, o->enc[i].sum);
		free(name);
	}
	jsonw_end(&j);
	for (uint32_t i = o->first; i < o->n; i++) {
		char *name = own_name(o, &o->enc[i]);

		jsonw_object(&j, name);
		jsonw_str(&j, "dtype", "U8");
		jsonw_array(&j, "shape");
		jsonw_u64(&j, NULL, o->enc[i].payload.n);
		jsonw_end(&j);
		jsonw_array(&j, "data_offsets");
		jsonw_u64(&j, NULL, at);
		at += o->enc[i].payload.n;
		jsonw_u64(&j, NULL, at);
		jsonw_end(&j);
		jsonw_end(&j);
		free(name);
	}
	jsonw_end(&j);
	BUG_ON(jsonw_finish(&j) < 0);
	while (out->n % 8)
		buf_add(out, " ", 1);
	n = out->n - 8;
	for (int i = 0; i < 8; i++)
		out->p[i] = (char)(n >> 8 * i);
}

static int put(struct io_stream *to, struct slice s,
	       struct digest_state *digest, struct delta_written *w)
{
	digest_add(digest, s.p, s.n);
	w->bytes += s.n;
	return io_stream_add(to, s.p, s.n);
}

static int write_part(struct delta_out *o, struct io_stream *to,
		      struct delta_written *w)
{
	struct digest_state digest;
	struct buf header = { 0 };
	int rc;

	digest_begin(&digest);
	make_header(o, &header);
	rc = put(to, buf_slice(&header), &digest, w);
	buf_release(&header);
	for (uint32_t i = o->first; rc == 0 && i < o->n; i++) {
		rc = put(to, buf_slice(&o->enc[i].payload), &digest, w);
		buf_release(&o->enc[i].payload);
		o->enc[i].file = o->nfiles;
	}
	digest_end(&digest, &w->digest);
	return rc;
}

static void add_written(struct delta_out *o, const struct delta_written *w)
{
	if ((o->nfiles & (o->nfiles - 1)) == 0)
		o->file = xreallocarray(o->file,
					o->nfiles ? 2 * (size_t)o->nfiles : 1,
					sizeof *o->file);
	o->file[o->nfiles++] = *w;
	o->first = o->n;
	o->held = 0;
	o->stored += w->bytes;
}

int delta_out_flush(struct delta_out *o)
{
	struct delta_written w = { 0 };
	char name[NAME_SIZE];
	struct io_stream to;
	int rc;

	if (o->first == o->n)
		return 0;
	part_name(name, o->nfiles);
	rc = io_stream_open(&to, o->dirfd, name);
	if (rc < 0)
		return rc;
	rc = write_part(o, &to, &w);
	if (rc == 0)
		rc = io_stream_replace(&to);
	else
		io_stream_drop(&to);
	beside_tell("file written");
	add_written(o, &w);
	return rc;
}

int delta_out_add_take(struct delta_out *o, uint32_t tensor,
		       enum patch_kind kind, const char *sum,
		       struct buf *payload)
{
	struct delta_encoded *e;

	if ((o->n & (o->n - 1)) == 0)
		o->enc = xreallocarray(o->enc, o->n ? 2 * (size_t)o->n : 1,
				       sizeof *o->enc);
	e = &o->enc[o->n++];
	*e = (struct delta_encoded){
		.tensor = tensor,
		.kind = kind,
		.payload = *payload,
	};
	snprintf(e->sum, sizeof e->sum, "%s", sum);
	*payload = (struct buf){ 0 };
	o->held += e->payload.n;
	if (o->held < DELTA_FILE_BYTES && o->n - o->first < DELTA_TENSORS_MAX)
		return 0;
	return delta_out_flush(o);
}

static int name_files(struct delta_out *o)
{
	char part[NAME_SIZE], name[NAME_SIZE];

	for (uint32_t i = 0; i < o->nfiles; i++) {
		part_name(part, i);
		file_name(name, i, o->nfiles);
		if (renameat(o->dirfd, part, o->dirfd, name) < 0)
			return log_errno(E_IO, "rename to %s/%s", o->path,
					 name);
	}
	return 0;
}

static void add_head(const struct delta_out *o, const struct identity id[2],
		     struct buf *out)
{
	struct markline m = {
		.has = MARK_BIT(weir_delta) | MARK_BIT(version) |
		       MARK_BIT(base_version) | MARK_BIT(encoding) |
		       MARK_BIT(parent) | MARK_BIT(content) |
		       MARK_BIT(parent_tensors) | MARK_BIT(tensors),
		.weir_delta = MARK_FORMAT,
		.version = o->version,
		.base_version = o->base,
		.encoding = slice_of(delta_encoding_name(o->encoding)),
		.registry = slice_of(o->registry),
		.parent = id[0].content,
		.parent_tensors = id[0].tensors,
		.content = id[1].content,
		.tensors = id[1].tensors,
	};

	if (m.registry.n)
		m.has |= MARK_BIT(registry);
	markline_add(out, &m);
}

static void add_tensor(const struct delta_out *o, const struct delta_encoded *e,
		       struct buf *shape, struct buf *out)
{
	struct source_tensor t;
	struct markline m = {
		.has = MARK_BIT(tensor) | MARK_BIT(encoding) | MARK_BIT(dtype) |
		       MARK_BIT(shape) | MARK_BIT(before),
		.encoding = slice_of(patch_name(e->kind)),
	};

	source_get(o->before->source, e->tensor, &t);
	m.tensor = t.name;
	m.dtype = slice_of(st_dtype_name(t.dtype));
	m.shape = slice_of(delta_shape(t.shape, t.ndims, shape));
	sums_digest(o->before, e->tensor, &m.before);
	markline_add(out, &m);
}

static void make_manifest(const struct delta_out *o,
			  const struct identity id[2], struct buf *out)
{
	struct buf shape = { 0 };
	char name[NAME_SIZE];

	add_head(o, id, out);
	for (uint32_t i = 0; i < o->n; i++)
		add_tensor(o, &o->enc[i], &shape, out);
	for (uint32_t i = 0; i < o->nfiles; i++) {
		struct markline m = {
			.has = MARK_BIT(file) | MARK_BIT(bytes) |
			       MARK_BIT(digest),
			.bytes = o->file[i].bytes,
			.digest = o->file[i].digest,
		};

		file_name(name, i, o->nfiles);
		m.file = slice_of(name);
		markline_add(out, &m);
	}
	markline_end(out, (uint64_t)1 + o->n + o->nfiles);
	buf_release(&shape);
}

static void put_version(struct jsonw *j, const char *key, uint64_t v)
{
	char text[VERSION_NAME_SIZE];

	jsonw_str(j, key, version_name(text, v));
}

static void make_index(const struct delta_out *o, const struct digest *manifest,
		       struct buf *out)
{
	char name[NAME_SIZE];
	struct jsonw j;

	jsonw_begin(&j, out, SIZE_MAX);
	jsonw_object(&j, NULL);
	jsonw_object(&j, "metadata");
	put_version(&j, "version", o->version);
	put_version(&j, "base_version", o->base);
	jsonw_str(&j, "delta_encoding", delta_encoding_name(o->encoding));
	jsonw_str(&j, "compression_format", "zstd");
	jsonw_str(&j, "checksum_format", checksum_name(o->checksum));
	jsonw_hex(&j, "weir_manifest", manifest->b, DIGEST_LEN);
	jsonw_end(&j);
	jsonw_object(&j, "weight_map");
	for (uint32_t i = 0; i < o->n; i++) {
		char *key = own_name(o, &o->enc[i]);

		file_name(name, o->enc[i].file, o->nfiles);
		jsonw_str(&j, key, name);
		free(key);
	}
	jsonw_end(&j);
	jsonw_end(&j);
	BUG_ON(jsonw_finish(&j) < 0);
}

/* The index last: it is what makes a directory a delta. */
int delta_out_finish(struct delta_out *o, const struct identity id[2],
		     struct digest *manifest)
{
	struct buf b = { 0 };
	int rc = name_files(o);

	make_manifest(o, id, &b);
	digest_of(b.p, b.n, manifest);
	if (rc == 0)
		rc = io_replace(o->dirfd, DELTA_MANIFEST, b.p, b.n);
	beside_tell("manifest written");
	o->stored += b.n;
	buf_clear(&b);
	make_index(o, manifest, &b);
	if (rc == 0)
		rc = io_replace(o->dirfd, SOURCE_INDEX, b.p, b.n);
	beside_tell("index written");
	o->stored += b.n;
	buf_release(&b);
	return rc;
}

void delta_out_release(struct delta_out *o)
{
	for (uint32_t i = 0; i < o->n; i++)
		buf_release(&o->enc[i].payload);
	free(o->enc);
	free(o->file);
	*o = (struct delta_out){ 0 };
}
