#!/usr/bin/env bats
# ZQ, MP - peers that are not there, go, come back, or say nonsense.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

@test "ZQ-01 ZQ-05 peers that are absent, leave or never ack are named" {
	base a
	fleet a nobody
	run --separate-stderr push "$T/two"
	refused 69 "engine nobody" "nothing listens at ipc://$T/nobody.sock"
	still_one a
	fake c die=probe
	fleet a c
	run --separate-stderr push "$T/two"
	refused 69 "engine c" "$T/c.sock" probe
	rm "$T/c.sock" "$T/c.sock.fd"
	still_one a
	fake c never-ack serving=1
	run --separate-stderr push "$T/two" --load-timeout 3s
	refused 1 "engine c" "bucket 0" offer "3 s"
	aborted 1 c 1 30
	still_one a
	stop c
	then_two a
}

# whole: what a serves is a version that was pushed, all of it.
whole() {
	if [ "$(serving a)" -eq 1 ]; then
		holds a "$T/one"
	else
		holds a "$T/two"
	fi
}

# Those of commit and of transfer, whichever comes first: a good push is the
# one that met no cut, or could do without what was lost.
@test "ZQ-02 connections to an engine cut after 0 to 20 pieces: whole or nothing" {
	local n

	base a
	start relay "$SRC/tests/relay.py" "$T/r.sock" "$T/a.sock" 21
	wait_for contains "$T/relay.out" listening
	ln -s a.sock.fd "$T/r.sock.fd"
	fleet a
	sed -i 's,a\.sock,r.sock,' "$T/fleet.yaml"
	for ((n = 0; n < 40; n++)); do
		run --separate-stderr push "$T/two" --bucket-size 64KiB \
			--engine-timeout 2s
		whole
		case $status in
		0) decided "$(serving a)" ;;
		1 | 2 | 69) one_error "engine a" ;;
		3) [[ $stderr == *"engine a"* ]] ;;
		*) fail "status $status: $stderr" ;;
		esac
		! contains "$T/relay.out" "cut after 20" || break
	done
	contains "$T/relay.out" "cut after 20"
	stop relay KILL || true
	rm -f "$T/r.sock" "$T/r.sock.fd"
	fleet a
	push "$T/two" >/dev/null 2>&1
	decided "$(serving a)"
	holds a "$T/two"
	assert_clean_runs
}

@test "ZQ-03 ZQ-06 thousands of tiny buckets through a window of two" {
	local names=()

	for ((i = 0; i < 2000; i++)); do
		names+=("t$i:U8:8")
	done
	tensors "$T/t" "${names[@]}"
	engines a b
	fleet a b
	push "$T/t" --bucket-size 8 --max-inflight-buckets 2 >/dev/null 2>&1
	holds a "$T/t"
	holds b "$T/t"
	[ "$(grep -c '"event":"released"' "$(newest_run)/events")" -ge 2000 ]
}

@test "ZQ-04 in whatever order the stages start, the result is the same" {
	local order name n=1

	base a
	for order in "plan admit transfer commit" "commit transfer admit plan" \
		"transfer commit plan admit"; do
		rm -f "$T"/p[123]
		mkfifo "$T/p1" "$T/p2" "$T/p3"
		for name in $order; do
			case $name in
			plan) set -- /dev/null "$T/p1" --source "$T/two" \
				--fleet "$T/fleet.yaml" ;;
			admit) set -- "$T/p1" "$T/p2" ;;
			transfer) set -- "$T/p2" "$T/p3" ;;
			commit) set -- "$T/p3" "$T/result" \
				--registry "$T/registry" ;;
			esac
			# shellcheck disable=SC2016 # of the inner shell
			start "$name" bash -c \
				'in=$1 out=$2; shift 2; exec "$@" <"$in" >"$out"' \
				_ "$1" "$2" "weir-$name" "${@:3}"
		done
		for name in plan admit transfer commit; do
			ends_with 0 "$name"
		done
		assert_equal "$(serving a)" $((++n))
		holds a "$T/two"
		assert_clean_runs
	done
}

@test "ZQ-09 a storm of signals during a push" {
	# Looking for leaks stops a process by a SIGSTOP, which a SIGCONT undoes:
	# it would wait for ever.
	export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
	checkpoint "$T/one" --size 8MiB --shards 2
	engine a --post-load "while [ -e '$T/hold' ]; do sleep 0.02; done"
	engine b
	touch "$T/hold" # nobody has ended when it begins
	fleet a b
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 64KiB \
		--max-inflight-buckets 2
	wait_for told opened
	# shellcheck disable=SC2046 # pids
	python3 - "$T/hold" "$(pid_of push)" "$(pid_of a)" "$(pid_of b)" \
		$(cat "$(newest_run)"/*.1) <<-'PY'
	import os, select, signal, sys, time
	# Numbers of those that have ended are others' soon.
	fds = [os.pidfd_open(int(p)) for p in sys.argv[2:]]
	for n in range(20000):
	    if n == 100:
	        os.unlink(sys.argv[1])
	    if select.select(fds[:1], [], [], 0)[0]:
	        break
	    for fd in fds:
	        for s in (signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT):
	            try:
	                signal.pidfd_send_signal(fd, s)
	            except ProcessLookupError:
	                pass
	    time.sleep(0.001)
	PY
	ends_with 0 push
	holds a "$T/one"
	holds b "$T/one"
}

@test "ZQ-10 descriptors of a stage are not inherited by commands of hooks" {
	engine a --on-swap "ls -l /proc/self/fd >'$T/fds'"
	checkpoints
	fleet a
	push "$T/one" >/dev/null 2>&1
	run grep -E 'socket:|eventpoll|eventfd|/a/|safetensors' "$T/fds"
	assert_failure
}

# fleet_of N: that many engines, which nobody has started.
fleet_of() {
	local names=()

	for ((i = 0; i < $1; i++)); do
		names+=("e$i")
	done
	fleet "${names[@]}"
}

# push_within N: with at most N descriptors.
push_within() {
	run --separate-stderr bash -c "ulimit -n $1; exec weir-push \
		--source '$T/two' --fleet '$T/fleet.yaml' \
		--registry '$T/registry'"
}

@test "ZQ-11 64 engines in 32 descriptors: limit and need, no abort" {
	base a
	fleet_of 64
	push_within 32
	refused 78 "descriptors" "the limit is 32"
	still_one a
	then_two a
}

@test "ZQ-11 1000 engines: refused by a low limit, asked within a high one" {
	base a
	fleet_of 1000
	push_within 1000
	refused 78 "1000 receivers" "the limit is 1000"
	[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 4096 ] ||
		skip "no more than $(ulimit -Hn) descriptors here"
	push_within 4096
	refused 69 "engine e0: nothing listens" "and 999 more"
	still_one a
}

@test "ZQ-12 any reply is lost once: the run ends, and no late reply harms" {
	local step load

	for step in begin finish ask_receipt pause swap resume; do
		# Before the decision the load's time is awaited.
		load=60s
		[[ $step == @(pause|swap|resume) ]] || load=8s
		checkpoint "$T/one" --size 1MiB
		fleet a
		# shellcheck disable=SC2034 # of push()
		REGISTRY_DIR=reg-$step
		fake a silent=$step once
		run --separate-stderr push "$T/one" --engine-timeout 12s \
			--load-timeout $load
		case $step in
		pause | swap | resume)
			assert_equal "$step $status" "$step 0"
			;;
		*)
			[ "$status" -le 1 ]
			[ "$status" -eq 0 ] || one_error "engine a" "$step"
			;;
		esac
		stop a
	done
}

@test "ZQ-13 an engine that is started again under way: named, then fine" {
	checkpoints
	held_engine a
	engine b
	fleet a b
	push "$T/one" >/dev/null 2>&1
	touch "$T/hold"
	start_push push "$T/two"
	held a
	kill_engine a
	rm "$T/hold"
	held_engine a
	ends "$(pid_of push)"
	[ "$status" -eq 1 ] || [ "$status" -eq 2 ]
	# shellcheck disable=SC2034 # of one_error
	stderr=$(cat "$T/push.err")
	one_error "engine a"
	assert_equal "$(serving a) $(serving b)" "1 1"
	then_two a b
}

@test "ZQ-15 tcp is refused by both ends, and no socket is open to others" {
	base a
	run --separate-stderr weir-engine --name x --store "$T/x" \
		--listen tcp://127.0.0.1:5555
	assert_failure
	one_error "tcp://127.0.0.1:5555"
	printf 'engines:\n  - name: x\n    workers: [{endpoint: "%s"}]\n' \
		tcp://127.0.0.1:5555 >"$T/fleet.yaml"
	run --separate-stderr push "$T/two"
	assert_failure
	one_error "tcp://127.0.0.1:5555"
	assert_equal "$(stat -c %a "$T/a.sock" "$T/a.sock.fd" | sort -u)" 600
	assert_equal "$(stat -c %a "$(newest_run)" "$T/run/weir" |
		sort -u)" 700
	still_one a
}

@test "MP-01 MP-02 MP-05 bombs and stumps change nothing at an engine" {
	base a
	"$BUILD/tests/engclient" "ipc://$T/a.sock" >/dev/null <<-END
	raw ddffffffff
	raw dfffffffff
	raw dbffffffff
	raw c6ffffffff
	raw c9ffffffff01
	raw 9191919191919191919191919191919191
	raw dcffffdcffffdcffffdcffff
	raw 81
	raw 82a36d7367
	END
	still_one a
	then_two a
}
