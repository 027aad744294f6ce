#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, output, stderr: set by run
# weir-delta: made, applied and checked; and read and written by somebody who
# knows only the format's description (slimedelta.py).

load helpers
load delta

ALL_DTYPES="BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16
	F16 BF16 I32 U32 F32 I64 U64 F64 C64 F4"

setup_file() {
	load delta
	export C=$BATS_FILE_TMPDIR PATH=$BUILD:$PATH
	mkckpt "$C/v1" --size 300KiB --layers 2 --shards 3 --dtype mix
	mkstep --part 0.01 "$C/v1" "$C/v2"
	mkstep --part 0.3 --only 'layers.1' "$C/v2" "$C/v3"
	make_delta "$C/v1" "$C/v2" "$C/d2" 1 2
	make_delta "$C/v2" "$C/v3" "$C/d3" 2 3
}

setup() {
	common_setup
	# What is synced is synced quickly in memory.
	D=$(mktemp -d /dev/shm/weir-delta.XXXXXX) || D=$(mktemp -d)
}

teardown() {
	rm -rf "$D"
	common_teardown
}

# everything NAME [OPTION]...: a checkpoint with all there is in one file.
everything() {
	local dtype tensors=()

	for dtype in $ALL_DTYPES; do
		tensors+=("t.$dtype:$dtype:6,34")
	done
	mktensors "$1" "${tensors[@]}" odd:U8:7 scalar:F32: empty:BF16:0,4 \
		long:BF16:300001 big:F64:1000
}

@test "round trips: every dtype, 0-d, empty, unaligned; split and in one file" {
	everything "$D/a1"
	mkstep --part 0.05 "$D/a1" "$D/a2"
	mkdir "$D/b1" "$D/b2"
	cp -r "$C/v1/." "$D/b1"
	cp -r "$C/v2/." "$D/b2"
	for e in xor overwrite sparse auto; do
		for c in a b; do
			make_delta "$D/${c}1" "$D/${c}2" "$D/$c.$e" 4 5 \
				--delta-encoding "$e"
			cp -r "$D/${c}1" "$D/got"
			weir-delta apply -q "$D/$c.$e" "$D/got"
			tree "$D/${c}2" | diff - <(tree "$D/got")
			weir-delta verify -q "$D/$c.$e"
			weir-delta verify -q "$D/got"
			rm -r "$D/got"
		done
	done
}

# check_all OLD NEW: in every encoding, ours makes the new one of the old one.
check_all() {
	local e

	for e in xor overwrite sparse auto; do
		make_delta "$1" "$2" "$D/d.$e" 1 2 --delta-encoding "$e"
		weir-delta apply -q "$D/d.$e" "$1" -o "$D/got.$e"
		slime same "$2" "$D/got.$e"
		weir-delta verify -q "$D/got.$e"
	done
	rm -r "$D"/d.* "$D"/got.*
}

@test "odd checkpoints: many tiny tensors, only empty ones, any name" {
	# shellcheck disable=SC2046 # a list
	mktensors "$D/tiny" $(seq -f 't%.0f:U8:1' 3000)
	mkstep --part 0.4 "$D/tiny" "$D/tiny2"
	check_all "$D/tiny" "$D/tiny2"
	mktensors "$D/none" a:BF16:0 b:F32:0,7
	cp -r "$D/none" "$D/none2"
	check_all "$D/none" "$D/none2"
	mktensors "$D/names" 模型.层:BF16:9 'naïve "quoted" \\ back:F32:3' \
		' space ::F16:4' "$(printf '%0300d' 7):U8:5" ../x:U8:2 2>/dev/null ||
		mktensors "$D/names" 模型.层:BF16:9 "$(printf '%0300d' 7):U8:5" \
			../x:U8:2 'a b:F32:3'
	mkstep --part 0.9 "$D/names" "$D/names2"
	check_all "$D/names" "$D/names2"
	slime diff "$D/names" "$D/names2" "$D/s" 1 2 overwrite
	weir-delta apply -q "$D/s" "$D/names" --base-version 1
	slime same "$D/names" "$D/names2"
}

@test "tensors in other shards than before: a delta says what they hold" {
	mkckpt "$D/a" --size 300KiB --layers 2 --shards 3 --seed 1
	mkckpt "$D/b" --size 300KiB --layers 2 --shards 2 --seed 1
	mkstep --part 0.2 "$D/b" "$D/c"
	slime same "$D/a" "$D/b"
	check_all "$D/a" "$D/c"
}

@test "an index with more than we know is read" {
	cp -r "$C/d2" "$D/d"
	cp -r "$C/v1" "$D/got"
	"$PYTHON" - "$D/d/model.safetensors.index.json" <<-'PY'
		import json, sys
		with open(sys.argv[1]) as f:
		    index = json.load(f)
		index["metadata"].update(note="x", total_size=7, more={"a": [1, None]})
		with open(sys.argv[1], "w") as f:
		    json.dump(index, f)
	PY
	weir-delta apply -q "$D/d" "$D/got"
	slime same "$D/got" "$C/v2"
	sed -i '1s/{/{"extra":[],/' "$D/d/model.safetensors.index.json"
	refuses 65 'unknown key "extra"' weir-delta apply "$D/d" "$C/v1"
}

@test "a mark edited by hand is refused, or found by digest" {
	cp -r "$C/v1" "$D/base"
	weir-delta apply -q "$C/d2" "$D/base"
	mark=$D/base/.weir-version
	cp "$mark" "$T/mark"
	sed -i 's/"version":2/"version":1/' "$mark"
	run --separate-stderr weir-delta apply "$C/d2" "$D/base"
	[ "$status" -eq 65 ]
	assert_regex "$stderr" 'local base differs'
	sed 's/"tensors":"./"tensors":"0/; s/"tensors":"00/"tensors":"01/' \
		"$T/mark" >"$mark"
	refuses 65 'local base differs' weir-delta apply "$C/d3" "$D/base"
	for edit in 's/"kind":"[a-z]*"//' 's/"end":.*/"end":999}/' '$d' \
		's/"version":2/"version":-2/' 's/"content"/"contents"/' \
		'1s/.*/[]/' '1s/^/{"end":0}\n/'; do
		sed "$edit" "$T/mark" >"$mark"
		refuses 65 '.weir-version: ' weir-delta apply "$C/d3" "$D/base"
	done
	: >"$mark"
	refuses 65 '.weir-version: ' weir-delta apply "$C/d3" "$D/base"
	cp "$T/mark" "$mark"
	weir-delta apply -q "$C/d3" "$D/base"
	slime same "$D/base" "$C/v3"
}

@test "a shard with two names: apply writes into neither" {
	cp -r "$C/v1" "$D/base"
	for file in "$D/base"/*.safetensors; do
		ln "$file" "$D/$(basename "$file").link"
	done
	weir-delta apply -q "$C/d2" "$D/base"
	slime same "$D/base" "$C/v2"
	for file in "$C/v1"/*.safetensors; do
		cmp "$file" "$D/$(basename "$file").link"
	done
}

@test "a tensor of which all changed: too many points to keep, no use for sparse" {
	mktensors "$D/a" w:U8:4000000
	mkstep --part 1 "$D/a" "$D/b"
	for e in overwrite auto; do
		make_delta "$D/a" "$D/b" "$D/$e" 1 2 --delta-encoding "$e"
		weir-delta apply -q "$D/$e" "$D/a" -o "$D/got.$e"
		tree "$D/b" | diff - <(tree "$D/got.$e")
	done
	run weir-delta inspect -v "$D/auto"
	assert_line --regexp '^  w  U8 \[4000000\]  xor '
}

@test "the same input makes the same delta, on any number of threads" {
	for e in xor auto; do
		for n in 1 3; do
			make_delta "$C/v1" "$C/v2" "$D/$n.$e" 1 2 \
				--delta-encoding "$e" --threads "$n"
		done
		diff -r "$D/1.$e" "$D/3.$e"
	done
}

# The encodings, each with one of the checksums.
PAIRS="xor,xxh3-128 overwrite,adler32"

@test "another reader applies ours: both encodings, both checksums" {
	for p in $PAIRS; do
		make_delta "$C/v1" "$C/v2" "$D/d" 1 2 \
			--delta-encoding "${p%,*}" --delta-checksum "${p#*,}"
		cp -r "$C/v1" "$D/got"
		slime apply "$D/d" "$D/got" -- same "$D/got" "$C/v2"
		rm -r "$D/got" "$D/d"
	done
}

@test "ours applies another writer's: both encodings, both checksums" {
	for p in $PAIRS; do
		slime diff "$C/v1" "$C/v2" "$D/d" 1 2 "${p%,*}" "${p#*,}"
		weir-delta verify -q "$D/d"
		cp -r "$C/v1" "$D/got"
		refuses 65 'give --base-version' \
			weir-delta apply "$D/d" "$D/got"
		weir-delta apply -q "$D/d" "$D/got" --base-version 1
		tree "$C/v2" | diff - <(tree "$D/got")
		rm -r "$D/got" "$D/d"
	done
}

@test "golden version directories, of both writers, are read as ever" {
	G=$SRC/tests/golden/delta
	for d in xor overwrite weir-xor weir-overwrite weir-auto; do
		weir-delta verify -q "$G/$d"
		weir-delta apply -q "$G/$d" "$G/old" -o "$D/$d" \
			--base-version 6
		tree "$G/new" | diff - <(tree "$D/$d")
		run weir-delta inspect "$G/$d"
		assert_line --partial "version 7 from 6: 2 tensors"
	done
}

@test "a chain of deltas, ours and another's" {
	slime diff "$C/v2" "$C/v3" "$D/d3" 2 3 xor
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	weir-delta apply -q "$D/d3" "$D/got"
	tree "$C/v3" | diff - <(tree "$D/got")
	run weir-delta inspect "$D/got"
	assert_line --partial "version 3, made by a delta"
}

@test "DK-01 applied again: it is that version already, and stays so" {
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	stat -c %i "$D/got/model-00001-of-00003.safetensors" >"$T/inode"
	run weir-delta apply "$C/d2" "$D/got"
	assert_success
	assert_output "$D/got: version 2 already"
	stat -c %i "$D/got/model-00001-of-00003.safetensors" |
		diff "$T/inode" -
	tree "$C/v2" | diff - <(tree "$D/got")
}

@test "DK-02 the wrong base: has, needs and target are named" {
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	mkstep --seed 9 "$C/v3" "$D/v4"
	make_delta "$C/v3" "$D/v4" "$D/d4" 3 4
	# The link 2 -> 3 of the chain is gone.
	refuses 65 'is version 2; .* needs version 3, to make version 4' \
		weir-delta apply "$D/d4" "$D/got"
	# The number is right, the weights are not.
	mkstep --seed 8 "$C/v1" "$D/x2"
	make_delta "$C/v1" "$D/x2" "$D/dx" 1 2
	cp -r "$C/v1" "$D/x"
	weir-delta apply -q "$D/dx" "$D/x"
	refuses 65 'base differs: .* needs [0-9a-f]+ \(version 2\), to make version 3: take a full version' \
		weir-delta apply "$C/d3" "$D/x"
	# Neither number nor mark: the digest decides.
	cp -r "$C/v2" "$D/plain"
	refuses 65 'base differs' weir-delta apply "$C/d2" "$C/v3"
	weir-delta apply -q "$C/d3" "$D/plain"
	tree "$C/v3" | diff - <(tree "$D/plain")
}

@test "DK-02 another registry's is refused" {
	for r in a b; do
		mkdir -m 0700 "$T/$r" "$T/$r/versions"
		(umask 077 && printf '%032d\n' "$((0x$r))" >"$T/$r/id")
	done
	make_delta "$C/v1" "$C/v2" "$D/d2" 1 2 --registry "$T/a"
	make_delta "$C/v2" "$C/v3" "$D/d3" 2 3 --registry "$T/b"
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$D/d2" "$D/got"
	refuses 65 'belongs to registry 0+11, .* to registry 0+10' \
		weir-delta apply "$D/d3" "$D/got"
	weir-delta apply -q "$C/d3" "$D/got"	# says nothing of a registry
}

@test "DK-03 the result is what is verified: a wrong checksum stops it" {
	slime diff "$C/v1" "$C/v2" "$D/d" 1 2 xor
	cp -r "$C/v1" "$D/got"
	# Another tensor's bytes under the right frame: only the digest of the
	# result can tell.
	f=$D/d/model-00000-of-00002.safetensors
	sum=$(grep -ao '"__metadata__": {"[^"]*": "[0-9a-f]*' "$f" |
		grep -o '[0-9a-f]*$')
	sed -i "s/$sum/$(tr 0-9a-f 1-9a-f0 <<<"$sum")/" "$f"
	refuses 65 'tensor "[a-z.0-9_]+": applied, its xxh3-128 is .*; expected' \
		weir-delta apply "$D/d" "$D/got" --base-version 1
}

@test "DK-04 a tensor that the base lacks, or has otherwise; others stay" {
	mktensors "$D/a" x:BF16:8,2 y:F32:5 z:U8:3
	mkstep --part 0.5 --only x "$D/a" "$D/b"
	make_delta "$D/a" "$D/b" "$D/d" 1 2
	mktensors "$D/lacks" y:F32:5 z:U8:3
	refuses 65 'has no tensor "x"; .* needs it' \
		weir-delta apply "$D/d" "$D/lacks"
	mktensors "$D/shape" x:BF16:4,4 y:F32:5 z:U8:3
	refuses 65 'tensor "x" is BF16 \[4x4\]; .* for BF16 \[8x2\]' \
		weir-delta apply "$D/d" "$D/shape"
	mktensors "$D/dtype" x:F16:8,2 y:F32:5 z:U8:3
	refuses 65 'tensor "x" is F16 \[8x2\]; .* for BF16' \
		weir-delta apply "$D/d" "$D/dtype"
	# Another writer says neither: the size is wrong, or the checksum.
	slime diff "$D/a" "$D/b" "$D/s" 1 2 xor
	mktensors "$D/size" x:BF16:8,3 y:F32:5 z:U8:3
	refuses 65 'tensor "x": its payload unpacks to 32 bytes, the tensor has 48' \
		weir-delta apply "$D/s" "$D/size" --base-version 1
	weir-delta apply -q "$D/d" "$D/a"
	slime same "$D/a" "$D/b"
	# And diff says which it cannot express.
	refuses 65 'tensor "x" is in .*/a and not in .*/lacks' \
		weir-delta diff "$D/a" "$D/lacks" -o "$D/no" --base-version 2 \
		--weight-version 3
	refuses 65 'tensor "x" is BF16 \[8x2\] in .* and BF16 \[4x4\] in' \
		weir-delta diff "$D/a" "$D/shape" -o "$D/no" --base-version 2 \
		--weight-version 3
}

@test "DK-05 who has the old version open goes on reading it" {
	cp -r "$C/v1" "$D/got"
	exec 7<"$D/got/model-00001-of-00003.safetensors"
	exec 8<"$D/got/model-00003-of-00003.safetensors"
	weir-delta apply -q "$C/d2" "$D/got"
	cmp "$C/v1/model-00001-of-00003.safetensors" - <&7
	cmp "$C/v1/model-00003-of-00003.safetensors" - <&8
	exec 7<&- 8<&-
}

@test "DK-07 into a place that is not empty: the same is fine, others are not" {
	run weir-delta diff "$C/v1" "$C/v2" -o "$C/d2" --base-version 1 \
		--weight-version 2
	assert_success
	assert_output "$C/d2: version 2 already"
	cp -r "$C/d2" "$D/d"
	refuses 65 'is there already, and another delta' weir-delta diff \
		"$C/v2" "$C/v3" -o "$D/d" --base-version 2 --weight-version 3
	mkdir "$D/full" "$D/empty"
	touch "$D/full/model-00009-of-00009.safetensors"
	refuses 65 'is there already, and no delta' weir-delta diff "$C/v1" \
		"$C/v2" -o "$D/full" --base-version 1 --weight-version 2
	refuses 65 'is there already, and not version 2' weir-delta apply "$C/d2" "$C/v1" -o "$D/full"
	make_delta "$C/v1" "$C/v2" "$D/empty" 1 2
	diff -r "$D/empty" "$C/d2"
}

@test "apply -o: a new directory, sharing nothing with the old one" {
	weir-delta apply -q "$C/d2" "$C/v1" -o "$D/new"
	tree "$C/v2" | diff - <(tree "$D/new")
	run find "$D/new" "$C/v1" -type f -links +1
	assert_output ""
	run weir-delta apply "$C/d2" "$C/v1" -o "$D/new"
	assert_output "$D/new: version 2 already"
	refuses 65 'is there already, and not version 3' \
		weir-delta apply "$C/d3" "$C/v2" -o "$D/new"
}

@test "DK-09 one at a time builds in a place; two at once end with one" {
	mkdir "$D/.d.weir-new"
	exec 9<"$D/.d.weir-new"
	flock 9
	refuses 75 'somebody else is writing' weir-delta diff "$C/v1" "$C/v2" \
		-o "$D/d" --base-version 1 --weight-version 2
	exec 9<&-
	for i in 1 2 3; do
		start "w$i" weir-delta diff "$C/v1" "$C/v2" -o "$D/d" \
			--base-version 1 --weight-version 2
	done
	for i in 1 2 3; do
		wait_for_end "$(pid_of "w$i")" || [ $? -eq 75 ]
	done
	diff -r "$D/d" "$C/d2"
	[ ! -e "$D/.d.weir-new" ]
}

@test "DK-10 what a dead one left is removed, and nothing else" {
	mkdir -p "$D/other" "$D/.got.weir-new/sub" "$D/.gotten.weir-new"
	touch "$D/.got.weir-new/sub/x" "$D/.gotten.weir-new/y"
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	run ls -A "$D"
	assert_output "$(printf '.gotten.weir-new\ngot\nother')"
}

@test "DK-12 a directory edited by hand is found; a full version heals it" {
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	f=$D/got/model-00002-of-00003.safetensors
	spoil "$f" 9000
	refuses 65 'local base differs: it says that it is version 2' \
		weir-delta apply "$C/d3" "$D/got"
	refuses 65 'weights changed \(model-00002-of-00003.safetensors\)' \
		weir-delta verify "$D/got"
	# As for a version that is there already.
	refuses 65 'local base differs' weir-delta apply "$C/d2" "$D/got"
	rm -r "$D/got"
	cp -r "$C/v2" "$D/got"
	weir-delta apply -q "$C/d3" "$D/got"
	echo >>"$D/got/config.json"
	refuses 65 'a file beside the weights changed \(config.json\)' \
		weir-delta verify "$D/got"
}

@test "what belongs to no version stays: links, modes, other files" {
	cp -r "$C/v1" "$D/got"
	mkdir -p "$D/got/sub/deep" "$D/got/.git"
	echo note >"$D/got/sub/deep/README"
	echo x >"$D/got/.git/HEAD"
	ln -s config.json "$D/got/link.json"
	chmod 640 "$D/got/model-00001-of-00003.safetensors"
	chmod 600 "$D/got/config.json"
	chmod 750 "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	[ "$(readlink "$D/got/link.json")" = config.json ]
	[ "$(cat "$D/got/sub/deep/README" "$D/got/.git/HEAD")" = "note
x" ]
	run stat -c %a "$D/got" "$D/got/config.json" \
		"$D/got/model-00001-of-00003.safetensors"
	assert_output "$(printf '750\n600\n640')"
}

@test "by a link, and with a slash: the directory that is meant" {
	mkdir "$D/real"
	cp -r "$C/v1" "$D/real/got"
	ln -s real/got "$D/link"
	weir-delta apply -q "$C/d2" "$D/link/"
	[ -L "$D/link" ]
	tree "$C/v2" | diff - <(tree "$D/real/got")
	run ls -A "$D/real"
	assert_output got
}

@test "nothing changed: no payload, only a new number" {
	cp -r "$C/v1" "$D/got"
	make_delta "$C/v1" "$C/v1" "$D/d" 1 2
	run ls "$D/d"
	assert_output "$(printf 'model.safetensors.index.json\nweir-delta.jsonl')"
	slime apply "$D/d" "$D/got"
	weir-delta apply -q "$D/d" "$D/got"
	run weir-delta inspect --json "$D/got"
	[ "$(jq -c '[.version, .tensors]' <<<"$output")" = '[2,24]' ]
	weir-delta apply -q "$D/d" "$D/got"
}

@test "FS-04 a delta that is not there yet: the file is named, none is taken" {
	cp -r "$C/v1" "$D/got"
	cp -r "$C/d2" "$D/d"
	mv "$D/d/model.safetensors.index.json" "$T/index"
	refuses 66 'no model.safetensors.index.json: no delta, or one that is not finished' \
		weir-delta apply "$D/d" "$D/got"
	cp "$T/index" "$D/d/model.safetensors.index.json"
	mv "$D/d/model-00000-of-00001.safetensors" "$T/shard"
	refuses 66 'model-00000-of-00001.safetensors is missing' \
		weir-delta apply "$D/d" "$D/got"
	head -c -1 "$T/shard" >"$D/d/model-00000-of-00001.safetensors"
	refuses 65 'model-00000-of-00001.safetensors: .*expected' \
		weir-delta apply "$D/d" "$D/got"
	cp "$T/shard" "$D/d/model-00000-of-00001.safetensors"
	weir-delta apply -q "$D/d" "$D/got"
}

@test "FS-04 --wait: what comes later is waited for, in any order, or not" {
	skip_if_sanitized	# its leak checker cannot be traced
	cp -r "$C/v1" "$D/got"
	cp -r "$C/d2" "$D/whole"
	mkdir "$D/d"
	cp "$C/d2/model.safetensors.index.json" "$D/d"
	refuses 66 'model-00000-of-00001.safetensors is missing' \
		weir-delta apply "$D/d" "$D/got" --wait 300ms
	start apply strace -qq -e trace=openat -o "$T/opens" weir-delta apply \
		"$D/d" "$D/got" --wait 60s
	# It has looked, and looks again.
	looked() { [ "$(grep -c 'index.json' "$T/opens")" -ge "$1" ]; }
	wait_for looked 2
	mv "$D/whole/model-00000-of-00001.safetensors" "$D/d"
	wait_for looked 4
	mv "$D/whole/weir-delta.jsonl" "$D/d"
	wait_for_end "$(pid_of apply)"
	tree "$C/v2" | diff - <(tree "$D/got")
}

@test "cut, foreign or damaged files of a delta are refused by name" {
	cp -r "$C/v1" "$D/got"
	cp -r "$C/d2" "$D/d"
	touch "$D/d/model-00001-of-00002.safetensors"
	refuses 65 'the index does not know it' weir-delta apply "$D/d" "$D/got"
	rm "$D/d/model-00001-of-00002.safetensors"
	cp "$C/d3/weir-delta.jsonl" "$D/d/"
	refuses 65 'weir-delta.jsonl: it is not the one that the index names' \
		weir-delta apply "$D/d" "$D/got"
	rm "$D/d/weir-delta.jsonl"
	refuses 65 'weir-delta.jsonl is missing' \
		weir-delta apply "$D/d" "$D/got"
	mkfifo "$D/d/weir-delta.jsonl"
	run --separate-stderr timeout 30 weir-delta apply "$D/d" "$D/got"
	one_line_error 65 "weir-delta.jsonl is not a regular file"
	rm "$D/d/weir-delta.jsonl"
	cp "$C/d2/weir-delta.jsonl" "$D/d/"
	f=$D/d/model-00000-of-00001.safetensors
	size=$(stat -c %s "$f")
	spoil "$f" $((size - 9))
	refuses 65 'its bytes are not those that were written' \
		weir-delta verify "$D/d"
	refuses 65 'tensor ".*": ' weir-delta apply "$D/d" "$D/got"
}

@test "what this weir cannot read is refused by its name" {
	cp -r "$C/v1" "$D/got"
	cp -r "$C/d2" "$D/d"
	index=$D/d/model.safetensors.index.json
	sed -i 's/xxh3-128/blake3/' "$index"
	refuses 65 'its checksums are blake3, which this weir is built without' \
		weir-delta apply "$D/d" "$D/got"
	sed -i 's/blake3/md5/' "$index"
	refuses 65 'checksum_format is "md5"; expected' \
		weir-delta apply "$D/d" "$D/got"
	sed -i 's/md5/adler32/; s/"zstd"/"lz4"/' "$index"
	refuses 65 'compression_format is "lz4"; expected zstd' \
		weir-delta apply "$D/d" "$D/got"
	sed -i 's/"xor"/"xnor"/' "$index"
	refuses 65 'delta_encoding is "xnor"; expected' \
		weir-delta apply "$D/d" "$D/got"
	refuses 65 'no delta_encoding: a full version' \
		weir-delta apply "$C/v1" "$D/got"
	refuses 64 'checksum blake3: this weir is built without it' \
		weir-delta diff "$C/v1" "$C/v2" -o "$D/no" --base-version 1 \
		--weight-version 2 --delta-checksum blake3
}

@test "a frame that unpacks to more than its tensor is not unpacked" {
	mktensors "$D/a" x:BF16:8,2
	mkstep --part 0.5 "$D/a" "$D/b"
	"$PYTHON" - "$D" <<-'PY'
		import sys
		sys.path.insert(0, "tests")
		import importlib.util as u
		import os
		s = u.spec_from_file_location("slime", os.environ["SRC"] +
		                              "/tests/slimedelta.py")
		m = u.module_from_spec(s)
		s.loader.exec_module(m)
		d = sys.argv[1]
		for name, bomb in (("bomb", bytes(64 << 20)), ("short", b"")):
		    m.payload = lambda *_: bomb
		    m.diff(d + "/a", d + "/b", d + "/" + name, 1, 2, "xor")
		    m.diff(d + "/a", d + "/b", d + "/o" + name, 1, 2, "overwrite")
	PY
	refuses 65 'its payload unpacks to 67108864 bytes, the tensor has 32' \
		weir-delta apply "$D/bomb" "$D/a" --base-version 1
	refuses 65 'tensor "x": its payload' \
		weir-delta apply "$D/obomb" "$D/a" --base-version 1
	refuses 65 'tensor "x": its payload' \
		weir-delta apply "$D/oshort" "$D/a" --base-version 1
}

@test "a tensor of 4 GiB: overwrite would wrap, so it goes by xor" {
	skip_if_sanitized
	mktensors --sparse "$D/a" "w:U8:4294967296" x:U8:8
	cp --sparse=always -r "$D/a" "$D/b"
	f=$D/b/model.safetensors
	end=$(stat -c %s "$f")
	printf 'new' | dd of="$f" bs=1 seek=$((end - 50)) conv=notrunc \
		status=none
	make_delta "$D/a" "$D/b" "$D/d" 1 2 --delta-encoding overwrite \
		2>/dev/null
	run weir-delta inspect "$D/d"
	assert_line --partial "1 tensor, "
	assert_line --partial "encoding xor"
}

@test "weir delta: an action that is none is quoted; no registry is needed" {
	refuses 64 'unknown action "foo"' weir-delta foo
	refuses 64 'unknown action "foo"' weir delta foo a b
	refuses 64 "missing argument" weir-delta
	refuses 64 "usage: weir delta diff OLD NEW -o DIR" weir-delta diff
	WEIR_REGISTRY=$T/none run --separate-stderr weir-delta diff \
		"$C/v1" "$C/v2" -o "$T/d" --base-version 1 --weight-version 2
	assert_success
	refuses 66 "$T/none: no registry" weir-delta diff "$C/v1" "$C/v2" \
		-o "$T/d2" --base-version 1 --weight-version 2 \
		--registry "$T/none"
}

@test "usage is checked, and numbers must agree with what directories say" {
	refuses 64 'expected diff, apply, verify or inspect' \
		weir-delta patch "$C/d2"
	refuses 64 'usage: weir delta apply DELTA DIR' weir-delta apply "$C/d2"
	refuses 64 'diff needs -o DIR' weir-delta diff "$C/v1" "$C/v2"
	refuses 64 'does not say which version it is: give --base-version' \
		weir-delta diff "$C/v1" "$C/v2" -o "$D/d"
	refuses 64 'must be above' weir-delta diff "$C/v1" "$C/v2" -o "$D/d" \
		--base-version 2 --weight-version 2
	refuses 64 'expected' weir-delta diff "$C/v1" "$C/v2" -o "$D/d" \
		--threads 257
	refuses 66 '/no' weir-delta apply "$D/no" "$C/v1"
	refuses 66 '/no' weir-delta apply "$C/d2" "$D/no"
	cp -r "$C/v1" "$D/got"
	weir-delta apply -q "$C/d2" "$D/got"
	refuses 65 'base-version 1, but .* says that it is version 2' \
		weir-delta apply "$C/d3" "$D/got" --base-version 1
	# Marked directories need no numbers.
	cp -r "$D/got" "$D/next"
	weir-delta apply -q "$C/d3" "$D/next"
	run weir-delta diff "$D/got" "$D/next" -o "$D/d"
	assert_output --partial "version 3 from 2"
	diff "$D/d/model-00000-of-00001.safetensors" "$C/d3"/*.safetensors
	run weir delta inspect --json "$D/d"
	[ "$(jq -c '[.version, .base_version]' <<<"$output")" = '[3,2]' ]
}

@test "FS-02 a file system that is full: need and have, and nothing stays" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	mkdir "$T/small"
	run --separate-stderr unshare -m sh -c "
		mount -t tmpfs -o size=400k none '$T/small' &&
		cp -r '$C/v1' '$T/small/got' && cp -r '$C/v1' '$T/v1' || exit 9
		weir-delta apply '$C/d2' '$T/small/got'
		echo \$?
		head -c 1m /dev/zero >'$T/small/fill' 2>/dev/null
		weir-delta diff '$C/v1' '$C/v3' -o '$T/small/d' \
			--base-version 1 --weight-version 3
		echo \$?
		ls -A '$T/small'
		diff -r '$T/v1' '$T/small/got'"
	assert_output "$(printf '74\n74\nfill\ngot')"
	[[ "$stderr" =~ no\ space\ for\ .*:\ need\ [0-9]+\ bytes,\ have\ [0-9]+ ]]
	[ "$(grep -c error <<<"$stderr")" -eq 2 ] || fail "$stderr"
}

# with_fault KIND N COMMAND...: the nth of its calls of a kind fails; $T/mark
# is there if it has made so many.
with_fault() {
	rm -f "$T/mark"
	run --separate-stderr env LD_PRELOAD="$BUILD/tests/fault/fault.so" \
		FAULT_PROC=weir-delta FAULT_KIND="$1" FAULT_N="$2" \
		FAULT_MARK="$T/mark" "${@:3}"
}

# is_like A B: the same names and bytes, but for the mark.
is_like() { diff -r -x .weir-version "$1" "$2" >"$T/differ"; }

@test "I9 apply: calls fail, one at a time; old or new, said, and mended" {
	local kind n step met=()

	skip_if_sanitized	# which must be loaded first
	mkckpt "$D/v1" --size 40KiB --layers 1 --shards 2
	mkstep --part 0.1 --only layers "$D/v1" "$D/v2"
	make_delta "$D/v1" "$D/v2" "$D/d" 1 2
	for kind in open create read write space fsync rename link mkdir mmap; do
		# Of those that there are many of, some.
		step=1
		[[ $kind != @(open|read) ]] || step=15
		for ((n = 1; ; n += step)); do
			rm -rf "$D/got"
			cp -r "$D/v1" "$D/got"
			with_fault "$kind" "$n" weir-delta apply -q "$D/d" \
				"$D/got"
			[ -e "$T/mark" ] || break
			if [ "$status" -ne 0 ]; then
				assert_equal "$(grep -c error <<<"$stderr")" 1
				is_like "$D/v1" "$D/got" ||
					is_like "$D/v2" "$D/got"
			fi
			weir-delta apply -q "$D/d" "$D/got"
			is_like "$D/v2" "$D/got"
			assert_equal "$(ls -A "$D")" $'d\ngot\nv1\nv2'
		done
		assert_success
		[ "$n" -eq 1 ] || met+=("$kind")
	done
	[[ "${met[*]}" == *open*read*write*fsync*rename* ]] || fail "${met[*]}"
}

@test "a place that cannot be written to: one clear line" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	cp -r "$C/v1" "$D/got"
	run --separate-stderr unshare -m sh -c "
		mount --bind '$D' '$D' && mount -o remount,ro,bind '$D' || exit 9
		weir-delta apply '$C/d2' '$D/got'; echo \$?
		weir-delta apply '$C/d2' '$D/got' -o '$D/new'; echo \$?
		weir-delta diff '$C/v1' '$C/v2' -o '$D/d' --base-version 1 \
			--weight-version 2; echo \$?"
	assert_output "$(printf '77\n77\n77')"
	[ "$(grep -c 'Read-only file system' <<<"$stderr")" -eq 3 ]
	[ "$(wc -l <<<"$stderr")" -eq 3 ]
	# It is one: nothing has to be written.
	cp -r "$C/v2" "$D/is"
	run unshare -m sh -c "
		mount --bind '$D' '$D' && mount -o remount,ro,bind '$D' &&
		weir-delta apply '$C/d2' '$D/is'"
	assert_output "$D/is: version 2 already"
}

@test "a place that belongs to root: one clear line" {
	as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
	chmod 755 "$D"
	cp -r "$C/v1" "$C/d2" "$D"
	as_nobody "$(command -v weir-delta)" inspect "$D/d2" ||
		skip "nobody else can be here"
	refuses 77 'Permission denied' as_nobody weir-delta apply "$D/d2" "$D/v1"
	refuses 77 'Permission denied' as_nobody weir-delta apply "$D/d2" \
		"$D/v1" -o "$D/new"
	refuses 77 'Permission denied' as_nobody weir-delta diff "$D/v1" \
		"$D/v1" -o "$D/d" --base-version 1 --weight-version 2
	chmod 0 "$D/v1"
	refuses 77 "$D/v1: Permission denied" as_nobody weir-delta verify "$D/v1"
}

@test "where directories cannot be exchanged, -o is asked for" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	cp -r "$C/v1" "$D/got"
	run --separate-stderr unshare -m sh -c "
		mount --bind '$D/got' '$D/got' && weir-delta apply '$C/d2' '$D/got'"
	[ "$status" -eq 74 ]
	[[ "$stderr" =~ give\ -o\ NEWDIR ]]
	run ls -A "$D"
	assert_output got
}

@test "FS-05 no more threads read than were asked for" {
	skip_if_sanitized	# its leak checker cannot be traced
	cp -r "$C/v1" "$D/got"
	for n in 1 2; do
		rm -f "$T"/clones
		strace -qq -f -e trace=clone,clone3 -o "$T/clones" \
			weir-delta apply -q "$C/d2" "$D/got" --threads "$n" \
			-o "$D/new$n" 2>"$T/err" || skip "no strace here"
		# Rounds of work: base (carried files are in it), pieces and
		# syncs; and two that read the headers of a directory's shards.
		# A call that is interrupted in the trace has a second line.
		[ "$(grep -c 'clone3\?(' "$T/clones")" -le $((n * 3 + 2)) ]
	done
}
