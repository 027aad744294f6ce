#!/usr/bin/env bats
# push.bats - the whole path: a checkpoint goes in, engines serve it.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

@test "push: two versions to two engines, byte by byte" {
	checkpoint "$T/one" --size 4MiB --shards 3 --seed 1
	checkpoint "$T/two" --size 4MiB --shards 3 --seed 2
	engines a b
	fleet a b
	run --separate-stderr push "$T/one" --bucket-size 1MiB
	assert_success
	assert_output --partial "version 1 published"
	holds a "$T/one"
	holds b "$T/one"
	run --separate-stderr push "$T/two" --bucket-size 1MiB
	assert_success
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds a "$T/two"
	holds b "$T/two"
	assert_clean_runs
}

@test "pipeline by hand: four processes, one exit code" {
	checkpoint "$T/one" --size 2MiB --seed 1
	engines a b
	fleet a b
	by_hand "$T/one" "--bucket-size 1MiB" \
		"--max-inflight-engine-groups 1" "" >"$T/out"
	assert_equal "${codes[*]}" "0 0 0 0"
	assert_file_contains "$T/out" "version 1 published"
	holds a "$T/one"
	holds b "$T/one"
	assert_clean_runs
}

# Bounds, from what really happened.
bounded_push() {
	local n=$1 groups=$2 buckets=$3 bytes=$4 name names=()

	for ((i = 0; i < n; i++)); do
		names+=("e$i")
	done
	checkpoint "$T/one" --size 3MiB --shards 2 --seed 3
	engines "${names[@]}"
	fleet "${names[@]}"
	push "$T/one" --bucket-size 128KiB \
		--max-inflight-engine-groups "$groups" \
		--max-inflight-buckets "$buckets" \
		--max-inflight-bytes "$bytes" >/dev/null 2>&1
	for name in "${names[@]}"; do
		holds "$name" "$T/one"
	done
	python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines "$(IFS=,; echo "${names[*]}")" --groups "$groups" \
		--buckets "$buckets" --bytes "$bytes"
}

@test "a plan from a file: admit starts with a copy of it" {
	checkpoint "$T/one" --size 1MiB
	engines a
	fleet a
	weir-plan --source "$T/one" --fleet "$T/fleet.yaml" -o "$T/plan"
	weir-admit "$T/plan" | weir-transfer |
		weir-commit --registry "$T/$REGISTRY_DIR"
	codes=("${PIPESTATUS[@]}")
	assert_equal "${codes[*]}" "0 0 0"
	holds a "$T/one"
	assert_equal "$(stat -c %h "$T/plan")" 1
	cmp "$T/plan" "$T/$REGISTRY_DIR/versions/000001/plan"
}

@test "a recorded plan: replayed as it was, refused when its source is not" {
	local plan=$T/$REGISTRY_DIR/versions/000001/plan

	checkpoint "$T/one" --size 1MiB
	checkpoint "$T/two" --size 1MiB --seed 2
	engines a
	fleet a
	push "$T/one" >/dev/null 2>&1
	push "$T/two" >/dev/null 2>&1
	weir-admit "$plan" 2>/dev/null | weir-transfer 2>/dev/null |
		weir-commit --registry "$T/$REGISTRY_DIR" >/dev/null 2>&1
	assert_equal "$(serving a)" 3
	holds a "$T/one"
	diff <(weir-dump --parts "$plan") \
		<(weir-dump --parts "$T/$REGISTRY_DIR/versions/000003/plan")
	spoil "$T/one/model.safetensors" 100000
	weir-admit "$plan" 2>"$T/1.err" | weir-transfer 2>"$T/2.err" |
		weir-commit --registry "$T/$REGISTRY_DIR" 2>"$T/3.err" ||
		codes=("${PIPESTATUS[@]}")
	assert_equal "${codes[*]}" "65 65 65"
	assert_equal "$(cat "$T"/[123].err | grep -c ' error ')" 1
	grep -q 'model.safetensors.*changed' "$T"/[123].err
	assert_equal "$(serving a)" 3
}

@test "--fleet -: plan, push and status take it from standard input" {
	checkpoint "$T/one" --size 1MiB
	engines a b
	fleet a b
	weir-push --source "$T/one" --fleet - --registry "$T/$REGISTRY_DIR" \
		<"$T/fleet.yaml" >/dev/null 2>&1
	holds b "$T/one"
	weir-plan --source "$T/one" --fleet - <"$T/fleet.yaml" 2>/dev/null |
		weir-admit 2>/dev/null | weir-transfer 2>/dev/null |
		weir-commit --registry "$T/$REGISTRY_DIR" >/dev/null 2>&1
	run weir-status --fleet - --registry "$T/$REGISTRY_DIR" \
		<"$T/fleet.yaml"
	assert_success
	assert_line --regexp '^a .* 2 .*ok$'
	assert_line --regexp '^b .* 2 .*ok$'
	run --separate-stderr weir-push --source "$T/one" --fleet - \
		--registry "$T/$REGISTRY_DIR" </dev/null
	assert_equal "$status" 78
	[[ $stderr == *'standard input'* ]]
}

@test "--engine: no fleet file, engines are called by their order" {
	local options=()

	checkpoint "$T/one" --size 1MiB
	engines engine-0 engine-1
	options=(--engine "ipc://$T/engine-0.sock"
		--engine "native=ipc://$T/engine-1.sock")
	weir-push --source "$T/one" "${options[@]}" \
		--registry "$T/$REGISTRY_DIR" >/dev/null 2>&1
	holds engine-0 "$T/one"
	holds engine-1 "$T/one"
	run weir-status "${options[@]}" --registry "$T/$REGISTRY_DIR"
	assert_success
	assert_line --regexp '^engine-1 .* 1 .*ok$'
	run --separate-stderr weir-push --source "$T/one" "${options[1]}" \
		--registry "$T/$REGISTRY_DIR" --engine "ipc://$T/engine-1.sock"
	assert_equal "$status" 64
	run --separate-stderr weir-push --source "$T/one" \
		--registry "$T/$REGISTRY_DIR" --engine "ipc://$T/engine-1.sock"
	assert_equal "$status" 78
	[[ $stderr == *'engine engine-0 '*'calls itself "engine-1"'*'one name'* ]]
}

@test "carried files of any size: empty, one byte, above leaf and bucket" {
	checkpoint "$T/one" --size 1MiB
	: >"$T/one/empty.txt"
	printf x >"$T/one/one.txt"
	head -c 17000000 /dev/urandom >"$T/one/tokenizer.json"
	engines a
	fleet a
	push "$T/one" --bucket-size 1MiB >/dev/null 2>&1
	holds a "$T/one"
	assert_equal "$(find "$T/a/current/" -type f | wc -l)" \
		"$(find "$T/one" -type f | wc -l)"
}

@test "bounds: 1 engine, credit by count" {
	bounded_push 1 0 2 0
}

@test "bounds: 2 engines one by one, both at 0 is blocking" {
	bounded_push 2 1 0 0
}

@test "bounds: 4 engines in waves of 2, credit by bytes" {
	bounded_push 4 2 0 1048576
}

@test "FL-08 bounds: 5 engines in waves of 2, both dimensions" {
	bounded_push 5 2 4 1048576
}

@test "bounds: 7 engines in waves of 3" {
	bounded_push 7 3 3 0
}

@test "FL-08 a wave wider than the fleet works as the fleet" {
	bounded_push 3 100 2 0
}

@test "I8 oversize is refused before an engine is touched, with both numbers" {
	checkpoint "$T/one" --size 4MiB --seed 1
	engines a
	fleet a
	run --separate-stderr push "$T/one" --bucket-size 512KiB \
		--max-inflight-bytes 1KiB
	assert_failure 65
	[[ $stderr == *1024* ]]
	assert_equal "${#stderr_lines[@]}" 1
	assert_equal "$(serving a)" ""
	run decided 1
	assert_failure
	assert_not_exist "$T/a/fence"
}

@test "VF-06 VF-13 numbers only go up" {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engines a
	fleet a
	push "$T/one" --weight-version 57
	assert_equal "$(serving a)" 57
	run --separate-stderr push "$T/two" --weight-version 1
	assert_failure
	[[ $stderr == *57* && $stderr == *1* ]]
	run --separate-stderr push "$T/two" --weight-version 57
	assert_failure 65
	run --separate-stderr push "$T/one" --weight-version 57
	assert_success
	assert_equal "$(serving a)" 57
	holds a "$T/one"
	push "$T/two"
	assert_equal "$(serving a)" 58
}

@test "--adopt lets the push of another registry through, once" {
	checkpoint "$T/one" --size 1MiB --seed 1
	engines a b
	fleet a b
	push "$T/one"
	fleet a
	REGISTRY_DIR=other
	run --separate-stderr push "$T/one"
	assert_failure 76
	[[ $stderr == *"engine a"*"$(cat "$T/registry/id")"* ]]
	stop a
	engine a --adopt
	push "$T/one"
	assert_equal "$(serving a)" 2
	REGISTRY_DIR=registry
	fleet b a
	run --separate-stderr push "$T/one"
	assert_failure 76
	[[ $stderr == *"engine a"*"$(cat "$T/other/id")"* ]]
	# Nothing was asked of the other one.
	assert_equal "$(serving b) $(ls -A "$T/b/staging")" "1 "
}

@test "I13 an engine that fails every swap is given up in time, and named" {
	checkpoint "$T/one" --size 1MiB --seed 1
	engine a
	engine b --on-swap false
	fleet a b
	start push push "$T/one" --engine-timeout 10s --load-timeout 10s
	ends_with 3 push
	assert_equal "$(serving a)" 1
	assert_equal "$(serving b)" ""
	contains "$T/push.err" "engine b"
}

@test "FL-06 an empty fleet is no success" {
	checkpoint "$T/one" --size 1MiB
	printf 'model: x\nengines: []\n' >"$T/fleet.yaml"
	run --separate-stderr push "$T/one"
	assert_failure
	[[ $stderr == *"no engines"* ]]
	run decided 1
	assert_failure
}

@test "UX-06 SIGTERM before the decision: old version, 143, nothing left" {
	push_held
	wait_for told acked
	kill -TERM "$(pid_of push)"
	ends_with 143 push
	rm "$T/hold"
	assert_equal "$(serving a)" 1
	holds a "$T/one"
	run decided 2
	assert_failure
	assert_clean_runs
	push "$T/two"
	holds a "$T/two"
}

# As often as it takes: of several that wait to be taken only one is.
again_and_again() {
	signal "$(pid_of push)" TERM
	has_ended "$(pid_of push)"
}

@test "I13 UX-06 SIGTERMs, and commit is stopped: push ends, the next one heals" {
	push_held
	wait_for told opened
	kill -STOP "$(pid_in_run commit.1)"
	wait_for again_and_again
	ends_with 75 push
	assert_file_contains "$T/push.err" "killing them"
	rm "$T/hold"
	assert_equal "$(serving a)" 1
	push "$T/two"
	holds a "$T/two"
	assert_clean_runs
}

@test "UX-06 a second SIGINT after the decision: 3 at once, who lags is named" {
	checkpoint "$T/one" --size 1MiB --seed 1
	engine a --on-pause "while [ -e '$T/hold' ]; do sleep 0.05; done"
	fleet a
	touch "$T/hold"
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told decided
	kill -INT "$(pid_of push)"
	wait_for contains "$T/push.err" "version 1 is published, 1 engine still"
	kill -INT "$(pid_of push)"
	ends_with 3 push
	contains "$T/push.out" "lagging: a"
	assert_exist "$T/registry/open"
	rm "$T/hold"
	push "$T/one" --weight-version 1
	holds a "$T/one"
	assert_clean_runs
}

@test "UX-07 SIGKILL of push: its stages end by themselves" {
	checkpoint "$T/one" --size 1MiB --seed 1
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	fleet a
	touch "$T/hold"
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told acked
	kill -KILL "$(pid_of push)"
	ends_with 137 push
	rm "$T/hold"
	wait_for no_stages
	run decided 1
	assert_failure
	push "$T/one"
	holds a "$T/one"
}

kill_stage_once() {
	local stage=$1

	checkpoint "$T/one" --size 2MiB --seed 1
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	fleet a
	touch "$T/hold"
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 256KiB
	wait_for told acked
	kill -KILL "$(pid_in_run $stage.1)"
	wait_for test -e "$(newest_run)/$stage.2"
	rm "$T/hold"
	ends_with 0 push
	assert_equal "$(serving a)" 1
	holds a "$T/one"
	assert_clean_runs
}

@test "restart: plan killed, started again by push" {
	kill_stage_once plan
}

@test "restart: admit killed, started again by push" {
	kill_stage_once admit
}

@test "restart: transfer killed, started again by push" {
	kill_stage_once transfer
}

@test "restart: commit killed, started again by push" {
	kill_stage_once commit
}

@test "FL-01 a killed engine needs attention, the others serve the old version" {
	checkpoint "$T/one" --size 2MiB --seed 1
	checkpoint "$T/two" --size 2MiB --seed 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	engine b
	engine c
	fleet a b c
	push "$T/one"
	touch "$T/hold"
	look_at_new_runs
	start push weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told acked
	kill_engine a
	rm "$T/hold"
	ends_with 2 push
	assert_file_contains "$T/push.err" "engine a.*closed its connection"
	assert_equal "$(serving b) $(serving c)" "1 1"
	holds b "$T/one"
	holds c "$T/one"
	run decided 2
	assert_failure
	engine a
	push "$T/two"
	holds a "$T/two"
	holds b "$T/two"
	holds c "$T/two"
}

@test "FL-09 a failed wave: later waves are sent no load" {
	checkpoint "$T/one" --size 2MiB --seed 1
	engine a
	engine b --post-load "exit 3"
	engine c
	fleet a b c
	run --separate-stderr push "$T/one" --max-inflight-engine-groups 1
	assert_failure 1
	[[ $stderr == *" b"* || $stderr == *"b:"* ]]
	assert_not_exist "$T/c/staging/000001"
	run grep -c '"event":"granted".*"wave":2' "$(newest_run)/events"
	assert_output 0
	run decided 1
	assert_failure
}

@test "push --dry-run prints what each wave would move, and touches nothing" {
	checkpoint "$T/one" --size 2MiB
	fleet a b c
	run --separate-stderr push "$T/one" --dry-run --bucket-size 512KiB \
		--max-inflight-engine-groups 2 --max-inflight-buckets 2
	assert_success
	assert_output --partial "a"
	assert_not_exist "$T/registry"
}

@test "two pushes at once: the second names the first, and may wait" {
	checkpoint "$T/one" --size 1MiB --seed 1
	checkpoint "$T/two" --size 1MiB --seed 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.05; done"
	fleet a
	touch "$T/hold"
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for told acked
	run --separate-stderr push "$T/two"
	assert_failure 75
	[[ $stderr == *pid* ]]
	start second weir-push --source "$T/two" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --wait 200s
	rm "$T/hold"
	ends_with 0 push
	ends_with 0 second
	assert_equal "$(serving a)" 2
	holds a "$T/two"
}

@test "FS-09 two runs of one name: the second is refused at once, the first named" {
	local name

	push_held
	wait_for told opened
	name=$(basename "$(newest_run)")
	mkdir "$T/another"
	run --separate-stderr push "$T/two" --run "$T/another/$name"
	assert_equal "$status" 75
	[[ $stderr == *"is held by pid $(pid_in_run commit.1), "*", run $name;"* ]]
	rm "$T/hold"
	ends_with 0 push
	holds a "$T/two"
}

@test "many engines are dead: the first are named, the rest counted" {
	local i

	checkpoint "$T/one" --size 1MiB --seed 1
	engine a
	fleet a $(seq -f 'dead%g' 60)
	run --separate-stderr push "$T/one" --min-engines 1
	assert_equal "$status" 3
	assert_equal "$(grep -c "is excluded" <<<"$stderr")" 20
	[[ $stderr == *"40 more excluded engines were not logged"* ]]
	[ "${#stderr_lines[@]}" -lt 40 ]
	assert_equal "$(grep -c '"event":"excluded"' "$(newest_run)/events")" 60
}

@test "what is told stands in order, and a noun agrees with its number" {
	checkpoint "$T/one" --size 2MiB --seed 1
	engines a
	fleet a
	push "$T/one" >"$T/all" 2>&1
	assert_equal "$(grep -o '^version 1: .* bucket,\|^a holds\|is decided$\|^a serves\|^version 1 published: 1 engine,\|peak 1 bucket,' \
		"$T/all")" "version 1: 1 engine, 1 wave, 1 bucket,
a holds
is decided
a serves
version 1 published: 1 engine,
peak 1 bucket,"
}

@test "what a cancel ends elsewhere is no error of its own" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engine a -v --post-load "touch '$T/a.held'; while :; do sleep 0.02; done"
	fleet a
	look_at_new_runs
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry"
	wait_for test -e "$T/a.held"
	kill -STOP "$(pid_in_run transfer.1)"
	kill -TERM "$(pid_in_run commit.1)"
	wait_for contains "$T/a.err" "the run was cancelled"
	kill -CONT "$(pid_in_run transfer.1)"
	ends_with 143 push
	run grep " error " "$T/push.err"
	assert_output ""
	assert_clean_runs
}

@test "engines that differ in --post-load: said, and what was not compared" {
	checkpoint "$T/one" --size 256KiB --seed 1
	engines a b
	engine c --post-load true
	engine d --post-load "echo \$RANDOM >>\"\$WEIR_SLOT/x\"" \
		--post-load-varies
	fleet a b c d
	run --separate-stderr push "$T/one"
	assert_success
	[[ $stderr == *'warn engines differ in --post-load: that of engine c is "true"'* ]]
	[[ $stderr == *'installed digests compared: 2 of 4 engines; not compared: c (no other has --post-load "true"), d (its --post-load varies)'* ]]
	fleet a c
	run --separate-stderr push "$T/one" --json
	assert_success
	[ "$(jq -r 'select(.installed_compared != null) | .installed_compared' \
		<<<"$output")" = 0 ]
	fleet a b
	run --separate-stderr push "$T/one"
	assert_success
	[[ $stderr != *"differ in --post-load"* ]]
	[[ $stderr == *"compared: 2 of 2 engines"* ]]
	[[ $stderr != *"not compared"* ]]
}
