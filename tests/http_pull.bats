#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, stderr: set by run
# Servers that pull: slime's /pull_weights brings a copy of the server's own
# up to a version directory, whole or by deltas, and it loads that.

load fleet
load delta
load http

setup() {
	http_setup
	mkdir "$T/disk"
}

# pulling NAME...: servers that pull, and a fleet of them.
pulling() {
	local name

	for name; do
		MORE=", pull: \"$T/$name.copy\"" add_alone "$name" sglang --pull
	done
}

# step N: the checkpoint, of which a few elements are others than before.
step() {
	[ ! -d "$T/v$1" ] || return 0
	if [ "$1" -eq 1 ]; then
		mkckpt --size 1MiB --seed 1 "$T/v1" >/dev/null
	else
		mkstep --part 0.001 --seed "$1" "$T/v$(($1 - 1))" "$T/v$1" >/dev/null
	fi
}

# try N [OPTION]...: a push of checkpoint N, by deltas where there is a base.
try() {
	local n=$1

	shift
	step "$n"
	run --separate-stderr push "$T/v$n" --transport delta --disk-dir \
		"$T/disk" --engine-timeout 20s --load-timeout 20s \
		--accept-proof sampled "$@"
}

# publish N AS [OPTION]...: checkpoint N is published as version AS.
publish() {
	local n=$1 as=$2

	shift 2
	try "$n" "$@"
	published "$as"
}

# The directory of an engine's copies for this registry.
copy_of() { echo "$T/$1.copy/$(cat "$T/registry/id")"; }

# has NAME N: its copy is checkpoint N.
has() {
	slime same "$T/v$2" "$(copy_of "$1")"
}

# The most of them that were pulling at one time.
most_pulling() {
	awk '/pull_weights/ && / POST / {
			n += $2 == "begin" ? 1 : -1
			if (n > most) most = n
		}
		END { print most + 0 }' "$T/calls"
}

is_delta() { grep -q delta_encoding "$T/disk/weight_v$1"/*.index.json; }

@test "VF-11 pull: the first version whole, then deltas; pulled while it serves" {
	pulling a
	publish 1 1
	has a 1
	publish 2 2
	is_delta 000002
	has a 2
	tells 2 a
	run order '^a '
	assert_line --index 8 "a pull"
	assert_line --index 9 "a pause"
	assert_line --index 11 "a load"
	assert_line --index 15 "a resume"
	run calls pull_weights
	assert_line --index 1 "a POST /pull_weights {\"local_checkpoint_dir\":\"$(copy_of a)\",\"source_dir\":\"$(realpath "$T/disk")\",\"target_version\":2}"
	run calls update_weights_from
	assert_line --index 1 --partial "\"model_path\":\"$(copy_of a)\""
	run --separate-stderr weir-status --registry "$T/registry" --json
	[ "$(jq -c '[.engines[] | .name, .serving, .lagging]' <<<"$output")" = \
		'["a",2,false]' ]
}

@test "I6 pull: in waves, all of them before any pause" {
	pulling a b c
	publish 1 1 --max-inflight-engine-groups 1
	[ "$(most_pulling)" -eq 1 ]
	[ "$(order | grep -c ' pull$')" -eq 3 ]
	run order
	assert_line --index 2 "c pull"
	assert_line --index 3 --partial pause
}

@test "FL-11 pull: a server without slime's patch is refused, untouched" {
	pulling a b
	serve b sglang
	sed -i "s#\(name: b, .*url: \)[^,]*#\1\"$(cat "$T/b.url")\"#" \
		"$T/fleet.yaml"
	try 1
	assert_equal "$status" 78
	[[ "$stderr" == *"engine b ("*"/pull_weights: it has no such path"* ]]
	run order
	assert_output ""
}

# Each way in which a pull ends badly: nobody was paused, the old version is
# served, and the next push is whole, by a number that was not tried.
@test "VF-02 HT-05 DK-02 a pull that fails, or may have: not paused, next whole" {
	local n=2 fault code text

	pulling a
	publish 1 1
	while read -r fault code text; do
		: >"$T/calls"
		faults a "POST:/pull_weights $fault"
		try "$n"
		assert_equal "$status" "$code"
		[[ "$stderr" == *"engine a ("*"receipt: /pull_weights: "*"$text"* ]]
		run order
		assert_output "a pull"
		n=$((n + 1))
	done <<-'EOF_FAULTS'
	status:400:checksum~mismatch 1 400: checksum mismatch
	lost 1 outcome unknown
	EOF_FAULTS
	faults a "/none none"
	: >"$T/calls"
	try "$n" --weight-version 3
	assert_equal "$status" 65
	[[ "$stderr" == *"version 3 is not above 3, which was tried before: an engine may have pulled that"* ]]
	publish "$n" 4
	run is_delta 000004
	assert_failure
	has a "$n"
	publish $((n + 1)) 5
	is_delta 000005
	has a $((n + 1))
}

@test "HT-14 a pull without an answer ends by the deadline" {
	pulling a
	faults a "POST:/pull_weights silent"
	try 1 --load-timeout 3s
	assert_equal "$status" 1
	[[ "$stderr" == *"/pull_weights: outcome unknown: no answer"* ]]
	run order
	assert_output "a pull"
}

@test "pull: an encoding that slime does not read is refused" {
	pulling a
	try 1 --delta-encoding auto
	assert_equal "$status" 1
	[[ "$stderr" == *"engine a pulls, and reads --delta-encoding xor and overwrite alone"* ]]
	publish 1 2 --delta-encoding overwrite
	publish 2 3 --delta-encoding overwrite
	is_delta 000003
	has a 2
}

@test "HT-06 pull: decided and not told yet, the next commit brings it home" {
	pulling a
	publish 1 1
	step 2
	faults a "POST:/update_weight_version hold:$T/go"
	start push weir-push --source "$T/v2" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --accept-proof sampled \
		--engine-timeout 60s --transport delta --disk-dir "$T/disk"
	wait_for contains "$T/calls" '"new_version":"2"'
	kill -KILL "$(pid_of push)"
	wait_for is_dead "$(pid_of push)"
	decided 2
	wait_for no_stages
	: >"$T/calls"
	faults a "GET:/model_info restart 1"
	publish 3 3
	run calls pull_weights
	assert_line --index 0 --partial '"target_version":2'
	run order
	assert_line --index 0 "a pull"
	assert_line --index 1 "a pause"
	# It may have been restarted since: what it has is asked for again.
	assert_line --index 2 "a pull"
	assert_line --index 3 "a load"
	run calls update_weight_version
	assert_line --index 0 --partial '"new_version":"2"'
	has a 3
}
