# shellcheck shell=bash
# shellcheck disable=SC2154 # status, output, stderr: set by run
# helpers.bash - what every bats suite loads.
#
#	load helpers
#
#	@test "..." { start ... ; wait_for test -e "$T/ready"; run weir-plan ...; }
#
# Each test has a directory of its own, $T, which is also where its run
# directories, registries, temporary files and sockets go.  What it starts in
# the background with start() is killed, by pid, when it ends; a test that
# leaves a process, a socket, shared memory or a temporary file behind has
# failed.  KILLED_LEAVE=1: what it killed, and did not start again, may leave
# all but processes.
#
# A suite with a setup() or teardown() of its own calls common_setup and
# common_teardown there.

bats_require_minimum_version 1.5.0

# What their load.bash loads, without a dirname for each file.
for file in /usr/lib/bats/bats-{support,assert,file}/src/*.bash; do
	# shellcheck disable=SC1090
	source "$file"
done
unset file

SRC=${SRC:-$(cd "$BATS_TEST_DIRNAME/.." && pwd)}
BUILD=${BUILD:-$SRC/build}
WAIT_SECONDS=${WAIT_SECONDS:-120}	# of wait_for; generous: a bound, no pace
export SRC BUILD

setup() { common_setup; }
teardown() { common_teardown; }

common_setup() {
	# Bats notes each command's place, which takes longer than the command:
	# those of tests are enough, without the functions that they call.
	set +T
	T=$(mktemp -d "${TMPDIR:-/tmp}/weir-t.XXXXXX")
	mkdir -m 0700 "$T/run" "$T/state" "$T/tmp" "$T/home"
	export T HOME="$T/home" TMPDIR="$T/tmp"
	export XDG_RUNTIME_DIR="$T/run" XDG_STATE_HOME="$T/state"
	# Marks this test's processes, however they were started.
	export WEIR_TEST_DIR="$T"
	export PATH="$BUILD:$PATH" LC_ALL=C
	unset WEIR_RUN WEIR_REGISTRY TEST_SUMS TEST_JOBS
	STARTED=()
}

common_teardown() {
	local pid left=0

	forget_reaped
	tell_failure
	for pid in "${STARTED[@]}"; do
		kill_and_reap "$pid"
	done
	assert_nothing_left || left=1
	no_races || left=1
	rm -rf "$T"
	return $left
}

# Beside what bats shows of a test that failed: what was run last, and how logs
# end.
tell_failure() {
	local log

	[ -z "${BATS_TEST_COMPLETED:-}${TOLD:-}" ] || return 0
	TOLD=1
	echo "last run: status ${status:-none}, stderr: ${stderr:-none}" >&2
	for log in "$T"/*.err; do
		[ ! -s "$log" ] || tail -v -n 3 "$log" >&2
	done
}

# Whatever exit status was looked at.
no_races() {
	! grep -s -A 12 "WARNING: ThreadSanitizer" "$T"/*.err >&2
}

# start NAME COMMAND...: in the background; output in $T/NAME.out and
# $T/NAME.err, pid in $T/NAME.pid and $LAST_PID.
start() {
	local name=$1

	shift
	# Before anybody looks: what an older one of that name said is not its.
	: >"$T/$name.out"
	: >"$T/$name.err"
	"$@" >"$T/$name.out" 2>"$T/$name.err" </dev/null 3>&- &
	LAST_PID=$!
	echo "$LAST_PID" >"$T/$name.pid"
	STARTED+=("$LAST_PID")
}

pid_of() { cat "$T/$1.pid"; }

# stop NAME [SIGNAL]: sends it and waits for the end; its status is ours.
stop() {
	local pid

	pid=$(pid_of "$1")
	signal "$pid" "${2:-TERM}"
	wait_for_end "$pid"
}

# signal PID SIGNAL: to a child; the number of one that has ended may be another
# suite's process by now.
signal() {
	! is_child "$1" || kill "-$2" "$1" 2>/dev/null || true
}

# wait_for_end PID: of a process of start(); its status is ours.
wait_for_end() {
	local pid=$1

	wait_for has_ended "$pid" || return 124
	wait "$pid"
}

has_ended() { ! is_child "$1" || is_dead "$1"; }

# ends PID: it does, with a $status that is looked at next; as run, which would
# wait in a subshell for what is no child of that.
ends() {
	status=0
	wait_for_end "$1" || status=$?
	[ "$status" -ne 124 ]
}

# A zombie is dead: only we can reap it.  Its other threads may still hold what
# it had open.
is_dead() {
	local stat threads

	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
	threads=("/proc/$1/task"/*)
	[[ ${stat##*) } == Z* ]] && [ ${#threads[@]} -eq 1 ]
}

kill_and_reap() {
	signal "$1" KILL
	wait "$1" 2>/dev/null || true
}

is_child() {
	local stat

	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	[[ ${stat##*) } == ?" $BASHPID "* ]]
}

# The numbers of those that were waited for may be anybody's by now.
forget_reaped() {
	local pid still=()

	for pid in "${STARTED[@]}"; do
		! is_child "$pid" || still+=("$pid")
	done
	STARTED=("${still[@]}")
}

# wait_for COMMAND...: polls until it succeeds; fails at the deadline.
wait_for() {
	local deadline=$((SECONDS + WAIT_SECONDS))

	until "$@" >/dev/null 2>&1; do
		if [ "$SECONDS" -ge "$deadline" ]; then
			echo "waited $WAIT_SECONDS s for: $*" >&2
			return 1
		fi
		pause
	done
}

# For a moment, without a process: nobody writes to it.
pause() {
	local never=$BATS_FILE_TMPDIR/never

	[ -p "$never" ] || mkfifo "$never"
	read -rt 0.02 <>"$never" || true
}

# spoil FILE OFFSET: the byte there is another one, whatever it was.
spoil() {
	python3 - "$@" <<-'PY'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.seek(int(sys.argv[2]))
		    byte = f.read(1)[0]
		    f.seek(-1, 1)
		    f.write(bytes([byte ^ 0xff]))
	PY
}

# Sanitizers reserve address space, keep freed memory, and must be loaded
# before all else.
skip_if_sanitized() {
	if grep -q __asan_init "$BUILD/weir-engine"; then
		skip "built with a sanitizer"
	fi
}

contains() { grep -qF -- "$2" "$1"; }

# What this test has left, in words; see tests/leftovers.c.
# shellcheck disable=SC2120 # suites give options
leftovers() { "$BUILD/tests/leftovers" "$T" "$@"; }

# Processes that this test started, directly or not: pid and command.
leftover_processes() { filter_leftovers 's/^process //p'; }

# filter_leftovers SCRIPT: of sed, which must not find itself.
filter_leftovers() {
	local all

	all=$(leftovers) || sed -n "$1" <<<"$all"
}

# Looked for in what was found: a grep that runs beside it would find itself.
no_stages() {
	local all

	all=$(leftover_processes)
	! grep -qE 'weir-(plan|admit|transfer|commit|push)' <<<"$all"
}

no_leftover_processes() { [ -z "$(leftover_processes)" ]; }

# Processes of ours may need a moment to notice that the test is over.
assert_nothing_left() {
	local pid rests answer=0

	leftovers >/dev/null || answer=$?
	[ "$answer" -ne 0 ] || return 0
	if [ "$answer" -ne 1 ]; then
		echo "leftovers ended with $answer" >&2
		return 1
	fi
	wait_for no_leftover_processes || true
	rests=$(filter_leftovers "${KILLED_LEAVE:+/^process /}s/^/left behind: /p")
	[ -n "$rests" ] || return 0
	echo "$rests" >&2
	while read -r pid _; do
		kill -KILL "$pid" 2>/dev/null || true
	done < <(leftover_processes)
	return 1
}

# one_line_error STATUS [PART]...: after "run --separate-stderr": the exit
# status, nothing on stdout, one line on stderr that has every part.
one_line_error() {
	local part want=$1

	shift
	assert_equal "$status" "$want"
	# What a stage tells the next one in a pipe is no output.
	[[ $output == "weir-fail 1 $want "* ]] || assert_equal "$output" ""
	assert_equal "${#stderr_lines[@]}" 1
	for part; do
		if [[ "$stderr" != *"$part"* ]]; then
			fail "no \"$part\" in: $stderr"
		fi
	done
}
