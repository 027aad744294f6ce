#!/usr/bin/env bats
# Several source ranks over nccl and cuda-ipc, over stand-ins of CUDA and NCCL:
# rank r is on device r that its weir-transfer sees.
# shellcheck disable=SC2030,SC2031,SC2154 # exports of tests; set by run

load ranks

setup() {
	common_setup
	needs_mover weir-move-nccl NCCL
	export WEIR_STANDIN_DEVICES=16
}

# workers_at NAME COUNT DEVICE: worker w on device DEVICE + w.
workers_at() {
	local w

	for ((w = 0; w < $2; w++)); do
		CUDA_VISIBLE_DEVICES=$(($3 + w)) worker "$1" $w
	done
}

# gpush DEVICES TRANSPORT [OPTION]...: of ${sources[@]}
gpush() {
	CUDA_VISIBLE_DEVICES=$1 ranked_push --transport "$2" "${@:3}"
}

# moves TRANSPORT: four unequal ranks at once, then two in waves of one engine,
# with exact credit.  FIRST[name] is the device of its first worker.
moves() {
	local name

	ranks q 4 1
	workers_at a 4 "${FIRST[a]}"
	fleet_of 4 a
	run --separate-stderr gpush 0,1,2,3 "$1" --bucket-size 100KiB \
		--max-inflight-buckets 3
	assert_success
	all_hold q 4 a
	pairs
	for name in b c; do
		workers_at "$name" 2 "${FIRST[$name]}"
	done
	fleet_of 2 b c
	run --separate-stderr gpush 0,1 "$1" --bucket-size 1536 \
		--max-inflight-engine-groups 1 --max-inflight-buckets 2 \
		--max-inflight-bytes 3072
	assert_success
	all_hold r 2 b c
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines b,c --groups 1 --buckets 2 --bytes 3072
	assert_success
	assert_output --partial "waves=2 active=1 peak_buckets=2 peak_bytes=3072"
	assert_clean_runs
}

@test "nccl: four and two ranks, one communicator for each and each engine" {
	declare -A FIRST=([a]=4 [b]=8 [c]=10)
	moves nccl
}

@test "cuda-ipc: four and two ranks, each with its workers on its device" {
	declare -A FIRST=([a]=0 [b]=0 [c]=0)
	moves cuda-ipc
}

# The movers of the newest run's source, by rank.
source_movers() {
	local transfer

	transfer=$(pid_in_run transfer.1)
	tr -s ' ' '\n' <"/proc/$transfer/task/$transfer/children"
}

# acked_in_wave N BUCKET: it was, by all workers of its engines.
acked_in_wave() {
	grep -q "\"event\":\"acked\".*\"wave\":$1,\"bucket\":$2," \
		"$(newest_run)/events"
}

# Worker 1 of engine b hangs in the last of its five buckets.
hanging_push() {
	look_at_new_runs
	CUDA_VISIBLE_DEVICES=0,1 start push weir-push "${sources[@]}" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" \
		--transport nccl --bucket-size 1536 \
		--max-inflight-engine-groups 1
	wait_for acked_in_wave 1 3
}

@test "nccl: one rank's mover is killed: nothing is published; transfer is: all of it" {
	local movers

	pairs
	workers_at a 2 4
	CUDA_VISIBLE_DEVICES=6 worker b 0
	CUDA_VISIBLE_DEVICES=7 WEIR_STANDIN_FAULT=broadcast-hang=6 worker b 1
	fleet_of 2 a b
	hanging_push
	mapfile -t movers < <(source_movers)
	assert_equal "${#movers[@]}" 2
	kill -KILL "${movers[1]}"
	ends_with 1 push
	run cat "$T/push.err"
	assert_output --regexp "engine b: .*(source rank 1: weir-move-nccl was killed|remote process exited)"
	run decided 1
	assert_failure
	assert_not_exist "$T/a.0/current"
	# Another mover of b's has one bucket left, and does not hang in it.
	hanging_push
	kill -KILL "$(pid_in_run transfer.1)"
	ends_with 0 push
	all_hold r 2 a b
}

# refused CODE PART...: the last run was, before any engine was touched.
refused() {
	one_line_error "$@"
	assert_not_exist "$T/a.0/fence"
}

@test "ranks on devices: too few devices, or workers, are refused before any engine" {
	local by

	ranks r 2 1
	workers_at a 1 4
	fleet_of 2 a
	for by in nccl cuda-ipc; do
		run --separate-stderr gpush 4 "$by"
		refused 69 "2 source ranks, each on a device of its own:" \
			"there is no CUDA device 1: 1 can be seen"
	done
	fleet_of 1 a
	run --separate-stderr gpush 0,1 nccl
	refused 78 "engine a: 1 worker, but 2 source ranks"
	fleet_of 3 a
	run --separate-stderr gpush 0,1 cuda-ipc
	refused 78 "engine a: 3 workers, but 2 source ranks"
}

# refused_later DEVICES TRANSPORT PATTERN: by an engine, and none is paused.
refused_later() {
	run --separate-stderr gpush "$1" "$2"
	assert_equal "$status" 1
	assert_regex "$stderr" "$3"
	assert_not_exist "$T/paused"
}

@test "NC-09 IP-03 ranks: one device for two, and another than the rank's" {
	ranks r 2 1
	CUDA_VISIBLE_DEVICES=4 worker a 0 --on-pause "touch $T/paused"
	CUDA_VISIBLE_DEVICES=5 worker a 1 --on-pause "touch $T/paused"
	fleet_of 2 a
	refused_later 5,6 nccl "engine a: its worker 1 and source rank 0 are both on GPU-[-0-9a-f]*05: NCCL needs a device"
	refused_later 4,6 cuda-ipc "engine a: its worker 1 is on GPU-[-0-9a-f]*05, source rank 1 on GPU-[-0-9a-f]*06, which it cannot read: "
}
