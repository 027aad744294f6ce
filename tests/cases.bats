#!/usr/bin/env bats
# cases.bats - every case of tests/cases.list is in some test's name.

load helpers

# The names of the suites' tests, and the lines of unit programs that name one.
names() {
	grep -h '^@test' "$SRC"/tests/*.bats
	grep -h '"[A-Z][A-Z]-[0-9][0-9]' "$SRC"/tests/unit_*.c
}

@test "each case of the list has a test" {
	local family number numbers missing=()

	names >"$T/names"
	while read -r family numbers; do
		[ "$family" != "#" ] || continue
		for number in $numbers; do
			grep -qE "\\b$family-$number\\b" "$T/names" ||
				missing+=("$family-$number")
		done
	done <"$SRC/tests/cases.list"
	assert_equal "${missing[*]}" ""
}
