#!/usr/bin/env bats
# shellcheck disable=SC2034,SC2154 # for http.bash; set by run
# Servers with a url alone: no store beside them, they load the source's
# directory itself.

load cases
load http

# alone NAME=KIND...: servers and a fleet of them.
alone() {
	local it name kind

	echo "engines:" >"$T/fleet.yaml"
	for it; do
		name=${it%=*} kind=${it#*=}
		if [ "$kind" = native ]; then
			engine "$name"
			printf '  - {name: %s, workers: [{endpoint: "ipc://%s"}]}\n' \
				"$name" "$T/$name.sock" >>"$T/fleet.yaml"
			continue
		fi
		add_alone "$name" "$kind" "${SERVE[@]}"
	done
}

# At the proof that they give.
TRY=(--engine-timeout 20s --load-timeout 20s --accept-proof sampled)

@test "VF-11 a url alone: the source itself is loaded, beside a native engine" {
	alone n=native s=sglang v=vllm
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
	run calls update_weights_from
	assert_output --partial "\"model_path\":\"$(realpath "$T/v1")\""
	run calls collective_rpc
	assert_output --partial "\"weights_path\":\"$(realpath "$T/v1")\""
	publish 2 --max-inflight-engine-groups 1
	[[ "$stderr" == *"proof:   sampled"* ]]
	[[ "$stderr" == *"loaded:  checked; servers compared: 0"* ]]
	tells 2 s v
	run --separate-stderr weir-status --registry "$T/registry" --json
	assert_equal "$status" 0
	[ "$(jq -c '[.engines[] | .name, .serving, .lagging]' <<<"$output")" = \
		'["n",2,false,"s",2,false,"v",2,false]' ]
}

@test "VF-11 transport disk: a url alone loads the version directory" {
	mkdir "$T/disk"
	alone n=native s=sglang
	publish 1 --transport disk --disk-dir "$T/disk" --run-timeout 120s
	holds n "$T/v1"
	run calls update_weights_from
	assert_output --partial "\"$(realpath "$T/disk")/weight_v000001\""
	tells 1 s
	alone v=vllm
	publish 2 --transport disk --disk-dir "$T/disk" --run-timeout 120s
	run calls collective_rpc
	assert_output --partial "\"$(realpath "$T/disk")/weight_v000002\""
	tells 2 v
	try 3 --transport delta --disk-dir "$T/disk"
	assert_equal "$status" 78
	[[ "$stderr" == *"engine v: a url alone cannot load a delta"* ]]
}

@test "a url alone proves less: the default level is refused, untouched" {
	alone s=sglang
	try 1 --accept-proof copied
	assert_equal "$status" 78
	[[ "$stderr" == *"engine s ("*'the proof "sampled" at best: --accept-proof sampled'* ]]
	SERVE=(--old)
	alone v=vllm
	try 1
	assert_equal "$status" 78
	[[ "$stderr" == *"engine v ("*'the proof "ack" at best: --accept-proof ack'* ]]
	run order
	assert_output ""
	publish 1 --accept-proof ack
	[[ "$stderr" == *"loaded:  ack"* ]]
}

@test "only values of tensors: sampled, and compared" {
	SERVE=(--old)
	alone a=sglang b=sglang
	publish 1
	[[ "$stderr" == *"loaded:  sampled; servers compared: 2"* ]]
	faults b "/get_weights_by_name status:200:[0.5,0.25]"
	try 2
	assert_equal "$status" 2
	[[ "$stderr" == *"engines a and b have loaded the same version, but their weights differ (sampled)"* ]]
	run decided 2
	assert_failure
}

@test "VF-03 checksums that differ between two servers: not published" {
	alone a=sglang b=sglang
	publish 1
	[[ "$stderr" == *"loaded:  checked; servers compared: 2"* ]]
	faults b '/weights_checker status:200:{"success":true,"per_engine_checksum":"0"}'
	try 2
	assert_equal "$status" 2
	[[ "$stderr" == *"engines a and b have loaded the same version, but their weights differ (checked)"* ]]
	faults b "/none none"
	publish 2
}

@test "BK-12 a url alone: the directory is written to while they load" {
	alone a=sglang
	publish 1
	checkpoint "$T/v2" --size 1MiB --seed 2
	faults a "POST:/update_weights_from_disk hold:$T/go"
	start push weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --accept-proof sampled
	wait_for contains "$T/calls" "$(realpath "$T/v2")"
	touch "$T/v2/model.safetensors"
	: >"$T/go"
	ends_with 2 push
	grep -q "v2/model.safetensors" "$T/push.err"
	run decided 2
	assert_failure
}

@test "HT-10 a url alone: other tensors than it serves, refused by name" {
	alone a=sglang
	publish 1
	: >"$T/calls"
	checkpoint "$T/v2" --seed 2 --size 2MiB
	try 2
	assert_equal "$status" 65
	[[ "$stderr" == *"but "*"in version 1, which engine a serves"* ]]
	run order
	assert_output ""
}

@test "MD-01 MD-04 MD-08 a url alone: a head that is missing, other names, another dtype" {
	alone s=sglang v=vllm
	refuses_another_model --accept-proof sampled
	# The head is tied to what is there, from now on: that is the model.
	tensors "$T/v2" model.norm.w:BF16:8
	publish 2 --expect any
	tells 2 s v
}

# start_held N PATH: a push, until a server is asked for that, which it does
# when $T/go is there; once.
start_held() {
	source_of "$1"
	faults a "POST:$2 hold:$T/go 1"
	start push weir-push --source "$T/v$1" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --accept-proof sampled
	wait_for contains "$T/calls" "a begin POST $2"
}

@test "two registries, one server: who is overtaken says so, and tells it no number" {
	alone a=sglang
	start_held 1 /update_weights_from_disk
	REGISTRY_DIR=another publish 2 --weight-version 2
	: >"$T/go"
	ends_with 2 push
	contains "$T/push.err" "it is not paused any more: was it restarted, or does another push use it?"
	run decided 1
	assert_failure
	tells 2 a
	is_kept_paused a
}

@test "FL-05 a signal while it is paused: resumed, untouched" {
	alone a=sglang
	start_held 1 /flush_cache
	kill -TERM "$(pid_of push)"
	# Else the flush could be answered before commit hears of it.
	wait_for contains "$T/push.err" "asked for the abort"
	: >"$T/go"
	ends_with 143 push
	run order
	assert_output "a pause
a flush
a resume"
}

@test "HT-03 FL-09 the second wave's server is silent: by its deadline, both named" {
	alone a=sglang b=sglang c=vllm
	faults b "POST:/update_weights_from_disk silent"
	try 1 --max-inflight-engine-groups 1 --load-timeout 4s
	assert_equal "$status" 2
	[[ "$stderr" == *"engine b ("*"no answer"*"no answer to a load while paused"* ]]
	[[ "$stderr" == *"engines need attention: a, b"* ]]
	is_kept_paused a
	is_kept_paused b
	run order '^c '
	assert_output "c pause
c flush
c mm
c encoder
c resume"
}

restarted_before_its_label() {
	alone "a=$1"
	# Behind its load; once.
	faults a "POST:/flush_cache restart 2-2" \
		"POST:/reset_encoder_cache restart 2-2"
	publish "$2"
	tells "$2" a
	run order
	assert_line --index "$((${#lines[@]} - 1))" "a resume"
	assert_equal "$(order | grep -c ' load$')" 2
	assert_equal "$(order | grep -c ' label$')" 1
	: >"$T/calls"
}

@test "VF-03 restarted before it is told its number: it loads again, then is told" {
	restarted_before_its_label sglang 1
	restarted_before_its_label vllm 2
}

@test "VF-05 a url alone: back to the source of before, if nobody touched it" {
	alone v=vllm
	publish 1
	faults v "POST:/collective_rpc status:500:out~of~memory 1"
	: >"$T/calls"
	try 2 --on-failure rollback
	assert_equal "$status" 1
	run calls collective_rpc
	assert_line --index 1 --partial "\"$(realpath "$T/v1")\""
	run order
	assert_line "v resume"
	# Somebody has written over it: it is nothing to go back to.
	touch "$T/v1/model.safetensors"
	faults v "POST:/collective_rpc status:500:out~of~memory~again 1"
	try 2 --on-failure rollback
	assert_equal "$status" 2
	[[ "$stderr" == *"what it served before is unknown"* ]]
	publish 2
}

@test "HT-06 a url alone: decided and not told yet, the next commit tells it" {
	alone a=sglang
	publish 1
	checkpoint "$T/v2" --size 1MiB --seed 2
	faults a "POST:/update_weight_version hold:$T/go"
	start push weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --accept-proof sampled
	wait_for contains "$T/calls" '"new_version":"2"'
	kill -KILL "$(pid_of push)"
	wait_for is_dead "$(pid_of push)"
	decided 2
	wait_for no_stages
	: >"$T/calls"
	# The server, too, is started anew: it loads the decided directory.
	faults a "GET:/model_info restart 1"
	publish 3
	run calls update_weights_from
	assert_line --index 0 --partial "\"$(realpath "$T/v2")\""
	assert_line --index 1 --partial "\"$(realpath "$T/v3")\""
}

@test "HT-06 I9 commit is killed, and some are resumed already: all come home" {
	local name

	alone a=sglang v=vllm b=sglang
	source_of 1
	faults b "POST:/update_weight_version hold:$T/go"
	start push weir-push --source "$T/v1" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" "${TRY[@]}"
	wait_for contains "$T/calls" "a end POST /continue_generation"
	wait_for contains "$T/calls" "v end POST /resume"
	wait_for contains "$T/calls" "b begin POST /update_weight_version"
	kill -KILL "$(leftover_processes |
		awk '$2 ~ /weir-commit$/ { print $1; exit }')"
	: >"$T/go"
	ends_with 0 push
	tells 1 a v b
	for name in a v b; do
		run is_kept_paused "$name"
		assert_failure
	done
}

@test "VF-05 a decided version that is owed: what a newer run left half comes first" {
	alone a=sglang b=sglang
	# Decided and told, and not resumed: owed.
	faults a "POST:/continue_generation status:500:no"
	try 1 --engine-timeout 3s
	assert_equal "$status" 3
	# Nor when the next run comes, which loads it, and fails elsewhere.
	faults b "POST:/update_weights_from_disk status:400:no"
	try 2 --engine-timeout 3s
	assert_equal "$status" 2
	# This one can do no more than look after them.
	faults a "/none none"
	faults b "GET:/model_info status:500:no"
	: >"$T/calls"
	try 2
	[ "$status" -ne 0 ]
	run order
	assert_output ""
	faults b "/none none"
	publish 2
	tells 2 a b
	[ ! -s "$T/registry/attention" ]
}

@test "VF-05 a join loads a server that tells its number, if a later run loaded it" {
	alone a=sglang b=sglang
	publish 1
	faults b "POST:/update_weights_from_disk status:400:no 1"
	try 2
	assert_equal "$status" 2
	: >"$T/calls"
	weir push --source "$T/v1" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --accept-proof ack \
		--only a --only b
	run order
	assert_line "a load"
	assert_line "a resume"
	tells 1 a b
}

# What slime posts for one update from disk (share/doc/interop.md).
slime_calls() {
	cat <<-'EOF_CALLS'
	pause_generation
	flush_cache
	update_weights_from_disk model_path weight_version
	continue_generation
	EOF_CALLS
}

# What was posted to an engine: "PATH KEY...", keys that slime's have.
our_calls() {
	calls "^$1 " | while read -r _ _ path body; do
		echo "${path#/}$(jq -r 'keys[] |
			select(. == "model_path" or . == "weight_version") |
			" " + .' <<<"${body:-{\}}" | tr -d '\n')"
	done
}

@test "slime's own calls are ours, in its order, but for what is explained" {
	alone a=sglang
	publish 1
	run diff <(slime_calls) <(our_calls a)
	assert_output "3c3,6
< update_weights_from_disk model_path weight_version
---
> update_weights_from_disk model_path
> weights_checker
> flush_cache
> update_weight_version"
}
