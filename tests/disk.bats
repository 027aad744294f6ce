#!/usr/bin/env bats
# disk.bats - transports disk and delta: a version directory, and engines
# that load it.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet
load delta

# What is synced is synced quickly in memory.  The first test stays on the
# disk, and those of which only a disk can tell whether they were touched.
setup() {
	[ "$BATS_TEST_NUMBER" -eq 1 ] ||
		[[ $BATS_TEST_DESCRIPTION == untouched:* ]] ||
		[ ! -d /dev/shm ] || export TMPDIR=/dev/shm
	common_setup
	mkdir "$T/disk"
}

# disk_push SOURCE [OPTION]..., delta_push the same.
disk_push() {
	local source=$1

	shift
	push "$source" --transport disk --disk-dir "$T/disk" "$@"
}

delta_push() {
	local source=$1

	shift
	push "$source" --transport delta --disk-dir "$T/disk" "$@"
}

vdir() { printf '%s/disk/weight_v%06d\n' "$T" "$1"; }

# kind VERSION: what its directory's mark says.
kind() { grep -o '"kind":"[a-z]*"' "$(vdir "$1")/.weir-version"; }
is_diff() { assert_equal "$(kind "$1")" '"kind":"diff"'; }
is_full() { assert_equal "$(kind "$1")" '"kind":"full"'; }

# there VERSION...: exactly these have directories, and nothing else is there.
there() {
	local version

	assert_equal "$(ls -A "$T/disk")" \
		"$(for version; do basename "$(vdir "$version")"; done)"
}

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

# touch_up OLD NEW BYTE: a copy with one byte of the last tensor changed.
touch_up() {
	local file

	cp -r "$T/$1" "$T/$2"
	file=$(find "$T/$2" -name '*.safetensors' | sort | tail -n 1)
	printf '%b' "\\x$3" | dd of="$file" bs=1 conv=notrunc status=none \
		seek=$(($(stat -c %s "$file") - 4))
}

small() { checkpoint "$T/$1" --size 1MiB --shards 2 --seed "$2"; }

# fails CODE PART...: of what was run with --separate-stderr.
fails() {
	local code=$1 part

	shift
	assert_equal "$status" "$code"
	for part; do
		assert_regex "$stderr" "$part"
	done
}

@test "disk: two versions to two engines, byte by byte" {
	checkpoint "$T/one" --size 4MiB --shards 3 --seed 1
	checkpoint "$T/two" --size 4MiB --shards 3 --seed 2
	engines a b
	fleet a b
	run --separate-stderr disk_push "$T/one"
	assert_success
	assert_output --partial "version 1 published"
	holds a "$T/one"
	holds b "$T/one"
	is_copy "$T/one" 1
	run --separate-stderr disk_push "$T/two"
	assert_success
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds a "$T/two"
	holds b "$T/two"
	is_copy "$T/two" 2
	assert_clean_runs
}

@test "credit and order are refused: there are no buckets" {
	small one 1
	engines a
	fleet a
	for option in "max-inflight-buckets 2" "max-inflight-bytes 1MiB" \
		"order window" "expert-routing auto"; do
		for transport in disk delta; do
			# shellcheck disable=SC2086 # two words
			run --separate-stderr push "$T/one" --transport \
				$transport --disk-dir "$T/disk" --$option
			fails 64 "--${option% *}: transport $transport"
		done
	done
	run --separate-stderr push "$T/one" --transport disk
	fails 64 "give --disk-dir"
	run --separate-stderr push "$T/one" --disk-dir "$T/disk"
	fails 64 "transport host has no version"
	run --separate-stderr push "$T/one" --transport disk --disk-dir "$T/no"
	fails 66 "$T/no: No such file or directory"
	there
}

@test "FS-05 waves: one engine loads at a time" {
	small one 1
	engines a b c
	fleet a b c
	disk_push "$T/one" --max-inflight-engine-groups 1
	holds a "$T/one"
	holds b "$T/one"
	holds c "$T/one"
	run bash -c "grep -oE 'sealed\"|wave_complete' '$(newest_run)/events' |
		uniq | tr -d '\"' | xargs"
	# Of the last wave the end of the run may be heard first.
	assert_regex "$output" '^sealed wave_complete sealed wave_complete sealed'
}

@test "HT-13 a relative path through a link is sent as what it is" {
	small one 1
	engines a
	fleet a
	ln -s "$T/disk" "$T/link"
	cd "$T"
	push "$T/one" --transport disk --disk-dir link/../link
	holds a "$T/one"
	weir-dump "$(newest_run)/plan.weir" >"$T/plan.json"
	assert_file_contains "$T/plan.json" "\"disk_dir\":\"$T/disk\""
}

@test "post-write runs before any engine loads; its failure is the version's" {
	small one 1
	engines a
	fleet a
	disk_push "$T/one" --post-write \
		"cp \$WEIR_DIR/.weir-version $T/seen; echo \$WEIR_VERSION >$T/n"
	cmp "$T/seen" "$(vdir 1)/.weir-version"
	assert_equal "$(cat "$T/n")" 1
	run --separate-stderr disk_push "$T/one" --post-write "echo broken; exit 3"
	fails 1 "post-write"
	assert_equal "$(serving a)" 1
	there 1
}

@test "FS-04 a directory that appears late is waited for, and then named" {
	small one 1
	engines a
	fleet a
	# What another host would see: nothing, until it is moved back.
	run --separate-stderr disk_push "$T/one" --disk-wait 100ms \
		--post-write "mv \$WEIR_DIR $T/away"
	fails 1 "$(vdir 1): No such file" "host $(hostname)"
	rm -rf "$T/away"
	start mover bash -c "until [ -e $T/away ]; do sleep 0.02; done
		sleep 0.1; mv $T/away $(vdir 2)"
	disk_push "$T/one" --weight-version 2 --post-write \
		"mv \$WEIR_DIR $T/away"
	holds a "$T/one"
	# A short file is one on its way.
	run --separate-stderr disk_push "$T/one" --disk-wait 100ms \
		--post-write "truncate -s -1 \$WEIR_DIR/config.json"
	fails 1 "config.json has"
	assert_equal "$(serving a)" 2
}

@test "DK-07 an older try of the number gives way; a stranger's does not" {
	checkpoint "$T/one" --size 1MiB --shards 4 --seed 1
	small two 2
	engines a
	fleet a
	run --separate-stderr disk_push "$T/one" --post-write "cp -r \$WEIR_DIR $T/old
		exit 1"
	assert_failure
	mv "$T/old" "$(vdir 1)"
	disk_push "$T/two"
	is_copy "$T/two" 1
	holds a "$T/two"
	cp -r "$T/one" "$(vdir 2)"
	run --separate-stderr disk_push "$T/one"
	fails 1 "weight_v000002 is there already and has no mark"
	there 1 2
}

@test "DK-09 two registries, one number: the second is told whose it is" {
	small one 1
	engines a b
	fleet a
	disk_push "$T/one"
	fleet b
	# shellcheck disable=SC2034 # push looks at it
	REGISTRY_DIR=other
	run --separate-stderr disk_push "$T/one"
	fails 1 "weight_v000001 is there already: version 1 of registry"
	is_copy "$T/one" 1
}

@test "DK-05 DK-10 retention: what is read stays, and what is not ours" {
	small one 1
	small two 2
	engines a
	fleet a
	mkdir "$T/disk/weight_v000009x" "$T/disk/other"
	cp -r "$T/one" "$(vdir 7)"
	disk_push "$T/one" --keep 1
	exec 9<"$(vdir 1)"
	flock -s 9
	disk_push "$T/two" --keep 1
	disk_push "$T/one" --keep 1
	# 2 is what the engine served when 3 was published.
	assert_equal "$(cd "$T/disk" && echo ./*)" "./other \
./weight_v000001 ./weight_v000002 ./weight_v000003 ./weight_v000007 \
./weight_v000009x"
	exec 9<&-
	disk_push "$T/two" --keep 1
	assert_equal "$(cd "$T/disk" && echo ./*)" "./other \
./weight_v000003 ./weight_v000004 ./weight_v000007 ./weight_v000009x"
}

@test "transfer killed when the directory is there: the next one leaves it" {
	small one 1
	touch_up one two 12
	engines a
	fleet a
	for transport in disk delta; do
		rm -f "$T/killed"
		push "$T/two" --transport $transport --disk-dir "$T/disk" \
			--post-write "stat -c %i \$WEIR_DIR >>$T/inodes
			[ -e $T/killed ] || { : >$T/killed; kill -KILL \$PPID; }"
		holds a "$T/two"
		[ -e "$T/killed" ]
	done
	# Twice for each of two directories.
	assert_equal "$(uniq -c <"$T/inodes" | awk '{ print $1 }')" $'2\n2'
	there 1 2
}

@test "what is written and not published goes with the run" {
	small one 1
	engines a
	fleet a
	run --separate-stderr disk_push "$T/one" --weight-version 4 \
		--post-write "exit 1"
	assert_failure
	there
}

@test "vanished, read-only, full, in the way: one line, and the old one served" {
	small one 1
	engines a
	fleet a
	disk_push "$T/one"
	run --separate-stderr disk_push "$T/one" --post-write "mv $T/disk $T/gone" \
		--disk-wait 100ms
	fails 1 "No such file or directory"
	mkdir "$T/disk"
	: >"$T/disk/weight_v000003"
	run --separate-stderr disk_push "$T/one" --weight-version 3
	fails 1 "weight_v000003: Not a directory"
	one_error
	rm "$T/disk/weight_v000003"
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	# The engine does not see what is mounted here, and need not.
	export -f disk_push delta_push push
	export T REGISTRY_DIR
	for transport in disk delta; do
		run --separate-stderr unshare -m bash -c "
			mount -t tmpfs -o size=300k none '$T/disk' &&
			${transport}_push '$T/one'"
		fails 1 "no space for $T/disk/weight_v00000[0-9]: need [0-9]+ bytes, have"
		one_error
		run --separate-stderr unshare -m bash -c "
			mount --bind '$T/disk' '$T/disk' &&
			mount -o remount,ro,bind '$T/disk' &&
			${transport}_push '$T/one'"
		fails 1 "weight_v00000[0-9]: Read-only file system"
		one_error
	done
	there
	assert_equal "$(serving a)" 1
	holds a "$T/one"
}

# no_override COMMAND...: as a root who may not read and write everything.
no_override() { setpriv --bounding-set -dac_override,-dac_read_search "$@"; }

@test "of another user: one line of who may not write, or not read" {
	no_override true 2>/dev/null || skip "no capabilities to drop"
	small one 1
	: >"$T/mine"
	chown 65534 "$T/mine" 2>/dev/null || skip "no other user here"
	# Not a script in $T, which may be where nothing may be executed.
	start a setpriv --bounding-set -dac_override,-dac_read_search \
		bash -c 'exec "$@" 3>"$0"' "$T/a.ready" \
		weir-engine --name a --store "$T/a" \
		--listen "ipc://$T/a.sock" --ready-fd 3
	wait_for test -s "$T/a.ready"
	fleet a
	disk_push "$T/one"
	for transport in disk delta; do
		run --separate-stderr "${transport}_push" "$T/one" \
			--disk-wait 100ms --post-write \
			"chown 65534 \$WEIR_DIR && chmod 700 \$WEIR_DIR"
		fails 1 "engine a: .*weight_v00000[0-9]: Permission denied"
		one_error
	done
	there 1
	chown 65534 "$T/disk"
	export -f disk_push delta_push push
	export T REGISTRY_DIR
	for transport in disk delta; do
		run --separate-stderr no_override bash -c \
			"${transport}_push '$T/one'"
		fails 1 "weight_v00000[0-9]: Permission denied"
		one_error
	done
	assert_equal "$(serving a)" 1
	holds a "$T/one"
}

@test "--disk-link shares the source's files with the directory, no other" {
	small one 1
	engines a
	fleet a
	disk_push "$T/one" --disk-link
	for file in "$T/one"/*; do
		[ "$file" -ef "$(vdir 1)/${file##*/}" ]
	done
	disk_push "$T/one"
	run find "$(vdir 2)" "$T/a/versions" -type f -links +1
	assert_output ""
}

# one_error: of all stages, one says why.
one_error() {
	assert_equal "$(grep -c " error" <<<"$stderr")" 1 || fail "$stderr"
}

@test "delta: whole first, then what changed; both engines have it" {
	small one 1
	touch_up one two aa
	touch_up one three bb
	engines a b
	fleet a b
	delta_push "$T/one"
	is_full 1
	run --separate-stderr delta_push "$T/two" --max-inflight-engine-groups 1
	assert_success
	is_diff 2
	holds a "$T/two"
	holds b "$T/two"
	[ ! -e "$T/a/current/.weir-version" ]
	for encoding in overwrite sparse auto; do
		touch_up one "$encoding" "${#encoding}0"
		delta_push "$T/$encoding" --delta-encoding "$encoding"
		holds a "$T/$encoding"
		holds b "$T/$encoding"
	done
	weir-delta inspect "$(vdir 5)"
	is_diff 5
	there 1 2 3 4 5
}

@test "delta: whole again when it is due, larger, or of another layout" {
	small one 1
	small two 2
	touch_up one three cc
	touch_up one four dd
	engines a
	fleet a
	delta_push "$T/one"
	delta_push "$T/two"
	is_full 2
	delta_push "$T/one"
	is_full 3
	delta_push "$T/three"
	is_diff 4
	delta_push "$T/four" --full-every 2
	is_full 5
	delta_push "$T/one" --max-chain 1
	is_diff 6
	delta_push "$T/three" --max-chain 1
	is_full 7
	cp -r "$T/three" "$T/five"
	echo '{}' >"$T/five/generation_config.json"
	delta_push "$T/five"
	is_full 8
	holds a "$T/five"
}

@test "delta: an unchanged version is empty and decided" {
	small one 1
	engines a
	fleet a
	delta_push "$T/one"
	delta_push "$T/one"
	is_diff 2
	assert_equal "$(find "$(vdir 2)" -name '*.safetensors' | wc -l)" 0
	# No byte of a shard was written, here or there.
	for file in "$T/one"/*.safetensors; do
		[ "$T/a/versions/000001/${file##*/}" -ef \
			"$T/a/versions/000002/${file##*/}" ]
	done
	assert_equal "$(serving a)" 2
	holds a "$T/one"
}

# times_tell: a file system where a time tells that somebody wrote (still.h).
times_tell() {
	case $(stat -f -c %T "$T") in
	ext2/ext3 | xfs | btrfs | f2fs) ;;
	*) skip "a file system whose times do not tell" ;;
	esac
}

# past DIR...: all that is there was touched a moment ago, not just now.
is_past() {
	local t=$(($(date +%s%N) - 100000000))

	[ -z "$(find "$@" -type f -newerct \
		"@$((t / 1000000000)).$(printf %09d $((t % 1000000000)))")" ]
}
past() { wait_for is_past "$@"; }

# unread, was_read: the source, by the push in $T/push.err.
unread() { assert_file_contains "$T/push.err" "untouched: it is not read"; }
was_read() { refute_file_has "$T/push.err" untouched; }
refute_file_has() { ! grep -e "$2" "$1"; }

# again SOURCE [OPTION]...: pushed by delta, and what was said is kept.
again() { delta_push "$@" -v 2>"$T/push.err"; }

# is_linked A B: engine a's versions are the same files.
is_linked() {
	local file

	for file in "$T/one"/*; do
		[ "$T/a/versions/00000$1/${file##*/}" -ef \
			"$T/a/versions/00000$2/${file##*/}" ] || return 1
	done
}

@test "untouched: a version that did not change is read nowhere" {
	times_tell
	small one 1
	engine a -v
	fleet a
	past "$T/one"
	again "$T/one"
	was_read
	past "$T/a/versions"
	again "$T/one"
	unread
	is_diff 2
	again "$T/one"
	unread
	is_diff 3
	assert_file_contains "$T/a.err" "version 3 is version 2, untouched"
	assert_file_contains "$T/a.err" "version 3 is sealed, proof copied"
	is_linked 2 3
	holds a "$T/one"
	again "$T/one" --accept-proof reread
	was_read
	assert_file_contains "$T/a.err" "version 4 is sealed, proof reread"
	assert_equal "$(serving a)" 4
	# Whoever reads all of it finds what was said unread.
	weir-delta verify "$(vdir 3)"
	weir-delta apply "$(vdir 2)" "$(vdir 1)"
	weir-delta apply "$(vdir 3)" "$(vdir 1)"
}

@test "untouched: a source that anybody has written to is read" {
	skip_if_sanitized
	times_tell
	small one 1
	engines a
	fleet a
	past "$T/one"
	again "$T/one"
	file=$(find "$T/one" -name '*.safetensors' | sort | tail -n 1)
	cp -p "$file" "$T/before"
	at=$(($(stat -c %s "$file") - 4))
	# By a write, with its time put back.
	spoil "$file" "$at"
	touch -r "$T/before" "$file"
	past "$T/one"
	again "$T/one"
	was_read
	holds a "$T/one"
	# Through a mapping, with nothing said.
	past "$T/one"
	again "$T/one"
	unread
	python3 -c 'import mmap, sys
with open(sys.argv[1], "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[int(sys.argv[2])] ^= 1' "$file" "$at"
	past "$T/one"
	again "$T/one"
	was_read
	holds a "$T/one"
	# Another file of the same bytes and times.
	cp -p "$file" "$T/other"
	mv "$T/other" "$file"
	past "$T/one"
	again "$T/one"
	was_read
	# Somebody has it open for writing, and does nothing.
	exec 9<>"$file"
	again "$T/one"
	was_read
	exec 9>&-
	again "$T/one"
	was_read
	again "$T/one"
	unread
	holds a "$T/one"
}

@test "untouched: a file beside the weights counts; a new one, too" {
	skip_if_sanitized
	times_tell
	small one 1
	engines a
	fleet a
	past "$T/one"
	again "$T/one"
	echo '{}' >"$T/one/generation_config.json"
	past "$T/one"
	again "$T/one"
	was_read
	is_full 2
	again "$T/one"
	unread
	echo '{ }' >"$T/one/generation_config.json"
	past "$T/one"
	again "$T/one"
	was_read
	is_full 4
	holds a "$T/one"
}

@test "untouched: DK-12 a store edited by hand is read, and made anew" {
	times_tell
	small one 1
	engine a -v
	fleet a
	past "$T/one"
	delta_push "$T/one"
	past "$T/a/versions"
	delta_push "$T/one"
	file=$(find "$T/a/current/" -name '*.safetensors' | head -n 1)
	spoil "$file" $(($(stat -c %s "$file") - 4))
	again "$T/one"
	unread
	refute_file_has "$T/a.err" "version 3 is version 2, untouched"
	assert_file_contains "$T/a.err" "version 3 is made from the full version 1"
	holds a "$T/one"
}

@test "untouched: what another registry, or an undecided run, says is no word" {
	times_tell
	small one 1
	touch_up one two 11
	engines a
	fleet a
	past "$T/one" "$T/two"
	again "$T/one"
	# It is written, and never published.
	run again "$T/two" --post-write false
	assert_failure
	again "$T/two"
	was_read
	holds a "$T/two"
	# The directory of version 1 has been put under the decided number.
	version=$(serving a)
	rm -rf "$(vdir "$version")"
	cp -r "$(vdir 1)" "$(vdir "$version")"
	again "$T/one"
	was_read
	holds a "$T/one"
}

@test "in memory, where no time tells, an unchanged source is read" {
	case $(stat -f -c %T "$T") in tmpfs) ;; *) skip "no tmpfs" ;; esac
	small one 1
	engine a -v
	fleet a
	past "$T/one"
	again "$T/one"
	past "$T/a/versions"
	again "$T/one"
	again "$T/one"
	was_read
	is_diff 3
	assert_file_contains "$T/a.err" "version 3 is sealed, proof reread"
}

@test "delta: the base is what was decided, not what was tried" {
	small one 1
	touch_up one two 11
	touch_up one three 22
	engines a
	fleet a
	delta_push "$T/one"
	run --separate-stderr delta_push "$T/two" --post-write "exit 1"
	assert_failure
	there 1
	delta_push "$T/three"
	is_diff 2
	holds a "$T/three"
}

@test "DK-12 a store edited by hand is found, and made anew from a full one" {
	small one 1
	touch_up one two 33
	engine a -v
	fleet a
	delta_push "$T/one"
	file=$(find "$T/a/current/" -name '*.safetensors' | head -n 1)
	spoil "$file" $(($(stat -c %s "$file") - 4))
	delta_push "$T/two"
	is_diff 2
	holds a "$T/two"
	assert_file_contains "$T/a.err" "made from the full version 1"
}

@test "DK-02 an engine without the base is seeded; a pruned chain is named" {
	small one 1
	touch_up one two 44
	touch_up one three 55
	engines a
	fleet a
	delta_push "$T/one"
	delta_push "$T/two"
	engine b -v
	fleet a b
	delta_push "$T/three"
	is_diff 3
	holds b "$T/three"
	assert_file_contains "$T/b.err" "from the full version 1 and 2 deltas"
	engines c
	fleet a b c
	run --separate-stderr delta_push "$T/two" \
		--post-write "mv $(vdir 2) $T/away"
	fails 1 "engine c: has no version .* needs version 2, to make version 4" \
		"publish a full version"
	assert_equal "$(serving a) $(serving b)" "3 3"
	delta_push "$T/two"
	is_full 4
	holds c "$T/two"
}

@test "a registry from a backup: what it forgot is not published" {
	small one 1
	for n in 2 3 4; do
		touch_up one "v$n" "0$n"
	done
	engines a
	fleet a
	delta_push "$T/one"
	delta_push "$T/v2"
	cp -r "$T/registry" "$T/backup"
	delta_push "$T/v3"
	is_diff 3
	rm -r "$T/registry"
	mv "$T/backup" "$T/registry"
	delta_push "$T/v4"
	# Above what the engine serves, and made from what is known.
	assert_equal "$(serving a)" 4
	is_diff 4
	assert_regex "$(weir-delta inspect "$(vdir 4)")" 'of version 2|base.*2'
	holds a "$T/v4"
	there 1 2 4
}

@test "directories renamed, linked or exchanged by hand are seen through" {
	small one 1
	for n in 2 3 4; do
		touch_up one "v$n" "0$n"
	done
	engines a
	fleet a
	delta_push "$T/one"
	delta_push "$T/v2"
	# Two names exchanged: neither is what its mark says.
	mv "$(vdir 1)" "$T/x"
	mv "$(vdir 2)" "$(vdir 1)"
	mv "$T/x" "$(vdir 2)"
	delta_push "$T/v3"
	is_full 3
	holds a "$T/v3"
	# Moved to another place, and a link left.
	mv "$(vdir 3)" "$T/elsewhere"
	ln -s "$T/elsewhere" "$(vdir 3)"
	engine b -v
	fleet a b
	delta_push "$T/v4"
	is_diff 4
	holds a "$T/v4"
	holds b "$T/v4"
	assert_file_contains "$T/b.err" "from the full version 3 and 1 delta"
	# A file in the place of the next.
	: >"$(vdir 5)"
	run --separate-stderr delta_push "$T/one"
	fails 1 "weight_v000005"
	[ -f "$(vdir 5)" ]
	assert_equal "$(serving a) $(serving b)" "4 4"
	rm "$(vdir 5)"
	delta_push "$T/one"
	holds b "$T/one"
}

@test "a directory with its mark or index edited is no base" {
	small one 1
	touch_up one v2 02
	engines a
	fleet a
	delta_push "$T/one"
	for edit in 's/"content":"./"content":"x/' 's/"version":[0-9]*/"version":77/' \
		'$d'; do
		version=$(serving a)
		sed -i "$edit" "$(vdir "$version")/.weir-version"
		delta_push "$T/v2"
		is_full $((version + 1))
		holds a "$T/v2"
	done
	delta_push "$T/one"
	rm "$(vdir "$(serving a)")"/model.safetensors.index.json
	delta_push "$T/v2"
	holds a "$T/v2"
}

@test "retention keeps what a delta that stays is made from" {
	small one 1
	engines a
	fleet a
	delta_push "$T/one" --keep 1
	for n in 2 3 4; do
		touch_up one "v$n" "0$n"
		delta_push "$T/v$n" --keep 1
	done
	there 1 2 3 4
	delta_push "$T/one" --keep 1 --full-every 1
	is_full 5
	touch_up one v6 66
	delta_push "$T/v6" --keep 1
	delta_push "$T/one" --keep 1
	there 5 6 7
}

@test "slime's reader takes what transport delta publishes" {
	small one 1
	touch_up one two 77
	touch_up one three 78
	engines a
	fleet a
	delta_push "$T/one"
	delta_push "$T/two"
	delta_push "$T/three" --delta-encoding overwrite
	cp -r "$(vdir 1)" "$T/local"
	slime apply "$(vdir 2)" "$T/local"
	slime apply "$(vdir 3)" "$T/local"
	for file in "$T/three"/*; do
		cmp "$file" "$T/local/${file##*/}"
	done
}
