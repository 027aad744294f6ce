#!/usr/bin/env bats
# shellcheck disable=SC2154,SC2030,SC2031 # set by run; subshells by intent
# Servers, and what stands between, that do not keep to HTTP, to JSON or to
# themselves: each call ends by its deadline with one line that says what it
# met.  A line of enclient's output: "CALL ok" or "CALL E_CODE CAUSE".

load fleet
load http

setup() { stand_in_setup; }
teardown() { stand_in_teardown; }

# client KIND NAME [OPTION]... CALL...
client() {
	local kind=$1 name=$2

	shift 2
	timeout 200 "$BUILD/tests/enclient" "$kind" "$(cat "$T/$name.url")" \
		"ipc://$T/store.sock" a 60000 "$@"
}

# What servers may send: as it goes over the wire (.raw), or as a body.
odd_answers() {
	python3 - "$T" <<-'PY'
		import gzip
		import sys

		where = sys.argv[1]
		OK, END = b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n"
		YES = b'{"success":true,"status":"ok"'
		files = {
		    "endless.raw": OK + b"Transfer-Encoding: chunked" + END +
		    b"8\r\n{\"succes\r\n",
		    "cut.raw": OK + b"Transfer-Encoding: chunked" + END +
		    b"8\r\n{\"succes\r\n",
		    "chunk.raw": OK + b"Transfer-Encoding: chunked" + END +
		    b"what\r\n",
		    "short.raw": b"HTTP/1.0 200 OK" + END + YES,
		    "nine.raw": YES + b"}",
		    "heads.raw": OK + 99999 * b"X-Flood: yes\r\n",
		    "hints.raw": 9999 * (b"HTTP/1.1 103 Early Hints" + END),
		    "bomb.raw": OK + b"Content-Encoding: gzip" + END +
		    gzip.compress(bytes(8 << 20), 1),
		    "coding.raw": OK + b"Content-Encoding: zebra" + END + YES,
		    "nul": YES + b"}\0",
		    "nulkey": YES + b',"a\\u0000":1}',
		    "deep": YES + b',"a":' + 10000 * b"[" + 10000 * b"]" + b"}",
		    "twice": b'{"success":false,' + YES[1:] + b"}",
		    "large": YES + b',"n":9223372036854775808}',
		    "ranks": b"[" + YES + b"}," + b'{"success":false}]',
		}
		for name, data in files.items():
		    with open(f"{where}/{name}", "wb") as f:
		        f.write(data)
	PY
}

# NAME FAULT MS TEXT: of a load of SGLang's, which can be asked about it.
rows() {
	cat <<-EOF_ROWS
	endless rawhold:$T/endless.raw 3000 the answer stopped in its body
	cut raw:$T/cut.raw 9000 closed in the middle of its answer
	chunk raw:$T/chunk.raw 9000 closed in the middle of its answer
	short raw:$T/short.raw 9000 outcome unknown: 200: {"success":true
	nine raw:$T/nine.raw 9000 closed without an answer: Received HTTP/0.9
	heads raw:$T/heads.raw 9000 the answer's head is longer than 65536
	hints raw:$T/hints.raw 9000 the answer's head is longer than 65536
	bomb raw:$T/bomb.raw 9000 the answer's body is longer than 1048576
	coding raw:$T/coding.raw 9000 closed in the middle
	nul body:$T/nul 9000 outcome unknown: 200: {"success":true
	nulkey body:$T/nulkey 9000 outcome unknown: 200: {"success":true
	deep body:$T/deep 9000 outcome unknown: 200: {"success":true
	twice body:$T/twice 9000 outcome unknown: 200: {"success":false
	large body:$T/large 9000 outcome unknown: 200: {"success":true
	ranks body:$T/ranks 9000 load: /update_weights_from_disk: 200: [{"success":true
	busy status:429:slow~down 9000 E_UNAVAIL
	full status:503:overloaded 9000 E_UNAVAIL
	who status:401:who~are~you 9000 E_PERM
	no status:403:not~you 9000 E_PERM
	EOF_ROWS
}

# One row; says so if it does not end as it has to.
try_row() {
	local name fault ms text out

	read -r name fault ms text <<<"$1"
	serve "$name" sglang
	faults "$name" "POST:/update_weights_from_disk $fault"
	out=$(client sglang "$name" probe pause+flush "ms=$ms" \
		load+version+resume 2>/dev/null)
	[[ "$out" == *"load E_"* && "$out" == *"$text"* &&
		"$out" == *"resume E_AGAIN"* ]] || echo "$name: $out"
}

@test "HT-14 VF-03 answers that are no HTTP, no JSON or no answer: named, never believed" {
	odd_answers
	rows >"$T/rows"
	export -f try_row client serve faults tell_servers
	export T BUILD SERVERS
	run xargs -P 8 -d '\n' -I '{}' bash -c 'try_row "$1"' _ '{}' <"$T/rows"
	assert_output ""
	assert_equal "$status" 0
	# Whatever became of it, it was sent once.
	[ "$(calls update_weights_from | sort | uniq -d | wc -l)" -eq 0 ]
}

publishes() {
	run client "$1" a probe pause+flush load version+resume
	assert_output "probe ok
pause ok
flush ok
load ok
version ok
resume ok"
}

@test "compressed answers, HTTP/1.0, a flush that is told 503 first: published" {
	local kind

	for kind in sglang vllm; do
		serve a "$kind" --gzip
		publishes "$kind"
		serve a "$kind" --http10
		faults a "/flush_cache status:503:later 2" \
			"/reset_prefix_cache status:429:later 2"
		publishes "$kind"
	done
}

@test "a redirect to another host: named, and the key stays here" {
	umask 077
	echo secret-key >"$T/key"
	serve a sglang --token secret-key
	serve b sglang --host 127.0.0.2
	faults a "* redirect:$(cat "$T/b.url")/model_info"
	run client sglang a "token=$T/key" probe
	assert_output --partial "probe E_CONFIG engine a"
	assert_output --partial "a redirect to http://127.0.0.2:"
	run grep "^b " "$T/calls"
	assert_output ""
}

@test "http_proxy is not for engines; WEIR_HTTP_PROXY is" {
	unset no_proxy
	serve a sglang
	serve p sglang
	http_proxy=$(cat "$T/p.url") all_proxy=$(cat "$T/p.url") \
		run client sglang a probe
	assert_output "probe ok"
	run grep "^p " "$T/calls"
	assert_output ""
	WEIR_HTTP_PROXY=$(cat "$T/p.url") run client sglang a probe
	assert_output --partial "probe E_CONFIG"
	run grep "^p begin GET $(cat "$T/a.url")/model_info" "$T/calls"
	assert_success
	# That nobody is there is the proxy's word, and not the engine's.
	end_server p
	WEIR_HTTP_PROXY=$(cat "$T/p.url") run client sglang a probe
	assert_output --partial "not connected"
}

# at HOST: server a by that name.
at() {
	local url

	url=$(cat "$T/a.url")
	echo "http://$1:${url##*:}" >"$T/a.url"
}

@test "names: the second address where the first is dead; no name server, by the deadline" {
	skip_if_sanitized
	serve a sglang
	at two.test
	LD_PRELOAD=$BUILD/tests/names.so run client sglang a probe
	assert_output "probe ok"
	at never.test
	LD_PRELOAD=$BUILD/tests/names.so run client sglang a ms=3000 probe
	assert_equal "$status" 0
	assert_output --partial "probe E_UNAVAIL"
	assert_output --partial "not connected: Resolving timed out"
}

@test "one router before two servers: their calls do not mix" {
	serve a sglang
	serve b sglang
	faults a "POST:/pause_generation as:b"
	run client sglang a probe pause load
	assert_line --partial "load E_UNAVAIL"
	assert_line --partial "it is not paused any more"
	faults a "POST:/update_weights_from_disk as:b"
	run client sglang a probe pause load
	assert_line --partial "load E_PROTO"
	assert_line --partial 'it says done, but serves "/models/first"'
	faults a "POST:/update_weight_version as:b"
	run client sglang a probe pause load version
	assert_line --partial "version E_PROTO"
	assert_line --partial "tells version 0"
}

@test "HT-09 the directory to go back to is gone: it stays paused, named" {
	serve a sglang
	run client sglang a poisoned rollback "previous=$T/gone" probe abort
	assert_line --partial "abort E_IO engine a"
	assert_line --partial "Failed to get weights iterator: $T/gone"
	run order
	refute_output --partial resume
}
