#!/usr/bin/env bats
# What anybody who may connect can do to an engine and to a stage (ZQ-15,
# MP-01, MP-02, MP-05): nothing that outlasts the connection.

load fleet

GROWTH_KIB=65536	# of anonymous memory, whatever a peer does

setup() {
	common_setup
	mkdir "$T/src"
	echo one >"$T/src/config.json"
}

ask() { "$BUILD/tests/engclient" "ipc://$T/e0.sock" >"$T/replies"; }

# publish N: one file, from begin to resume.
publish() {
	ask <<-END
	probe
	begin dir=$T/src version=$1 epoch=$1 run=r$1
	attach
	offer bucket=0
	finish
	receipt
	pause
	swap
	resume
	END
	contains "$T/replies" '"msg":"resumed"'
	assert_equal "$(serving e0)" "$1"
}

one_engine() {
	engine e0
	publish 1
	mark e0
}

# mark NAME: descriptors and memory as they should stay.
mark() {
	fds_before=$(fds "$1")
	anon_before=$(anon "$1")
}

fds() {
	local all=("/proc/$(pid_of "$1")/fd/"*)

	echo "${#all[@]}"
}

anon() {
	awk '/^RssAnon/ { print $2 }' "/proc/$(pid_of "$1")/status"
}

fds_are_back() { [ "$(fds "$1")" -le "$fds_before" ]; }

attack() {
	python3 "$SRC/tests/badpeer.py" "$@"
}

# It answers, has let go of everything, and has not grown.
unharmed() {
	still_serves 1
	wait_for fds_are_back e0 || fail "$(fds e0) descriptors"
	bounded e0
}

bounded() {
	local now

	# A sanitizer keeps freed memory.
	! grep -q __asan_init "$BUILD/weir-engine" || return 0
	now=$(anon "$1")
	if [ $((now - anon_before)) -gt "$GROWTH_KIB" ]; then
		fail "grew from $anon_before to $now KiB"
	fi
}

still_serves() {
	ask <<<status
	contains "$T/replies" "\"serving\":$1,"
}

@test "ZQ-15 MP-05 frames that are no messages, and messages cut anywhere" {
	one_engine
	attack "$T/e0.sock" random-frames mutants prefixes bombs
	unharmed
	publish 2
}

@test "ZQ-15 right messages with a wrong fence change nothing" {
	one_engine
	cp "$T/e0/fence" "$T/fence"
	attack "$T/e0.sock" strangers
	cmp "$T/e0/fence" "$T/fence"
	unharmed
	publish 2
}

@test "ZQ-15 oversize and multipart frames, long ids, bad greetings" {
	one_engine
	attack "$T/e0.sock" oversize multipart identities greetings
	unharmed
	publish 2
}

@test "ZQ-15 descriptors that nobody asked for are closed" {
	one_engine
	attack "$T/e0.sock" descriptors holders
	unharmed
	publish 2
}

# start_attack NAME ATTACK: it goes on until NAME.fifo has no writer.
start_attack() {
	mkfifo "$T/$1.fifo"
	start "$1" bash -c 'exec python3 "$@" <"$0" 9>&-' "$T/$1.fifo" \
		"$SRC/tests/badpeer.py" "$T/e0.sock" "$2"
	exec 8>"$T/$1.fifo"
	wait_for test -s "$T/$1.out"
}

end_attack() {
	exec 8>&-
	ends_with 0 "$1"
}

@test "ZQ-15 a peer that asks without end and never reads harms only itself" {
	one_engine
	start_attack deaf mutes
	still_serves 1
	bounded e0
	publish 2
	end_attack deaf
}

# few_fds N: an engine that may have no more descriptors than that.
few_fds() {
	: >"$T/e0.ready"
	start e0 bash -c 'ulimit -n "$1"; exec 3>"$2"; shift 2; exec "$@"' _ \
		"$1" "$T/e0.ready" weir-engine --name e0 --store "$T/e0" \
		--listen "ipc://$T/e0.sock" --ready-fd 3
	wait_for test -s "$T/e0.ready"
	publish 1
	mark e0
}

@test "ZQ-11 more connections than there are descriptors end no engine" {
	few_fds 256
	start_attack crowd crowd
	wait_for contains "$T/e0.err" 'one more is closed'
	end_attack crowd
	unharmed
	publish 2
	stop e0
	assert_file_contains "$T/e0.err" 'more connections one too many were not'
}

@test "ZQ-15 who is there keeps its place in a crowd" {
	one_engine
	{
		echo probe
		echo "begin dir=$T/src version=2 epoch=2 run=r2"
	} >"$T/first"
	printf '%s\n' attach 'offer bucket=0' finish receipt pause swap \
		resume >"$T/then"
	mkfifo "$T/words"
	start ask sh -c "exec $BUILD/tests/engclient ipc://$T/e0.sock <$T/words"
	exec 9>"$T/words"
	cat "$T/first" >&9
	wait_for contains "$T/ask.out" begun
	start_attack crowd crowd
	cat "$T/then" >&9
	exec 9>&-
	wait_for_end "$(pid_of ask)"
	end_attack crowd
	assert_equal "$(serving e0)" 2
}

@test "ZQ-15 what a peer makes an engine log has a bound" {
	one_engine
	attack "$T/e0.sock" random-frames mutants descriptors holders
	unharmed
	stop e0
	run wc -l <"$T/e0.err"
	[ "$output" -lt 100 ]
	assert_file_contains "$T/e0.err" 'more messages that are none were not'
	assert_file_contains "$T/e0.err" 'more closed connections were not'
}

@test "ZQ-15 a stage hears all of it and goes on" {
	checkpoint "$T/ckpt" --size 256KiB --layers 2
	fleet e0
	mkfifo "$T/line" "$T/end"
	start plan bash -c 'exec weir-plan "$@" >"$0"' "$T/line" \
		--source "$T/ckpt" --fleet "$T/fleet.yaml" --run "$T/run/r" \
		--stage-timeout 60s
	exec 7<"$T/line"
	wait_for test -e "$T/run/r/plan.endpoint"
	mark plan
	attack "$T/run/r/plan.1.sock" random-frames mutants prefixes bombs \
		strangers oversize multipart identities greetings
	wait_for fds_are_back plan
	bounded plan
	exec 8<>"$T/end"
	start admit bash -c 'exec weir-admit <&7 >&8'
	exec 7<&-
	wait_for test -e "$T/run/r/admit.endpoint"
	stop admit TERM || true
	exec 8<&-
	stop plan TERM || true
}
