#include "jsonsax.h"
#include "err.h"

#include <assert.h>
#include <string.h>

static_assert(JSON_DEPTH_MAX <= 64, "a bit of json.objects for each level");

enum state {
	VALUE,
	ITEM_OR_END,
	KEY,
	KEY_OR_END,
	COLON,
	COMMA_OR_END,
	DONE,
	STRING,
	UTF8,
	ESCAPE,
	HEX,
	LOW_BACKSLASH,
	LOW_U,
	WORD,
	MINUS,
	ZERO,
	INT,
	DOT,
	FRACTION,
	EXP,
	EXP_SIGN,
	EXP_DIGITS,
	NSTATES
};

static int fail(struct json *j, const char *why)
{
	j->error = why;
	return -E_DATA;
}

static bool is_space(unsigned char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(unsigned char c)
{
	return c >= '0' && c <= '9';
}

static int emit(struct json *j, enum json_event ev)
{
	struct slice none = { "", 0 };

	return j->fn(j->ctx, ev, none);
}

static int add(struct json *j, const void *p, size_t n)
{
	if (n > j->string_max - j->text.n)
		return fail(j, "string or number longer than the limit");
	buf_add(&j->text, p, n);
	return 0;
}

static void after_value(struct json *j)
{
	j->state = j->depth ? COMMA_OR_END : DONE;
}

static int nest(struct json *j, bool object)
{
	uint64_t bit;

	if (j->depth == JSON_DEPTH_MAX)
		return fail(j, "nested too deeply");
	bit = UINT64_C(1) << j->depth;
	j->objects = object ? j->objects | bit : j->objects & ~bit;
	j->depth++;
	j->state = object ? KEY_OR_END : ITEM_OR_END;
	return emit(j, object ? JSON_OBJECT : JSON_ARRAY);
}

static bool in_object(const struct json *j)
{
	return j->objects >> (j->depth - 1) & 1;
}

static int unnest(struct json *j)
{
	enum json_event ev = in_object(j) ? JSON_OBJECT_END : JSON_ARRAY_END;

	j->depth--;
	after_value(j);
	return emit(j, ev);
}

static int begin_string(struct json *j, bool is_key)
{
	j->is_key = is_key;
	buf_clear(&j->text);
	buf_reserve(&j->text, 1); /* "" is text too, and not NULL */
	j->state = STRING;
	return 0;
}

static int begin_word(struct json *j, const char *rest, enum json_event ev)
{
	j->word = rest;
	j->word_event = ev;
	j->state = WORD;
	return 0;
}

/* NaN, Infinity, or what follows the sign of the latter. */
static int begin_name(struct json *j, unsigned char c)
{
	const char *rest = c == 'N' ? "aN" : "nfinity";
	int rc = add(j, &c, 1);

	if (rc == 0)
		rc = add(j, rest, strlen(rest));
	return rc < 0 ? rc : begin_word(j, rest, JSON_NUMBER);
}

static int begin_number(struct json *j, unsigned char c)
{
	buf_clear(&j->text);
	j->state = c == '-' ? MINUS : c == '0' ? ZERO : INT;
	return add(j, &c, 1);
}

static int no_value(struct json *j)
{
	return fail(j, "a value was expected");
}

static int on_value(struct json *j, unsigned char c)
{
	if (c == '-' || is_digit(c))
		return begin_number(j, c);
	switch (c) {
	case '"':
		return begin_string(j, false);
	case '{':
		return nest(j, true);
	case '[':
		return nest(j, false);
	case 't':
		return begin_word(j, "rue", JSON_TRUE);
	case 'f':
		return begin_word(j, "alse", JSON_FALSE);
	case 'n':
		return begin_word(j, "ull", JSON_NULL);
	case 'N':
	case 'I':
		buf_clear(&j->text);
		return j->is_python ? begin_name(j, c) : no_value(j);
	default:
		return no_value(j);
	}
}

static int on_item_or_end(struct json *j, unsigned char c)
{
	return c == ']' ? unnest(j) : on_value(j, c);
}

static int on_key(struct json *j, unsigned char c)
{
	if (c != '"')
		return fail(j, "a key in double quotes was expected");
	return begin_string(j, true);
}

static int on_key_or_end(struct json *j, unsigned char c)
{
	return c == '}' ? unnest(j) : on_key(j, c);
}

static int on_colon(struct json *j, unsigned char c)
{
	if (c != ':')
		return fail(j, "':' was expected");
	j->state = VALUE;
	return 0;
}

static int on_comma_or_end(struct json *j, unsigned char c)
{
	if (c == (in_object(j) ? '}' : ']'))
		return unnest(j);
	if (c != ',')
		return fail(j, in_object(j) ? "',' or '}' was expected"
					    : "',' or ']' was expected");
	j->state = in_object(j) ? KEY : VALUE;
	return 0;
}

static int on_done(struct json *j, unsigned char c)
{
	(void)c;
	return fail(j, "something follows the end of the document");
}

static int end_string(struct json *j)
{
	if (j->is_key)
		j->state = COLON;
	else
		after_value(j);
	return j->fn(j->ctx, j->is_key ? JSON_KEY : JSON_STRING,
		     buf_slice(&j->text));
}

static int begin_utf8(struct json *j, unsigned char c)
{
	if (!utf8_begin(&j->utf8, c))
		return fail(j, "not UTF-8");
	j->state = UTF8;
	return add(j, &c, 1);
}

static int on_utf8(struct json *j, unsigned char c)
{
	if (!utf8_next(&j->utf8, c))
		return fail(j, "not UTF-8");
	if (j->utf8.left == 0)
		j->state = STRING;
	return add(j, &c, 1);
}

static int on_string(struct json *j, unsigned char c)
{
	if (c == '"')
		return end_string(j);
	if (c == '\\') {
		j->state = ESCAPE;
		return 0;
	}
	if (c < 0x20)
		return fail(j, "control character in a string");
	if (c >= 0x80)
		return begin_utf8(j, c);
	return add(j, &c, 1);
}

static int on_escape(struct json *j, unsigned char c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = c ? strchr(from, c) : NULL;

	if (c == 'u') {
		j->cp = 0;
		j->left = 4;
		j->state = HEX;
		return 0;
	}
	if (!at)
		return fail(j, "unknown escape in a string");
	j->state = STRING;
	return add(j, &to[at - from], 1);
}

static int add_code_point(struct json *j, unsigned cp)
{
	unsigned char u[4];
	size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	static const unsigned char mark[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n - 1; i > 0; i--) {
		u[i] = (unsigned char)(0x80 | (cp & 0x3f));
		cp >>= 6;
	}
	u[0] = (unsigned char)(mark[n] | cp);
	j->state = STRING;
	return add(j, u, n);
}

static int end_hex(struct json *j)
{
	bool is_low = j->cp >= 0xdc00 && j->cp <= 0xdfff;
	unsigned high = j->high;

	if (is_low != (high != 0))
		return fail(j, "half a surrogate pair in a string");
	j->high = 0;
	if (is_low)
		return add_code_point(j, 0x10000 + ((high - 0xd800) << 10) +
						 (j->cp - 0xdc00));
	if (j->cp < 0xd800 || j->cp > 0xdbff)
		return add_code_point(j, j->cp);
	j->high = j->cp;
	j->state = LOW_BACKSLASH;
	return 0;
}

static int on_hex(struct json *j, unsigned char c)
{
	unsigned lower = c | 0x20u, digit;

	if (is_digit(c))
		digit = c - '0';
	else if (lower >= 'a' && lower <= 'f')
		digit = lower - 'a' + 10;
	else
		return fail(j, "\\u needs four hexadecimal digits");
	j->cp = j->cp << 4 | digit;
	return --j->left ? 0 : end_hex(j);
}

static int on_low_backslash(struct json *j, unsigned char c)
{
	j->state = LOW_U;
	return c == '\\' ? 0 : fail(j, "half a surrogate pair in a string");
}

static int on_low_u(struct json *j, unsigned char c)
{
	j->state = HEX;
	j->cp = 0;
	j->left = 4;
	return c == 'u' ? 0 : fail(j, "half a surrogate pair in a string");
}

typedef int step_fn(struct json *j, unsigned char c);

static int end_number(struct json *j)
{
	after_value(j);
	return j->fn(j->ctx, JSON_NUMBER, buf_slice(&j->text));
}

static int on_word(struct json *j, unsigned char c)
{
	if (c != (unsigned char)*j->word)
		return no_value(j);
	if (*++j->word)
		return 0;
	if (j->word_event == JSON_NUMBER)
		return end_number(j);
	after_value(j);
	return emit(j, j->word_event);
}

static bool number_may_end(unsigned state)
{
	return state == ZERO || state == INT || state == FRACTION ||
	       state == EXP_DIGITS;
}

/* The state after c inside a number, or DONE if c is none of it. */
static enum state number_next(unsigned state, unsigned char c)
{
	bool whole = state == ZERO || state == INT;

	if (is_digit(c))
		switch (state) {
		case MINUS:
			return c == '0' ? ZERO : INT;
		case INT:
			return INT;
		case DOT:
		case FRACTION:
			return FRACTION;
		case EXP:
		case EXP_SIGN:
		case EXP_DIGITS:
			return EXP_DIGITS;
		default:
			return DONE;
		}
	if (c == '.' && whole)
		return DOT;
	if ((c == 'e' || c == 'E') && (whole || state == FRACTION))
		return EXP;
	if ((c == '+' || c == '-') && state == EXP)
		return EXP_SIGN;
	return DONE;
}

static int on_byte(struct json *j, unsigned char c);

static int on_number(struct json *j, unsigned char c)
{
	enum state next = number_next(j->state, c);
	int rc;

	if (next != DONE) {
		j->state = next;
		return add(j, &c, 1);
	}
	if (j->is_python && j->state == MINUS && c == 'I')
		return begin_name(j, c);
	if (!number_may_end(j->state))
		return fail(j, "a digit was expected");
	rc = end_number(j);
	return rc < 0 ? rc : on_byte(j, c);
}

static step_fn *const step[] = {
	[VALUE] = on_value,	[ITEM_OR_END] = on_item_or_end,
	[KEY] = on_key,		[KEY_OR_END] = on_key_or_end,
	[COLON] = on_colon,	[COMMA_OR_END] = on_comma_or_end,
	[DONE] = on_done,	[STRING] = on_string,
	[UTF8] = on_utf8,	[ESCAPE] = on_escape,
	[HEX] = on_hex,		[LOW_BACKSLASH] = on_low_backslash,
	[LOW_U] = on_low_u,	[WORD] = on_word,
	[MINUS] = on_number,	[ZERO] = on_number,
	[INT] = on_number,	[DOT] = on_number,
	[FRACTION] = on_number, [EXP] = on_number,
	[EXP_SIGN] = on_number, [EXP_DIGITS] = on_number,
};
static_assert(COUNT(step) == NSTATES, "a step for every state");

static int on_byte(struct json *j, unsigned char c)
{
	if (j->state <= DONE && is_space(c))
		return 0;
	if (c == '\0')
		return fail(j, "NUL byte");
	return step[j->state](j, c);
}

/* Bytes of p that a string takes as they are; most of all input is these. */
static size_t plain_run(const unsigned char *p, size_t n)
{
	size_t i = 0;

	while (i < n && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' &&
	       p[i] != '\\')
		i++;
	return i;
}

void json_begin(struct json *j, size_t string_max, json_fn *fn, void *ctx)
{
	*j = (struct json){
		.fn = fn,
		.ctx = ctx,
		.string_max = string_max,
		.state = VALUE,
	};
}

void json_allow_python(struct json *j)
{
	j->is_python = true;
}

int json_feed(struct json *j, const void *data, size_t n)
{
	const unsigned char *p = data;
	size_t i = 0, run;

	while (j->rc == 0 && i < n) {
		run = j->state == STRING ? plain_run(p + i, n - i) : 0;
		j->rc = run ? add(j, p + i, run) : on_byte(j, p[i]);
		if (j->rc == 0)
			i += run ? run : 1;
	}
	j->offset += i;
	return j->rc;
}

int json_end(struct json *j)
{
	if (j->rc == 0 && j->depth == 0 && number_may_end(j->state))
		j->rc = end_number(j);
	if (j->rc == 0 && j->state != DONE)
		j->rc = fail(j, "the document ends too early");
	return j->rc;
}

void json_release(struct json *j)
{
	buf_release(&j->text);
}

const char *json_error(const struct json *j)
{
	return j->error;
}

uint64_t json_offset(const struct json *j)
{
	return j->offset;
}

const char *json_event_name(enum json_event ev)
{
	static const char *const name[] = {
		[JSON_OBJECT] = "an object",
		[JSON_OBJECT_END] = "the end of an object",
		[JSON_ARRAY] = "an array",
		[JSON_ARRAY_END] = "the end of an array",
		[JSON_KEY] = "a key",
		[JSON_STRING] = "a string",
		[JSON_NUMBER] = "a number",
		[JSON_TRUE] = "true",
		[JSON_FALSE] = "false",
		[JSON_NULL] = "null",
	};
	static_assert(COUNT(name) == JSON_NEVENTS, "name every event");

	return name[ev];
}

int json_uint(struct slice text, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	if (text.n == 0 || (text.n > 1 && text.p[0] == '0'))
		return -E_DATA;
	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];

		if (!is_digit(c) || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(c - '0'), &v))
			return -E_DATA;
	}
	if (v > max)
		return -E_DATA;
	*out = v;
	return 0;
}
