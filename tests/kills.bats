#!/usr/bin/env bats
# kills.bats - I9: processes killed at named points and at random times, with
# a reader that looks all the while.  `make kills` makes them all.
# shellcheck disable=SC2154 # set by run

load helpers

KILL="$SRC/tests/kill"

# The last line of `kill/run`.
sum() { tail -n 1 <<<"$output"; }

@test "I9 killed just before and just after named points: old or new, clean" {
	run "$KILL/run" points --short --story steady --kills 10 \
		--jobs 2
	echo "$output"
	assert_success
	[[ $(sum) == *" 0 broken, "* ]]
}

@test "I9 killed at random times of random pushes: old or new, clean" {
	run "$KILL/run" chance --kills 8 --seed 1 --jobs 2
	echo "$output"
	assert_success
	[[ $(sum) == "chance: 8 kills "*" 0 broken, "* ]]
}

@test "I2 I9 killed while servers load in place: none serves what is undecided" {
	run "$KILL/run" points --short --story path --kills 2 --jobs 1
	echo "$output"
	assert_success
	[[ $(sum) == *" 0 broken, "* ]]
}

@test "I9 weir-watch killed at named points: none missed, nothing left" {
	run "$KILL/run" watch
	echo "$output"
	assert_success
	[[ $(sum) == "watch: "*" kills, 0 broken" ]]
}

@test "DK-01 weir delta killed at named points and at random: old or new" {
	run "$KILL/run" delta --short --kills 6 --jobs 2
	echo "$output"
	assert_success
	[[ $(sum) == *" 0 broken" ]]
}

# checks WORDS LINE...: is a history of these lines refused, and why?
checks() {
	local words=$1

	shift
	printf '%s\n' "$@" >"$T/history"
	run "$KILL/history.py" check "$T/history"
	if [ -z "$words" ]; then
		assert_success
	else
		assert_failure 1
		assert_output --partial "$words"
	fi
}

# seen ENGINE VERSION MARKER INODE DECIDED
seen() {
	printf '{"engine": "%s", "version": %d, "marker": "%s", ' "$1" "$2" "$3"
	printf '"inode": %d, "decided": %s}\n' "$4" "$5"
}

@test "I1 I2 I12 what a reader must not see is found in its history" {
	checks "" "$(seen a 1 x 10 true)" "$(seen b 1 x 20 true)" \
		"$(seen a 2 y 11 true)" '{"registry": 1}' '{"registry": 3}' \
		'{"decision": 1, "inode": 5, "content": "00"}'
	checks "I12 a went from 2 to 1" \
		"$(seen a 2 y 11 true)" "$(seen a 1 x 10 true)"
	checks "I12 the registry went from 3 to 1" \
		'{"registry": 3}' '{"registry": 1}'
	checks "I1 a serves 2, which is not decided" "$(seen a 2 y 11 false)"
	checks "I12 two contents of version 2" \
		"$(seen a 2 y 11 true)" "$(seen b 2 z 12 true)"
	checks "I2 written in place" \
		"$(seen a 2 y 11 true)" "$(seen a 2 y 12 true)"
	# A server that has loaded another one under its old number.
	checks "I2 servers with two contents of version 1" \
		'{"engine": "s", "version": 1, "marker": "x", "decided": true}' \
		'{"engine": "s", "version": 1, "marker": "y", "decided": true}'
	checks "I12 two decisions on version 1" \
		'{"decision": 1, "inode": 5, "content": "00"}' \
		'{"decision": 1, "inode": 5, "content": "01"}'
}
