#include "jsonflat.h"
#include "err.h"

struct reader {
	json_pair_fn *fn;
	void *ctx;
	struct buf key;
	bool is_open;
	const char *why;
};

static int on_event(void *ctx, enum json_event ev, struct slice text)
{
	struct reader *r = ctx;

	if (!r->is_open) {
		r->is_open = ev == JSON_OBJECT;
		r->why = r->is_open ? NULL : "no object";
		return r->is_open ? 0 : -E_DATA;
	}
	if (ev == JSON_OBJECT_END)
		return 0;
	if (ev == JSON_KEY) {
		buf_clear(&r->key);
		buf_add(&r->key, text.p, text.n);
		return 0;
	}
	if (ev == JSON_STRING || ev == JSON_NUMBER)
		return r->fn(r->ctx, buf_slice(&r->key), text);
	r->why = "a value that is neither string nor number";
	return -E_DATA;
}

int jsonflat_read(struct slice text, json_pair_fn *fn, void *ctx,
		  const char **why)
{
	struct reader r = { .fn = fn, .ctx = ctx };
	struct json j = { 0 };
	int rc;

	json_begin(&j, text.n + 1, on_event, &r);
	rc = json_feed(&j, text.p, text.n);
	if (rc == 0)
		rc = json_end(&j);
	if (rc < 0 && json_error(&j))
		r.why = json_error(&j);
	*why = r.why;
	json_release(&j);
	buf_release(&r.key);
	return rc;
}
