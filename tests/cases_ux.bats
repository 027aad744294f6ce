#!/usr/bin/env bats
# UX, TM - the four as Unix processes: they die, are stopped, are told to end,
# in odd environments and of different builds.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

# four SOURCE: a pipeline by hand in the background, each of them NAME.pid;
# options of commit in $COMMIT_OPTIONS.  $PATIENCE: the --stage-timeout of those
# who wait for one that is to come; $HASTE: of the two behind, who are to miss
# one that is gone.
four() {
	rm -f "$T"/p[123]
	mkfifo "$T/p1" "$T/p2" "$T/p3"
	# shellcheck disable=SC2086 # lists of options
	{
		stage plan /dev/null "$T/p1" --source "$1" \
			--fleet "$T/fleet.yaml" --stage-timeout ${PATIENCE:-60s}
		stage admit "$T/p1" "$T/p2" --stage-timeout ${PATIENCE:-60s}
		stage transfer "$T/p2" "$T/p3" --stage-timeout ${HASTE:-60s}
		stage commit "$T/p3" "$T/result" --registry "$T/registry" \
			--stage-timeout ${HASTE:-60s} $COMMIT_OPTIONS
	}
}

stage() {
	local name=$1 in=$2 out=$3

	shift 3
	# the shells here ignore SIGINT for what they start
	# shellcheck disable=SC2016 # of the inner shell
	start "$name" env --default-signal=INT bash -c \
		'in=$1 out=$2; shift 2; exec "$@" <"$in" >"$out"' _ \
		"$in" "$out" "weir-$name" "$@"
}

# all_end CODE NAME...
all_end() {
	local code=$1 name

	shift
	for name; do
		ends_with "$code" "$name"
	done
}

@test "UX-01 a stage dies for good: no publish, and nobody says 0" {
	local dead name

	checkpoints
	held_engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
	HASTE=2s
	for dead in admit transfer; do
		touch "$T/hold"
		four "$T/two"
		held a
		kill -KILL "$(pid_of $dead)"
		for name in plan admit transfer commit; do
			ends "$(pid_of $name)" || fail "$dead: $name goes on"
			[ "$status" -ne 0 ] || fail "$dead: $name says 0"
		done
		rm "$T/hold"
		not_staged() { [ -z "$(ls -A "$T/a/staging")" ]; }
		wait_for not_staged
		still_one a
	done
	then_two a
}

@test "UX-01 plan dies after its end: it is not needed any more" {
	checkpoints
	held_engine a
	fleet a
	touch "$T/hold"
	PATIENCE=5s
	four "$T/one"
	held a
	kill -KILL "$(pid_of plan)"
	wait_for is_dead "$(pid_of plan)"
	rm "$T/hold"
	all_end 0 admit transfer commit
	holds a "$T/one"
}

@test "UX-01 stages that never start: with and without pipefail" {
	base a
	run bash -c "weir-plan --source '$T/two' --fleet '$T/fleet.yaml' \
		--stage-timeout 300ms | false | weir-transfer |
		weir-commit --registry '$T/registry'"
	assert_equal "$status" 76
	run bash -c "set -o pipefail
		weir-plan --source '$T/two' --fleet '$T/fleet.yaml' \
		--stage-timeout 300ms | false | weir-transfer |
		weir-commit --registry '$T/registry'"
	assert_equal "$status" 76
	run bash -c "weir-plan --source '$T/none' --fleet '$T/fleet.yaml' |
		weir-admit | weir-transfer |
		weir-commit --registry '$T/registry'"
	assert_equal "$status" 66
	still_one a
	then_two a
}

@test "UX-02 nobody reads: it ends by itself, and not with success" {
	local before

	base a
	for before in "" "trap '' PIPE;"; do
		run --separate-stderr bash -c "$before set -o pipefail
			weir-plan --source '$T/two' --fleet '$T/fleet.yaml' \
				--stage-timeout 300ms |
			weir-admit --stage-timeout 300ms |
			weir-transfer --stage-timeout 300ms | true"
		assert_failure
		[ "$status" -ne 124 ]
		still_one a
	done
	then_two a
}

# Those that people start.
programs() {
	find "$BUILD" -maxdepth 1 -type f -executable -name 'weir-*' \
		! -name 'weir-move-*' -printf '%f\n' | sed 's/^weir-//'
}

@test "UX-04 stdout is data; help and version go there, words elsewhere" {
	local name

	base a
	for name in $(programs); do
		for option in --help --version; do
			run --separate-stderr "weir-$name" $option
			assert_success
			assert [ -n "$output" ]
			assert_equal "$stderr" ""
		done
		run --separate-stderr "weir-$name" --no-such-option
		assert_equal "$status" 64
		case $name in
		plan | admit | transfer) # for the next stage
			assert_equal "$output" "weir-fail 1 64 ${stderr#* error }"
			;;
		*) assert_equal "$output" "" ;;
		esac
	done
	push "$T/two" -v -v --json >"$T/out" 2>/dev/null
	python3 -c 'import json, sys; [json.loads(s) for s in sys.stdin]' \
		<"$T/out"
	run --separate-stderr push "$T/one" -v -v
	assert_success
	assert_equal "${#lines[@]}" 1
}

@test "UX-06 signals to all or to one, before the decision" {
	local signal names name code pids

	checkpoints
	held_engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
	for names in "plan admit transfer commit" plan admit transfer commit; do
		for signal in INT:130 TERM:143 HUP:129; do
			# one alone: one of them will do
			[[ $names == *" "* || $signal == TERM* ]] || continue
			code=${signal#*:}
			touch "$T/hold"
			four "$T/two"
			held a
			pids=()
			for name in $names; do
				pids+=("$(pid_of "$name")")
			done
			# At once: the first to hear it ends the others.
			kill "-${signal%:*}" "${pids[@]}"
			all_end "$code" plan admit transfer commit
			rm "$T/hold"
			still_one a
		done
	done
	then_two a
}

@test "UX-06 SIGINT after the decision: all of it, and a second one ends" {
	checkpoints
	engine a --on-pause "while [ -e '$T/hold' ]; do sleep 0.05; done"
	fleet a
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	four "$T/two"
	wait_for decided 2
	kill -INT "$(pid_of commit)"
	wait_for contains "$T/commit.err" "version 2 is published"
	kill -INT "$(pid_of commit)"
	all_end 3 plan admit transfer commit
	contains "$T/result" "lagging: a"
	assert_exist "$T/registry/open"
	rm "$T/hold"
	# the next commit finishes it
	push "$T/two" --weight-version 2 --wait 200s >/dev/null 2>&1
	assert_equal "$(serving a)" 2
	holds a "$T/two"
}

@test "UX-07 push is killed at any time: nobody stays, nothing is published" {
	local step

	checkpoints
	held_engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	for step in staging/000002 ../a.held; do
		rm -f "$T/a.held"
		start_push push "$T/two"
		wait_for test -e "$T/a/$step"
		kill -KILL "$(pid_of push)"
		ends_with 137 push
		wait_for no_stages
	done
	rm "$T/hold"
	assert_not_exist "$T/registry/versions/000002/decision"
	push "$T/two" >/dev/null 2>&1
	holds a "$T/two"
}

@test "UX-09 locale, zone, home, temporary directory: the same result" {
	local env line want n=1

	base a
	for env in LC_ALL=de_DE.UTF-8 LC_ALL=POSIX TZ=Nowhere/Odd HOME= \
		"-u HOME" "-u TMPDIR" TMPDIR=/nowhere COLUMNS=0; do
		# shellcheck disable=SC2086 # words
		env $env weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
			--registry "$T/registry" >"$T/out" 2>/dev/null
		assert_equal "$env $(cut -d: -f1 "$T/out")" \
			"$env version $((++n)) published"
		line=$(cut -d: -f2- "$T/out")
		assert_equal "$env $line" "$env ${want:=$line}"
		assert_equal "$(serving a)" "$n"
	done
}

@test "UX-11 a stage of another build: both are named, no engine is touched" {
	local other

	base a
	for other in admit transfer commit; do
		run --separate-stderr bash -c "set -o pipefail
			stage() {
				if [ \$1 = $other ]; then
					TOY_HASH=5 '$BUILD/tests/toystage' \$1
				else
					weir-\$1 \"\${@:2}\"
				fi
			}
			stage plan --source '$T/two' --fleet '$T/fleet.yaml' |
				stage admit | stage transfer |
				stage commit --registry '$T/registry'"
		assert_failure
		[[ $stderr == *"messages 0000000000000005"*"use one build"* ]]
		still_one a
	done
	then_two a
}

@test "TM-02 the sender is stopped for longer than a time-out" {
	local pid pids

	checkpoints
	held_engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	PATIENCE=8s
	HASTE=8s
	four "$T/two"
	held a
	pids=$(for s in plan admit transfer commit; do pid_of $s; done)
	for pid in $pids; do
		kill -STOP "$pid"
	done
	sleep 9	# what the case is about: time goes by
	for pid in $pids; do
		kill -CONT "$pid"
	done
	rm "$T/hold"
	all_end 0 plan admit transfer commit
	holds a "$T/two"
}

@test "TM-02 stopped beyond the run's deadline: one clean time-out" {
	local pid pids

	checkpoints
	held_engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	COMMIT_OPTIONS="--run-timeout 15s"
	four "$T/two"
	held a
	pids=$(for s in plan admit transfer commit; do pid_of $s; done)
	for pid in $pids; do
		kill -STOP "$pid"
	done
	sleep 15.2	# the same
	for pid in $pids; do
		kill -CONT "$pid"
	done
	all_end 1 plan admit transfer commit
	rm "$T/hold"
	stderr=$(cat "$T"/{plan,admit,transfer,commit}.err)
	one_error "15 s" "--run-timeout"
	still_one a
	COMMIT_OPTIONS=
	then_two a
}

# set_clock SECONDS: the wall clock is so far off from now on.
set_clock() {
	echo "$1" >"$T/shift.new"
	mv "$T/shift.new" "$T/shift"
}

# told_by_watch NUMBERS: so far.
told_by_watch() {
	[ "$(grep -o '"version":[0-9]*' "$T/w.out" | cut -d: -f2 | xargs)" = "$1" ]
}

# Names and ledgers say what time it was; nothing else asks.
@test "TM-02 the wall clock is set back or on, between pushes and in one" {
	local day=86400

	skip_if_sanitized
	export CLOCK_SHIFT="$T/shift" LD_PRELOAD="$BUILD/tests/clock/shift.so"
	checkpoints
	held_engine a
	fleet a
	start w weir-watch --registry "$T/registry" --since 0
	push "$T/one" >/dev/null 2>&1
	set_clock -$day
	touch "$T/hold"
	start_push p "$T/two" --run-timeout 10m
	held a
	set_clock $((-2 * day))
	set_clock $((365 * day))
	rm "$T/hold"
	ends_with 0 p
	holds a "$T/two"
	set_clock $((-3 * day))
	weir-rollback --registry "$T/registry" >/dev/null 2>&1
	holds a "$T/one"
	wait_for told_by_watch "1 2 3"
	stop w || true
	weir-status --registry "$T/registry" >/dev/null
	# It was so: a year between two versions, and one before the first.
	python3 - "$T/w.out" $((day * 1000)) <<-'PY'
	import json, sys
	when = [json.loads(s)["wall_ms"] for s in open(sys.argv[1])]
	day = int(sys.argv[2])
	assert when[1] > when[0] + 300 * day, when
	assert when[2] < when[0] - 2 * day, when
	PY
	assert_clean_runs
}

@test "TM-03 identity is the bytes: same size and time are not enough" {
	base a
	cp -r "$T/one" "$T/same"
	touch -d 2001-01-01 "$T/same"/* "$T/same"
	run --separate-stderr push "$T/same" --weight-version 1
	assert_success
	assert_equal "$(serving a)" 1
	# another content of the same size and time
	find "$T/one" -type f | while read -r file; do
		cp "$T/two/${file##*/}" "$T/two/${file##*/}.new"
		mv "$T/two/${file##*/}.new" "$T/two/${file##*/}"
		touch -r "$file" "$T/two/${file##*/}"
	done
	run --separate-stderr push "$T/two" --weight-version 1
	refused 65
	still_one a
	then_two a
}

# What is closed gets no other descriptor's meaning.
@test "UX-04 stdin, stdout or stderr closed: no crash, no success, one line" {
	local stage

	checkpoint "$T/one" --size 256KiB
	for stage in admit transfer commit; do
		run --separate-stderr timeout 120 bash -c \
			"weir-$stage --registry '$T/registry' <&-"
		[ "$status" -ge 64 ]
		[ "$status" -le 78 ]
		assert_equal "${#stderr_lines[@]}" 1
		[[ $stderr != *BUG* ]]
	done
	run --separate-stderr bash -c "weir-plan --help >&-"
	one_line_error 74 "Bad file descriptor"
	run --separate-stderr bash -c \
		"weir-plan --source '$T/one' --engine ipc:///x --dry-run >&-"
	one_line_error 74 "Bad file descriptor"
	run bash -c \
		"weir-plan --source '$T/one' --engine ipc:///x --dry-run 2>&- <&-"
	assert_success
}

# They were removed, or replaced, with whatever they held.
@test "UX-04 what is no file of ours is never replaced" {
	checkpoint "$T/one" --size 256KiB
	echo precious >"$T/x"
	run --separate-stderr timeout 120 weir-engine --name a \
		--store "$T/a" --listen "ipc://$T/x"
	one_line_error 78 "$T/x" "no socket"
	assert_equal "$(cat "$T/x")" precious
	mv "$T/x" "$T/y.fd"
	run --separate-stderr timeout 120 weir-engine --name a \
		--store "$T/a" --listen "ipc://$T/y"
	one_line_error 78 "$T/y.fd is there and is no socket"
	assert_equal "$(cat "$T/y.fd")" precious
	mkfifo "$T/fifo"
	run --separate-stderr timeout 120 weir-plan --source "$T/one" \
		--engine ipc:///x -o "$T/fifo"
	one_line_error 64 "-o $T/fifo" "no regular file"
	[ -p "$T/fifo" ]
}

@test "UX-09 the environment names what is none: one line, the right code" {
	WEIR_REGISTRY=$T/run/../home/.. run --separate-stderr weir-status
	assert_failure
	touch "$T/file"
	WEIR_REGISTRY=$T/file run --separate-stderr weir-status
	one_line_error 78 "open registry $T/file" "Not a directory"
	run --separate-stderr weir-engine --name a/b --store "$T/a" \
		--listen "ipc://$T/a.sock"
	one_line_error 64 'name "a/b"'
	run --separate-stderr weir-dump --schema x
	one_line_error 64 'unexpected argument "x"'
}
