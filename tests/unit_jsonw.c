#include "common/err.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "tests/tap.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct buf out;
static struct jsonw j;

static void begin(size_t max)
{
	buf_clear(&out);
	jsonw_begin(&j, &out, max);
}

static void is_text(struct slice text, const char *want, const char *name)
{
	begin(JSONW_LINE_MAX);
	jsonw_slice(&j, NULL, text);
	jsonw_finish(&j);
	eq_str(buf_cstr(&out), want, name);
}

static void test_values(void)
{
	static const uint8_t digest[] = { 0x00, 0x9f, 0xa0, 0xff };

	begin(JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_str(&j, "event", "opened");
	jsonw_u64(&j, "max", UINT64_MAX);
	jsonw_i64(&j, "min", INT64_MIN);
	jsonw_u64(&j, "zero", 0);
	jsonw_bool(&j, "yes", true);
	jsonw_bool(&j, "no", false);
	jsonw_null(&j, "none");
	jsonw_hex(&j, "digest", digest, sizeof digest);
	jsonw_array(&j, "list");
	jsonw_str(&j, NULL, "a");
	jsonw_object(&j, NULL);
	jsonw_end(&j);
	jsonw_array(&j, NULL);
	jsonw_end(&j);
	jsonw_end(&j);
	jsonw_i64(&j, "last", -1);
	jsonw_end(&j);
	eq_i64(jsonw_finish(&j), 0, "finish");
	eq_str(buf_cstr(&out),
	       "{\"event\":\"opened\",\"max\":18446744073709551615,"
	       "\"min\":-9223372036854775808,\"zero\":0,\"yes\":true,"
	       "\"no\":false,\"none\":null,\"digest\":\"009fa0ff\","
	       "\"list\":[\"a\",{},[]],\"last\":-1}\n",
	       "every kind of value");
}

#define BAD "\xef\xbf\xbd"

static void test_text(void)
{
	is_text(SLICE(""), "\"\"\n", "nothing");
	is_text(SLICE("\"\\/\b\f\n\r\t\x01\x1f\x7f"),
		"\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"\n",
		"escapes");
	is_text(SLICE("a\0b"), "\"a\\u0000b\"\n", "a zero byte");
	is_text(SLICE("\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x8c\x8a"),
		"\"\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x8c\x8a\"\n", "UTF-8");
	is_text(SLICE("\xf4\x8f\xbf\xbf\xed\x9f\xbf"),
		"\"\xf4\x8f\xbf\xbf\xed\x9f\xbf\"\n", "the edges of UTF-8");
	is_text(SLICE("a\xff"
		      "b\x80"),
		"\"a" BAD "b" BAD "\"\n", "stray bytes");
	is_text(SLICE("\xc0\xaf"), "\"" BAD BAD "\"\n", "overlong");
	is_text(SLICE("\xed\xa0\x80"), "\"" BAD BAD BAD "\"\n", "surrogate");
	is_text(SLICE("\xf4\x90\x80\x80"), "\"" BAD BAD BAD BAD "\"\n",
		"above U+10FFFF");
	is_text(SLICE("\xe6\xbc"), "\"" BAD BAD "\"\n", "cut short");
	is_text(SLICE("\xc3\""), "\"" BAD "\\\"\"\n",
		"a quote is not swallowed by what is cut short");
}

static void test_bound(void)
{
	buf_clear(&out);
	buf_add(&out, "before", 6);
	jsonw_begin(&j, &out, 5);
	jsonw_str(&j, NULL, "ab");
	eq_i64(jsonw_finish(&j), 0, "a line of exactly the limit");
	eq_str(buf_cstr(&out), "before\"ab\"\n", "is whole");
	jsonw_begin(&j, &out, 5);
	jsonw_str(&j, NULL, "abc");
	eq_i64(jsonw_finish(&j), -E_DATA, "one byte more");
	eq_str(buf_cstr(&out), "before\"ab\"\n", "is taken back");
	jsonw_begin(&j, &out, 3);
	jsonw_object(&j, NULL);
	for (int i = 0; i < 100; i++)
		jsonw_u64(&j, "k", 1);
	jsonw_end(&j);
	eq_i64(jsonw_finish(&j), -E_DATA, "far too long");
	eq_u64(out.n, 11, "nothing is added");
}

static void too_deep(void)
{
	for (int i = 0; i <= JSONW_DEPTH_MAX; i++)
		jsonw_array(&j, NULL);
}

static void no_key(void)
{
	jsonw_object(&j, NULL);
	jsonw_u64(&j, NULL, 1);
}

static void key_in_array(void)
{
	jsonw_array(&j, NULL);
	jsonw_u64(&j, "k", 1);
}

static void two_values(void)
{
	jsonw_u64(&j, NULL, 1);
	jsonw_u64(&j, NULL, 2);
}

static void not_closed(void)
{
	jsonw_object(&j, NULL);
	jsonw_finish(&j);
}

/* BUG() aborts: in a child, with its line thrown away. */
static void is_bug(void (*fn)(void), const char *name)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		close(STDERR_FILENO);
		begin(JSONW_LINE_MAX);
		fn();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "BUG: %s", name);
}

int main(void)
{
	log_quiet_thread(1);
	test_values();
	test_text();
	test_bound();
	is_bug(too_deep, "too deep");
	is_bug(no_key, "a member without key");
	is_bug(key_in_array, "a key in an array");
	is_bug(two_values, "two values");
	is_bug(not_closed, "not closed");
	buf_release(&out);
	return tap_done();
}
