#!/usr/bin/env bats
# shellcheck disable=SC2034,SC2154 # for http.bash; set by run
# Servers that weights are broadcast to: each in a weight-update group of its
# own, whose rank 0 is ours.  CUDA and NCCL are stand-ins.

load cases
load http

setup_file() {
	export WEIR_STANDIN="$BUILD/tests/standin" CUDA_VISIBLE_DEVICES=1
	start_servers
}

setup() {
	http_setup
	needs_mover weir-move-nccl NCCL
	export CUDA_VISIBLE_DEVICES=0
}

declare -gA JOIN=([sglang]=/init_weights_update_group
	[vllm]=/init_weight_transfer_engine)
BEGIN=/begin_weight_update
declare -gA LOAD=([sglang]=/update_weights_from_distributed
	[vllm]=/update_weights)
declare -gA END=([sglang]=/end_weight_update [vllm]=/finish_weight_update)

# casting KIND NAME...: servers, and a fleet and a registry of them.
casting() {
	local kind=$1 name

	shift
	REGISTRY_DIR=registry.$kind
	rm -f "$T/fleet.yaml"
	: >"$T/calls"
	for name; do
		add_alone "$name" "$kind" ${SERVE:---cast}
	done
}

both() {
	"$@" sglang
	"$@" vllm
}

OPTIONS=(--transport nccl --bucket-size 128KiB --keep-together none
	--accept-proof sampled)
TRY=("${OPTIONS[@]}" --engine-timeout 30s --load-timeout 60s)

# got NAME N: it has loaded every tensor of checkpoint N, byte by byte.
got() { python3 "$SRC/tests/fakecast.py" "$T/v$2" | diff - "$T/$1.got"; }

# What is asked for one version, in this order, a word for each.
expected_order() {
	local resets="flush"

	[ "$1" = sglang ] || resets="flush mm encoder"
	echo "pause $resets init begin cast end destroy sum $resets label resume"
}

takes_two_versions() {
	casting "$1" a
	publish 1
	got a 1
	# The label of the version, and that after the decision alone.
	: >"$T/calls"
	publish 2
	got a 2
	tells 2 a
	run order '^a '
	assert_equal "$(sed 's/^a //' <<<"$output" | uniq | xargs)" \
		"$(expected_order "$1")"
	run calls
	refute_output --partial '"weight_version"'
	assert_line --partial '/update_weight_version {"new_version":"2"'
}

@test "VF-11 VF-10 cast: two versions, byte by byte, in the order of all calls" {
	both takes_two_versions
}

takes_an_older_dialect() {
	SERVE="--cast --old" casting "$1" a
	publish 1 --accept-proof ack
	got a 1
}

@test "cast: servers of before begin and end, or of another way to pack" {
	both takes_an_older_dialect
}

# Chunks are a quarter of the largest bucket and one byte, 471 here, and end
# behind the tensor that makes them larger than that: full is not enough.
@test "cast: vLLM's packed chunks end where its rule says" {
	casting vllm a
	tensors "$T/v1" a:U8:471 b:U8:329 c:U8:400 d:U8:400
	publish 1 --bucket-size 1MiB
	got a 1
	assert_equal "$(xargs <"$T/a.casts")" "800 800"
	run calls "${JOIN[vllm]}"
	assert_output --partial '"packed":true,"packed_buffer_size_bytes":471,"packed_num_buffers":2'
}

@test "cast: vLLM gets one by one what would lie askew in a chunk" {
	casting vllm a
	tensors "$T/v1" a:U8:3 b:F32:4 c:F32:0,7
	publish 1 --accept-proof ack
	got a 1
	assert_equal "$(xargs <"$T/a.casts")" "3 16"
	run calls "${JOIN[vllm]}"
	refute_output --partial packed
}

# Groups that overlapped: NAME joined one while another was in one.
most_in_groups() {
	order | awk '$2 == "init" { n++; if (n > most) most = n }
		$2 == "destroy" { n-- }
		END { print most }'
}

@test "I6 I3 cast: three servers in waves of one and of two, each group by itself" {
	local name

	casting sglang a b
	add_alone c vllm --cast
	publish 1 --max-inflight-engine-groups 1
	[ "$(most_in_groups)" -eq 1 ]
	: >"$T/calls"
	publish 2 --max-inflight-engine-groups 2
	[ "$(most_in_groups)" -le 2 ]
	for name in a b c; do
		got "$name" 2
	done
	# None is resumed, or told its number, before all have loaded.
	order | awk '$2 == "label" || $2 == "resume" { seen = 1 }
		seen && ($2 == "init" || $2 == "cast") { bad = 1 }
		END { exit bad }'
	[[ "$stderr" == *"loaded:  checked; servers compared: 2"* ]]
}

# fails PATTERN [FAULT [OPTION]...]: a push that ends so; nobody serves a part
# of it, and what it was in is ended and left.
fails() {
	: >"$T/calls"
	WEIR_STANDIN_FAULT="${2:-}" try 2 "${@:3}"
	# shellcheck disable=SC2053
	[[ "$stderr" == *"engine a ("*"load: "*$1* ]] || {
		echo "$stderr" >&2
		false
	}
	assert_equal "$status" 2
	run decided 2
	assert_failure
	is_kept_paused a
	run order
	assert_line "a end"
	assert_line "a destroy"
	faults a "/none none"
}

# hangs PATTERN [FAULT]: only its deadline ends it.
hangs() { fails "$1" "${2:-}" --load-timeout 8s; }

# Who comes first is a matter of how fast a mover starts.
NEVER_FORMS="@(rank 0: the group of 2 did not form|its workers did not meet)"

# An update can be begun again, and the group's name is free.
mends() {
	publish 2
	got a 2
	run order '^a '
	assert_line --index "$((${#lines[@]} - 1))" "a resume"
}

@test "FL-03 VF-05 cast: SGLang's steps fail or hang: named, ended, left, paused" {
	casting sglang a
	publish 1
	faults a "POST:${JOIN[sglang]} status:400:no~free~port"
	fails "${JOIN[sglang]}: 400: no free port"
	faults a "POST:${JOIN[sglang]} silent"
	hangs "its workers did not meet at the store: 0 of 1 came"
	# It says that it has joined, and has not.
	faults a "POST:${JOIN[sglang]} status:200:{\"success\":true}" \
		"POST:${LOAD[sglang]} silent"
	hangs "$NEVER_FORMS"
	faults a "POST:$BEGIN status:400:one~is~already~open"
	fails "$BEGIN: 400: one is already open; it may have to be restarted"
	faults a "POST:${LOAD[sglang]} status:400:partially"
	fails "${LOAD[sglang]}: 400: partially"
	faults a "POST:${END[sglang]} 200fail 1"
	fails "${END[sglang]}: 200:"
	hangs "${LOAD[sglang]}: no answer" broadcast-hang
	fails "rank 0: " async-error
	mends
}

@test "FL-03 VF-05 cast: vLLM's steps fail or hang: named, ended, left, paused" {
	casting vllm a
	publish 1
	faults a "POST:${JOIN[vllm]} silent"
	hangs "$NEVER_FORMS"
	faults a "POST:${LOAD[vllm]} status:500:out~of~memory"
	fails "${LOAD[vllm]}: 500: out of memory"
	faults a "POST:${END[vllm]} status:500:no~layer 1"
	fails "${END[vllm]}: 500: no layer"
	mends
}

@test "cast: what cannot be left is named: restart it" {
	casting sglang a
	faults a "POST:${LOAD[sglang]} status:400:partially" \
		"POST:${END[sglang]} silent"
	try 1 --load-timeout 2s --engine-timeout 6s
	assert_equal "$status" 2
	[[ "$stderr" == *"it does not leave its weight-update group weir-"*": restart it"* ]]
}

# The groups that servers were told to make, or to leave (init, destroy).
groups() {
	calls "/$1_weights_update_group" |
		sed 's/.*"group_name":"\([^"]*\)".*/\1/' | sort -u
}

# What was made was left, and nothing that the server does not know.
left_what_was_made() {
	assert_equal "$(groups destroy)" "$(groups init)"
	run grep "/destroy_weights_update_group 400" "$T/calls"
	assert_output ""
}

@test "HT-06 cast: a group is left by its own name, by whichever run comes" {
	casting sglang a
	# Not at that run's end, nor when the next one looks after it.
	faults a "POST:${LOAD[sglang]} status:400:partially 1" \
		"POST:/destroy_weights_update_group close 2"
	try 1
	assert_equal "$status" 2
	publish 1
	got a 1
	assert_equal "$(groups init | wc -l)" 2
	left_what_was_made
}

# Eight might be asked, each to its deadline, before the next push begins.
@test "cast: no further group is left at a server that does not answer to it" {
	casting sglang a
	faults a "POST:${LOAD[sglang]} status:400:partially" \
		"POST:/destroy_weights_update_group silent"
	try 1 --load-timeout 2s --engine-timeout 6s
	assert_equal "$status" 2
	# What the first one left is all that this one knows.
	faults a "POST:/destroy_weights_update_group silent"
	: >"$T/calls"
	try 1 --load-timeout 2s --engine-timeout 6s
	run order '^a '
	assert_line "a destroy"
	refute_output --partial $'a destroy\na destroy'
}

# hold_cast KIND N COMMAND...: in the background, until the first load call of
# version N is there, which is held.
hold_cast() {
	local kind=$1 n=$2

	shift 2
	rm -f "$T/go"
	source_of "$n"
	faults a "POST:${LOAD[$kind]} hold:$T/go"
	: >"$T/calls"
	start held "$@"
	wait_for contains "$T/calls" "POST ${LOAD[$kind]} "
}

dies_with_its_push() {
	casting "$1" a
	publish 1
	hold_cast "$1" 2 weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/$REGISTRY_DIR" "${OPTIONS[@]}"
	kill -KILL "$(pid_of held)" "$(leftover_processes |
		awk '$2 ~ /weir-commit$/ { print $1; exit }')"
	: >"$T/go"
	wait_for contains "$T/calls" "a end POST ${LOAD[$1]}"
	wait_for is_dead "$(pid_of held)"
	wait_for no_stages
	faults a "/none none"
	: >"$T/calls"
	publish 2
	got a 2
	# What the dead one left is ended and left first.
	assert_equal "$(order '^a ' | head -n 2 | xargs)" "a end a destroy"
	run grep "/destroy_weights_update_group 400" "$T/calls"
	assert_output ""
}

@test "HT-06 I9 cast: push and commit are killed: the next push ends that update" {
	both dies_with_its_push
}

@test "I9 cast: commit is killed and started again: published" {
	casting vllm a
	publish 1
	hold_cast vllm 2 weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/$REGISTRY_DIR" "${OPTIONS[@]}"
	kill -KILL "$(leftover_processes |
		awk '$2 ~ /weir-commit$/ { print $1; exit }')"
	: >"$T/go"
	ends_with 0 held
	decided 2
	got a 2
}

# by_hand, and then the codes.
hand() {
	by_hand "$@" || true
	echo "codes: ${codes[*]}"
}

@test "TM-02 I10 cast: a commit that was replaced lets go; its late call meets no group" {
	local old run

	casting sglang a
	publish 1
	hold_cast sglang 2 hand "$T/v2" "${OPTIONS[*]:0:6}" "" \
		"${OPTIONS[*]:6}"
	run=$(newest_run)
	old=$(head -n 1 "$run/commit.1")
	start new weir-commit --run "$run"
	wait_for is_dead "$old"
	wait_for grep -q "POST ${LOAD[sglang]} .*weir-[^\"]*-2\"" "$T/calls"
	: >"$T/go"
	ends_with 0 new
	ends_with 0 held
	contains "$T/held.out" "codes: 0 0 0 76"
	got a 2
}

@test "BK-12 cast: the source is opened for writing under way: stopped at once" {
	casting sglang a
	publish 1
	hold_cast sglang 2 weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/$REGISTRY_DIR" "${OPTIONS[@]}"
	# The open waits for the lease.
	: >>"$T/v2/model.safetensors"
	ends_with 2 held
	: >"$T/go"
	contains "$T/held.err" "v2/model.safetensors was opened for writing while it was sent"
	run decided 2
	assert_failure
}

# Behind its load: of three looks, at the probe, before the load and after it.
restarted_before_the_decision() {
	casting "$1" a
	publish 1
	faults a "GET:/is_paused restart 3-3" "GET:/ready restart 3-3"
	try 2
	assert_equal "$status" 2
	[[ "$stderr" == *"was it restarted"* ]]
	run decided 2
	assert_failure
	# It is paused again, as it may not serve a version that it lacks.
	run order '^a '
	assert_line --index "$((${#lines[@]} - 1))" "a pause"
}

@test "VF-10 cast: a server that was restarted before the decision is not published" {
	both restarted_before_the_decision
}

# refused CODE TEXT: untouched, and that is why.
is_refused() {
	assert_equal "$status" "$1"
	[[ "$stderr" == *"$2"* ]] || echo "$stderr" >&2
	[[ "$stderr" == *"$2"* ]]
	run order
	assert_output ""
}

@test "FL-11 cast: who cannot be broadcast to is refused, untouched" {
	SERVE=--path=/models/first casting sglang a
	try 1
	is_refused 78 "/init_weights_update_group: it has no such path"
	casting sglang a
	faults a '/server_info status:200:{"tp_size":2,"pp_size":2}'
	try 1
	is_refused 78 "its group would be of 0 workers: 1 to 127, and no pipeline or data parallel ones, can be broadcast to"
	SERVE=--path=/models/first casting vllm a
	try 1
	is_refused 78 "its backend for weights is none: start it with --weight-transfer-config"
	casting vllm a
	faults a '/get_world_size status:200:{"world_size":128}'
	try 1
	is_refused 78 "its group would be of 128 workers: 1 to 127 can be broadcast to"
}

cannot_be_sent() {
	casting "$1" a
	tensors --sparse "$T/v1" whole:F32:8 large:F32:5120,1024
	try 1 --split-tensors
	is_refused 78 "tensor \"large\" would be split: to broadcast it to a server"
	rm -r "$T/v1"
	tensors "$T/v1" a:F32:8 odd:F4:2,4
	try 1
	is_refused 78 "tensor \"odd\" is of dtype F4, which torch does not have"
	rm -r "$T/v1"
}

@test "FL-11 cast: what cannot be broadcast is refused by name, untouched" {
	both cannot_be_sent
}

# Weights that are processed behind a load need to be told its end.
@test "MD-01 MD-04 MD-08 cast: another model is refused, before anybody is asked" {
	casting sglang a
	refuses_another_model --transport nccl --accept-proof sampled
}

@test "MD-09 cast: quantized weights and a server without an end: refused" {
	SERVE="--cast --old" casting sglang a
	checkpoint "$T/v1" --size 1MiB --seed 1
	echo '{"quantization_config": {"quant_method": "fp8"}}' \
		>"$T/v1/config.json"
	try 1 --accept-proof ack
	is_refused 78 "/end_weight_update: it has no such path"
	casting vllm a
	faults a "OPTIONS:/finish_weight_update status:404"
	try 1 --accept-proof ack
	is_refused 78 "/finish_weight_update: it has no such path"
	casting sglang a
	publish 1
	# Once, behind the last bytes, before it serves.
	assert_equal "$(order | grep -c ' end$')" 1
	order | awk '$2 == "end" { seen = 1 } $2 == "cast" && seen { bad = 1 }
		$2 == "resume" && !seen { bad = 1 } END { exit bad }'
}

@test "cast: no mover beside the source: said by name, untouched" {
	export WEIR_LIBEXEC=$T
	casting sglang a
	try 1
	is_refused 69 "transport nccl: unavailable, "
	[[ "$stderr" == *"weir-move-nccl is not installed"* ]]
}
