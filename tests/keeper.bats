#!/usr/bin/env bats
# weir-keeper: groups of devices that outlive a push, over the stand-ins.  With
# the slow programs of sanitizers only what no other test here goes through.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load ranks

setup() {
	common_setup
	[ -x "$BUILD/weir-move-nccl" ] ||
		skip "built without NCCL: no weir-move-nccl"
	export LD_LIBRARY_PATH="$BUILD/tests/standin"
	export CUDA_VISIBLE_DEVICES=0 WEIR_STANDIN_SEED=$BATS_TEST_NUMBER
	export WEIR_STANDIN_LOG="$T/log"
	: >"$T/log"
}

# keeper [OPTION]...: started and listening.
keeper() {
	: >"$T/keeper.ready"
	start keeper sh -c 'ready=$1; shift; exec "$@" 3>"$ready"' _ \
		"$T/keeper.ready" weir-keeper --listen "$T/keep" --ready-fd 3 "$@"
	wait_for test -s "$T/keeper.ready"
}

# on_device N NAME [OPTION]...: an engine.
on_device() {
	local device=$1

	shift
	CUDA_VISIBLE_DEVICES=$device engine "$@"
}

# two_engines: a and b, and checkpoints one and two.
two_engines() {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	on_device 1 a
	on_device 2 b
	fleet a b
}

# kpush SOURCE [OPTION]...
kpush() {
	local source=$1

	shift
	push "$source" --transport nccl --bucket-size 256KiB \
		--keeper "$T/keep" "$@" >"$T/out" 2>"$T/err"
}

# publishes SOURCE [OPTION]...: to engines a and b, byte by byte.
publishes() {
	kpush "$@" || { cat "$T/err" >&2; return 1; }
	holds a "$1"
	holds b "$1"
}

# How many ranks have joined new groups since the last time.
joined() {
	grep -c "^join" "$T/log" || true
	: >"$T/log"
}

movers() {
	local all

	all=$(leftover_processes)
	grep -c "weir-move-nccl" <<<"$all" || true
}

has_movers() { [ "$(movers)" -eq "$1" ]; }

@test "keeper: one group for two versions, or one for each engine; none is left" {
	two_engines
	keeper
	publishes "$T/one" --bucket-size 1MiB
	assert_equal "$(joined)" 3
	# Its one bucket has the number that the last one's had.
	publishes "$T/two" --bucket-size 1MiB
	assert_equal "$(joined)" 0
	publishes "$T/one" --max-inflight-engine-groups 1
	assert_equal "$(joined)" 4
	publishes "$T/two" --max-inflight-engine-groups 1
	assert_equal "$(joined)" 0
	wait_for has_movers 3
	assert_clean_runs
	stop keeper
	wait_for has_movers 2
	assert_not_exist "$T/keep"
}

@test "keeper: a kept group that is broken fails one version; the next is new" {
	two_engines
	# The source's broadcasts: to prove the group, the bucket, to prove it.
	WEIR_STANDIN_FAULT=async-error=3 keeper
	publishes "$T/one" --bucket-size 1MiB
	assert_equal "$(joined)" 3
	run kpush "$T/two" --bucket-size 1MiB
	assert_equal "$status" 1
	run cat "$T/err"
	assert_output --regexp "remote process exited|other bytes came"
	assert_equal "$(joined)" 0
	publishes "$T/two" --bucket-size 1MiB
	assert_equal "$(joined)" 3
}

@test "keeper: without it nothing is kept, and with it not what is no group's" {
	skip_if_sanitized
	two_engines
	keeper
	publishes "$T/one"
	assert_equal "$(joined)" 3
	push "$T/two" --transport nccl >/dev/null 2>&1
	assert_equal "$(joined)" 3
	wait_for has_movers 1
	publishes "$T/one"
	assert_equal "$(joined)" 3
	run --separate-stderr push "$T/two" --keeper "$T/keep"
	assert_equal "$status" 78
	assert_regex "$stderr" "transport host has no groups to keep"
}

@test "keeper: other members, another order, larger buckets: new groups" {
	skip_if_sanitized
	two_engines
	on_device 3 c
	keeper
	publishes "$T/one"
	assert_equal "$(joined)" 3
	fleet a b c
	publishes "$T/two"
	holds c "$T/two"
	assert_equal "$(joined)" 4
	fleet b a
	publishes "$T/one"
	assert_equal "$(joined)" 3
	publishes "$T/two" --bucket-size 512KiB
	assert_equal "$(joined)" 3
	publishes "$T/one"
	assert_equal "$(joined)" 0
}

@test "keeper: an engine that was started again, and one that was killed" {
	two_engines
	keeper
	publishes "$T/one"
	stop b
	on_device 2 b
	assert_equal "$(joined)" 3
	publishes "$T/two"
	assert_equal "$(joined)" 3
	kill_engine a
	on_device 1 a
	publishes "$T/one"
	assert_equal "$(joined)" 3
	publishes "$T/two"
	assert_equal "$(joined)" 0
}

@test "keeper: a version that is not published takes its groups with it" {
	two_engines
	keeper
	stop b
	on_device 2 b --post-load "! [ -e '$T/bad' ]"
	publishes "$T/one"
	assert_equal "$(joined)" 3
	touch "$T/bad"
	run kpush "$T/two"
	assert_equal "$status" 1
	assert_equal "$(joined)" 0
	wait_for has_movers 0
	rm "$T/bad"
	publishes "$T/two"
	assert_equal "$(joined)" 3
}

# held_push: engine a waits before it seals, as long as $T/hold is there; b is
# sealed.
held_push() {
	two_engines
	stop a
	on_device 1 a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	keeper
	publishes "$T/one"
	touch "$T/hold"
	look_at_new_runs
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --transport nccl \
		--bucket-size 256KiB --keeper "$T/keep"
	wait_for told sealed
}

@test "keeper: lent to one push, another hears of it; killed, the next is new" {
	skip_if_sanitized
	held_push
	on_device 3 c
	fleet c
	REGISTRY_DIR=other run kpush "$T/one"
	assert_equal "$status" 75
	run cat "$T/err"
	assert_output --regexp "it is lent to process [0-9]+, of run "
	assert_not_exist "$T/c/fence"
	rm "$T/hold"
	ends_with 0 push
	assert_equal "$(joined)" 3
	holds a "$T/two"
	fleet a b
	kill -KILL "$(pid_of keeper)"
	wait_for has_movers 2
	run kpush "$T/one"
	assert_equal "$status" 69
	run cat "$T/err"
	assert_output --partial "connect to $T/keep"
	keeper
	publishes "$T/one"
	assert_equal "$(joined)" 3
}

@test "keeper: transfer killed: the next instance has a mover of its own" {
	held_push
	kill -KILL "$(pid_in_run transfer.1)"
	wait_for test -e "$(newest_run)/transfer.2"
	rm "$T/hold"
	ends_with 0 push
	holds a "$T/two"
	holds b "$T/two"
	joined >/dev/null
	publishes "$T/one"
	publishes "$T/two"
	joined >"$T/count"
	[ "$(cat "$T/count")" -le 3 ]
}

@test "keeper: killed in the middle of a push" {
	two_engines
	WEIR_STANDIN_FAULT=broadcast-hang=4 keeper
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --transport nccl \
		--bucket-size 256KiB --keeper "$T/keep"
	wait_for told acked
	kill -KILL "$(pid_of keeper)"
	ends_with 1 push
	# Which of the two is heard first is chance.
	run cat "$T/push.err"
	assert_output --regexp "weir-keeper has ended|remote process exited"
	wait_for has_movers 0
	rm "$T/keep"
	keeper
	publishes "$T/two"
}

@test "keeper: what waits too long ends, here and at the engines" {
	skip_if_sanitized
	two_engines
	keeper --idle 10ms
	publishes "$T/one"
	wait_for has_movers 0
	publishes "$T/two"
	assert_equal "$(joined)" 6
}

@test "keeper: a mover that tells of a group that it has not is found out" {
	two_engines
	stop b
	WEIR_LIBEXEC="$BUILD/tests/standin" WEIR_MUTANT=forgets on_device 2 b
	keeper
	publishes "$T/one"
	run kpush "$T/two"
	assert_equal "$status" 1
	run cat "$T/err"
	assert_output --partial "engine b: join: it does not have that group"
	stop b
	on_device 2 b
	joined >/dev/null
	publishes "$T/two"
	assert_equal "$(joined)" 3
}

# ranked SEED: two source ranks to the two workers of engine a.
ranked() {
	ranks q 2 "$1"
	CUDA_VISIBLE_DEVICES=0,1 ranked_push --transport nccl \
		--keeper "$T/keep" >"$T/out" 2>"$T/err"
}

@test "keeper: two source ranks, each with groups of its own" {
	skip_if_sanitized
	CUDA_VISIBLE_DEVICES=0,1 keeper --ranks 2
	CUDA_VISIBLE_DEVICES=2 worker a 0
	CUDA_VISIBLE_DEVICES=3 worker a 1
	fleet_of 2 a
	ranked 1
	assert_equal "$(joined)" 4
	rm -r "$T"/q.?
	ranked 2
	all_hold q 2 a
	assert_equal "$(joined)" 0
	stop keeper
	keeper
	run ranked 3
	assert_equal "$status" 78
	run cat "$T/err"
	assert_output --partial "it was started with --ranks 1"
}

@test "keeper: what it lacks is said when it is started, and one is enough" {
	WEIR_STANDIN_FAULT=no-device run --separate-stderr \
		weir-keeper --listen "$T/keep"
	assert_equal "$status" 69
	assert_regex "$stderr" "no CUDA device: "
	run --separate-stderr weir-keeper
	assert_equal "$status" 64
	keeper
	run --separate-stderr weir-keeper --listen "$T/keep"
	assert_equal "$status" 75
	assert_regex "$stderr" "somebody listens there"
	# Its messages have another table; it has other messages.
	is_strange "$SRC/tests/golden/msg/borrow.bin"
	printf '\x93\x5a\x05\x01' >"$T/frame"
	is_strange "$T/frame"
}

# is_strange FILE: weir-keeper refuses it, with what is to be done.
is_strange() {
	run python3 - "$T/keep" "$1" <<-'END'
		import socket
		import sys

		s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		s.settimeout(60)
		s.connect(sys.argv[1])
		s.send(open(sys.argv[2], "rb").read())
		print(s.recv(4096))
	END
	assert_output --partial "another version of weir's messages"
	assert_output --partial "restart it with this build"
}
