#!/usr/bin/env bats
# Versions in a device's memory when something fails: full file systems, calls
# that hang, movers that are killed, and movers with faults of their own.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load device

# again [OPTION]...: engine a, which has ended, is started once more.
again() {
	wait_for is_dead "$(pid_of a)"
	rm -f "$T/a.sock" "$T/a.sock.fd"
	engine a --device 0 "$@"
}

# start_fails: of an engine with --device; what it says is in $stderr.
start_fails() {
	run --separate-stderr weir-engine --name a --store "$T/a" \
		--listen "ipc://$T/a.sock" --device 0
	assert_failure
}

# hold_owner: somebody owns the slots, until $T/go is there.
hold_owner() {
	mkdir -p "$T/a/device"
	start owner python3 -c '
import fcntl, os, struct, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 4351, 1, 0)
fcntl.fcntl(fd, 37, lock)
print("held", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
' "$T/a/device/page" "$T/go"
	wait_for test -s "$T/owner.out"
}

@test "I9 device: what a killed mover has begun to write goes at the next start" {
	engine a --device 0
	dpush "$T/one"
	kill_engine a
	: >"$T/a/device/.tmp.0.4242.2"
	again
	assert_not_exist "$T/a/device/.tmp.0.4242.2"
	assert_equal "$(serving a)" 1
}

@test "device: whoever owns the slots is waited for, up to a bound" {
	hold_owner
	export WEIR_LIBEXEC="$BUILD/tests/standin"
	WEIR_MUTANT=hurry start_fails
	assert_regex "$stderr" "another process owns the device's slots"
	start late weir-engine --name a --store "$T/a" \
		--listen "ipc://$T/a.sock" --device 0
	wait_for has_mover
	touch "$T/go"
	wait_for test -S "$T/a.sock"
}

has_mover() { [ -n "$(mover_pid)" ]; }

@test "device: no room for the page: the engine says so and ends, and starts when there is" {
	skip_if_sanitized
	LD_PRELOAD="$BUILD/tests/fault/fault.so" FAULT_PROC=weir-move-slot \
		FAULT_KIND=space FAULT_N=1 FAULT_UNDER="$T/a/device" \
		FAULT_MARK="$T/mark" start_fails
	assert_exists "$T/mark"
	assert_regex "$stderr" "make the page of the device's slots: No space left"
	engine a --device 0
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
}

@test "device: no room for a slot's text: the push fails, the old version stays offered" {
	skip_if_sanitized
	LD_PRELOAD="$BUILD/tests/fault/fault.so" FAULT_PROC=weir-move-slot \
		FAULT_KIND=write FAULT_N=1 FAULT_UNDER="$T/a/device" \
		FAULT_AFTER="$T/full" FAULT_MARK="$T/mark" engine a --device 0
	dpush "$T/one"
	touch "$T/full"
	run push "$T/two"
	assert_equal "$status" 1
	assert_exists "$T/mark"
	consumer c
	maps c "$T/one" 1
	tell c release ok
	dpush "$T/three"
	maps c "$T/three" 2
}

# After the decision, and after the old one's memory was written.
@test "device in place: a store that cannot publish ends the engine; the next start is swapped" {
	local hook="[ ! -e '$T/armed' ] || mkdir -p '$T/a/versions/000002/x'"

	engine a --device 0 --in-place --on-pause "$hook"
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	tell c release ok
	touch "$T/armed"
	push_begins "$T/two"
	wait_for live_is c 0
	run decided 2
	assert_success
	tell c map "no .*no version is published"
	assert_equal "$(serving a)" 1
	rm -r "$T/armed" "$T/a/versions/000002"
	again --in-place
	ends_with 0 push
	maps c "$T/two" 2
}

# push_begins SOURCE: whatever becomes of the engine, for as long as it takes.
push_begins() {
	start push weir-push --source "$1" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 512KiB
}

# killed_at HOOK CODES [OPTION]...: the mover is, in this hook of version 2; the
# next start and the next push find all as it should be.
killed_at() {
	local old new=$T/three hook

	hook="[ ! -e '$T/armed' ] || { rm '$T/armed'; kill -KILL \$(cat '$T/mover'); }"

	fleet a
	rm -rf "$T/a" "$T/${REGISTRY_DIR:?}" "$T/armed"
	engine a --device 0 "--$1" "$hook" "${@:3}"
	mover_pid >"$T/mover"
	dpush "$T/one"
	touch "$T/armed"
	push_begins "$T/two"
	wait_for test ! -e "$T/armed"
	again "${@:3}"
	ends "$(pid_of push)"
	assert_regex "$1 $status" "$1 [$2]"
	old=$T/one
	[ "$(serving a)" = 1 ] || old=$T/two
	consumer "$1"
	tell "$1" "wait 60000" ok
	maps "$1" "$old" "$(serving a)"
	tell "$1" release ok
	dpush "$new"
	maps "$1" "$new" "$(serving a)"
	tell "$1" release ok
	stop a
}

@test "I9 device: a mover that is killed at any step: the old version or the new, whole" {
	killed_at post-load 12
	killed_at on-pause 0
	killed_at on-swap 0
	killed_at on-resume 0
}

@test "I9 device in place: a mover that is killed before the load, and after it" {
	killed_at on-pause 0 --in-place
	killed_at on-swap 0 --in-place
}

@test "device: a call that hangs ends the mover, by name, and nobody waits for it" {
	export WEIR_LIBEXEC="$BUILD/tests/standin"
	local call mover

	for call in "the start of the device" "pinned memory and a stream" \
		"the code for the device"; do
		WEIR_HANG=$call start_fails
		assert_regex "$stderr" "$call did not return within 100 ms"
	done
	for call in "room for a version on the device" "the beginning of a copy" \
		"the end of a copy"; do
		rm -rf "$T/${REGISTRY_DIR:?}" "$T/a"
		WEIR_HANG=$call engine a --device 0
		run push "$T/one"
		assert_regex "$call: $status" "$call: [12]"
		wait_for is_dead "$(pid_of a)"
		run cat "$T/a.err"
		assert_output --partial "$call did not return within 100 ms"
		rm -f "$T/a.sock" "$T/a.sock.fd"
	done
	WEIR_HANG="the end of the device's work" engine a --device 0
	mover=$(mover_pid)
	stop a
	wait_for is_dead "$mover"
}

@test "device: four mutants of the mover, each found" {
	export WEIR_LIBEXEC="$BUILD/tests/standin"
	WEIR_STANDIN_PAUSE_US=2000 WEIR_MUTANT=no-wait engine a --device 0
	run --separate-stderr push "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "has digest [0-9a-f]* on the device"
	stop a
	WEIR_MUTANT=no-check WEIR_STANDIN_FAULT=bad-copy=3 engine a --device 0
	dpush "$T/one"
	consumer c
	run maps c "$T/one" 1
	assert_failure
	tell c release ok
	stop a
	WEIR_MUTANT=no-lock again
	dpush "$T/two"
	maps c "$T/two" 2
	dpush "$T/three"
	dpush "$T/one"
	tell c "dump $T/c.dump" ok
	run cmp "$T/c.dump" "$T/c.want"
	assert_failure
	tell c release ok
	stop a
	WEIR_MUTANT=early-show again
	fleet a b
	engine b --post-load false
	run push "$T/two" --max-inflight-engine-groups 1
	assert_equal "$status" 1
	tell c map ok
	tell c "dump $T/c.dump" ok
	cmp "$T/c.dump" "$T/c.want"
}

# Whether the process that ends may free what others map CUDA leaves open.
@test "device: an engine that is stopped leaves what a consumer maps to it" {
	engine a --device 0
	dpush "$T/one"
	consumer c
	maps c "$T/one" 1
	stop a
	wait_for live_is c 0
	tell c "dump $T/c.dump" ok
	cmp "$T/c.dump" "$T/c.want"
	tell c release ok
	again
	tell c "wait 60000" ok
	maps c "$T/one" 1
}
