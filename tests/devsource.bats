#!/usr/bin/env bats
# Sources in a trainer's device memory, over the stand-in of CUDA.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

setup() {
	common_setup
	[ -x "$BUILD/weir-move-source" ] ||
		skip "built without CUDA: no weir-move-source"
	export LD_LIBRARY_PATH="$BUILD/tests/standin"
	export WEIR_STANDIN_SEED=$BATS_TEST_NUMBER
	fleet a
}

# trainer NAME [OPTION]...: has its tensors in $T/NAME; told by tell().
trainer() {
	local to

	mkfifo "$T/$1.in"
	start "$1" bash -c 'exec "$@" <"$0"' "$T/$1.in" \
		python3 "$SRC/tests/devtrainer.py" "$T/$1" "${@:2}"
	exec {to}>"$T/$1.in"
	IN[$1]=$to
	wait_for contains "$T/$1.out" ready
}
declare -gA IN

# overwrite NAME SEED: all of its memory.
overwrite() {
	echo "fill $2" >&"${IN[$1]}"
	wait_for contains "$T/$1.out" filled
}

# dpush NAME [OPTION]...
dpush() { push "gpu:$T/$1/list.json" --bucket-size 128KiB "${@:2}"; }

# has NAME CHECKPOINT: what its store serves are that checkpoint's tensors.
has() { same_tensors "$T/$1/current" "$2"; }

same_tensors() {
	python3 - "$@" <<-'END'
	import json, sys
	def tensors(path):
	    raw = open(path + "/model.safetensors", "rb").read()
	    n = int.from_bytes(raw[:8], "little")
	    head = json.loads(raw[8:8 + n])
	    head.pop("__metadata__", None)
	    return {k: (t["dtype"], t["shape"],
	                raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
	            for k, t in head.items()}
	a, b = map(tensors, sys.argv[1:])
	sys.exit([k for k in a.keys() | b.keys() if a.get(k) != b.get(k)] or 0)
	END
}

# The file that a list becomes; its other words in $T/err.
copy_list() {
	: >"$T/copy"
	"${MOVER:-$BUILD/weir-move-source}" 9 "$1" 9>"$T/copy" 2>"$T/err"
}

@test "device source: two versions to two engines, and nothing is left" {
	engines a b
	fleet a b
	trainer one
	trainer two --seed 2
	run --separate-stderr dpush one
	assert_success
	assert_output --partial "version 1 published"
	has a "$T/one/same"
	has b "$T/one/same"
	run --separate-stderr dpush two --max-inflight-engine-groups 1
	assert_success
	has a "$T/two/same"
	has b "$T/two/same"
	assert_clean_runs
	run find "$T/run" -name sources
	assert_output ""
}

@test "device source: its digest is that of the same tensors in files" {
	engine a
	trainer one
	dpush one >/dev/null 2>&1
	# What is served, as a checkpoint of its own.
	cp -r "$(realpath "$T/a/current")" "$T/copy"
	run --separate-stderr push "$T/copy" --weight-version 1
	assert_success
	assert_output --partial "version 1 was published already"
}

@test "BK-12 device source: told staged, the trainer may overwrite it at once" {
	engine a --post-load "until [ -e '$T/go' ]; do sleep 0.02; done"
	trainer one
	start push weir-push --source "gpu:$T/one/list.json" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" --json
	wait_for told staged
	run jq -rs 'map(select(.event == "staged"))[0] |
		"\(.stage) \(.worker)"' "$(newest_run)/events"
	assert_output "plan 0"
	overwrite one 7
	touch "$T/go"
	ends_with 0 push
	same_tensors "$T/a/current" "$T/one/same"
	run jq -rs 'map(select(.event == "published"))[0].version' "$T/push.out"
	assert_output 1
}

@test "I9 device source: plan started again before its plan is there reads what was staged" {
	local run=$T/r

	engine a
	trainer one
	start plan weir-plan --run "$run" --source "gpu:$T/one/list.json" \
		--fleet "$T/fleet.yaml"
	wait_for test -e "$run/plan.weir"
	kill_and_reap "$(pid_of plan)"
	rm "$run/plan.weir"
	overwrite one 7
	weir-plan --run "$run" --source "gpu:$T/one/list.json" \
		--fleet "$T/fleet.yaml" 2>"$T/err" | weir-admit |
		weir-transfer | weir-commit --registry "$T/registry"
	has a "$T/one/same"
	assert_not_exist "$run/sources"
}

# Whichever copies faster: the first one is fenced off, and the second one's run
# goes on.
@test "I9 device source: a second plan leaves alone what the first one copies" {
	local run=$T/r

	engine a
	trainer one --tensors 40
	WEIR_STANDIN_PAUSE_US=100000 start first weir-plan --run "$run" \
		--source "gpu:$T/one/list.json" --fleet "$T/fleet.yaml"
	wait_for test -d "$run/sources/0"
	weir-plan --run "$run" --source "gpu:$T/one/list.json" \
		--fleet "$T/fleet.yaml" 2>"$T/err" | weir-admit |
		weir-transfer | weir-commit --registry "$T/registry"
	ends_with 76 first
	has a "$T/one/same"
}

@test "device source: what a run without a verdict copied stays beside other pushes" {
	local killed copy

	engine a
	trainer one
	dpush one >/dev/null 2>&1
	killed=$(newest_run)
	copy=$killed/sources/0/model.safetensors
	rm "$killed/verdict"
	mkdir -p "${copy%/*}"
	: >"$copy"
	dpush one >/dev/null 2>&1
	assert_exist "$copy"
	: >"$killed/verdict"
	dpush one >/dev/null 2>&1
	assert_not_exist "$killed/sources"
}

@test "device source: two ranks, one on each device, to two workers" {
	CUDA_VISIBLE_DEVICES=1 engine w0 --name e
	CUDA_VISIBLE_DEVICES=2 engine w1 --name e
	cat >"$T/fleet.yaml" <<-END
	engines:
	  - name: e
	    workers:
	      - endpoint: ipc://$T/w0.sock
	      - endpoint: ipc://$T/w1.sock
	END
	trainer one --device 1
	trainer two --device 2 --seed 2
	run --separate-stderr weir-push --source "gpu:$T/one/list.json" \
		--source "gpu:$T/two/list.json" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	assert_success
	has w0 "$T/one/same"
	has w1 "$T/two/same"
	run jq -rs 'map(select(.event == "staged" and .stage == "plan").worker) |
		join(" ")' "$(newest_run)/events"
	assert_output "0 1"
	# Each from its device to the worker that is there, too.
	CUDA_VISIBLE_DEVICES=1,2 run --separate-stderr weir-push \
		--source "gpu:$T/one/list.json" --source "gpu:$T/two/list.json" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" \
		--transport cuda-ipc
	assert_success
	has w0 "$T/one/same"
	has w1 "$T/two/same"
}

@test "IP-03 device source: found by UUID, however the processes count" {
	engine a
	CUDA_VISIBLE_DEVICES=3,1 trainer one --device 1
	CUDA_VISIBLE_DEVICES=1,3 run --separate-stderr dpush one
	assert_success
	has a "$T/one/same"
	CUDA_VISIBLE_DEVICES=3 run --separate-stderr dpush one
	one_line_error 69 "--source gpu: there is no GPU-" "01 among the CUDA devices"
}

@test "IP-04 device source: what cannot be mapped, with tensor, call and hints" {
	engine a
	trainer one
	WEIR_STANDIN_FAULT=no-map run --separate-stderr dpush one
	one_line_error 69 'tensor "layer.' cudaIpcOpenMemHandle ptrace_scope
	kill_and_reap "$(pid_of one)"
	run --separate-stderr dpush one
	one_line_error 69 cudaIpcOpenMemHandle
	run find "$T/run" -name sources
	assert_output ""
}

@test "BK-13 device source: a tensor with gaps is refused by name, before any engine is asked" {
	trainer one
	jq '.tensors[1].strides = [16, 1]' "$T/one/list.json" >"$T/gaps.json"
	run --separate-stderr push "gpu:$T/gaps.json"
	one_line_error 65 'tensor "layer.1.weight": it is not contiguous' \
		"strides [16,1]"
}

@test "device source: a place beyond its allocation is refused by name, and leaves no file" {
	local offset

	trainer one
	for offset in 1000000000 600000; do
		jq ".tensors[2].offset = $offset" "$T/one/list.json" \
			>"$T/far.json"
		run --separate-stderr push "gpu:$T/far.json"
		one_line_error 65 'tensor "layer.2.weight": bytes '$offset \
			"of an allocation that has 5"
	done
	run find "$T/run" -name '*.safetensors*'
	assert_output ""
}

# lies JQ STATUS PART...: of a list that was changed so; it leaves no file.
lies() {
	jq "$1" "$T/one/list.json" >"$T/lie.json"
	run --separate-stderr push "gpu:$T/lie.json"
	one_line_error "$2" "${@:3}"
	run find "$T/run" -name '*.safetensors*'
	assert_output ""
}

@test "device source: a list that is not true is refused by name, and leaves no file" {
	trainer one
	lies '.tensors[-1].offset = 1000000000' 65 'tensor "nothing": bytes 1000000000'
	lies '.tensors[1].shape[0] *= 2 | .tensors[1].bytes *= 2' 65 \
		'tensor "layer.' 'its bytes overlap those of "layer.'
	lies '.tensors[7].shape[0] *= 9 | .tensors[7].bytes *= 9' 65 \
		'tensor "layer.7.weight": bytes ' 'of an allocation that has 5'
	lies '.tensors[2].handle = "00" * 64' 69 \
		'tensor "layer.2.weight": cudaIpcOpenMemHandle'
	lies '.tensors[].device |= sub("00$"; "77")' 69 \
		"77 among the CUDA devices"
	# A device that reads the one that it is on.
	lies '.tensors[].device |= sub("00$"; "01")' 65 \
		'tensor "layer.' 'its handle is of memory on GPU-' \
		'00, not on GPU-' "01"
	WEIR_STANDIN_FAULT=no-peer lies '.tensors[].device |= sub("00$"; "01")' \
		69 "cudaIpcOpenMemHandle: "
}

@test "device source: without mover, library, device, room or list it is said" {
	trainer one
	WEIR_LIBEXEC="$T" run --separate-stderr dpush one
	one_line_error 69 "--source gpu: unavailable" "weir-move-source is not installed"
	mkdir "$T/bin" && printf '#!/bin/sh\nexit 75\n' >"$T/bin/weir-move-source"
	chmod +x "$T/bin/weir-move-source"
	WEIR_LIBEXEC="$T/bin" run --separate-stderr dpush one
	assert_equal "$status" 75
	refute_regex "$stderr" "No such file"
	WEIR_STANDIN_FAULT=no-device run --separate-stderr dpush one
	one_line_error 69 "no CUDA device"
	run --separate-stderr push "gpu:$T/none.json"
	one_line_error 66 "none.json is not there"
}

@test "device source: where nothing is read, and where no file stays, it is refused" {
	local option

	for option in --dry-run "-o $T/plan" "--only a" "--to 1"; do
		# shellcheck disable=SC2086 # an option and its value
		run --separate-stderr weir-plan --source gpu:list.json \
			--fleet "$T/fleet.yaml" $option
		one_line_error 64 "--source gpu:FILE is copied for a run"
	done
	cat >"$T/fleet.yaml" <<-END
	engines:
	  - {name: h, kind: sglang, url: "http://127.0.0.1:1"}
	END
	run --separate-stderr push gpu:list.json
	one_line_error 78 "engine h: a url alone" "gpu:FILE"
}

@test "device source: an interrupted push ends the copy, and leaves nothing" {
	trainer one --tensors 40
	WEIR_STANDIN_PAUSE_US=1000000 start push weir-push \
		--source "gpu:$T/one/list.json" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for mover_runs
	kill -INT "$(pid_of push)"
	ends_with 130 push
	run mover_runs
	assert_failure
	run find "$T/run" -name sources
	assert_output ""
}

mover_runs() { leftover_processes | grep "[w]eir-move-source"; }

@test "device source: what is copied is what is there, whatever is late" {
	trainer one --kib 700 --tensors 40
	WEIR_STANDIN_PAUSE_US=3000 copy_list "$T/one/list.json"
	mkdir "$T/out" && cp "$T/copy" "$T/out/model.safetensors"
	same_tensors "$T/out" "$T/one/same"
	run cat "$T/err"
	refute_output --partial "still open"
}

@test "device source: two mutants of the mover, each found" {
	export WEIR_STANDIN_PAUSE_US=3000 MOVER="$BUILD/tests/standin/weir-move-source"

	trainer one --kib 700 --tensors 40
	mkdir "$T/out"
	WEIR_MUTANT=no-wait copy_list "$T/one/list.json"
	cp "$T/copy" "$T/out/model.safetensors"
	run same_tensors "$T/out" "$T/one/same"
	assert_failure
	WEIR_MUTANT=not-closed copy_list "$T/one/list.json"
	assert contains "$T/err" "2 handles are still open"
	copy_list "$T/one/list.json"
	cp "$T/copy" "$T/out/model.safetensors"
	same_tensors "$T/out" "$T/one/same"
}

@test "device source: a call that hangs ends the mover, by name" {
	local call

	trainer one
	export MOVER="$BUILD/tests/standin/weir-move-source"
	for call in "the start of the device" "the beginning of a copy" \
		"the end of a copy" "the end of the copies"; do
		WEIR_HANG=$call run ! copy_list "$T/one/list.json"
		run cat "$T/err"
		assert_output --partial "$call did not return within 100 ms"
	done
	WEIR_LIBEXEC=${MOVER%/*} WEIR_HANG=$call run --separate-stderr dpush one
	assert_failure
	assert_regex "$stderr" "weir-move-source .*$call did not return"
	run mover_runs
	assert_failure
	run find "$T/run" -name sources
	assert_output ""
}

@test "device source: the example publishes, and is told when, in 50 lines" {
	[ "$(wc -l <"$SRC/share/client/trainer.py")" -le 50 ]
	engine a
	run --separate-stderr python3 "$SRC/share/client/trainer.py" \
		"$T/fleet.yaml" "$T/registry"
	assert_success
	assert_line --index 0 "the tensors may be written again"
	assert_line --index 1 "version 1 is published"
}
