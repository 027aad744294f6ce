#!/usr/bin/env bats
# fault.bats - what fails once, at any call, and what a power cut takes: a few
# of all that `make faults` and `make powercuts` try.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

setup() {
	common_setup
	if grep -q __asan_init "$BUILD/weir-engine"; then
		skip "built with a sanitizer, which must be loaded first"
	fi
}

sweep() { python3 "$SRC/tests/fault/sweep.py" --jobs 2 "$@"; }

@test "I9 FS-02 calls that fail, in each program: old or new, said, mended" {
	run sweep --few
	assert_success
}

@test "FS-01 power cuts in a publication and in recoveries: old or new" {
	run python3 "$SRC/tests/fault/power.py" --few
	assert_success
}

# killed_stage STAGE CALLS N: its first instance, before the nth of them.
killed_stage() {
	LD_PRELOAD="$BUILD/tests/fault/fault.so" FAULT_SIGNAL=9 \
		FAULT_PROC="weir-$1" FAULT_KIND="$2" FAULT_N="$3" \
		FAULT_MARK="$T/mark" weir-push --source "$T/one" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" -v
}

@test "I9 the next start removes what a killed one left, telling whose" {
	local killed

	checkpoint "$T/one" --size 256KiB --seed 1
	engine a
	fleet a
	# Between temporary file and name, and with a socket bound.
	run --separate-stderr killed_stage commit link 3
	assert_success
	killed=$(head -n 1 "$(newest_run)/commit.1")
	[[ $stderr == *"removed .tmp."*", left by pid $killed, which has ended"* ]]
	rm "$T/mark"
	run --separate-stderr killed_stage transfer rename 1
	assert_success
	[[ $stderr == *".sock, left by pid "*", which has ended"* ]]
	kill_engine a
	engine a -v
	assert_file_contains "$T/a.err" "removed $T/a.sock"
	assert_file_contains "$T/a.err" "removed $T/a.sock.fd"
	run python3 "$SRC/tests/fault/hygiene.py" "$T" --serving "$T/a"
	assert_output --regexp "^process [0-9]+ weir-engine[^"$'\n'"]*$"
}
