#!/usr/bin/env bats
# FS-01, FS-02: what a crash leaves of io_create_once() and io_replace().  The
# process is killed on entry of one system call after the other; each time the
# name holds nothing, the old or the new content, whole, and the next start
# leaves nothing else behind.

load helpers

# The leak checker of a sanitizer build cannot work under strace.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

setup() {
	common_setup
	D=$T/d
	mkdir "$D"
	strace -qq -e trace=none true || skip "no ptrace here"
}

# killed VERB CALL N: VERB's process at its Nth CALL; 137 if it got there.
killed_at() {
	run strace -qq -o "$T/trace" -e trace="$2" \
		-e inject="$2:signal=KILL:when=$3" \
		"$BUILD/tests/unit_io" "$1" "$D"
	assert_equal "$status" 137
}

# failing VERB CALL N ERROR: the same, but the call fails.
failing() {
	run strace -qq -o "$T/trace" -e trace="$2" \
		-e inject="$2:error=$4:when=$3" \
		"$BUILD/tests/unit_io" "$1" "$D"
}

holds() { assert_equal "$(cat "$D/f" 2>/dev/null || echo none)" "$1"; }

# What the next start finds; nothing is left but the name itself.
after_sweep() {
	"$BUILD/tests/unit_io" sweep "$D"
	assert_equal "$(find "$D" -mindepth 1 ! -name f)" ""
	holds "$1"
}

@test "FS-01 create: killed before the content is durable, no name" {
	killed_at create fsync 1
	holds none
	after_sweep none
}

@test "FS-01 create: killed before link, no name" {
	killed_at create linkat 1
	holds none
	after_sweep none
}

@test "FS-01 create: killed after link, the whole content" {
	killed_at create unlinkat 1
	holds new
	assert_equal "$(ls -A "$D" | wc -l)" 2
	after_sweep new
	killed_at create unlinkat 1
	holds new
	after_sweep new
}

@test "FS-01 create: killed before the directory is synced" {
	killed_at create fsync 2
	holds new
	after_sweep new
}

@test "FS-01 create: content is synced before link, the directory after" {
	strace -qq -o "$T/trace" -e trace=fsync,linkat \
		"$BUILD/tests/unit_io" create "$D"
	run sed 's/(.*//' "$T/trace"
	assert_output "fsync
linkat
fsync"
}

@test "FS-01 replace: killed before rename, the old content" {
	printf old >"$D/f"
	killed_at replace fsync 1
	holds old
	after_sweep old
	killed_at replace renameat 1
	holds old
	after_sweep old
}

@test "FS-01 replace: killed after rename, the new content" {
	printf old >"$D/f"
	killed_at replace fsync 2
	holds new
	after_sweep new
}

@test "FS-01 replace: content is synced before rename, the directory after" {
	strace -qq -o "$T/trace" -e trace=fsync,renameat \
		"$BUILD/tests/unit_io" replace "$D"
	run sed 's/(.*//' "$T/trace"
	assert_output "fsync
renameat
fsync"
}

@test "FS-02 a full disk: the old content, one line, nothing left" {
	printf old >"$D/f"
	for call in fsync renameat; do
		failing replace "$call" 1 ENOSPC
		assert_equal "$status" 74
		assert_equal "${#lines[@]}" 1
		assert_output --regexp "$call|rename to"
		assert_output --partial "/f: No space left on device"
		holds old
		assert_equal "$(ls -A "$D")" f
	done
	failing create linkat 1 ENOSPC
	assert_equal "$status" 74
	assert_equal "$(ls -A "$D")" f
}

@test "FS-01 a name that exists is not an error line, and stays" {
	printf old >"$D/f"
	run "$BUILD/tests/unit_io" create "$D"
	assert_equal "$status" 75
	assert_output ""
	holds old
	assert_equal "$(ls -A "$D")" f
}
