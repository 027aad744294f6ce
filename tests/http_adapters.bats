#!/usr/bin/env bats
# shellcheck disable=SC2154 # stderr: set by run
# The adapters of SGLang and vLLM, call by call, against servers that fail as
# they are told.  The store beside them is a stand-in.
#
# A line of enclient's output: "CALL ok" or "CALL E_CODE CAUSE".

load fleet
load http

setup() { stand_in_setup; }
teardown() { stand_in_teardown; }

# client KIND [OPTION]... CALL...: time enough for each call without ms=N.
client() {
	local kind=$1

	shift
	run --separate-stderr "$BUILD/tests/enclient" "$kind" \
		"$(cat "$T/a.url")" "ipc://$T/store.sock" a 60000 "$@"
}

both() {
	local kind

	for kind in sglang vllm; do
		: >"$T/calls"
		serve a "$kind" "${SERVE[@]}"
		"$@" "$kind"
	done
}

publish_once() {
	client "$1" probe pause+flush load version+resume
	assert_output "probe ok
pause ok
flush ok
load ok
version ok
resume ok"
}

expect_order() {
	publish_once "$1"
	run order
	if [ "$1" = vllm ]; then
		assert_output "a pause
a flush
a mm
a encoder
a load
a sum
a flush
a mm
a encoder
a label
a resume"
	else
		assert_output "a pause
a flush
a load
a sum
a flush
a label
a resume"
	fi
}

@test "HT-02 pause, flush, load, proof, flush, version, resume: in this order" {
	both expect_order
}

say_nothing_that_aborts() {
	publish_once "$1"
	run calls
	if [ "$1" = sglang ]; then
		assert_line --partial 'pause_generation {"mode":"retract"}'
		assert_line --partial '"flush_cache":false'
		assert_line --partial \
			'"new_version":"7","abort_all_requests":false}'
	else
		assert_line --partial '/pause?mode=keep&clear_cache=false'
	fi
	run grep -c weight_version <(calls update_weights_from)
	assert_output 0
}

@test "VF-10 every flag is said, no load carries a label" {
	both say_nothing_that_aborts
}

@test "the mode of a pause: requests may be aborted instead" {
	serve a sglang
	client sglang abort-requests probe pause
	assert_output "probe ok
pause ok"
	run calls pause
	assert_output --partial '{"mode":"abort"}'
}

@test "older dialects: paths that are missing are passed over" {
	SERVE=(--old)
	both publish_once
}

@test "HT-13 the path is absolute" {
	serve a sglang
	client sglang probe pause load
	run calls update_weights
	assert_output --partial "\"model_path\":\"$T/store/staging/000007\""
}

refuse_a_missing_path() {
	faults a "OPTIONS:/flush_cache status:404:" \
		"OPTIONS:/reset_prefix_cache status:404:"
	client "$1" probe
	assert_output --partial "probe E_CONFIG engine a ("
	assert_output --partial "it has no such path"
	run order
	assert_output ""
}

@test "HT-02 FL-11 a server that lacks a call is refused before any pause" {
	both refuse_a_missing_path
}

@test "HT-07 a sleeping server is refused" {
	serve a vllm --asleep
	client vllm probe
	assert_output --partial "E_UNAVAIL"
	assert_output --partial "it is asleep: wake it first"
}

refuse_another_model() {
	client "$1" model=qwen probe
	assert_output --partial \
		"E_CONFIG engine a ($(cat "$T/a.url")): probe:"
	assert_output --partial \
		'it serves "llama", the fleet'"'"'s model is "qwen"'
}

@test "the wrong model at the same port is refused" {
	SERVE=(--served llama)
	both refuse_another_model
}

@test "VF-11 a version that is no canonical number is refused" {
	local text

	serve a vllm
	for text in '"/models/foo"' null '""' '"12~"' 12.0 12 '"0012"' '"-1"' \
		'"18446744073709551616"'; do
		faults a "/weight_info status:200:{\"weight_version\":$text}"
		client vllm probe
		assert_output --partial "probe E_DATA"
		assert_output --partial "its weight version is"
	done
	faults a '/weight_info status:200:{"weight_version":"12"}'
	client vllm probe
	assert_output "probe ok"
}

flush_when_idle() {
	faults a "/flush_cache status:400:pending~requests 3" \
		"/reset_prefix_cache status:400:pending~requests 3"
	client "$1" probe pause+flush
	assert_output "probe ok
pause ok
flush ok"
	[ "$(order flush_cache | wc -l)" -eq 4 ] ||
		[ "$(order reset_prefix | wc -l)" -eq 4 ]
}

@test "HT-01 a flush that is refused is tried again" {
	both flush_when_idle
}

flush_refused_for_ever() {
	faults a "/flush_cache status:400:3~requests~run" \
		"/reset_prefix_cache status:400:3~requests~run"
	client "$1" probe pause ms=2000 flush
	assert_line --partial "flush E_TIMEOUT"
	assert_line --partial "last with 400: 3 requests run"
}

@test "HT-01 a flush that is refused for ever: the last body is shown" {
	both flush_refused_for_ever
}

# Little where all of it is spent.
ms_of() {
	case $1 in
	silent) echo 700 ;;
	trickle | stall) echo 1500 ;;
	*) echo 60000 ;;
	esac
}

# Each fault of a load, and what the message must say.
fail_to_load() {
	local kind=$1 fault text

	while read -r fault text; do
		faults a "/update_weights_from_disk $fault" \
			"/collective_rpc $fault"
		: >"$T/calls"
		client "$kind" probe pause+flush "ms=$(ms_of "$fault")" \
			load+version+resume
		assert_line --regexp "^load E_[A-Z]+ engine a \(.*$text"
		refute_line "resume ok"
		run order 'label\|resume\|weight_version\|continue'
		assert_output ""
	done
}

@test "HT-14 HT-03 loads that end badly: by the deadline, named, never resumed" {
	local kind

	for kind in sglang vllm; do
		serve a "$kind"
		fail_to_load "$kind" <<-'EOF_FAULTS'
		silent no answer
		trickle the answer stopped in its body
		stall the answer stopped in its body
		half closed in the middle
		flood longer than 1048576 bytes
		redirect:http://127.0.0.1:1/elsewhere 307: a redirect to http://127.0.0.1:1/elsewhere
		close closed without
		status:400:no~such~weights 400: no such weights
		status:500:scheduler~died 500: scheduler died
		dpfail rank 1 failed
		200fail said the scheduler
		EOF_FAULTS
	done
}

# A lost answer: asked, SGLang knows.
know_when_asked() {
	local fault

	for fault in lost 500ok; do
		serve a sglang
		faults a "POST:/update_weights_from_disk $fault 1" \
			"POST:/update_weight_version $fault 1" \
			"POST:/continue_generation $fault 1" \
			"POST:/pause_generation $fault 1"
		publish_once sglang
		[[ "$stderr" == *"outcome unknown"* ]]
		[ "$(order update_weights_from | wc -l)" -eq 1 ]
		faults a "/none none"
		: >"$T/calls"
	done
}

@test "HT-05 FL-05 an answer that is lost is asked for, not sent again" {
	know_when_asked
}

@test "HT-05 vLLM cannot be asked for a load: it stays unknown" {
	serve a vllm
	faults a "/collective_rpc lost"
	client vllm probe pause load+resume
	assert_line --partial "load E_IO engine a"
	assert_line --partial "outcome unknown"
	assert_line --partial "resume E_AGAIN"
}

@test "202 and half-answers of a label are not believed" {
	serve a sglang
	faults a "/update_weight_version accepted"
	client sglang probe pause version
	assert_line --partial "version E_IO"
	assert_line --partial "tells version 0"
}

@test "a load that says done and is not" {
	serve a sglang
	faults a '/update_weights_from_disk status:200:{"success":true}'
	client sglang probe pause load
	assert_line --partial "load E_PROTO"
	assert_line --partial 'it says done, but serves "/models/first"'
}

@test "a server that was restarted under way" {
	serve a sglang
	faults a "GET:/server_info restart 1"
	client sglang probe pause load
	assert_line "load ok"
	serve a vllm
	faults a "/weight_checker restart" "/is_paused restart"
	client vllm probe pause load
	assert_line --partial "was it restarted"
}

@test "VF-10 a server that is not paused any more gets no load and no label" {
	serve a sglang
	client sglang probe pause resume load
	assert_line --partial "load E_UNAVAIL engine a"
	assert_line --partial "it is not paused any more"
	run order
	refute_output --partial load
	client sglang probe pause load resume version
	assert_line --partial "version E_UNAVAIL"
	run order
	refute_output --partial label
}

@test "FL-05 an abort resumes what may be paused, and only that" {
	serve a sglang
	client sglang probe abort
	assert_output "probe ok
abort ok"
	run order
	assert_output ""
	client sglang held probe abort
	run order
	assert_output "a resume"
}

@test "VF-05 an abort never resumes what may be partly loaded" {
	serve a sglang
	client sglang poisoned probe abort
	assert_line --partial "abort E_UNAVAIL"
	assert_line --partial "it stays paused until a full load"
	# It was not, any more.
	run order
	assert_output "a pause"
}

@test "VF-05 what cannot be paused again is not said to be paused" {
	serve a sglang
	faults a "POST:/pause_generation status:404:"
	client sglang poisoned probe abort
	assert_line --partial "abort E_UNAVAIL"
	assert_line --partial "it may not be paused: keep requests away from it"
}

@test "HT-06 an abort leaves each group on record by its name, and no other" {
	serve a sglang --cast
	client sglang poisoned group=weir-x-3-19 group=weir-x-4-1 probe abort
	assert_line --partial "it stays paused until a full load"
	run calls weight
	assert_output 'a POST /end_weight_update {}
a POST /destroy_weights_update_group {"group_name":"weir-x-3-19"}
a POST /destroy_weights_update_group {"group_name":"weir-x-4-1"}'
	faults a "/destroy_weights_update_group close"
	client sglang poisoned group=weir-x-3-19 group=weir-x-4-1 probe abort
	assert_line --partial "it does not leave its weight-update group weir-x-3-19, weir-x-4-1: restart it"
}

rolls_back() {
	mkdir -p "$T/before"
	echo old >"$T/before/model.safetensors"
	client "$1" poisoned rollback "previous=$T/before" probe abort
	assert_line "abort ok"
	run calls
	assert_line --partial "\"$T/before\""
	assert_line --index "$((${#lines[@]} - 1))" --regexp \
		'(resume|continue)'
}

@test "HT-09 a rollback pauses, loads the recorded directory, then resumes" {
	serve a sglang
	rolls_back sglang
	: >"$T/calls"
	serve a vllm
	rolls_back vllm
}

@test "HT-05 VF-05 a load is not done because its path was told before" {
	serve a sglang
	faults a "POST:/update_weights_from_disk close 1"
	client sglang poisoned rollback previous=/models/first probe abort
	assert_line --partial "outcome unknown"
	refute_line "abort ok"
	run order
	refute_output --partial resume
}

@test "a key goes along, and is not shown" {
	umask 077
	echo secret-key >"$T/key"
	serve a sglang --token secret-key
	client sglang probe
	assert_line --partial "probe E_PERM"
	client sglang "token=$T/key" probe
	assert_output "probe ok"
	[[ "$stderr" != *secret-key* ]]
	chmod 644 "$T/key"
	client sglang "token=$T/key" probe
	[[ "$stderr" == *"others may read it; chmod 600"* ]]
}

@test "IPv6" {
	python3 -c 'import socket
socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null ||
		skip "no IPv6 here"
	serve a sglang --host ::1
	publish_once sglang
}

@test "nobody at the port: said at once" {
	serve a sglang
	end_server a
	client sglang probe
	assert_line --partial "probe E_UNAVAIL"
	assert_line --partial "not connected"
}
