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
	holds a "$T/three"
	holds b "$T/three"
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

# plan_for_a OPTION...: published to a, in buckets of that plan.
plan_for_a() {
	fleet a
	push "$T/one" "$@" >/dev/null 2>&1
}

# The same for a server that takes bucket by bucket.
cast_again() {
	printf 'engines:\n  - {name: s, kind: sglang, url: "http://[::1]:9"}\n' \
		>"$T/fleet.yaml"
	run --separate-stderr weir-plan --only s --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --transport nccl --dry-run
}

@test "BK-04 --only: a group in two buckets is not broadcast to a server" {
	python3 "$SRC/tests/fixtures/mktensors.py" "$T/one" \
		l.gate_proj.weight:F32:40000 l.up_proj.weight:F32:40000
	engine a
	plan_for_a --bucket-size 200000
	cast_again
	one_line_error 78 '"l.{gate,up}_proj"' "two buckets of version 1"
	plan_for_a --bucket-size 400000
	cast_again
	assert_success
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
	local option

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
	for option in "--bucket-size 1MiB" --split-tensors \
		"--keep-together none"; do
		# shellcheck disable=SC2086 # words
		run --separate-stderr weir-push --registry "$T/registry" \
			--only a $option
		one_line_error 64 "${option%% *}" "keeps the buckets"
	done
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

@test "VF-04 one of four fails at the swap: the report, and only it again" {
	checkpoint "$T/one" --size 256KiB --seed 1
	checkpoint "$T/two" --size 256KiB --seed 2
	engines a b c
	engine d --on-swap "[ ! -e '$T/bad' ]"
	fleet a b c d
	push "$T/one" >/dev/null 2>&1
	touch "$T/bad"
	run --separate-stderr push "$T/two" --engine-timeout 4s
	assert_failure 3
	assert_output --partial "3 of 4 engines"
	assert_output --partial "lagging: d"
	[[ $stderr == *"to catch up: weir push"*" --only d"* ]]
	assert_equal "$(serving a) $(serving b) $(serving c) $(serving d)" \
		"2 2 2 1"
	assert_equal "$(state_of '[.engines[] | select(.lagging) | .name]')" \
		'["d"]'
	rm "$T/bad"
	run --separate-stderr only d
	assert_success
	holds d "$T/two"
	run weir-status --registry "$T/registry"
	assert_success
}

@test "engines without a fleet file, and a fleet on standard input" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engine engine-0
	engine engine-1
	run --separate-stderr weir-push --source "$T/one" \
		--registry "$T/registry" \
		--engine "ipc://$T/engine-0.sock" \
		--engine "native=ipc://$T/engine-1.sock"
	assert_success
	holds engine-0 "$T/one"
	holds engine-1 "$T/one"
	fleet engine-0 engine-1
	run --separate-stderr weir-push --source "$T/one" \
		--registry "$T/registry" --fleet - <"$T/fleet.yaml"
	assert_success
	assert_equal "$(serving engine-0) $(serving engine-1)" "2 2"
	run weir-status --registry "$T/registry" --fleet - <"$T/fleet.yaml"
	assert_success
	assert_line --regexp '^engine-1 +2 .* ok$'
}

@test "said with -q: which engines lag, and why, on one line each" {
	local held

	checkpoint "$T/one" --size 256KiB --seed 1
	checkpoint "$T/two" --size 256KiB --seed 2
	engines a
	engine b --on-swap "[ ! -e '$T/bad' ]"
	engine c --on-swap "[ ! -e '$T/bad' ]"
	engine d --post-load "[ ! -e '$T/bad' ]"
	fleet a b c d
	push "$T/one" >/dev/null 2>&1
	touch "$T/bad"
	run --separate-stderr push "$T/two" -q --min-engines 1 \
		--engine-timeout 5s
	assert_failure 3
	assert_output --partial "1 of 4 engines"
	assert_output --partial "lagging: b, c, d"
	assert_equal "${#stderr_lines[@]}" 3
	for held in b c d; do
		[ "$(grep -c " error engine $held" <<<"$stderr")" -eq 1 ]
	done
	[[ $stderr == *"on-swap failed with status 1"* ]]
	[[ $stderr == *"post-load failed with status 1"* ]]
}

@test "an engine ahead of the registry: status advises what works" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engines a
	fleet a
	push "$T/one" >/dev/null 2>&1
	cp -r "$T/registry" "$T/restored"
	push "$T/one" >/dev/null 2>&1
	run --separate-stderr weir-status --registry "$T/restored"
	assert_equal "$status" 3
	assert_output --partial "ahead of the registry: push a new version"
	refute_output --partial "--only"
	run --separate-stderr weir-push --only a -q --registry "$T/restored"
	one_line_error 65 "engine a" "serves version 2, above the published 1"
	REGISTRY_DIR=restored push "$T/one" >/dev/null 2>&1
	assert_equal "$(serving a)" 3
}
