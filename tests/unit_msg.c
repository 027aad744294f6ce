/* Messages: `unit_msg --write` makes the golden frames anew, for a change of
 * msg.def that is meant.  `unit_msg --records` prints one record of each, for
 * dump.bats. */
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/msg_table.h"
#include "pipes/recfile.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define SMALL_STACK 65536 /* bytes, for nested bombs */

/* ---- messages made from the table ---- */

enum shape { EMPTY, USUAL, EDGE };

struct gen {
	enum shape shape;
	uint64_t n;	    /* counts values, so that no two are equal */
	struct buf mem[64]; /* what lists and strings point to */
	size_t nmem;
};

static void *gen_mem(struct gen *g, size_t n)
{
	struct buf *b = &g->mem[g->nmem++ % COUNT(g->mem)];

	buf_release(b);
	memset(buf_reserve(b, n + 1), 0, n + 1);
	return b->p;
}

static void gen_release(struct gen *g)
{
	for (size_t i = 0; i < COUNT(g->mem); i++)
		buf_release(&g->mem[i]);
}

static uint64_t gen_number(struct gen *g, uint64_t max)
{
	static const uint64_t edge[] = {
		UINT64_MAX,
		1ull << 32,
		(1ull << 32) - 1,
		1ull << 63,
		(1ull << 63) - 1,
		1ull << 16,
		65535,
		256,
		255,
		128,
		127,
	};
	uint64_t v = edge[g->n % COUNT(edge)];

	g->n++;
	if (g->shape == EMPTY)
		return 0;
	if (g->shape == USUAL)
		return g->n * 7 % (max < 1000000 ? max : 1000000);
	return v < max ? v : max;
}

static struct slice gen_text(struct gen *g, uint32_t max)
{
	static const char usual[] = "a \"b\" \\ \xc3\xa9 \xf0\x9f\x8c\x8a ";
	size_t n = g->shape == EMPTY ? 0 : g->shape == USUAL ? 18 : max;
	char *p = gen_mem(g, n + sizeof usual);

	if (n > max)
		n = max;
	for (size_t i = 0; i < n; i++)
		p[i] = (char)('a' + (g->n + i) % 26);
	if (g->shape == USUAL && n >= sizeof usual)
		memcpy(p, usual, sizeof usual - 1);
	g->n++;
	return (struct slice){ p, n };
}

static void gen_record(struct gen *g, const struct record *r, char *body);

static struct any_list gen_list(struct gen *g, const struct field *f)
{
	uint32_t n = g->shape == EMPTY ? 0 : g->shape == USUAL ? 2 : 3;
	size_t each = f->type == F_NUMS	  ? sizeof(uint64_t)
		      : f->type == F_STRS ? sizeof(struct slice)
					  : f->sub()->size;
	struct any_list l = { gen_mem(g, n * each), n };

	for (uint32_t i = 0; i < n; i++) {
		if (f->type == F_NUMS)
			((uint64_t *)l.v)[i] = gen_number(g, UINT64_MAX);
		else if (f->type == F_STRS)
			((struct slice *)l.v)[i] = gen_text(g, f->len);
		else
			gen_record(g, f->sub(), (char *)l.v + i * each);
	}
	return l;
}

static void gen_field(struct gen *g, const struct field *f, void *p)
{
	struct any_list l;

	switch (f->type) {
	case F_U8:
		*(uint8_t *)p = (uint8_t)gen_number(g, UINT8_MAX);
		break;
	case F_U32:
		*(uint32_t *)p = (uint32_t)gen_number(g, UINT32_MAX);
		break;
	case F_U64:
		*(uint64_t *)p = gen_number(g, UINT64_MAX);
		break;
	case F_I64:
		*(int64_t *)p = g->n++ % 2 ? (int64_t)gen_number(g, INT64_MAX)
				: g->shape == EDGE ? INT64_MIN
						   : -1;
		break;
	case F_FLAG:
		*(bool *)p = g->shape != EMPTY && g->n++ % 2;
		break;
	case F_STR:
	case F_BIN:
		*(struct slice *)p = gen_text(g, f->max);
		break;
	case F_DIG:
		for (size_t i = 0; i < DIGEST_LEN; i++)
			((struct digest *)p)->b[i] = (uint8_t)g->n++;
		break;
	case F_REC:
		gen_record(g, f->sub(), p);
		break;
	default:
		l = gen_list(g, f);
		memcpy(p, &l, sizeof l);
	}
}

static void gen_record(struct gen *g, const struct record *r, char *body)
{
	for (uint32_t i = 0; i < r->nfields; i++)
		gen_field(g, &r->field[i], body + r->field[i].off);
}

static void gen_msg(struct gen *g, const struct record *r, enum shape shape,
		    struct msg *m)
{
	memset(m, 0, sizeof *m);
	g->shape = shape;
	g->n = r->number;
	m->type = (enum msg_type)r->number;
	gen_record(g, r, (char *)m + MSG_BODY);
}

/* ---- round trips ---- */

static struct msg_arena arena;

static int unpack(struct slice frame)
{
	struct msg m;

	return msg_unpack(&m, &arena, frame);
}

static bool same_json(const struct msg *a, const struct msg *b)
{
	struct buf x = { 0 }, y = { 0 };
	bool same;

	msg_json(&x, a);
	msg_json(&y, b);
	same = slice_eq(buf_slice(&x), buf_slice(&y));
	buf_release(&x);
	buf_release(&y);
	return same;
}

/* Packed, unpacked, packed again: the same bytes, the same JSON. */
static bool round_trip(struct gen *g, const struct record *r, enum shape shape)
{
	struct buf one = { 0 }, two = { 0 };
	struct msg m, back;
	bool same;

	gen_msg(g, r, shape, &m);
	same = msg_pack(&one, &m) == 0 &&
	       msg_unpack(&back, &arena, buf_slice(&one)) == 0 &&
	       msg_pack(&two, &back) == 0 && same_json(&m, &back) &&
	       slice_eq(buf_slice(&one), buf_slice(&two));
	buf_release(&one);
	buf_release(&two);
	return same;
}

static bool prefixes_are_truncated(struct gen *g, const struct record *r)
{
	struct buf b = { 0 };
	struct msg m;
	bool good = true;

	gen_msg(g, r, USUAL, &m);
	good = msg_pack(&b, &m) == 0;
	for (size_t n = 0; n < b.n && good; n++) {
		/* A copy of its own, so that a sanitizer sees its end. */
		char *copy = malloc(n ? n : 1);

		memcpy(copy, b.p, n);
		good = unpack((struct slice){ copy, n }) == -E_PROTO &&
		       strstr(log_cause(), "truncated");
		free(copy);
	}
	buf_release(&b);
	return good;
}

/* What a changed byte makes is refused, or is a message like any other. */
static bool changed_bytes_are_safe(struct gen *g, const struct record *r)
{
	static const unsigned char bad[] = {
		0x00, 0x7f, 0x80, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2,
		0xc4, 0xc6, 0xca, 0xcf, 0xd3, 0xdb, 0xdd, 0xdf, 0xff
	};
	struct buf b = { 0 }, again = { 0 };
	struct msg m;
	bool good;

	gen_msg(g, r, USUAL, &m);
	good = msg_pack(&b, &m) == 0;
	for (size_t at = 0; at < b.n * COUNT(bad) && good; at++) {
		char was = b.p[at / COUNT(bad)];

		b.p[at / COUNT(bad)] = (char)bad[at % COUNT(bad)];
		buf_clear(&again);
		if (msg_unpack(&m, &arena, buf_slice(&b)) == 0)
			good = msg_pack(&again, &m) == 0;
		b.p[at / COUNT(bad)] = was;
	}
	buf_release(&b);
	buf_release(&again);
	return good;
}

static void test_all(void)
{
	struct gen g = { 0 };
	const struct record *r;

	for (unsigned no = 0; no < 256; no++) {
		if (!(r = record_of(no)))
			continue;
		ok(round_trip(&g, r, EMPTY), "%s: empty, there and back",
		   r->name);
		ok(round_trip(&g, r, USUAL), "%s: usual, there and back",
		   r->name);
		ok(round_trip(&g, r, EDGE), "%s: extremes, there and back",
		   r->name);
		ok(prefixes_are_truncated(&g, r),
		   "MP-05 %s: every prefix is truncated", r->name);
		ok(changed_bytes_are_safe(&g, r), "%s: any byte changed",
		   r->name);
	}
	gen_release(&g);
}

static void test_table(void)
{
	const struct record *r;

	/* pipes/msg.c reserves 16 bytes per value for lists. */
	for (size_t i = 0; (r = record_nested(i)); i++)
		ok(r->size <= 16 * (r->nfields + 1) && r->size % 8 == 0,
		   "%s: the arena has room for %zu bytes", r->name, r->size);
	eq_str(msg_name(M_hello), "hello", "a number has a name");
	ok(!msg_name((enum msg_type)255) && !msg_name(MSG_NONE),
	   "others have none");
	ok(msg_table_hash() == msg_table_hash() && msg_table_hash(),
	   "the table has a hash");
	eq_str(stage_name(STAGE_COMMIT), "commit", "stages have names");
	ok(!stage_name(STAGE_N) && !engine_kind_name(ENGINE_N) &&
		   !proof_name(PROOF_N),
	   "past the end there is no name");
}

/* ---- golden frames ---- */

/* SRC is set by tests/run. */
static int golden_dir(void)
{
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/golden/msg", src ? src : ".");
	int fd = open(path, O_RDONLY | O_DIRECTORY);

	free(path);
	return fd;
}

static void golden(struct gen *g, int dir, const struct record *r, bool write)
{
	struct buf frame = { 0 }, want = { 0 };
	char *name = xasprintf("%s.bin", r->name);
	struct msg m;

	gen_msg(g, r, USUAL, &m);
	msg_pack(&frame, &m);
	if (write)
		ok(io_replace(dir, name, frame.p, frame.n) == 0, "wrote %s",
		   name);
	else
		ok(io_read_file(dir, name, FRAME_MAX, &want) == 0 &&
			   slice_eq(buf_slice(&frame), buf_slice(&want)),
		   "%s is as it was (or: unit_msg --write)", name);
	buf_release(&frame);
	buf_release(&want);
	free(name);
}

static void test_golden(bool write)
{
	struct gen g = { 0 };
	const struct record *r;
	int dir = golden_dir();

	if (!ok(dir >= 0, "golden frames are there"))
		return;
	for (unsigned no = 0; no < 256; no++)
		if ((r = record_of(no)))
			golden(&g, dir, r, write);
	close(dir);
	gen_release(&g);
}

static int print_records(void)
{
	struct gen g = { 0 };
	struct buf b = { 0 };
	const struct record *r;
	struct msg m;
	int rc;

	for (unsigned no = 0; no < 256; no++) {
		if (!(r = record_of(no)))
			continue;
		gen_msg(&g, r, EDGE, &m);
		rec_append(&b, &m);
	}
	rc = io_write_full(STDOUT_FILENO, b.p, b.n);
	buf_release(&b);
	gen_release(&g);
	return rc < 0;
}

/* ---- bombs ---- */

static void refuse(const char *bytes, size_t n, const char *why)
{
	struct slice frame = { bytes, n };

	ok(unpack(frame) == -E_PROTO && strstr(log_cause(), why), "%s: %s", why,
	   log_cause());
}
#define REFUSE(lit, why) refuse((lit), sizeof(lit) - 1, (why))

static void test_length_bombs(void)
{
	static const char *const bomb[] = {
		"\xdd\xff\xff\xff\xff",		"\xdf\xff\xff\xff\xff",
		"\xdb\xff\xff\xff\xff",		"\xc6\xff\xff\xff\xff",
		"\xc9\xff\xff\xff\xff",		"\xdc\xff\xff",
		"\x92\x12\xdb\xff\xff\xff\xff",
	};

	for (size_t i = 0; i < COUNT(bomb); i++) {
		struct msg_arena a = { 0 };
		struct msg m;
		int rc = msg_unpack(&m, &a, slice_of(bomb[i]));

		ok(rc == -E_PROTO && !a.p && !a.zone,
		   "MP-01 bomb %zu is refused before any allocation", i);
		msg_arena_release(&a);
	}
}

static struct buf repeat(const char *p, size_t n, size_t times)
{
	struct buf b = { 0 };

	while (times--)
		buf_add(&b, p, n);
	return b;
}

static void *nested_bombs(void *unused)
{
	struct buf ones = repeat("\x91", 1, 10000);
	struct buf wide = repeat("\xdc\xff\xff", 3, 24000);
	struct buf many = repeat("\xdd\x00\x09\x27\xc0", 5, 1);
	struct msg_arena a = { 0 };
	struct msg m;
	(void)unused;

	log_quiet_thread(1);
	ok(msg_unpack(&m, &a, buf_slice(&ones)) == -E_PROTO &&
		   strstr(log_cause(), "nested"),
	   "MP-02 10,000 levels are refused by depth");
	ok(msg_unpack(&m, &a, buf_slice(&wide)) == -E_PROTO,
	   "MP-02 24,000 wide levels are refused");
	memset(buf_reserve(&many, 600000), 0, 600000);
	many.n += 600000;
	ok(msg_unpack(&m, &a, buf_slice(&many)) == -E_PROTO &&
		   strstr(log_cause(), "values"),
	   "MP-02 600,000 values are refused by their sum");
	ok(!a.p && !a.zone, "MP-02 nothing was allocated for any of them");
	buf_release(&ones);
	buf_release(&wide);
	buf_release(&many);
	return NULL;
}

static void test_nested_bombs(void)
{
	pthread_attr_t attr;
	pthread_t t;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, SMALL_STACK);
	/* Checks are counted by one thread at a time. */
	rc = pthread_create(&t, &attr, nested_bombs, NULL);
	if (rc == 0)
		pthread_join(t, NULL);
	ok(rc == 0, "MP-02 a stack of 64 KiB");
	pthread_attr_destroy(&attr);
}

/* ---- what is not a message ---- */

static void test_strict(void)
{
	REFUSE("", "truncated");
	REFUSE("\x05", "without a number");
	REFUSE("\x90", "without a number");
	REFUSE("\x91\xa1\x41", "without a number");
	REFUSE("\x91\x7f", "unknown");
	REFUSE("\x91\xcd\x01\x18", "unknown");
	REFUSE("\x92\x18\x01", "fields");
	REFUSE("\x94\x18\x01\x01\x01", "fields");
	REFUSE("\x93\x18\x01\x01\x01", "after its end");
	REFUSE("\x93\x18\xc3\x01", "wave");
	REFUSE("\x93\x18\xff\x01", "wave");
	REFUSE("\x93\x18\xa1\x31\x01", "wave");
	REFUSE("\x93\x18\x90\x01", "wave");
	REFUSE("\x93\x18\xc0\x01", "type 0xc0");
	REFUSE("\x93\x18\xca\x3f\x80\x00\x00\x01", "type 0xca");
	REFUSE("\x93\x18\x80\x01", "type 0x80");
	REFUSE("\x93\x18\x01\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
	       "bucket: out of range");
	REFUSE("\x92\x12\xcd\x01\x00", "exit: out of range");
	ok(unpack(SLICE("\x93\x18\x01\xce\xff\xff\xff\xff")) == 0,
	   "ID_NONE is in range");
	ok(unpack(SLICE("\x92\x11\xcf\xff\xff\xff\xff\xff\xff\xff\xff")) == 0,
	   "2^64 - 1 is in range");
}

/* One message, one frame: [24, wave, bucket], [30, engine, cause]. */
static void test_shortest(void)
{
	REFUSE("\x93\xcc\x18\x01\x01", "shorter");
	REFUSE("\x93\x18\xcc\x7f\x01", "shorter");
	REFUSE("\x93\x18\xcd\x00\xff\x01", "shorter");
	REFUSE("\x93\x18\xce\x00\x00\xff\xff\x01", "shorter");
	REFUSE("\x93\x18\xcf\x00\x00\x00\x00\xff\xff\xff\xff\x01", "shorter");
	REFUSE("\x93\x18\xd0\x01\x01", "shorter");
	REFUSE("\x93\x18\xd0\xff\x01", "shorter");
	REFUSE("\x93\x18\xd1\xff\x80\x01", "shorter");
	REFUSE("\x93\x18\xd2\xff\xff\x80\x00\x01", "shorter");
	REFUSE("\x93\x18\xd3\xff\xff\xff\xff\x80\x00\x00\x00\x01", "shorter");
	REFUSE("\x93\x18\xd0\xdf\x01", "wave");
	REFUSE("\xdc\x00\x03\x18\x01\x01", "shorter");
	REFUSE("\xdd\x00\x00\x00\x03\x18\x01\x01", "shorter");
	REFUSE("\x93\x1e\x01\xd9\x01x", "shorter");
	REFUSE("\x93\x1e\x01\xda\x00\x01x", "shorter");
	ok(unpack(SLICE("\x93\x18\xcc\x80\xcd\x01\x00")) == 0,
	   "the shortest forms");
}

/* `excluded engine=1` is [31, id]; `exclude` carries text: [30, id, cause]. */
static void text(const char *s, size_t n, bool good)
{
	const unsigned char head[] = { 0xda, (unsigned char)(n >> 8),
				       (unsigned char)n };
	const unsigned char fix = (unsigned char)(0xa0 | n), str8 = 0xd9;
	struct buf b = { 0 };

	buf_addf(&b, "\x93\x1e\x01");
	if (n < 32)
		buf_add(&b, &fix, 1);
	else if (n < 256)
		buf_add(&b, &str8, 1);
	else
		buf_add(&b, head, 2);
	if (n >= 32)
		buf_add(&b, head + 2, 1);
	buf_add(&b, s, n);
	eq_i64(unpack(buf_slice(&b)), good ? 0 : -E_PROTO,
	       good ? "text" : "no text");
	buf_release(&b);
}
#define TEXT(lit, good) text((lit), sizeof(lit) - 1, (good))

static void test_text(void)
{
	struct buf long_text = repeat("x", 1, 2049);

	TEXT("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8a", true);
	TEXT("\xee\x80\x80 \xf4\x8f\xbf\xbf \xed\x9f\xbf", true);
	TEXT("12345678\x1f", false);
	TEXT("1234567\x1f"
	     "9",
	     false);
	TEXT("1234567\x7f"
	     "9",
	     false);
	TEXT("\x7f"
	     "2345678",
	     false);
	TEXT("~~~~~~~~~~~~~~~~", true);
	TEXT("line\n", false);
	TEXT("nul\0", false);
	TEXT("del\x7f", false);
	TEXT("c1 \xc2\x9b", false);
	TEXT("\xc0\xaf", false); /* overlong */
	TEXT("\xe0\x9f\xbf", false);
	TEXT("\xf0\x8f\xbf\xbf", false);
	TEXT("\xed\xa0\x80", false);	 /* surrogate */
	TEXT("\xf4\x90\x80\x80", false); /* above U+10FFFF */
	TEXT("\xf5\x80\x80\x80", false);
	TEXT("\x80", false);
	TEXT("cut \xe2\x82", false);
	text(long_text.p, 2048, true);
	text(long_text.p, 2049, false);
	buf_release(&long_text);
}

/* What said, as the cause of a refusal. */
static void caused(const char *said, size_t n, const char *arrives,
		   const char *name)
{
	struct buf frame = { 0 };
	struct msg m = { .type = M_refused }, got;

	m.refused.cause = (struct slice){ said, n };
	ok(msg_pack(&frame, &m) == 0, "packed: %s", name);
	ok(msg_unpack(&got, &arena, buf_slice(&frame)) == 0, "read: %s", name);
	ok(slice_eq(got.refused.cause, slice_of(arrives)), "%s", name);
	buf_release(&frame);
}

static void test_lines(void)
{
	struct buf most = repeat("n", 1, 2047), cut = repeat("n", 1, 2047);

	caused("a\nb\xff", 4, "a?b?", "what is no text is a question mark");
	caused("", 0, "", "nothing is text");
	buf_add(&most, "\xe2\x82\xac", 3);
	caused(most.p, most.n, buf_cstr(&cut), "cut between characters");
	buf_release(&most);
	buf_release(&cut);
}

/* ---- what is too large to send ---- */

static void test_pack_limits(void)
{
	struct buf name = repeat("n", 1, 1025), out = { 0 };
	struct m_part *parts = calloc(MSG_PARTS_MAX + 1, sizeof *parts);
	struct msg m = { .type = M_bucket,
			 .bucket.parts = { parts, MSG_PARTS_MAX } };

	eq_i64(msg_pack(&out, &m), 0, "4096 small parts fit");
	eq_i64(unpack(buf_slice(&out)), 0, "and come back");
	buf_clear(&out);
	buf_add(&out, "x", 1);
	m.bucket.parts.n++;
	eq_i64(msg_pack(&out, &m), -E_PROTO, "4097 do not");
	m.bucket.parts.n = 1;
	parts[0].name = buf_slice(&name);
	eq_i64(msg_pack(&out, &m), -E_PROTO, "a name of 1025 bytes");
	for (size_t i = 0; i < MSG_PARTS_MAX; i++)
		parts[i].name = (struct slice){ name.p, 1024 };
	m.bucket.parts.n = MSG_PARTS_MAX;
	eq_i64(msg_pack(&out, &m), -E_PROTO, "more than a frame");
	eq_u64(out.n, 1, "nothing was appended by any of them");
	free(parts);
	buf_release(&name);
	buf_release(&out);
}

static void test_pages(void)
{
	struct msg m = { .type = M_excluded, .excluded.engine = 3 };
	struct buf b = { 0 };

	msg_json(&b, &m);
	eq_str(buf_cstr(&b), "{\"msg\":\"excluded\",\"engine\":3}", "JSON");
	buf_clear(&b);
	msg_schema(&b);
	ok(strstr(buf_cstr(&b), "\"const\":\"excluded\""), "schema");
	buf_clear(&b);
	msg_reference(&b);
	ok(strstr(buf_cstr(&b), "### 31 excluded"), "reference");
	buf_release(&b);
}

static bool strange(struct slice frame, uint64_t *seq)
{
	struct msg m;

	return msg_unpack(&m, &arena, frame) < 0 &&
	       msg_is_strange(&arena, frame, seq);
}

static void test_strange(void)
{
	uint64_t seq = 0;

	ok(strange(SLICE("\x93\x30\x05\x01"), &seq),
	   "a probe of another build");
	eq_u64(seq, 5, "its seq");
	ok(!strange(SLICE("\x93\x01\x05\x01"), &seq), "what is no request");
	ok(!strange(SLICE("\x91\x30"), &seq), "what has no seq");
	ok(!strange(SLICE("\xc1"), &seq), "what is no value");
	ok(!strange(SLICE("\x93\x30\x05"), &seq), "what is not whole");
}

int main(int argc, char **argv)
{
	bool write = argc > 1 && strcmp(argv[1], "--write") == 0;

	if (argc > 1 && strcmp(argv[1], "--records") == 0)
		return print_records();
	log_quiet_thread(1);
	test_golden(write);
	if (write)
		return tap_done();
	test_table();
	test_all();
	test_length_bombs();
	test_nested_bombs();
	test_strict();
	test_strange();
	test_shortest();
	test_text();
	test_lines();
	test_pack_limits();
	test_pages();
	msg_arena_release(&arena);
	return tap_done();
}
