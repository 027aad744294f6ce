#include "index.h"
#include "err.h"
#include "io.h"
#include "jsonsax.h"
#include "log.h"
#include "safetensors.h"
#include "srcdir.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(INDEX_FILES_MAX <= UINT16_MAX, "a file's number is 16 bits");
static_assert(ST_NAME_MAX <= UINT16_MAX, "a name's length too");

enum state { START, TOP, METADATA, MAP, MAP_KEY, MAP_FILE, END, NSTATES };

struct file {
	char *path;
	uint16_t id; /* in order of appearance */
};

struct reader {
	struct index *x;
	const char *name;
	struct json json;
	uint64_t bytes;
	enum state state;
	unsigned depth; /* inside metadata */
	bool has_metadata, has_map;
	json_pair_fn *meta; /* NULL: nobody asks, and an empty map is none */
	void *meta_ctx;
	struct buf key;
	struct file *file; /* by path */
	uint32_t last;	   /* where the last one was found */
};

struct slice index_name(const struct index *x, uint32_t i)
{
	return (struct slice){ x->names.p + x->entry[i].name,
			       x->entry[i].name_len };
}

void index_release(struct index *x)
{
	for (uint32_t i = 0; i < x->nfiles; i++)
		free(x->file[i]);
	free(x->file);
	free(x->entry);
	buf_release(&x->names);
	names_release(&x->order);
	*x = (struct index){ 0 };
}

static int expected(const struct reader *r, const char *what, const char *want,
		    enum json_event got)
{
	return log_error(E_DATA, "%s: %s: expected %s, found %s", r->name, what,
			 want, json_event_name(got));
}

static int on_start(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	if (ev != JSON_OBJECT)
		return expected(r, "document", "an object", ev);
	r->state = TOP;
	return 0;
}

static int begin_member(struct reader *r, bool *has, const char *what,
			enum state next)
{
	if (*has)
		return log_error(E_DATA, "%s: %s twice", r->name, what);
	*has = true;
	r->state = next;
	return 0;
}

static int on_top(struct reader *r, enum json_event ev, struct slice text)
{
	if (ev == JSON_OBJECT_END) {
		r->state = END;
		return 0;
	}
	if (slice_eq(text, SLICE("metadata")))
		return begin_member(r, &r->has_metadata, "metadata", METADATA);
	if (slice_eq(text, SLICE("weight_map")))
		return begin_member(r, &r->has_map, "weight_map", MAP);
	return log_error(E_DATA, "%s: unknown key \"%.*s\"", r->name,
			 (int)(text.n > 64 ? 64 : text.n), text.p);
}

/* Keys, and the texts that follow them. */
static int tell_meta(struct reader *r, enum json_event ev, struct slice text)
{
	if (ev == JSON_STRING)
		return r->meta(r->meta_ctx, buf_slice(&r->key), text);
	if (ev == JSON_KEY) {
		buf_clear(&r->key);
		buf_add(&r->key, text.p, text.n);
	}
	return 0;
}

static int on_metadata(struct reader *r, enum json_event ev, struct slice text)
{
	if (r->depth == 0 && ev != JSON_OBJECT)
		return expected(r, "metadata", "an object", ev);
	if (r->meta && r->depth == 1) {
		int rc = tell_meta(r, ev, text);

		if (rc < 0)
			return rc;
	}
	if (ev == JSON_OBJECT || ev == JSON_ARRAY)
		r->depth++;
	else if (ev == JSON_OBJECT_END || ev == JSON_ARRAY_END)
		r->depth--;
	if (r->depth == 0)
		r->state = TOP;
	return 0;
}

static int on_map(struct reader *r, enum json_event ev, struct slice text)
{
	(void)text;
	if (ev != JSON_OBJECT)
		return expected(r, "weight_map", "an object", ev);
	r->state = MAP_KEY;
	return 0;
}

static void add_entry(struct index *x, struct slice name)
{
	if (x->n == x->cap) {
		x->cap = x->cap ? x->cap + x->cap / 2 : 64;
		x->entry = xreallocarray(x->entry, x->cap, sizeof *x->entry);
	}
	x->entry[x->n++] = (struct index_entry){
		.name = (uint32_t)x->names.n,
		.name_len = (uint16_t)name.n,
	};
	buf_add(&x->names, name.p, name.n);
}

static int on_map_key(struct reader *r, enum json_event ev, struct slice text)
{
	if (ev == JSON_OBJECT_END) {
		r->state = TOP;
		return 0;
	}
	if (text.n == 0 || text.n > ST_NAME_MAX)
		return log_error(E_DATA,
				 "%s: weight_map: expected a tensor's name of "
				 "1 to %u bytes, found %zu",
				 r->name, ST_NAME_MAX, text.n);
	add_entry(r->x, text);
	r->state = MAP_FILE;
	return 0;
}

/* Where path is in the sorted files, or would be. */
static uint32_t place_of(const struct reader *r, struct slice path)
{
	uint32_t lo = 0, hi = r->x->nfiles;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (slice_cmp(slice_of(r->file[mid].path), path) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool is_at(const struct reader *r, uint32_t at, struct slice path)
{
	return at < r->x->nfiles && slice_eq(slice_of(r->file[at].path), path);
}

static int add_file(struct reader *r, uint32_t at, struct slice path)
{
	const char *why = srcdir_bad_path(path);
	struct index *x = r->x;

	if (why)
		return log_error(
			E_DATA,
			"%s: tensor \"%.*s\": file \"%.*s\": %s is not "
			"allowed",
			r->name, SLICE_ARG(index_name(x, x->n - 1)),
			(int)(path.n > 256 ? 256 : path.n), path.p, why);
	if (x->nfiles == INDEX_FILES_MAX)
		return log_error(E_DATA, "%s: over %u files", r->name,
				 INDEX_FILES_MAX);
	if ((x->nfiles & (x->nfiles - 1)) == 0)
		r->file = xreallocarray(r->file, x->nfiles ? 2 * x->nfiles : 1,
					sizeof *r->file);
	memmove(&r->file[at + 1], &r->file[at],
		(x->nfiles - at) * sizeof *r->file);
	r->file[at] = (struct file){
		.path = xstrndup(path.p, path.n),
		.id = (uint16_t)x->nfiles++,
	};
	return 0;
}

static int on_map_file(struct reader *r, enum json_event ev, struct slice text)
{
	struct index *x = r->x;
	int rc = 0;

	if (ev != JSON_STRING)
		return log_error(E_DATA,
				 "%s: tensor \"%.*s\": expected a file's name, "
				 "found %s",
				 r->name, SLICE_ARG(index_name(x, x->n - 1)),
				 json_event_name(ev));
	/* A shard's tensors mostly stand together. */
	if (!is_at(r, r->last, text)) {
		r->last = place_of(r, text);
		if (!is_at(r, r->last, text))
			rc = add_file(r, r->last, text);
	}
	if (rc < 0)
		return rc;
	x->entry[x->n - 1].file = r->file[r->last].id;
	r->state = MAP_KEY;
	return 0;
}

static int on_end(struct reader *r, enum json_event ev, struct slice text)
{
	(void)r;
	(void)text;
	BUG("%s after the end of an index", json_event_name(ev));
}

static int on_event(void *ctx, enum json_event ev, struct slice text)
{
	static int (*const step[])(struct reader *, enum json_event,
				   struct slice) = {
		[START] = on_start,	  [TOP] = on_top,
		[METADATA] = on_metadata, [MAP] = on_map,
		[MAP_KEY] = on_map_key,	  [MAP_FILE] = on_map_file,
		[END] = on_end,
	};
	static_assert(COUNT(step) == NSTATES, "a step for every state");
	struct reader *r = ctx;

	return step[r->state](r, ev, text);
}

/* From the order of appearance to that of the paths. */
static void sort_files(struct reader *r)
{
	struct index *x = r->x;
	uint16_t *rank = xcalloc(x->nfiles, sizeof *rank);

	x->file = xcalloc(x->nfiles, sizeof *x->file);
	for (uint32_t i = 0; i < x->nfiles; i++) {
		x->file[i] = r->file[i].path;
		rank[r->file[i].id] = (uint16_t)i;
	}
	for (uint32_t i = 0; x->nfiles && i < x->n; i++)
		x->entry[i].file = rank[x->entry[i].file];
	free(rank);
}

static struct slice name_of(const void *ctx, uint32_t i)
{
	return index_name(ctx, i);
}

static int check_names(struct reader *r)
{
	struct index *x = r->x;
	uint32_t a, b;

	names_sort(&x->order, name_of, x, x->n);
	if (!names_find_twice(&x->order, &a, &b))
		return 0;
	return log_error(E_DATA,
			 "%s: tensor \"%.*s\" twice, in \"%s\" and \"%s\"",
			 r->name, SLICE_ARG(index_name(x, a)),
			 x->file[x->entry[a].file], x->file[x->entry[b].file]);
}

static void begin(struct reader *r, struct index *x, const char *name)
{
	*x = (struct index){ 0 };
	*r = (struct reader){ .x = x, .name = name };
	json_begin(&r->json, INDEX_CHUNK, on_event, r);
}

static int feed(struct reader *r, struct slice text)
{
	r->bytes += text.n;
	if (r->bytes > INDEX_BYTES_MAX)
		return log_error(E_DATA, "%s: over %u bytes", r->name,
				 INDEX_BYTES_MAX);
	return json_feed(&r->json, text.p, text.n);
}

static int json_failed(const struct reader *r, int rc)
{
	const char *why = json_error(&r->json);

	if (!why)
		return rc;
	return log_error(E_DATA, "%s: byte %llu: %s", r->name,
			 (unsigned long long)json_offset(&r->json), why);
}

/* The paths are the index's from here on, also if it is refused. */
static int end(struct reader *r, int rc)
{
	if (rc == 0)
		rc = json_end(&r->json);
	if (rc < 0)
		rc = json_failed(r, rc);
	sort_files(r);
	if (rc == 0 && r->x->n == 0 && !r->meta)
		rc = log_error(E_DATA, "%s: no tensors in weight_map", r->name);
	if (rc == 0)
		rc = check_names(r);
	json_release(&r->json);
	buf_release(&r->key);
	free(r->file);
	if (rc < 0)
		index_release(r->x);
	return rc;
}

int index_read_meta(struct index *x, const char *name, struct slice text,
		    json_pair_fn *meta, void *meta_ctx)
{
	struct reader r;

	begin(&r, x, name);
	r.meta = meta;
	r.meta_ctx = meta_ctx;
	return end(&r, feed(&r, text));
}

int index_read_fd(struct index *x, const char *name, int fd)
{
	char *chunk = xmalloc(INDEX_CHUNK);
	struct reader r;
	int rc = 0, n;

	begin(&r, x, name);
	do {
		n = io_read_full(fd, chunk, INDEX_CHUNK);
		if (n > 0)
			rc = feed(&r, (struct slice){ chunk, (size_t)n });
	} while (rc == 0 && n == (int)INDEX_CHUNK);
	rc = end(&r, n < 0 ? n : rc);
	free(chunk);
	return rc;
}
