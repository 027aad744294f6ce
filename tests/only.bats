#!/usr/bin/env bats
# only.bats - --only: the published version to these engines, and to no other.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

only() {
	local name args=()

	for name; do
		args+=(--only "$name")
	done
	weir-push --registry "$T/$REGISTRY_DIR" "${args[@]}"
}

state_of() { weir-status --registry "$T/registry" --json | jq -c "$1"; }

# Version 2 at a; b lags behind with version 1.
lagging_b() {
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 1
	checkpoint "$T/two" --size 1MiB --shards 2 --seed 2
	engines a b
	fleet a b
	push "$T/one" >/dev/null 2>&1
	kill_engine b
	run --separate-stderr push "$T/two" --min-engines 1
	assert_failure 3
	engine b
	assert_equal "$(serving a) $(serving b)" "2 1"
}

@test "VF-04 --only brings an engine that lags to the version, and touches no other" {
	local fence

	lagging_b
	run --separate-stderr weir-status --registry "$T/registry"
	assert_failure 3
	assert_output --partial \
		"to catch up: weir push --registry $T/registry --only b"
	fence=$(md5sum "$T/a/fence")
	run --separate-stderr only b
	assert_success
	assert_output --partial "version 2 joined: 1 engine"
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds b "$T/two"
	assert_equal "$(md5sum "$T/a/fence")" "$fence"
	run grep -c '"engine":"a"' "$(newest_run)/events"
	assert_output 0
	run --separate-stderr weir-status --registry "$T/registry"
	assert_success
	refute_output --partial "--only"
	assert_not_exist "$T/registry/open"
	assert_not_exist "$T/registry/versions/000003"
	assert_clean_runs
	# Again: nothing is left to do.
	run --separate-stderr only a b
	assert_success
	assert_equal "$(md5sum "$T/a/fence")" "$fence"
	checkpoint "$T/three" --size 1MiB --shards 2 --seed 3
	push "$T/three" >/dev/null 2>&1
	holds a "$T/three" && holds b "$T/three"
}

@test "--only: a new engine joins, from a fleet file or an endpoint" {
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 1
	engines a new other
	fleet a
	push "$T/one" >/dev/null 2>&1
	fleet a new
	run --separate-stderr push "$T/one" --only new
	assert_success
	holds new "$T/one"
	assert_equal "$(serving new)" 1
	stop other
	engine engine-0 --store "$T/other" --listen "ipc://$T/other.sock"
	run --separate-stderr weir-push --registry "$T/registry" \
		--only engine-0 --engine "ipc://$T/other.sock"
	assert_success
	holds other "$T/one"
	# By hand too.
	stop new
	rm -r "${T:?}/new"
	engine new
	weir-plan --only new --fleet "$T/fleet.yaml" --registry "$T/registry" |
		weir-admit | weir-transfer |
		weir-commit --registry "$T/registry" >"$T/out" 2>"$T/err" ||
		cat "$T/err" >&2
	holds new "$T/one"
	assert_file_contains "$T/out" "version 1 joined"
}

@test "--only: from a peer's store when the source has gone on, else 66" {
	lagging_b
	cp -r "$T/two" "$T/kept"
	checkpoint "$T/two" --size 1MiB --shards 2 --seed 9
	mv "$T/a/versions" "$T/a/away"
	run --separate-stderr only b
	assert_failure 66
	assert_output ""
	[[ $stderr == *"$T/two holds other weights by now"* ]]
	[[ $stderr == *"$T/a/versions/000002"* ]]
	assert_equal "$(serving b)" 1
	mv "$T/a/away" "$T/a/versions"
	run --separate-stderr only b
	assert_success
	holds b "$T/kept"
}

@test "--only: names that are none, and what excludes it" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engines a
	fleet a
	run --separate-stderr only a
	one_line_error 66 "nothing was ever published"
	push "$T/one" >/dev/null 2>&1
	run --separate-stderr only c
	one_line_error 64 "--only c" "there are a"
	run --separate-stderr only ""
	assert_failure 64
	run --separate-stderr weir-push --registry "$T/registry" --only a --to 1
	one_line_error 64 "--only and --to"
	run --separate-stderr weir-push --registry "$T/registry" --only a \
		--weight-version 7
	assert_success
	stop a
	run --separate-stderr only a
	assert_failure 69
	[[ $stderr == *"engine a"* ]]
}

@test "--only: of two that join each goes by itself" {
	checkpoint "$T/one" --size 1MiB --seed 1
	engines a
	engine b
	engine c --post-load false
	fleet a
	push "$T/one" >/dev/null 2>&1
	fleet a b c
	run --separate-stderr weir-push --registry "$T/registry" \
		--fleet "$T/fleet.yaml" --only b --only c
	assert_failure 3
	assert_output --partial "lagging: c"
	assert_equal "$(serving b) $(serving c)" "1 "
	holds b "$T/one"
	assert_clean_runs
}
