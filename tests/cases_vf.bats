#!/usr/bin/env bats
# VF - the version fence, through real programs: a version that failed
# anywhere is published nowhere.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

@test "VF-01 one bucket of many failed: no publish, and none afterwards" {
	local run_dir

	base a
	fake c refuse-bucket=5 serving=1
	fleet a c
	run --separate-stderr push "$T/two" --bucket-size 64KiB
	refused 1 "engine c: bucket 5: the fake was told to refuse this"
	still_one a
	# Finishing that session publishes nothing either.
	run_dir=$(newest_run)
	for stage in plan admit transfer; do
		run -1 "weir-$stage" --run "$run_dir"
	done
	run -1 --separate-stderr weir-commit --run "$run_dir" \
		--registry "$T/registry"
	refute_output --partial published
	still_one a
	stop c
	engine c
	then_two a c
}

@test "VF-02 a refusal at any step is a failure, with engine and reason" {
	local step

	base a
	for step in begin attach finish ask_receipt; do
		fake c refuse=$step serving=1
		fleet a c
		run --separate-stderr push "$T/two"
		refused 1 "engine c" "told"
		aborted 1 c 0 30 # no time-out
		still_one a
		stop c
	done
	then_two a
}

@test "VF-03 a receipt that lacks something publishes nothing" {
	local lie

	base a
	for lie in blind bad-received bad-bytes bad-version proof=0; do
		fake c "$lie" serving=1
		fleet a c
		run --separate-stderr push "$T/two"
		refused 1 "engine c"
		aborted 1 c 0 30 # no time-out
		still_one a
		stop c
	done
	then_two a
}

@test "VF-03 a byte of a slot changes between copy and receipt: reread names it" {
	local shard="$T/b/staging/000002/model-00001-of-00002.safetensors"

	base a
	export KILL_AT="$T/at"
	PATH="$BUILD/tests/kill:$PATH" engine b
	fleet a b
	echo -n "stop-before engine: engine slot filling finish -> sealing" \
		>"$KILL_AT"
	start_push reread "$T/two" --accept-proof reread --weight-version 2
	wait_for test ! -e "$KILL_AT"
	wait_for grep -q ') T ' "/proc/$(pid_of b)/stat"
	spoil "$shard" 200000
	kill -CONT "$(pid_of b)"
	ended 1 reread "engine b" "${shard##*/}" "not what was copied"
	aborted 1 b 0 30 # no time-out
	still_one a
	assert_equal "$(serving b)" ""
	assert_equal "$(ls -A "$T/b/staging")" ""
	then_two a b
}

@test "VF-03 two engines of one post-load that installed different bytes" {
	base a
	fake c bad-installed serving=1
	fleet a c
	run --separate-stderr push "$T/two"
	refused 1 "engine c" "installed"
	still_one a
	stop c
	then_two a
}

@test "VF-04 an engine fails at the swap: 3, named, and the next run mends it" {
	base a b d
	engine c --on-swap "[ ! -e '$T/stuck' ]"
	fleet a b c d
	push "$T/one" --weight-version 2 >/dev/null 2>&1
	touch "$T/stuck"
	run --separate-stderr push "$T/two" --engine-timeout 4s
	assert_equal "$status" 3
	assert_output --partial "version 3 published"
	[[ $stderr == *"c "* ]]
	assert_equal "$(serving a) $(serving b) $(serving d)" "3 3 3"
	assert_equal "$(serving c)" 2
	holds c "$T/one"
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_failure
	assert_line --regexp "^c +2 "
	assert_line --regexp "^a +3 "
	rm "$T/stuck"
	run --separate-stderr push "$T/two" --weight-version 3
	assert_success
	assert_equal "$(serving c)" 3
	holds c "$T/two"
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_success
	assert_clean_runs
}

@test "VF-05 what failed half-way through is resumed on the old version only" {
	base a
	engine b --post-load "[ ! -e '$T/broken' ] || { rm -f ./*.json; exit 7; }" \
		--on-resume "readlink '$T/b/current' >>'$T/resumed'"
	fleet a b
	push "$T/one" >/dev/null 2>&1
	touch "$T/broken"
	run --separate-stderr push "$T/two"
	refused 1 "engine b" "status 7"
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds b "$T/one"
	run -1 grep -v versions/000002 "$T/resumed"
	rm "$T/broken"
	push "$T/two" >/dev/null 2>&1
	holds a "$T/two"
	holds b "$T/two"
}

@test "VF-06 VF-13 an older number is refused, and both are named" {
	local n

	checkpoints
	engines a
	fleet a
	push "$T/one" --weight-version 57 >/dev/null 2>&1
	for n in 1 56; do
		run --separate-stderr push "$T/two" --weight-version $n
		refused 65 "$n" "57"
	done
	run --separate-stderr push "$T/two" --weight-version 0
	assert_equal "$status" 64
	run --separate-stderr push "$T/two" --weight-version 57
	refused 65 "57"
	# A registry that was lost: what the engines serve binds as well.
	REGISTRY_DIR=other run --separate-stderr push "$T/two" --weight-version 1
	refused 76 "engine a"
	assert_equal "$(serving a)" 57
	holds a "$T/one"
	run --separate-stderr push "$T/one" --weight-version 57
	assert_success
	push "$T/two" --weight-version 58 >/dev/null 2>&1
	holds a "$T/two"
}

@test "VF-06 the last number there is: published, found again, none above it" {
	local last=9007199254740991

	base a
	run --separate-stderr push "$T/two" --weight-version 9007199254740992
	refused 64 9007199254740992 $last
	still_one a
	push "$T/two" --weight-version $last >/dev/null 2>&1
	assert_equal "$(serving a)" $last
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_success
	assert_line --partial "version $last,"
	run --separate-stderr push "$T/one"
	refused 65 "no number is left" $last
	run --separate-stderr push "$T/one" --weight-version 18
	refused 65 "version 18 " $last
	stop a
	engine a
	push "$T/two" --weight-version $last >/dev/null 2>&1
	holds a "$T/two"
}

@test "VF-09 while it is loaded a version is staged, never served" {
	local seen

	checkpoints
	held_engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	start_push push "$T/two"
	held a
	for ((i = 0; i < 5; i++)); do
		seen=$(weir-status --registry "$T/registry" \
			--fleet "$T/fleet.yaml")
		[[ $seen == *"published  version 1,"* ]]
		grep -qE '^a +1 +2 ' <<<"$seen"
		assert_equal "$(serving a)" 1
	done
	rm "$T/hold"
	ends_with 0 push
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_success
	assert_line --regexp '^a +2 +- '
}
