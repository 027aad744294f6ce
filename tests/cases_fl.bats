#!/usr/bin/env bats
# FL - engines that die, hang, or stay paused, and the waves around them.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

@test "FL-01 one engine killed, another stopped: each ends at a deadline" {
	checkpoints
	engines a
	held_engine b
	fleet a b
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	start_push killed "$T/two" --max-inflight-buckets 1
	held b
	kill_engine b
	rm "$T/hold"
	ended 2 killed "engine b"
	aborted 2 b 0 30 # no time-out
	still_one a
	held_engine b
	still_one b
	touch "$T/hold"
	start_push stopped "$T/two" --max-inflight-buckets 1 \
		--engine-timeout 4s --load-timeout 4s
	held b
	kill -STOP "$(pid_of b)"
	rm "$T/hold"
	ended 2 stopped "engine b" "finish"
	aborted 2 b 1 30
	serves_one a
	kill -CONT "$(pid_of b)"
	then_two a b
}

@test "FL-03 blocked since the last run: named at once, or left out and said" {
	base a b
	kill -STOP "$(pid_of b)"
	run --separate-stderr push "$T/two" --engine-timeout 3s
	refused 69 "engine b" "probe"
	still_one a
	run --separate-stderr push "$T/two" --engine-timeout 3s \
		--min-engines 1
	assert_equal "$status" 3
	[[ $stderr == *"engine b"*probe* ]]
	assert_equal "$(serving a)" 2
	holds a "$T/two"
	kill -CONT "$(pid_of b)"
	run --separate-stderr push "$T/two" --weight-version 3
	assert_success
	assert_equal "$(serving a) $(serving b)" "3 3"
	holds b "$T/two"
}

@test "FL-03 it takes the request and never answers: the phase is named" {
	local step

	base a
	for step in begin attach finish ask_receipt; do
		fake c silent=$step serving=1
		fleet a c
		run --separate-stderr push "$T/two" --engine-timeout 5s \
			--load-timeout 5s
		refused 1 "engine c" "$step"
		aborted 1 c 0 30
		still_one a
		stop c
	done
	then_two a
}

@test "FL-01 it dies at any request: named at once, the others unharmed" {
	local word

	base a
	for word in die=begin die-bucket=0 die=ask_receipt; do
		fake c "$word" serving=1
		fleet a c
		run --separate-stderr push "$T/two"
		assert_equal "$status" 2
		assert_equal "$output" ""
		# By commit, or by transfer, which is connected to it as well.
		[[ $stderr == *" error engine c"* ]]
		refute_regex "$stderr" " error engine [^c]"
		aborted 2 c 0 30 # no time-out
		wait_for is_dead "$(pid_of c)"
		rm "$T/c.sock" "$T/c.sock.fd"
		still_one a
	done
	then_two a
}

@test "FL-04 an engine that dies at every push is tried once in each" {
	base a
	for _ in 1 2; do
		fake c die-bucket=0 serving=1
		fleet a c
		run --separate-stderr push "$T/two"
		refused 2 "engine c"
		assert_equal "$(asked c begin)" 1
		still_one a
		rm "$T/c.sock" "$T/c.sock.fd"
	done
	fake c die-bucket=0 serving=1
	run --separate-stderr push "$T/two" --min-engines 2
	refused 2 "engine c"
	still_one a
	rm "$T/c.sock" "$T/c.sock.fd"
	fake c die-bucket=0 serving=1
	run --separate-stderr push "$T/two" --min-engines 1
	assert_equal "$status" 3
	[[ $stderr == *"engine c"* ]]
	rm "$T/c.sock" "$T/c.sock.fd"
	assert_equal "$(serving a)" 2
}

@test "FL-04 after so many versions it is not tried again" {
	base a
	for n in 2 3 4 5; do
		fake c die-bucket=0 serving=1
		fleet a c
		run --separate-stderr push "$T/two" --min-engines 1 \
			--weight-version "$n" --retire-after 3
		assert_equal "$status" 3
		[[ $stderr == *"engine c"* ]]
		[ "$n" -eq 5 ] || assert_equal "$(asked c begin)" 1
		[ "$n" -eq 5 ] || rm "$T/c.sock" "$T/c.sock.fd"
	done
	[[ $stderr == *"the last 3 versions and is retired"*"--only c"* ]]
	assert_equal "$(asked c begin)" 0
	assert_equal "$(serving a)" 5
	# Too few are left: stopped, with the cause.
	fake d refuse=probe
	fleet a c d
	run --separate-stderr push "$T/one" --min-engines 2
	refused 69 "engine c" retired d
	stop d
	assert_equal "$(serving a)" 5
	# Who has caught up takes part again.
	stop c
	fleet a c
	engine c
	push "$T/two" --only c >/dev/null 2>&1
	assert_equal "$(serving c)" 5
	push "$T/one" --min-engines 1 >/dev/null 2>&1
	assert_equal "$(serving a) $(serving c)" "6 6"
}

@test "FL-05 paused here, refused there: all that were paused are resumed" {
	checkpoints
	engine a --on-pause "echo p >>'$T/a.log'" --on-resume "echo r >>'$T/a.log'"
	engine b --on-pause "[ ! -e '$T/stuck' ]" --on-resume "echo r >>'$T/b.log'"
	fleet a b
	push "$T/one" >/dev/null 2>&1
	touch "$T/stuck"
	run --separate-stderr push "$T/two" --engine-timeout 6s
	assert_equal "$status" 3
	[[ $stderr == *"engine b"*pause* ]]
	assert_equal "$(serving a) $(serving b)" "2 1"
	assert_equal "$(grep -c p "$T/a.log")" "$(grep -c r "$T/a.log")"
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_line --regexp '^a +2 +- +- '
	assert_line --regexp '^b +1 +(-|2 sealed) +- '
	rm "$T/stuck"
	run --separate-stderr push "$T/two" --weight-version 2
	assert_success
	assert_equal "$(serving a) $(serving b)" "2 2"
	holds b "$T/two"
}

@test "FL-05 a transfer that fails pauses nobody" {
	checkpoints
	engine a --on-pause "echo p >>'$T/a.log'"
	fleet a
	push "$T/one" >/dev/null 2>&1
	assert_equal "$(cat "$T/a.log")" p
	fake c refuse-bucket=0 serving=1
	fleet a c
	run --separate-stderr push "$T/two"
	refused 1 "engine c"
	assert_equal "$(cat "$T/a.log")" p
	still_one a
}

@test "FL-05 the reply to pause is lost: asked again, swapped, resumed" {
	base a
	fake c silent=pause once serving=1
	fleet a c
	run --separate-stderr push "$T/two" --engine-timeout 4s
	assert_success
	assert_equal "$(asked c resume)" 1
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_line --regexp '^c +2 +(-|2 sealed) +- '
}

@test "FL-05 SIGTERM while an engine is paused: it is resumed before the end" {
	checkpoints
	engine a --on-pause "while [ -e '$T/hold' ]; do sleep 0.05; done" \
		--on-resume "readlink '$T/a/current' >>'$T/a.log'"
	fleet a
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	start_push push "$T/two"
	wait_for decided 2
	kill -TERM "$(pid_of push)"
	wait_for contains "$T/push.err" "is published"
	rm "$T/hold"
	ends_with 0 push
	assert_equal "$(tail -n 1 "$T/a.log")" versions/000002
	holds a "$T/two"
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_success
	assert_line --regexp '^a +2 +- +- '
}

@test "FL-06 fleets of nobody publish nothing" {
	local text

	base a
	for text in 'engines: []' 'model: x' '' 'engines:'; do
		echo "$text" >"$T/fleet.yaml"
		run --separate-stderr push "$T/two"
		assert_equal "$status" 78
		one_error "$T/fleet.yaml"
		still_one a
	done
	run --separate-stderr weir-push --source "$T/two" \
		--registry "$T/registry"
	assert_equal "$status" 64
	then_two a
}

@test "FL-08 widths that are none are refused before anything is read" {
	local width

	base a
	for width in -1 1.5 "" x 99999999999999999999; do
		run --separate-stderr push "$T/two" \
			"--max-inflight-engine-groups=$width"
		assert_equal "$status" 64
		[[ $stderr == *"\"$width\""* ]]
		still_one a
	done
	then_two a
}

@test "FL-09 an engine that ends after the decision lags, and one line says so" {
	checkpoints
	engine a
	engine b --on-pause "[ ! -e '$T/armed' ] || kill -KILL \$PPID"
	fleet a b
	push "$T/one" >/dev/null 2>&1
	touch "$T/armed"
	run --separate-stderr push "$T/two" --engine-timeout 6s
	assert_equal "$status" 3
	assert_output --partial "lagging: b"
	one_error "engine b"
	holds a "$T/two"
	rm "$T/b.sock" "$T/b.sock.fd" # of b, which was killed
}

@test "FL-09 wave 2 of 3 fails: wave 3 is sent no load, nobody was paused" {
	checkpoints
	engine a --on-pause "echo p >>'$T/paused'"
	engine b --on-pause "echo p >>'$T/paused'" \
		--post-load "[ ! -e '$T/broken' ]"
	engine c --on-pause "echo p >>'$T/paused'"
	fleet a b c
	push "$T/one" >/dev/null 2>&1
	rm "$T/paused"
	touch "$T/broken"
	run --separate-stderr push "$T/two" --max-inflight-engine-groups 1
	refused 1 "engine b"
	[[ $stderr == *"a holds version 2"* ]]
	[[ $stderr != *"c holds version 2"* ]]
	assert_not_exist "$T/paused"
	still_one a b c
	run grep -c '"event":"granted".*"wave":2' "$(newest_run)/events"
	assert_output 0
	rm "$T/broken"
	then_two a b c
}

@test "FL-11 an engine that cannot take part is refused before others begin" {
	base a
	fake c refuse=probe
	fake d
	fleet a c d
	run --separate-stderr push "$T/two"
	refused 69 "engine c" "probe"
	assert_equal "$(asked d begin)" 0
	still_one a
	stop c
	stop d
	# transports and kinds of engine that this build lacks
	for transport in tcp ucx nonsense; do
		fleet a
		run --separate-stderr push "$T/two" --transport $transport
		assert_failure
		[ "$status" -ge 64 ]
		one_error "$transport"
		still_one a
	done
	# kind, what it may give as proof, and why it cannot take part
	while read -r kind proof code why; do
		fleet a
		printf '  - name: h\n    kind: %s\n    url: http://127.0.0.1:1\n' \
			"$kind" >>"$T/fleet.yaml"
		run --separate-stderr push "$T/two" --accept-proof "$proof"
		assert_equal "$status" "$code"
		one_error "$why"
		still_one a
	done <<-'END'
	sglang copied 69 127.0.0.1:1
	sglang ack 69 127.0.0.1:1
	vllm ack 69 127.0.0.1:1
	nonsense ack 78 nonsense
	END
	then_two a
}

@test "FL-11 requests that it does not know do not end an engine" {
	base a
	python3 - "$T/a.sock" <<-'PY'
	import os, socket, sys
	for data in (b"", b"\xff\x00GET / HTTP/1.1\r\n\r\n", os.urandom(4096),
	             b"\xff" + bytes(8) + b"\x01\x7f\x03" + bytes(53)):
	    for path in (sys.argv[1], sys.argv[1] + ".fd"):
	        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
	        try:
	            s.connect(path)
	        except OSError:
	            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	            s.connect(path)
	        try:
	            s.sendall(data)
	        except OSError:
	            pass
	        s.close()
	PY
	still_one a
	then_two a
}
