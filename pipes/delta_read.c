/* Opening a delta: index, headers, manifest; see delta.h. */
#include "pipes/delta.h"
#include "common/err.h"
#include "common/index.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/markline.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGITS_MAX 20u

enum {
	META_VERSION,
	META_BASE,
	META_ENCODING,
	META_COMPRESSION,
	META_CHECKSUM,
	META_MANIFEST,
	NMETA
};

static const char *const meta_key[] = {
	[META_VERSION] = "version",
	[META_BASE] = "base_version",
	[META_ENCODING] = "delta_encoding",
	[META_COMPRESSION] = "compression_format",
	[META_CHECKSUM] = "checksum_format",
	[META_MANIFEST] = "weir_manifest",
};
_Static_assert(COUNT(meta_key) == NMETA, "all keys");

struct opening {
	struct delta *d;
	const char *path;
	struct index index;
	char *meta[NMETA];
	struct buf sums; /* struct sum, of one file */
	struct buf sum_names;
	uint32_t lines; /* of the manifest */
	uint32_t told;	/* tensors that it has */
};

struct sum {
	uint64_t name;
	uint32_t name_len;
	char text[CHECKSUM_HEX];
};

const char *delta_encoding_name(unsigned encoding)
{
	return encoding == DELTA_AUTO ? "auto" : patch_name(encoding);
}

const char *delta_shape(const uint64_t *dims, unsigned n, struct buf *out)
{
	buf_clear(out);
	for (unsigned i = 0; i < n; i++)
		buf_addf(out, "%s%llu", i ? "x" : "",
			 (unsigned long long)dims[i]);
	return buf_cstr(out);
}

/* ---- index ---- */

static int on_meta(void *ctx, struct slice key, struct slice value)
{
	struct opening *o = ctx;

	for (unsigned k = 0; k < NMETA; k++) {
		if (!slice_eq(key, slice_of(meta_key[k])))
			continue;
		if (o->meta[k])
			return log_error(E_DATA, "%s/%s: %s twice", o->path,
					 SOURCE_INDEX, meta_key[k]);
		o->meta[k] = xstrndup(value.p, value.n);
	}
	return 0;
}

static int read_index(struct opening *o)
{
	char *name = xasprintf("%s/%s", o->path, SOURCE_INDEX);
	struct buf b = { 0 };
	int rc = io_read_file(o->d->dir.fd, SOURCE_INDEX, INDEX_BYTES_MAX, &b);

	if (rc == -E_NOINPUT)
		rc = log_error(E_NOINPUT,
			       "%s: no %s: no delta, or one that is not "
			       "finished",
			       o->path, SOURCE_INDEX);
	else if (rc == 0)
		rc = index_read_meta(&o->index, name, buf_slice(&b), on_meta,
				     o);
	o->d->stored += b.n;
	buf_release(&b);
	free(name);
	return rc;
}

static int bad_meta(const struct opening *o, unsigned k, const char *want)
{
	return log_error(E_DATA, "%s/%s: %s is \"%.64s\"; expected %s", o->path,
			 SOURCE_INDEX, meta_key[k], o->meta[k], want);
}

static int take_version(const struct opening *o, unsigned k, uint64_t *out)
{
	const char *s = o->meta[k];
	uint64_t v = 0;

	for (size_t i = 0; s[i]; i++)
		if (i == DIGITS_MAX || s[i] < '0' || s[i] > '9' ||
		    __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return bad_meta(o, k, "a number");
	if (!*s)
		return bad_meta(o, k, "a number");
	*out = v;
	return 0;
}

static int take_encoding(struct opening *o)
{
	const char *s = o->meta[META_ENCODING];

	o->d->encoding = patch_of(slice_of(s));
	if (o->d->encoding == DELTA_AUTO && strcmp(s, "auto") != 0)
		return bad_meta(o, META_ENCODING,
				"xor, overwrite, sparse or auto");
	if (strcmp(o->meta[META_COMPRESSION], "zstd") != 0)
		return bad_meta(o, META_COMPRESSION, "zstd");
	return 0;
}

static int take_checksum(struct opening *o)
{
	o->d->checksum = checksum_of(slice_of(o->meta[META_CHECKSUM]));
	if (o->d->checksum == CHECKSUM_NKINDS)
		return bad_meta(o, META_CHECKSUM, "xxh3-128 or adler32");
	if (!checksum_is_built(o->d->checksum))
		return log_error(E_DATA,
				 "%s: its checksums are %s, which this weir "
				 "is built without",
				 o->path, o->meta[META_CHECKSUM]);
	return 0;
}

static int take_meta(struct opening *o)
{
	struct delta *d = o->d;
	int rc;

	if (!o->meta[META_ENCODING])
		return log_error(E_DATA,
				 "%s: its index has no delta_encoding: a full "
				 "version, no delta",
				 o->path);
	for (unsigned k = 0; k < META_MANIFEST; k++)
		if (!o->meta[k])
			return log_error(E_DATA, "%s/%s: no %s", o->path,
					 SOURCE_INDEX, meta_key[k]);
	rc = take_version(o, META_VERSION, &d->version);
	if (rc == 0)
		rc = take_version(o, META_BASE, &d->base_version);
	if (rc == 0)
		rc = take_encoding(o);
	if (rc == 0)
		rc = take_checksum(o);
	if (rc == 0 && d->version <= d->base_version)
		rc = log_error(E_DATA,
			       "%s: version %llu does not come after its base "
			       "%llu",
			       o->path, (unsigned long long)d->version,
			       (unsigned long long)d->base_version);
	return rc;
}

/* ---- files ---- */

static int on_sum(void *ctx, struct slice key, struct slice value)
{
	struct opening *o = ctx;
	struct sum s = { .name = o->sum_names.n, .name_len = (uint32_t)key.n };

	/* Other writers may add members of their own. */
	if (!checksum_is_text(o->d->checksum, value))
		return 0;
	memcpy(s.text, value.p, value.n);
	buf_add(&o->sum_names, key.p, key.n);
	buf_add(&o->sums, &s, sizeof s);
	return 0;
}

static struct slice sum_name(const void *ctx, uint32_t i)
{
	const struct opening *o = ctx;
	const struct sum *s = (const struct sum *)(const void *)o->sums.p + i;

	return (struct slice){ o->sum_names.p + s->name, s->name_len };
}

static int bad_tensor(const struct opening *o, const struct delta_file *f,
		      struct slice name, const char *why)
{
	return log_error(E_DATA, "%s/%s: tensor \"%.*s\": %s", o->path, f->path,
			 SLICE_ARG(name), why);
}

static int add_tensor(struct opening *o, uint32_t file,
		      const struct st_tensor *t, const struct sum *sum)
{
	struct delta *d = o->d;
	const struct delta_file *f = &d->file[file];
	struct slice name = st_name(&f->st, t);
	struct delta_tensor *out;

	if (t->dtype != ST_U8 || t->ndims != 1)
		return bad_tensor(o, f, name,
				  "no payload: one is U8 and has "
				  "one dimension");
	if (!sum)
		return bad_tensor(o, f, name, "no checksum in __metadata__");
	if ((d->n & (d->n - 1)) == 0)
		d->tensor =
			xreallocarray(d->tensor, d->n ? 2 * (size_t)d->n : 1,
				      sizeof *d->tensor);
	out = &d->tensor[d->n++];
	*out = (struct delta_tensor){
		.name = name,
		.file = file,
		.offset = f->st.data_start + t->begin,
		.bytes = t->end - t->begin,
		.kind = d->encoding,
		.dtype = ST_NDTYPES,
	};
	memcpy(out->sum, sum->text, sizeof out->sum);
	return 0;
}

static struct slice header_name(const void *ctx, uint32_t i)
{
	const struct st *st = ctx;

	return st_name(st, &st->tensor[i]);
}

/* Each tensor of the header with its checksum, in order of offset. */
static int add_tensors(struct opening *o, uint32_t file)
{
	const struct st *st = &o->d->file[file].st;
	uint32_t nsums = (uint32_t)(o->sums.n / sizeof(struct sum)), s = 0;
	const struct sum **sum = xcalloc(st->n ? st->n : 1, sizeof *sum);
	struct names have, sums;
	int rc = 0;

	names_sort(&have, header_name, st, st->n);
	names_sort(&sums, sum_name, o, nsums);
	for (uint32_t h = 0; h < st->n; h++) {
		while (s < nsums && names_cmp(&sums, s, &have, h) < 0)
			s++;
		if (s < nsums && names_cmp(&sums, s, &have, h) == 0)
			sum[names_id(&have, h)] =
				(const struct sum *)(const void *)o->sums.p +
				names_id(&sums, s);
	}
	for (uint32_t i = 0; rc == 0 && i < st->n; i++)
		rc = add_tensor(o, file, &st->tensor[i], sum[i]);
	names_release(&have);
	names_release(&sums);
	free(sum);
	return rc;
}

static int open_file(struct opening *o, uint32_t i)
{
	struct delta_file *f = &o->d->file[i];
	char *name = xasprintf("%s/%s", o->path, o->index.file[i]);
	int fd = srcdir_open_file(&o->d->dir, o->index.file[i], &f->id), rc;

	f->path = xstrdup(o->index.file[i]);
	buf_clear(&o->sums);
	buf_clear(&o->sum_names);
	if (fd == -E_NOINPUT)
		rc = log_error(E_NOINPUT, "%s is missing", name);
	else if (fd < 0)
		rc = fd;
	else
		rc = st_read_fd_meta(&f->st, name, fd, f->id.size, on_sum, o);
	if (fd >= 0)
		close(fd);
	free(name);
	o->d->stored += f->id.size;
	return rc < 0 ? rc : add_tensors(o, i);
}

static int open_files(struct opening *o)
{
	struct delta *d = o->d;
	int rc = 0;

	d->nfiles = o->index.nfiles;
	d->file = xcalloc(d->nfiles ? d->nfiles : 1, sizeof *d->file);
	for (uint32_t i = 0; rc == 0 && i < d->nfiles; i++)
		rc = open_file(o, i);
	return rc;
}

static struct slice tensor_name(const void *ctx, uint32_t i)
{
	const struct delta *d = ctx;

	return d->tensor[i].name;
}

/* Both say the same, as in a checkpoint. */
static int check_map(struct opening *o)
{
	struct delta *d = o->d;
	const struct names *want = &o->index.order;
	uint32_t a, b;

	names_sort(&d->order, tensor_name, d, d->n);
	if (names_find_twice(&d->order, &a, &b))
		return bad_tensor(o, &d->file[d->tensor[b].file],
				  d->tensor[b].name, "there twice");
	for (uint32_t k = 0; k < d->n || k < want->n; k++) {
		bool more = k >= want->n;
		int c = more	    ? -1
			: k >= d->n ? 1
				    : names_cmp(&d->order, k, want, k);

		if (c == 0 && d->tensor[names_id(&d->order, k)].file ==
				      o->index.entry[names_id(want, k)].file)
			continue;
		return log_error(E_DATA,
				 "%s: tensor \"%.*s\": index and headers do "
				 "not agree about it",
				 o->path,
				 SLICE_ARG(c <= 0 ? names_at(&d->order, k)
						  : names_at(want, k)));
	}
	return 0;
}

static bool is_foreign(const struct delta *d, const char *name)
{
	size_t n = strlen(name);
	static const char tail[] = ".safetensors";

	if (n < sizeof tail || strcmp(name + n - sizeof tail + 1, tail) != 0)
		return false;
	for (uint32_t i = 0; i < d->nfiles; i++)
		if (strcmp(d->file[i].path, name) == 0)
			return false;
	return true;
}

/* slime's reader takes every *.safetensors that it finds. */
static int check_foreign(const struct opening *o)
{
	int fd = io_open_dir(o->d->dir.fd, "."), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : log_errno(E_IO, "list %s", o->path);
	}
	while (rc == 0 && (errno = 0, e = readdir(dir)))
		if (is_foreign(o->d, e->d_name))
			rc = log_error(E_DATA,
				       "%s/%s: the index does not know it",
				       o->path, e->d_name);
	if (rc == 0 && errno)
		rc = log_errno(E_IO, "list %s", o->path);
	closedir(dir);
	return rc;
}

/* ---- manifest ---- */

#define HEAD                                                                 \
	(MARK_BIT(weir_delta) | MARK_BIT(version) | MARK_BIT(base_version) | \
	 MARK_BIT(encoding) | MARK_BIT(parent) | MARK_BIT(content) |         \
	 MARK_BIT(parent_tensors) | MARK_BIT(tensors))
#define TENSOR                                                     \
	(MARK_BIT(tensor) | MARK_BIT(encoding) | MARK_BIT(dtype) | \
	 MARK_BIT(shape) | MARK_BIT(before))
#define SHARD (MARK_BIT(file) | MARK_BIT(bytes) | MARK_BIT(digest))

static int bad_line(const struct opening *o, const char *why)
{
	return log_error(E_DATA, "%s/%s: line %u: %s", o->path, DELTA_MANIFEST,
			 o->lines, why);
}

static int take_head(struct opening *o, const struct markline *m)
{
	struct delta *d = o->d;

	if ((m->has & ~MARK_BIT(registry)) != HEAD)
		return bad_line(o, "no manifest of a delta");
	if (m->weir_delta != MARK_FORMAT)
		return bad_line(o, "a format that this weir does not know");
	if (m->version != d->version || m->base_version != d->base_version ||
	    !slice_eq(m->encoding, slice_of(o->meta[META_ENCODING])))
		return bad_line(o, "of another delta than the index");
	d->parent = m->parent;
	d->parent_tensors = m->parent_tensors;
	d->content = m->content;
	d->tensors = m->tensors;
	return m->has & MARK_BIT(registry)
		       ? vmark_registry(m->registry, d->registry)
		       : 0;
}

int64_t delta_find(const struct delta *d, struct slice name)
{
	struct delta one = { .tensor = &(struct delta_tensor){ .name = name } };
	struct names key;
	uint32_t lo = 0, hi = d->n;
	int64_t found = -1;

	names_sort(&key, tensor_name, &one, 1);
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = names_cmp(&d->order, mid, &key, 0);

		if (c == 0) {
			found = names_id(&d->order, mid);
			break;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	names_release(&key);
	return found;
}

static int take_tensor(struct opening *o, const struct markline *m)
{
	struct delta *d = o->d;
	int64_t i = delta_find(d, m->tensor);
	enum patch_kind kind = patch_of(m->encoding);
	enum st_dtype dtype = st_dtype_of(m->dtype);
	struct delta_tensor *t;

	if (i < 0 || d->tensor[i].shape)
		return bad_line(o, "a tensor that is not there, or twice");
	if (kind == PATCH_NKINDS || dtype == ST_NDTYPES ||
	    (d->encoding != DELTA_AUTO && kind != d->encoding))
		return bad_line(o, "an encoding or dtype that cannot be");
	t = &d->tensor[i];
	t->kind = kind;
	t->dtype = dtype;
	t->shape = xstrndup(m->shape.p, m->shape.n);
	t->before = m->before;
	o->told++;
	return 0;
}

static int take_file(struct opening *o, const struct markline *m)
{
	for (uint32_t i = 0; i < o->d->nfiles; i++) {
		struct delta_file *f = &o->d->file[i];

		if (!slice_eq(m->file, slice_of(f->path)))
			continue;
		if (m->bytes != f->id.size)
			return log_error(E_DATA,
					 "%s/%s: expected %llu bytes, found "
					 "%llu",
					 o->path, f->path,
					 (unsigned long long)m->bytes,
					 (unsigned long long)f->id.size);
		f->digest = m->digest;
		return 0;
	}
	return bad_line(o, "a file that the index does not have");
}

static int on_line(void *ctx, const struct markline *m)
{
	struct opening *o = ctx;

	if (++o->lines == 1)
		return take_head(o, m);
	if (m->has == TENSOR)
		return take_tensor(o, m);
	if (m->has == SHARD)
		return take_file(o, m);
	return bad_line(o, "neither a tensor's nor a file's");
}

static int read_manifest(struct opening *o)
{
	char *name = xasprintf("%s/%s", o->path, DELTA_MANIFEST);
	struct delta *d = o->d;
	struct digest want;
	struct buf b = { 0 };
	int rc = io_read_file(d->dir.fd, DELTA_MANIFEST, MARK_BYTES_MAX, &b);

	if (rc == -E_NOINPUT)
		rc = log_error(E_DATA, "%s is missing", name);
	digest_of(b.p, b.n, &d->manifest);
	if (rc == 0 &&
	    (digest_parse(o->meta[META_MANIFEST],
			  strlen(o->meta[META_MANIFEST]), &want) < 0 ||
	     !digest_eq(&want, &d->manifest)))
		rc = log_error(E_DATA,
			       "%s: it is not the one that the index names",
			       name);
	if (rc == 0)
		rc = markline_read(name, buf_slice(&b), on_line, o);
	if (rc == 0 && (o->lines == 0 || o->told != d->n))
		rc = log_error(E_DATA, "%s: %u of %u tensors", name, o->told,
			       d->n);
	d->is_weirs = rc == 0;
	d->stored += b.n;
	buf_release(&b);
	free(name);
	return rc;
}

/* What only a manifest can tell must not be missing. */
static int check_kinds(const struct opening *o)
{
	if (o->d->is_weirs || o->d->encoding == PATCH_XOR ||
	    o->d->encoding == PATCH_OVERWRITE)
		return 0;
	return log_error(E_DATA, "%s: encoding %s needs a %s, which is missing",
			 o->path, o->meta[META_ENCODING], DELTA_MANIFEST);
}

static int load(struct opening *o)
{
	int rc = read_index(o);

	if (rc == 0)
		rc = take_meta(o);
	if (rc == 0)
		rc = open_files(o);
	if (rc == 0)
		rc = check_map(o);
	if (rc == 0)
		rc = check_foreign(o);
	if (rc == 0 && o->meta[META_MANIFEST])
		rc = read_manifest(o);
	if (rc == 0)
		rc = check_kinds(o);
	return rc;
}

static void close_opening(struct opening *o)
{
	index_release(&o->index);
	for (unsigned k = 0; k < NMETA; k++)
		free(o->meta[k]);
	buf_release(&o->sums);
	buf_release(&o->sum_names);
}

int delta_open(struct delta *d, const char *path)
{
	struct opening o = { .d = d, .path = path };
	int rc;

	*d = (struct delta){ 0 };
	rc = srcdir_open(&d->dir, path);
	if (rc < 0)
		return rc;
	rc = load(&o);
	close_opening(&o);
	if (rc < 0)
		delta_close(d);
	return rc;
}

int delta_is_one(const char *path)
{
	struct delta d = { 0 };
	struct opening o = { .d = &d, .path = path };
	int was = log_quiet_thread(1);
	int rc = srcdir_open(&d.dir, path);

	if (rc == 0)
		rc = read_index(&o);
	log_quiet_thread(was);
	if (rc == -E_IO)
		log_error(E_IO, "%s", log_cause());
	else
		rc = rc == 0 && o.meta[META_ENCODING];
	close_opening(&o);
	srcdir_release(&d.dir);
	return rc;
}

void delta_close(struct delta *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		free(d->tensor[i].shape);
	free(d->tensor);
	for (uint32_t i = 0; i < d->nfiles; i++) {
		st_release(&d->file[i].st);
		free(d->file[i].path);
	}
	free(d->file);
	names_release(&d->order);
	srcdir_release(&d->dir);
	*d = (struct delta){ 0 };
}
