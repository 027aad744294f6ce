# shellcheck shell=bash
# shellcheck disable=SC2030,SC2031,SC2154 # bats: tests are subshells; run
# The shell of the four stages, by a stage that does nothing (toystage.c).

bats_require_minimum_version 1.5.0
load helpers

setup() {
	common_setup
	TOY=$BUILD/tests/toystage
	TIMEOUT=60000	# milliseconds; no test waits for it
	HASTE=		# a stage that has less, as the test waits for that
	HOLD=$T/go
	SUPERVISED=
	export TOY_HOLD=$HOLD
}

# toy_start NAME STAGE IN OUT: in the pipeline; $SUPERVISED goes before exec.
toy_start() {
	local name=$1 stage=$2 in=$3 out=$4 timeout=$TIMEOUT

	[ "$stage" != "$HASTE" ] || timeout=2000
	start "$name" bash -c "$SUPERVISED exec \"\$0\" \"\$@\" <$in $out" \
		"$TOY" "$stage" --timeout "$timeout"
}

# plan | admit | transfer | commit, each a process of its own.
pipeline() {
	mkfifo "$T/p1" "$T/p2" "$T/p3"
	toy_start plan plan /dev/null ">$T/p1"
	toy_start admit admit "$T/p1" ">$T/p2"
	toy_start transfer transfer "$T/p2" ">$T/p3"
	toy_start commit commit "$T/p3" ""
}

all_up() {
	pipeline
	wait_for contains "$T/plan.err" "weir-admit instance 1 is there"
	wait_for contains "$T/admit.err" "weir-transfer instance 1 is there"
	wait_for contains "$T/commit.err" "weir-transfer instance 1 is there"
	RUN=$(echo "$T"/run/weir/*)
}

again() { start "${1}2" "$TOY" "$1" --run "$RUN" --timeout "$TIMEOUT"; }

go() { touch "$HOLD"; }

# ends STATUS NAME...: each of them ends with this status.
ends() {
	local want=$1 name status

	shift
	for name; do
		status=0
		wait_for_end "$(pid_of "$name")" || status=$?
		[ "$status" -eq "$want" ] && continue
		echo "$name ended with $status, not $want:" >&2
		cat "$T"/*.err >&2
		return 1
	done
}

no_errors() { refute contains "$T/$1.err" " error "; }

@test "four stages end with commit's code, and leave nothing" {
	all_up
	go
	ends 0 plan admit transfer commit
	[ "$(cat "$T/commit.out")" = "result 0" ]
	[ "$(cat "$T"/*.err | grep -c stopped)" -eq 4 ]
	[ -z "$(find "$T" -name '*.endpoint' -o -name '*.sock')" ]
	assert_file_exists "$RUN/verdict"
}

@test "any code of the verdict is that of all four" {
	export TOY_EXIT=3
	go
	pipeline
	ends 3 plan admit transfer commit
}

@test "UX-04 what a library prints to stdout is no hand-off" {
	export TOY_CHATTER=1
	go
	pipeline
	ends 0 plan admit transfer commit
	[ "$(cat "$T/commit.out")" = "result 0" ]
	contains "$T/admit.err" "chatter on stdout"
}

@test "a terminal on stdout or stdin is refused" {
	run -64 script -qec "$TOY plan" /dev/null
	assert_output --partial "stdout is a terminal: pipe it into weir-admit"
	run -64 script -qec "$TOY commit" /dev/null
	assert_output --partial "stdin is a terminal"
}

@test "UX-01 a killed stage that is started again goes on" {
	for stage in plan admit transfer commit; do
		rm -rf "$T"/p? "$T"/run/weir "$HOLD"
		all_up
		stop "$stage" KILL || true
		again "$stage"
		wait_for contains "$T/${stage}2.err" "instance 1 is there"
		go
		for other in plan admit transfer commit; do
			[ "$other" = "$stage" ] || ends 0 "$other"
		done
		ends 0 "${stage}2"
	done
}

@test "UX-01 killed plan: without a new one the run is aborted" {
	HASTE=admit
	all_up
	stop plan KILL || true
	ends 1 admit transfer commit
	contains "$T/admit.err" "weir-plan at ipc://$RUN/plan.1.sock is gone"
}

@test "UX-01 killed transfer: the verdict reaches the others by the file" {
	HASTE=commit
	all_up
	stop transfer KILL || true
	ends 1 plan admit commit
}

@test "UX-01 killed commit: outcome unknown" {
	HASTE=transfer
	all_up
	stop commit KILL || true
	ends 75 plan admit transfer
	contains "$T/transfer.err" "outcome unknown"
}

@test "UX-01 success crosses a broken link" {
	all_up
	stop transfer KILL || true
	go
	ends 0 plan admit commit
}

@test "a stage started in a run that has ended ends like it" {
	export TOY_EXIT=3
	go
	pipeline
	ends 3 plan admit transfer commit
	RUN=$(echo "$T"/run/weir/*)
	again admit
	ends 3 admit2
	no_errors admit2
}

@test "I10 an older instance that wakes up ends with 76" {
	for stage in plan admit transfer commit; do
		rm -rf "$T"/p? "$T"/run/weir "$HOLD"
		all_up
		kill -STOP "$(pid_of "$stage")"
		again "$stage"
		wait_for contains "$T/${stage}2.err" "instance 1 is there"
		kill -CONT "$(pid_of "$stage")"
		ends 76 "$stage"
		go
		ends 0 "${stage}2"
		for other in plan admit transfer commit; do
			[ "$other" = "$stage" ] || ends 0 "$other"
		done
	done
}

@test "TM-02 a stage that was stopped for longer than the silence goes on" {
	TIMEOUT=4000
	all_up
	kill -STOP "$(pid_of admit)"
	wait_for contains "$T/transfer.err" "said nothing"
	kill -CONT "$(pid_of admit)"
	go
	ends 0 plan admit transfer commit
	refute contains "$T/transfer.err" "is gone"
}

@test "UX-06 Ctrl-C to all" {
	all_up
	kill -INT "$(pid_of plan)" "$(pid_of admit)" "$(pid_of transfer)" \
		"$(pid_of commit)"
	ends 130 plan admit transfer commit
}

@test "UX-06 SIGTERM to one" {
	for stage in plan admit transfer; do
		rm -rf "$T"/p? "$T"/run/weir
		all_up
		kill -TERM "$(pid_of "$stage")"
		ends 143 plan admit transfer commit
	done
}

@test "UX-06 a second signal ends at once" {
	all_up
	kill -STOP "$(pid_of commit)"
	kill -TERM "$(pid_of transfer)"
	until is_dead "$(pid_of admit)"; do
		kill -TERM "$(pid_of admit)" 2>/dev/null || true
	done
	ends 143 admit
	is_dead "$(pid_of transfer)" && return 1
	kill -CONT "$(pid_of commit)"
	ends 143 plan transfer commit
}

@test "UX-06 a signal before the hand-off line" {
	mkfifo "$T/p1" "$T/p2"
	start writer bash -c "exec sleep 1000 >$T/p1"
	toy_start admit admit "$T/p1" ">$T/p2"
	start reader cat "$T/p2"
	wait_for grep -q toystage "/proc/$(pid_of admit)/cmdline"
	wait_for grep -q SigBlk:.*4...$ "/proc/$(pid_of admit)/status"
	kill -TERM "$(pid_of admit)"
	ends 143 admit
	wait_for contains "$T/reader.out" "weir-fail 1 143"
}

@test "UX-02 the reader of the hand-off has gone" {
	TIMEOUT=600000
	mkfifo "$T/p1" "$T/p2" "$T/p3"
	toy_start plan plan /dev/null ">$T/p1"
	toy_start admit admit "$T/p1" ">$T/p2"
	toy_start transfer transfer "$T/p2" ">$T/p3"
	start reader bash -c "exec true <$T/p3"
	ends 75 plan admit transfer
	contains "$T/transfer.err" "nobody reads the hand-off"
}

# misused STAGE: a pipeline by hand in which it has an unknown option.
misused() {
	local a='' t='' c=''

	case $1 in
	admit) a=--bogus ;;
	transfer) t=--bogus ;;
	commit) c=--bogus ;;
	esac
	# shellcheck disable=SC2086 # or none at all
	{
		weir-plan --source "$T/ckpt" --engine "ipc://$T/none" |
			weir-admit $a | weir-transfer $t |
			weir-commit --registry "$T/reg" $c ||
			codes=("${PIPESTATUS[@]}")
	} >"$T/out" 2>"$T/err"
	assert_equal "$(cat "$T/out")" ""
	contains "$T/err" "weir-$1["
}

@test "UX-01 UX-02 a stage with wrong options: its word, its code downstream" {
	local next

	python3 "$SRC/tests/fixtures/mkckpt.py" --size 4KiB "$T/ckpt" \
		>/dev/null 2>&1
	for next in admit transfer commit; do
		misused "$next"
		assert_equal "$(grep -c . "$T/err")" 2
		contains "$T/err" "weir-$next did not start; what it said"
		case $next in
		admit) assert_equal "${codes[*]}" "75 64 64 64" ;;
		transfer) assert_equal "${codes[*]}" "75 75 64 64" ;;
		commit) assert_equal "${codes[*]}" "75 75 75 64" ;;
		esac
	done
}

# piped STAGE...: in that order; the codes in ${codes[@]}.
piped() {
	local all="weir-plan --source '$T/ckpt' --engine 'ipc://$T/none'" stage

	for stage; do
		all+=" | weir-$stage"
		[ "$stage" != commit ] || all+=" --registry '$T/reg'"
	done
	# shellcheck disable=SC2016 # of the inner shell
	run --separate-stderr bash -c "$all"'; echo "${PIPESTATUS[@]}"'
	assert_equal "$(grep -c 'error the stage before is' <<<"$stderr")" 1
}

@test "UX-02 stages in another order: the first that is wrong says so, 64" {
	python3 "$SRC/tests/fixtures/mkckpt.py" --size 4KiB "$T/ckpt" \
		>/dev/null 2>&1
	piped transfer commit
	assert_output "75 64 64"
	[[ $stderr == *"weir-transfer["*"is weir-plan, expected weir-admit:"* ]]
	piped admit commit
	assert_output "75 75 64"
	[[ $stderr == *"weir-commit["*"is weir-admit, expected weir-transfer:"* ]]
	piped admit admit transfer commit
	assert_output "75 75 64 64 64"
	[[ $stderr == *"is weir-admit, expected weir-plan:"* ]]
}

@test "UX-07 the supervisor's death ends all" {
	mkfifo "$T/death"
	start supervisor bash -c "exec sleep 1000 >$T/death"
	SUPERVISED="exec 9<$T/death; export WEIR_SUPERVISOR_FD=9;"
	all_up
	stop supervisor KILL || true
	ends 143 plan admit transfer commit
}

@test "UX-07 the supervisor's death ends all, even if commit hangs" {
	mkfifo "$T/death"
	start supervisor bash -c "exec sleep 1000 >$T/death"
	SUPERVISED="exec 9<$T/death; export WEIR_SUPERVISOR_FD=9;"
	all_up
	kill -STOP "$(pid_of commit)"
	stop supervisor KILL || true
	ends 75 plan admit transfer
	kill -KILL "$(pid_of commit)"
	wait_for_end "$(pid_of commit)" || true
}

@test "a stage that fails before its links ends all with its code" {
	for stage in plan admit transfer commit; do
		rm -rf "$T"/p? "$T"/run/weir
		TOY_FAIL=$stage pipeline
		ends 65 plan admit transfer commit
		[ "$(cat "$T"/*.err | grep -c ' error ')" -eq 1 ]
	done
}

@test "a stage that fails before its run tells the next by weir-fail" {
	TOY_EARLY=admit pipeline
	ends 78 admit transfer commit
	ends 75 plan
	no_errors transfer
	no_errors commit
	contains "$T/commit.err" "not today"
}

@test "UX-01 stdin without a hand-off line" {
	run -76 --separate-stderr "$TOY" commit </dev/null
	one_line_error 76 "stdin ended without a hand-off line"
	run -76 --separate-stderr bash -c "echo 'weir-plan 1 x' | $TOY commit"
	one_line_error 76 "no hand-off line but \"weir-plan 1 x\""
	run -76 --separate-stderr bash -c "yes | tr -d '\n' | $TOY commit"
	one_line_error 76 "no hand-off line"
	run -66 --separate-stderr bash -c \
		"echo 'weir-link 1 $T/absent ipc:///x' | $TOY commit"
	one_line_error 66 "$T/absent"
	run -65 --separate-stderr bash -c \
		"echo 'weir-fail 1 65 bad tensor' | $TOY commit"
	refute [ -n "$output" ]
	[[ $stderr = *" info "*"bad tensor"* && $stderr != *" error "* ]]
}

@test "UX-11 another build is refused, both are named, before anything is sent" {
	for stage in plan admit transfer commit; do
		rm -rf "$T"/p? "$T"/run/weir
		go
		mkfifo "$T/p1" "$T/p2" "$T/p3"
		for s in "plan /dev/null >$T/p1" "admit $T/p1 >$T/p2" \
			"transfer $T/p2 >$T/p3" "commit $T/p3"; do
			# shellcheck disable=SC2086 # words
		set -- $s
			SUPERVISED=
			[ "$1" != "$stage" ] || SUPERVISED="export TOY_HASH=5;"
			toy_start "$1" "$1" "$2" "${3:-}"
		done
		for s in plan admit transfer commit; do
			wait_for_end "$(pid_of "$s")" && return 1
		done
		cat "$T"/*.err >"$T/all"
		contains "$T/all" "messages 0000000000000005"
		contains "$T/all" "use one build"
		refute contains "$T/all" "result 0"
	done
}

@test "ZQ-05 nobody comes: the end of the wait names who" {
	run -75 bash -c "$TOY plan --timeout 200 2>&1 >$T/out | cat; \
		exit \${PIPESTATUS[0]}"
	assert_output --partial "no weir-admit has come in 400 ms"
}

@test "ZQ-01 ZQ-05 nobody answers: the end of the wait names the endpoint" {
	TIMEOUT=200
	mkdir -m 0700 "$T/r"
	mkfifo "$T/p3"
	start writer bash -c "exec >$T/p3; echo 'weir-link 1 $T/r ipc://$T/no'; \
		exec sleep 1000"
	toy_start commit commit "$T/p3" ""
	ends 1 commit
	contains "$T/commit.err" "weir-transfer at ipc://$T/no is gone"
}

@test "ZQ-09 signals by the thousand do no harm" {
	export TOY_STORM=1 TOY_BUCKETS=5000
	go
	pipeline
	ends 0 plan admit transfer commit
	[ "$(cat "$T/commit.out")" = "result 0" ]
}

@test "ZQ-03 20000 messages go through three links" {
	export TOY_BUCKETS=20000
	go
	pipeline
	ends 0 plan admit transfer commit
}

@test "ZQ-02 a link that is cut 20 times in mid-stream loses nothing" {
	export TOY_BUCKETS=3000
	go
	mkfifo "$T/p1" "$T/p2" "$T/p3"
	toy_start plan plan /dev/null ">$T/p1"
	toy_start admit admit "$T/p1" ">$T/p2"
	start reader bash -c "exec cat <$T/p2 >$T/line"
	wait_for contains "$T/admit.err" "weir-plan instance 1 is there"
	RUN=$(echo "$T"/run/weir/*)
	wait_for test -s "$T/line"
	mv "$RUN/admit.1.sock" "$T/admit.sock"
	start relay "$SRC/tests/relay.py" "$RUN/admit.1.sock" "$T/admit.sock" 20
	wait_for contains "$T/relay.out" listening
	toy_start transfer transfer "$T/line" ">$T/p3"
	toy_start commit commit "$T/p3" ""
	ends 0 plan admit transfer commit
	contains "$T/relay.out" "cut after 10"
	stop relay KILL || true
	rm -f "$T/admit.sock" "$RUN/admit.1.sock"
}

@test "I9 an endpoint that an older instance announces late is not dialled" {
	all_up
	again admit
	wait_for contains "$T/transfer.err" "weir-admit instance 2 is there"
	cp "$RUN/admit.endpoint" "$T/newest"
	printf 'ipc://%s' "$RUN/admit.1.sock" >"$RUN/admit.new"
	mv "$RUN/admit.new" "$RUN/admit.endpoint"
	wait_for cmp -s "$RUN/admit.endpoint" "$T/newest"
	go
	ends 0 plan admit2 transfer commit
	ends 76 admit
}
