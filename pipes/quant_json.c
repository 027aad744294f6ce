#include "pipes/quant_part.h"
#include "common/err.h"
#include "common/index.h"
#include "common/io.h"
#include "common/jsoncopy.h"
#include "common/log.h"
#include "common/source.h"

#include <stdlib.h>

#define ENTRY "quantization_config"

/* A document on its way through; which one, is in json's callback. */
struct edit {
	const struct quant_all *a;
	const char *name;
	struct json json;
	struct jsoncopy copy;
	struct buf in, out;
	unsigned depth;
	unsigned skip_at;  /* depth of a value that is left out; 0: none */
	unsigned text_at;  /* depth of the keys of a text_config; 0: none */
	const char *entry; /* a key that must be null, if its value is next */
	bool in_metadata, has_metadata;
};

static void begin(struct edit *e, const struct quant_all *a, const char *name)
{
	*e = (struct edit){ .a = a, .name = name };
	e->copy.out = &e->out;
}

static void end(struct edit *e)
{
	json_release(&e->json);
	buf_release(&e->in);
	buf_release(&e->out);
}

/* Through fn, whose edit is *e. */
static int pass(struct edit *e, json_fn *fn)
{
	const char *why;
	int rc;

	json_begin(&e->json, e->in.n + 1, fn, e);
	/* Mamba's have a time_step_limit of [0.0, Infinity]. */
	json_allow_python(&e->json);
	rc = json_feed(&e->json, e->in.p, e->in.n);
	if (rc >= 0)
		rc = json_end(&e->json);
	why = json_error(&e->json);
	if (why)
		return log_error(E_DATA, "%s: byte %llu: %s", e->name,
				 (unsigned long long)json_offset(&e->json),
				 why);
	return rc;
}

static void count(struct edit *e, enum json_event ev)
{
	e->depth += ev == JSON_OBJECT || ev == JSON_ARRAY;
	e->depth -= ev == JSON_OBJECT_END || ev == JSON_ARRAY_END;
}

static int check_start(const struct edit *e, enum json_event ev)
{
	if (e->depth > 0 || ev == JSON_OBJECT || ev == JSON_OBJECT_END)
		return 0;
	return log_error(E_DATA, "%s: expected an object, found %s", e->name,
			 json_event_name(ev));
}

/* ---- config.json ---- */

static void add_kept(struct jsoncopy *c, const struct quant_names *kept)
{
	if (kept->n == 0)
		return;
	jsoncopy_key(c, "modules_to_not_convert");
	jsoncopy_event(c, JSON_ARRAY, SLICE(""));
	for (uint32_t i = 0; i < kept->n; i++) {
		struct slice name = quant_name(kept, i);

		if (i == 0 || !slice_eq(name, quant_name(kept, i - 1)))
			jsoncopy_event(c, JSON_STRING, name);
	}
	jsoncopy_event(c, JSON_ARRAY_END, SLICE(""));
}

static void add_entry(struct jsoncopy *c, const struct quant_names *kept)
{
	jsoncopy_key(c, ENTRY);
	jsoncopy_event(c, JSON_OBJECT, SLICE(""));
	jsoncopy_key(c, "activation_scheme");
	jsoncopy_str(c, "dynamic");
	jsoncopy_key(c, "fmt");
	jsoncopy_str(c, "e4m3");
	add_kept(c, kept);
	jsoncopy_key(c, "quant_method");
	jsoncopy_str(c, "fp8");
	jsoncopy_key(c, "weight_block_size");
	jsoncopy_event(c, JSON_ARRAY, SLICE(""));
	jsoncopy_u64(c, FP8_BLOCK);
	jsoncopy_u64(c, FP8_BLOCK);
	jsoncopy_event(c, JSON_ARRAY_END, SLICE(""));
	jsoncopy_event(c, JSON_OBJECT_END, SLICE(""));
}

static const char *quant_entry(struct slice key)
{
	if (slice_eq(key, SLICE(ENTRY)))
		return ENTRY;
	return slice_eq(key, SLICE("compression_config")) ? "compression_config"
							  : NULL;
}

/* Wrappers of a language model have its entry in its own part.  That of
 * another part, as a vision tower, is about what stays as it is. */
static void take_key(struct edit *e, struct slice key)
{
	if (slice_eq(key, SLICE("text_config")) ||
	    slice_eq(key, SLICE("llm_config")))
		e->text_at = e->depth + 1;
	else if (e->depth < e->text_at)
		e->text_at = 0;
	if (e->depth == 1 || e->depth == e->text_at)
		e->entry = quant_entry(key);
}

static int check_config(void *ctx, enum json_event ev, struct slice text)
{
	struct edit *e = ctx;
	int rc = check_start(e, ev);

	if (rc < 0)
		return rc;
	if (e->entry && ev != JSON_NULL)
		return log_error(E_DATA,
				 "%s has a %s: what is quantised already needs "
				 "no --post-load fp8",
				 e->name, e->entry);
	e->entry = NULL;
	if (ev == JSON_KEY)
		take_key(e, text);
	count(e, ev);
	return 0;
}

static int copy_config(void *ctx, enum json_event ev, struct slice text)
{
	struct edit *e = ctx;

	if (e->entry) { /* its null */
		e->entry = NULL;
		return 0;
	}
	if (e->depth == 1 && ev == JSON_KEY && slice_eq(text, SLICE(ENTRY))) {
		e->entry = ENTRY;
		return 0;
	}
	if (e->depth == 1 && ev == JSON_OBJECT_END)
		add_entry(&e->copy, &e->a->kept);
	count(e, ev);
	jsoncopy_event(&e->copy, ev, text);
	return 0;
}

/* None is as good as an empty one. */
static int read_config(struct edit *e, const struct quant *q)
{
	int rc = io_read_file(q->dirfd, e->name, QUANT_CONFIG_MAX, &e->in);

	if (rc == -E_NOINPUT) {
		buf_add(&e->in, "{}", 2);
		return 0;
	}
	return rc;
}

int quant_config_check(const struct quant *q)
{
	struct edit e;
	int rc;

	begin(&e, NULL, QUANT_CONFIG);
	rc = read_config(&e, q);
	if (rc >= 0)
		rc = pass(&e, check_config);
	end(&e);
	return rc;
}

static int write_out(const struct edit *e)
{
	return io_replace(e->a->q->dirfd, e->name, e->out.p, e->out.n);
}

int quant_config_write(const struct quant_all *a)
{
	struct edit e;
	int rc;

	begin(&e, a, QUANT_CONFIG);
	rc = read_config(&e, a->q);
	if (rc >= 0)
		rc = pass(&e, copy_config);
	if (rc >= 0)
		rc = write_out(&e);
	end(&e);
	return rc;
}

/* ---- model.safetensors.index.json ---- */

static void add_total(struct edit *e)
{
	jsoncopy_key(&e->copy, "total_size");
	jsoncopy_u64(&e->copy, e->a->bytes);
}

static void add_map(struct edit *e)
{
	const struct quant_names *t = &e->a->tensors;

	if (!e->has_metadata) {
		jsoncopy_key(&e->copy, "metadata");
		jsoncopy_event(&e->copy, JSON_OBJECT, SLICE(""));
		add_total(e);
		jsoncopy_event(&e->copy, JSON_OBJECT_END, SLICE(""));
	}
	jsoncopy_key(&e->copy, "weight_map");
	jsoncopy_event(&e->copy, JSON_OBJECT, SLICE(""));
	for (uint32_t i = 0; i < t->n; i++) {
		jsoncopy_event(&e->copy, JSON_KEY, quant_name(t, i));
		jsoncopy_str(&e->copy, e->a->q->file[t->v[i].file].path);
	}
	jsoncopy_event(&e->copy, JSON_OBJECT_END, SLICE(""));
}

/* Its value is written anew: true. */
static bool is_replaced(struct edit *e, struct slice key)
{
	if (e->depth == 2)
		return e->in_metadata && slice_eq(key, SLICE("total_size"));
	if (e->depth != 1)
		return false;
	e->in_metadata = slice_eq(key, SLICE("metadata"));
	e->has_metadata |= e->in_metadata;
	return slice_eq(key, SLICE("weight_map"));
}

static int copy_index(void *ctx, enum json_event ev, struct slice text)
{
	struct edit *e = ctx;
	int rc = check_start(e, ev);

	if (rc < 0)
		return rc;
	if (e->skip_at) {
		count(e, ev);
		if (e->depth == e->skip_at)
			e->skip_at = 0;
		return 0;
	}
	if (ev == JSON_KEY && is_replaced(e, text)) {
		e->skip_at = e->depth;
		return 0;
	}
	if (ev == JSON_OBJECT_END && e->depth == 2 && e->in_metadata)
		add_total(e);
	if (ev == JSON_OBJECT_END && e->depth == 1)
		add_map(e);
	count(e, ev);
	jsoncopy_event(&e->copy, ev, text);
	return 0;
}

int quant_index_write(const struct quant_all *a)
{
	struct edit e;
	int rc;

	begin(&e, a, SOURCE_INDEX);
	rc = io_read_file(a->q->dirfd, e.name, INDEX_BYTES_MAX, &e.in);
	if (rc >= 0)
		rc = pass(&e, copy_index);
	if (rc >= 0)
		rc = write_out(&e);
	end(&e);
	return rc == -E_NOINPUT ? 0 : rc;
}
