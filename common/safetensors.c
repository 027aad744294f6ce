#include "safetensors.h"
#include "err.h"
#include "io.h"
#include "jsonsax.h"
#include "log.h"
#include "st_layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX 8u /* bytes of N */
#define NAMES_MAX UINT32_MAX

static_assert(sizeof(struct st_tensor) == 32, "a million of these");
static_assert(ST_HEADER_MAX < NAMES_MAX, "32-bit offsets reach every name");

static const struct {
	const char *name;
	unsigned char len; /* of the name */
	unsigned char bits;
} dtypes[ST_NDTYPES] = {
#define X(n, b) [ST_##n] = { #n, sizeof #n - 1, b },
	ST_DTYPE_LIST(X)
#undef X
};

enum field { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL_FIELDS = 7 };

enum state {
	START,
	TOP,
	METADATA,
	METADATA_KEY,
	METADATA_VALUE,
	TENSOR,
	FIELD,
	DTYPE_VALUE,
	SHAPE_START,
	SHAPE_ITEM,
	OFFSETS_START,
	OFFSETS_ITEM,
	END,
	NSTATES
};

struct reader {
	struct st *st;
	const struct st_source *src;
	struct json json;
	enum state state;
	struct st_tensor t; /* the one being read */
	uint64_t offset[2];
	unsigned noffsets, fields;
	bool has_metadata;
	struct buf keys; /* of __metadata__: struct digest each */
	struct buf key;	 /* the last of them, if somebody asks */
};

const char *st_dtype_name(enum st_dtype d)
{
	return dtypes[d].name;
}

unsigned st_dtype_bits(enum st_dtype d)
{
	return dtypes[d].bits;
}

enum st_dtype st_dtype_of(struct slice name)
{
	enum st_dtype d = 0;

	while (d < ST_NDTYPES && (dtypes[d].len != name.n ||
				  memcmp(dtypes[d].name, name.p, name.n) != 0))
		d++;
	return d;
}

int st_bytes(enum st_dtype d, const uint64_t *dims, size_t n, uint64_t *out,
	     const char **why)
{
	uint64_t bits = dtypes[d].bits;

	for (size_t i = 0; i < n; i++) {
		if (!__builtin_mul_overflow(bits, dims[i], &bits))
			continue;
		*why = "the number of bits overflows";
		return -E_DATA;
	}
	if (bits % 8) {
		*why = "not whole bytes";
		return -E_DATA;
	}
	*out = bits / 8;
	return 0;
}

struct slice st_name(const struct st *st, const struct st_tensor *t)
{
	return (struct slice){ st->names.p + t->name, t->name_len };
}

const uint64_t *st_shape(const struct st *st, const struct st_tensor *t)
{
	return st->dims + t->dims;
}

void st_release(struct st *st)
{
	free(st->tensor);
	free(st->dims);
	buf_release(&st->names);
	*st = (struct st){ 0 };
}

/* All errors about one tensor look alike. */
#define TENSOR_ERROR(r, t, fmt, ...)                                   \
	log_error(E_DATA, "%s: tensor \"%.*s\": " fmt, (r)->src->name, \
		  SLICE_ARG(st_name((r)->st, t)), __VA_ARGS__)

/* For %.*s: a value from the file, cut to what a message can bear. */
#define QUOTED(s) (int)((s).n > 64 ? 64 : (s).n), (s).p

static int wrong_type(const struct reader *r, const char *what,
		      const char *want, enum json_event got)
{
	return log_error(E_DATA, "%s: %s: expected %s, found %s", r->src->name,
			 what, want, json_event_name(got));
}

static int on_start(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	if (ev != JSON_OBJECT)
		return wrong_type(r, "header", "an object", ev);
	r->state = TOP;
	return 0;
}

static bool is_printable(struct slice s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
			return false;
	return true;
}

bool st_is_name(struct slice name)
{
	return name.n > 0 && name.n <= ST_NAME_MAX && is_printable(name);
}

static int begin_tensor(struct reader *r, struct slice name)
{
	if (name.n == 0)
		return log_error(E_DATA, "%s: a tensor without a name",
				 r->src->name);
	if (name.n > ST_NAME_MAX)
		return log_error(
			E_DATA,
			"%s: a tensor's name of %zu bytes, \"%.64s...\","
			" is too long (at most %u)",
			r->src->name, name.n, name.p, ST_NAME_MAX);
	if (!is_printable(name))
		return log_error(E_DATA,
				 "%s: control character in the name of tensor "
				 "\"%.*s\"",
				 r->src->name, SLICE_ARG(name));
	r->t = (struct st_tensor){
		.name = (uint32_t)r->st->names.n,
		.name_len = (uint16_t)name.n,
		.dims = r->st->ndims,
	};
	r->fields = 0;
	r->noffsets = 0;
	buf_add(&r->st->names, name.p, name.n);
	r->state = TENSOR;
	return 0;
}

static int on_top(struct reader *r, enum json_event ev, struct slice text)
{
	if (ev == JSON_OBJECT_END) {
		r->state = END;
		return 0;
	}
	if (!slice_eq(text, SLICE("__metadata__")))
		return begin_tensor(r, text);
	if (r->has_metadata)
		return log_error(E_DATA, "%s: __metadata__ twice",
				 r->src->name);
	r->has_metadata = true;
	r->state = METADATA;
	return 0;
}

static int on_metadata(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	if (ev != JSON_OBJECT)
		return wrong_type(r, "__metadata__", "an object", ev);
	r->state = METADATA_KEY;
	return 0;
}

static int cmp_digests(const void *a, const void *b)
{
	return memcmp(a, b, DIGEST_LEN);
}

static int end_metadata(struct reader *r)
{
	size_t n = r->keys.n / DIGEST_LEN;

	if (n)
		qsort(r->keys.p, n, DIGEST_LEN, cmp_digests);
	for (size_t i = 1; i < n; i++)
		if (!memcmp(r->keys.p + (i - 1) * DIGEST_LEN,
			    r->keys.p + i * DIGEST_LEN, DIGEST_LEN))
			return log_error(E_DATA,
					 "%s: __metadata__ has a key twice",
					 r->src->name);
	buf_release(&r->keys);
	r->state = TOP;
	return 0;
}

static int on_metadata_key(struct reader *r, enum json_event ev,
			   struct slice text)
{
	struct digest d;

	if (ev == JSON_OBJECT_END)
		return end_metadata(r);
	if (r->keys.n == (size_t)ST_METADATA_MAX * DIGEST_LEN)
		return log_error(E_DATA, "%s: __metadata__ has over %u keys",
				 r->src->name, ST_METADATA_MAX);
	digest_of(text.p, text.n, &d);
	buf_add(&r->keys, d.b, sizeof d.b);
	buf_clear(&r->key);
	if (r->src->meta)
		buf_add(&r->key, text.p, text.n);
	r->state = METADATA_VALUE;
	return 0;
}

static int on_metadata_value(struct reader *r, enum json_event ev,
			     struct slice text)
{
	if (ev != JSON_STRING)
		return wrong_type(r, "__metadata__", "a string", ev);
	r->state = METADATA_KEY;
	if (!r->src->meta)
		return 0;
	return r->src->meta(r->src->meta_ctx, buf_slice(&r->key), text);
}

static int on_tensor(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	if (ev != JSON_OBJECT)
		return TENSOR_ERROR(r, &r->t, "expected an object, found %s",
				    json_event_name(ev));
	r->state = FIELD;
	return 0;
}

static const char *missing_field(unsigned fields)
{
	return !(fields & DTYPE)   ? "dtype"
	       : !(fields & SHAPE) ? "shape"
				   : "data_offsets";
}

/* "[2, 3]" into out, cut where it does not fit. */
static const char *shape_text(const uint64_t *dims, size_t n, struct buf *out)
{
	buf_add(out, "[", 1);
	for (size_t i = 0; i < n && i < 8; i++)
		buf_addf(out, "%s%llu", i ? ", " : "",
			 (unsigned long long)dims[i]);
	buf_addf(out, n > 8 ? ", ...]" : "]");
	return buf_cstr(out);
}

static int check_size(const struct reader *r)
{
	const struct st_tensor *t = &r->t;
	const uint64_t *dims = st_shape(r->st, t);
	struct buf shape = { 0 };
	const char *why = NULL;
	uint64_t need = 0, have;
	int rc = st_bytes(t->dtype, dims, t->ndims, &need, &why);

	if (rc == 0 && t->begin <= t->end && t->end - t->begin == need)
		return 0;
	have = t->end - t->begin;
	shape_text(dims, t->ndims, &shape);
	if (rc < 0)
		TENSOR_ERROR(r, t, "dtype %s, shape %s: %s",
			     st_dtype_name(t->dtype), buf_cstr(&shape), why);
	else if (t->begin > t->end)
		TENSOR_ERROR(r, t, "data_offsets [%llu, %llu] run backwards",
			     (unsigned long long)t->begin,
			     (unsigned long long)t->end);
	else
		TENSOR_ERROR(r, t,
			     "dtype %s, shape %s: expected %llu bytes, found "
			     "%llu in data_offsets",
			     st_dtype_name(t->dtype), buf_cstr(&shape),
			     (unsigned long long)need,
			     (unsigned long long)have);
	buf_release(&shape);
	return -E_DATA;
}

static int end_tensor(struct reader *r)
{
	struct st *st = r->st;
	int rc;

	if (r->fields != ALL_FIELDS)
		return TENSOR_ERROR(r, &r->t, "no %s",
				    missing_field(r->fields));
	r->t.begin = r->offset[0];
	r->t.end = r->offset[1];
	rc = check_size(r);
	if (rc < 0)
		return rc;
	if (st->n == st->cap) {
		st->cap = st->cap ? st->cap + st->cap / 2 : 64;
		st->tensor =
			xreallocarray(st->tensor, st->cap, sizeof *st->tensor);
	}
	st->tensor[st->n++] = r->t;
	r->state = TOP;
	return 0;
}

static int on_field(struct reader *r, enum json_event ev, struct slice text)
{
	static const struct {
		struct slice name;
		enum field field;
		enum state state;
	} known[] = {
		{ SLICE_INIT("dtype"), DTYPE, DTYPE_VALUE },
		{ SLICE_INIT("shape"), SHAPE, SHAPE_START },
		{ SLICE_INIT("data_offsets"), OFFSETS, OFFSETS_START },
	};

	if (ev == JSON_OBJECT_END)
		return end_tensor(r);
	for (size_t i = 0; i < COUNT(known); i++) {
		if (!slice_eq(text, known[i].name))
			continue;
		if (r->fields & known[i].field)
			return TENSOR_ERROR(r, &r->t, "%s twice",
					    known[i].name.p);
		r->fields |= known[i].field;
		r->state = known[i].state;
		return 0;
	}
	return TENSOR_ERROR(r, &r->t, "unknown field \"%.*s\"", QUOTED(text));
}

static int on_dtype(struct reader *r, enum json_event ev, struct slice text)
{
	enum st_dtype d;

	if (ev != JSON_STRING)
		return TENSOR_ERROR(r, &r->t,
				    "dtype: expected a string, found %s",
				    json_event_name(ev));
	d = st_dtype_of(text);
	if (d == ST_NDTYPES)
		return TENSOR_ERROR(r, &r->t, "unknown dtype \"%.*s\"",
				    QUOTED(text));
	r->t.dtype = (uint8_t)d;
	r->state = FIELD;
	return 0;
}

static int begin_array(struct reader *r, enum json_event ev, const char *what,
		       enum state items)
{
	if (ev != JSON_ARRAY)
		return TENSOR_ERROR(r, &r->t, "%s: expected an array, found %s",
				    what, json_event_name(ev));
	r->state = items;
	return 0;
}

static int whole_number(struct reader *r, enum json_event ev, const char *what,
			struct slice text, uint64_t *out)
{
	if (ev != JSON_NUMBER)
		return TENSOR_ERROR(r, &r->t,
				    "%s: expected a whole number, found %s",
				    what, json_event_name(ev));
	if (json_uint(text, ST_BYTES_MAX, out) == 0)
		return 0;
	return TENSOR_ERROR(r, &r->t,
			    "%s: expected a whole number up to 2^62, found "
			    "%.*s",
			    what, QUOTED(text));
}

static int on_shape(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	return begin_array(r, ev, "shape", SHAPE_ITEM);
}

static int on_shape_item(struct reader *r, enum json_event ev,
			 struct slice text)
{
	struct st *st = r->st;
	uint64_t dim;
	int rc;

	if (ev == JSON_ARRAY_END) {
		r->state = FIELD;
		return 0;
	}
	rc = whole_number(r, ev, "shape", text, &dim);
	if (rc < 0)
		return rc;
	if (r->t.ndims == ST_DIMS_MAX)
		return TENSOR_ERROR(r, &r->t, "more than %u dimensions",
				    ST_DIMS_MAX);
	if (st->ndims == st->dims_cap) {
		st->dims_cap =
			st->dims_cap ? st->dims_cap + st->dims_cap / 2 : 64;
		st->dims =
			xreallocarray(st->dims, st->dims_cap, sizeof *st->dims);
	}
	st->dims[st->ndims++] = dim;
	r->t.ndims++;
	return 0;
}

static int on_offsets(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	return begin_array(r, ev, "data_offsets", OFFSETS_ITEM);
}

static int on_offsets_item(struct reader *r, enum json_event ev,
			   struct slice text)
{
	bool at_end = ev == JSON_ARRAY_END;

	if (at_end != (r->noffsets == 2))
		return TENSOR_ERROR(r, &r->t,
				    "data_offsets: expected 2 numbers, found "
				    "%s",
				    at_end ? "fewer" : "more");
	if (at_end) {
		r->state = FIELD;
		return 0;
	}
	return whole_number(r, ev, "data_offsets", text,
			    &r->offset[r->noffsets++]);
}

static int on_end(struct reader *r, enum json_event ev, struct slice text)
{
	(void)r;
	(void)text;
	BUG("%s after the end of a header", json_event_name(ev));
}

static int on_event(void *ctx, enum json_event ev, struct slice text)
{
	static int (*const step[])(struct reader *, enum json_event,
				   struct slice) = {
		[START] = on_start,
		[TOP] = on_top,
		[METADATA] = on_metadata,
		[METADATA_KEY] = on_metadata_key,
		[METADATA_VALUE] = on_metadata_value,
		[TENSOR] = on_tensor,
		[FIELD] = on_field,
		[DTYPE_VALUE] = on_dtype,
		[SHAPE_START] = on_shape,
		[SHAPE_ITEM] = on_shape_item,
		[OFFSETS_START] = on_offsets,
		[OFFSETS_ITEM] = on_offsets_item,
		[END] = on_end,
	};
	static_assert(COUNT(step) == NSTATES, "a step for every state");
	struct reader *r = ctx;

	return step[r->state](r, ev, text);
}

static int json_failed(const struct reader *r, int rc)
{
	const char *why = json_error(&r->json);

	if (!why)
		return rc;
	return log_error(E_DATA, "%s: header byte %llu: %s", r->src->name,
			 (unsigned long long)json_offset(&r->json), why);
}

/* What people take for weights by accident. */
static const char *other_format(const unsigned char *p, size_t n)
{
	static const char lfs[] = "version https://git-lfs";

	if (n >= sizeof lfs - 1 && !memcmp(p, lfs, sizeof lfs - 1))
		return "looks like a Git-LFS pointer, not like weights: fetch "
		       "them with git lfs pull";
	if (n && p[0] == '<')
		return "looks like an HTML or error page, not like weights: "
		       "download it again";
	return NULL;
}

static uint64_t le64(const unsigned char *p)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

static int check_prefix(const struct st_source *src, uint64_t n,
			const unsigned char *head, size_t have)
{
	bool bad = src->size < PREFIX || n > ST_HEADER_MAX ||
		   n > src->size - PREFIX;
	const char *other = bad ? other_format(head, have) : NULL;

	if (other)
		return log_error(E_DATA, "%s: %s", src->name, other);
	if (src->size < PREFIX)
		return log_error(E_DATA,
				 "%s: too short: expected at least %u bytes, "
				 "found %llu",
				 src->name, PREFIX,
				 (unsigned long long)src->size);
	if (n > ST_HEADER_MAX)
		return log_error(E_DATA,
				 "%s: header too large: at most %u bytes, "
				 "found %llu",
				 src->name, ST_HEADER_MAX,
				 (unsigned long long)n);
	if (bad)
		return log_error(E_DATA,
				 "%s: header goes past the end of the file: "
				 "expected %llu bytes, the file has %llu",
				 src->name, (unsigned long long)n + PREFIX,
				 (unsigned long long)src->size);
	if (n < 2)
		return log_error(E_DATA,
				 "%s: header too short: at least 2 bytes, "
				 "found %llu",
				 src->name, (unsigned long long)n);
	return 0;
}

static int read_prefix(const struct st_source *src, uint64_t *header)
{
	unsigned char head[64] = { 0 };
	size_t have = src->size < sizeof head ? src->size : sizeof head;
	int rc = src->pread(src->ctx, head, have, 0);

	if (rc < 0)
		return rc;
	*header = le64(head);
	rc = check_prefix(src, *header, head, have);
	if (rc < 0)
		return rc;
	if (head[PREFIX] != '{')
		return log_error(E_DATA,
				 "%s: header: expected '{', found byte 0x%02x",
				 src->name, head[PREFIX]);
	return 0;
}

/* Feeds the first 8 + N bytes, in order and once, to digest and reader. */
static int feed(struct reader *r, uint64_t header, struct digest_state *d,
		unsigned char *chunk)
{
	uint64_t end = PREFIX + header, at = 0;

	while (at < end) {
		size_t n = end - at < ST_CHUNK ? end - at : ST_CHUNK;
		size_t skip = at == 0 ? PREFIX : 0;
		int rc = r->src->pread(r->src->ctx, chunk, n, at);

		if (rc < 0)
			return rc;
		digest_add(d, chunk, n);
		rc = json_feed(&r->json, chunk + skip, n - skip);
		if (rc < 0)
			return json_failed(r, rc);
		at += n;
	}
	return json_failed(r, json_end(&r->json));
}

static int read_header(struct reader *r, uint64_t header)
{
	unsigned char *chunk = xmalloc(ST_CHUNK);
	struct digest_state d;
	int rc;

	digest_begin(&d);
	json_begin(&r->json, ST_STRING_MAX, on_event, r);
	rc = feed(r, header, &d, chunk);
	digest_end(&d, &r->st->header);
	json_release(&r->json);
	buf_release(&r->keys);
	buf_release(&r->key);
	free(chunk);
	return rc;
}

int st_read(struct st *st, const struct st_source *src)
{
	struct reader r = { .st = st, .src = src, .state = START };
	uint64_t header;
	int rc = read_prefix(src, &header);

	if (rc < 0)
		return rc;
	*st = (struct st){ .data_start = PREFIX + header,
			   .data_bytes = src->size - PREFIX - header };
	rc = read_header(&r, header);
	if (rc == 0)
		rc = st_layout_check(st, src->name, src->size);
	if (rc < 0)
		st_release(st);
	return rc;
}

struct open_file {
	const char *name;
	int fd;
};

static int pread_file(void *ctx, void *p, size_t n, uint64_t offset)
{
	const struct open_file *f = ctx;
	int got = io_pread_full(f->fd, p, n, (off_t)offset);

	if (got < 0)
		return got;
	if ((size_t)got != n)
		return log_error(E_DATA,
				 "%s: shrank while it was read: expected %zu "
				 "bytes at %llu, found %d",
				 f->name, n, (unsigned long long)offset, got);
	return 0;
}

int st_read_fd(struct st *st, const char *name, int fd, uint64_t size)
{
	return st_read_fd_meta(st, name, fd, size, NULL, NULL);
}

int st_read_fd_meta(struct st *st, const char *name, int fd, uint64_t size,
		    json_pair_fn *meta, void *meta_ctx)
{
	struct open_file f = { name, fd };
	struct st_source src = {
		.name = name,
		.size = size,
		.pread = pread_file,
		.ctx = &f,
		.meta = meta,
		.meta_ctx = meta_ctx,
	};

	return st_read(st, &src);
}
