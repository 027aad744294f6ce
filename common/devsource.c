#include "devsource.h"
#include "err.h"
#include "io.h"
#include "jsonw.h"
#include "log.h"
#include "names.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

#define HEADER_ALIGN 8 /* bytes: the data begins at a multiple of them */
#define METADATA "__metadata__"

/* While a file is read. */
struct reading {
	struct devsource *d;
	const char *name; /* of the file */
};

static const char *const head_keys[] = { "format", "tensors" };
static const char *const tensor_keys[] = { "name",    "dtype", "shape",
					   "strides", "bytes", "device",
					   "handle",  "offset" };

/* ---- one tensor ---- */

static int wrong(const struct reading *r, const struct devsource_tensor *t,
		 const char *what)
{
	if (!t->name)
		return log_error(E_DATA, "%s: tensor number %u: %s", r->name,
				 t->number, what);
	return log_error(E_DATA, "%s: tensor \"%s\": %s", r->name, t->name,
			 what);
}

/* Prints into a text that wrong() is given. */
#define WHY_MAX 512

static int check_keys(const struct reading *r, const struct devsource_tensor *t,
		      const struct doc *d)
{
	const char *other = doc_other_key(d, tensor_keys, COUNT(tensor_keys));
	char why[WHY_MAX];

	for (size_t i = 0; i < COUNT(tensor_keys); i++)
		if (!doc_at(d, tensor_keys[i])) {
			snprintf(why, sizeof(why), "has no \"%s\"",
				 tensor_keys[i]);
			return wrong(r, t, why);
		}
	if (!other)
		return 0;
	snprintf(why, sizeof(why), "a key \"%.200s\" that tensors do not have",
		 other);
	return wrong(r, t, why);
}

static int take_name(const struct reading *r, struct devsource_tensor *t,
		     const struct doc *d)
{
	const char *name = doc_text(d);

	if (!name || !st_is_name(slice_of(name)))
		return wrong(r, t,
			     "its name is no text of 1 to 512 bytes "
			     "without control characters");
	t->name = name;
	if (strcmp(name, METADATA) == 0)
		return wrong(r, t, "safetensors has this name for itself");
	return 0;
}

static int take_dtype(const struct reading *r, struct devsource_tensor *t,
		      const struct doc *d)
{
	const char *text = doc_text(d);
	char why[WHY_MAX];

	t->dtype = st_dtype_of(slice_of(text ? text : ""));
	if (t->dtype != ST_NDTYPES)
		return 0;
	snprintf(why, sizeof(why), "dtype \"%.32s\" is not known",
		 text ? text : "");
	return wrong(r, t, why);
}

/* n whole numbers. */
static bool take_numbers(const struct doc *d, uint64_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!doc_whole(doc_item(d, i), &out[i]))
			return false;
	return true;
}

static int take_shape(const struct reading *r, struct devsource_tensor *t,
		      const struct doc *d)
{
	size_t n = doc_count(d);
	const char *why;
	uint64_t bytes;

	if (!doc_is_list(d) || n > ST_DIMS_MAX)
		return wrong(r, t, "its shape is no list of up to 64 numbers");
	t->ndims = (unsigned)n;
	t->shape = xcalloc(n + 1, sizeof(*t->shape));
	if (!take_numbers(d, t->shape, n))
		return wrong(r, t, "its shape is not of whole numbers");
	if (st_bytes(t->dtype, t->shape, t->ndims, &bytes, &why) < 0)
		return wrong(r, t, why);
	t->bytes = bytes;
	return 0;
}

static bool is_row_major(const struct devsource_tensor *t,
			 const uint64_t *stride)
{
	uint64_t want = 1;

	if (t->bytes == 0)
		return true;
	for (unsigned i = t->ndims; i > 0; i--) {
		if (t->shape[i - 1] != 1 && stride[i - 1] != want)
			return false;
		want *= t->shape[i - 1];
	}
	return true;
}

static int not_contiguous(const struct reading *r,
			  const struct devsource_tensor *t,
			  const struct doc *shape, const struct doc *strides)
{
	struct buf why = { 0 };
	int rc;

	buf_addf(&why, "it is not contiguous: strides ");
	doc_add_text(strides, &why);
	buf_addf(&why, " of shape ");
	doc_add_text(shape, &why);
	buf_addf(&why, "; give a contiguous copy of it");
	rc = wrong(r, t, buf_cstr(&why));
	buf_release(&why);
	return rc;
}

static int check_strides(const struct reading *r,
			 const struct devsource_tensor *t, const struct doc *d)
{
	const struct doc *strides = doc_at(d, "strides");
	uint64_t stride[ST_DIMS_MAX];

	if (!doc_is_list(strides) || doc_count(strides) != t->ndims ||
	    !take_numbers(strides, stride, t->ndims))
		return wrong(r, t,
			     "its strides are no whole numbers, one for "
			     "each dimension");
	return is_row_major(t, stride)
		       ? 0
		       : not_contiguous(r, t, doc_at(d, "shape"), strides);
}

static int check_bytes(const struct reading *r,
		       const struct devsource_tensor *t, const struct doc *d)
{
	uint64_t bytes = 0;
	char why[WHY_MAX];

	if (doc_whole(d, &bytes) && bytes == t->bytes)
		return 0;
	snprintf(why, sizeof(why),
		 "expected %llu bytes for its dtype and shape, found %llu",
		 (ull)t->bytes, (ull)bytes);
	return wrong(r, t, why);
}

/* The first tensor's is that of all. */
static int take_device(const struct reading *r, struct devsource_tensor *t,
		       const struct doc *d)
{
	char first[GPU_UUID_TEXT], why[WHY_MAX];
	unsigned char uuid[GPU_UUID_LEN];

	if (!gpu_uuid_of(doc_text(d) ? doc_text(d) : "", uuid))
		return wrong(r, t,
			     "its device is no UUID, as "
			     "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
	if (t->number == 0)
		memcpy(r->d->device, uuid, sizeof(uuid));
	if (memcmp(r->d->device, uuid, sizeof(uuid)) == 0)
		return 0;
	gpu_uuid_text(r->d->device, first);
	snprintf(why, sizeof(why),
		 "it is on %.64s, the first one on %s; give a --source for "
		 "each device",
		 doc_text(d), first);
	return wrong(r, t, why);
}

/* Most tensors are of the allocation that the one before was of. */
static bool find_base(const struct devsource *d,
		      const unsigned char handle[GPU_HANDLE_LEN], uint32_t *out)
{
	for (uint32_t i = d->nbases; i > 0; i--)
		if (memcmp(d->handle[i - 1], handle, GPU_HANDLE_LEN) == 0) {
			*out = i - 1;
			return true;
		}
	return false;
}

static int take_base(const struct reading *r, struct devsource_tensor *t,
		     const struct doc *d)
{
	unsigned char handle[GPU_HANDLE_LEN];
	struct devsource *s = r->d;

	if (!gpu_hex(doc_text(d) ? doc_text(d) : "", handle, sizeof(handle)))
		return wrong(r, t, "its handle is not 128 hexadecimal digits");
	if (find_base(s, handle, &t->base))
		return 0;
	if (s->nbases == DEVSOURCE_BASES)
		return wrong(r, t,
			     "it is in one allocation too many: at most "
			     "4096");
	t->base = s->nbases++;
	memcpy(s->handle[t->base], handle, sizeof(handle));
	return 0;
}

static int take_offset(const struct reading *r, struct devsource_tensor *t,
		       const struct doc *d)
{
	if (!doc_whole(d, &t->offset) || t->offset > ST_BYTES_MAX)
		return wrong(r, t, "its offset is no whole number of bytes");
	return 0;
}

static int take_tensor(const struct reading *r, struct devsource_tensor *t,
		       const struct doc *d)
{
	int rc = take_name(r, t, doc_at(d, "name"));

	if (rc == 0)
		rc = check_keys(r, t, d);
	if (rc == 0)
		rc = take_dtype(r, t, doc_at(d, "dtype"));
	if (rc == 0)
		rc = take_shape(r, t, doc_at(d, "shape"));
	if (rc == 0)
		rc = check_strides(r, t, d);
	if (rc == 0)
		rc = check_bytes(r, t, doc_at(d, "bytes"));
	if (rc == 0)
		rc = take_device(r, t, doc_at(d, "device"));
	if (rc == 0)
		rc = take_base(r, t, doc_at(d, "handle"));
	return rc < 0 ? rc : take_offset(r, t, doc_at(d, "offset"));
}

/* ---- all of them ---- */

static int cmp_widths(const void *pa, const void *pb)
{
	const struct devsource_tensor *a = pa, *b = pb;
	unsigned wa = st_dtype_bits(a->dtype), wb = st_dtype_bits(b->dtype);

	if (wa != wb)
		return wa > wb ? -1 : 1;
	return a->number < b->number ? -1 : 1;
}

static struct slice name_of(const void *ctx, uint32_t i)
{
	const struct devsource *d = ctx;

	return slice_of(d->tensor[i].name);
}

static int check_names(const struct reading *r)
{
	struct names order;
	uint32_t a, b;
	int rc = 0;

	names_sort(&order, name_of, r->d, r->d->n);
	if (names_find_twice(&order, &a, &b))
		rc = wrong(r, &r->d->tensor[b], "is there twice");
	names_release(&order);
	return rc;
}

static int cmp_places(const void *pa, const void *pb)
{
	const struct devsource_tensor *a =
		*(struct devsource_tensor *const *)pa;
	const struct devsource_tensor *b =
		*(struct devsource_tensor *const *)pb;

	if (a->base != b->base)
		return a->base < b->base ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* One that ends behind the beginning of the next, which is not the same run of
 * bytes under another name. */
static bool runs_into(const struct devsource_tensor *a,
		      const struct devsource_tensor *b)
{
	if (a->base != b->base)
		return false;
	if (a->offset == b->offset && a->bytes == b->bytes)
		return false;
	return a->offset + a->bytes > b->offset;
}

static int check_places(const struct reading *r)
{
	const struct devsource *d = r->d;
	struct devsource_tensor **t = xcalloc(d->n, sizeof(*t));
	char why[WHY_MAX + ST_NAME_MAX];
	uint32_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; i < d->n; i++)
		if (d->tensor[i].bytes > 0)
			t[n++] = &d->tensor[i];
	qsort(t, n, sizeof(*t), cmp_places);
	for (uint32_t i = 1; i < n && rc == 0; i++) {
		if (!runs_into(t[i - 1], t[i]))
			continue;
		snprintf(why, sizeof(why), "its bytes overlap those of \"%s\"",
			 t[i - 1]->name);
		rc = wrong(r, t[i], why);
	}
	free(t);
	return rc;
}

static int take_tensors(const struct reading *r, const struct doc *list)
{
	struct devsource *d = r->d;
	size_t n = doc_count(list);
	int rc = 0;

	if (n == 0 || n > DEVSOURCE_TENSORS)
		return log_error(E_DATA,
				 "%s: expected 1 to %u tensors, found %zu",
				 r->name, DEVSOURCE_TENSORS, n);
	d->tensor = xcalloc(n, sizeof(*d->tensor));
	d->handle = xcalloc(DEVSOURCE_BASES, sizeof(*d->handle));
	while (rc == 0 && d->n < n) {
		struct devsource_tensor *t = &d->tensor[d->n];

		t->number = d->n++;
		rc = take_tensor(r, t, doc_item(list, t->number));
		if (rc == 0 && t->bytes > ST_BYTES_MAX - d->bytes)
			rc = wrong(r, t, "all tensors' bytes overflow with it");
		d->bytes += rc == 0 ? t->bytes : 0;
	}
	if (rc == 0)
		rc = check_names(r);
	return rc < 0 ? rc : check_places(r);
}

static int take_head(const struct reading *r)
{
	const struct doc *d = r->d->doc;
	const char *other = doc_other_key(d, head_keys, COUNT(head_keys));

	if (!d)
		return log_error(E_DATA,
				 "%s: no JSON text, or one with a key twice",
				 r->name);
	if (doc_number(doc_at(d, "format")) != 1)
		return log_error(E_DATA, "%s: expected \"format\": 1", r->name);
	if (other)
		return log_error(E_DATA, "%s: a key \"%.200s\" is not known",
				 r->name, other);
	return take_tensors(r, doc_at(d, "tensors"));
}

int devsource_parse(struct devsource *d, const char *name, struct slice text)
{
	struct reading r = { d, name };
	int rc;

	*d = (struct devsource){ .doc = doc_parse(text) };
	rc = take_head(&r);
	if (rc < 0)
		devsource_release(d);
	else
		qsort(d->tensor, d->n, sizeof(*d->tensor), cmp_widths);
	return rc;
}

int devsource_read(struct devsource *d, const char *path)
{
	struct buf text = { 0 };
	int rc = io_read_file(AT_FDCWD, path, DEVSOURCE_MAX, &text);

	if (rc == -E_NOINPUT)
		log_error(E_NOINPUT, "%s is not there", path);
	if (rc >= 0)
		rc = devsource_parse(d, path, buf_slice(&text));
	buf_release(&text);
	return rc;
}

void devsource_release(struct devsource *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		free(d->tensor[i].shape);
	free(d->tensor);
	free(d->handle);
	doc_free(d->doc);
	*d = (struct devsource){ 0 };
}

/* ---- as a file ---- */

static void add_numbers(struct jsonw *j, const char *key, const uint64_t *v,
			size_t n)
{
	jsonw_array(j, key);
	for (size_t i = 0; i < n; i++)
		jsonw_u64(j, NULL, v[i]);
	jsonw_end(j);
}

static int add_json(const struct devsource *d, struct buf *out)
{
	uint64_t span[2] = { 0 };
	struct jsonw j;

	jsonw_begin(&j, out, ST_HEADER_MAX - HEADER_ALIGN);
	jsonw_object(&j, NULL);
	/* Loaders of checkpoints want to know whose tensors they were. */
	jsonw_object(&j, METADATA);
	jsonw_str(&j, "format", "pt");
	jsonw_end(&j);
	for (uint32_t i = 0; i < d->n; i++) {
		const struct devsource_tensor *t = &d->tensor[i];

		span[1] = span[0] + t->bytes;
		jsonw_object(&j, t->name);
		jsonw_str(&j, "dtype", st_dtype_name(t->dtype));
		add_numbers(&j, "shape", t->shape, t->ndims);
		add_numbers(&j, "data_offsets", span, 2);
		jsonw_end(&j);
		span[0] = span[1];
	}
	jsonw_end(&j);
	return jsonw_finish(&j);
}

int devsource_header(const struct devsource *d, struct buf *out)
{
	size_t at = out->n, n;
	int rc;

	buf_add(out, "\0\0\0\0\0\0\0", 8);
	rc = add_json(d, out);
	if (rc < 0)
		return rc;
	while ((out->n - at) % HEADER_ALIGN)
		buf_add(out, " ", 1);
	n = out->n - at - 8;
	for (int k = 0; k < 8; k++)
		out->p[at + k] = (char)(n >> 8 * k);
	return 0;
}
