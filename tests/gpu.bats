#!/usr/bin/env bats
# Broadcast between devices, over stand-ins of CUDA and NCCL.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

setup() {
	common_setup
	needs_mover weir-move-nccl NCCL
	export CUDA_VISIBLE_DEVICES=0
}

# gpu_engine NAME DEVICE [FAULT]
gpu_engine() {
	CUDA_VISIBLE_DEVICES=$2 WEIR_STANDIN_FAULT=${3:-} engine "$1"
}

# gpu_engines NAME...: devices from 1 on.
gpu_engines() {
	local name device=0

	for name; do
		gpu_engine "$name" $((++device))
	done
	fleet "$@"
}

# gpush SOURCE [OPTION]...
gpush() { push "$@" --transport nccl; }

@test "nccl: two versions to two engines, byte by byte" {
	gpu_engines a b
	two_versions --transport nccl --bucket-size 512KiB
}

# A file of four buckets of 1536 bytes: its header, and three tensors.
smoke() {
	mkdir "$1"
	python3 - "$1/model.safetensors" <<-'END'
	import json, sys
	head = {n: {"dtype": "U8", "shape": [1536],
	            "data_offsets": [i * 1536, i * 1536 + 1536]}
	        for i, n in enumerate("abc")}
	text = json.dumps(head).ljust(1536 - 8).encode()
	with open(sys.argv[1], "wb") as f:
	    f.write(len(text).to_bytes(8, "little") + text)
	    f.write(bytes(i % 251 for i in range(3 * 1536)))
	END
}

# bounded GROUPS NAME...: what the event stream says of it.
bounded() {
	local groups=$1

	shift
	smoke "$T/one"
	gpu_engines "$@"
	gpush "$T/one" --bucket-size 1536 --max-inflight-buckets 2 \
		--max-inflight-bytes 3072 \
		--max-inflight-engine-groups "$groups" >/dev/null 2>"$T/err" ||
		cat "$T/err" >&2
	for name; do
		holds "$name" "$T/one"
	done
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines "$(IFS=,; echo "$*")" --groups "$groups" \
		--buckets 2 --bytes 3072
	assert_success
}

@test "nccl: four engines in waves of two, 2 buckets and 3072 bytes in flight" {
	bounded 2 a b c d
	assert_output --partial "waves=2 active=2 peak_buckets=2 peak_bytes=3072"
	run jq -s 'map(select(.event == "acked")) |
		map(.bytes) | add' "$(newest_run)/events"
	assert_output $((2 * 6144))
	# A ring of one bucket, and the bytes that prove a group.
	run jq 'select(.event == "summary").pinned_bytes' \
		"$(newest_run)/events"
	assert_output $((1536 + (1 << 20)))
}

@test "nccl: all at once is one group, and as much in flight" {
	bounded 0 a b c
	assert_output --partial "waves=1 active=3 peak_buckets=2 peak_bytes=3072"
}

# fails PATTERN [OPTION]...: not published, the old version is served, named.
fails() {
	local pattern=$1

	shift
	run --separate-stderr gpush "$T/one" --bucket-size 256KiB "$@"
	assert_equal "$status" 1
	assert_regex "$stderr" "$pattern"
	run decided 1
	assert_failure
	assert_clean_runs
	wait_for no_movers
}

# two FAULT_OF_B: engines a, and b with a fault; a source of 2 MiB.
two() {
	checkpoint "$T/one" --size 2MiB
	gpu_engine a 1
	gpu_engine b 2 "$1"
	fleet a b
}

@test "NC-01 a rank that never joins is named" {
	two begin-hang
	fails "engine b: did not join its group of 3 ranks" --load-timeout 10s
}

@test "NC-01 a group that does not form ends by its deadline" {
	two init-hang
	fails "all 3 ranks came, but their group did not form" --load-timeout 10s
}

@test "nccl: a source's mover that says nothing, and one that makes no group" {
	checkpoint "$T/one" --size 1MiB
	gpu_engine a 1
	fleet a
	mkdir "$T/libexec"
	cat >"$T/libexec/weir-move-nccl" <<-END
	#!/bin/sh
	[ "\$1" != check ] || exec "$BUILD/weir-move-nccl" "\$@"
	exec sleep 1000
	END
	chmod +x "$T/libexec/weir-move-nccl"
	WEIR_LIBEXEC="$T/libexec" fails \
		"engine a: weir-move-nccl said nothing for 4 s" \
		--engine-timeout 4s
	WEIR_STANDIN_FAULT=begin-hang fails \
		"engine a: .*the start of a group did not return within 4000 ms" \
		--load-timeout 4s
}

@test "NC-03 nccl: a call that hangs ends the mover, at either end, by name" {
	local call

	checkpoint "$T/one" --size 1MiB
	fleet a
	for call in "the start of the device" "the start of a group" \
		"the launch of a bucket"; do
		hangs nccl 1 source "$call"
	done
	for call in "the start of a group" "the first bytes of a group" \
		"the beginning of a copy"; do
		hangs nccl 1 engine "$call"
	done
}

@test "NC-03 NC-06 a killed receiver is seen, and an abort that hangs ends" {
	two broadcast-hang=2
	WEIR_STANDIN_FAULT=abort-hang start push weir-push --transport nccl \
		--source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 256KiB
	wait_for told granted
	kill_engine b
	ends "$(pid_of push)"
	[ "$status" -eq 1 ] || [ "$status" -eq 2 ]
	run cat "$T/push.err"
	assert_output --regexp "engine b"
	wait_for no_movers
	rm -f "$T/b.sock" "$T/b.sock.fd"
}

@test "NC-09 two ranks on one device are refused, by its UUID" {
	checkpoint "$T/one" --size 1MiB
	gpu_engine a 1
	CUDA_VISIBLE_DEVICES=3,1 engine b
	CUDA_VISIBLE_DEVICES=1,3 engine c
	fleet a b
	run --separate-stderr gpush "$T/one"
	assert_success
	fleet a c
	run --separate-stderr gpush "$T/one" --weight-version 2
	assert_equal "$status" 1
	assert_regex "$stderr" "are both on GPU-[0-9a-f-]*01: NCCL needs a device"
}

@test "NC-09 the source's device is no engine's" {
	checkpoint "$T/one" --size 1MiB
	gpu_engine a 0
	fleet a
	fails "engine a: it and the source are both on GPU-.*use transport host"
}

@test "NC-11 a group that forms, but whose bytes never come" {
	checkpoint "$T/one" --size 1MiB
	gpu_engine a 1
	fleet a
	export WEIR_STANDIN_FAULT=no-data NCCL_SOCKET_IFNAME=eth7
	fails "no data came within.*NCCL_SOCKET_IFNAME is eth7" \
		--load-timeout 4s
}

@test "NC-12 another NCCL is refused, both named" {
	checkpoint "$T/one" --size 1MiB
	WEIR_STANDIN_NCCL=22703 gpu_engine a 1
	fleet a
	fails "engine a: it has NCCL 2.27.3, the source 2.28"
}

# No engine has begun anything: it knows no registry yet.
fails_early() {
	run --separate-stderr gpush "$T/one"
	assert_equal "$status" 69
	assert_regex "$stderr" "$1"
	assert_not_exist "$T/a/fence"
	assert_not_exist "$T/registry/open"
	run leftover_processes
	refute_output --partial weir-move
}

@test "NC-13 no library, no mover, no device: said by name, nothing begun" {
	checkpoint "$T/one" --size 1MiB
	gpu_engine a 1
	fleet a
	mkdir "$T/libexec"
	export WEIR_LIBEXEC="$T/libexec"
	fails_early "transport nccl: unavailable, .*weir-move-nccl is not installed"
	cat >"$T/libexec/weir-move-nccl" <<-END
	#!/bin/sh
	exec /lib64/ld-linux-x86-64.so.2 --inhibit-cache \
		--library-path /lib/x86_64-linux-gnu "$BUILD/weir-move-nccl" "\$1"
	END
	chmod +x "$T/libexec/weir-move-nccl"
	unset LD_LIBRARY_PATH
	fails_early "transport nccl: unavailable, libnccl.so.2 not found"
	unset WEIR_LIBEXEC
	export LD_LIBRARY_PATH="$BUILD/tests/standin"
	export WEIR_STANDIN_FAULT=no-device
	fails_early "no CUDA device: CUDA driver version is insufficient"
}

# The first broadcast proves the group: which of its members is heard first,
# the one with the error or the one that got other bytes for it, is chance.
@test "nccl: an error in a broadcast names the engine, and the next push works" {
	local either="engine b: .*remote process exited"

	either+="|engine a: .*other bytes came than were sent"
	two async-error
	fails "$either"
	stop b
	gpu_engine b 2 async-error=2
	fails "$either"
	stop b
	gpu_engine b 2
	gpush "$T/one" >/dev/null 2>&1
	holds a "$T/one"
	holds b "$T/one"
}

@test "nccl: no memory on the device, and a device that fails for good" {
	two oom=2
	fails "engine b: .*cudaMalloc: need .* bytes on the device, have"
	stop b
	gpu_engine b 2 sticky=40
	# Whoever sees first that the group is broken says what it sees.
	fails "engine [ab]: .*(illegal memory access|remote process exited)"
}

@test "nccl: without pinned memory it is slower, and says so once" {
	checkpoint "$T/one" --size 1MiB
	gpu_engine a 1
	fleet a
	WEIR_STANDIN_FAULT=no-pin run --separate-stderr gpush "$T/one"
	assert_success
	assert_equal "$(grep -c "no pinned memory" <<<"$stderr")" 1
	refute_regex "$stderr" "pinned: "
	holds a "$T/one"
}

@test "NC-07 nccl: one of three groups cannot be made: nothing is left of the others" {
	local k

	checkpoint "$T/one" --size 1MiB
	gpu_engines a b c
	for k in 1 2 3; do
		WEIR_STANDIN_FAULT=init-error=$k fails \
			"ncclCommInitRankConfig: unhandled system error" \
			--max-inflight-engine-groups 1
	done
	WEIR_STANDIN_FAULT=init-error gpush "$T/one" >/dev/null 2>&1 || true
	gpush "$T/one" --max-inflight-engine-groups 1 >/dev/null 2>&1
	for k in a b c; do
		holds $k "$T/one"
	done
}

# The first one of a group is of the bytes that prove it.
@test "nccl: a bucket is one broadcast, however many tensors are in it" {
	checkpoint "$T/one" --size 1MiB --shards 3
	gpu_engine a 1
	fleet a
	WEIR_STANDIN_LOG="$T/casts" gpush "$T/one" >/dev/null 2>&1
	run jq -s 'map(select(.event == "acked").bytes)[]' \
		"$(newest_run)/events"
	assert_regex "$output" "^[0-9]+$"
	assert_equal "$(sed -n 's/^cast 0 //p' "$T/casts")" \
		$'1048576\n'"$output"
}

# open_files NAME: how many descriptors the process has.
open_files() { find "/proc/$(pid_of "$1")/fd" | wc -l; }

# threads NAME: of that process.
threads() { find "/proc/$(pid_of "$1")/task" -mindepth 1 -maxdepth 1 | wc -l; }

# PUSHES=50: as many as a life of an engine has; fewer are enough for most.
@test "NC-07 pushes that fail and pushes that do not leave nothing" {
	local n t i

	two async-error=5
	gpush "$T/one" >/dev/null 2>&1 || true
	n=$(open_files a)
	t=$(threads a)
	for ((i = 0; i < ${PUSHES:-3}; i++)); do
		gpush "$T/one" --bucket-size 256KiB >/dev/null 2>&1 || true
	done
	has_as_many() {
		[[ $(open_files a) -eq $n && $(threads a) -eq $t ]]
	}
	wait_for has_as_many
	run leftover_processes
	refute_output --partial weir-move
}

@test "nccl: what it cannot do is refused before any engine is touched" {
	checkpoint "$T/one" --size 1MiB
	gpu_engines a b
	run --separate-stderr gpush "$T/one" --min-engines 1
	assert_equal "$status" 78
	assert_regex "$stderr" "transport nccl cannot lose an engine"
}

# mutant NAME WHERE: a push with that fault at the source, or at engine b.
mutant() {
	local name=$1 where=$2

	case $where in
	source) export WEIR_MUTANT=$name ;;
	engine) WEIR_MUTANT=$name gpu_engine b 2 ;;
	esac
	run --separate-stderr gpush "$T/one" --bucket-size 64KiB \
		--max-inflight-buckets 8 \
		--load-timeout 30s
	unset WEIR_MUTANT
}

# Each is what the code does right, left out; what finds it is the digest of
# the bytes that are in the slot.
@test "nccl: four mutants, each found before anything is published" {
	local name

	checkpoint "$T/one" --size 2MiB
	export WEIR_LIBEXEC="$BUILD/tests/standin" WEIR_STANDIN_PAUSE_US=3000
	fleet b
	gpu_engine b 2
	for name in no-wait early-ack; do
		mutant "$name" source
		assert_equal "$name $status" "$name 1"
		assert_regex "$stderr" "engine b: .*holds other bytes"
	done
	mutant none source
	assert_success
	stop b
	for name in early-use early-ack wrong-order; do
		mutant "$name" engine
		assert_equal "$name $status" "$name 1"
		assert_regex "$stderr" "engine b: "
		stop b
	done
	run decided 2
	assert_failure
}

acked_buckets() {
	[ "$(grep -c '"event":"acked"' "$(newest_run)/events")" -ge "$1" ]
}

# Engine a is sealed by then, and b's mover waits for its last bucket.
@test "I9 nccl: transfer killed in a broadcast is started again, in new groups" {
	smoke "$T/one"
	gpu_engine a 1
	gpu_engine b 2 broadcast-hang=5
	fleet a b
	start push weir-push --transport nccl --source "$T/one" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" \
		--bucket-size 1536 --max-inflight-engine-groups 1
	wait_for acked_buckets 7
	kill -KILL "$(pid_in_run transfer.1)"
	ends_with 0 push
	holds a "$T/one"
	holds b "$T/one"
}
