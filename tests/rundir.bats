#!/usr/bin/env bats
# rundir.bats - the run directory as users name it: --run and WEIR_RUN.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

one_engine() {
	checkpoint "$T/one" --size 1MiB --seed 1
	engines a
	fleet a
}

# A pipeline in the run that WEIR_RUN names; stages that wait 2 s.
in_run() {
	export WEIR_RUN=$T/r
	codes=(0 0 0 0)
	weir-plan --source "$T/one" "$@" |
		weir-admit --stage-timeout 2s |
		weir-transfer --stage-timeout 2s |
		weir-commit --registry "$T/registry" --stage-timeout 2s ||
		codes=("${PIPESTATUS[@]}")
	unset WEIR_RUN
}

@test "WEIR_RUN names the run of a whole pipeline, however long plan takes" {
	one_engine
	mkfifo "$T/late"
	start fleet bash -c 'sleep 5; cat "$0/fleet.yaml" >"$0/late"' "$T"
	in_run --fleet "$T/late" >"$T/out"
	assert_equal "${codes[*]}" "0 0 0 0"
	assert_file_contains "$T/out" "version 1 published"
	holds a "$T/one"
}

@test "WEIR_RUN: a plan that fails ends all four alike" {
	one_engine
	rm -r "$T/one"
	in_run --fleet "$T/fleet.yaml" >"$T/out" 2>"$T/err"
	assert_equal "${codes[*]}" "66 66 66 66"
	assert_equal "$(wc -l <"$T/err")" 1
}

@test "WEIR_RUN is push's run, and so its stages'" {
	one_engine
	WEIR_RUN=$T/r push "$T/one"
	assert_exist "$T/r/verdict"
	holds a "$T/one"
}

@test "a run without a plan: one line, which names it" {
	local stage

	for stage in admit transfer; do
		mkdir -m 700 "$T/$stage"
		run --separate-stderr "weir-$stage" --run "$T/$stage" \
			--stage-timeout 100ms
		one_line_error 66 "$T/$stage holds no plan"
	done
}

@test "--run of another run than the hand-off's is refused" {
	one_engine
	mkdir -m 0700 "$T/r"
	weir-plan --source "$T/one" --fleet "$T/fleet.yaml" |
		weir-admit --run "$T/r" 2>"$T/err" >/dev/null || true
	assert_file_contains "$T/err" "the stage before is in run $T/run/weir/"
}

@test "--run with a name that is not there makes no run" {
	run --separate-stderr bash -c \
		'weir-admit --run "$T/r" </dev/null >/dev/null'
	one_line_error 66 "$T/r"
	assert_not_exist "$T/r"
}

@test "--run with a name that is refused leaves no directory" {
	local name

	for name in $(printf %0100d 1) größe; do
		run --separate-stderr weir-push --run "$T/$name" \
			--source "$T/none" --engine ipc:///x
		one_line_error 78 "run directory $T/$name"
		assert_not_exist "$T/$name"
	done
}

@test "push refuses a run that has ended: it would move nothing" {
	one_engine
	push "$T/one" --run "$T/r"
	run --separate-stderr push "$T/one" --run "$T/r"
	one_line_error 78 "$T/r" "has ended"
}

@test "a pipeline in a run that has ended says so" {
	one_engine
	in_run --fleet "$T/fleet.yaml" >/dev/null
	assert_equal "${codes[*]}" "0 0 0 0"
	in_run --fleet "$T/fleet.yaml" >/dev/null 2>"$T/err"
	assert_equal "${codes[*]}" "0 0 0 0"
	assert_file_contains "$T/err" "weir-plan.*warn run r has ended"
}

@test "plan started again at a terminal needs no pipe, at first it does" {
	one_engine
	touch "$T/hold"
	stop a
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --run "$T/r"
	wait_for test -e "$T/r/commit.1"
	wait_for grep -q acked "$T/r/events"
	start again script -qec "weir-plan --run $T/r" /dev/null
	wait_for test -e "$T/r/plan.2"
	rm "$T/hold"
	ends_with 0 push
	ends_with 0 again
}

@test "push --json: one object per event on stdout, only logs on stderr" {
	one_engine
	run --separate-stderr push "$T/one" --json
	assert_success
	assert_equal "$stderr" ""
	# Of the last wave the end of the run may be heard first.
	assert_equal "$(jq -r .event <<<"$output" | grep -v wave_complete |
		sort -u | xargs)" "acked decided drained granted moved opened \
planned published released sealed staged summary swapped"
	assert_equal "$(jq -r .event <<<"$output" | tail -n 1)" summary
}

@test "push --dry-run --json is plan's" {
	one_engine
	push "$T/one" --dry-run --json >"$T/json"
	assert_equal "$(jq -c .engines "$T/json")" '["a"]'
}
