#!/usr/bin/env bats
# odd.bats - odd surroundings: limits, permissions, other users, names.
# shellcheck disable=SC2016,SC2154 # of inner shells; set by run

load cases

# Who a root's test may be.
NOBODY=65534 ANOTHER=65533

# as UID COMMAND...
as() {
	setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"
}

need_root() {
	[ "$(id -u)" -eq 0 ] || skip "only root can be somebody else"
}

# under LIMIT...: a quiet push of $T/two; stderr is a pipe, which has no size.
under() {
	run --separate-stderr bash -c '"$0" "$@" 2> >(cat >&2)' \
		prlimit "$@" -- weir-push -q --source "$T/two" \
		--fleet "$T/fleet.yaml" --registry "$T/registry"
}

@test "a small limit on files: an error of the write, the old one served" {
	local size

	base a
	for size in 0 16384; do
		under --fsize=$size:$size
		one_line_error 74 "write $T/run/weir/" "File too large"
		still_one a
	done
	assert_equal "$(find "$T" -name '.tmp.*')" ""
	run --separate-stderr prlimit --fsize=100 -- weir-plan \
		--source "$T/two" --fleet "$T/fleet.yaml" -o "$T/plan"
	one_line_error 74 "File too large"
	assert_not_exist "$T/plan"
	then_two a
}

@test "an engine under a small limit on files keeps what it serves" {
	local big

	base a
	big=$(stat -c %s "$T/two/model-00001-of-00002.safetensors")
	prlimit --pid "$(pid_of a)" --fsize=$((big - 1)):
	run --separate-stderr push "$T/two" -q
	assert_failure 1
	[[ $stderr == *"engine a"*"File too large"* ]]
	still_one a
	prlimit --pid "$(pid_of a)" --fsize=unlimited:
	then_two a
}

@test "a stage that is killed again and again: how, how often, and no code 143" {
	local name

	base a
	mkdir "$T/bin"
	cp "$BUILD/weir-push" "$T/bin"
	for name in plan transfer commit; do
		ln -s "$BUILD/weir-$name" "$T/bin"
	done
	printf '#!/bin/sh\nkill -SEGV $$\n' >"$T/bin/weir-admit"
	chmod +x "$T/bin/weir-admit"
	run --separate-stderr "$T/bin/weir-push" -q --source "$T/two" \
		--fleet "$T/fleet.yaml" --registry "$T/registry"
	one_line_error 1 "weir-admit was killed (Segmentation fault), 6 times; giving up"
	still_one a
}

@test "SIGCHLD ignored by whoever starts it: stages are waited for" {
	base a
	run --separate-stderr bash -c 'trap "" CHLD; exec "$@"' _ weir-push -q \
		--source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	assert_success
	assert_equal "$stderr" ""
	holds a "$T/two"
}

@test "whatever the umask: only who made them writes stores and registries" {
	local mask

	checkpoint "$T/one" --size 256KiB --seed 1
	for mask in 077 000; do
		umask $mask
		engine "e$mask"
		fleet "e$mask"
		REGISTRY_DIR=r$mask push "$T/one" >/dev/null 2>&1
		umask 022
		holds "e$mask" "$T/one"
		run find "$T/e$mask" "$T/e$mask.sock" "$T/e$mask.sock.fd" \
			"$T/r$mask" ! -type l -perm /022
		assert_output ""
		assert_equal "$(stat -c %a "$T/r$mask")" 700
	done
}

@test "nothing in the environment, a directory that is gone, relative paths" {
	base a
	run --separate-stderr env -i "$BUILD/weir-push" -q --source "$T/two" \
		--fleet "$T/fleet.yaml" --registry "$T/registry" \
		--run "$T/bare"
	assert_success
	assert_equal "$stderr" ""
	holds a "$T/two"
	mkdir "$T/gone"
	run --separate-stderr bash -c 'cd "$1" && rmdir "$1" && shift &&
		exec "$@"' _ "$T/gone" weir-push -q --source "$T/one" \
		--fleet "$T/fleet.yaml" --registry "$T/registry"
	assert_success
	holds a "$T/one"
	cd "$T/two"
	run --separate-stderr weir-push -q --source . --fleet ../fleet.yaml \
		--registry ../registry
	assert_success
	holds a "$T/two"
}

@test "closed or full: stdin, stdout and stderr decide nothing" {
	local to version=1

	base a
	for to in "<&- >&- 2>&-" ">/dev/full 2>/dev/full" "2>&1 | true"; do
		run bash -c "exec 3>&-; set -o pipefail
			weir-push --source '$T/two' --fleet '$T/fleet.yaml' \
			--registry '$T/registry' $to"
		assert_success
		assert_output ""
		assert_equal "$(serving a)" $((++version))
	done
	holds a "$T/two"
}

@test "names: blanks, quotes and UTF-8 are; control characters are refused" {
	local name dir

	base a
	for name in "a b" "größe" "--" "'q\"%s\$HOME\\"; do
		dir="$T/$name"
		mkdir "$dir"
		cp -r "$T/two" "$dir/"
		[[ $name == *\\* ]] || cp "$T/two/config.json" "$dir/two/$name.json"
		run --separate-stderr weir-push -q --source "$dir/two" \
			--fleet "$T/fleet.yaml" --registry "$T/registry" \
			--run "$dir/run"
		assert_success
		assert_equal "$stderr" ""
		holds a "$dir/two"
	done
	for name in $'new\nline' $'\xff\xfe'; do
		dir="$T/$name"
		mkdir "$dir"
		cp -r "$T/one" "$dir/"
		run --separate-stderr push "$dir/one" -q
		one_line_error 65 "source $T/" "expected a path of UTF-8"
		touch "$T/one/$name.json"
		run --separate-stderr push "$T/one" -q
		one_line_error 65 "source $T/one: file" "not allowed"
		rm "$T/one/$name.json"
	done
	assert_equal "$(serving a)" 5
}

@test "a store whose path is no text is refused before it is made" {
	local store="$T/"$'\xff'

	run --separate-stderr weir-engine --name a --store "$store" \
		--listen "ipc://$T/a.sock"
	one_line_error 64 "--store" "expected a path of UTF-8"
	assert_not_exist "$store"
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

@test "a store that cannot say what it serves: the engine ends, and says why" {
	base a b
	rm "$T/b/current"
	mkdir "$T/b/current"
	run --separate-stderr push "$T/two" --engine-timeout 5s
	assert_equal "$status" 3
	[[ $stderr == *" error engine b "*" swap: point $T/b/current to "*"Is a directory"* ]]
	assert_equal "$(serving a)" 2
	ends "$(pid_of b)"
	assert_equal "$status" 74
	run --separate-stderr weir-engine --name b --store "$T/b" \
		--listen "ipc://$T/b.sock"
	one_line_error 74 current "Is a directory"
	rmdir "$T/b/current"
	engine b
	push "$T/two" --only b >/dev/null 2>&1
	holds b "$T/two"
}

@test "a version's place that is taken: the swap fails, named; the old one served" {
	base a
	mkdir -p "$T/a/versions/000002/in-the-way"
	run --separate-stderr push "$T/two" --engine-timeout 5s
	assert_equal "$status" 3
	one_error "engine a" swap versions/000002 "Directory not empty"
	assert_equal "$(serving a)" 1
	holds a "$T/one"
	rm -r "$T/a/versions/000002"
	push "$T/two" --only a >/dev/null 2>&1
	holds a "$T/two"
}

@test "what is no link and no file in the registry is named" {
	base a
	rm "$T/registry/current"
	mkdir "$T/registry/current"
	run --separate-stderr push "$T/two"
	refused 65 "registry $T/registry: current is a directory" \
		"versions/000001"
	rmdir "$T/registry/current"
	mv "$T/registry/ledger" "$T/ledger"
	mkfifo "$T/registry/ledger"
	run --separate-stderr push "$T/two"
	refused 65 "$T/registry/ledger is not a regular file"
	mv "$T/ledger" "$T/registry/ledger"
	then_two a
}

# libzmq aborts where its threads get no memory.
@test "too little memory for links: 71, not a stage that aborts again and again" {
	local kib had=

	skip_if_sanitized
	checkpoint "$T/one" --size 1MiB
	fleet nobody
	for kib in 18000 22000 26000 30000 34000 50000; do
		run --separate-stderr bash -c "ulimit -v $kib && exec weir-push \
			--source '$T/one' --fleet '$T/fleet.yaml' \
			--registry '$T/registry'"
		[[ $status == @(69|71) ]] || fail "$kib: $status: $stderr"
		had+=" $status"
	done
	[[ $had == *" 71 "*" 69" ]]
}
