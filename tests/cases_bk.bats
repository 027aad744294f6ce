#!/usr/bin/env bats
# BK - buckets and credit, through real programs.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

# content: of the newest decision
content() {
	weir-status --registry "$T/registry" --fleet "$T/fleet.yaml" |
		sed -n 's/^published .*content \([0-9a-f]*\),.*/\1/p'
}

check_events() {
	python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" "$@"
}

@test "BK-01 BK-02 tensors above the bucket, whole and split, arrive" {
	local options

	engines a
	fleet a
	tensors "$T/t" below:U8:65535 exact:U8:65536 above:U8:65537 \
		large:U8:1048576 rows:F32:2,1048576
	for options in "" --split-tensors; do
		for size in 64KiB 1MiB; do
			# shellcheck disable=SC2086 # none or one
			push "$T/t" --bucket-size $size $options >/dev/null 2>&1
			holds a "$T/t"
		done
	done
}

@test "BK-01 BK-09 a bucket above the credit: refused at once, with numbers" {
	base a
	tensors "$T/t" small:U8:10 large.one:U8:1048576
	run --separate-stderr push "$T/t" --bucket-size 64KiB \
		--max-inflight-bytes 1000000
	refused 65 large.one 1048576 1000000
	still_one a
	then_two a
}

@test "BK-05 neighbours of other dtypes land under their own names" {
	engines a
	fleet a
	tensors "$T/t" a:F32:1000 b:BF16:3 c:F32:7 d:U8:1 e:BF16:1001 f:F64:9
	push "$T/t" --bucket-size 100 >/dev/null 2>&1
	holds a "$T/t"
	checkpoint "$T/mix" --size 1MiB --dtype mix --shards 2
	push "$T/mix" --expect any --bucket-size 10KiB >/dev/null 2>&1
	holds a "$T/mix"
}

# The ack of a bucket has one digest.
@test "BK-05 a bucket that arrives otherwise: what it carries is named" {
	tensors "$T/t" a:F32:1000 b:BF16:1000 c:F32:1000
	fake b bad-digest=2
	fleet b
	run --separate-stderr push "$T/t" --bucket-size 2000
	refused 1 "engine b: bucket 2: holds other bytes" "(tensor \"b\")"
	fake c bad-digest=0
	fleet c
	run --separate-stderr push "$T/t" --bucket-size 1MiB
	refused 1 "engine c: bucket 0: holds other bytes" \
		"(file config.json to tensor \"c\")"
}

@test "BK-05 the content is the same at every bucket size and split" {
	local n=0 options want

	engines a
	fleet a
	tensors "$T/t" a:U8:40000000 b:F32:2,1000000 c:U8:1 d:U8:0
	for options in "--bucket-size 1" "--bucket-size 64KiB" \
		"--bucket-size 1MiB" "--bucket-size 1GiB" \
		"--bucket-size 1MiB --split-tensors" \
		"--bucket-size 20MiB --split-tensors"; do
		# shellcheck disable=SC2086 # words
		push "$T/t" $options --weight-version $((++n)) >/dev/null 2>&1
		holds a "$T/t"
		assert_equal "$options $(content)" \
			"$options ${want:=$(content)}"
	done
}

@test "BK-06 the last tensor is just below the bucket: no bucket above it" {
	engines a
	fleet a
	tensors "$T/t" a:U8:60000 b:U8:60000 c:U8:65535
	push "$T/t" --bucket-size 64KiB --max-inflight-buckets 2 \
		--max-inflight-bytes 128KiB >/dev/null 2>&1
	holds a "$T/t"
	check_events --engines a --buckets 2 --bytes 131072
}

@test "BK-07 many tiny or few huge: either limit binds alone" {
	checkpoint "$T/one" --size 2MiB
	fleet a
	fake a slow-ack=10
	push "$T/one" --bucket-size 8KiB --max-inflight-buckets 2 \
		--max-inflight-bytes 64MiB >/dev/null 2>&1
	run check_events --engines a --buckets 2
	assert_success
	assert_output --partial peak_buckets=2
	push "$T/one" --bucket-size 256KiB --max-inflight-buckets 100 \
		--max-inflight-bytes 600kB >/dev/null 2>&1
	run check_events --engines a --bytes 600000
	assert_success
	refute_output --partial peak_buckets=1
}

# anon PID: KiB now; nothing when it has ended
anon() { awk '/^RssAnon/ { print $2 }' "/proc/$1/status" 2>/dev/null; }

@test "BK-10 memory is the credit and a constant, not the checkpoint" {
	local names=() stage pid kib
	local -A peak=() of=()

	skip_if_sanitized
	for ((i = 0; i < 32; i++)); do
		names+=("t$i:U8:16777216")
	done
	tensors --sparse "$T/t" "${names[@]}"
	engines a
	fleet a
	start_push push "$T/t" --bucket-size 16MiB --max-inflight-bytes 32MiB
	of[a]=$(pid_of a)
	while ! is_dead "$(pid_of push)"; do
		for pid in "$T"/run/weir/*/*.1; do
			[ ! -e "$pid" ] || of[${pid##*/}]=$(head -n 1 "$pid")
		done
		for stage in "${!of[@]}"; do
			kib=$(anon "${of[$stage]}") || continue
			((${kib:-0} <= ${peak[$stage]:-0})) || peak[$stage]=$kib
		done
	done
	ends_with 0 push
	cmp "$T/t/model.safetensors" "$T/a/current/model.safetensors"
	for stage in plan.1 transfer.1 a; do
		echo "$stage: ${peak[$stage]:-not seen} KiB"
		[ -n "${peak[$stage]:-}" ]
		[ "${peak[$stage]}" -le $(((32 + 32) * 1024)) ]
	done
}

@test "BK-12 a source that changes between two waves: no publish" {
	local how

	checkpoints
	held_engine a
	engine b
	fleet a b
	push "$T/one" >/dev/null 2>&1
	# shellcheck disable=SC2317 # called below
	rewritten() { spoil "$1" 100000; }
	# truncate(1) opens it first, without waiting for a lease
	# shellcheck disable=SC2317
	cut_short() { python3 -c "import os; os.truncate('$1', 100000)"; }
	# shellcheck disable=SC2317
	grown() { echo >>"$1"; }
	for how in rewritten cut_short grown; do
		rm -rf "$T/bad"
		cp -r "$T/two" "$T/bad"
		touch "$T/hold"
		start_push push "$T/bad" --max-inflight-engine-groups 1
		held a
		$how "$T/bad/model-00001-of-00002.safetensors" 2>/dev/null
		rm "$T/hold"
		ended 1 push model-00001-of-00002.safetensors
		still_one a b
	done
	then_two a b
}
