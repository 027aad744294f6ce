#include "opt_value.h"
#include "log.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

bool opt_takes_value(const struct opt *o)
{
	switch (o->kind) {
	case OPT_STRING:
	case OPT_LIST:
	case OPT_SIZE:
	case OPT_UINT:
	case OPT_DURATION:
	case OPT_CHOICE:
		return true;
	default:
		return false;
	}
}

static bool read_digits(const char **s, uint64_t *out)
{
	uint64_t v = 0;
	const char *p = *s;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return false;
	*s = p;
	*out = v;
	return true;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static bool read_unit(const char *s, const struct unit *units, size_t n,
		      uint64_t v, uint64_t *out)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(s, units[i].name) == 0)
			return !__builtin_mul_overflow(v, units[i].factor, out);
	return false;
}

bool opt_read_uint(const char *s, uint64_t *out)
{
	uint64_t v;

	if (!read_digits(&s, &v) || *s)
		return false;
	*out = v;
	return true;
}

bool opt_read_size(const char *s, uint64_t *bytes)
{
	static const struct unit units[] = {
		{ "", 1 },
		{ "KiB", 1ull << 10 },
		{ "MiB", 1ull << 20 },
		{ "GiB", 1ull << 30 },
		{ "TiB", 1ull << 40 },
		{ "kB", 1000ull },
		{ "MB", 1000ull * 1000 },
		{ "GB", 1000ull * 1000 * 1000 },
		{ "TB", 1000ull * 1000 * 1000 * 1000 },
	};
	uint64_t v;

	if (!read_digits(&s, &v) || !read_unit(s, units, COUNT(units), v, &v))
		return false;
	*bytes = v;
	return true;
}

bool opt_read_duration(const char *s, int64_t *ms)
{
	static const struct unit units[] = {
		{ "ms", 1 },
		{ "s", 1000 },
		{ "m", 60 * 1000 },
		{ "h", 60 * 60 * 1000 },
	};
	uint64_t v;

	if (!read_digits(&s, &v))
		return false;
	/* Only nothing is the same in every unit. */
	if (!(v == 0 && *s == '\0') &&
	    !read_unit(s, units, COUNT(units), v, &v))
		return false;
	if (v > INT64_MAX)
		return false;
	*ms = (int64_t)v;
	return true;
}

static bool in_range(const struct opt *o, uint64_t v)
{
	return v >= o->min && (o->max == 0 || v <= o->max);
}

static bool set_choice(const struct opt *o, unsigned *field, const char *s)
{
	for (unsigned i = 0; o->choices[i]; i++) {
		if (strcmp(s, o->choices[i]) != 0)
			continue;
		*field = i;
		return true;
	}
	return false;
}

void opt_list_add(struct opt_list *l, const char *s)
{
	l->v = xreallocarray(l->v, l->n + 1, sizeof(*l->v));
	l->v[l->n++] = xstrdup(s);
}

void opt_list_release(struct opt_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct opt_list){ 0 };
}

/* False, and the field untouched, if s is no value of this row. */
bool opt_value_set(const struct opt *o, void *field, const char *s)
{
	uint64_t u;
	int64_t ms;

	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)field = true;
		return true;
	case OPT_COUNT:
		++*(unsigned *)field;
		return true;
	case OPT_STRING:
		if (!*s)
			return false;
		free(*(char **)field);
		*(char **)field = xstrdup(s);
		return true;
	case OPT_LIST:
		if (*s)
			opt_list_add(field, s);
		return *s;
	case OPT_SIZE:
	case OPT_UINT:
		if (!(o->kind == OPT_SIZE ? opt_read_size
					  : opt_read_uint)(s, &u) ||
		    !in_range(o, u))
			return false;
		*(uint64_t *)field = u;
		return true;
	case OPT_DURATION:
		if (!opt_read_duration(s, &ms) || !in_range(o, (uint64_t)ms))
			return false;
		*(int64_t *)field = ms;
		return true;
	case OPT_CHOICE:
		return set_choice(o, field, s);
	default:
		BUG("option --%s has no field", o->name);
	}
}

/* Zero, whatever it was. */
void opt_value_clear(const struct opt *o, void *field)
{
	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)field = false;
		return;
	case OPT_COUNT:
	case OPT_CHOICE:
		*(unsigned *)field = 0;
		return;
	case OPT_STRING:
		free(*(char **)field);
		*(char **)field = NULL;
		return;
	case OPT_LIST:
		opt_list_release(field);
		return;
	case OPT_SIZE:
	case OPT_UINT:
	case OPT_DURATION:
		memset(field, 0, sizeof(uint64_t));
		return;
	default:
		return;
	}
}

static void add_range(const struct opt *o, struct buf *out)
{
	if (o->max)
		buf_addf(out, " from %llu to %llu", (ull)o->min, (ull)o->max);
	else if (o->min)
		buf_addf(out, " of at least %llu", (ull)o->min);
}

void opt_value_expected(const struct opt *o, struct buf *out)
{
	switch (o->kind) {
	case OPT_SIZE:
		buf_addf(out, "a size in bytes");
		add_range(o, out);
		buf_addf(out, ", or with KiB, MiB, GiB, TiB, kB, MB, GB, TB");
		return;
	case OPT_UINT:
		buf_addf(out, "a whole number");
		add_range(o, out);
		return;
	case OPT_DURATION:
		buf_addf(out, "a time with its unit, as in 500ms, 5s, 2m, 1h");
		if (o->max)
			buf_addf(out, ", from %llums to %llums", (ull)o->min,
				 (ull)o->max);
		else if (o->min)
			buf_addf(out, ", at least %llums", (ull)o->min);
		return;
	case OPT_CHOICE:
		buf_addf(out, "one of");
		for (size_t i = 0; o->choices[i]; i++)
			buf_addf(out, "%s %s", i ? "," : "", o->choices[i]);
		return;
	default:
		buf_addf(out, "%s that is not empty", o->value);
		return;
	}
}

/* A number that nobody gave and that has no default. */
static bool is_unset(const struct opt *o, uint64_t v)
{
	return v == 0 && !o->def;
}

static void dump_string(const char *name, const char *s, struct buf *out)
{
	buf_addf(out, "%s=", name);
	for (; *s; s++) {
		if (*s == '\n')
			buf_add(out, "\\n", 2);
		else if (*s == '\\')
			buf_add(out, "\\\\", 2);
		else
			buf_add(out, s, 1);
	}
	buf_add(out, "\n", 1);
}

static void dump_list(const char *name, const struct opt_list *l,
		      struct buf *out)
{
	for (size_t i = 0; i < l->n; i++)
		dump_string(name, l->v[i], out);
}

void opt_value_dump(const struct opt *o, const void *field, struct buf *out)
{
	const char *name = o->name;

	switch (o->kind) {
	case OPT_FLAG:
		buf_addf(out, "%s=%d\n", name, *(const bool *)field);
		return;
	case OPT_COUNT:
		buf_addf(out, "%s=%u\n", name, *(const unsigned *)field);
		return;
	case OPT_STRING:
		if (*(char *const *)field)
			dump_string(name, *(char *const *)field, out);
		return;
	case OPT_LIST:
		dump_list(name, field, out);
		return;
	case OPT_SIZE:
	case OPT_UINT:
		if (!is_unset(o, *(const uint64_t *)field))
			buf_addf(out, "%s=%llu\n", name,
				 (unsigned long long)*(const uint64_t *)field);
		return;
	case OPT_DURATION:
		if (!is_unset(o, *(const uint64_t *)field))
			buf_addf(out, "%s=%lldms\n", name,
				 (long long)*(const int64_t *)field);
		return;
	case OPT_CHOICE:
		buf_addf(out, "%s=%s\n", name,
			 o->choices[*(const unsigned *)field]);
		return;
	default:
		return;
	}
}

/* Undoes dump_string(); false on an escape that it never prints. */
static bool unescape(struct slice s, struct buf *out)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (c == '\\') {
			c = ++i < s.n ? s.p[i] : '\0';
			if (c != 'n' && c != '\\')
				return false;
			if (c == 'n')
				c = '\n';
		}
		buf_add(out, &c, 1);
	}
	return true;
}

static bool load_text(const struct opt *o, void *field, const char *s)
{
	uint64_t u;

	if (opt_takes_value(o))
		return opt_value_set(o, field, s);
	if (!opt_read_uint(s, &u) || u > (o->kind == OPT_FLAG ? 1 : UINT_MAX))
		return false;
	if (o->kind == OPT_FLAG)
		*(bool *)field = u;
	else
		*(unsigned *)field = (unsigned)u;
	return true;
}

bool opt_value_load(const struct opt *o, void *field, struct slice value)
{
	struct buf text = { 0 };
	bool good =
		unescape(value, &text) && load_text(o, field, buf_cstr(&text));

	buf_release(&text);
	return good;
}
