#!/usr/bin/env bats
# The simulator: plan, admit, transfer, commit and the engines under a virtual
# clock, disk and network.  share/doc/reliability.md says what it covers.

load helpers

@test "no seed breaks an invariant" {
	run -0 "$BUILD/tests/sim/sim" --check
	assert_output --regexp '[1-9][0-9]* seeds, 0 broken'
}

@test "the same seed gives the same trace, another one another" {
	run -0 "$BUILD/tests/sim/sim" --seed=7
	first=$(grep '^trace' <<<"$output")
	run -0 "$BUILD/tests/sim/sim" --seed=7
	assert_output --partial "$first"
	run -0 "$BUILD/tests/sim/sim" --seed=8
	refute_output --partial "$first"
}

@test "each mutant is found by an invariant" {
	if "$BUILD/tests/sim/sim" --is-slow; then
		skip "the sanitizers' build takes too long"
	fi
	run -0 "$BUILD/tests/sim/sim" --mutants --check
	assert_output --partial ', 0 survive'
}
