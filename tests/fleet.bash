# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # for the suites; set by run
# fleet.bash - engines, checkpoints and pushes, for the suites about all of it.
#
#	load fleet
#
# An engine NAME listens at ipc://$T/NAME.sock with its store in $T/NAME;
# $T/fleet.yaml lists those given to fleet().

load helpers

REGISTRY_DIR=registry

# needs_mover NAME WHAT: a helper program of devices, over stand-ins.
needs_mover() {
	[ -x "$BUILD/$1" ] || skip "built without $2: no $1"
	export LD_LIBRARY_PATH="$BUILD/tests/standin"
	export WEIR_STANDIN_SEED=$BATS_TEST_NUMBER
}

# checkpoint DIR [mkckpt OPTION]...: once for all tests of a suite, and a copy
# of it for each.
checkpoint() {
	local dir=$1 made

	shift
	made="$BATS_FILE_TMPDIR/checkpoint $*"
	if [ ! -e "$made" ]; then
		python3 "$SRC/tests/fixtures/mkckpt.py" "$@" "$made.tmp" \
			>/dev/null 2>&1
		mv "$made.tmp" "$made"
	fi
	cp -rT "$made" "$dir"
}

# Engines end as an operator ends them, so that what they leave is a fault.
# First the stopped go on: a SIGCONT to one that is ending already would take
# the leak checker's SIGSTOP away, and that would wait for ever.
teardown() {
	local pid

	tell_failure
	forget_reaped
	for pid in "${STARTED[@]}"; do
		kill -CONT "$pid" 2>/dev/null || true
		kill -TERM "$pid" 2>/dev/null || true
	done
	for pid in "${STARTED[@]}"; do
		wait_for has_ended "$pid" || true
	done
	common_teardown
}

# ends_with CODE NAME: a process of start() ends, and how.
ends_with() {
	local got=0

	wait_for_end "$(pid_of "$2")" || got=$?
	if [ "$got" -ne "$1" ]; then
		cat "$T/$2.out" "$T/$2.err" >&2
		echo "$2 ended with $got, expected $1" >&2
		return 1
	fi
}

# A killed engine cannot remove its sockets; the next start does.
kill_engine() {
	kill -KILL "$(pid_of "$1")"
	wait_for is_dead "$(pid_of "$1")"
}

# engine NAME [OPTION]...: started and listening.
engine() {
	local name=$1

	shift
	: >"$T/$name.ready"
	start "$name" sh -c 'ready=$1; shift; exec "$@" 3>"$ready"' _ \
		"$T/$name.ready" weir-engine --name "$name" \
		--store "$T/$name" --listen "ipc://$T/$name.sock" \
		--ready-fd 3 "$@"
	wait_for test -s "$T/$name.ready"
}

engines() {
	local name

	for name; do
		engine "$name"
	done
}

# fleet NAME...: one worker each.
fleet() {
	local name

	{
		echo "model: test"
		echo "engines:"
		for name; do
			echo "  - name: $name"
			echo "    workers: [{endpoint: \"ipc://$T/$name.sock\"}]"
		done
	} >"$T/fleet.yaml"
}

# push SOURCE [OPTION]...
push() {
	local source=$1

	shift
	weir-push --source "$source" --fleet "$T/fleet.yaml" \
		--registry "$T/$REGISTRY_DIR" "$@"
}

# two_versions [OPTION]...: to engines a and b, byte by byte, the second to one
# after the other.
two_versions() {
	checkpoint "$T/one" --size 4MiB --shards 3 --seed 1
	checkpoint "$T/two" --size 4MiB --shards 3 --seed 2
	run --separate-stderr push "$T/one" "$@"
	assert_success
	assert_output --partial "version 1 published"
	holds a "$T/one"
	holds b "$T/one"
	run --separate-stderr push "$T/two" "$@" --max-inflight-engine-groups 1
	assert_success
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds a "$T/two"
	holds b "$T/two"
	assert_clean_runs
}

# push_held [OPTION]...: engine a serves one; a push of two waits in its
# post-load for as long as $T/hold is there.
push_held() {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	fleet a
	push "$T/one"
	touch "$T/hold"
	look_at_new_runs
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" "$@"
}

# by_hand SOURCE PLAN_OPTIONS ADMIT_OPTIONS COMMIT_OPTIONS: a shell pipeline;
# the four codes in ${codes[@]}.
by_hand() {
	# shellcheck disable=SC2086 # lists of options
	weir-plan --source "$1" --fleet "$T/fleet.yaml" $2 |
		weir-admit $3 | weir-transfer |
		weir-commit --registry "$T/$REGISTRY_DIR" $4
	codes=("${PIPESTATUS[@]}")
}

# The number that an engine's store serves; empty: none.
serving() {
	local link

	link=$(readlink "$T/$1/current") || return 0
	echo $((10#${link##*/}))
}

# holds NAME SOURCE: current is a byte-identical copy of the source.
holds() {
	local file

	for file in "$2"/*; do
		cmp "$file" "$T/$1/current/${file##*/}" || return 1
	done
}

# decided N: the registry has a decision on it.
decided() {
	[ -e "$T/$REGISTRY_DIR/versions/$(printf %06d "$1")/decision" ]
}

# The run directory of the newest run.  When it began its first instance's file
# tells: whoever tidies up in a directory touches it.
newest_run() {
	local run first newest='' began=''

	for run in "$T"/run/weir/*/; do
		[[ -d $run && ${OLD_RUNS:-} != *" $run "* ]] || continue
		first=$run/plan.1
		[ -e "$first" ] || first=$run/admit.1
		if [[ -z $newest || ! -e $first || $first -nt $began ]]; then
			newest=$run began=$first
		fi
		[ -e "$began" ] || break
	done
	[ -n "$newest" ] && echo "$newest"
}

# From here on newest_run() and told() look at no run that is there already.
look_at_new_runs() { OLD_RUNS=" $(echo "$T"/run/weir/*/) "; }

# told NAME: has the newest run told that event?
told() {
	local run

	run=$(newest_run) && grep -q "\"event\":\"$1\"" "$run/events"
}

# pid_in_run STAGE.N: of that instance, in the newest run.
pid_in_run() { head -n 1 "$(newest_run)/$1"; }

# aborted CODE NAME MIN MAX: the newest run was, because of engine NAME, between
# MIN and MAX seconds after the last thing that went on in it, by the stamps of
# its own events.
aborted() {
	python3 - "$(newest_run)/events" "$@" <<-'PY'
		import json
		import sys

		path, code, name, low, high = sys.argv[1:]
		went_on = end = None
		for line in open(path, encoding="utf-8"):
		    e = json.loads(line)
		    if e["event"] == "aborted":
		        end = e
		        break
		    if e["event"] not in ("excluded", "lagging", "restarted"):
		        went_on = e["t_ns"]
		if not end or end["code"] != int(code):
		    sys.exit(f"not aborted with {code}: {end}")
		if f"engine {name}" not in end["cause"]:
		    sys.exit(f"engine {name} is not named: {end['cause']}")
		took = (end["t_ns"] - went_on) / 1e9
		if not float(low) <= took <= float(high):
		    sys.exit(f"{took} s, not {low} to {high}")
	PY
}

# Of a push's own two ends: engines with a device keep weir-move-slot.
no_movers() { ! leftover_processes | grep -E "[w]eir-move-(nccl|ipc|source)"; }

# hangs TRANSPORT DEVICE SIDE CALL: in a push of $T/one with mutants of the
# movers, at the source or at engine a, which is on that device.  The mover
# ends, the engine is named with the call, and nothing is left.
hangs() {
	local at_engine='' at_source=''

	case $3 in
	engine) at_engine=$4 ;;
	source) at_source=$4 ;;
	esac
	export WEIR_LIBEXEC="$BUILD/tests/standin"
	CUDA_VISIBLE_DEVICES=$2 WEIR_HANG=$at_engine engine a
	WEIR_HANG=$at_source run --separate-stderr push "$T/one" \
		--transport "$1" --bucket-size 256KiB
	assert_equal "$3, $4: $status" "$3, $4: 1"
	assert_regex "$stderr" "engine a: .*$4 did not return within 100 ms"
	wait_for no_movers
	stop a
}

# Nothing that a run leaves behind: sockets, temporary files.
assert_clean_runs() {
	run find "$T/run" "$T/tmp" "$T/$REGISTRY_DIR" \
		\( -type s -o -name '.tmp.*' -o -name '*.endpoint' \)
	assert_output ""
}
