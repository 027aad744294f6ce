#!/usr/bin/env bats
# odd.bats - odd surroundings: limits, permissions, other users, names.
# shellcheck disable=SC2016,SC2154 # of inner shells; set by run

load fleet

# Who a root's test may be.
NOBODY=65534 ANOTHER=65533

# as UID COMMAND...
as() {
	setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"
}

need_root() {
	[ "$(id -u)" -eq 0 ] || skip "only root can be somebody else"
}

# Version 1 at a, its source in $T/one, another one in $T/two.
base() {
	checkpoint "$T/one" --size 256KiB --seed 1
	checkpoint "$T/two" --size 256KiB --seed 2
	engine a
	fleet a
	push "$T/one" >/dev/null 2>&1
}

# under LIMIT...: a quiet push of $T/two; stderr is a pipe, which has no size.
under() {
	run --separate-stderr bash -c '"$0" "$@" 2> >(cat >&2)' \
		prlimit "$@" -- weir-push -q --source "$T/two" \
		--fleet "$T/fleet.yaml" --registry "$T/registry"
}

still_one() {
	assert_equal "$(serving a)" 1
	holds a "$T/one"
	assert_not_exist "$T/registry/open"
	assert_not_exist "$T/registry/versions/000002/decision"
	assert_equal "$(ls -A "$T/a/staging")" ""
}

@test "a small limit on files: an error of the write, the old one served" {
	local size

	base
	for size in 0 1024 16384; do
		under --fsize=$size:$size
		one_line_error 74 "write $T/run/weir/" "File too large"
		still_one
	done
	assert_equal "$(find "$T" -name '.tmp.*')" ""
	run --separate-stderr prlimit --fsize=100 -- weir-plan \
		--source "$T/two" --fleet "$T/fleet.yaml" -o "$T/plan"
	one_line_error 74 "File too large"
	assert_not_exist "$T/plan"
	push "$T/two" >/dev/null 2>&1
	holds a "$T/two"
}

@test "an engine under a small limit on files keeps what it serves" {
	local big

	base
	big=$(stat -c %s "$T/two/model.safetensors")
	prlimit --pid "$(pid_of a)" --fsize=$((big - 1)):
	run --separate-stderr push "$T/two" -q
	assert_failure 1
	[[ $stderr == *"engine a"*"File too large"* ]]
	still_one
	prlimit --pid "$(pid_of a)" --fsize=unlimited:
	push "$T/two" >/dev/null 2>&1
	holds a "$T/two"
}

@test "a stage that cannot even start: killed, how, and how often; 1 or 71" {
	base
	under --as=40000000
	[ "$status" -eq 1 ] || [ "$status" -eq 71 ]
	still_one
	push "$T/two" >/dev/null 2>&1
	holds a "$T/two"
}

@test "SIGCHLD ignored by whoever starts it: stages are waited for" {
	base
	run --separate-stderr bash -c 'trap "" CHLD; exec "$@"' _ weir-push -q \
		--source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	assert_success
	assert_equal "$stderr" ""
	holds a "$T/two"
}

@test "another user's registry lock, and one that cannot be written" {
	need_root
	checkpoint "$T/one" --size 256KiB --seed 1
	chown -R $NOBODY "$T"
	fleet a
	as $NOBODY weir-push -q --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" 2>/dev/null || true
	chmod 0 "$T/registry/lock"
	run --separate-stderr as $NOBODY weir-push -q --source "$T/one" \
		--fleet "$T/fleet.yaml" --registry "$T/registry"
	one_line_error 77 "lock of registry $T/registry" "Permission denied"
	run --separate-stderr as $NOBODY weir-status --registry "$T/registry"
	one_line_error 77 "lock of registry $T/registry" "Permission denied"
	# Who only looks needs no more than to read.
	chmod 400 "$T/registry/lock"
	run --separate-stderr as $NOBODY weir-status --registry "$T/registry"
	assert_success
	refute_output --partial "held"
	rm "$T/registry/lock"
	chmod 500 "$T/registry"
	run --separate-stderr as $NOBODY weir-status --registry "$T/registry"
	assert_success
	assert_not_exist "$T/registry/lock"
}
@test "who may connect: the same user, root, those of --allow, and no other" {
	local fence

	need_root
	checkpoint "$T/one" --size 256KiB --seed 1
	chmod 755 "$T"
	chmod 1777 "$T/tmp"
	mkdir -m 1777 "$T/registries"
	unset XDG_RUNTIME_DIR
	push_as() {
		run --separate-stderr as "$1" weir-push -q \
			--source "$T/one" --fleet "$T/fleet.yaml" \
			--registry "$T/registries/$1"
	}
	engine a
	fleet a
	push_as $NOBODY
	one_line_error 77 "engine a" "$T/a.sock" "--allow"
	stop a
	engine a --allow "$(id -nu $NOBODY)"
	push_as $ANOTHER
	one_line_error 77 "engine a" "$T/a.sock" "--allow"
	assert_not_exist "$T/a/fence"
	push_as $NOBODY
	assert_success
	holds a "$T/one"
	fence=$(md5sum "$T/a/fence")
	push_as $ANOTHER
	one_line_error 77 "engine a" "$T/a.sock" "--allow"
	assert_equal "$(md5sum "$T/a/fence")" "$fence"
}
