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
	run python3 "$SRC/tests/fault/power.py" --few \
		--stories publication,forward,backward
	assert_success
}

# without_memory FILE: a push whose own memory is gone once that is there.
without_memory() {
	LD_PRELOAD="$BUILD/tests/fault/fault.so" FAULT_PROC=weir-push \
		FAULT_KIND=malloc FAULT_N=1 FAULT_ALWAYS=1 \
		FAULT_MARK="$T/mark" FAULT_AFTER="$1" weir-push \
		--source "$T/one" --fleet "$T/fleet.yaml" --run "$T/r" \
		--registry "$T/registry" --load-timeout 20s
}

@test "I9 I11 a push that has no memory left ends as its run does" {
	checkpoint "$T/one" --size 256KiB --seed 1
	touch "$T/hold"
	printf '%s\n' "touch '$T/loading'" \
		"while [ -e '$T/hold' ]; do sleep 0.05; done" >"$T/post.sh"
	engine a --post-load "sh '$T/post.sh'"
	fleet a
	mkdir -m 0700 "$T/r"
	# Before the decision it is an abort.
	run --separate-stderr without_memory "$T/loading"
	rm "$T/hold"
	assert_failure 1
	[[ $stderr == *"weir-push["*"] error out of memory"* ]]
	run decided 1
	assert_failure
	rm -r "$T/r" "$T/mark"
	# After it, the version is published.
	mkdir -m 0700 "$T/r"
	run --separate-stderr without_memory "$T/registry/versions/000001/decision"
	[[ $stderr == *"weir-push["*"] error out of memory"* ]]
	assert_success
	assert_equal "$(serving a)" 1
	assert_clean_runs
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
	killed=$(pid_in_run commit.1)
	[[ $stderr == *"removed .tmp."*", left by pid $killed, which has ended"* ]]
	rm "$T/mark"
	run --separate-stderr killed_stage transfer rename 1
	assert_success
	[[ $stderr == *".sock, left by pid "*", which has ended"* ]]
	kill_engine a
	engine a -v
	assert_file_contains "$T/a.err" "removed $T/a.sock"
	assert_file_contains "$T/a.err" "removed $T/a.sock.fd"
	run leftovers --serving "$T/a"
	assert_output --regexp "^process [0-9]+ weir-engine[^"$'\n'"]*$"
}
