#!/usr/bin/env bats
# crash.bats - I9: whatever dies, stops or fails, and whenever: the old
# version is served or exactly the new one, a decision exists if and only if
# the exit code says so, and nothing is left behind.
# shellcheck disable=SC2030,SC2031,SC2154 # exports of tests; set by run

load fleet

# Two versions; engine a seals the second only when $T/hold is gone.
held_fleet() {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.02; done"
	engine b
	fleet a b
	push "$T/one" 2>/dev/null
	touch "$T/hold"
	look_at_new_runs
}

# A push of the second, up to the seal.
held_push() {
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 128KiB \
		--stage-timeout 60s "$@"
	wait_for told sealed
}

all_serve() {
	assert_equal "$(serving a) $(serving b)" "$1 $1"
	holds a "$2"
	holds b "$2"
}

assert_old() {
	run decided 2
	assert_failure
	all_serve 1 "$T/one"
}

assert_new() {
	decided 2
	all_serve 2 "$T/two"
}

# The next push finds what is left of this one, and works.
assert_heals() {
	rm -f "$T/hold"
	run --separate-stderr push "$T/two"
	assert_success
	holds a "$T/two"
	holds b "$T/two"
	assert_clean_runs
	assert_not_exist "$T/registry/open"
}

# The four by hand, up to the seal; their codes are the last line of hand.out.
# held_hand [TIME]: their --stage-timeout.
held_hand() {
	touch "$T/hold"
	look_at_new_runs
	# shellcheck disable=SC2016 # for that shell
	start hand bash -c '
		o=--stage-timeout=$4
		weir-plan $o --source "$1" --fleet "$2" | weir-admit $o |
			weir-transfer $o | weir-commit $o --registry "$3"
		echo "${PIPESTATUS[@]}"' _ "$T/two" "$T/fleet.yaml" \
		"$T/registry" "${1:-60s}"
	wait_for told sealed
}

codes_of_hand() { tail -n 1 "$T/hand.out"; }

@test "I9 two stages killed at once are both started again" {
	local pair pids

	held_fleet
	for pair in plan,commit admit,transfer transfer,commit; do
		touch "$T/hold"
		look_at_new_runs
		held_push
		# In one call, so that neither sees the other's end.
		pids="$(pid_in_run "${pair%,*}.1") $(pid_in_run "${pair#*,}.1")"
		# shellcheck disable=SC2086 # two of them
		kill -KILL $pids
		wait_for test -e "$(newest_run)/${pair%,*}.2"
		wait_for test -e "$(newest_run)/${pair#*,}.2"
		rm "$T/hold"
		ends_with 0 push
		holds a "$T/two"
		holds b "$T/two"
		assert_clean_runs
	done
}

@test "I9 drained is said while commit begins again: it is not lost" {
	held_fleet
	held_push
	kill -STOP "$(pid_in_run commit.1)"
	rm "$T/hold"
	wait_for told drained
	kill -KILL "$(pid_in_run commit.1)"
	ends_with 0 push
	assert_new
	assert_clean_runs
}

@test "I9 push and all stages killed: the next push aborts, and works" {
	local stage

	held_fleet
	held_push
	kill -STOP "$(pid_of push)"
	for stage in plan admit transfer commit; do
		kill -KILL "$(pid_in_run $stage.1)"
	done
	kill -KILL "$(pid_of push)"
	ends_with 137 push
	assert_old
	assert_exist "$T/registry/open"
	assert_heals
}

# kill_at STAGE CALL N: the first instance dies before its nth such call.
kill_at() {
	cat >"$T/bin/weir-$1" <<-END
		#!/bin/sh
		[ -e "$T/died" ] && exec "$BUILD/weir-$1" "\$@"
		: >"$T/died"
		exec strace -qq -D -o /dev/null -e trace=$2 \\
			-e inject=$2:signal=KILL:when=$3 \\
			"$BUILD/weir-$1" "\$@"
	END
	chmod +x "$T/bin/weir-$1"
	rm -f "$T/died"
}

# A copy of the programs in which one can be replaced.
programs() {
	mkdir "$T/bin"
	ln -s "$BUILD"/weir-* "$T/bin"
	rm "$T/bin/weir-$1" "$T/bin/weir-push" "$T/bin/weir-rollback"
	# They look for them beside themselves.
	cp "$BUILD/weir-push" "$BUILD/weir-rollback" "$T/bin"
}

@test "I9 commit killed at each durable step: published once, or the old one" {
	local n

	strace -qq -e trace=none true || skip "no ptrace here"
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
	checkpoint "$T/one" --size 256KiB --seed 1
	engines a b
	fleet a b
	programs commit
	for n in 1 4 7 10 13 15 17 20; do
		kill_at commit linkat,renameat,renameat2,fsync "$n"
		run --separate-stderr "$T/bin/weir-push" \
			--source "$T/one" --fleet "$T/fleet.yaml" \
			--registry "$T/registry"
		assert_success
		assert_exist "$T/died"
		assert_equal "$(serving a) $(serving b)" \
			"$(serving a) $(serving a)"
		decided "$(serving a)"
		# Killed behind the verdict, where no commit is started again:
		# what it left is removed by the next one.
		[ "$n" -eq 20 ] || assert_clean_runs
	done
	assert_equal "$(serving a)" 8
	assert_not_exist "$T/state/weir"
	push "$T/one"
	assert_not_exist "$T/registry/open"
	assert_clean_runs
}

@test "I9 a stage killed before its hand-off is started again" {
	local stage

	strace -qq -e trace=none true || skip "no ptrace here"
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
	checkpoint "$T/one" --size 256KiB --seed 1
	engine a
	fleet a
	for stage in plan admit transfer; do
		rm -rf "${T:?}/bin"
		programs $stage
		kill_at $stage linkat,fsync 1
		run --separate-stderr "$T/bin/weir-push" \
			--source "$T/one" --fleet "$T/fleet.yaml" \
			--registry "$T/registry" --max-inflight-buckets 2
		assert_success
		assert_exist "$T/died"
		holds a "$T/one"
		assert_clean_runs
	done
}

@test "TM-02 a stopped stage that was replaced ends with 76, changes nothing" {
	local stage old

	held_fleet
	for stage in admit transfer commit; do
		held_hand
		old=$(pid_in_run $stage.1)
		kill -STOP "$old"
		start new weir-$stage --run "$(newest_run)"
		wait_for test -e "$(newest_run)/$stage.2"
		kill -CONT "$old"
		wait_for is_dead "$old"
		rm "$T/hold"
		ends_with 0 new
		ends_with 0 hand
		case $stage in
		admit) assert_equal "$(codes_of_hand)" "0 76 0 0" ;;
		transfer) assert_equal "$(codes_of_hand)" "0 0 76 0" ;;
		commit) assert_equal "$(codes_of_hand)" "0 0 0 76" ;;
		esac
		holds a "$T/two"
		holds b "$T/two"
		assert_clean_runs
	done
}

# What the first instances have told.
told_by_first() { grep -c '"instance":1,' "$(newest_run)/events"; }

@test "TM-02 I10 all stopped for longer than the time-outs, and replaced: 76" {
	local stage old=() said

	held_fleet
	held_hand 8s
	for stage in plan admit transfer commit; do
		old+=("$(pid_in_run $stage.1)")
	done
	kill -STOP "${old[@]}"
	for stage in plan admit transfer commit; do
		start "new-$stage" weir-$stage --run "$(newest_run)"
	done
	for stage in plan admit transfer commit; do
		wait_for test -e "$(newest_run)/$stage.2"
	done
	sleep 9 # longer than the time-out: what is tested is time
	said=$(told_by_first)
	kill -CONT "${old[@]}"
	ends_with 0 hand
	assert_equal "$(codes_of_hand)" "76 76 76 76"
	rm "$T/hold"
	for stage in plan admit transfer commit; do
		ends_with 0 "new-$stage"
	done
	assert_equal "$(told_by_first)" "$said"
	assert_equal "$(grep -c '"event":"swapped"' "$(newest_run)/events")" 2
	assert_new
	run decided 3
	assert_failure
	assert_clean_runs
}

@test "TM-02 a whole push that is stopped and goes on" {
	local stage

	held_fleet
	held_push --stage-timeout 8s
	for stage in plan admit transfer commit; do
		kill -STOP "$(pid_in_run $stage.1)"
	done
	rm "$T/hold"
	sleep 9 # longer than the time-out: what is tested is time
	for stage in plan admit transfer commit; do
		kill -CONT "$(pid_in_run $stage.1)"
	done
	ends_with 0 push
	assert_new
}

@test "FL-01 a stopped engine: its deadline, 2, named; later it serves the old" {
	held_fleet
	held_push --engine-timeout 8s --load-timeout 8s
	kill -STOP "$(pid_of a)"
	rm "$T/hold"
	ends_with 2 push
	assert_file_contains "$T/push.err" "engine a"
	aborted 2 a 2 60
	kill -CONT "$(pid_of a)"
	assert_old
	assert_heals
}

@test "FL-01 a dead engine is not waited for, with or without the others" {
	held_fleet
	held_push
	kill_engine a
	ends_with 2 push
	assert_file_contains "$T/push.err" "engine a"
	aborted 2 a 0 30 # no time-out
	assert_equal "$(serving b)" 1
	touch "$T/hold"
	run --separate-stderr push "$T/two" --min-engines 1
	assert_failure 3
	[[ $stderr == *" a"* ]]
	assert_equal "$(serving b)" 2
	rm "$T/hold"
	engine a
	push "$T/two"
	assert_equal "$(serving a) $(serving b)" "3 3"
	holds a "$T/two"
	assert_file_not_exist "$T/registry/attention"
}

@test "ZQ-01 ZQ-05 nobody listens: 69 at once, named, nothing touched" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engine b
	fleet a b
	run --separate-stderr push "$T/one"
	assert_failure 69
	[[ $stderr == *"listens at"*"$T/a.sock"* ]]
	assert_not_exist "$T/b/fence"
	# A dead process's socket file refuses.
	engine a
	kill_engine a
	assert_exist "$T/a.sock"
	run --separate-stderr push "$T/one"
	assert_failure 69
	[[ $stderr == *"listens at"*"$T/a.sock"* ]]
	assert_not_exist "$T/b/fence"
	engine a
}

@test "an engine started again before the decision fails the run, after it not" {
	local at

	held_fleet
	held_push
	# They see it when it is there again: away, it would need attention.
	at="$(pid_in_run transfer.1) $(pid_in_run commit.1)"
	# shellcheck disable=SC2086 # two of them
	kill -STOP $at
	kill_engine b
	engine b
	# shellcheck disable=SC2086
	kill -CONT $at
	ends_with 1 push
	assert_file_contains "$T/push.err" "engine b"
	assert_old
	# Behind the decision: hashed again, a fresh receipt, then swapped.
	rm "$T/hold"
	stop b
	engine b --on-pause "touch '$T/deciding'; while [ -e '$T/hold' ]; do
		sleep 0.02; done"
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	ends_with 0 push
	decided 2
	all_serve 2 "$T/two"
}

# stopped_at WHEN POINT [OPTION]...: a push whose process stops there; see
# kill/point.c.
stopped_at() {
	export KILL_AT="$T/at"
	look_at_new_runs
	printf 'stop-%s %s' "$1" "$2" >"$KILL_AT"
	start push "$BUILD/tests/kill/weir-push" --source "$T/two" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" "${@:3}"
	wait_for test ! -e "$KILL_AT"
	STOPPED=$(pid_in_run "${2%%:*}.1")
	wait_for grep -q ') T ' "/proc/$STOPPED/stat"
}

new_boot() {
	kill_engine b
	engine b
	kill -CONT "$STOPPED"
}

@test "FL-01 I10 a new boot id before begin: that engine is named, 1" {
	held_fleet
	rm "$T/hold"
	stopped_at before "commit: commit open opened -> begin"
	new_boot
	ends_with 1 push
	assert_file_contains "$T/push.err" "engine b"
	aborted 1 b 0 30 # no time-out
	assert_old
	assert_heals
}

@test "FL-01 I10 a new boot id between begin and decision: named, 1" {
	held_fleet
	rm "$T/hold"
	stopped_at after "commit: commit load drained -> receipt"
	new_boot
	ends_with 1 push
	assert_file_contains "$T/push.err" "engine b"
	aborted 1 b 0 30 # no time-out
	assert_old
	assert_heals
}

@test "FL-01 I10 a new boot id after the decision: hashed again, swapped, 0" {
	held_fleet
	rm "$T/hold"
	stopped_at before "commit: commit decide agreed -> swap"
	new_boot
	ends_with 0 push
	assert_new
	assert_clean_runs
}

@test "I10 two registries push to one engine: the second is refused, both named" {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.02; done"
	fleet a
	touch "$T/hold"
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told acked
	REGISTRY_DIR=other run --separate-stderr push "$T/two"
	assert_failure 76
	[[ $stderr == *"engine a"*"$(cat "$T/registry/id")"* ]]
	[[ $stderr == *"$(cat "$T/other/id")"* ]]
	assert_file_not_exist "$T/other/open"
	rm "$T/hold"
	ends_with 0 push
	holds a "$T/one"
	assert_equal "$(serving a)" 1
}

@test "I4 I7 after an abort the next push starts with full credit" {
	held_fleet
	held_push --max-inflight-buckets 2 --order window
	stop push TERM || true
	assert_old
	rm "$T/hold"
	look_at_new_runs
	push "$T/two" --bucket-size 128KiB --max-inflight-buckets 2 \
		2>"$T/next.err"
	run grep -m 1 '"event":"granted"' "$(newest_run)/events"
	assert_output --partial '"credit_buckets":1,'
	assert_file_contains "$T/next.err" "peak 2 buckets"
}

@test "UX-06 SIGTERM to one stage: 143 in all four, whichever it is" {
	local stage

	held_fleet
	for stage in plan admit transfer commit; do
		held_hand
		kill -TERM "$(pid_in_run $stage.1)"
		ends_with 0 hand
		assert_equal "$(codes_of_hand)" "143 143 143 143"
		rm "$T/hold"
		assert_old
		assert_clean_runs
	done
	assert_heals
}

@test "I9 a rollback's commit killed at each durable step: one number each time" {
	local n

	strace -qq -e trace=none true || skip "no ptrace here"
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
	checkpoint "$T/one" --size 256KiB --seed 1
	checkpoint "$T/two" --size 256KiB --seed 2
	engines a b
	fleet a b
	push "$T/one" 2>/dev/null
	push "$T/two" 2>/dev/null
	rm -r "$T/one" "$T/two"
	programs commit
	for n in 1 5 9 13 17; do
		kill_at commit linkat,renameat,renameat2,fsync "$n"
		run --separate-stderr "$T/bin/weir-rollback" \
			--registry "$T/registry"
		assert_success
		assert_exist "$T/died"
		assert_equal "$(serving a)" "$(serving b)"
		decided "$(serving a)"
		assert_clean_runs
	done
	assert_equal "$(serving a)" 7
	cmp "$T/a/current/config.json" "$T/b/current/config.json"
}

@test "I9 a join's commit killed at each durable step goes on, or is run again" {
	local n fence

	strace -qq -e trace=none true || skip "no ptrace here"
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
	checkpoint "$T/one" --size 256KiB --seed 1
	engine a
	fleet a
	push "$T/one" 2>/dev/null
	fleet a b
	fence=$(md5sum "$T/a/fence")
	programs commit
	for n in 1 4 7 9; do
		engine b
		kill_at commit linkat,renameat,renameat2,fsync "$n"
		run --separate-stderr "$T/bin/weir-push" --only b \
			--fleet "$T/fleet.yaml" --registry "$T/registry"
		assert_success
		assert_exist "$T/died"
		holds b "$T/one"
		assert_clean_runs
		stop b
		rm -r "${T:?}/b"
	done
	assert_equal "$(md5sum "$T/a/fence")" "$fence"
	engine b
	push "$T/one" --only b 2>/dev/null
	assert_not_exist "$T/registry/open"
}

# All of a run but its engines, at once.
kill_run() {
	local stage

	kill -STOP "$(pid_of push)"
	for stage in plan admit transfer commit; do
		kill -KILL "$(pid_in_run $stage.1)"
	done
	kill -KILL "$(pid_of push)"
	ends_with 137 push
}

@test "I9 a join that nobody finishes is aborted by the next commit, then run" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engine a
	engine b --post-load "while [ -e '$T/hold' ]; do sleep 0.02; done"
	fleet a
	push "$T/one" 2>/dev/null
	fleet a b
	touch "$T/hold"
	look_at_new_runs
	start push weir-push --only b --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told acked
	kill_run
	assert_exist "$T/registry/open"
	rm "$T/hold"
	run --separate-stderr weir-push --only b --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	assert_success
	[[ $stderr == *"undecided, aborting it"* ]]
	assert_equal "$(serving a) $(serving b)" "1 1"
	holds b "$T/one"
	assert_not_exist "$T/registry/open"
	assert_clean_runs
}

@test "I9 a decided rollback that nobody finishes is finished by the next commit" {
	checkpoint "$T/one" --size 256KiB --seed 1
	checkpoint "$T/two" --size 256KiB --seed 2
	engine a
	engine b --on-pause "while [ -e '$T/hold' ]; do sleep 0.02; done"
	fleet a b
	push "$T/one" 2>/dev/null
	push "$T/two" 2>/dev/null
	touch "$T/hold"
	look_at_new_runs
	start push weir-rollback --registry "$T/registry"
	wait_for told decided
	kill_run
	decided 3
	rm "$T/hold"
	run --separate-stderr push "$T/two"
	assert_success
	[[ $stderr == *"decided, going forward"* ]]
	assert_equal "$(serving a) $(serving b)" "4 4"
	cmp "$T/one/config.json" "$T/b/versions/000003/config.json"
	assert_clean_runs
}

@test "I12 decided, brought home by another commit, started again: no new number" {
	local run

	held_fleet
	stop b
	engine b --on-pause "while [ -e '$T/slow' ]; do sleep 0.02; done"
	rm "$T/hold"
	touch "$T/slow"
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told decided
	run=$(newest_run)
	kill_run
	assert_not_exist "$run/verdict"
	rm "$T/slow"
	# A rollback recovers what is open, and publishes the third.
	weir-rollback --registry "$T/registry" 2>"$T/recovery"
	assert_file_contains "$T/recovery" "decided, going forward"
	all_serve 3 "$T/one"
	run --separate-stderr weir-commit --run "$run" --registry "$T/registry"
	assert_success
	assert_output --partial "version 2 was published already: 2 engines"
	run decided 4
	assert_failure
	all_serve 3 "$T/one"
	# All the others of that run end alike.
	for stage in plan admit transfer; do
		run --separate-stderr weir-$stage --run "$run"
		assert_success
	done
	assert_clean_runs
}

@test "I11 I12 a run with the name of an earlier one is not taken for that" {
	local runs=$T/run/weir

	held_fleet
	rm "$T/hold"
	stopped_at before "commit: commit decide agreed -> swap" \
		--run "$runs/r" --stage-timeout 3s
	kill_run
	rm -r "$runs/r"
	# Killed again: what the second one of that name has opened is its own.
	printf 'before commit: commit probe probed -> open' >"$T/at"
	KILL_AT=$T/at run --separate-stderr "$BUILD/tests/kill/weir-push" \
		--source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --run "$runs/r"
	assert_success
	assert_not_exist "$T/at"
	[[ $stderr == *"version 2, was left open: decided, going forward"* ]]
	decided 2
	all_serve 3 "$T/one"
	assert_clean_runs
}

# What `weir status` says of those who are not home.
attention() {
	weir-status --registry "$T/registry" | grep attention
}

@test "I9 an engine that is owed a version is not forgotten by a later abort" {
	held_fleet
	rm "$T/hold"
	stopped_at before "commit: commit decide agreed -> swap" \
		--engine-timeout 3s
	kill_engine b
	kill -CONT "$STOPPED"
	ends_with 3 push
	# It is there again when the next run begins, and dies in that.
	stopped_at before "commit: commit recover recovered -> probe"
	engine b --post-load "while [ -e '$T/hold' ]; do sleep 0.02; done"
	touch "$T/hold"
	kill -CONT "$STOPPED"
	wait_for told granted
	wait_for test -d "$T/b/staging/000003"
	kill_engine b
	ends_with 2 push
	run attention
	assert_line --partial "version 2 "
	assert_line --partial "version 3 "
	# What it has begun is cancelled; what was decided is owed.
	rm "$T/hold"
	engine b
	run push "$T/two" --weight-version 1
	assert_failure 65
	run attention
	assert_line --partial "version 2 "
	refute_line --partial "version 3 "
	push "$T/two"
	all_serve 3 "$T/two"
	assert_not_exist "$T/registry/attention"
	assert_clean_runs
}

# What is stopped goes on, and stops at the next point of that name.
stops_next() {
	printf 'stop-%s %s' "$1" "$2" >"$KILL_AT"
	kill -CONT "$STOPPED"
	wait_for test ! -e "$KILL_AT"
	wait_for grep -q ') T ' "/proc/$STOPPED/stat"
}

# It is asked, and so it has answered what it was asked before.
has_answered() { weir-status --registry "$T/registry" | grep -q "^$1 "; }

serves() { [ "$(serving "$1")" = "$2" ]; }

@test "I9 UX-06 a signal while recovery waits for an engine: that stays in attention" {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	export KILL_AT="$T/at"
	engine a
	PATH="$BUILD/tests/kill:$PATH" engine b
	fleet a b
	push "$T/one" 2>/dev/null
	# It is there when nobody waits for it any more.
	printf 'stop-before engine: renames current' >"$KILL_AT"
	run push "$T/two" --engine-timeout 6s
	assert_failure 3
	kill -CONT "$(pid_of b)"
	wait_for serves b 2
	# The next one asks it, and the signal comes before its answer does.
	kill -STOP "$(pid_of b)"
	stopped_at after "commit: commit lock locked -> recover"
	signal "$(pid_of push)" TERM
	stops_next after "commit: commit recover fail -> done"
	kill -CONT "$(pid_of b)"
	wait_for has_answered b
	run attention
	assert_line --partial "version 2 "
	kill -CONT "$STOPPED"
	ends_with 143 push
	run attention
	assert_line --partial "version 2 "
	push "$T/two" 2>/dev/null
	all_serve 3 "$T/two"
	assert_not_exist "$T/registry/attention"
	assert_clean_runs
}

plan_out() {
	"$BUILD/tests/kill/weir-plan" --source "$T/one" \
		--fleet "$T/fleet.yaml" -o "$T/out/plan"
}

@test "I9 weir-plan -o killed at each point: old or new, and the next one tidies up" {
	local edge

	checkpoint "$T/one" --size 256KiB --seed 1
	fleet a
	mkdir "$T/out"
	export KILL_AT="$T/at"
	: >"$T/names"
	KILL_NAMES="$T/names" plan_out
	cp "$T/out/plan" "$T/plan"
	sort -u "$T/names" | sed 's/^/before /; p; s/^before/after/' >"$T/edges"
	assert [ "$(wc -l <"$T/edges")" -ge 6 ]
	while read -r edge; do
		printf '%s' "$edge" >"$KILL_AT"
		run plan_out
		assert_equal "$edge: $status" "$edge: 137"
		cmp "$T/plan" "$T/out/plan"
		plan_out
		assert_equal "$edge: $(ls -A "$T/out")" "$edge: plan"
		cmp "$T/plan" "$T/out/plan"
	done <"$T/edges"
}

@test "I9 each stage of a rollback is started again; an engine's death aborts it" {
	local stage

	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engine a --keep 1
	engine b --keep 1 \
		--post-load "while [ -e '$T/hold' ]; do sleep 0.02; done"
	fleet a b
	push "$T/one" 2>/dev/null
	push "$T/two" 2>/dev/null
	push "$T/two" 2>/dev/null # now nobody keeps the first
	for stage in admit transfer commit; do
		touch "$T/hold"
		look_at_new_runs
		start push weir-rollback --to 1 --registry "$T/registry"
		wait_for told sealed
		kill -KILL "$(pid_in_run $stage.1)"
		wait_for test -e "$(newest_run)/$stage.2"
		rm "$T/hold"
		ends_with 0 push
		holds a "$T/one"
		holds b "$T/one"
		push "$T/two" 2>/dev/null
		push "$T/two" 2>/dev/null
	done
	touch "$T/hold"
	look_at_new_runs
	start push weir-rollback --to 1 --registry "$T/registry"
	wait_for told sealed
	kill_engine b
	ends_with 2 push
	holds a "$T/two"
	rm "$T/hold"
	engine b
	assert_equal "$(serving b)" 12
}
