#!/usr/bin/env bats
# Versions in a device's memory and their consumers, over the stand-in of CUDA.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load device

@test "device: a consumer maps version 1, waits for 2, and lets go" {
	engine a --device 0
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	tell c "wait 60000"
	dpush "$T/two"
	answered c
	run tail -n 1 "$T/c.out"
	assert_output "ok 2"
	# What it has is what it had.
	cp "$T/c.dump" "$T/before"
	tell c "dump $T/c.dump" ok
	cmp "$T/c.dump" "$T/before"
	tell c release ok
	maps c "$T/two" 2
}

@test "device: a version that is mapped is not overwritten: the next but one waits" {
	engine a --device 0
	consumer c
	tell c map "no .*no version is published"
	dpush "$T/one"
	tell c map "ok 1"
	dpush "$T/two"
	start push weir-push --source "$T/three" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 512KiB
	wait_for told acked
	tell c "dump $T/c.dump" ok
	run decided 3
	assert_failure
	tell c release ok
	ends_with 0 push
	maps c "$T/three" 3
}

@test "device: a consumer that never lets go fails the push, by name" {
	engine a --device 0 --load-timeout 100ms
	consumer c
	dpush "$T/one"
	tell c map "ok 1"
	dpush "$T/two"
	run --separate-stderr push "$T/three"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: .*a consumer still maps slot [01] of stand-in 0, and with it version 1: version 3 needs its place"
	tell c release ok
	maps c "$T/two" 2
	dpush "$T/three"
	tell c release ok
	maps c "$T/three" 3
}

@test "device: an engine that is killed and started again offers the same version" {
	engine a --device 0
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	kill_engine a
	wait_for live_is c 0
	tell c "change 60000" "ok 0"
	tell c map "no .*no version is published"
	rm -f "$T/a.sock" "$T/a.sock.fd"
	engine a --device 0
	tell c "wait 60000" "ok 1"
	tell c release ok
	maps c "$T/one" 1
	tell c live "ok 1"
	dpush "$T/two"
	tell c release ok
	maps c "$T/two" 2
}

@test "device: who waits is told that the mover was killed, and takes nothing from it" {
	engine a --device 0
	dpush "$T/one"
	consumer c
	consumer d
	maps c "$T/one" 1
	tell c "change 60000"
	kill -KILL "$(mover_pid)"
	answered c
	run tail -n 1 "$T/c.out"
	assert_output "ok 0"
	tell d "wait 0" "no no other version"
	tell d map "no .*no version is published"
	wait_for is_dead "$(pid_of a)"
}

@test "device: a child that a consumer has forked holds nothing that it released" {
	engine a --device 0 --load-timeout 30s
	dpush "$T/one"
	consumer c
	tell c map "ok 1"
	tell c fork ok
	tell c release ok
	dpush "$T/two"
	dpush "$T/three"
	maps c "$T/three" 3
}

# text_is ENTRY...: of the slot with version 1; its head is left as it was.
text_is() {
	python3 - "$T/a/device" "$@" <<-'END'
	import os, sys
	for name in "01":
	    path = os.path.join(sys.argv[1], name)
	    if os.path.exists(path):
	        head = open(path, "rb").read().split(b"\0")[0].split(b" ")
	        head[2] = b"%d" % (len(sys.argv) - 2)
	        text = [b" ".join(head)] + [a.encode() for a in sys.argv[2:]]
	        open(path, "wb").write(b"".join(t + b"\0" for t in text))
	END
}

@test "device: a slot whose text is broken is refused by the consumer" {
	local entry

	engine a --device 0
	dpush "$T/one"
	consumer c
	text_is "0 8 BF16 2,2 x"
	tell c map "ok 1"
	tell c release ok
	for entry in "0 8 BF16 2,2" "0 8 BF16 2," "0 8 BF16 -" "0 8 BF16" \
		"0 8" "" "0 8 BF16 x 2" "0 999999999999 BF16 2 x" \
		"0 8 BF16 $(printf '1,%.0s' {1..64})1 x"; do
		text_is "$entry"
		tell c map "no .* is no tensor"
	done
	sed -i '1s/[0-9]*\x00/1\x00/' "$T"/a/device/[01]
	tell c map "no .*what is in the slot cannot be read"
}

@test "device: a page that is being made is none yet" {
	mkdir -p "$T/a/device"
	: >"$T/a/device/page"
	run "$BUILD/tests/devclient" "$T/a"
	assert_failure
	assert_output --partial "weir-engine has just begun"
	truncate -s 4096 "$T/a/device/page"
	run "$BUILD/tests/devclient" "$T/a"
	assert_failure
	assert_output --partial "weir-engine has just begun"
}

@test "IP-03 device: by UUID, however each process counts; another is refused" {
	CUDA_VISIBLE_DEVICES=3,1 engine a --device 1
	dpush "$T/one"
	CUDA_VISIBLE_DEVICES=1,3 consumer c
	maps c "$T/one" 1
	run env CUDA_VISIBLE_DEVICES=1,3 "$BUILD/tests/devclient" "$T/a" 1
	assert_failure
	assert_output --regexp "no the weights are on GPU-.*01, device 1 here is GPU-.*03$"
	run env CUDA_VISIBLE_DEVICES=2 "$BUILD/tests/devclient" "$T/a"
	assert_failure
	assert_output --regexp "on GPU-.*01, which this process does not see$"
}

@test "IP-04 device: memory that cannot be shared, with the call and hints" {
	WEIR_STANDIN_FAULT=no-ipc engine a --device 0
	run --separate-stderr push "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "cudaIpcGetMemHandle: invalid argument: .*ptrace_scope"
}

@test "IP-01 device: 8 versions, two consumers, one of them killed: nothing is left" {
	local n

	WEIR_STANDIN_MEMORY=$((6 << 20)) engine a --device 0
	dpush "$T/one"
	consumer c
	consumer d
	tell d map ok
	kill_and_reap "$(pid_of d)"
	dpush "$T/two"
	n=$(open_files)
	for ((v = 3; v <= 8; v++)); do
		tell c map "ok $((v - 1))"
		tell c release ok
		dpush "$T/$( ((v % 2)) && echo one || echo two)"
	done
	has_no_more() { [ "$(open_files)" -le "$n" ]; }
	wait_for has_no_more
	maps c "$T/two" 8
}

# Of the mover that has the device.
open_files() { find "/proc/$(mover_pid)/fd" | wc -l; }

@test "device: two versions that do not fit are refused, with need and have" {
	WEIR_STANDIN_MEMORY=$((3 << 20)) engine a --device 0
	dpush "$T/one"
	run --separate-stderr push "$T/two"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: .*cudaMalloc: need [0-9]* bytes on the device, have [0-9]* of 3145728.*--in-place"
	consumer c
	maps c "$T/one" 1
}

@test "device in place: loaded while paused, once its consumer has let go" {
	WEIR_STANDIN_MEMORY=$((3 << 20)) engine a --device 0 --in-place \
		--on-pause "touch $T/paused"
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	rm "$T/paused"
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 512KiB
	tell c "change 60000" ok
	assert_exists "$T/paused"
	tell c "dump $T/c.dump" ok
	cmp "$T/c.dump" "$T/c.want"
	tell c release ok
	ends_with 0 push
	maps c "$T/two" 2
}

@test "device in place: what a consumer has of a former life holds up nobody" {
	engine a --device 0 --in-place
	dpush "$T/one"
	consumer c
	tell c map "ok 1"
	kill_engine a
	wait_for live_is c 0
	rm -f "$T/a.sock" "$T/a.sock.fd"
	engine a --device 0 --in-place --load-timeout 100ms
	consumer d
	tell d "wait 60000" "ok 1"
	maps d "$T/one" 1
	tell c release ok
	maps c "$T/one" 1
}

@test "device in place: a version that had to wait too long leaves the old one offered" {
	engine a --device 0 --in-place --load-timeout 100ms
	dpush "$T/one"
	consumer c
	consumer d
	maps c "$T/one" 1
	run --separate-stderr push "$T/two" --engine-timeout 5s
	assert_equal "$status" 3
	assert_regex "$stderr" "a consumer still maps slot 0"
	maps d "$T/one" 1
	tell c release ok
	tell d release ok
	dpush "$T/three"
	maps d "$T/three" 3
}

# The hook that fails stops the mover, so that whoever does not wait for the
# device is ahead of it.
@test "device: after a failed on-swap nobody is resumed before the device is back" {
	cat >"$T/swap.sh" <<-'END'
	[ -e "$T/bad" ] || exit 0
	rm "$T/bad"
	kill -STOP "$(cat "$T/mover")"
	echo stopped >"$T/stopped"
	exit 1
	END
	engine a --device 0 --on-swap "sh '$T/swap.sh'" --on-resume \
		"echo map | '$BUILD/tests/devclient' '$T/a' >>'$T/resumed' 2>&1"
	mover_pid >"$T/mover"
	dpush "$T/one"
	: >"$T/resumed"
	touch "$T/bad"
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 512KiB
	wait_for test -s "$T/stopped"
	sleep 0.5 # what is tested is that nothing happens
	kill -CONT "$(mover_pid)"
	ends_with 0 push
	# Resumed with the first; the next try has swapped.
	run grep -o "ok [12]" "$T/resumed"
	assert_line --index 0 "ok 1"
	assert_line --index 1 "ok 2"
}

# Nothing is asked any more of the engine, and it has done all of it.
at_rest() {
	[ "$(weir-status --registry "$T/registry" --json |
		jq '.engines[0].paused')" = false ]
}

@test "device in place: after a failed on-swap the old version is loaded again" {
	engine a --device 0 --in-place --on-swap "[ ! -e '$T/bad' ]"
	touch "$T/bad"
	run --separate-stderr push "$T/one" --engine-timeout 3s
	assert_equal "$status" 3
	wait_for at_rest
	consumer c
	tell c map "no .*no version is published"
	rm "$T/bad"
	dpush "$T/one" --weight-version 2
	maps c "$T/one" 2
	tell c release ok
	touch "$T/bad"
	run --separate-stderr push "$T/two" --engine-timeout 3s
	assert_equal "$status" 3
	assert_regex "$stderr" "engine a .*on-swap failed"
	wait_for at_rest
	maps c "$T/one" 2
	tell c release ok
	rm "$T/bad"
	dpush "$T/three"
	maps c "$T/three" 4
}

# copied_back: movers that have no code for a device.
copied_back() {
	mkdir "$T/movers"
	cp "$BUILD/weir-move-slot" "$T/movers"
	export WEIR_LIBEXEC="$T/movers"
}

# damaged K [OPTION]...: the K-th copy is, and a push is refused for it.
damaged() {
	WEIR_STANDIN_FAULT=bad-copy=$1 engine a --device 0 "${@:2}"
	run --separate-stderr push "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: .*version 1 has digest [0-9a-f]* on the device, [0-9a-f]* in the store"
	run decided 1
	assert_failure
}

# hashed_there RE: as many leaves as that, of the version that came last.
hashed_there() {
	run tail -n 1 <(grep -h "bytes on the device" "$T/a.err")
	assert_output --regexp "hashed in [0-9.]* s, $1 leaves of them there"
}

@test "device: what is on the device is copied back and hashed: a byte that differs is found" {
	copied_back
	damaged 3
	stop a
	engine a -v --device 0
	dpush "$T/one"
	hashed_there 0
}

@test "device: code for the device hashes what is there: a byte that differs is found" {
	[ -e "$BUILD/weir-leafsum.ptx" ] || skip "built without nvcc"
	# Three copies are of the check of the code itself.
	damaged 5
	stop a
	engine a -v --device 0
	dpush "$T/one"
	hashed_there "[1-9][0-9]*"
	consumer c
	maps c "$T/one" 1
}

@test "device: code that cannot be used, or is wrong, is said once: bytes are copied back" {
	[ -e "$BUILD/weir-leafsum.ptx" ] || skip "built without nvcc"
	WEIR_STANDIN_FAULT=no-code engine a -v --device 0
	dpush "$T/one"
	hashed_there 0
	run grep -c "weir-leafsum.ptx: cudaLibraryLoadData: .*copied back" "$T/a.err"
	assert_output 1
	stop a
	WEIR_STANDIN_FAULT=bad-code engine a -v --device 0
	dpush "$T/two"
	hashed_there 0
	run grep -c "weir-leafsum.ptx: it gives another digest: .*copied back" \
		"$T/a.err"
	assert_output 1
}

@test "device: the code for a device is assembled for sm_75 and sm_90" {
	[ -e "$BUILD/weir-leafsum.ptx" ] || skip "built without nvcc"
	local ptxas

	ptxas="$(dirname "$(readlink -f "$(command -v nvcc)")")/ptxas"
	[ -x "$ptxas" ] || ptxas="${CUDA_HOME:-/usr/local/cuda}/bin/ptxas"
	[ -x "$ptxas" ] || skip "no ptxas"
	for arch in sm_75 sm_90; do
		"$ptxas" -arch="$arch" -o "$T/code" "$BUILD/weir-leafsum.ptx"
	done
}

@test "device: fp8 beside it: what is on the device is what was made, and receipts agree" {
	fleet a b
	engine a --device 0 --post-load fp8
	engine b --post-load fp8
	dpush "$T/one"
	consumer c
	maps c "$T/a/current" 1
	run grep -c weight_scale_inv "$T/c.want"
	refute_output 0
	kill_engine a
	rm -f "$T/a.sock" "$T/a.sock.fd"
	engine a --device 0 --post-load fp8
	tell c release ok
	tell c "wait 60000" "ok 1"
	maps c "$T/a/current" 1
	dpush "$T/two"
	tell c release ok
	maps c "$T/a/current" 2
	weir-rollback --registry "$T/$REGISTRY_DIR" >"$T/back.out" 2>&1
	tell c release ok
	maps c "$T/a/current" 3
}

@test "device in place: fp8 beside it, loaded while paused; a command is as good" {
	engine a --device 0 --in-place --post-load fp8
	dpush "$T/one"
	consumer c
	maps c "$T/a/current" 1
	tell c release ok
	dpush "$T/two"
	maps c "$T/a/current" 2
	tell c release ok
	stop a
	engine a --device 0 --in-place --post-load \
		'cd "$WEIR_SLOT" && mkdir more && echo 1 >more/note && : >more/none'
	dpush "$T/three"
	tell c "wait 60000" ok
	maps c "$T/three" 3
}

@test "device: what post-load made is hashed with the bytes that are there: one that differs is found" {
	damaged 5 --post-load fp8
}

@test "device: post-load that fails, or leaves what no loader takes, publishes nothing" {
	engine a --device 0 --post-load "test ! -e '$T/bad' || . '$T/bad'"
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	echo 'exit 3' >"$T/bad"
	run push "$T/two"
	assert_equal "$status" 1
	echo 'cd "$WEIR_SLOT" && rm model.safetensors.index.json' >"$T/bad"
	run --separate-stderr push "$T/two"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: .*model-00001-of-00002.safetensors"
	echo 'cd "$WEIR_SLOT" && rm *.safetensors*' >"$T/bad"
	run --separate-stderr push "$T/two"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: .*safetensors"
	rm "$T/bad"
	tell c release ok
	maps c "$T/one" 1
	dpush "$T/two"
	tell c release ok
	maps c "$T/two" 2
}

@test "device: a run that is given up leaves what is offered as it was" {
	engine a --device 0
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	fleet a b
	engine b --post-load false
	run push "$T/two"
	assert_equal "$status" 1
	tell c release ok
	maps c "$T/one" 1
	fleet a
	dpush "$T/three"
	tell c release ok
	maps c "$T/three" 2
}

@test "device: a kept version that the device refuses is not left sealed" {
	engine a --device 0 --load-timeout 100ms
	dpush "$T/one"
	consumer c
	tell c map "ok 1"
	dpush "$T/two"
	run --separate-stderr weir-rollback --registry "$T/$REGISTRY_DIR"
	assert_equal "$status" 1
	assert_regex "$stderr" "a consumer still maps slot"
	run find "$T/a/staging" "$T/a/slots" -name "*000003*"
	assert_output ""
	tell c release ok
	maps c "$T/two" 2
}

@test "device: no such device, no mover, no library: the engine says so and ends" {
	run --separate-stderr weir-engine --store "$T/x" \
		--listen "ipc://$T/x.sock" --device 99
	assert_equal "$status" 69
	assert_regex "$stderr" "there is no CUDA device 99: 8 can be seen"
	WEIR_LIBEXEC="$T" run --separate-stderr weir-engine --store "$T/x" \
		--listen "ipc://$T/x.sock" --device 0
	assert_equal "$status" 69
	assert_regex "$stderr" "--device: unavailable, .*weir-move-slot is not installed"
}

@test "device: the example shows each version that it is given, in 60 lines" {
	[ "$(wc -l <"$SRC/share/client/consumer.c")" -le 60 ]
	engine a --device 0
	start example "$BUILD/tests/consumer" "$T/a" 2
	dpush "$T/one" || cat "$T/push.err"
	wait_for contains "$T/example.out" "version 1: "
	dpush "$T/two"
	ends_with 0 example
	run cat "$T/example.out"
	assert_line --regexp "^version 2: [1-9][0-9]* tensors on device 0$"
}

# figures_of FILE NAME: it has what tests/gpu/run measures, below NAME.
figures_of() {
	jq -e --arg name "$2" --argjson names "$(printf '"%s"\n' \
		cuda_ipc_{gbps,limit_gbps,ratio} \
		h2d_pipeline_{gbps,limit_gbps,ratio} \
		nccl_one_rank_ok swap_pause_us \
		device_bytes_{context,taken,allowed} \
		versions_pushed device_bytes_lost \
		transport_{host,cuda_ipc}_gbps hash_gbps | jq -s .)" '
		(keys - ["date", "weir", "nccl", "cuda_driver", "cuda_runtime",
			"device", "uuid", "devices", "failed"]) == [$name] and
		(.date | test("^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")) and
		(.nccl | test("^[0-9]+[.][0-9.]+$")) and
		([.weir, .device, .uuid] | all(type == "string")) and
		([.cuda_driver, .cuda_runtime, .devices, .failed] |
			all(type == "number")) and
		(.[$name] | all(type == "number")) and
		$names - (.[$name] | keys) == []' "$1"
}

@test "device: what is packed for a device runs over the stand-ins, and says so" {
	skip_if_sanitized
	[ -x "$BUILD/weir-move-nccl" ] || skip "built without NCCL"
	"$SRC/tests/gpu/pack" "$BUILD" "$T/pack.tar.gz" 2>&1
	tar -C "$T" -xzf "$T/pack.tar.gz"
	run env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$LD_LIBRARY_PATH" \
		TMPDIR="$TMPDIR" WEIR_GPU_MIB=16 WEIR_GPU_VERSIONS=5 \
		WEIR_GPU_SECONDS=1200 "$T/weir-gpu/run" "$T/figures.json"
	assert_success
	assert_line --index 0 --partial "STAND-INS: "
	assert_line --index 1 --partial '"nccl": '
	assert_line --partial "ok: NCCL, a group of one rank: formed, broadcast"
	assert_line "ok: CUDA IPC between processes: every byte"
	assert_line --regexp "^ok: 5 versions of 5: no memory"
	assert_line "ok: memory: no more than slot, credit and contexts"
	for figure in swap_pause_us h2d_pipeline_gbps cuda_ipc_gbps hash_gbps \
		transport_cuda_ipc_gbps transport_nccl_gbps; do
		assert_line "figure: $figure: not run on a device"
	done
	refute_output --regexp "FAILED|missed"
	figures_of "$T/figures.json" no_figures_but_of_stand_ins
	run ! figures_of "$T/figures.json" figures
	export WEIR_STANDIN_FAULT=no-device
	run "$T/weir-gpu/run" "$T/none.json"
	assert_equal "$status" 69
	assert_output --partial "no CUDA device"
	assert_not_exist "$T/none.json"
}
