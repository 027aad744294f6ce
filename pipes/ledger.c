#include "pipes/ledger.h"
#include "common/jsonsax.h"

#include <inttypes.h>
#include <string.h>

#define STRING_MAX 8192 /* bytes; as a ledger's line */

struct reading {
	struct ledger_line *l;
	char key[16];
};

#define AT(field) #field, offsetof(struct ledger_line, field)
static const struct {
	const char *key;
	size_t offset, size;
} texts[] = {
	{ AT(event), LEDGER_TEXT },  { AT(engine), LEDGER_TEXT },
	{ AT(run), LEDGER_TEXT },    { AT(content), LEDGER_TEXT },
	{ AT(cause), LEDGER_CAUSE },
};

static const struct {
	const char *key;
	size_t offset;
} numbers[] = { { AT(wall_ms) }, { AT(version) }, { AT(epoch) } };
#undef AT

static void keep(char *out, size_t size, struct slice text)
{
	size_t n = text.n < size - 1 ? text.n : size - 1;

	memcpy(out, text.p, n);
	out[n] = '\0';
}

static void take_text(const struct reading *r, struct slice text)
{
	for (size_t i = 0; i < COUNT(texts); i++)
		if (strcmp(r->key, texts[i].key) == 0)
			keep((char *)r->l + texts[i].offset, texts[i].size,
			     text);
}

static void take_number(const struct reading *r, struct slice text)
{
	uint64_t v;

	for (size_t i = 0; i < COUNT(numbers); i++)
		if (strcmp(r->key, numbers[i].key) == 0 &&
		    json_uint(text, UINT64_MAX, &v) == 0)
			memcpy((char *)r->l + numbers[i].offset, &v, sizeof v);
}

static int see(void *ctx, enum json_event ev, struct slice text)
{
	struct reading *r = ctx;

	if (ev == JSON_KEY)
		keep(r->key, sizeof r->key, text);
	else if (ev == JSON_STRING)
		take_text(r, text);
	else if (ev == JSON_NUMBER)
		take_number(r, text);
	return 0;
}

bool ledger_parse(struct ledger_line *l, struct slice line)
{
	struct reading r = { .l = l };
	struct json j = { 0 };
	int rc;

	*l = (struct ledger_line){ 0 };
	json_begin(&j, STRING_MAX, see, &r);
	rc = json_feed(&j, line.p, line.n);
	if (rc == 0)
		rc = json_end(&j);
	json_release(&j);
	return rc == 0 && l->event[0];
}

void ledger_text(const struct ledger_line *l, struct buf *out)
{
	buf_addf(out, "%s", l->event);
	if (l->version)
		buf_addf(out, ", version %" PRIu64, l->version);
	if (l->engine[0])
		buf_addf(out, ", engine %s", l->engine);
	if (l->run[0])
		buf_addf(out, ", run %s", l->run);
	if (l->cause[0])
		buf_addf(out, ": %s", l->cause);
}

void ledger_json(const struct ledger_line *l, struct jsonw *j)
{
	for (size_t i = 0; i < COUNT(numbers); i++) {
		uint64_t v;

		memcpy(&v, (const char *)l + numbers[i].offset, sizeof v);
		if (v)
			jsonw_u64(j, numbers[i].key, v);
	}
	for (size_t i = 0; i < COUNT(texts); i++) {
		const char *s = (const char *)l + texts[i].offset;

		if (*s)
			jsonw_str(j, texts[i].key, s);
	}
}
