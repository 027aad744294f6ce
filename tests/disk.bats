#!/usr/bin/env bats
# disk.bats - transport disk: a version directory, and engines that load it.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

setup() {
	common_setup
	mkdir "$T/disk"
}

# disk_push SOURCE [OPTION]...
disk_push() {
	local source=$1

	shift
	push "$source" --transport disk --disk-dir "$T/disk" "$@"
}

vdir() { printf '%s/disk/weight_v%06d\n' "$T" "$1"; }

# is_copy SOURCE VERSION: its directory has the files of the source and a mark.
is_copy() {
	local file

	for file in "$1"/*; do
		cmp "$file" "$(vdir "$2")/${file##*/}" || return 1
	done
	[ "$(find "$(vdir "$2")" -type f | wc -l)" -eq \
		$(($(find "$1" -type f | wc -l) + 1)) ]
	weir-delta verify "$(vdir "$2")"
}

@test "disk: two versions to two engines, byte by byte" {
	checkpoint "$T/one" --size 4MiB --shards 3 --seed 1
	checkpoint "$T/two" --size 4MiB --shards 3 --seed 2
	engines a b
	fleet a b
	run --separate-stderr disk_push "$T/one"
	assert_success
	assert_output --partial "version 1 published"
	holds a "$T/one" && holds b "$T/one"
	is_copy "$T/one" 1
	run --separate-stderr disk_push "$T/two"
	assert_success
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds a "$T/two" && holds b "$T/two"
	is_copy "$T/two" 2
	assert_clean_runs
}
