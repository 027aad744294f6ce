#!/usr/bin/env bats
# Transport cuda-ipc, over the stand-in of CUDA.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

setup() {
	common_setup
	needs_mover weir-move-ipc CUDA
	export CUDA_VISIBLE_DEVICES=2
}

# ipush SOURCE [OPTION]...
ipush() { push "$@" --transport cuda-ipc; }

@test "cuda-ipc: two versions to two engines on the source's device, byte by byte" {
	engines a b
	fleet a b
	two_versions --transport cuda-ipc --bucket-size 512KiB
}

@test "IP-02 cuda-ipc: a buffer is kept until slow readers have it; waves and credit hold" {
	checkpoint "$T/one" --size 2MiB
	WEIR_STANDIN_PAUSE_US=20000 engine a
	engines b c d
	fleet a b c d
	run --separate-stderr ipush "$T/one" --bucket-size 128KiB \
		--max-inflight-engine-groups 2 --max-inflight-buckets 3 \
		--max-inflight-bytes 1MiB
	assert_success
	for name in a b c d; do
		holds "$name" "$T/one"
	done
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines a,b,c,d --groups 2 --buckets 3 --bytes $((1 << 20))
	assert_success
	assert_output --partial "waves=2 active=2 peak_buckets=3"
	run jq 'select(.event == "summary") | .pinned_bytes <= .peak_credit_bytes' \
		"$(newest_run)/events"
	assert_output true
}

@test "cuda-ipc: pinned memory is in the summary; without any it says so once" {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engine a
	fleet a
	run --separate-stderr ipush "$T/one" --bucket-size 128KiB
	assert_success
	assert_regex "$stderr" "credit: .*; pinned: 1[0-9.]* [kK]i?B"
	WEIR_STANDIN_FAULT=no-pin run --separate-stderr ipush "$T/two" \
		--bucket-size 128KiB
	assert_success
	assert_equal "$(grep -c "no pinned memory" <<<"$stderr")" 1
	refute_regex "$stderr" "; pinned: "
}

# No mover has ended with memory of another process mapped.
all_unmapped() {
	wait_for no_movers
	contains "$T/maps" "open 0" && ! grep "open [^0]" "$T/maps"
}

# PUSHES=100: as many, before one that fails; two otherwise.
@test "IP-01 cuda-ipc: four readers close what they map, also of a push that fails" {
	local i

	export WEIR_STANDIN_LOG="$T/maps"
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engines a b c d
	fleet a b c d
	for ((i = 0; i < ${PUSHES:-2}; i += 2)); do
		ipush "$T/one" --max-inflight-engine-groups 2 >/dev/null 2>&1
		ipush "$T/two" --bucket-size 256KiB >/dev/null 2>&1
	done
	all_unmapped
	stop d
	: >"$T/maps"
	# The first of two buffers is mapped by then.
	WEIR_STANDIN_FAULT=no-map=2 engine d
	run --separate-stderr ipush "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine d: .*cudaIpcOpenMemHandle"
	all_unmapped
}

# cannot_read: a push to engine a is refused, by both UUIDs, and pauses nobody.
cannot_read() {
	run --separate-stderr ipush "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: it is on GPU-[-0-9a-f]*03, the source on GPU-[-0-9a-f]*02, which it cannot read: .*no peer access"
	assert_not_exist "$T/paused"
}

@test "IP-03 cuda-ipc: a device that cannot read the source's is refused, by both UUIDs" {
	checkpoint "$T/one" --size 1MiB
	CUDA_VISIBLE_DEVICES=3 engine a --on-pause "touch $T/paused"
	fleet a
	cannot_read
	# By UUID, not by number.
	CUDA_VISIBLE_DEVICES=3,2 ipush "$T/one" >/dev/null 2>"$T/err"
	holds a "$T/one"
	stop a
	rm -rf "$T/paused"
	WEIR_STANDIN_FAULT=no-peer CUDA_VISIBLE_DEVICES=3,2 engine a \
		--on-pause "touch $T/paused"
	cannot_read
}

@test "cuda-ipc: engines on the source's device and on a peer of it, byte by byte" {
	engine a
	CUDA_VISIBLE_DEVICES=3,2 engine b
	fleet a b
	two_versions --transport cuda-ipc --bucket-size 512KiB
}

@test "IP-04 cuda-ipc: memory that cannot be shared or mapped, with the call and hints" {
	checkpoint "$T/one" --size 1MiB
	engine a --on-pause "touch $T/paused"
	fleet a
	WEIR_STANDIN_FAULT=no-ipc run --separate-stderr ipush "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "cudaIpcGetMemHandle: .*ptrace_scope"
	stop a
	WEIR_STANDIN_FAULT=no-map engine a --on-pause "touch $T/paused"
	run --separate-stderr ipush "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: .*cudaIpcOpenMemHandle: .*ptrace_scope"
	assert_not_exist "$T/paused"
}

# exclusive_in PLAN: numbers of its exclusive buckets, which hold the routed
# experts, and them alone.
exclusive_in() {
	weir-dump "$1" | python3 -c '
import json, sys
alone = []
for m in map(json.loads, sys.stdin):
    if m["msg"] == "bucket":
        routed = {".experts." in p["name"] for p in m["parts"]}
        assert routed == {m["exclusive"]}, m
        alone += [str(m["id"])] if m["exclusive"] else []
print(",".join(alone))'
}

@test "cuda-ipc: routed experts are serial, below the ceiling; all else pipelines" {
	local alone by e l tensors=() m=model.layers

	for l in 0 1 2; do
		tensors+=("$m.$l.self_attn.q_proj.weight:U8:1000")
		for e in 0 1; do
			tensors+=("$m.$l.mlp.experts.$e.up_proj.weight:U8:1000"
				"$m.$l.mlp.experts.$e.down_proj.weight:U8:900")
		done
		tensors+=("$m.$l.mlp.shared_experts.up_proj.weight:U8:1000"
			"$m.$l.mlp.gate.weight:U8:1000")
	done
	python3 "$SRC/tests/fixtures/mktensors.py" "$T/one" "${tensors[@]}"
	engines a b
	fleet a b
	run --separate-stderr ipush "$T/one" --bucket-size 2048 \
		--max-inflight-engine-groups 1 --max-inflight-buckets 3 \
		--max-inflight-bytes 8192
	assert_success
	holds a "$T/one"
	holds b "$T/one"
	alone=$(exclusive_in "$(newest_run)/plan.weir")
	assert_regex "$alone" "^[0-9]+(,[0-9]+){5}$"
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines a,b --groups 1 --buckets 3 --bytes 8192 \
		--exclusive "$alone"
	assert_success
	assert_output --partial "waves=2 active=1 peak_buckets=3"
	run ipush "$T/one" --bucket-size 2048 --dry-run
	assert_success
	assert_output --partial "routed experts: 6 buckets, each with nothing"
	run --separate-stderr ipush "$T/one" --max-inflight-bytes 4kB
	assert_equal "$status" 65
	assert_regex "$stderr" "exceeds --max-inflight-bytes"
	run --separate-stderr ipush "$T/one" --expert-routing auto
	one_line_error 64 "--expert-routing auto: not built yet"
	# The published buckets again, by this transport and by one that has no
	# use for it.
	for by in cuda-ipc host; do
		weir-plan --only a --registry "$T/registry" --transport $by \
			--fleet "$T/fleet.yaml" -o "$T/$by"
	done
	assert_equal "$(exclusive_in "$T/cuda-ipc")" "$alone"
	run -0 weir-dump "$T/host"
	assert_output --partial '"exclusive":false'
	refute_output --partial '"exclusive":true'
}

@test "cuda-ipc: a killed reader fails the push, and the next one heals all" {
	checkpoint "$T/one" --size 2MiB
	engine a
	WEIR_STANDIN_PAUSE_US=200000 engine b
	fleet a b
	start push weir-push --transport cuda-ipc --source "$T/one" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" \
		--bucket-size 64KiB
	wait_for told granted
	kill_engine b
	ends_with 2 push || ends_with 1 push
	run cat "$T/push.err"
	assert_output --regexp "engine b"
	rm -f "$T/b.sock" "$T/b.sock.fd"
	engine b
	ipush "$T/one" >/dev/null 2>&1
	holds a "$T/one"
	holds b "$T/one"
}

@test "I9 cuda-ipc: transfer killed under way is started again, with new buffers" {
	checkpoint "$T/one" --size 2MiB
	engine a
	WEIR_STANDIN_PAUSE_US=50000 engine b
	fleet a b
	start push weir-push --transport cuda-ipc --source "$T/one" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" \
		--bucket-size 64KiB --max-inflight-buckets 2
	wait_for told acked
	kill -KILL "$(head -n 1 "$(newest_run)/transfer.1")"
	ends_with 0 push
	holds a "$T/one"
	holds b "$T/one"
}

@test "NC-03 cuda-ipc: a call that hangs ends the mover, at either end, by name" {
	checkpoint "$T/one" --size 1MiB
	fleet a
	hangs cuda-ipc 2 source "the start of a group"
	hangs cuda-ipc 2 engine "the start of the device"
	hangs cuda-ipc 2 engine "the beginning of a copy"
}

@test "cuda-ipc: what it cannot do is refused before any engine is touched" {
	checkpoint "$T/one" --size 1MiB
	engines a b
	fleet a b
	run --separate-stderr ipush "$T/one" --min-engines 1
	assert_equal "$status" 78
	assert_regex "$stderr" "transport cuda-ipc cannot lose an engine"
	WEIR_LIBEXEC="$T" run --separate-stderr ipush "$T/one"
	assert_equal "$status" 69
	assert_regex "$stderr" "transport cuda-ipc: unavailable, .*weir-move-ipc is not installed"
}

# mutant SOURCE_FAULT SOURCE_US ENGINE_US ENGINE_FAULT: a push by such movers.
mutant() {
	WEIR_STANDIN_PAUSE_US=$3 WEIR_MUTANT=$4 engine b
	WEIR_STANDIN_PAUSE_US=$2 WEIR_MUTANT=$1 run --separate-stderr \
		ipush "$T/one" --bucket-size 64KiB --max-inflight-buckets 8 \
		--load-timeout 30s
	stop b
}

# As in gpu.bats: what finds them is the digest of what is in the slot.
@test "cuda-ipc: two mutants at either end, each found before anything is published" {
	checkpoint "$T/one" --size 2MiB
	export WEIR_LIBEXEC="$BUILD/tests/standin"
	fleet b
	mutant no-wait 20000 0 none
	assert_equal "$status" 1
	assert_regex "$stderr" "engine b: .*holds other bytes"
	mutant early-reuse 0 20000 none
	assert_equal "$status" 1
	assert_regex "$stderr" "engine b: .*holds other bytes"
	mutant none 0 20000 no-wait
	assert_equal "$status" 1
	assert_regex "$stderr" "engine b: .*holds other bytes"
	mutant none 0 300 none
	assert_success
}
