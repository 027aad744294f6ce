#!/usr/bin/env bats
# ST, IX - checkpoints with a fault, against a fleet that serves version 1:
# refused before an engine is touched, in one line; and odd ones that are fine.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

SECOND=model-00002-of-00003.safetensors
INDEX=model.safetensors.index.json

# no_push CODE PART...: of $T/bad; engine a is asked nothing.
no_push() {
	run --separate-stderr push "$T/bad"
	refused "$@"
	still_one a
}

# bad CASE CODE PART...: of tests/fixtures/mkbad.py
bad() {
	spoiled "$1"
	shift
	no_push "$@"
}

# fine CASE: it is published, byte by byte
fine() {
	spoiled "$1"
	push "$T/bad" --expect any >/dev/null 2>&1
	holds a "$T/bad"
}

# shard TEXT BYTES: $T/bad is one file with that header and so much data
shard() {
	rm -rf "$T/bad"
	mkdir "$T/bad"
	python3 - "$T/bad/model.safetensors" "$1" "$2" <<-'PY'
	import struct, sys
	head = sys.argv[2].encode()
	with open(sys.argv[1], "wb") as f:
	    f.write(struct.pack("<Q", len(head)) + head + bytes(int(sys.argv[3])))
	PY
}

# one NAME DTYPE SHAPE BEGIN END: an entry of a header
one() {
	printf '"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}' "$@"
}

@test "ST-01 short shards: the file, expected and actual size" {
	local cut

	base a
	for cut in cut-1 cut-4k cut-half cut-data; do
		bad $cut 65 "$T/bad/$SECOND" expected found
	done
	then_two a
}

@test "ST-02 trailing bytes" {
	base a
	bad trailing-1 65 "$SECOND" "not fully covered" expected found
	bad trailing-1m 65 "$SECOND" "not fully covered" expected found
	then_two a
}

@test "ST-03 pointers and pages instead of weights" {
	base a
	bad lfs 65 "$SECOND" "Git-LFS pointer"
	bad html 65 "$SECOND" HTML
	then_two a
}

@test "ST-04 header lengths that are none" {
	local bytes n

	base a
	bad huge-header 65 "$SECOND" "too large"
	bad header-past-end 65 "$SECOND" "past the end"
	spoiled good
	for n in '\x00\x00\x00\x00\x00\x00\x00\x80{}' \
		'\xff\xff\xff\xff\xff\xff\xff\xff{}'; do
		printf '%b' "$n" >"$T/bad/$SECOND"
		no_push 65 "$SECOND" "too large"
	done
	for n in '\x00' '\x01'; do
		printf '%b\0\0\0\0\0\0\0{}' "$n" >"$T/bad/$SECOND"
		no_push 65 "$SECOND" "too short"
	done
	for bytes in 0 1 7; do
		head -c $bytes /dev/zero >"$T/bad/$SECOND"
		no_push 65 "$SECOND" "too short"
	done
	then_two a
}

@test "ST-08 overlap, hole, offsets that lie; any order is fine" {
	local t

	base a
	bad overlap 65 "$SECOND" layernorm
	bad hole 65 "$SECOND"
	bad name-twice 65 "$SECOND"
	for t in "$(one x U8 2 2 0)" "$(one x U8 9 0 9)" \
		"$(one x U8 2 -2 0)" "$(one x U8 7 1 8)" \
		"$(one x U8 8 0 18446744073709551616)"; do
		shard "{$t}" 8
		no_push 65 model.safetensors
	done
	shard "{$(one v U8 8 0 8),$(one k U8 8 0 8)}" 8
	no_push 65 model.safetensors '"k"' '"v"'
	shard "{$(one b U8 5 3 8),$(one a U8 3 0 3)}" 8
	push "$T/bad" --expect any >/dev/null 2>&1
	holds a "$T/bad"
}

# Of a trainer's memory they are another matter: there is no such source.
@test "BK-13 MD-03 strides, and names that share bytes: refused by tensor" {
	base a
	shard '{"x":{"dtype":"U8","shape":[2,2],"strides":[1,2],"data_offsets":[0,4]}}' 4
	no_push 65 model.safetensors '"x"' '"strides"'
	shard "{$(one head U8 8 0 8),$(one embed U8 8 0 8)}" 8
	no_push 65 model.safetensors '"head"' '"embed"'
	shard "{$(one head U8 6 2 8),$(one embed U8 8 0 8)}" 8
	no_push 65 model.safetensors '"head"' '"embed"'
}

@test "ST-10 sub-byte dtypes: whole bytes or refused" {
	base a
	shard "{$(one x F4 3 0 2)}" 2
	no_push 65 model.safetensors '"x"' "whole bytes"
	tensors "$T/good" a:F4:3,2 b:F6_E2M3:4 c:F6_E3M2:4
	push "$T/good" --expect any >/dev/null 2>&1
	holds a "$T/good"
}

@test "ST-11 every dtype arrives; an unknown one is named with its tensor" {
	local dtype

	base a
	bad dtype 65 "$SECOND" F9_X
	for dtype in f32 "" FP32; do
		shard "{$(one x "$dtype" 1 0 4)}" 4
		no_push 65 model.safetensors '"x"' "\"$dtype\""
	done
	fine all-dtypes
}

@test "ST-12 scalars and empty tensors arrive" {
	base a
	tensors "$T/empty" a:F32:0 b:BF16:2,0 c:U8:0,0 d:F64: e:U8:0 f:U8:3 \
		g:F32:0
	push "$T/empty" --expect any --bucket-size 1 >/dev/null 2>&1
	holds a "$T/empty"
	tensors "$T/only" a:F32:0
	push "$T/only" --expect any >/dev/null 2>&1
	holds a "$T/only"
}

@test "ST-18 little address space for transfer and an engine" {
	skip_if_sanitized
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 1
	tensors --sparse "$T/big" x:U8:300000000
	# shellcheck disable=SC2016 # of the inner shell
	start a bash -c 'ulimit -v 200000; exec "$@" 3>"$0"' "$T/a.ready" \
		weir-engine --name a --store "$T/a" --copy-threads 1 \
		--listen "ipc://$T/a.sock" --ready-fd 3
	wait_for test -s "$T/a.ready"
	fleet a
	push "$T/one" >/dev/null 2>&1
	(ulimit -v 200000 && push "$T/big" --expect any) >/dev/null 2>&1
	holds a "$T/big"
}

@test "ST-19 NaN, infinity and denormals arrive bit for bit" {
	base a
	tensors "$T/nan" a:BF16:4096 b:F32:4096 c:F64:4096
	python3 - "$T/nan/model.safetensors" <<-'PY'
	import struct, sys
	with open(sys.argv[1], "r+b") as f:
	    f.seek(8 + struct.unpack("<Q", f.read(8))[0])
	    f.write(b"\xff\x7f" * 4096)
	    f.write(b"\x01\x00\xa0\x7f\x01\x00\x00\x00" * 2048)
	    f.write(b"\x01\x00\x00\x00\x00\x00\xf4\x7f" * 4096)
	PY
	push "$T/nan" --expect any >/dev/null 2>&1
	holds a "$T/nan"
}

@test "ST-11 ST-12 ST-19 the same by a version directory, and by a delta" {
	base a
	mkdir "$T/disk"
	spoiled all-dtypes
	push "$T/bad" --expect any --transport disk --disk-dir "$T/disk" \
		>/dev/null 2>&1
	holds a "$T/bad"
	# Signalling NaNs in the last bytes.
	cp -r "$T/bad" "$T/next"
	python3 - "$T/next/model.safetensors" <<-'PY'
	import sys
	with open(sys.argv[1], "r+b") as f:
	    f.seek(-16, 2)
	    f.write(b"\x01\x00\xa0\x7f\xff\xff\xff\xff" * 2)
	PY
	push "$T/next" --transport delta --disk-dir "$T/disk" >/dev/null 2>&1
	holds a "$T/next"
	grep -q '"kind":"diff"' "$T/disk/weight_v000003/.weir-version"
}

@test "IX-01 IX-04 index and shards disagree: three faults, three messages" {
	base a
	bad shard-missing 66 "$SECOND" model.
	bad not-in-index 65 "$SECOND" model. index
	bad not-in-header 65 "$SECOND" model.extra.weight header
	then_two a
}

@test "IX-02 stale shards are ignored; a tensor in two shards is refused" {
	base a
	bad mapped-elsewhere 65 "$SECOND" model-00003-of-00003.safetensors
	bad two-shards 65 model.
	spoiled stale-shards
	run --separate-stderr push "$T/bad" --expect any
	assert_success
	assert_equal "$(grep -c "3 entries are no part" <<<"$stderr")" 1
	assert_not_exist "$T/a/current/model-00001-of-00002.safetensors"
	assert_not_exist "$T/a/current/pytorch_model.bin"
	cmp "$T/bad/$SECOND" "$T/a/current/$SECOND"
}

@test "IX-07 an index that leads out of the directory" {
	local entry

	base a
	cp -r "$T/one" "$T/outside"
	for entry in ../one/x.safetensors /etc/passwd a/../../x 'C:\\x' "" . \
		.. 'x\u0000y' 'x\ny'; do
		rm -rf "$T/bad"
		mkdir "$T/bad"
		printf '{"weight_map":{"w":"%s"}}' "$entry" >"$T/bad/$INDEX"
		run --separate-stderr push "$T/bad"
		[ "$status" -eq 65 ] || [ "$status" -eq 66 ]
		one_error "$INDEX"
		still_one a
	done
	spoiled good
	mv "$T/bad/$SECOND" "$T/outside/"
	ln -s "$T/outside/$SECOND" "$T/bad/$SECOND"
	run --separate-stderr push "$T/bad"
	assert_failure
	one_error "$SECOND"
	still_one a
	then_two a
}

@test "IX-09 IX-10 IX-12 other metadata is fine, no index is not" {
	base a
	bad no-index 65 model-00001-of-00003.safetensors
	bad index-name-twice 65 "$INDEX"
	weir-plan --source "$T/two" --fleet "$T/fleet.yaml" -o "$T/p1"
	weir-plan --source "$T/two" --fleet "$T/fleet.yaml" -o "$T/p2"
	cmp "$T/p1" "$T/p2"
	fine metadata-keys
}

@test "IX-13 a shard that is exchanged after the plan is found" {
	local how

	base a
	checkpoint "$T/new" --size 1MiB --shards 2 --seed 5
	# shellcheck disable=SC2317 # called below
	renamed() { mv "$T/other" "$1"; }
	# shellcheck disable=SC2317
	rewritten() { cat "$T/other" >"$1"; }
	# shellcheck disable=SC2317
	cut_short() { truncate -s -1 "$1"; }
	# shellcheck disable=SC2317
	gone() { rm "$1"; }
	for how in renamed rewritten cut_short gone; do
		rm -rf "$T/bad"
		cp -r "$T/two" "$T/bad"
		cp "$T/new/model-00002-of-00002.safetensors" "$T/other"
		weir-plan --source "$T/bad" --fleet "$T/fleet.yaml" -o "$T/plan"
		$how "$T/bad/model-00002-of-00002.safetensors"
		codes=()
		weir-admit "$T/plan" 2>"$T/1.err" |
			weir-transfer 2>"$T/2.err" |
			weir-commit --registry "$T/registry" 2>"$T/3.err" \
				>"$T/out" || codes=("${PIPESTATUS[@]}")
		assert_equal "$how ${codes[*]}" "$how 65 65 65"
		stderr=$(cat "$T"/[123].err)
		one_error "model-00002-of-00002.safetensors" changed
		still_one a
		rm "$T/plan"
	done
	then_two a
}
