#!/usr/bin/env bats
# hygiene.bats - I9: what goes on takes no more with each push, however the
# pushes end.  What those leave is looked at in every suite's teardown.

load fleet

# What engine a has open, has mapped, and its threads.
profile() { "$BUILD/tests/leftovers" --of "$(pid_of a)" | sort; }

is_as_before() { profile | cmp -s - "$T/before"; }

# killed STAGE SOURCE: a push whose stage, and then whose push, is killed while
# the engine loads.
killed() {
	look_at_new_runs
	touch "$T/hold"
	start push weir-push --source "$2" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --stage-timeout 60s
	wait_for told moved
	kill -KILL "$(pid_in_run "$1.1")"
	wait_for test -e "$(newest_run)/$1.2"
	kill -KILL "$(pid_of push)"
	rm "$T/hold"
	wait_for_end "$(pid_of push)" || true
	wait_for no_stages
}

aborted() {
	touch "$T/fail"
	run push "$1" -q
	rm "$T/fail"
	assert_failure 1
}

good() {
	run push "$1" -q
	assert_success
}

# Four pushes, of each kind.
round() {
	good "$T/one"
	killed transfer "$T/two"
	aborted "$T/two"
	killed commit "$T/one"
	good "$T/two"
}

@test "I9 20 pushes, good, aborted and killed: an engine holds no more than at first" {
	checkpoint "$T/one" --size 256KiB --seed 1
	checkpoint "$T/two" --size 256KiB --seed 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.02; done; test ! -e '$T/fail'"
	fleet a
	round
	profile >"$T/before"
	[ "$(grep -c '^open ' "$T/before")" -gt 5 ]
	for _ in 1 2 3; do
		round
	done
	wait_for is_as_before || { profile | diff "$T/before" - >&2; false; }
}
