#!/usr/bin/env bats
# The simulator: plan, admit, transfer, commit and the engines under a virtual
# clock, disk and network.  share/doc/reliability.md says what it covers.

load helpers

skip_if_slow() {
	if "$BUILD/tests/sim/sim" --is-slow; then
		skip "the sanitizers' build takes too long"
	fi
}

@test "no seed breaks an invariant, and each row and durable move is crossed" {
	run -0 "$BUILD/tests/sim/sim" --check --coverage
	assert_output --regexp '[1-9][0-9]* seeds, 0 broken'
	assert_output --regexp '[1-9][0-9]* aimed seeds, 0 broken'
	assert_output --regexp '[1-9][0-9]* durable moves'
}

@test "the same seed gives the same trace, another one another" {
	run -0 "$BUILD/tests/sim/sim" --seed=7
	first=$(grep '^trace' <<<"$output")
	run -0 "$BUILD/tests/sim/sim" --seed=7
	assert_output --partial "$first"
	run -0 "$BUILD/tests/sim/sim" --seed=8
	refute_output --partial "$first"
}

@test "a seed that breaks says how it is run again, with the fewest faults" {
	local args

	skip_if_slow
	run -1 "$BUILD/tests/sim/sim" --mutant=abort_not_heard --seeds=2000
	assert_output --regexp 'seeds/s, [0-9.]+ simulated hours per minute'
	assert_line --regexp '^seed [0-9]+: I6: '
	broke=$(sed -n 's/^seed [0-9]*: //p' <<<"$output")
	read -ra args < <(sed -n 's/^  replay: sim //p' <<<"$output")
	assert_regex "${args[1]}" '^--only=[0-9]'
	# As many faults are told of as are needed.
	assert_equal "$(grep -c '^  fault' <<<"$output")" \
		"$(tr -cd , <<<"${args[1]}," | wc -c)"
	run -1 "$BUILD/tests/sim/sim" "${args[@]}"
	assert_line "$broke"
	# Without them nothing breaks.
	run -0 "$BUILD/tests/sim/sim" "${args[0]}" --only=23 "${args[2]}"
}

@test "each mutant is found by an invariant" {
	skip_if_slow
	run -0 "$BUILD/tests/sim/sim" --mutants --check
	assert_output --partial ', 0 survive'
}
