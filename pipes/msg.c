#include "pipes/msg_table.h"
#include "common/err.h"
#include "common/log.h"
#include "common/utf8.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* The arena is reserved before lists are made, because lists point into it:
 * this many bytes for each value of the frame are enough for any record (a
 * record's array is a value itself).  tests/unit_msg.c checks all of them. */
#define ARENA_PER_ELEMENT 16
#define ZONE_CHUNK 8192

static int fail(const struct record *r, const struct field *f, const char *why)
{
	return log_error(E_PROTO, "message %s: field %s: %s", r->name, f->name,
			 why);
}

/* ---- text ---- */

/* Eight bytes at once, if each is printable ASCII: nearly all text is. */
static bool is_plain(const char *p)
{
	const uint64_t ones = 0x0101010101010101;
	uint64_t v, below, del;

	memcpy(&v, p, sizeof v);
	below = v - 0x20 * ones;	/* borrows below ' ' */
	del = (v ^ 0x7f * ones) - ones; /* borrows at DEL */
	return ((v | below | del) & 0x80 * ones) == 0;
}

bool msg_is_text(struct slice s)
{
	for (size_t i = 0, len; i < s.n; i += len) {
		if (s.n - i >= 8 && is_plain(s.p + i))
			len = 8;
		else if (s.n >= 8 && s.n - i < 8 && is_plain(s.p + s.n - 8))
			return true;
		else
			len = utf8_print_len(s.p + i, s.n - i);
		if (len == 0)
			return false;
	}
	return true;
}

static const char *text_fault(struct slice s, uint32_t max)
{
	if (s.n > max)
		return "too long";
	return msg_is_text(s) ? NULL : "not UTF-8 without control characters";
}

/* ---- encoding ---- */

static int write_buf(void *out, const char *p, size_t n)
{
	buf_add(out, p, n);
	return 0;
}

static int pack_record(msgpack_packer *pk, const struct record *r,
		       const char *body);

/* Cut between characters; what is none is a '?'. */
static void pack_line(msgpack_packer *pk, struct slice s, uint32_t max)
{
	struct buf b = { 0 };

	while (s.n) {
		size_t good = utf8_print_len(s.p, s.n), len = good ? good : 1;

		if (b.n + len > max)
			break;
		buf_add(&b, good ? s.p : "?", len);
		s.p += len;
		s.n -= len;
	}
	msgpack_pack_str_with_body(pk, b.p, b.n);
	buf_release(&b);
}

static int pack_str(msgpack_packer *pk, struct slice s, uint32_t max,
		    const struct record *r, const struct field *f)
{
	const char *fault = text_fault(s, max);

	if (fault && f->mends) {
		pack_line(pk, s, max);
		return 0;
	}
	if (fault)
		return fail(r, f, fault);
	msgpack_pack_str_with_body(pk, s.p, s.n);
	return 0;
}

static int pack_list(msgpack_packer *pk, const struct record *r,
		     const struct field *f, const char *body)
{
	struct any_list l = field_list(f, body);
	int rc = 0;

	if (l.n > f->max)
		return fail(r, f, "too many elements");
	msgpack_pack_array(pk, l.n);
	for (uint32_t i = 0; i < l.n && rc == 0; i++) {
		if (f->type == F_NUMS)
			msgpack_pack_uint64(pk, ((const uint64_t *)l.v)[i]);
		else if (f->type == F_STRS)
			rc = pack_str(pk, ((const struct slice *)l.v)[i],
				      f->len, r, f);
		else
			rc = pack_record(pk, f->sub(),
					 (const char *)l.v +
						 i * f->sub()->size);
	}
	return rc;
}

static int pack_field(msgpack_packer *pk, const struct record *r,
		      const struct field *f, const char *body)
{
	const void *p = body + f->off;
	const struct slice *s = p;

	switch (f->type) {
	case F_U8:
		return msgpack_pack_uint8(pk, *(const uint8_t *)p);
	case F_U32:
		return msgpack_pack_uint32(pk, *(const uint32_t *)p);
	case F_U64:
		return msgpack_pack_uint64(pk, *(const uint64_t *)p);
	case F_I64:
		return msgpack_pack_int64(pk, *(const int64_t *)p);
	case F_FLAG:
		return *(const bool *)p ? msgpack_pack_true(pk)
					: msgpack_pack_false(pk);
	case F_STR:
		return pack_str(pk, *s, f->max, r, f);
	case F_BIN:
		if (s->n > f->max)
			return fail(r, f, "too long");
		return msgpack_pack_bin_with_body(pk, s->p, s->n);
	case F_DIG:
		return msgpack_pack_bin_with_body(pk, p, DIGEST_LEN);
	case F_REC:
		return pack_record(pk, f->sub(), p);
	default:
		return pack_list(pk, r, f, body);
	}
}

static int pack_record(msgpack_packer *pk, const struct record *r,
		       const char *body)
{
	int rc = 0;

	msgpack_pack_array(pk, r->nfields + (r->number != 0));
	if (r->number)
		msgpack_pack_uint8(pk, r->number);
	for (uint32_t i = 0; i < r->nfields && rc == 0; i++)
		rc = pack_field(pk, r, &r->field[i], body);
	return rc;
}

int msg_pack(struct buf *out, const struct msg *m)
{
	const struct record *r = record_of(m->type);
	size_t before = out->n;
	msgpack_packer pk;
	int rc;

	if (!r)
		BUG("message %u to pack", (unsigned)m->type);
	msgpack_packer_init(&pk, out, write_buf);
	rc = pack_record(&pk, r, (const char *)m + MSG_BODY);
	if (rc == 0 && out->n - before > FRAME_MAX)
		rc = log_error(E_PROTO,
			       "message %s: %zu bytes exceed a frame's %u",
			       r->name, out->n - before, FRAME_MAX);
	if (rc < 0)
		out->n = before;
	return rc;
}

/* ---- the scan before decoding ---- */

struct scan {
	const unsigned char *p;
	size_t n, off; /* bytes, and how many were read */
	uint32_t elements;
	unsigned depth;
	uint32_t left[MSG_DEPTH_MAX + 1]; /* values still to come, by depth */
};

static int truncated(const struct scan *s)
{
	return log_error(E_PROTO, "message truncated: %zu bytes are too few",
			 s->n);
}

/* A big-endian number of len bytes. */
static int scan_number(struct scan *s, unsigned len, uint64_t *v)
{
	*v = 0;
	if (s->n - s->off < len)
		return truncated(s);
	while (len--)
		*v = *v << 8 | s->p[s->off++];
	return 0;
}

static int scan_skip(struct scan *s, uint64_t len)
{
	if (s->n - s->off < len)
		return truncated(s);
	s->off += (size_t)len;
	return 0;
}

static int scan_array(struct scan *s, uint64_t count)
{
	if (s->depth == MSG_DEPTH_MAX)
		return log_error(E_PROTO, "message nested deeper than %d",
				 MSG_DEPTH_MAX);
	/* Every value takes at least one byte. */
	if (s->n - s->off < count)
		return truncated(s);
	s->left[++s->depth] = (uint32_t)count;
	return 0;
}

/* What a head byte announces, for the types that weir uses. */
enum head { H_BAD, H_VALUE, H_SIGNED, H_BYTES, H_ARRAY };
struct head_info {
	uint8_t head, len; /* bytes of the value or of the count */
	uint64_t least;	   /* less has a shorter form */
};

#define HEAD_LONG 0xc0 /* from here to 0xdf */
/* clang-format off */
static const struct head_info long_head[32] = {
	[0xc2 - HEAD_LONG] = { H_VALUE, 0, 0 },		/* false, true */
	[0xc3 - HEAD_LONG] = { H_VALUE, 0, 0 },
	[0xc4 - HEAD_LONG] = { H_BYTES, 1, 0 },		/* bin */
	[0xc5 - HEAD_LONG] = { H_BYTES, 2, 1 << 8 },
	[0xc6 - HEAD_LONG] = { H_BYTES, 4, 1 << 16 },
	[0xcc - HEAD_LONG] = { H_VALUE, 1, 1 << 7 },	/* unsigned */
	[0xcd - HEAD_LONG] = { H_VALUE, 2, 1 << 8 },
	[0xce - HEAD_LONG] = { H_VALUE, 4, 1 << 16 },
	[0xcf - HEAD_LONG] = { H_VALUE, 8, UINT64_C(1) << 32 },
	[0xd0 - HEAD_LONG] = { H_SIGNED, 1, 1 << 5 },	/* negative: of ~v */
	[0xd1 - HEAD_LONG] = { H_SIGNED, 2, 1 << 7 },
	[0xd2 - HEAD_LONG] = { H_SIGNED, 4, 1 << 15 },
	[0xd3 - HEAD_LONG] = { H_SIGNED, 8, UINT64_C(1) << 31 },
	[0xd9 - HEAD_LONG] = { H_BYTES, 1, 1 << 5 },	/* str */
	[0xda - HEAD_LONG] = { H_BYTES, 2, 1 << 8 },
	[0xdb - HEAD_LONG] = { H_BYTES, 4, 1 << 16 },
	[0xdc - HEAD_LONG] = { H_ARRAY, 2, 1 << 4 },
	[0xdd - HEAD_LONG] = { H_ARRAY, 4, 1 << 16 },
};
/* clang-format on */

/* *count is what a short head carries in itself. */
static struct head_info head_of(unsigned char c, uint64_t *count)
{
	*count = 0;
	if (c < 0x80 || c >= 0xe0)
		return (struct head_info){ H_VALUE, 0, 0 };
	if (c >= HEAD_LONG)
		return long_head[c - HEAD_LONG];
	if (c < 0x90)
		return (struct head_info){ H_BAD, 0, 0 };
	*count = c < 0xa0 ? c & 0x0f : c & 0x1f;
	return (struct head_info){ c < 0xa0 ? H_ARRAY : H_BYTES, 0, 0 };
}

/* The value or count behind a head, in the only form that it has. */
static int scan_long(struct scan *s, const struct head_info *h, uint64_t *v)
{
	size_t at = s->off - 1;
	bool negative;

	if (scan_number(s, h->len, v) < 0)
		return -E_PROTO;
	negative = h->head == H_SIGNED && *v >> (8 * h->len - 1);
	if (negative && (~*v & UINT64_MAX >> (64 - 8 * h->len)) >= h->least)
		return 0;
	/* What is not negative is packed as unsigned. */
	if (h->head != H_SIGNED && *v >= h->least)
		return 0;
	return log_error(E_PROTO,
			 "message with a value at byte %zu that has a shorter "
			 "form",
			 at);
}

static int scan_value(struct scan *s)
{
	struct head_info h;
	uint64_t count;

	if (s->off == s->n)
		return truncated(s);
	if (++s->elements > MSG_ELEMENTS_MAX)
		return log_error(E_PROTO, "message of more than %u values",
				 MSG_ELEMENTS_MAX);
	h = head_of(s->p[s->off], &count);
	if (h.head == H_BAD)
		return log_error(E_PROTO,
				 "message with type 0x%02x at byte %zu",
				 s->p[s->off], s->off);
	s->off++;
	if (h.len && scan_long(s, &h, &count) < 0)
		return -E_PROTO;
	if (h.head == H_ARRAY)
		return scan_array(s, count);
	return h.head == H_BYTES ? scan_skip(s, count) : 0;
}

/* Exactly one value from end to end, every count covered by bytes. */
static int scan(struct slice frame, uint32_t *elements)
{
	struct scan s = { .p = (const void *)frame.p, .n = frame.n };
	int rc;

	if (frame.n > FRAME_MAX)
		return log_error(E_PROTO, "message of %zu bytes exceeds %u",
				 frame.n, FRAME_MAX);
	s.left[0] = 1;
	for (;;) {
		while (s.left[s.depth] == 0 && s.depth > 0)
			s.depth--;
		if (s.left[s.depth] == 0)
			break;
		s.left[s.depth]--;
		rc = scan_value(&s);
		if (rc < 0)
			return rc;
	}
	if (s.off != s.n)
		return log_error(E_PROTO,
				 "message with %zu bytes after its end",
				 s.n - s.off);
	*elements = s.elements;
	return 0;
}

/* ---- decoding ---- */

void msg_arena_release(struct msg_arena *a)
{
	free(a->p);
	if (a->zone)
		msgpack_zone_free(a->zone);
	*a = (struct msg_arena){ 0 };
}

static void arena_begin(struct msg_arena *a, uint32_t elements)
{
	size_t need = (size_t)elements * ARENA_PER_ELEMENT;

	a->n = 0;
	if (need > a->cap) {
		a->p = xreallocarray(a->p, need, 1);
		a->cap = need;
	}
}

static void *arena_get(struct msg_arena *a, size_t n)
{
	void *p = a->p + a->n;

	a->n += (n + 7) & ~(size_t)7;
	BUG_ON(a->n > a->cap);
	return p;
}

/* One field being decoded. */
struct want {
	struct msg_arena *arena;
	const struct record *r;
	const struct field *f;
};

static int unpack_record(struct msg_arena *a, const struct record *r,
			 const msgpack_object *v, uint32_t skip, char *body);

static int unpack_uint(const struct want *w, const msgpack_object *o,
		       uint64_t max, uint64_t *out)
{
	if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return fail(w->r, w->f, "not a positive integer");
	if (o->via.u64 > max)
		return fail(w->r, w->f, "out of range");
	*out = o->via.u64;
	return 0;
}

static int unpack_int(const struct want *w, const msgpack_object *o,
		      int64_t *out)
{
	if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		*out = o->via.i64;
	else if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return fail(w->r, w->f, "not an integer");
	else if (o->via.u64 > INT64_MAX)
		return fail(w->r, w->f, "out of range");
	else
		*out = (int64_t)o->via.u64;
	return 0;
}

static int unpack_flag(const struct want *w, const msgpack_object *o, bool *out)
{
	if (o->type != MSGPACK_OBJECT_BOOLEAN)
		return fail(w->r, w->f, "not a boolean");
	*out = o->via.boolean;
	return 0;
}

static int unpack_str(const struct want *w, const msgpack_object *o,
		      uint32_t max, struct slice *out)
{
	struct slice s = { o->via.str.ptr, o->via.str.size };
	const char *fault;

	if (o->type != MSGPACK_OBJECT_STR)
		return fail(w->r, w->f, "not a string");
	fault = text_fault(s, max);
	if (fault)
		return fail(w->r, w->f, fault);
	*out = s;
	return 0;
}

static int unpack_bin(const struct want *w, const msgpack_object *o,
		      struct slice *out)
{
	if (o->type != MSGPACK_OBJECT_BIN)
		return fail(w->r, w->f, "not bytes");
	if (o->via.bin.size > w->f->max)
		return fail(w->r, w->f, "too long");
	*out = (struct slice){ o->via.bin.ptr, o->via.bin.size };
	return 0;
}

static int unpack_digest(const struct want *w, const msgpack_object *o,
			 struct digest *out)
{
	if (o->type != MSGPACK_OBJECT_BIN || o->via.bin.size != DIGEST_LEN)
		return fail(w->r, w->f, "not a digest");
	memcpy(out->b, o->via.bin.ptr, DIGEST_LEN);
	return 0;
}

static int record_check(const struct want *w, const msgpack_object *o)
{
	if (o->type != MSGPACK_OBJECT_ARRAY)
		return fail(w->r, w->f, "not a record");
	if (o->via.array.size != w->f->sub()->nfields)
		return fail(w->r, w->f, "wrong count of fields");
	return 0;
}

static int unpack_rec(const struct want *w, const msgpack_object *o, char *out)
{
	int rc = record_check(w, o);

	if (rc < 0)
		return rc;
	return unpack_record(w->arena, w->f->sub(), o->via.array.ptr, 0, out);
}

static int unpack_element(const struct want *w, const msgpack_object *o,
			  void *v, uint32_t i)
{
	if (w->f->type == F_NUMS)
		return unpack_uint(w, o, UINT64_MAX, (uint64_t *)v + i);
	if (w->f->type == F_STRS)
		return unpack_str(w, o, w->f->len, (struct slice *)v + i);
	return unpack_rec(w, o, (char *)v + i * w->f->sub()->size);
}

static size_t element_size(const struct field *f)
{
	if (f->type == F_NUMS)
		return sizeof(uint64_t);
	return f->type == F_STRS ? sizeof(struct slice) : f->sub()->size;
}

static int unpack_list(const struct want *w, const msgpack_object *o, char *out)
{
	struct any_list l = { 0 };
	int rc = 0;

	if (o->type != MSGPACK_OBJECT_ARRAY)
		return fail(w->r, w->f, "not a list");
	l.n = o->via.array.size;
	if (l.n > w->f->max)
		return fail(w->r, w->f, "too many elements");
	/* Records are checked before they get room: see ARENA_PER_ELEMENT. */
	for (uint32_t i = 0; w->f->type == F_LIST && i < l.n && rc == 0; i++)
		rc = record_check(w, &o->via.array.ptr[i]);
	if (rc == 0 && l.n)
		l.v = arena_get(w->arena, l.n * element_size(w->f));
	for (uint32_t i = 0; i < l.n && rc == 0; i++)
		rc = unpack_element(w, &o->via.array.ptr[i], l.v, i);
	memcpy(out, &l, sizeof l);
	return rc;
}

static int unpack_field(const struct want *w, const msgpack_object *o,
			char *out)
{
	void *p = out;
	uint64_t v = 0;
	int rc;

	switch (w->f->type) {
	case F_U8:
		rc = unpack_uint(w, o, UINT8_MAX, &v);
		*(uint8_t *)p = (uint8_t)v;
		return rc;
	case F_U32:
		rc = unpack_uint(w, o, UINT32_MAX, &v);
		*(uint32_t *)p = (uint32_t)v;
		return rc;
	case F_U64:
		return unpack_uint(w, o, UINT64_MAX, p);
	case F_I64:
		return unpack_int(w, o, p);
	case F_FLAG:
		return unpack_flag(w, o, p);
	case F_STR:
		return unpack_str(w, o, w->f->max, p);
	case F_BIN:
		return unpack_bin(w, o, p);
	case F_DIG:
		return unpack_digest(w, o, p);
	case F_REC:
		return unpack_rec(w, o, p);
	default:
		return unpack_list(w, o, p);
	}
}

static int unpack_record(struct msg_arena *a, const struct record *r,
			 const msgpack_object *v, uint32_t skip, char *body)
{
	struct want w = { .arena = a, .r = r };
	int rc = 0;

	for (uint32_t i = 0; i < r->nfields && rc == 0; i++) {
		w.f = &r->field[i];
		rc = unpack_field(&w, &v[i + skip], body + w.f->off);
	}
	return rc;
}

static int unpack_message(struct msg *m, struct msg_arena *a,
			  const msgpack_object *o)
{
	const struct record *r;
	uint64_t no;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size == 0 ||
	    o->via.array.ptr[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return log_error(E_PROTO, "message without a number");
	no = o->via.array.ptr[0].via.u64;
	r = no <= UINT8_MAX ? record_of((unsigned)no) : NULL;
	if (!r)
		return log_error(E_PROTO, "message number %llu is unknown",
				 (unsigned long long)no);
	if (o->via.array.size != r->nfields + 1)
		return log_error(E_PROTO, "message %s: %u fields, should be %u",
				 r->name, o->via.array.size - 1, r->nfields);
	m->type = (enum msg_type)no;
	return unpack_record(a, r, o->via.array.ptr, 1, (char *)m + MSG_BODY);
}

static int unpack_object(struct msg_arena *a, struct slice frame,
			 msgpack_object *o)
{
	uint32_t elements = 0;
	size_t off = 0;
	msgpack_unpack_return got;
	int rc = scan(frame, &elements);

	if (rc < 0)
		return rc;
	arena_begin(a, elements);
	if (!a->zone)
		a->zone = msgpack_zone_new(ZONE_CHUNK);
	if (!a->zone)
		xnomem(ZONE_CHUNK);
	msgpack_zone_clear(a->zone);
	got = msgpack_unpack(frame.p, frame.n, &off, a->zone, o);
	if (got == MSGPACK_UNPACK_NOMEM_ERROR)
		xnomem(frame.n);
	if (got != MSGPACK_UNPACK_SUCCESS)
		return log_error(E_PROTO, "message is no msgpack");
	return 0;
}

int msg_unpack(struct msg *m, struct msg_arena *a, struct slice frame)
{
	msgpack_object o;
	int rc = unpack_object(a, frame, &o);

	m->type = MSG_NONE;
	if (rc < 0)
		return rc;
	rc = unpack_message(m, a, &o);
	if (rc < 0)
		m->type = MSG_NONE;
	return rc;
}

bool msg_is_strange(struct msg_arena *a, struct slice frame, uint64_t *seq)
{
	int quiet = log_quiet_thread(1);
	const msgpack_object *v;
	msgpack_object o;
	int rc = unpack_object(a, frame, &o);

	log_quiet_thread(quiet);
	if (rc < 0 || o.type != MSGPACK_OBJECT_ARRAY || o.via.array.size < 2)
		return false;
	v = o.via.array.ptr;
	if (v[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
	    v[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
	    v[0].via.u64 < M_probe || v[0].via.u64 > M_refused)
		return false;
	*seq = v[1].via.u64;
	return true;
}
