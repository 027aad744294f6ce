#!/usr/bin/env bats
# shellcheck disable=SC2034,SC2154 # for http.bash; set by run
# SGLang and vLLM in a push, by `path`: each has a store beside it, a
# weir-engine of the same name; what the servers are asked is in $T/calls.

load fleet
load http

# mixed NAME=KIND...: stores, servers and a fleet of them, in this order.
mixed() {
	local it name kind

	{
		echo "model: test"
		echo "engines:"
	} >"$T/fleet.yaml"
	for it; do
		name=${it%=*} kind=${it#*=}
		engine "$name"
		echo "  - name: $name" >>"$T/fleet.yaml"
		if [ "$kind" != native ]; then
			serve "$name" "$kind"
			echo "    kind: $kind" >>"$T/fleet.yaml"
			echo "    url: $(cat "$T/$name.url")" >>"$T/fleet.yaml"
		fi
		echo "    workers: [{endpoint: \"ipc://$T/$name.sock\"}]" \
			>>"$T/fleet.yaml"
	done
}

TRY=(--engine-timeout 60s --load-timeout 60s)

@test "VF-11 HT-02 HT-15 a push to SGLang, vLLM and a native engine" {
	mixed n=native s=sglang v=vllm
	publish 1
	holds n "$T/v1"
	run order '^s '
	assert_output "s pause
s flush
s load
s sum
s flush
s label
s resume"
	run calls update_weights
	assert_output --partial "\"$T/s/staging/000001\""
	publish 2
	run calls update_weight_version
	assert_line --partial '"new_version":"2"'
	tells 2 s v
}

# No line of one kind before all of another: "all_before FIRST THEN".
all_before() {
	order | awk -v first="$1" -v then="$2" '
		$2 == then { seen = 1 }
		$2 == first && seen { print; bad = 1 }
		END { exit bad }'
}

# The most of them that were loading at one time.
most_loading() {
	awk '/update_weights_from_disk|collective_rpc/ && / POST / {
			n += $2 == "begin" ? 1 : -1
			if (n > most) most = n
		}
		END { print most + 0 }' "$T/calls"
}

FIVE=(a=sglang b=vllm c=sglang d=vllm e=sglang)

@test "I3 I6 five engines, waves of two: one barrier, never three at once" {
	mixed "${FIVE[@]}"
	publish 1 --max-inflight-engine-groups 2
	[ "$(most_loading)" -le 2 ]
	# All pause and flush before any loads; all load before any label.
	all_before pause load
	all_before load label
	all_before load resume
	[ "$(order | grep -c ' load$')" -eq 5 ]
	[ "$(order | grep -c ' resume$')" -eq 5 ]
	publish 2 --max-inflight-engine-groups 2
	[ "$(most_loading)" -le 2 ]
}

@test "VF-05 FL-09 VF-04 a load fails: no wave after it, only it stays paused" {
	local failed

	mixed "${FIVE[@]}"
	publish 1 --max-inflight-engine-groups 2
	: >"$T/calls"
	# sglang engines come first: a c | e b | d
	faults e "POST:/update_weights_from_disk status:400:no~space~left"
	try 2 --max-inflight-engine-groups 2
	assert_equal "$status" 2
	[[ "$stderr" == *"engine e ("*"): load: /update_weights_from_disk: 400:"* ]]
	[[ "$stderr" == *"no space left"* ]]
	run decided 2
	assert_failure
	# d: the third wave
	run order '^d '
	assert_output "d pause
d flush
d mm
d encoder
d resume"
	run grep -c ' label$' <(order)
	assert_output 0
	# Loaded, or partly: undecided all the same, so poisoned and paused.
	for failed in a c e; do
		is_kept_paused "$failed"
	done
	faults e "/none none"
	# A full load of a newer version clears them.
	publish 2 --max-inflight-engine-groups 2
	[ "$(order | grep ' resume$' | sort -u | wc -l)" -eq 5 ]
	[ ! -s "$T/registry/attention" ]
}

@test "HT-09 VF-05 --on-failure rollback: the recorded directory, then resumed" {
	mixed a=sglang b=vllm
	publish 1
	faults b "POST:/collective_rpc status:500:out~of~memory 1"
	: >"$T/calls"
	# One by one: the other has been loaded when this one fails.
	try 2 --on-failure rollback --max-inflight-engine-groups 1
	assert_equal "$status" 1
	run calls update_weights
	assert_line --index 0 --partial "\"$T/a/staging/000002\""
	assert_line --index 1 --partial "\"$T/a/versions/000001\""
	run order
	assert_line "a resume"
	assert_line "b resume"
	refute_line "a label"
	publish 2
}

@test "FL-05 a pause fails: who is paused is resumed" {
	mixed a=sglang b=sglang
	publish 1
	: >"$T/calls"
	faults b "POST:/pause_generation status:500:broken"
	try 2
	assert_equal "$status" 1
	run order
	assert_line "a resume"
	assert_line "b resume"
	refute_line --partial load
	run decided 2
	assert_failure
}

@test "FL-05 HT-05 every answer is lost once: published all the same" {
	mixed a=sglang
	publish 1
	faults a "POST:/pause_generation lost 1" \
		"POST:/update_weights_from_disk lost 1" \
		"POST:/update_weight_version lost 1" \
		"POST:/continue_generation lost 1"
	publish 2
}

@test "HT-01 a flush that is refused for ever: resumed, the body shown" {
	mixed a=sglang
	faults a "POST:/flush_cache status:400:7~requests~run"
	checkpoint "$T/v1" --size 1MiB --seed 1
	run --separate-stderr push "$T/v1" --engine-timeout 3s
	assert_equal "$status" 1
	[[ "$stderr" == *"last with 400: 7 requests run"* ]]
	run order
	assert_line "a resume"
}

@test "HT-03 a load without an answer, paused: by the deadline, the mode named" {
	mixed b=vllm
	faults b "POST:/collective_rpc silent"
	checkpoint "$T/v1" --size 1MiB --seed 1
	run --separate-stderr push "$T/v1" --load-timeout 3s \
		--engine-timeout 20s --pause-mode abort
	assert_equal "$status" 2
	[[ "$stderr" == *"no answer to a load while paused, mode abort"* ]]
	is_kept_paused b
}

@test "HT-06 commit killed while they load: the next push closes that" {
	mixed a=sglang
	publish 1
	faults a "POST:/update_weights_from_disk hold:$T/go"
	checkpoint "$T/v2" --size 1MiB --seed 2
	start push weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for contains "$T/calls" staging/000002
	kill -KILL "$(pid_of push)"
	wait_for is_dead "$(pid_of push)"
	wait_for no_stages
	# Not before: commit could go on before it hears of push's end.
	: >"$T/go"
	run order '^a '
	assert_line --index "$((${#lines[@]} - 1))" "a load"
	publish 2
	[[ "$stderr" == *"engine a ("*"may be partly loaded"* ]]
	run order '^a '
	assert_line --index "$((${#lines[@]} - 1))" "a resume"
	[ "$(order | grep -c ' label$')" -eq 2 ]
}

@test "HT-14 one setting covers every call: each in turn is silent" {
	local path

	mixed a=sglang
	checkpoint "$T/v1" --size 1MiB --seed 1
	for path in GET:/model_info GET:/server_info GET:/ready \
		POST:/pause_generation POST:/flush_cache; do
		faults a "$path silent"
		run --separate-stderr push "$T/v1" --engine-timeout 300ms \
			--load-timeout 300ms
		[ "$status" -ne 0 ]
		[[ "$stderr" == *"engine a"* ]]
		run decided 1
		assert_failure
	done
}

@test "FL-11 HT-07 refused before anything is touched, with its name" {
	mixed a=sglang b=vllm
	serve b vllm --asleep
	sed -i "s#^    url: .*#    url: $(cat "$T/a.url")#" "$T/fleet.yaml"
	sed -i "/name: b/,\$s#^    url: .*#    url: $(cat "$T/b.url")#" \
		"$T/fleet.yaml"
	checkpoint "$T/v1" --size 1MiB --seed 1
	run --separate-stderr push "$T/v1"
	assert_equal "$status" 69
	[[ "$stderr" == *"engine b ("*"it is asleep: wake it first"* ]]
	run order
	assert_output ""
	[ ! -e "$T/registry/open" ]
}

@test "a host without libcurl: refused by name before anything is asked" {
	mkdir "$T/lib"
	touch "$T/lib/libcurl.so.4" "$T/lib/libcurl-gnutls.so.4"
	mixed a=sglang b=vllm
	checkpoint "$T/v1" --size 1MiB --seed 1
	LD_LIBRARY_PATH=$T/lib run --separate-stderr push "$T/v1"
	assert_equal "$status" 78
	assert_regex "$stderr" "libcurl, for HTTP: .*libcurl"
	[ ! -s "$T/calls" ]
	[ ! -e "$T/registry/open" ]
}

@test "a host without libcurl: a server in attention keeps nobody else back" {
	mkdir "$T/lib"
	touch "$T/lib/libcurl.so.4" "$T/lib/libcurl-gnutls.so.4"
	mixed a=sglang b=native
	publish 1
	faults a "POST:/update_weights_from_disk status:400"
	try 2
	[ -s "$T/registry/attention" ]
	sed -i '/name: a$/,/workers/d' "$T/fleet.yaml"
	LD_LIBRARY_PATH=$T/lib try 2
	assert_success
	assert_regex "$stderr" "engine a: libcurl, for HTTP: .*; it stays in attention"
	run "$BUILD/weir-status" --registry "$T/registry"
	assert_output --partial "attention  version 2"
}

@test "VF-10 a server restarted between load and decision is not published" {
	mixed b=vllm
	publish 1
	faults b "POST:/weight_checker restart" "GET:/is_paused restart"
	try 2
	[ "$status" -ne 0 ]
	run decided 2
	assert_failure
}

@test "commit killed in a wave of loads, started again: published" {
	mixed "${FIVE[@]}"
	publish 1
	: >"$T/calls"
	# sglang engines come first: a c | e b | d
	faults e "POST:/update_weights_from_disk hold:$T/go"
	checkpoint "$T/v2" --size 1MiB --seed 2
	start push weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --max-inflight-engine-groups 2
	wait_for grep -q "^e begin POST /update_weights_from_disk" "$T/calls"
	kill -KILL "$(leftover_processes |
		awk '$2 ~ /weir-commit$/ { print $1; exit }')"
	: >"$T/go"
	ends_with 0 push
	decided 2
	[ "$(most_loading)" -le 2 ]
	all_before load label
	all_before load resume
	[ "$(order | grep ' resume$' | sort -u | wc -l)" -eq 5 ]
}

@test "a router's view: who serves what since when, told when it is published" {
	local since

	mixed a=sglang b=vllm
	start watch weir-watch --registry "$T/registry" \
		--exec "echo \$WEIR_VERSION \$WEIR_ENGINES >>$T/told"
	# What is published before it looks is not told.
	wait_for contains "$T/watch.err" "waiting for it"
	publish 1
	publish 2
	wait_for contains "$T/told" "2 "
	run --separate-stderr weir-status --registry "$T/registry" --json
	[ "$(jq -c '[.engines[] | .kind, .serving, .url != null]' \
		<<<"$output")" = '["sglang",2,true,"vllm",2,true]' ]
	since=$(jq '.engines[0].since_ms' <<<"$output")
	run jq -c 'select(.event == "serving" and .engine == "a") |
		[.version, .wall_ms]' "$T/registry/ledger"
	assert_line --index 1 "[2,$since]"
	stop watch || true
}

@test "HT-08 weights discarded: refused asleep, a whole load before resume" {
	mixed b=vllm
	publish 1
	serve_again b vllm --asleep
	try 2
	assert_equal "$status" 69
	[[ "$stderr" == *"it is asleep: wake it first"* ]]
	# Awake, with what memory holds after level 2: the load comes first.
	serve_again b vllm --path /discarded
	: >"$T/calls"
	publish 2
	run order
	assert_line --index 0 "b pause"
	assert_line --index 4 "b load"
	assert_line --index "$((${#lines[@]} - 1))" "b resume"
}

# The same engine at another port, started anew.
serve_again() {
	local old

	old=$(cat "$T/$1.url")
	serve "$@"
	sed -i "s#$old#$(cat "$T/$1.url")#" "$T/fleet.yaml"
}

@test "HT-10 another size, or another model: refused before any pause" {
	mixed a=sglang
	publish 1
	: >"$T/calls"
	checkpoint "$T/v2" --size 2MiB --seed 2
	run --separate-stderr push "$T/v2"
	assert_equal "$status" 65
	[[ "$stderr" == *"in version 1, which engine a serves"* ]]
	config_of "$T/v3" '{"architectures": ["LlamaForCausalLM"]}'
	serve_again a sglang --arch Qwen2ForCausalLM
	run --separate-stderr push "$T/v3"
	assert_equal "$status" 78
	[[ "$stderr" == *"engine a ("*"it is a Qwen2ForCausalLM, config.json is of a LlamaForCausalLM"* ]]
	run order
	assert_output ""
}

# config_of DIR JSON: a checkpoint with this config.json.
config_of() {
	[ -d "$1" ] || checkpoint "$1" --size 1MiB --seed 3
	echo "$2" >"$1/config.json"
}

@test "HT-11 MD-09 quantized weights: what an engine cannot load again is refused" {
	local method='{"quantization_config": {"quant_method": "%s"}}'

	mixed a=sglang v=vllm
	# shellcheck disable=SC2059
	config_of "$T/v1" "$(printf "$method" gptq)"
	run --separate-stderr push "$T/v1"
	assert_equal "$status" 78
	[[ "$stderr" == *"engine a ("*"quantized by gptq, which sglang is not known to load again"* ]]
	[[ "$stderr" != *"engine v ("* ]]
	run order
	assert_output ""
	# shellcheck disable=SC2059
	config_of "$T/v1" "$(printf "$method" fp8)"
	# The same again, as another version: the servers show the same.
	for _ in 1 2; do
		run --separate-stderr push "$T/v1"
		assert_equal "$status" 0
	done
	decided 2
	[ "$(jq -r 'select(.event == "decided") | .content' \
		"$T/registry/ledger" | sort -u | wc -l)" -eq 1 ]
}

@test "MD-10 a draft model of its own would get the same weights: refused" {
	mixed a=sglang
	serve_again a sglang --draft /models/draft
	try 1
	assert_equal "$status" 78
	[[ "$stderr" == *"engine a ("*'its draft model "/models/draft" is another'* ]]
	serve_again a sglang --draft /models/first
	publish 1
}

@test "FL-02 two pushes, the engines in opposite order: one after the other" {
	mixed a=sglang b=vllm
	cp "$T/fleet.yaml" "$T/ab.yaml"
	{
		sed -n 1,2p "$T/ab.yaml"
		sed -n '/name: b/,$p' "$T/ab.yaml"
		sed -n '/name: a/,/workers/p' "$T/ab.yaml"
	} >"$T/ba.yaml"
	checkpoint "$T/v1" --size 1MiB --seed 1
	start one weir-push --source "$T/v1" --fleet "$T/ab.yaml" \
		--registry "$T/registry" --wait 200s
	start two weir-push --source "$T/v1" --fleet "$T/ba.yaml" \
		--registry "$T/registry" --wait 200s
	ends_with 0 one
	ends_with 0 two
	decided 2
	[ "$(most_loading)" -le 2 ]
}

@test "FL-03 an engine blocked in its load since the last run: left out, named" {
	mixed b=vllm c=vllm
	publish 1
	faults b "POST:/collective_rpc silent"
	try 2 --load-timeout 3s --engine-timeout 3s
	assert_equal "$status" 2
	is_kept_paused b
	faults b "* silent"
	try 2 --min-engines 1 --load-timeout 3s --engine-timeout 3s
	assert_equal "$status" 3
	[[ "$stderr" == *"engine b"* ]]
	decided 2
	is_kept_paused b
	run order '^c '
	assert_line --index "$((${#lines[@]} - 1))" "c resume"
	faults b "/none none"
	publish 3
}

@test "two engines with one store, or one server, are refused" {
	cat >"$T/fleet.yaml" <<-EOF_FLEET
	engines:
	  - {name: a, kind: vllm, url: "http://127.0.0.1:1", workers: [{endpoint: "ipc:///x"}]}
	  - {name: b, kind: vllm, url: "http://127.0.0.1:2", workers: [{endpoint: "ipc:///x"}]}
	EOF_FLEET
	checkpoint "$T/v1" --size 1MiB --seed 1
	run --separate-stderr push "$T/v1"
	assert_equal "$status" 78
	[[ "$stderr" == *"name the same endpoint ipc:///x"* ]]
	cat >"$T/fleet.yaml" <<-EOF_FLEET
	engines:
	  - {name: a, kind: vllm, url: "http://127.0.0.1:1"}
	  - {name: b, kind: vllm, url: "http://127.0.0.1:1"}
	EOF_FLEET
	run --separate-stderr push "$T/v1"
	assert_equal "$status" 78
	[[ "$stderr" == *"name the same endpoint http://127.0.0.1:1"* ]]
}

@test "status tells what servers tell: version and pause" {
	mixed a=sglang b=vllm
	publish 1
	run --separate-stderr weir-status --registry "$T/registry" --json
	assert_equal "$status" 0
	[ "$(jq -c '[.engines[] | .name, .serving, .paused]' <<<"$output")" = \
		'["a",1,false,"b",1,false]' ]
	faults b "POST:/collective_rpc status:500:no"
	try 2
	assert_equal "$status" 2
	run --separate-stderr weir-status --registry "$T/registry" --json
	[ "$(jq -c '[.engines[] | .name, .serving, .paused]' <<<"$output")" = \
		'["a",1,true,"b",1,true]' ]
	[[ "$output" == *"may be partly loaded"* ]]
	end_server a >/dev/null
	run --separate-stderr weir-status --registry "$T/registry"
	assert_equal "$status" 2
	[[ "$output" == *"not connected"* ]]
}
