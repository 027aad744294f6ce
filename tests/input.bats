#!/usr/bin/env bats
# What source.h and fleet.h take and refuse, through tests/srcdump.

bats_require_minimum_version 1.5.0
load helpers

FIXTURES="$BATS_TEST_DIRNAME/fixtures"

# bad CASE: the fixture in $T/c, read; status and output as by run.
bad() {
	"$FIXTURES/mkbad.py" "$1" "$T/c"
	run "$BUILD/tests/srcdump" "$T/c"
}

# refused CODE TEXT: one line on stderr that contains it.
refused() {
	assert_equal "$status" "$1"
	assert_output --partial "$2"
	assert_equal "${#lines[@]}" 1
}

# index FILE: tensor "w" of a good checkpoint is mapped to FILE (JSON text).
index() {
	rm -rf "$T/c"
	mkdir "$T/c"
	printf '{"weight_map":{"w":%s}}' "$1" \
		>"$T/c/model.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
}

# tiny FILE: a shard with one tensor, "w", of one byte.
tiny() {
	local head='{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'

	printf "\\x$(printf %02x "${#head}")"'\0\0\0\0\0\0\0%sx' "$head" >"$1"
}

SECOND=model-00002-of-00003.safetensors

@test "a whole checkpoint: files and tensors in order, the same each time" {
	bad good
	assert_success
	assert_equal "$(grep -c '^file .* shard ' <<<"$output")" 3
	assert_line --regexp '^file config.json carried '
	assert_line --regexp '^file model.safetensors.index.json carried '
	assert_line 'ignored 0'
	assert_equal "$(grep -c '^tensor' <<<"$output")" 24
	first=${output#*$'\n'}
	grep '^file' <<<"$output" | awk '{print $2}' | sort -c
	run "$BUILD/tests/srcdump" "$T/c"
	assert_equal "${output#*$'\n'}" "$first"
}

@test "a tensor is where the offset says" {
	bad good
	grep '^tensor' <<<"$output" | while read -r _ name _ _ file at bytes; do
		python3 - "$T/c/$file" "$name" "$at" "$bytes" <<-'PY'
		import hashlib, sys
		path, name, at, size = sys.argv[1:]
		with open(path, "rb") as f:
		    f.seek(int(at))
		    got = f.read(min(24, int(size)))
		want = hashlib.sha256(f"1\0{name}".encode()).digest()[:len(got)]
		sys.exit(got != want)
		PY
	done
}

@test "ST-01 short files: expected and actual size" {
	for case in cut-1 cut-4k cut-data; do
		rm -rf "$T/c"
		bad "$case"
		refused 65 "$SECOND: truncated: expected "
		assert_output --partial "found $(stat -c %s "$T/c/$SECOND") ("
	done
	rm -rf "$T/c"
	bad cut-half
	refused 65 "$SECOND: "
	assert_output --partial "$(stat -c %s "$T/c/$SECOND")"
}

@test "ST-02 trailing bytes" {
	bad trailing-1
	refused 65 "$SECOND: not fully covered: expected "
	rm -rf "$T/c"
	bad trailing-1m
	refused 65 "$SECOND: not fully covered: expected "
}

@test "ST-03 a Git-LFS pointer, a page" {
	bad lfs
	refused 65 "$SECOND: looks like a Git-LFS pointer"
	rm -rf "$T/c"
	bad html
	refused 65 "$SECOND: looks like an HTML or error page"
}

@test "ST-04 lengths: too large, past the end, too short" {
	bad huge-header
	refused 65 "$SECOND: header too large"
	rm -rf "$T/c"
	bad header-past-end
	refused 65 "$SECOND: header goes past the end of the file"
	rm -rf "$T/c"
	bad short
	refused 65 "$SECOND: too short"
}

@test "ST-08 overlap and hole, with names and place" {
	bad overlap
	refused 65 "overlaps \"model.layers."
	rm -rf "$T/c"
	bad hole
	refused 65 "hole before it: 1 bytes at data offset "
}

@test "ST-08 a name twice in a header" {
	bad name-twice
	refused 65 "twice in the header"
}

@test "ST-10 ST-11 ST-12 all dtypes, empty tensors and scalars" {
	bad all-dtypes
	assert_success
	assert_line --regexp '^tensor t.F4 F4 \[8\] model.safetensors [0-9]+ 4$'
	assert_line --regexp '^tensor t.F6_E2M3 F6_E2M3 .* 6$'
	assert_line --regexp '^tensor t.C64 C64 .* 64$'
	assert_line --regexp '^tensor s F64 \[\] .* 8$'
	assert_line --regexp '^tensor e.00 BF16 \[2,0\] .* 0$'
	assert_equal "$(grep -c '^tensor' <<<"$output")" 26
}

@test "ST-11 an unknown dtype is named with its tensor" {
	bad dtype
	refused 65 'unknown dtype "F9_X"'
}

@test "ST-18 nothing is mapped: a small address space is enough" {
	skip_if_sanitized
	"$FIXTURES/mkckpt.py" "$T/c" --size 64MiB
	run bash -c 'ulimit -v 40000; exec "$0" "$1"' "$BUILD/tests/srcdump" \
		"$T/c"
	assert_success
}

@test "a header padded by NUL bytes" {
	bad nul-padding
	refused 65 "NUL byte"
}

@test "IX-01 a missing shard is named, with one of its tensors" {
	bad shard-missing
	refused 66 "1 of 3 shards missing: \"$SECOND\" (tensor \"model."
}

@test "IX-02 what is not in the index is ignored, in one line" {
	bad stale-shards
	assert_success
	assert_line 'ignored 3'
	assert_line --regexp 'warn.*3 entries are no part.*00001-of-00002'
	refute_line --regexp '^[a-z]+ .*00001-of-00002'
	# Nor is the index of such a set, which would lead to nothing.
	echo '{"weight_map":{"w":"old-00001-of-00002.safetensors"}}' \
		>"$T/c/old.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
	assert_line 'ignored 4'
	refute_line --regexp '^file .*old'
	assert_line --regexp '^file model.safetensors.index.json carried '
}

@test "IX-02 a tensor of one shard mapped to another" {
	bad mapped-elsewhere
	refused 65 "is in \"$SECOND\", but the index maps it to \"model-00003"
	rm -rf "$T/c"
	bad two-shards
	refused 65 "is in \"model-00003-of-00003.safetensors\", but the index"
	assert_output --partial "maps it to \"$SECOND\""
}

@test "IX-04 three faults, three messages" {
	bad not-in-index
	refused 65 "is in \"$SECOND\" but not in the index"
	rm -rf "$T/c"
	bad shard-missing
	refused 66 "shards missing"
	rm -rf "$T/c"
	bad not-in-header
	refused 65 '"model.extra.weight": the index maps it to'
	assert_output --partial "whose header does not have it"
}

@test "IX-07 paths that lead out of the directory" {
	for file in ../x.safetensors /etc/passwd a/../../x 'C:\\x' '' . a//b \
		./a a/ 'a\u0000b' 'a\nb' ..; do
		index "\"$file\""
		refused 65 'index.json: tensor "w": file "'
		assert_output --partial 'is not allowed'
	done
}

@test "IX-07 a link that leads out of the directory" {
	mkdir "$T/out" "$T/c"
	tiny "$T/out/secret"
	ln -s ../out/secret "$T/c/model.safetensors"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "c/model.safetensors leads out of the source, to $T/out/secret"
	rm "$T/c/model.safetensors"
	tiny "$T/c/model.safetensors"
	ln -s /etc/passwd "$T/c/vocab.txt"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "vocab.txt leads out of the source"
	rm "$T/c/vocab.txt"
	ln -s ../out "$T/c/dir"
	printf '{"weight_map":{"w":"dir/secret"}}' \
		>"$T/c/model.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "c/dir/secret leads out of the source"
}

@test "IX-07 links inside, sub-directories and the cache layout are fine" {
	mkdir -p "$T/c/shards"
	tiny "$T/c/shards/x.safetensors"
	printf '{"weight_map":{"w":"shards/x.safetensors"}}' \
		>"$T/c/model.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
	assert_success
	assert_line --regexp '^tensor w U8 \[1\] shards/x.safetensors '
	mkdir -p "$T/hub/blobs" "$T/hub/snapshots/r"
	tiny "$T/hub/blobs/abc"
	ln -s ../../blobs/abc "$T/hub/snapshots/r/model.safetensors"
	ln -s "$T/hub/snapshots/r" "$T/link"
	run "$BUILD/tests/srcdump" "$T/link"
	assert_success
	assert_line --regexp '^tensor w '
}

@test "IX-07 a shard that is no regular file" {
	mkdir -p "$T/c"
	printf '{"weight_map":{"w":"pipe"}}' >"$T/c/model.safetensors.index.json"
	mkfifo "$T/c/pipe"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "pipe is not a regular file"
	rm "$T/c/pipe"
	mkdir "$T/c/pipe"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "pipe is not a regular file"
}

@test "IX-09 metadata keys of any type" {
	bad metadata-keys
	assert_success
}

@test "IX-09 other keys, wrong types" {
	index 7
	refused 65 'tensor "w": expected a file'"'"'s name, found a number'
	printf '{"weight_map":{},"x":1}' >"$T/c/model.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 'unknown key "x"'
	printf '{"weight_map":{}}' >"$T/c/model.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 'no tensors in weight_map'
	printf '{"weight_map":{"w":"a"},' >"$T/c/model.safetensors.index.json"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 'ends too early'
}

@test "IX-10 several shards and no index; a tensor twice" {
	bad no-index
	refused 65 "found 3 without an index: \"model-00001-of-00003.safetensors"
	rm -rf "$T/c"
	bad index-name-twice
	refused 65 "twice, in \"model-0000"
}

@test "IX-12 500,000 names in seven shards, the same order each time" {
	"$FIXTURES/mkbad.py" many "$T/c"
	# Too much for bash to hold.
	"$BUILD/tests/srcdump" "$T/c" >"$T/first"
	"$BUILD/tests/srcdump" "$T/c" >"$T/second"
	assert_equal "$(grep -c '^tensor' "$T/first")" 500000
	cmp "$T/first" "$T/second"
}

@test "IX-12 memory for each tensor is bounded" {
	skip_if_sanitized
	"$FIXTURES/mkbad.py" many "$T/c"
	run "$BUILD/tests/srcdump" --memory "$T/c"
	assert_success
	[ "${lines[-1]#memory }" -le 300 ]
}

# changed COMMAND...: run between opening the source and opening its files.
changed() {
	"$FIXTURES/mkbad.py" good "$T/c"
	mkfifo "$T/go"
	rm -f "$T/out" # of the one before
	"$BUILD/tests/srcdump" --wait "$T/c" <"$T/go" >"$T/out" 2>&1 3>&- &
	local pid=$!

	exec 4>"$T/go"
	wait_for grep -q '^open' "$T/out"
	"$@"
	echo >&4
	exec 4>&-
	status=0
	wait "$pid" || status=$?
	rm "$T/go"
}

@test "IX-13 a shard that changed since the plan" {
	changed true
	assert_equal "$status" 0
	rm -rf "$T/c"
	changed cp --remove-destination "$T/c/$SECOND" "$T/new"
	mv "$T/new" "$T/c/$SECOND"
	rm -rf "$T/c"
	# shellcheck disable=SC2317 # called by changed
	exchange() { cp "$T/c/$SECOND" "$T/n" && mv "$T/n" "$T/c/$SECOND"; }
	changed exchange
	assert_equal "$status" 65
	assert_file_contains "$T/out" "$SECOND changed since the plan: it is another file"
	rm -rf "$T/c"
	changed truncate -s -1 "$T/c/$SECOND"
	assert_equal "$status" 65
	assert_file_contains "$T/out" "$SECOND changed since the plan: expected"
	rm -rf "$T/c"
	changed touch -d 2001-01-01 "$T/c/$SECOND"
	assert_equal "$status" 65
	assert_file_contains "$T/out" "$SECOND changed since the plan: it was written"
	rm -rf "$T/c"
	changed rm "$T/c/$SECOND"
	assert_equal "$status" 65
	assert_file_contains "$T/out" "$SECOND changed since the plan: it is gone"
}

@test "MD-01 a tied head is said, an untied one must be there" {
	bad good
	assert_line 'head tied'
	assert_line --partial 'lm_head.weight: tied, not sent'
	rm -rf "$T/c"
	bad tied-not-said
	assert_line 'head tied'
	rm -rf "$T/c"
	bad untied-head-missing
	refused 65 'lm_head.weight is missing'
	# Python's numbers do not keep it from being read.
	sed -i '1s/{/{"time_step_limit": [0.0, Infinity, NaN],/' "$T/c/config.json"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 'lm_head.weight is missing'
	"$FIXTURES/mkckpt.py" "$T/u" --size 1MiB --untied
	run "$BUILD/tests/srcdump" "$T/u"
	assert_line 'head sent'
}

@test "the root of a Hugging Face cache: where its checkpoints are" {
	mkdir -p "$T/c/blobs" "$T/c/refs" "$T/c/snapshots/abc"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 66 "a Hugging Face cache: give the checkpoint in it, $T/c/snapshots/REVISION"
}

@test "no tensors, no weights, no directory" {
	bad no-tensors
	refused 65 'no tensors'
	rm "$T/c/model.safetensors"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 66 'no *.safetensors and no model.safetensors.index.json'
	run "$BUILD/tests/srcdump" "$T/none"
	refused 66 "open source $T/none"
}

@test "the structure digest knows shapes, not weights" {
	"$FIXTURES/mkckpt.py" "$T/a" --size 1MiB --shards 2 --seed 1
	"$FIXTURES/mkckpt.py" "$T/b" --size 1MiB --shards 2 --seed 2
	"$FIXTURES/mkckpt.py" "$T/c" --size 1MiB --shards 3 --seed 1
	run -1 cmp -s "$T/a/model-00001-of-00002.safetensors" \
		"$T/b/model-00001-of-00002.safetensors"
	a=$("$BUILD/tests/srcdump" "$T/a" 2>/dev/null | grep '^structure')
	b=$("$BUILD/tests/srcdump" "$T/b" 2>/dev/null | grep '^structure')
	c=$("$BUILD/tests/srcdump" "$T/c" 2>/dev/null | grep '^structure')
	assert_equal "$a" "$b"
	[ "$a" != "$c" ]
}

@test "FL-06 no engines" {
	echo 'engines: []' >"$T/fleet.yaml"
	run "$BUILD/tests/srcdump" --fleet "$T/fleet.yaml"
	refused 78 'fleet.yaml: no engines'
	run "$BUILD/tests/srcdump" --fleet "$T/none.yaml"
	refused 66 'open fleet '
	run "$BUILD/tests/srcdump" --fleet - </dev/null
	refused 78 'standard input: no engines'
}

@test "a fleet from standard input" {
	run "$BUILD/tests/srcdump" --fleet - <<-'Y'
	engines:
	  - name: e0
	    workers: [{endpoint: "ipc:///e0"}, {endpoint: "ipc:///e0"}]
	Y
	assert_success
	assert_output 'engine e0 native 2'
}

@test "IX-07 names that no file can have, and links in a circle" {
	index "\"$(printf 'n%.0s' {1..300}).safetensors\""
	refused 65 "File name too long"
	rm -r "$T/c"
	mkdir "$T/c"
	tiny "$T/c/model.safetensors"
	ln -s loop.txt "$T/c/loop.txt"
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "loop.txt: Too many levels of symbolic links"
	rm "$T/c/loop.txt"
	touch "$T/c/"$'\xff.txt'
	run "$BUILD/tests/srcdump" "$T/c"
	refused 65 "source $T/c: file \"\\xff.txt\": what is not UTF-8 is not allowed"
}
