#include "common/err.h"
#include "common/fleet.h"
#include "common/log.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>

static bool refused(const char *text, const char *want)
{
	struct fleet f;
	int rc = fleet_parse(&f, "f", slice_of(text));
	bool good = rc == -E_CONFIG && strcmp(log_cause(), want) == 0;

	if (!good)
		printf("# rc %d, cause: %s\n#     want: %s\n", rc, log_cause(),
		       want);
	if (rc == 0)
		fleet_release(&f);
	return good;
}

#define REFUSED(text, want) ok(refused(text, want), "refuses %s", want)

#define E0 "- name: a\n  workers: [{endpoint: \"ipc:///a\"}]\n"

static void test_whole(void)
{
	static const char text[] =
		"# comment\n"
		"model: qwen3-0.6b\n"
		"engines:\n"
		"  - name: rollout-0\n"
		"    workers: [{endpoint: \"ipc:///run/weir/rollout-0\"},\n"
		"              {endpoint: ipc:///run/weir/rollout-0},\n"
		"              {endpoint: 'ipc:///run/weir/b'}]\n"
		"  - name: rollout-1\n"
		"    kind: sglang\n"
		"    url: http://10.0.0.7:30000\n"
		"    workers: [{endpoint: \"ipc:///run/weir/rollout-1\"}]\n"
		"  - {name: rollout-2, kind: vllm, url: 'http://[::1]:8000'}\n"
		"  - {name: p, kind: sglang, url: 'http://p', pull: /l}\n";
	struct fleet f;

	if (!ok(fleet_parse(&f, "f", SLICE(text)) == 0, "a whole fleet")) {
		printf("# %s\n", log_cause());
		return;
	}
	eq_str(f.model, "qwen3-0.6b", "model");
	eq_u64(f.n, 4, "engines");
	eq_u64(f.engine[0].nworkers, 3, "workers");
	eq_str(f.engine[0].endpoint[2], "ipc:///run/weir/b", "endpoint");
	ok(f.engine[0].kind == FLEET_NATIVE && !f.engine[0].url, "native");
	ok(f.engine[1].kind == FLEET_SGLANG, "sglang");
	eq_str(f.engine[2].url, "http://[::1]:8000", "url alone");
	eq_str(f.engine[3].pull, "/l", "pull");
	ok(fleet_find(&f, SLICE("rollout-2")) == &f.engine[2] &&
		   !fleet_find(&f, SLICE("rollout")),
	   "find");
	fleet_release(&f);
}

static void test_no_engines(void)
{
	REFUSED("", "f: no engines");
	REFUSED("# nothing\n", "f: no engines");
	REFUSED("engines:\n", "f: no engines");
	REFUSED("engines: []\n", "f: no engines");
	REFUSED("model: m\n", "f: no engines");
}

static void test_strict(void)
{
	REFUSED("engines:\n" E0 "moddel: x\n", "f:4:1: unknown key \"moddel\"");
	REFUSED("engines:\n" E0 "engines: []\n",
		"f:4:1: key \"engines\" twice");
	REFUSED("engines:\n- name: a\n  name: b\n",
		"f:3:3: key \"name\" twice");
	REFUSED("engines:\n- name: a\n  gpu: 1\n",
		"f:3:3: unknown key \"gpu\"");
	REFUSED("engines:\n- <<: {name: a}\n", "f:2:3: unknown key \"<<\"");
	REFUSED("engines: 3\n",
		"f:1:10: engines: expected a list, found a single value");
	REFUSED("engines: [x]\n",
		"f:1:11: engine: expected a mapping, found a single value");
	REFUSED("engines:\n- name: 7\n",
		"f:2:9: name: expected a string, found a number (quote it)");
	REFUSED("engines:\n- name: true\n",
		"f:2:9: name: expected a string, found true or false");
	REFUSED("engines:\n- name: [a]\n",
		"f:2:9: name: expected a string, found a list");
	REFUSED("- a\n", "f:1:1: document: expected a mapping, found a list");
	REFUSED("? [a]\n: b\n", "f:1:3: mapping: expected a key, found a list");
	REFUSED("engines:\n" E0 "---\nengines: []\n",
		"f:4:1: a second document");
}

static void test_syntax(void)
{
	struct fleet f;

	ok(fleet_parse(&f, "f", SLICE("engines: [\n  {name: a\n")) ==
			   -E_CONFIG &&
		   strncmp(log_cause(), "f:", 2) == 0,
	   "refuses broken YAML: %s", log_cause());
	ok(fleet_parse(&f, "f", SLICE("model: b\n\tc: d\n")) == -E_CONFIG &&
		   strncmp(log_cause(), "f:1:8: ", 7) == 0,
	   "refuses a tab, with the place: %s", log_cause());
	ok(fleet_parse(&f, "f", SLICE("a: \0")) == -E_CONFIG, "NUL");
	REFUSED("model: \xff\xfe\n",
		"f: byte 7: not UTF-8, or a control character");
	REFUSED("2\n%ngines>\xed\xdf",
		"f: byte 11: not UTF-8, or a control character");
	REFUSED("%YAML 1.1\n---\n", "f: byte 0: directives are not allowed");
}

static void test_bombs(void)
{
	char deep[4096];
	struct fleet f;

	REFUSED("model: &m x\n", "f:1:11: anchors are not allowed");
	REFUSED("model: *m\n", "f:1:9: aliases are not allowed");
	REFUSED("model: !!str x\n", "f:1:14: tags are not allowed");
	REFUSED("engines: !x []\n", "f:1:13: tags are not allowed");
	memset(deep, '[', sizeof deep - 1);
	deep[sizeof deep - 1] = '\0';
	ok(fleet_parse(&f, "f", slice_of(deep)) == -E_CONFIG, "nesting");
}

static void test_engines(void)
{
	REFUSED("engines:\n" E0
		"- name: a\n  workers: [{endpoint: ipc:///b}]\n",
		"f: engine name \"a\" twice, as number 1 and number 2");
	REFUSED("engines:\n" E0
		"- name: b\n  workers: [{endpoint: ipc:///a}]\n",
		"f: engines \"a\" and \"b\" name the same endpoint ipc:///a");
	REFUSED("engines:\n- name: a\n",
		"f:2:3: engine \"a\": kind native needs workers");
	REFUSED("engines:\n- name: a\n  workers: []\n",
		"f:2:3: engine \"a\": kind native needs workers");
	REFUSED("engines:\n- kind: vllm\n", "f:2:3: engine without a name");
	REFUSED("engines:\n- name: a\n  kind: vllm\n",
		"f:2:3: engine \"a\": kind vllm needs a url");
	REFUSED("engines:\n- name: a\n  url: http://h\n",
		"f:2:3: engine \"a\": url is for the kinds sglang and vllm");
	REFUSED("engines:\n- name: a\n  kind: vllm\n  url: http://h\n  pull: "
		"/l\n",
		"f:2:3: engine \"a\": pull is for the kind sglang with a url "
		"alone");
	REFUSED("engines:\n- name: a\n  kind: sglang\n  url: http://h\n"
		"  pull: l\n",
		"f:5:9: pull \"l\": expected an absolute path");
	REFUSED("engines:\n- name: a\n  kind: trt\n",
		"f:3:9: kind: expected native, sglang or vllm, found \"trt\"");
	REFUSED("engines:\n- name: a/b\n",
		"f:2:9: name: expected 1 to 64 of A-Z a-z 0-9 . _ -, found "
		"\"a/b\"");
	REFUSED("engines:\n- name: \"\"\n",
		"f:2:10: name: expected 1 to 64 of A-Z a-z 0-9 . _ -, found "
		"\"\"");
	REFUSED("engines:\n- name: a\n  url: ftp://h\n",
		"f:3:8: url \"ftp://h\": expected http://HOST:PORT or "
		"https://HOST:PORT");
	REFUSED("engines:\n- name: a\n  url: http://me:secret@h\n",
		"f:3:8: url \"http://me:secret@h\": a password in it would be "
		"shown: use --api-key-file");
	REFUSED("engines:\n- name: a\n  url: http://h?a=b\n",
		"f:3:8: url \"http://h?a=b\": a path is appended to it: no ? "
		"and no # in it");
}

static bool spec_refused(const char *spec, const char *want)
{
	struct fleet f = { 0 };
	int rc = fleet_add_endpoint(&f, spec);

	fleet_release(&f);
	return rc == -E_USAGE && strstr(log_cause(), want) &&
	       strstr(log_cause(), spec);
}

/* It is quoted by its escapes. */
static bool text_refused(const char *spec, const char *want)
{
	struct fleet f = { 0 };
	int rc = fleet_add_endpoint(&f, spec);

	fleet_release(&f);
	return rc == -E_USAGE && strstr(log_cause(), want);
}

static void test_endpoints(void)
{
	char longest[] = "ipc:///23456789.123456789.123456789.123456789."
			 "123456789.123456789.123456789.123456789.123456789."
			 "123456789.1234567";
	struct fleet f = { 0 };

	eq_u64(strlen(longest), 6 + FLEET_IPC_PATH_MAX, "(length)");
	ok(fleet_add_endpoint(&f, longest) == 0, "the longest path");
	ok(fleet_add_endpoint(&f, "native=ipc:///a=b") == 0 &&
		   fleet_add_endpoint(&f, "ipc:///c=d") == 0 &&
		   fleet_add_endpoint(&f, "sglang=http://h:1") == 0,
	   "[KIND=]ENDPOINT");
	eq_str(f.engine[1].name, "engine-1", "name");
	eq_str(f.engine[1].endpoint[0], "ipc:///a=b", "kind split off");
	eq_str(f.engine[2].endpoint[0], "ipc:///c=d", "no kind to split");
	ok(f.engine[3].kind == FLEET_SGLANG && f.engine[3].nworkers == 0,
	   "HTTP engines take a url");
	ok(fleet_check(&f, "--engine") == 0, "they are a fleet");
	fleet_release(&f);
	ok(spec_refused("ipc:///123456789.123456789.123456789.123456789."
			"123456789.123456789.123456789.123456789.123456789."
			"123456789.12345678",
			"107"),
	   "a path too long");
	ok(spec_refused("tcp://h:1", "does not have yet"), "tcp");
	ok(spec_refused("ipc://a", "ipc:///PATH"), "a relative path");
	ok(spec_refused("ipc:///", "ipc:///PATH"), "no path");
	ok(spec_refused("", "ipc:///PATH"), "nothing");
	ok(spec_refused("ipc:///a b", "white space"), "white space");
	ok(text_refused("ipc:///a\x01", "control"), "a control character");
	ok(text_refused("ipc:///caf\xe9", "not UTF-8"), "not UTF-8");
	ok(text_refused("vllm=http://caf\xe9", "not UTF-8"), "nor in a URL");
	ok(spec_refused("foo=ipc:///a", "kind"), "unknown kind");
	ok(spec_refused("vllm=ipc:///a", "http://"), "no url");
}

static void test_large(void)
{
	struct buf b = { 0 };
	struct fleet f;

	buf_addf(&b, "engines:\n");
	for (unsigned i = 0; i < 5000; i++)
		buf_addf(&b,
			 "- {name: e%u, workers: [{endpoint: ipc:///e%u}]}\n",
			 i, i);
	ok(fleet_parse(&f, "f", buf_slice(&b)) == 0 && f.n == 5000,
	   "5000 engines");
	fleet_release(&f);
	buf_release(&b);
}

int main(void)
{
	log_quiet_thread(1);
	test_whole();
	test_no_engines();
	test_strict();
	test_syntax();
	test_bombs();
	test_engines();
	test_endpoints();
	test_large();
	return tap_done();
}
