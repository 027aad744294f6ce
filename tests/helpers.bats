#!/usr/bin/env bats
# shellcheck disable=SC2034 # KILLED_LEAVE is read by the helpers
# The helpers themselves: a net with holes would catch nothing.

load helpers

# Before that it is this shell's child without its environment.
is_sleep() { [ "$(cat "/proc/$1/comm")" = sleep ]; }

@test "a process that is left behind fails the test" {
	setsid sleep 100 >/dev/null 2>&1 3>&- &
	wait_for is_sleep "$!"
	WAIT_SECONDS=1 run assert_nothing_left
	[ "$status" -eq 1 ]
	[[ "$output" == *"left behind: process $! sleep 100"* ]]
	wait_for is_dead "$!"
}

@test "so does one whose test directory is below the test's" {
	WEIR_TEST_DIR=${T}x setsid sleep 100 >/dev/null 2>&1 3>&- &
	STARTED+=("$!")
	wait_for is_sleep "$!"
	assert_nothing_left
	WEIR_TEST_DIR=$T/fleet setsid sleep 100 >/dev/null 2>&1 3>&- &
	wait_for is_sleep "$!"
	WAIT_SECONDS=1 run assert_nothing_left
	[ "$status" -eq 1 ]
	[[ "$output" == *"left behind: process $! sleep 100"* ]]
	wait_for is_dead "$!"
}

@test "so does the grandchild of a process that was started" {
	start parent sh -c 'sleep 100 & wait'
	wait_for contains "/proc/$LAST_PID/task/$LAST_PID/children" " "
	kill_and_reap "$LAST_PID"
	WAIT_SECONDS=1 run assert_nothing_left
	[ "$status" -eq 1 ]
	[[ "$output" == *"sleep 100"* ]]
}

@test "a socket that is left behind fails the test" {
	python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$T/run/s"
	run assert_nothing_left
	[ "$status" -eq 1 ]
	[[ "$output" == *"left behind: $T/run/s"* ]]
	rm "$T/run/s"
}

@test "so do a temporary file, an endpoint and named shared memory" {
	local file

	# In the place of the real one, in which others would find it too.
	export LEFTOVERS_SHM=$T/shm
	mkdir "$LEFTOVERS_SHM"
	for file in "$T/run/.tmp.7.open" "$T/run/plan.endpoint" \
		"$LEFTOVERS_SHM/weir-test"; do
		touch "$file"
		run assert_nothing_left
		rm "$file"
		[ "$status" -eq 1 ]
		[[ "$output" == "left behind: "*"$file" ]]
	done
}

@test "something is staged in no store that is in no run" {
	mkdir -p "$T/a/staging/000001"
	run leftovers --serving "$T/a"
	[ "$status" -eq 1 ]
	[[ "$output" == "staged: $T/a/staging/000001" ]]
	rm -r "$T/a/staging/000001"
	leftovers --serving "$T/a"
}

@test "what a killed process leaves may stay where that is said, a process not" {
	KILLED_LEAVE=1
	touch "$T/run/.tmp.7.open"
	assert_nothing_left
	setsid sleep 100 >/dev/null 2>&1 3>&- &
	wait_for is_sleep "$!"
	WAIT_SECONDS=1 run assert_nothing_left
	[ "$status" -eq 1 ]
	wait_for is_dead "$!"
	rm "$T/run/.tmp.7.open"
}

@test "what start() started ends with the test" {
	start one sleep 100
	start two sleep 100
	[ "$(pid_of two)" -eq "$LAST_PID" ]
	for pid in "${STARTED[@]}"; do
		kill_and_reap "$pid"
		is_dead "$pid"
	done
	assert_nothing_left
}

@test "stop gives the status of what it stopped" {
	start one sh -c 'trap "exit 7" TERM; echo ready; while :; do
		sleep 0.02; done'
	wait_for contains "$T/one.out" ready
	run stop one
	[ "$status" -ne 0 ]
	start one sh -c 'trap "exit 7" TERM; echo ready; while :; do
		sleep 0.02; done'
	wait_for contains "$T/one.out" ready
	rc=0
	stop one || rc=$?
	[ "$rc" -eq 7 ]
}

@test "stop signals and waits for a child alone: a number may be another's by now" {
	start one true
	wait_for_end "$(pid_of one)"
	start other sh -c 'sleep 100 & echo $!; wait'
	wait_for test -s "$T/other.out"
	cp "$T/other.out" "$T/one.pid"
	WAIT_SECONDS=1 stop one || true
	kill_and_reap "$(pid_of one)"
	refute is_dead "$(pid_of one)"
	kill "$(pid_of one)"
}

@test "a checker that ends without an answer fails the test" {
	BUILD=$T run assert_nothing_left
	[ "$status" -eq 1 ]
	[[ "$output" == *"leftovers ended with 127"* ]]
}

# inner: a suite of its own, run by bats; its own answer in $output.
inner() {
	mkdir "$T/inner"
	sed 's/^TEST /@test /' >"$T/inner/x.bats"
	cp "$SRC"/tests/*.bash "$T/inner"
	run env -u T -u WEIR_TEST_DIR bats --tap "$T/inner/x.bats"
}

@test "a failure in a function fails the test, and is shown, with what was run last" {
	inner <<-'END'
	load helpers
	half() {
		echo "half of it"
		false
		true
	}
	TEST "its middle" { half; }
	TEST "a run" {
		start log sh -c 'echo of the log >&2'
		wait_for_end "$(pid_of log)"
		run --separate-stderr sh -c 'echo of the run >&2; exit 69'
		assert_success
	}
	TEST "good" { true; }
	END
	[ "$status" -eq 1 ]
	assert_line --partial "not ok 1 its middle"
	assert_line "# half of it"
	assert_line --partial "not ok 2 a run"
	assert_line "# last run: status 69, stderr: of the run"
	assert_line "# of the log"
	assert_line --partial "ok 3 good"
}

@test "wait_for fails at its deadline and says for what it waited" {
	WAIT_SECONDS=1 run wait_for false
	[ "$status" -eq 1 ]
	[[ "$output" == *"for: false"* ]]
}

# filtered SUITE...: by another bats than ours.
filtered() {
	BUILD=$T/b PATH=/usr/bin:/bin run env -u T -u WEIR_TEST_DIR \
		sh "$T/src/tests/run" "$@"
}

@test "tests/run counts failures, skips and results that are missing" {
	mkdir -p "$T/src/tests" "$T/b/tests"
	cp "$SRC/tests/run" "$T/src/tests/"
	touch "$T"/src/tests/unit_{good,bad,dead,mute}.c
	printf '#!/bin/sh\necho "ok 1 - a"; echo "ok 2 - b # skip"
		echo "1..2"\n' >"$T/b/tests/unit_good"
	printf '#!/bin/sh\necho "not ok 1 - a"; echo "1..1"; exit 1\n' \
		>"$T/b/tests/unit_bad"
	printf '#!/bin/sh\necho "1..3"; echo "ok 1 - a"\n' \
		>"$T/b/tests/unit_dead"
	printf '#!/bin/sh\nexit 0\n' >"$T/b/tests/unit_mute"
	chmod +x "$T"/b/tests/unit_*
	BUILD=$T/b run sh "$T/src/tests/run"
	[ "$status" -eq 1 ]
	assert_line "2 passed, 4 failed"
	BUILD=$T/b run sh "$T/src/tests/run" unit_good
	[ "$status" -eq 0 ]
	assert_line "1 passed, 0 failed"
	# One whose programs are not there cannot begin.
	run sh "$T/src/tests/run" "$T/b/unit_good" "$T/none/unit_good"
	[ "$status" -eq 1 ]
	assert_line "1 passed, 1 failed"
	# Nor is a filter that nothing matches a success.
	echo '@test "this one" { true; }' >"$T/src/tests/x.bats"
	cp "$T/src/tests/x.bats" "$T/src/tests/y.bats"
	echo '@test "another" { true; }' >>"$T/src/tests/y.bats"
	TEST_FILTER=another filtered y.bats x.bats
	[ "$status" -eq 1 ]
	assert_line '# x.bats has no test "another"'
	assert_line "1 passed, 1 failed"
	TEST_FILTER=another filtered
	[ "$status" -eq 0 ]
	assert_line "1 passed, 0 failed"
	TEST_FILTER=none filtered
	[ "$status" -eq 1 ]
	assert_line "0 passed, 0 failed"
}

@test "tests/run names the test that hangs, and goes on" {
	mkdir -p "$T/src/tests" "$T/b"
	sed 's/^TEST_TIMEOUT=.*/TEST_TIMEOUT=5/' "$SRC/tests/run" \
		>"$T/src/tests/run"
	printf '@test "hangs" { sleep 100; }\n@test "goes on" { true; }\n' \
		>"$T/src/tests/x.bats"
	filtered x.bats
	[ "$status" -eq 1 ]
	assert_line --regexp "^not ok 1 hangs.* timeout"
	assert_line "1 passed, 1 failed"
}

# In front of && a failure ends nothing, and run waits in a subshell, for what
# is no child of that.
@test "no suite has an assertion that cannot fail" {
	local one='(has|holds|same|cmp|contains|decided|assert_[a-z_]+|\[)'

	run grep -nE -e "^	+$one [^|]* && $one " \
		-e '^	+run [^|]*wait [^|]*pid' "$SRC"/tests/*.bats
	assert_output ""
}
