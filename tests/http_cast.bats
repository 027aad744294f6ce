#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, stderr: set by run
# SGLang servers that weights are broadcast to: each in a weight-update group
# of its own, whose rank 0 is ours.  CUDA and NCCL are stand-ins.

load fleet
load http

setup_file() {
	export WEIR_STANDIN="$BUILD/tests/standin" CUDA_VISIBLE_DEVICES=1
	start_servers
}

setup() {
	http_setup
	[ -x "$BUILD/weir-move-nccl" ] ||
		skip "built without CUDA and NCCL: no weir-move-nccl"
	export LD_LIBRARY_PATH="$BUILD/tests/standin" CUDA_VISIBLE_DEVICES=0
	export WEIR_STANDIN_SEED=$BATS_TEST_NUMBER
}

# casting NAME...: servers, and a fleet of them.
casting() {
	local name

	echo "engines:" >"$T/fleet.yaml"
	for name; do
		serve "$name" sglang --cast ${SERVE:-}
		printf '  - {name: %s, kind: sglang, url: "%s"}\n' \
			"$name" "$(cat "$T/$name.url")" >>"$T/fleet.yaml"
	done
}

# try N [OPTION]...
try() {
	local n=$1

	shift
	[ -d "$T/v$n" ] || checkpoint "$T/v$n" --size 1MiB --seed "$n"
	run --separate-stderr push "$T/v$n" --transport nccl \
		--bucket-size 128KiB --keep-together none \
		--engine-timeout 10s \
		--load-timeout 20s --accept-proof sampled "$@"
}

publish() {
	try "$@"
	[ "$status" -eq 0 ] || echo "$stderr" >&2
	assert_equal "$status" 0
	decided "$1"
}

# got NAME N: it has loaded every tensor of checkpoint N, byte by byte.
got() { python3 "$SRC/tests/fakecast.py" "$T/v$2" | diff - "$T/$1.got"; }

@test "cast: an SGLang server takes two versions by broadcast, byte by byte" {
	casting a
	publish 1
	got a 1
	run order '^a '
	assert_line --index 0 "a pause"
	assert_line --index 1 "a flush"
	assert_line --index 2 "a init"
	assert_line --index 3 "a begin"
	assert_line --index 4 "a cast"
	publish 2
	got a 2
}

@test "cast: an SGLang of before begin and end of an update" {
	SERVE=--old casting a
	publish 1
	got a 1
	[[ "$stderr" == *"loaded:  sampled"* ]]
}

# Groups that overlapped: NAME joined one while another was in one.
most_in_groups() {
	order | awk '$2 == "init" { n++; if (n > most) most = n }
		$2 == "destroy" { n-- }
		END { print most }'
}

@test "I6 I3 cast: three servers in waves of one and of two, each group by itself" {
	local name

	casting a b c
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
	[[ "$stderr" == *"loaded:  checked; servers compared: 3"* ]]
}

# is_kept_paused NAME: the last thing it was asked is not to resume.
is_kept_paused() { ! order "^$1 " | tail -n 1 | grep -q resume; }

# fails TEXT [FAULT]: a push that ends so; nobody serves a part of it.
fails() {
	run --separate-stderr env WEIR_STANDIN_FAULT="${2:-}" weir-push \
		--source "$T/v2" --fleet "$T/fleet.yaml" --registry \
		"$T/registry" --transport nccl --accept-proof sampled \
		--bucket-size 128KiB --load-timeout 2s
	[[ "$stderr" == *"engine a ("*"load: "*"$1"* ]] || echo "$stderr" >&2
	[[ "$stderr" == *"engine a ("*"load: "*"$1"* ]]
	assert_equal "$status" 2
	run decided 2
	assert_failure
	is_kept_paused a
	faults a "/none none"
}

@test "FL-03 VF-05 cast: each step fails or hangs: named, aborted, kept paused" {
	casting a
	publish 1
	checkpoint "$T/v2" --size 1MiB --seed 2
	faults a "POST:/init_weights_update_group status:400:no~free~port"
	fails "/init_weights_update_group: 400: no free port"
	faults a "POST:/init_weights_update_group silent"
	fails "its workers did not meet at the store: 0 of 1 came"
	# It says that it has joined, and has not.
	faults a 'POST:/init_weights_update_group status:200:{"success":true}' \
		"POST:/update_weights_from_distributed silent"
	fails "rank 0: the group of 2 did not form"
	faults a "POST:/update_weights_from_distributed status:400:partially"
	fails "/update_weights_from_distributed: 400: partially"
	faults a "POST:/end_weight_update 200fail"
	fails "/end_weight_update: 200:"
	fails "/update_weights_from_distributed: no answer" broadcast-hang
	fails "rank 0: " async-error
	publish 2
	got a 2
	run order '^a '
	assert_line --index "$((${#lines[@]} - 1))" "a resume"
}

@test "FL-11 cast: who cannot be broadcast to is refused, untouched" {
	casting a
	serve a sglang
	sed -i "s#url: \"[^\"]*\"#url: \"$(cat "$T/a.url")\"#" "$T/fleet.yaml"
	try 1
	assert_equal "$status" 78
	[[ "$stderr" == *"engine a ("*"/init_weights_update_group: it has no such path"* ]]
	casting a
	faults a '/server_info status:200:{"tp_size":2,"pp_size":2}'
	try 1
	assert_equal "$status" 78
	[[ "$stderr" == *"its group would be of 0 workers: 1 to 127, and no pipeline or data parallel ones"* ]]
	sed -i 's/kind: sglang/kind: vllm/' "$T/fleet.yaml"
	try 1
	assert_equal "$status" 78
	[[ "$stderr" == *"engine a: transport nccl to a vLLM with a url alone is not built yet"* ]]
	run order
	assert_output ""
}

@test "cast: no mover beside the source: said by name, untouched" {
	export WEIR_LIBEXEC=$T
	casting a
	try 1
	assert_equal "$status" 69
	[[ "$stderr" == *"transport nccl: unavailable, "*"weir-move-nccl is not installed"* ]]
	run order
	assert_output ""
}
