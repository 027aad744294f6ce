#include "common/err.h"
#include "common/jsonsax.h"
#include "tests/tap.h"

#include <string.h>

#define STRING_MAX 16

/* What the reader reports, as text: one letter an event. */
struct story {
	struct buf out;
	int refuse_at; /* events until the callback itself fails; 0: never */
};

static int tell(void *ctx, enum json_event ev, struct slice text)
{
	static const char letter[] = "{}[]ksntfz";
	struct story *s = ctx;

	if (s->refuse_at && --s->refuse_at == 0)
		return -E_CONFIG;
	buf_add(&s->out, &letter[ev], 1);
	if (ev == JSON_KEY || ev == JSON_STRING || ev == JSON_NUMBER)
		buf_addf(&s->out, "<%.*s>", SLICE_ARG(text));
	return 0;
}

static bool is_python;

/* Reads text in chunks of n; the story must be want, or the error err. */
static bool reads(const char *text, size_t len, size_t n, const char *want,
		  const char *err)
{
	struct story s = { { 0 }, 0 };
	struct json j;
	int rc = 0;
	bool good;

	json_begin(&j, STRING_MAX, tell, &s);
	if (is_python)
		json_allow_python(&j);
	for (size_t at = 0; at < len && rc == 0; at += n)
		rc = json_feed(&j, text + at, n < len - at ? n : len - at);
	if (rc == 0)
		rc = json_end(&j);
	if (err)
		good = rc == -E_DATA && strstr(json_error(&j), err);
	else
		good = rc == 0 && strcmp(buf_cstr(&s.out), want) == 0;
	if (!good)
		printf("# %s -> %d %s %s\n", text, rc, buf_cstr(&s.out),
		       json_error(&j) ? json_error(&j) : "");
	json_release(&j);
	buf_release(&s.out);
	return good;
}

static bool reads_in_any_chunk(const char *text, size_t len, const char *want,
			       const char *err)
{
	for (size_t n = 1; n < 4; n++)
		if (!reads(text, len, n, want, err))
			return false;
	return reads(text, len, len + 1, want, err);
}

#define GOOD(text, want)                                                       \
	ok(reads_in_any_chunk(text, sizeof(text) - 1, want, NULL), "takes %s", \
	   #text)
#define BAD(text, err)                                            \
	ok(reads_in_any_chunk(text, sizeof(text) - 1, NULL, err), \
	   "refuses %s: %s", #text, err)

static void test_takes(void)
{
	GOOD("{}", "{}");
	GOOD(" [ ] \n\t\r ", "[]");
	GOOD("{\"a\":[1,{\"b\":\"c\"},true,false,null]}",
	     "{k<a>[n<1>{k<b>s<c>}tfz]}");
	GOOD("0", "n<0>");
	GOOD("[-0,10,-1.50,2e9,3E+1,4.5e-10]",
	     "[n<-0>n<10>n<-1.50>n<2e9>n<3E+1>n<4.5e-10>]");
	GOOD("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "s<\"\\/\b\f\n\r\t>");
	GOOD("\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"",
	     "s<A\xc3\xa9\xe2\x82"
	     "\xac\xf0\x9f\x98\x80>");
	GOOD("\"\x7f\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\"",
	     "s<\x7f\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf>");
	GOOD("\"0123456789abcdef\"", "s<0123456789abcdef>");
}

static void test_refuses_syntax(void)
{
	BAD("", "ends too early");
	BAD("{", "ends too early");
	BAD("[1", "ends too early");
	BAD("\"a", "ends too early");
	BAD("tru", "ends too early");
	BAD("-", "ends too early");
	BAD("1.", "ends too early");
	BAD("{} {}", "follows the end");
	BAD("1 2", "follows the end");
	BAD("{}\0", "NUL byte");
	BAD("{\"a\" 1}", "':'");
	BAD("{\"a\":1,}", "a key");
	BAD("{a:1}", "a key");
	BAD("[1,]", "a value");
	BAD("[1 2]", "',' or ']'");
	BAD("{\"a\":1]", "',' or '}'");
	BAD("[}", "a value");
	BAD("[01]", "',' or ']'");
	BAD("[+1]", "a value");
	BAD("[.5]", "a value");
	BAD("[1.e1]", "a digit");
	BAD("[1e]", "a digit");
	BAD("[-a]", "a digit");
	BAD("[NaN]", "a value");
	BAD("[nulL]", "a value");
	BAD("\xef\xbb\xbf{}", "a value");
	BAD("[1]//", "follows the end");
}

static void test_refuses_text(void)
{
	BAD("\"a\nb\"", "control character");
	BAD("\"a\0b\"", "NUL byte");
	BAD("\"\\x\"", "unknown escape");
	BAD("\"\\u12g4\"", "hexadecimal");
	BAD("\"\\ud800\"", "surrogate");
	BAD("\"\\udc00\"", "surrogate");
	BAD("\"\\ud800\\u0041\"", "surrogate");
	BAD("\"\\ud800\\n\"", "surrogate");
	BAD("\"\x80\"", "UTF-8");
	BAD("\"\xc0\x80\"", "UTF-8");
	BAD("\"\xe0\x9f\xbf\"", "UTF-8");
	BAD("\"\xed\xa0\x80\"", "UTF-8");
	BAD("\"\xf4\x90\x80\x80\"", "UTF-8");
	BAD("\"\xf5\"", "UTF-8");
	BAD("\"\xc3\"", "UTF-8");
	BAD("\"0123456789abcdefg\"", "longer than the limit");
	BAD("[01234567890123456789]", "',' or ']'");
	BAD("[12345678901234567]", "longer than the limit");
}

/* What json.dumps() makes of floats, and nothing like it. */
static void test_python(void)
{
	is_python = true;
	GOOD("[NaN,Infinity,-Infinity,-1]",
	     "[n<NaN>n<Infinity>n<-Infinity>n<-1>]");
	GOOD("NaN", "n<NaN>");
	GOOD("{\"a\":Infinity }", "{k<a>n<Infinity>}");
	BAD("[nan]", "a value");
	BAD("[-NaN]", "a digit");
	BAD("[+Infinity]", "a value");
	BAD("[Inf]", "a value");
	BAD("Infinit", "ends too early");
	BAD("[Infinity1]", "',' or ']'");
	is_python = false;
	BAD("[-Infinity]", "a digit");
	BAD("[Infinity]", "a value");
}

static void test_depth(void)
{
	char open[JSON_DEPTH_MAX + 2], want[2 * JSON_DEPTH_MAX + 1];

	memset(open, '[', sizeof open);
	ok(reads(open, JSON_DEPTH_MAX + 1, 7, NULL, "too deeply"),
	   "depth is bounded");
	memset(want, '[', JSON_DEPTH_MAX);
	memset(want + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	want[2 * JSON_DEPTH_MAX] = '\0';
	ok(reads(want, 2 * JSON_DEPTH_MAX, 7, want, NULL),
	   "the limit itself is reached");
}

static void test_error_place(void)
{
	struct story s = { { 0 }, 2 };
	struct json j;

	json_begin(&j, STRING_MAX, tell, &s);
	ok(json_feed(&j, "{ ", 2) == 0 && json_feed(&j, " \"a\":x", 6) < 0,
	   "the callback stops the reader");
	ok(json_error(&j) == NULL && json_feed(&j, "1", 1) == -E_CONFIG &&
		   json_end(&j) == -E_CONFIG,
	   "its error stays");
	json_release(&j);
	s.refuse_at = 0;
	json_begin(&j, STRING_MAX, tell, &s);
	ok(json_feed(&j, "{ ", 2) == 0 &&
		   json_feed(&j, " \"a\":x", 6) == -E_DATA &&
		   json_offset(&j) == 7,
	   "the offset is the bad byte's");
	json_release(&j);
	buf_release(&s.out);
}

static bool uint_is(const char *s, uint64_t max, int rc, uint64_t want)
{
	uint64_t v = 99;

	return json_uint(slice_of(s), max, &v) == rc && v == (rc ? 99 : want);
}

static void test_uint(void)
{
	ok(uint_is("0", 0, 0, 0), "0");
	ok(uint_is("18446744073709551615", UINT64_MAX, 0, UINT64_MAX),
	   "2^64 - 1");
	ok(uint_is("18446744073709551616", UINT64_MAX, -E_DATA, 0), "2^64");
	ok(uint_is("99999999999999999999", UINT64_MAX, -E_DATA, 0), "20 nines");
	ok(uint_is("8", 7, -E_DATA, 0), "above max");
	ok(uint_is("-0", 7, -E_DATA, 0), "-0");
	ok(uint_is("1.0", 7, -E_DATA, 0), "1.0");
	ok(uint_is("1e0", 7, -E_DATA, 0), "1e0");
	ok(uint_is("", 7, -E_DATA, 0), "empty");
}

int main(void)
{
	test_takes();
	test_refuses_syntax();
	test_refuses_text();
	test_python();
	test_depth();
	test_error_place();
	test_uint();
	return tap_done();
}
