#!/usr/bin/env bats
# docs.bats - what the documents say is what the programs do.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

@test "README: the pipeline by hand runs" {
	checkpoint "$T/ckpt" --size 1MiB --seed 1
	awk '/^```sh$/ { text = ""; on = 1; next }
		/^```$/ { if (on && text ~ /weir-plan/) printf "%s", text; on = 0 }
		on { text = text $0 "\n" }' "$SRC/README.md" |
		sed "s,/dev/shm,$T,; s,/path/to/checkpoint,$T/ckpt," >"$T/script"
	echo 'wait' >>"$T/script"
	cd "$T"
	timeout 600 bash -euo pipefail "$T/script" >"$T/out" 2>"$T/err" \
		</dev/null || fail "$(cat "$T/out" "$T/err")"
	contains "$T/out" "version 1 published: 2 engines"
	cmp "$T/ckpt/model.safetensors" "$T/rollout-1/current/model.safetensors"
	rm -r "$T/tmp"/*
}

# The sh blocks of a document, in order, as one script.
examples() {
	awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$1"
}

run_examples() {
	checkpoint "$T/step-1" --size 4MiB --shards 2 --seed 1
	checkpoint "$T/step-2" --size 4MiB --shards 2 --seed 2
	examples "$1" >"$T/script"
	[ "$(wc -l <"$T/script")" -gt 20 ]
	cd "$T" || return
	timeout 600 bash -euo pipefail "$T/script" >"$T/out" 2>"$T/err" </dev/null ||
		{
			cat "$T/out" "$T/err" >&2
			return 1
		}
}

@test "the English examples run" {
	run_examples "$SRC/share/doc/en/weight-sync.md"
	assert_equal "$(readlink "$T/store-1/current")" versions/000005
	cmp "$T/step-2/config.json" "$T/store-1/current/config.json"
}

@test "the Chinese examples run" {
	run_examples "$SRC/share/doc/zh/weight-sync.md"
	assert_equal "$(readlink "$T/store-1/current")" versions/000005
	cmp "$T/step-2/config.json" "$T/store-1/current/config.json"
}

@test "both languages have the same examples" {
	diff <(examples "$SRC/share/doc/en/weight-sync.md") \
		<(examples "$SRC/share/doc/zh/weight-sync.md")
}

@test "share/doc/messages.md is what weir-dump --reference prints" {
	weir-dump --reference | diff -u "$SRC/share/doc/messages.md" -
}

@test "share/doc/states.txt is what weir-dump --states prints" {
	weir-dump --states | diff -u "$SRC/share/doc/states.txt" -
}

# quotes DIR: its gpu.md has figures if a file of a device's is there, of that
# file's date; and says that there are none otherwise.
quotes() {
	local f says=()

	for f in "$1"/gpu-*.json; do
		[ -e "$f" ] || break
		jq -e 'has("figures") and .failed == 0' "$f" ||
			return 1
		says+=("$(jq -r .date "$f")")
	done
	if [ ${#says[@]} -eq 0 ]; then
		grep -q "^State of this page: \*\*not run on a device" "$1/gpu.md" &&
			grep -qx "State: not run on a device\." "$1/gpu.md" &&
			! grep -E "[0-9] ?([GM]i?B/s|us\>|µs|microsec)" "$1/gpu.md"
		return
	fi
	! grep "^State.*not run on a device" "$1/gpu.md" || return 1
	for f in "${says[@]}"; do
		grep -F "$f" "$1/gpu.md" || return 1
	done
}

@test "share/doc/gpu.md has no figure but of a run on a device, with its date" {
	quotes "$SRC/share/doc"
	cp "$SRC/share/doc/gpu.md" "$T"
	if ! compgen -G "$SRC/share/doc/gpu-*.json"; then
		echo "A push by nccl: 21 GB/s." >>"$T/gpu.md"
		run ! quotes "$T"
	fi
	echo '{"date": "2026-01-02", "failed": 0, "figures": {}}' \
		>"$T/gpu-2026-01-02.json"
	echo "State: run on a device." >"$T/gpu.md"
	run ! quotes "$T"
	echo "On 2026-01-02: 21 GB/s." >>"$T/gpu.md"
	quotes "$T"
	sed -i 's/figures/no_figures_but_of_stand_ins/' "$T/gpu-2026-01-02.json"
	run ! quotes "$T"
}
