/* What people and tools read of the table: names, JSON, schema, reference. */
#include "pipes/msg_table.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

static const char *const stage_names[] = {
	[STAGE_NONE] = "none",	   [STAGE_PLAN] = "plan",
	[STAGE_ADMIT] = "admit",   [STAGE_TRANSFER] = "transfer",
	[STAGE_COMMIT] = "commit",
};
static_assert(COUNT(stage_names) == STAGE_N, "name every stage");

static const char *const engine_kinds[] = {
	[ENGINE_NATIVE] = "native",
	[ENGINE_SGLANG] = "sglang",
	[ENGINE_VLLM] = "vllm",
};
static_assert(COUNT(engine_kinds) == ENGINE_N, "name every kind");

static const char *const proofs[] = {
	[PROOF_ACK] = "ack",
	[PROOF_SAMPLED] = "sampled",
	[PROOF_COPIED] = "copied",
	[PROOF_REREAD] = "reread",
};
static_assert(COUNT(proofs) == PROOF_N, "name every level");

const char *stage_name(unsigned id)
{
	return id < COUNT(stage_names) ? stage_names[id] : NULL;
}

const char *engine_kind_name(unsigned k)
{
	return k < COUNT(engine_kinds) ? engine_kinds[k] : NULL;
}

const char *proof_name(unsigned p)
{
	return p < COUNT(proofs) ? proofs[p] : NULL;
}

const char *msg_name(enum msg_type t)
{
	const struct record *r = record_of(t);

	return r ? r->name : NULL;
}

/* ---- the hash ---- */

/* What both sides must agree on; texts may change. */
static void hash_text(struct buf *b, const struct record *r)
{
	buf_addf(b, "%u %s\n", r->number, r->name);
	for (uint32_t i = 0; i < r->nfields; i++) {
		const struct field *f = &r->field[i];

		buf_addf(b, "\t%s %s %u %u %s\n", field_type_name(f->type),
			 f->name, f->max, f->len, f->sub ? f->sub()->name : "");
	}
}

/* fn for every record, nested ones first, in the order of their numbers. */
static void each_record(void (*fn)(struct buf *, const struct record *),
			struct buf *b)
{
	const struct record *r;

	for (size_t i = 0; (r = record_nested(i)); i++)
		fn(b, r);
	for (unsigned no = 1; no <= UINT8_MAX; no++)
		if ((r = record_of(no)))
			fn(b, r);
}

static uint64_t hash_table(void)
{
	struct buf b = { 0 };
	struct digest d;
	uint64_t h = 0;

	each_record(hash_text, &b);
	digest_of(b.p, b.n, &d);
	buf_release(&b);
	for (size_t i = 0; i < sizeof h; i++)
		h = h << 8 | d.b[i];
	return h;
}

/* Made once: it goes into every answer to a probe.  Two threads that make it
 * at the same time make the same. */
uint64_t msg_table_hash(void)
{
	static atomic_uint_least64_t made;
	uint64_t h = atomic_load_explicit(&made, memory_order_relaxed);

	if (h)
		return h;
	h = hash_table();
	atomic_store_explicit(&made, h, memory_order_relaxed);
	return h;
}

/* ---- JSON ---- */

/* Strings of messages are UTF-8 without control characters. */
static void json_str(struct buf *b, struct slice s)
{
	buf_add(b, "\"", 1);
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '"' || s.p[i] == '\\')
			buf_add(b, "\\", 1);
		buf_add(b, s.p + i, 1);
	}
	buf_add(b, "\"", 1);
}

static unsigned bits(struct slice s)
{
	unsigned n = 0;

	for (size_t i = 0; i < s.n; i++)
		n += (unsigned)__builtin_popcount((unsigned char)s.p[i]);
	return n;
}

static void json_fields(struct buf *b, const struct record *r,
			const char *body);

static void json_record(struct buf *b, const struct record *r, const char *body)
{
	buf_addf(b, "{");
	json_fields(b, r, body);
	buf_addf(b, "}");
}

static void json_list(struct buf *b, const struct field *f, const char *body)
{
	struct any_list l = field_list(f, body);

	buf_addf(b, "[");
	for (uint32_t i = 0; i < l.n; i++) {
		if (i)
			buf_addf(b, ",");
		if (f->type == F_NUMS)
			buf_addf(b, "%llu",
				 (unsigned long long)((uint64_t *)l.v)[i]);
		else if (f->type == F_STRS)
			json_str(b, ((const struct slice *)l.v)[i]);
		else
			json_record(b, f->sub(),
				    (const char *)l.v + i * f->sub()->size);
	}
	buf_addf(b, "]");
}

static void json_field(struct buf *b, const struct field *f, const char *body)
{
	const void *p = body + f->off;
	char hex[DIGEST_HEX];

	switch (f->type) {
	case F_U8:
		buf_addf(b, "%u", *(const uint8_t *)p);
		break;
	case F_U32:
		buf_addf(b, "%u", *(const uint32_t *)p);
		break;
	case F_U64:
		buf_addf(b, "%llu", (unsigned long long)*(const uint64_t *)p);
		break;
	case F_I64:
		buf_addf(b, "%lld", (long long)*(const int64_t *)p);
		break;
	case F_FLAG:
		buf_addf(b, "%s", *(const bool *)p ? "true" : "false");
		break;
	case F_STR:
		json_str(b, *(const struct slice *)p);
		break;
	case F_BIN:
		buf_addf(b, "%u", bits(*(const struct slice *)p));
		break;
	case F_DIG:
		buf_addf(b, "\"%s\"", digest_hex(p, hex));
		break;
	case F_REC:
		json_record(b, f->sub(), p);
		break;
	default:
		json_list(b, f, body);
	}
}

static void json_fields(struct buf *b, const struct record *r, const char *body)
{
	for (uint32_t i = 0; i < r->nfields; i++) {
		buf_addf(b, "%s\"%s\":", i ? "," : "", r->field[i].name);
		json_field(b, &r->field[i], body);
	}
}

void msg_json(struct buf *out, const struct msg *m)
{
	const struct record *r = record_of(m->type);

	buf_addf(out, "{\"msg\":\"%s\"%s", r->name, r->nfields ? "," : "");
	json_fields(out, r, (const char *)m + MSG_BODY);
	buf_addf(out, "}");
}

/* ---- the schema of those lines ---- */

static void schema_type(struct buf *b, const struct field *f)
{
	static const char *const uint_max[] = {
		[F_U8] = "255",
		[F_U32] = "4294967295",
		[F_U64] = "18446744073709551615",
	};

	switch (f->type) {
	case F_U8:
	case F_U32:
	case F_U64:
		buf_addf(b, "\"type\":\"integer\",\"minimum\":0,\"maximum\":%s",
			 uint_max[f->type]);
		break;
	case F_I64:
		buf_addf(b, "\"type\":\"integer\"");
		break;
	case F_FLAG:
		buf_addf(b, "\"type\":\"boolean\"");
		break;
	case F_STR:
		buf_addf(b, "\"type\":\"string\",\"maxLength\":%u", f->max);
		break;
	case F_BIN:
		buf_addf(b, "\"type\":\"integer\",\"minimum\":0");
		break;
	case F_DIG:
		buf_addf(b, "\"type\":\"string\","
			    "\"pattern\":\"^[0-9a-f]{32}$\"");
		break;
	case F_REC:
		buf_addf(b, "\"$ref\":\"#/$defs/%s\"", f->sub()->name);
		break;
	case F_LIST:
		buf_addf(b,
			 "\"type\":\"array\",\"maxItems\":%u,"
			 "\"items\":{\"$ref\":\"#/$defs/%s\"}",
			 f->max, f->sub()->name);
		break;
	case F_NUMS:
		buf_addf(b,
			 "\"type\":\"array\",\"maxItems\":%u,"
			 "\"items\":{\"type\":\"integer\",\"minimum\":0}",
			 f->max);
		break;
	default:
		buf_addf(b,
			 "\"type\":\"array\",\"maxItems\":%u,"
			 "\"items\":{\"type\":\"string\",\"maxLength\":%u}",
			 f->max, f->len);
	}
}

static void schema_record(struct buf *b, const struct record *r)
{
	const char *comma = "";

	buf_addf(b, "{\"description\":");
	json_str(b, slice_of(r->text));
	buf_addf(b, ",\"type\":\"object\",\"additionalProperties\":false,"
		    "\"properties\":{");
	if (r->number) {
		buf_addf(b, "\"msg\":{\"const\":\"%s\"}", r->name);
		comma = ",";
	}
	for (uint32_t i = 0; i < r->nfields; i++, comma = ",") {
		const struct field *f = &r->field[i];

		buf_addf(b, "%s\"%s\":{\"description\":", comma, f->name);
		json_str(b, slice_of(f->text));
		buf_addf(b, ",");
		schema_type(b, f);
		buf_addf(b, "}");
	}
	buf_addf(b, "},\"required\":[%s", r->number ? "\"msg\"" : "");
	comma = r->number ? "," : "";
	for (uint32_t i = 0; i < r->nfields; i++, comma = ",")
		buf_addf(b, "%s\"%s\"", comma, r->field[i].name);
	buf_addf(b, "]}");
}

/* Nested records and messages may share a name: messages are numbered. */
static void schema_def(struct buf *b, const struct record *r)
{
	if (r->number)
		buf_addf(b, ",\n\"%u\":", r->number);
	else
		buf_addf(b, "%s\n\"%s\":", r == record_nested(0) ? "" : ",",
			 r->name);
	schema_record(b, r);
}

static void schema_ref(struct buf *b, const struct record *r)
{
	if (r->number)
		buf_addf(b, "%s\n{\"$ref\":\"#/$defs/%u\"}",
			 b->p[b->n - 1] == '[' ? "" : ",", r->number);
}

void msg_schema(struct buf *out)
{
	buf_addf(out, "{\"$schema\":"
		      "\"https://json-schema.org/draft/2020-12/schema\",\n"
		      "\"title\":\"a line of weir-dump\",\n\"oneOf\":[");
	each_record(schema_ref, out);
	buf_addf(out, "],\n\"$defs\":{");
	each_record(schema_def, out);
	buf_addf(out, "}}\n");
}

/* ---- the reference page ---- */

static void reference_type(struct buf *b, const struct field *f)
{
	switch (f->type) {
	case F_STR:
		buf_addf(b, "text, at most %u bytes", f->max);
		break;
	case F_BIN:
		buf_addf(b, "bytes, at most %u", f->max);
		break;
	case F_DIG:
		buf_addf(b, "digest");
		break;
	case F_FLAG:
		buf_addf(b, "boolean");
		break;
	case F_REC:
		buf_addf(b, "[%s](#%s)", f->sub()->name, f->sub()->name);
		break;
	case F_LIST:
		buf_addf(b, "list of [%s](#%s), at most %u", f->sub()->name,
			 f->sub()->name, f->max);
		break;
	case F_NUMS:
		buf_addf(b, "list of u64, at most %u", f->max);
		break;
	case F_STRS:
		buf_addf(b, "list of text of at most %u bytes, at most %u",
			 f->len, f->max);
		break;
	case F_I64:
		buf_addf(b, "i64");
		break;
	default:
		buf_addf(b, "u%s", field_type_name(f->type) + 1);
	}
}

static void reference_record(struct buf *b, const struct record *r)
{
	if (r->number)
		buf_addf(b, "\n### %u %s\n\n%s\n", r->number, r->name, r->text);
	else
		buf_addf(b, "\n### %s\n\n%s\n", r->name, r->text);
	if (r->nfields == 0)
		return;
	buf_addf(b, "\n| field | type | meaning |\n|---|---|---|\n");
	for (uint32_t i = 0; i < r->nfields; i++) {
		buf_addf(b, "| %s | ", r->field[i].name);
		reference_type(b, &r->field[i]);
		buf_addf(b, " | %s |\n", r->field[i].text);
	}
}

static const char reference_head[] =
	"# weir: messages and records\n"
	"\n"
	"Generated from `pipes/msg.def` by `weir-dump --reference`.\n"
	"\n"
	"A message is a msgpack array: its number, then exactly these fields "
	"in this order.\n"
	"Records without a number are nested: arrays of exactly their fields.\n"
	"Text is UTF-8 without control characters. A digest is 16 bytes of "
	"XXH3-128.\n";

void msg_reference(struct buf *out)
{
	buf_add(out, reference_head, sizeof reference_head - 1);
	buf_addf(out,
		 "A frame has at most %u bytes, %u values and %u levels "
		 "of arrays.\n",
		 FRAME_MAX, MSG_ELEMENTS_MAX, MSG_DEPTH_MAX);
	each_record(reference_record, out);
}
