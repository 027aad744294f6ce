#include "common/jsoncopy.h"
#include "common/err.h"
#include "tests/tap.h"

static struct buf out;
static struct jsoncopy copy;

static int pass(void *ctx, enum json_event ev, struct slice text)
{
	(void)ctx;
	jsoncopy_event(&copy, ev, text);
	return 0;
}

static void is_copy(const char *in, const char *want)
{
	struct json j;

	buf_clear(&out);
	copy = (struct jsoncopy){ .out = &out };
	json_begin(&j, 100, pass, NULL);
	ok(json_feed(&j, in, strlen(in)) == 0 && json_end(&j) == 0, "%s", in);
	eq_str(buf_cstr(&out), want, "its copy");
	json_release(&j);
}

static void test_added(void)
{
	buf_clear(&out);
	copy = (struct jsoncopy){ .out = &out };
	jsoncopy_event(&copy, JSON_OBJECT, SLICE(""));
	jsoncopy_key(&copy, "a\n");
	jsoncopy_str(&copy, "b\"");
	jsoncopy_key(&copy, "n");
	jsoncopy_u64(&copy, UINT64_MAX);
	jsoncopy_event(&copy, JSON_OBJECT_END, SLICE(""));
	eq_str(buf_cstr(&out),
	       "{\n  \"a\\n\": \"b\\\"\",\n  \"n\": 18446744073709551615\n}\n",
	       "members of our own");
}

int main(void)
{
	is_copy("{}", "{}\n");
	is_copy(" [ ] ", "[]\n");
	is_copy("{\"a\":{},\"b\":[],\"c\":{\"d\":[{}]},\"e\":1}",
		"{\n  \"a\": {},\n  \"b\": [],\n  \"c\": {\n    \"d\": [\n"
		"      {}\n    ]\n  },\n  \"e\": 1\n}\n");
	is_copy("[1e-06,-0.10,1E400,true,false,null,\"\"]",
		"[\n  1e-06,\n  -0.10,\n  1E400,\n  true,\n  false,\n"
		"  null,\n  \"\"\n]\n");
	is_copy("[\"\\u0000\\u00e9\\\\\\/\"]",
		"[\n  \"\\u0000\xc3\xa9\\\\/\"\n]\n");
	is_copy("{\"a\":\"b\",\"a\":\"c\"}",
		"{\n  \"a\": \"b\",\n  \"a\": \"c\"\n}\n");
	test_added();
	buf_release(&out);
	return tap_done();
}
