#include "doc.h"

#include <jansson.h>
#include <stdlib.h>

/* A struct doc is a json_t; the type only keeps jansson in this file. */
static const json_t *js(const struct doc *d)
{
	return (const json_t *)(const void *)d;
}

static const struct doc *doc(const json_t *j)
{
	return (const struct doc *)(const void *)j;
}

struct doc *doc_parse(struct slice text)
{
	size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
	json_t *j = json_loadb(text.p ? text.p : "", text.n, flags, NULL);

	return (struct doc *)(void *)j;
}

void doc_free(struct doc *d)
{
	json_decref((json_t *)(void *)d);
}

const struct doc *doc_at(const struct doc *d, const char *key)
{
	return doc(json_object_get(js(d), key));
}

const struct doc *doc_item(const struct doc *d, size_t i)
{
	return doc(json_array_get(js(d), i));
}

bool doc_is_list(const struct doc *d)
{
	return json_is_array(js(d));
}

size_t doc_count(const struct doc *d)
{
	return json_array_size(js(d));
}

const char *doc_text(const struct doc *d)
{
	return json_string_value(js(d));
}

uint64_t doc_number(const struct doc *d)
{
	json_int_t n = json_integer_value(js(d));

	return n > 0 ? (uint64_t)n : 0;
}

bool doc_whole(const struct doc *d, uint64_t *out)
{
	json_int_t n = json_is_integer(js(d)) ? json_integer_value(js(d)) : -1;

	if (n < 0)
		return false;
	*out = (uint64_t)n;
	return true;
}

static bool is_one_of(const char *key, const char *const *known, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(key, known[i]) == 0)
			return true;
	return false;
}

const char *doc_other_key(const struct doc *d, const char *const *known,
			  size_t n)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)js(d), key,
			    value) if (!is_one_of(key, known, n)) return key;
	return NULL;
}

bool doc_is_true(const struct doc *d)
{
	return json_is_true(js(d));
}

bool doc_is_false(const struct doc *d)
{
	return json_is_false(js(d));
}

bool doc_is_null(const struct doc *d)
{
	return json_is_null(js(d));
}

void doc_add_text(const struct doc *d, struct buf *out)
{
	size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY;
	char *text = d ? json_dumps(js(d), flags) : NULL;

	if (text)
		buf_addf(out, "%s", text);
	free(text);
}

/* Depth is bounded by the parser's. */
static json_t *shape_of(const json_t *j)
{
	json_t *out = json_is_array(j) ? json_array() : json_object();
	const char *key;
	size_t i;
	json_t *m;

	json_array_foreach(j, i, m) json_array_append_new(out, shape_of(m));
	json_object_foreach((json_t *)j, key, m)
		json_object_set_new(out, key, shape_of(m));
	return out;
}

void doc_add_shape(const struct doc *d, struct buf *out)
{
	json_t *shape = shape_of(js(d));

	doc_add_text(doc(shape), out);
	json_decref(shape);
}
