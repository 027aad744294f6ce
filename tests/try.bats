#!/usr/bin/env bats
# try.bats - share/try with a model's directory, in the build that is there.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

# try [MODEL_DIR]...
try() {
	run --separate-stderr env TRY_SETUP=: TRY_MAKE=: BUILD="$BUILD" \
		timeout 300 sh "$SRC/share/try" "$@"
}

# The directory that it printed is gone, and its temporary files are.
cleaned_up() {
	local dir

	dir=$(sed -n 's/^== four engines, stores in //p' <<<"$output")
	[ -n "$dir" ]
	assert_not_exist "$dir"
	assert_equal "$(ls -A "$T/tmp")" ""
}

# tried FILES: it went well, four engines have so many files each.
tried() {
	[ "$status" -eq 0 ] || fail "status $status: $output $stderr"
	assert_line --regexp '^version 1 published: 4 engines,'
	assert_line --regexp '^version 2 published: 4 engines,'
	assert_equal "$(grep -c \
		"^rollout-[0-3]: current -> versions/000002, $1 files, equal" \
		<<<"$output")" 4
	cleaned_up
}

# model DIR: as it is downloaded, with what is no part of it beside it.
model() {
	checkpoint "$1" --size 2MiB --shards 3
	mkdir "$1/original" "$1/.git"
	for file in merges.txt README.md pytorch_model.bin \
		consolidated.safetensors original/params.json .git/pack \
		.gitattributes; do
		echo "$file" >"$1/$file"
	done
}

@test "share/try: shards, config and tokenizer; other formats stay behind" {
	model "$T/model"
	try "$T/model"
	tried 10 # three shards, index, and six that are small
	[[ $stderr == *consolidated.safetensors* ]]
}

@test "share/try: a hub's cache, with blanks in its path" {
	local hub="$T/my models/models--a--b" file

	mkdir -p "$hub/blobs" "$hub/snapshots"
	model "$T/model"
	rm -r "$T/model/original" "$T/model/.git"
	mkdir "$hub/snapshots/0123abc"
	for file in "$T/model"/*; do
		mv "$file" "$hub/blobs/sha-${file##*/}"
		ln -s "../../blobs/sha-${file##*/}" \
			"$hub/snapshots/0123abc/${file##*/}"
	done
	try "$hub/snapshots/0123abc"
	tried 10
}

@test "share/try: one shard, a relative path" {
	checkpoint "$T/model" --size 1MiB
	cd "$T"
	try model
	tried 5
}

@test "share/try: what is no directory is refused before anything is done" {
	try "$T/nowhere"
	one_line_error 64 "$T/nowhere"
	try "$T" "$T"
	one_line_error 64 "one directory"
}

@test "share/try: a directory that is no checkpoint: weir's own word, its code" {
	mkdir "$T/model"
	echo {} >"$T/model/config.json"
	try "$T/model"
	[ "$status" -ge 65 ]
	[ "$status" -le 66 ]
	[[ $stderr == *"$T/model"* ]]
	cleaned_up
}
