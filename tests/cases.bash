# shellcheck shell=bash
# shellcheck disable=SC2154 # status, output, stderr: set by run
# cases.bash - what every case of bad input has to show, for the suites cases_*.
#
#	load cases
#
#	base a b			version 1 is served
#	run --separate-stderr push ...	something goes wrong
#	refused 65 "tensor x" "found 7"	one line that says so
#	still_one a b			the old version, nothing left behind
#	then_two a b			and a good push works

load fleet

# base NAME...: engines that serve version 1, from $T/one; $T/two is next.
base() {
	checkpoints
	engines "$@"
	fleet "$@"
	push "$T/one" >/dev/null 2>&1
}

checkpoints() {
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 1
	checkpoint "$T/two" --size 1MiB --shards 2 --seed 2
}

# Holds its post-load while $T/hold is there, and says so by $T/NAME.held.
held_engine() {
	local name=$1

	shift
	engine "$name" --post-load "[ ! -e '$T/hold' ] || touch '$T/$name.held'; while [ -e '$T/hold' ]; do sleep 0.05; done" "$@"
}

# hold NAME: waits until it does.
held() { wait_for test -e "$T/$1.held" && rm "$T/$1.held"; }

# fake NAME [WORD]...: prints the requests that it gets to $T/NAME.out.
fake() {
	local name=$1

	shift
	start "$name" "$BUILD/tests/fakeengine" "ipc://$T/$name.sock" \
		"name=${NAME:-$name}" "$@"
	wait_for test -S "$T/$name.sock"
}

# of NAME REQUEST: how often a fake was asked it.
asked() { grep -c "{\"msg\":\"$2\"" "$T/$1.out"; }

start_push() {
	local name=$1

	shift
	start "$name" weir-push --source "$1" --fleet "$T/fleet.yaml" \
		--registry "$T/$REGISTRY_DIR" "${@:2}"
}

# one_error PART...: of $stderr, one line is an error, and has every part.
one_error() {
	local line part

	line=$(grep ' error ' <<<"$stderr") || fail "no error in: $stderr"
	[ "$(wc -l <<<"$line")" -eq 1 ] || fail "more than one error: $line"
	for part; do
		[[ $line == *"$part"* ]] || fail "no \"$part\" in: $line"
	done
}

# refused CODE PART...: after "run --separate-stderr".
refused() {
	[ "$status" -eq "$1" ] || fail "status $status, not $1: $stderr"
	shift
	assert_equal "$output" ""
	one_error "$@"
}

# ended CODE NAME PART...: the same of a process of start().
ended() {
	ends_with "$1" "$2"
	stderr=$(cat "$T/$2.err")
	shift 2
	one_error "$@"
}

# serves_one NAME...: it does, and has kept nothing of another version.
serves_one() {
	local name

	for name; do
		assert_equal "$name $(serving "$name")" "$name 1"
		holds "$name" "$T/one"
		assert_equal "$(ls -A "$T/$name/staging")" ""
	done
}

# still_one NAME...: these engines serve it, nothing else is published, and
# nothing is left behind.
still_one() {
	serves_one "$@"
	assert_equal "$(readlink "$T/$REGISTRY_DIR/current")" versions/000001
	assert_not_exist "$T/$REGISTRY_DIR/versions/000002/decision"
	assert_not_exist "$T/$REGISTRY_DIR/open"
	assert_clean_runs
}

# then_two NAME...: the fleet, and a good push of the same number to it.
then_two() {
	local name

	fleet "$@"
	push "$T/two" --weight-version 2 >/dev/null 2>"$T/then.err" ||
		fail "the good push: $(cat "$T/then.err")"
	for name; do
		assert_equal "$name $(serving "$name")" "$name 2"
		holds "$name" "$T/two"
	done
	assert_clean_runs
}

# tensors DIR NAME:DTYPE:SHAPE...: one shard, SHAPE as in 2,3; and config.json.
tensors() {
	python3 "$SRC/tests/fixtures/mktensors.py" "$@"
}

# spoiled CASE: $T/bad has that fault, see mkbad.py.
spoiled() {
	rm -rf "$T/bad"
	python3 "$SRC/tests/fixtures/mkbad.py" "$1" "$T/bad" >/dev/null
}
