#!/usr/bin/env bats
# Admit and transfer as processes, between a real commit and receivers that
# are told what to do.

# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr, codes: set by run

load fleet

bats_require_minimum_version 1.5.0

# fake NAME [WORD]...: prints the requests that it gets to $T/NAME.out.
fake() {
	local name=$1

	shift
	start "$name" "$BUILD/tests/fakeengine" "ipc://$T/$name.sock" \
		"name=${NAME:-$name}" "$@"
	wait_for test -S "$T/$name.sock"
}

# One engine `a` of four workers at two receivers, one engine `b`.
four_workers() {
	cat >"$T/fleet.yaml" <<-END
	model: test
	engines:
	  - name: a
	    workers:
	      - {endpoint: "ipc://$T/a0.sock"}
	      - {endpoint: "ipc://$T/a0.sock"}
	      - {endpoint: "ipc://$T/a1.sock"}
	      - {endpoint: "ipc://$T/a1.sock"}
	  - name: b
	    workers: [{endpoint: "ipc://$T/b.sock"}]
	END
}

offered() { grep -c '"offer"' "$T/$1.out"; }

count() { grep -c "\"event\":\"$1\"" "$(newest_run)/events"; }

has_offers() { [ "$(offered "$1")" -ge "$2" ]; }

@test "I5 acked only after all four workers of two receivers" {
	checkpoint "$T/one" --size 2MiB
	four_workers
	NAME=a fake a0
	NAME=a fake a1 never-ack
	fake b
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 256KiB \
		--max-inflight-buckets 2
	wait_for has_offers a1 2
	wait_for has_offers a0 2
	wait_for has_offers b 2
	run count acked
	assert_output 0
	assert_equal "$(offered b)" 2
	stop push TERM || true
}

@test "one dead worker fails exactly its engine" {
	checkpoint "$T/one" --size 2MiB
	four_workers
	NAME=a fake a0
	NAME=a fake a1 die-bucket=2
	fake b
	run --separate-stderr push "$T/one" --bucket-size 256KiB \
		--min-engines 1
	assert_equal "$status" 3
	assert_regex "$stderr" "engine a: "
	refute_regex "$stderr" "engine b"
	run grep '"event":"excluded"' "$(newest_run)/events"
	assert_output --partial '"engine":"a"'
	refute_output --partial '"engine":"b"'
	rm "$T/a1.sock" "$T/a1.sock.fd"	# of the killed one
}

# lie WORD TEXT: a push to an honest engine and one that lies about bucket 3.
lie() {
	checkpoint "$T/one" --size 2MiB
	fleet a b
	fake a
	fake b "$1=3"
	run --separate-stderr push "$T/one" --bucket-size 256KiB
	assert_equal "$status" 1
	aborted 1 b 0 30 # no time-out
	assert_regex "$stderr" "engine b: bucket 3: .*$2"
	refute_regex "$stderr" "engine a: "
	run decided 1
	assert_failure
}

@test "I5 another digest is a protocol error naming engine and bucket" {
	lie bad-digest "other bytes"
}

@test "I5 another size is one" {
	lie bad-size "another size"
}

@test "I5 two acks of one offer are one" {
	lie double-ack "twice"
}

@test "I5 an ack of an offer that nobody made is one" {
	lie unknown-ack "offer"
}

@test "I5 acks that come late, for a transfer that was killed, count for nothing" {
	checkpoint "$T/one" --size 2MiB
	fleet a b
	fake a slow-ack=300
	fake b
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 256KiB \
		--max-inflight-buckets 2
	wait_for has_offers a 2
	kill -KILL "$(pid_in_run transfer.1)"
	ends_with 0 push
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines a,b --buckets 2
	assert_success
	run grep "engine [ab]: " "$T/push.err"
	assert_output ""
}

# field NAME: of the last run's summary.
field() {
	sed -n "s/.*\"event\":\"summary\".*\"$1\":\([0-9]*\).*/\1/p" \
		"$(newest_run)/events"
}

@test "I9 bytes sent again: those of the credit that was out, in the summary" {
	local stage

	checkpoint "$T/one" --size 2MiB
	fleet a b
	fake a slow-ack=500
	fake b slow-ack=500
	for stage in transfer admit; do
		look_at_new_runs
		start push weir-push --source "$T/one" \
			--fleet "$T/fleet.yaml" --registry "$T/registry" \
			--bucket-size 256KiB --max-inflight-buckets 2
		wait_for told granted
		kill -KILL "$(pid_in_run $stage.1)"
		ends_with 0 push
		assert [ "$(field resent_bytes)" -le "$(field peak_credit_bytes)" ]
		# A new admit waits for what its transfer has under way.
		[ $stage = admit ] || assert [ "$(field resent_bytes)" -gt 0 ]
	done
	assert_equal "$(field resent_bytes)" 0
}

@test "VF-03 acks without one byte read are found" {
	checkpoint "$T/one" --size 1MiB
	fleet a
	fake a blind
	run --separate-stderr push "$T/one"
	assert_equal "$status" 1
	assert_regex "$stderr" "engine a: bucket 0: holds other bytes"
}

@test "FL-01 an engine that never acks fails by --load-timeout" {
	checkpoint "$T/one" --size 1MiB
	fleet a b
	fake a
	fake b never-ack
	run --separate-stderr push "$T/one" --load-timeout 3s
	assert_equal "$status" 1
	aborted 1 b 0.5 30
	assert_regex "$stderr" "engine b: bucket 0: .*no answer to offer"
}

@test "BK-07 no more than the credit is ever unacked" {
	checkpoint "$T/one" --size 2MiB
	fleet a
	fake a slow-ack=20
	push "$T/one" --bucket-size 128KiB --max-inflight-buckets 2 \
		>/dev/null 2>&1
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" --engines a \
		--buckets 2
	assert_success
	assert_output --partial "peak_buckets=2"
}

@test "BK-12 a source rewritten under way is found, and named" {
	checkpoint "$T/one" --size 2MiB
	fleet a
	fake a slow-ack=100
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 256KiB
	wait_for told acked
	printf x >>"$T/one/model.safetensors"
	wait_for is_dead "$(pid_of push)"
	run cat "$T/push.err"
	assert_output --partial "model.safetensors changed"
	run decided 1
	assert_failure
}

@test "a source truncated under way fails its bucket, no process" {
	checkpoint "$T/one" --size 2MiB
	fleet a
	fake a slow-ack=100
	start push weir-push --source "$T/one" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 256KiB
	wait_for told acked
	# truncate(1) would not wait for the lease; python starts too slowly.
	perl -e 'truncate($ARGV[0], 1000000) or die' \
		"$T/one/model.safetensors"
	wait_for is_dead "$(pid_of push)"
	run cat "$T/push.err"
	assert_output --partial "model.safetensors"
	refute_output --partial "starting it again"
	run decided 1
	assert_failure
}

@test "weir-admit PLAN starts a run from a plan file" {
	checkpoint "$T/one" --size 1MiB
	fleet a
	engine a
	weir-plan --source "$T/one" --fleet "$T/fleet.yaml" -o "$T/plan"
	weir-admit "$T/plan" | weir-transfer |
		weir-commit --registry "$T/registry" >"$T/out"
	holds a "$T/one"
}

@test "I8 an oversize bucket: both numbers and the tensor, 65 everywhere" {
	checkpoint "$T/one" --size 2MiB
	fleet a
	fake a
	by_hand "$T/one" "" "--max-inflight-bytes 1000" "" >/dev/null \
		2>"$T/err" || true
	assert_equal "${codes[*]}" "65 65 65 65"
	run cat "$T/err"
	assert_output --partial "--max-inflight-bytes 1000"
	assert_output --partial 'tensor "model'
	assert_equal "$(grep -c . "$T/a.out")" 0
}

@test "FL-08 -1, 1.5 and nothing are no number of engines" {
	local value

	for value in -1 1.5 ""; do
		run weir-admit "--max-inflight-engine-groups=$value"
		assert_equal "$status" 64
		assert_output --partial "\"$value\""
	done
}
