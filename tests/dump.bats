#!/usr/bin/env bats
# shellcheck disable=SC2154 # stderr: set by run
# weir-dump: records, lines and runs as JSON; its pages.

bats_require_minimum_version 1.5.0
load helpers

# A run directory as stages leave it.
make_run() {
	mkdir -m 0700 "$T/run/r"
	printf '{"event":"opened"}\n{"event":"granted","wave":0}\n' \
		>"$T/run/r/events"
}

@test "every message as one JSON object a line, as the schema says" {
	"$BUILD/tests/unit_msg" --records >"$T/rec"
	weir-dump "$T/rec" >"$T/lines"
	weir-dump --schema >"$T/schema"
	python3 - "$T/schema" "$T/lines" <<-'PY'
	import json, re, sys
	schema = json.load(open(sys.argv[1]))
	defs = schema["$defs"]
	names = {"object": dict, "array": list, "string": str, "integer": int,
	         "boolean": bool}

	def check(v, s):
	    if "$ref" in s:
	        s = defs[s["$ref"].rsplit("/", 1)[1]]
	    if "const" in s:
	        assert v == s["const"], (v, s)
	        return
	    assert type(v) is names[s["type"]], (v, s)
	    if isinstance(v, dict):
	        assert sorted(v) == sorted(s["required"]), (v, s)
	        for k in v:
	            check(v[k], s["properties"][k])
	    elif isinstance(v, list):
	        assert len(v) <= s["maxItems"]
	        for e in v:
	            check(e, s["items"])
	    elif isinstance(v, str):
	        assert len(v) <= s.get("maxLength", 32)
	        assert re.fullmatch(s.get("pattern", ".*"), v)
	    elif type(v) is int:
	        assert s.get("minimum", v) <= v <= s.get("maximum", v), (v, s)

	by_name = {d["properties"]["msg"]["const"]: d for d in defs.values()
	           if "msg" in d["properties"]}
	seen = [json.loads(line) for line in open(sys.argv[2])]
	for m in seen:
	    check(m, by_name.pop(m["msg"]))
	assert not by_name and len(seen) == len(schema["oneOf"]), by_name
	PY
}

@test "a torn file: what came before is shown, the tear is named" {
	"$BUILD/tests/unit_msg" --records >"$T/rec"
	head -c -1 "$T/rec" >"$T/torn"
	run --separate-stderr weir-dump "$T/torn"
	assert_equal "$status" 65
	assert_equal "${#stderr_lines[@]}" 1
	[[ "$stderr" == *"$T/torn: record at byte "*torn* ]]
	assert_equal "${#lines[@]}" \
		$(($(weir-dump "$T/rec" | wc -l) - 1))
}

@test "what is neither records nor lines" {
	echo hello >"$T/text"
	run --separate-stderr weir-dump "$T/text"
	one_line_error 65 "$T/text"
	run --separate-stderr weir-dump "$T/none"
	one_line_error 66 "$T/none"
	mkfifo "$T/fifo"
	run --separate-stderr weir-dump "$T/fifo"
	one_line_error 65 "$T/fifo"
	run --separate-stderr weir-dump
	one_line_error 64 FILE
	: >"$T/empty"
	run --separate-stderr weir-dump "$T/empty"
	assert_success
	assert_output ""
}

# given FILE: by a pipe
given() { run --separate-stderr bash -c 'cat "$1" | weir-dump -' - "$1"; }

@test "a filter: records and lines from standard input" {
	"$BUILD/tests/unit_msg" --records >"$T/rec"
	given "$T/rec"
	assert_success
	assert_equal "$output" "$(weir-dump "$T/rec")"
	run --separate-stderr weir-dump - <"$T/rec"
	assert_equal "$output" "$(weir-dump "$T/rec")"
	head -c -1 "$T/rec" >"$T/torn"
	given "$T/torn"
	assert_equal "$status" 65
	[[ "$stderr" == *"standard input: record at byte "*torn* ]]
	echo '{}' >"$T/lines"
	given "$T/lines"
	assert_success
	assert_output '{}'
	printf '{"a":"%0100000d"}\n{"b":1}\n' 0 >"$T/lines"
	given "$T/lines"
	assert_success
	assert_equal "$output" "$(cat "$T/lines")"
	given /dev/null
	assert_success
	assert_output ""
	echo hello >"$T/text"
	given "$T/text"
	one_line_error 65 "standard input: neither"
	run --separate-stderr weir-dump - "$T/none" </dev/null
	one_line_error 66 "$T/none"
}

@test "lines pass as they are, and are checked" {
	printf '{"a": 1}\n{"b":"\\u00e9"}\n' >"$T/ledger"
	run --separate-stderr weir-dump "$T/ledger"
	assert_success
	assert_equal "$output" "$(cat "$T/ledger")"
	printf '{"c":}\n' >>"$T/ledger"
	run --separate-stderr weir-dump "$T/ledger"
	assert_equal "$status" 65
	[[ "$stderr" == *"$T/ledger: line 3: "* ]]
	printf '{"a":1}\n{"b"' >"$T/ledger"
	run --separate-stderr weir-dump "$T/ledger"
	assert_equal "$status" 65
	[[ "$stderr" == *"line 2 has no end"* ]]
	assert_output '{"a":1}'
}

@test "several files, the first failure decides" {
	echo '{"a":1}' >"$T/one"
	echo '{"b":2}' >"$T/two"
	run --separate-stderr weir-dump "$T/one" "$T/none" "$T/two"
	assert_equal "$status" 66
	assert_output $'{"a":1}\n{"b":2}'
}

@test "a run directory: its events" {
	make_run
	run --separate-stderr weir-dump "$T/run/r"
	assert_success
	assert_equal "$output" "$(cat "$T/run/r/events")"
	rm "$T/run/r/events"
	run --separate-stderr weir-dump "$T/run/r"
	assert_success
	assert_output ""
}

@test "a registry and a store: what can be printed of them" {
	mkdir -p "$T/reg/versions" "$T/store/versions" "$T/store/slots"
	run --separate-stderr weir-dump "$T/reg"
	one_line_error 65 "$T/reg is a registry" versions/NUMBER/decision
	run --separate-stderr weir-dump "$T/store"
	one_line_error 65 "$T/store is an engine's store" slots/NUMBER
}

@test "-f follows a run until its verdict" {
	make_run
	start dump weir-dump -f "$T/run/r"
	wait_for contains "$T/dump.out" granted
	echo '{"event":"decided"}' >>"$T/run/r/events"
	wait_for contains "$T/dump.out" decided
	printf '{"event":' >>"$T/run/r/events"
	printf '"summary"}\n' >>"$T/run/r/events"
	: >"$T/run/r/verdict"
	wait_for_end "$LAST_PID"
	cmp "$T/dump.out" "$T/run/r/events"
	[ ! -s "$T/dump.err" ]
}

@test "a reader that goes away is no failure" {
	for i in $(seq 2000); do
		printf '{"event":"granted","wave":%d,"pad":"%0200d"}\n' "$i" 0
	done >"$T/ledger"
	# shellcheck disable=SC2016 # for the inner shell
	run --separate-stderr bash -c \
		'set -o pipefail; weir-dump "$1" "$1" "$1" | head -n 1' \
		- "$T/ledger"
	assert_success
	assert_equal "$stderr" ""
	assert_equal "${#lines[@]}" 1
}

@test "a full disk is a failure" {
	[ -e /dev/full ] || skip "no /dev/full"
	run --separate-stderr bash -c 'weir-dump --schema >/dev/full'
	one_line_error 74 write
}

@test "the edges of every machine" {
	run --separate-stderr weir-dump --states
	assert_success
	assert_line --regexp '^admit [a-z]+ [a-z]+( \?)? -> [a-z]+'
	for machine in transfer commit engine homing supervise; do
		assert_line --regexp "^$machine "
	done
	assert_equal "${#lines[@]}" "$(grep -cE \
		'^[a-z-]+( [a-z0-9_-]+){2,3}( \?)? -> [a-z0-9_-]+( \(.*\))?$' \
		<<<"$output")"
}

@test "--parts: of two plans only what changed differs" {
	local mk="$BATS_TEST_DIRNAME/fixtures/mkckpt.py" dir

	for dir in a b; do
		"$mk" --size 1MiB --layers 4 --shards 2 "$T/$dir" 2>/dev/null
		touch -d "2026-01-0${#dir}" "$T/$dir/config.json"
	done
	# The same bytes in other files: what shifts is not told.
	for dir in a b; do
		weir-plan --source "$T/$dir" --engine ipc:///e -o "$T/$dir.plan" \
			--bucket-size 100kB
		weir-dump --parts "$T/$dir.plan" >"$T/$dir.parts"
	done
	run diff "$T/a.parts" "$T/b.parts"
	refute_line --partial '"part"'
	refute_line --partial '"file"'
	refute_line --partial '"bucket_bytes"'
	# One shape of a file is another: its lines, and no tensor beside it.
	python3 - "$T/b/model-00002-of-00002.safetensors" <<-'PY'
	import json, struct, sys
	with open(sys.argv[1], "r+b") as f:
	    n, = struct.unpack("<Q", f.read(8))
	    head = json.loads(f.read(n))
	    t = head["model.layers.0.mlp.up_proj.weight"]
	    t["shape"].reverse()
	    text = json.dumps(head, separators=(",", ":")).encode().ljust(n)
	    assert len(text) == n
	    f.seek(8)
	    f.write(text)
	PY
	weir-plan --source "$T/b" --engine ipc:///e -o "$T/b.plan" \
		--bucket-size 100kB
	weir-dump --parts "$T/b.plan" >"$T/b.parts"
	run diff "$T/a.parts" "$T/b.parts"
	assert_equal "$(grep -c '"part"' <<<"$output")" 2
	assert_equal "$(grep -c '"name":"model.layers.0.mlp.up_proj.weight"' \
		<<<"$output")" 2
	assert_equal "$(grep -c '"file":"model-00002-of-00002.safetensors","bytes"' \
		<<<"$output")" 2
	python3 -c 'import json, sys; [json.loads(l) for l in sys.stdin]' \
		<"$T/a.parts"
	# A tensor is on one line, in the plan's order.
	assert_equal "$(grep -c '"part":"tensor"' "$T/a.parts")" \
		"$(weir-dump "$T/a.plan" | tail -n 1 |
			grep -o '"tensors":[0-9]*' | cut -d: -f2)"
}

@test "--schema holds for every message, by an implementation not ours" {
	python3 -c 'import jsonschema; jsonschema.Draft202012Validator' \
		2>/dev/null || skip "no python3-jsonschema"
	"$BUILD/tests/unit_msg" --records >"$T/rec"
	weir-dump "$T/rec" >"$T/lines"
	weir-dump --schema >"$T/schema"
	python3 - "$T/schema" "$T/lines" <<-'PY'
	import json, sys
	from jsonschema import Draft202012Validator
	schema = json.load(open(sys.argv[1]))
	Draft202012Validator.check_schema(schema)
	v = Draft202012Validator(schema)
	for line in open(sys.argv[2]):
	    m = json.loads(line)
	    v.validate(m)
	    m["unknown"] = 1
	    assert not v.is_valid(m), m
	PY
}
