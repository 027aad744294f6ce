#include "jsoncopy.h"
#include "jsonw.h"

static void new_line(struct jsoncopy *c)
{
	buf_addf(c->out, "\n%*s", (int)(2 * c->depth), "");
}

/* What stands before a key, or before a value that has none. */
static void next(struct jsoncopy *c)
{
	if (c->has_key || c->depth == 0)
		return;
	if (c->has_one)
		buf_add(c->out, ",", 1);
	new_line(c);
}

static void open_level(struct jsoncopy *c, char bracket)
{
	buf_add(c->out, &bracket, 1);
	c->depth++;
	c->has_one = false;
	c->has_key = false;
}

static void close_level(struct jsoncopy *c, char bracket)
{
	c->depth--;
	if (c->has_one)
		new_line(c);
	buf_add(c->out, &bracket, 1);
	c->has_one = true;
	if (c->depth == 0)
		buf_add(c->out, "\n", 1);
}

static void put_value(struct jsoncopy *c, struct slice text)
{
	buf_add(c->out, text.p, text.n);
	c->has_key = false;
	c->has_one = true;
}

static void put_string(struct jsoncopy *c, enum json_event ev,
		       struct slice text)
{
	jsonw_quote(c->out, text);
	c->has_key = ev == JSON_KEY;
	c->has_one = true;
	if (c->has_key)
		buf_add(c->out, ": ", 2);
}

void jsoncopy_event(struct jsoncopy *c, enum json_event ev, struct slice text)
{
	if (ev != JSON_OBJECT_END && ev != JSON_ARRAY_END)
		next(c);
	switch (ev) {
	case JSON_OBJECT:
		open_level(c, '{');
		break;
	case JSON_OBJECT_END:
		close_level(c, '}');
		break;
	case JSON_ARRAY:
		open_level(c, '[');
		break;
	case JSON_ARRAY_END:
		close_level(c, ']');
		break;
	case JSON_KEY:
	case JSON_STRING:
		put_string(c, ev, text);
		break;
	case JSON_NUMBER:
		put_value(c, text);
		break;
	case JSON_TRUE:
		put_value(c, SLICE("true"));
		break;
	case JSON_FALSE:
		put_value(c, SLICE("false"));
		break;
	case JSON_NULL:
	case JSON_NEVENTS:
		put_value(c, SLICE("null"));
		break;
	}
}

void jsoncopy_key(struct jsoncopy *c, const char *key)
{
	jsoncopy_event(c, JSON_KEY, slice_of(key));
}

void jsoncopy_str(struct jsoncopy *c, const char *s)
{
	jsoncopy_event(c, JSON_STRING, slice_of(s));
}

void jsoncopy_u64(struct jsoncopy *c, uint64_t v)
{
	struct buf text = { 0 };

	buf_addf(&text, "%llu", (unsigned long long)v);
	jsoncopy_event(c, JSON_NUMBER, buf_slice(&text));
	buf_release(&text);
}
