#!/usr/bin/env bats
# shellcheck disable=SC2154,SC2016 # set by run; quoted for another shell
# weir-watch: each published version, once.

load fleet

setup() {
	common_setup
	checkpoint "$T/one" --size 256KiB --layers 1 --seed 1
	engine a
	fleet a
}

publish() { push "$T/one" "$@" >/dev/null 2>&1; }

watch() {
	run --separate-stderr timeout 120 weir-watch --registry "$T/registry" "$@"
}

versions() { grep -o '"version":[0-9]*' "$1" | cut -d: -f2 | xargs; }

told_by() { [ "$(versions "$T/$1.out")" = "$2" ]; }

@test "watch: what is published from now on, with what a reader needs" {
	publish
	start w weir-watch --registry "$T/registry" --state "$T/seen"
	# It has looked before the next one is published.
	wait_for test -e "$T/seen"
	publish --weight-version 7
	wait_for told_by w 7
	grep -q '^{"version":7,"content":"[0-9a-f]\{32\}","run":".*"bytes":.*"engines":\["a"\]}$' \
		"$T/w.out"
	ends_after_term
}

ends_after_term() {
	local code=0

	stop w TERM || code=$?
	assert_equal "$code" 143
}

@test "watch: --since tells those above, in order, over gaps" {
	publish
	publish --weight-version 5
	publish --weight-version 9
	start w weir-watch --registry "$T/registry" --since 1
	wait_for told_by w "5 9"
	ends_after_term
	watch --once --since 5
	assert_success
	[[ "$output" == '{"version":9,'* ]]
	watch --once --since 0
	assert_success
	[[ "$output" == '{"version":1,'* ]]
}

@test "watch: a registry that is made later" {
	start w weir-watch --registry "$T/registry" --once
	wait_for contains "$T/w.err" "waiting for it"
	publish
	ends_with 0 w
	told_by w 1
}

@test "watch: --state goes on after a restart, nothing missed or twice" {
	publish
	start w weir-watch --registry "$T/registry" --state "$T/seen"
	wait_for test -e "$T/seen"
	publish --weight-version 2
	wait_for told_by w 2
	wait_for grep -q " 2$" "$T/seen"
	stop w KILL || true
	publish --weight-version 3
	publish --weight-version 4
	start w weir-watch --registry "$T/registry" --state "$T/seen" --since 0
	wait_for told_by w "3 4"
	ends_after_term
	[ -z "$(find "$T" -maxdepth 1 -name '.tmp.*')" ]
}

@test "watch: a state of another registry, or no state at all" {
	publish
	echo "0123456789abcdef0123456789abcdef 3" >"$T/seen"
	watch --state "$T/seen"
	one_line_error 78 "$T/seen" 0123456789abcdef0123456789abcdef
	for text in "" 3 "$(cat "$T/registry/id") x" \
		"$(cat "$T/registry/id") -1"; do
		echo "$text" >"$T/seen"
		watch --state "$T/seen"
		one_line_error 65 "$T/seen"
	done
}

@test "watch: --exec has the facts in its environment" {
	publish
	watch --once --since 0 --exec 'echo "$WEIR_VERSION $WEIR_CONTENT $WEIR_RUN_NAME $WEIR_ENGINES" >'"$T/env"
	assert_success
	assert_equal "${#lines[@]}" 1
	grep -qE '^1 [0-9a-f]{32} [^ ]+ a$' "$T/env"
}

@test "watch: a command that fails leaves its version untold" {
	publish
	watch --since 0 --state "$T/seen" --exec 'echo no luck; exit 3'
	assert_equal "$status" 75
	[[ "$stderr" == *"no luck"*"version 1"*untold* ]]
	watch --once --state "$T/seen" --exec "echo \$WEIR_VERSION >$T/env"
	assert_success
	assert_equal "$(cat "$T/env")" 1
	watch --once --since 0 --exec 'sleep 60' --exec-timeout 100ms
	assert_equal "$status" 75
	watch --once --since 0 --exec 'yes' --exec-timeout 100ms
	assert_equal "$status" 75
	[[ "$stderr" == *"--exec did not end within 100 ms"* ]]
}

@test "watch: its end ends its command" {
	publish
	start w weir-watch --registry "$T/registry" --since 0 \
		--exec "echo >$T/runs; sleep 60"
	wait_for test -e "$T/runs"
	ends_after_term
}

@test "watch: killed with its command on its way: told again, then done" {
	publish
	: >"$T/hold"
	start w weir-watch --registry "$T/registry" --since 0 \
		--state "$T/seen" \
		--exec "echo \$WEIR_VERSION >>$T/runs; while [ -e $T/hold ]; do sleep 0.02; done"
	wait_for test -s "$T/runs"
	stop w KILL || true
	wait_for no_commands
	start w weir-watch --registry "$T/registry" --state "$T/seen" \
		--exec "echo \$WEIR_VERSION >>$T/runs"
	wait_for grep -q " 1$" "$T/seen"
	publish --weight-version 2
	wait_for grep -q " 2$" "$T/seen"
	assert_equal "$(xargs <"$T/runs")" "1 1 2"
	ends_after_term
}

no_commands() {
	local all

	all=$(leftover_processes)
	! grep -q "$T/hold" <<<"$all"
}

@test "watch: a registry that is moved away and back, or is another one" {
	publish
	start w weir-watch --registry "$T/registry" --since 0
	wait_for told_by w 1
	mv "$T/registry" "$T/away"
	wait_for contains "$T/w.err" "went away"
	# Restored: another directory of the same registry.
	cp -a "$T/away" "$T/copy"
	mv "$T/copy" "$T/registry"
	publish
	wait_for told_by w "1 2"
	mv "$T/registry" "$T/away.2"
	run publish
	assert_failure
	ends_with 78 w
	contains "$T/w.err" "is another one by now"
	told_by w "1 2"
}

@test "watch: a registry that cannot be read for a while is away" {
	publish
	start w weir-watch --registry "$T/registry" --since 0
	wait_for told_by w 1
	# As the mount point may be, without what is mounted there.
	chmod 755 "$T/registry"
	wait_for contains "$T/w.err" "mode 0755"
	chmod 700 "$T/registry"
	publish
	wait_for told_by w "1 2"
	[ "$(grep -c "went away" "$T/w.err")" -eq 1 ]
	ends_after_term
}

@test "watch: an aborted run is not told" {
	publish
	stop a TERM || true
	publish && false
	engine a
	publish --weight-version 9
	watch --once --since 1
	[[ "$output" == '{"version":9,'* ]]
}

@test "watch: what could not be printed is untold" {
	publish
	run bash -c 'weir-watch --registry "$1" --since 0 --state "$2" >/dev/full' \
		_ "$T/registry" "$T/seen"
	assert_equal "$status" 74
	watch --once --state "$T/seen" --since 0
	[[ "$output" == '{"version":1,'* ]]
}
