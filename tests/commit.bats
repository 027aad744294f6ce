#!/usr/bin/env bats
# shellcheck disable=SC2034,SC2046,SC2154 # of helpers; lists; set by run
# commit.bats - the version fence as a program: upstream is fakeup, engines
# are fakerecv, commit and registry are real.

load helpers

A=0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
B=0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b

bats_require_minimum_version 1.5.0

# Engines and upstreams end by themselves; a socket that stays is a finding.
teardown() {
	local pid

	forget_reaped
	for pid in "${STARTED[@]}"; do
		signal "$pid" TERM
		wait_for has_ended "$pid" || true
	done
	common_teardown
}

# ends COMMAND...: of stop and wait_for_end, whose process is this shell's.
ends() {
	status=0
	"$@" || status=$?
}

# engine NAME [OPTION=VALUE]...: it will receive content A.
engine() {
	local name=$1

	shift
	: >"$T/$name.out"
	start "$name" "$BUILD/tests/fakerecv" "$name" "ipc://$T/$name.sock" \
		received=$A installed=$A "$@"
	wait_for contains "$T/$name.out" ready
}

# at NAME...: their arguments for fakeup
at() {
	local name

	for name; do
		echo "$name=ipc://$T/$name.sock"
	done
}

# push UPSTREAM_ARG... [-- COMMIT_ARG...]
push() {
	local up=()

	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		up+=("$1")
		shift
	done
	[ $# -eq 0 ] || shift
	FAKEUP_LOG=$T/up.log "$BUILD/tests/fakeup" content=$A "${up[@]}" \
		2>"$T/up.err" |
		exec_commit "$@"
}

# Time-outs are long but where one is awaited: everything else has to happen
# within them.
exec_commit() {
	exec "$BUILD/weir-commit" --registry "$T/reg" --engine-timeout 60s \
		--load-timeout 60s --stage-timeout 60s "$@"
}

# push_in_background NAME ARG...: as push; commit's pid is in $T/NAME.pid
push_in_background() {
	local name=$1

	shift
	mkfifo "$T/$name.pipe"
	start "$name" exec_commit_from "$T/$name.pipe" "${@#*--:}"
	local up=()
	for arg; do
		[[ "$arg" == --:* ]] || up+=("$arg")
	done
	start "$name-up" env FAKEUP_LOG="$T/up.log" bash -c \
		'out=$1; shift; exec "$@" >"$out"' _ "$T/$name.pipe" \
		"$BUILD/tests/fakeup" content=$A "${up[@]}"
}

exec_commit_from() {
	local pipe=$1 args=() arg

	shift
	for arg; do
		[[ "$arg" != -* && "$arg" != [0-9]* ]] || args+=("$arg")
	done
	exec_commit "${args[@]}" <"$pipe"
}

status_field() {
	"$BUILD/weir-status" --registry "$T/reg" --timeout 30s --json "${@:2}" |
		python3 -c "import json,sys; s=json.load(sys.stdin); print($1)"
}

published() { status_field 's["published"] and s["published"]["version"]'; }

requests() { grep -v '^ready' "$T/$1.out" | tr '\n' ' '; }

run_of() { find "$T/run/weir" -mindepth 1 -maxdepth 1 -type d | sort | tail -1; }

@test "a version is published: result, order of requests, registry" {
	engine e0
	engine e1
	run --separate-stderr push $(at e0 e1)
	assert_success
	assert_output "version 1 published: 2 engines, 1000 B, content $A"
	assert_equal "$(requests e0)" \
		"probe 0 begin 1 receipt 1 pause 0 swap 1 resume 0 "
	[[ "$stderr" == *"proof:"*"copied"* ]]
	assert_equal "$(readlink "$T/reg/current")" versions/000001
	assert_file_exist "$T/reg/versions/000001/plan"
	assert_file_exist "$T/reg/versions/000001/receipts"
	assert_file_not_exist "$T/reg/open"
	assert_file_not_exist "$T/reg/attention"
	run grep -c serving "$T/reg/ledger"
	assert_output 2
	run "$BUILD/weir-status" --registry "$T/reg"
	assert_success
	assert_line --partial "published  version 1, content $A"
}

@test "--json: one object with version, phases and engines" {
	engine e0
	run --separate-stderr push "$(at e0)" -- --json
	assert_success
	run python3 -c '
import json, sys
s = json.loads(sys.argv[1])
assert s["published"] and s["version"] == 1 and s["exit"] == 0, s
assert s["proof"] == "copied" and s["engines"][0]["pause_us"] == 700, s
assert all(k + "_ms" in s for k in
	"plan open move seal decide swap".split()), s' "$output"
	assert_success
}

@test "VF-01 a failed bucket: refused, named, and the same number may follow" {
	engine e0
	engine e1
	run --separate-stderr push $(at e0 e1) fail=1:5
	assert_equal "$status" 1
	assert_equal "$output" ""
	grep -q "engine e1: bucket 5" "$(run_of)/verdict"
	assert_equal "$(published)" None
	assert_equal "$(requests e1)" "probe 0 begin 1 cancel 0 "
	assert_file_not_exist "$T/reg/open"
	run push $(at e0 e1) -- --weight-version 1
	assert_success
	assert_equal "$(published)" 1
}

@test "VF-02 an engine that says no is believed" {
	engine e0
	engine e1 begin=refuse:1
	run --separate-stderr push $(at e0 e1)
	one_line_error 1 "engine e1" "begin" "told to refuse"
	assert_equal "$(published)" None
	assert_equal "$(requests e0)" "probe 0 begin 1 cancel 0 "
}

@test "VF-03 no receipt, no publication: bytes, content, proof" {
	engine e0 bytes=0
	run --separate-stderr push "$(at e0)"
	one_line_error 1 "engine e0" "0 bytes" "1000"
	stop e0
	engine e0 received=$B
	run --separate-stderr push "$(at e0)"
	one_line_error 1 "engine e0" $A $B
	stop e0
	engine e0 proof=0
	run --separate-stderr push "$(at e0)"
	one_line_error 1 "engine e0" '"ack"' '"copied"'
	assert_equal "$(published)" None
	run push "$(at e0)" -- --accept-proof ack
	assert_success
}

@test "installed digests of one post-load must agree" {
	engine e0
	engine e1 installed=$B
	run --separate-stderr push $(at e0 e1)
	one_line_error 1 "engine e1" "engine e0" $A $B
	stop e1
	engine e1 installed=$B post-load=quantise
	run push $(at e0 e1)
	assert_success
}

@test "VF-04 one engine does not swap: 3, named; the next commit brings it home" {
	engine e0
	engine e1 swap=refuse
	run --separate-stderr push $(at e0 e1) -- --engine-timeout 3s
	assert_equal "$status" 3
	[[ "$output" == *"1 of 2 engines"*"lagging: e1"* ]]
	[[ "$stderr" == *"engine e1"*"told to refuse"* ]]
	assert_equal "$(published)" 1
	run "$BUILD/weir-status" --registry "$T/reg"
	assert_equal "$status" 2
	assert_line --regexp "attention  version 1 of run [^ ]* \(decided\): engine e1"
	# It comes back with what it had sealed.
	stop e1
	engine e1 staged=1
	run push $(at e0 e1)
	assert_success
	assert_equal "$(published)" 2
	[[ "$(requests e1)" == "probe 0 receipt 1 pause 0 swap 1 resume 0 "* ]]
	run "$BUILD/weir-status" --registry "$T/reg"
	assert_success
}

@test "VF-05 FL-05 an abort that does not arrive: 2, named, tried again first" {
	engine e0
	engine e1 cancel=refuse
	run --separate-stderr push $(at e0 e1) fail=0:1 -- --engine-timeout 3s
	assert_equal "$status" 2
	[[ "$stderr" == *"engine e1"* ]]
	assert_equal "$(published)" None
	stop e1
	engine e1
	run push $(at e0 e1)
	assert_success
	[[ "$(requests e1)" == "cancel 0 probe 0 "* ]]
	assert_file_not_exist "$T/reg/attention"
}

@test "VF-06 VF-13 numbers only go up; a decided one again needs equal content" {
	engine e0 serving=57 content=$B
	run --separate-stderr push "$(at e0)" -- --weight-version 1
	one_line_error 65 "version 1" "57" "e0"
	run --separate-stderr push "$(at e0)" -- --weight-version 57
	one_line_error 65 "version 57" "57" "e0"
	assert_equal "$(requests e0)" "probe 0 probe 0 "
	run push "$(at e0)"
	assert_success
	assert_equal "$(published)" 58
	run --separate-stderr push "$(at e0)" -- --weight-version 3
	one_line_error 65 "version 3" "58"
	run --separate-stderr push "$(at e0)" -- --weight-version 58
	assert_success
	[[ "$output" == "version 58 was published already: 1 engine,"* ]]
	run --separate-stderr push "$(at e0)" structure=$B -- --weight-version 58
	one_line_error 65 "version 58" "structure" $B
	run push "$(at e0)" -- --weight-version 100
	assert_success
	assert_equal "$(published)" 100
}

@test "TM-03 VF-06 equal structure and other content is found by digest" {
	engine e0
	run push "$(at e0)"
	assert_success
	run --separate-stderr push "$(at e0)" content=$B -- --weight-version 1
	one_line_error 65 "version 1" $A $B
	assert_equal "$(published)" 1
	# Nothing was offered, begun or paused for either answer.
	assert_equal "$(requests e0)" \
		"probe 0 begin 1 receipt 1 pause 0 swap 1 resume 0 probe 0 "
}

@test "a decided number again, and one engine does not serve it: 3" {
	engine e0
	run push "$(at e0)"
	assert_success
	engine e1
	run --separate-stderr push $(at e0 e1) -- --weight-version 1
	assert_equal "$status" 3
	[[ "$output" == *"1 of 2 engines"*"lagging: e1" ]]
}

@test "VF-09 serving and staged are told apart while a version loads" {
	engine e0
	run push "$(at e0)"
	assert_success
	push_in_background c "$(at e0)" hang=1
	wait_for contains "$T/e0.out" "begin 2"
	assert_equal "$(status_field \
		's["engines"][0]["serving"], s["engines"][0]["staged"]')" \
		"1 2"
	assert_equal "$(status_field 's["open"]["decided"]')" False
	ends stop c
	assert_equal "$status" 143
	[[ "$(requests e0)" == *"begin 2 cancel 0 " ]]
	assert_equal "$(published)" 1
}

@test "FL-01 an engine dies at begin, another never answers: named, in time" {
	engine e0
	engine e1 begin=die
	run --separate-stderr push $(at e0 e1)
	assert_equal "$status" 2
	[[ "$stderr" == *"engine e1"*"begin"* ]]
	[[ "$(requests e0)" == *"cancel 0 " ]]
	engine e1 receipt=silent
	run --separate-stderr push $(at e0 e1) -- --engine-timeout 3s \
		--load-timeout 3s
	one_line_error 1 "engine e1" "receipt"
	assert_equal "$(published)" None
}

@test "FL-01 an engine that hangs is refused at the probe, before any is touched" {
	engine e0
	engine e1 probe=silent
	run --separate-stderr push $(at e0 e1) -- --engine-timeout 3s
	one_line_error 69 "engine e1" "probe"
	assert_equal "$(requests e0)" "probe 0 "
	assert_file_not_exist "$T/reg/open"
}

@test "FL-01 engines that do not run: one line names all, before the time-out" {
	engine e0
	run --separate-stderr push $(at e0 e1 e2 e3) -- --engine-timeout 60s
	one_line_error 69 "engine e1: nothing listens at ipc://$T/e1.sock;" \
		"start its weir-engine; and 2 more: e2, e3"
	assert_equal "$(grep -o "ipc://" <<<"$stderr" | wc -l)" 1
	assert_equal "$(requests e0)" "probe 0 "
	run --separate-stderr push $(at e0 e1 e2 e3) -- --min-engines 1 \
		--engine-timeout 60s
	assert_equal "$status" 3
	assert_equal "$(published)" 1
	run --separate-stderr push $(at e0 e1) -- --min-engines 1 -q
	assert_equal "$status" 3
	[[ $stderr == *" error engine e1 is excluded: engine e1: nothing listens"* ]]
}

@test "FL-03 an engine that could not be reached stays out, and is named" {
	KILLED_LEAVE=1
	engine e0
	engine e1 begin=die
	run push $(at e0 e1)
	assert_equal "$status" 2
	run --separate-stderr push $(at e0 e1) -- --min-engines 1
	assert_equal "$status" 3
	[[ "$output" == *"lagging: e1" ]]
	[[ "$stderr" == *"engine e1"*"attention"* ]]
	assert_equal "$(published)" 1
}

@test "FL-04 fewer than --min-engines left: stopped, with the cause" {
	engine e0
	engine e1 begin=refuse
	engine e2 begin=refuse
	run --separate-stderr push $(at e0 e1 e2) -- --min-engines 2
	assert_equal "$status" 1
	[[ "$stderr" == *"is excluded"* ]]
	assert_equal "$(published)" None
	run push $(at e0 e1 e2) -- --min-engines 1
	assert_equal "$status" 3
	assert_equal "$(published)" 1
	grep -q '^exclude' "$T/up.log"
	run push $(at e0 e1 e2) -- --min-engines 4
	assert_equal "$status" 64
}

@test "FL-05 lost replies: pause is asked again, resume always arrives" {
	engine e0 pause=lose:1
	run push "$(at e0)" -- --engine-timeout 3s
	assert_success
	stop e0
	engine e0 swap=lose:1 serving=1 content=$A
	run push "$(at e0)" -- --engine-timeout 3s
	assert_success
	stop e0
	engine e0 resume=silent:1 serving=2 content=$A
	run push "$(at e0)" -- --engine-timeout 3s
	assert_success
	assert_equal "$(status_field 's["engines"][0]["paused"]')" False
	[[ "$(requests e0)" == *"swap 3 resume 0 " ]]
}

@test "FL-05 a signal before the decision: all are cancelled, 128 + n" {
	engine e0
	engine e1
	push_in_background c $(at e0 e1) hang=1
	wait_for contains "$T/e1.out" "begin 1"
	wait_for contains "$T/up.log" opened
	ends stop c INT
	assert_equal "$status" 130
	[[ "$(requests e0)" == *"cancel 0 " ]]
	[[ "$(requests e1)" == *"cancel 0 " ]]
	ends wait_for_end "$(pid_of c-up)"
	assert_equal "$status" 130
}

@test "UX-06 a signal after the decision only says what is left" {
	engine e0
	engine e1 swap=silent
	push_in_background c $(at e0 e1) --:--engine-timeout --:6s
	wait_for contains "$T/e1.out" "swap 1"
	kill -INT "$(pid_of c)"
	# e0 may have swapped, its answer may be on its way.
	wait_for grep -q "version 1 is published, [12] engines\\{0,1\\} still" \
		"$T/c.err"
	ends wait_for_end "$(pid_of c)"
	assert_equal "$status" 3
	assert_equal "$(published)" 1
}

@test "UX-06 a second signal before the decision: 2, who is not back is named" {
	engine e0
	engine e1 cancel=silent:1
	push_in_background c $(at e0 e1) hang=1
	wait_for contains "$T/up.log" opened
	kill -INT "$(pid_of c)"
	wait_for contains "$T/e1.out" cancel
	kill -INT "$(pid_of c)"
	ends wait_for_end "$(pid_of c)"
	assert_equal "$status" 2
	grep -q "engines need attention: .*e1" "$T/c.err"
	ends wait_for_end "$(pid_of c-up)"
	assert_equal "$status" 2
	# The next commit finishes.
	run --separate-stderr push $(at e0 e1)
	assert_success
	[[ "$stderr" == *"was left open: undecided"* ]]
	[[ "$(requests e1)" == *"cancel 0 cancel 0 "* ]]
	assert_file_not_exist "$T/reg/open"
}

@test "I13 one record of an engine, however often it is not brought back" {
	local i

	KILLED_LEAVE=1
	engine e0 cancel=refuse
	engine e1
	for i in 1 2; do
		push_in_background c$i "$(at e0)" hang=1 \
			--:--engine-timeout --:5s
		wait_for contains "$T/up.log" opened
		kill -KILL "$(pid_of c$i)" "$(pid_of c$i-up)"
		wait_for is_dead "$(pid_of c$i)"
		rm "$T/up.log"
	done
	run --separate-stderr push "$(at e1)" -- --engine-timeout 5s
	assert_success
	assert_equal "$(status_field 'len(s["attention"])')" 1
}

@test "an engine of another registry is refused, both named" {
	engine e0 registry=deadbeef
	run --separate-stderr push "$(at e0)"
	one_line_error 76 "engine e0" deadbeef "$(cat "$T/reg/id")"
	assert_equal "$(requests e0)" "probe 0 "
}

@test "an engine without room is refused, need and have named" {
	engine e0 room=999
	run --separate-stderr push "$(at e0)"
	one_line_error 69 "engine e0" 999 1000
}

@test "an engine of another build is refused, with what is to be done" {
	engine e0 table=7
	engine e1
	run --separate-stderr push $(at e0 e1)
	one_line_error 76 "engine e0" "another version of weir's messages" \
		"restart it with this build"
	assert_equal "$(requests e1)" "probe 0 "
}

@test "another engine at that address is refused" {
	engine e0 name=other
	run --separate-stderr push "$(at e0)"
	one_line_error 78 "engine e0" '"other"'
}

@test "FS-09 two pushes at once: the second exits 75 and names the first" {
	engine e0
	push_in_background c "$(at e0)" hang=1
	wait_for contains "$T/up.log" opened
	run --separate-stderr push "$(at e0)"
	one_line_error 75 "pid $(pid_of c)" "started 20" "run 20"
	push_in_background d "$(at e0)" --:--wait --:120s
	ends stop c
	assert_equal "$status" 143
	ends wait_for_end "$(pid_of d)"
	assert_success
	assert_equal "$(published)" 1
}

@test "recovery: an undecided run is aborted, whatever our own fleet is" {
	KILLED_LEAVE=1
	engine e0
	engine e1
	push_in_background c "$(at e0)" hang=1
	wait_for contains "$T/up.log" opened
	kill -KILL "$(pid_of c)" "$(pid_of c-up)"
	wait_for is_dead "$(pid_of c)"
	run --separate-stderr push "$(at e1)"
	assert_success
	[[ "$stderr" == *"was left open: undecided"* ]]
	[[ "$(requests e0)" == *"begin 1 cancel 0 " ]]
	assert_equal "$(published)" 1
	assert_file_not_exist "$T/reg/open"
}

@test "recovery: a decided run goes forward, whatever our own fleet is" {
	KILLED_LEAVE=1
	engine e0 swap=silent
	engine e1
	push_in_background c "$(at e0)"
	wait_for contains "$T/e0.out" "swap 1"
	kill -KILL "$(pid_of c)" "$(pid_of c-up)"
	wait_for is_dead "$(pid_of c)"
	assert_equal "$(status_field 's["open"]["decided"]')" True
	stop e0
	engine e0 staged=1
	run --separate-stderr push "$(at e1)"
	assert_success
	[[ "$stderr" == *"was left open: decided"* ]]
	assert_equal "$(requests e0)" \
		"probe 0 receipt 1 pause 0 swap 1 resume 0 "
	assert_equal "$(published)" 2
}

@test "commit killed and started again in its run goes on and publishes" {
	engine e0 receipt=silent:1
	push_in_background c "$(at e0)"
	wait_for contains "$T/e0.out" "receipt 1"
	kill -KILL "$(pid_of c)"
	wait_for is_dead "$(pid_of c)"
	run --separate-stderr "$BUILD/weir-commit" --run "$(run_of)" \
		--registry "$T/reg"
	assert_success
	assert_output --partial "version 1 published"
	assert_equal "$(requests e0)" "probe 0 begin 1 receipt 1 probe 0 \
begin 1 receipt 1 pause 0 swap 1 resume 0 "
	ends wait_for_end "$(pid_of c-up)"
	assert_success
	assert_equal "$(cat "$T/reg/epoch")" 1
}

@test "commit and an engine killed before the decision: aborted, named" {
	engine e0 receipt=silent:1
	push_in_background c "$(at e0)"
	wait_for contains "$T/e0.out" "receipt 1"
	kill -KILL "$(pid_of c)"
	wait_for is_dead "$(pid_of c)"
	stop e0
	engine e0
	run --separate-stderr "$BUILD/weir-commit" --run "$(run_of)" \
		--registry "$T/reg"
	one_line_error 1 "engine e0" "restarted"
	assert_equal "$(requests e0)" "probe 0 cancel 0 "
	assert_equal "$(published)" None
}

@test "commit killed behind the decision swaps no engine twice" {
	engine e0
	engine e1 swap=silent:1
	push_in_background c $(at e0 e1)
	wait_for contains "$T/e1.out" "swap 1"
	wait_for contains "$T/reg/ledger" '"engine":"e0"'
	kill -KILL "$(pid_of c)"
	wait_for is_dead "$(pid_of c)"
	run --separate-stderr "$BUILD/weir-commit" --run "$(run_of)" \
		--registry "$T/reg"
	assert_success
	assert_equal "$(grep -c swap "$T/e0.out")" 1
	assert_equal "$(status_field '[e["serving"] for e in s["engines"]]')" \
		"[1, 1]"
	ends wait_for_end "$(pid_of c-up)"
	assert_success
}

# holding_registry COMMAND...: while somebody else holds the lock; then it is
# let go when let_go is called.
hold_registry() {
	mkfifo "$T/holder.pipe"
	start holder flock -x "$T/reg/lock" cat "$T/holder.pipe"
	wait_for is_held
}
is_held() { ! flock -n "$T/reg/lock" true; }
let_go() {
	: >"$T/holder.pipe"
	wait_for_end "$(pid_of holder)" || true
}

killed_behind_decision() {
	engine e0 swap=silent:1
	push_in_background c "$(at e0)" "$@"
	wait_for contains "$T/e0.out" "swap 1"
	kill -KILL "$(pid_of c)"
	wait_for is_dead "$(pid_of c)"
}

@test "commit killed behind the decision, the registry held: 3, not 'try again'" {
	killed_behind_decision
	hold_registry
	run --separate-stderr "$BUILD/weir-commit" --run "$(run_of)" \
		--registry "$T/reg"
	let_go
	assert_equal "$status" 3
	assert_output --partial "version 1 published"
	assert_output --partial "lagging: e0"
	run push "$(at e0)" -- --weight-version 1
	assert_success
	assert_equal "$(status_field '[e["serving"] for e in s["engines"]]')" \
		"[1]"
}

@test "commit killed behind the decision waits for the registry, signal or not" {
	killed_behind_decision --:--wait --:120s
	hold_registry
	start again "$BUILD/weir-commit" --run "$(run_of)" --registry "$T/reg" -v
	wait_for contains "$T/again.err" "plan -> lock"
	kill -TERM "$(pid_of again)"
	wait_for contains "$T/again.err" "is published, 1 engine still to swap"
	let_go
	ends wait_for_end "$(pid_of again)"
	assert_equal "$status" 0
	assert_equal "$(status_field '[e["serving"] for e in s["engines"]]')" \
		"[1]"
}

@test "an undecided run that another commit ended is not gone on with" {
	engine e0 receipt=silent:1
	push_in_background c "$(at e0)" --:--wait --:120s
	wait_for contains "$T/e0.out" "receipt 1"
	kill -KILL "$(pid_of c)"
	wait_for is_dead "$(pid_of c)"
	hold_registry
	start again "$BUILD/weir-commit" --run "$(run_of)" --registry "$T/reg" -v
	wait_for contains "$T/again.err" "plan -> lock"
	rm "$T/reg/open"	# as recovery does
	let_go
	ends wait_for_end "$(pid_of again)"
	assert_equal "$status" 1
	contains "$T/again.err" "ended by another commit"
	assert_equal "$(grep -c begin "$T/e0.out")" 1
}

@test "I1 nothing is decided behind an exclusion that is not durable" {
	engine e0
	engine e1 receipt=silent:1
	push_in_background c $(at e0 e1) --:--engine-timeout --:6s \
		--:--min-engines --:1
	wait_for contains "$T/e1.out" "receipt 1"
	rm "$T/reg/open"
	mkdir "$T/reg/open"
	ends wait_for_end "$(pid_of c)"
	assert_equal "$status" 1
	assert_file_not_exists "$T/reg/versions/000001/decision"
	assert_equal "$(grep -c swap "$T/e0.out")" 0
	contains "$T/e0.out" cancel
}

@test "TM-02 a commit that was stopped goes on; a run has a deadline" {
	engine e0
	push_in_background c "$(at e0)" hang=1
	wait_for contains "$T/up.log" opened
	kill -STOP "$(pid_of c)"
	kill -CONT "$(pid_of c)"
	ends stop c
	assert_equal "$status" 143
	run --separate-stderr push "$(at e0)" hang=1 -- --run-timeout 12s
	one_line_error 1 "--run-timeout"
	assert_equal "$(published)" None
}

@test "upstream dies: never a publication" {
	engine e0
	run --separate-stderr push "$(at e0)" die=1 -- --stage-timeout 8s
	assert_equal "$status" 1
	[[ "$(requests e0)" == *"cancel 0 " ]]
	assert_equal "$(published)" None
}

@test "a record that is damaged is named whole, and no engine is touched" {
	local name

	engine e0
	run push "$(at e0)"
	assert_success
	for name in open attention; do
		echo junk >"$T/reg/$name"
		run --separate-stderr push "$(at e0)"
		one_line_error 65 "$T/reg/$name is no record file"
		rm "$T/reg/$name"
	done
	assert_equal "$(requests e0 | grep -o begin)" begin
}

@test "a registry that lost its id is no new one, whose engines would refuse it" {
	engine e0
	run push "$(at e0)"
	assert_success
	rm "$T/reg/id"
	run --separate-stderr push "$(at e0)"
	one_line_error 65 "registry $T/reg was in use, and its id is gone"
	assert_not_exist "$T/reg/id"
	assert_equal "$(requests e0 | grep -o begin)" begin
}

@test "FS-02 a registry that cannot be written touches no engine" {
	engine e0
	mkdir -m 0700 "$T/reg"
	mkdir "$T/reg/versions"
	echo x >"$T/reg/versions/000001"
	run --separate-stderr push "$(at e0)"
	one_line_error 74 000001
	assert_equal "$(requests e0)" "probe 0 "
	run find "$T/reg" -name '.tmp*'
	assert_output ""
}

@test "FS-02 no space for the decision's receipts: aborted, nothing left" {
	engine e0
	mkdir -m 0700 "$T/reg"
	mount -t tmpfs -o size=64k,mode=0700 none "$T/reg" 2>/dev/null ||
		skip "cannot mount"
	push_in_background c "$(at e0)" hang=1
	wait_for contains "$T/up.log" opened
	stop c || true
	dd if=/dev/zero of="$T/reg/ballast" bs=4k 2>/dev/null || true
	run --separate-stderr push "$(at e0)"
	local tmp
	tmp=$(find "$T/reg" -name '.tmp*')
	umount "$T/reg"
	[ "$status" -eq 74 ] || [ "$status" -eq 1 ]
	[[ "$stderr" == *"No space left"* ]]
	assert_equal "$tmp" ""
}

@test "a registry that is open to others, or of others, is refused" {
	engine e0
	mkdir -m 0755 "$T/reg"
	run --separate-stderr push "$(at e0)"
	one_line_error 77 "$T/reg" 0755 0700
}

@test "status: 66 without a registry; 0 when nothing is published yet" {
	run --separate-stderr "$BUILD/weir-status" --registry "$T/reg"
	one_line_error 66 "$T/reg"
	engine e0 begin=refuse
	run push "$(at e0)"
	assert_equal "$status" 1
	run "$BUILD/weir-status" --registry "$T/reg"
	assert_success
	assert_line --partial "nothing yet"
	run "$BUILD/weir-status" --registry "$T/reg" --timeout 1s \
		--engine "ipc://$T/nobody"
	assert_line --partial "unreachable: "
}

@test "status: the last event in people's words, and as fields" {
	engine e0
	run push "$(at e0)"
	assert_success
	run env TZ=UTC-3 "$BUILD/weir-status" --registry "$T/reg"
	assert_line --regexp \
		'^last  *20..-..-..T..:..:..\+03:00 published, version 1, run '
	run status_field 's["last"]["event"], s["last"]["version"],
		s["last"]["wall_ms"] > 1e12, "engine" in s["last"]'
	assert_output "published 1 True False"
}

@test "status: engines are asked without a registry too; 66 if there is neither" {
	engine e0 serving=7
	run "$BUILD/weir-status" --registry "$T/none" \
		--engine "ipc://$T/e0.sock"
	assert_success
	assert_line "registry   none at $T/none"
	assert_line --regexp '^engine-0 .* 7 .*ok$'
	run --separate-stderr "$BUILD/weir-status" --registry "$T/none" \
		--timeout 200ms --engine "ipc://$T/nobody"
	assert_equal "$status" 66
	assert_line --partial unreachable
	[[ "$stderr" == *"no registry at $T/none, and no engine answers"* ]]
}

@test "status: an engine that lags or does not answer: 3" {
	engine e0
	engine e1
	run push $(at e0 e1)
	assert_success
	stop e1
	engine e1
	run "$BUILD/weir-status" --registry "$T/reg"
	assert_equal "$status" 3
	assert_line --regexp '^e1 .*lagging'
	stop e1
	run "$BUILD/weir-status" --registry "$T/reg" --timeout 5s
	assert_equal "$status" 3
	assert_line --regexp '^e0 .*ok'
	assert_line --regexp '^e1 .*lagging: '
	run "$BUILD/weir-status" --registry "$T/reg" \
		--engine "ipc://$T/e0.sock"
	assert_success
}
