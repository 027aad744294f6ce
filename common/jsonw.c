#include "jsonw.h"
#include "err.h"
#include "log.h"
#include "utf8.h"

#include <string.h>

static void put(struct jsonw *j, const char *p, size_t n)
{
	if (j->full)
		return;
	if (n > j->max - (j->out->n - j->start)) {
		j->full = true;
		return;
	}
	buf_add(j->out, p, n);
}

static void put_escaped(struct jsonw *j, unsigned char c)
{
	static const char digit[] = "0123456789abcdef";
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *found = strchr(from, c);
	char hex[] = { '\\', 'u', '0', '0', digit[c >> 4], digit[c & 15] };
	char two[] = { '\\', 0 };

	if (!c || !found) {
		put(j, hex, sizeof hex);
		return;
	}
	two[1] = to[found - from];
	put(j, two, sizeof two);
}

static bool needs_escape(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
}

static void put_string(struct jsonw *j, struct slice s)
{
	const unsigned char *p = (const unsigned char *)s.p;
	size_t n;

	put(j, "\"", 1);
	for (size_t i = 0; i < s.n && !j->full; i += n ? n : 1) {
		n = utf8_len(s.p + i, s.n - i);
		if (n == 0)
			put(j, "\xef\xbf\xbd", 3);
		else if (n == 1 && needs_escape(p[i]))
			put_escaped(j, p[i]);
		else
			put(j, s.p + i, n);
	}
	put(j, "\"", 1);
}

/* What stands before every value: comma and key. */
static void put_head(struct jsonw *j, const char *key)
{
	bool in_object = j->depth && !j->is_array[j->depth - 1];

	BUG_ON(in_object != (key != NULL));
	BUG_ON(j->depth == 0 && j->comma);
	if (j->comma)
		put(j, ",", 1);
	j->comma = true;
	if (!key)
		return;
	put_string(j, slice_of(key));
	put(j, ":", 1);
}

static void open_level(struct jsonw *j, const char *key, bool is_array)
{
	put_head(j, key);
	BUG_ON(j->depth == JSONW_DEPTH_MAX);
	j->is_array[j->depth++] = is_array;
	j->comma = false;
	put(j, is_array ? "[" : "{", 1);
}

void jsonw_begin(struct jsonw *j, struct buf *out, size_t max)
{
	*j = (struct jsonw){ .out = out, .start = out->n, .max = max };
}

int jsonw_finish(struct jsonw *j)
{
	BUG_ON(j->depth != 0 || !j->comma);
	put(j, "\n", 1);
	if (!j->full)
		return 0;
	j->out->n = j->start;
	return log_error(E_DATA, "JSON line is longer than %zu bytes", j->max);
}

void jsonw_object(struct jsonw *j, const char *key)
{
	open_level(j, key, false);
}

void jsonw_array(struct jsonw *j, const char *key)
{
	open_level(j, key, true);
}

void jsonw_end(struct jsonw *j)
{
	BUG_ON(j->depth == 0);
	put(j, j->is_array[--j->depth] ? "]" : "}", 1);
	j->comma = true;
}

void jsonw_str(struct jsonw *j, const char *key, const char *s)
{
	jsonw_slice(j, key, slice_of(s));
}

void jsonw_slice(struct jsonw *j, const char *key, struct slice s)
{
	put_head(j, key);
	put_string(j, s);
}

static void put_number(struct jsonw *j, bool negative, uint64_t v)
{
	char digits[24], *p = digits + sizeof digits;

	do
		*--p = (char)('0' + v % 10);
	while (v /= 10);
	if (negative)
		*--p = '-';
	put(j, p, (size_t)(digits + sizeof digits - p));
}

void jsonw_u64(struct jsonw *j, const char *key, uint64_t v)
{
	put_head(j, key);
	put_number(j, false, v);
}

void jsonw_i64(struct jsonw *j, const char *key, int64_t v)
{
	put_head(j, key);
	put_number(j, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void jsonw_bool(struct jsonw *j, const char *key, bool v)
{
	put_head(j, key);
	put(j, v ? "true" : "false", v ? 4 : 5);
}

void jsonw_null(struct jsonw *j, const char *key)
{
	put_head(j, key);
	put(j, "null", 4);
}

void jsonw_hex(struct jsonw *j, const char *key, const uint8_t *p, size_t n)
{
	static const char digit[] = "0123456789abcdef";

	put_head(j, key);
	put(j, "\"", 1);
	for (size_t i = 0; i < n; i++) {
		char two[] = { digit[p[i] >> 4], digit[p[i] & 15] };

		put(j, two, sizeof two);
	}
	put(j, "\"", 1);
}

void jsonw_quote(struct buf *out, struct slice s)
{
	struct jsonw j = { .out = out, .start = out->n, .max = SIZE_MAX };

	put_string(&j, s);
}
