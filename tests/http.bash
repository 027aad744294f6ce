# shellcheck shell=bash
# shellcheck disable=SC2154 # for the suites; set by run
# http.bash - stand-ins for SGLang and vLLM servers, for the suites.
#
#	load fleet
#	load http
#
# PYTHON: who runs them; of delta.bash for servers that pull.

# A suite's setup_file and teardown_file: the process that is all servers.
start_servers() {
	SERVERS=$BATS_FILE_TMPDIR/servers
	"${PYTHON:-python3}" "$SRC/tests/fakehttp.py" "$SERVERS" 3>&- \
		>"$SERVERS.log" 2>&1 </dev/null &
	SERVERS_PID=$!
	export SERVERS SERVERS_PID
	wait_for test -s "$SERVERS"
}

stop_servers() { kill_and_reap "$SERVERS_PID"; }

setup_file() { start_servers; }
teardown_file() { stop_servers; }

setup() { http_setup; }

http_setup() {
	common_setup
	export no_proxy='*'
	: >"$T/calls"
}

# The setup and teardown of a suite whose servers have a stand-in for a store.
stand_in_setup() {
	http_setup
	start_stand_in
}

stand_in_teardown() {
	end_stand_in
	common_teardown
}

# A stand-in for the store beside a server, with version 7 in it.
start_stand_in() {
	mkdir -p "$T/store/staging/000007" "$T/store/versions/000007"
	echo new >"$T/store/staging/000007/model.safetensors"
	echo new >"$T/store/versions/000007/model.safetensors"
	start store "$BUILD/tests/fakeengine" "ipc://$T/store.sock" name=a \
		"store=$T/store"
	wait_for test -S "$T/store.sock"
}

# Signals leave its sockets behind.
end_stand_in() {
	kill_and_reap "$(pid_of store)"
	rm -f "$T/store.sock" "$T/store.sock.fd"
}

# Says one line to them; prints the answer.
tell_servers() {
	local answer

	exec 8<>"/dev/tcp/127.0.0.1/$(cat "$SERVERS")"
	echo "$*" >&8
	read -r answer <&8
	exec 8>&-
	echo "$answer"
}

# serve NAME KIND [OPTION]...: a new server; its URL is in $T/NAME.url, what
# all of them are asked goes to $T/calls.
serve() {
	local name=$1 kind=$2

	shift 2
	rm -f "$T/$name.faults"
	tell_servers new --dir "$T" --name "$name" --kind "$kind" "$@" \
		>"$T/$name.url"
}

# Nobody listens at its port any more.
end_server() { tell_servers end --dir "$T" --name "$1"; }

# faults NAME LINE...: see fakehttp.py; none: it works well again.
faults() {
	local name=$1

	shift
	printf '%s\n' "$@" >"$T/$name.faults"
}

# calls [PATTERN]: what was asked, without questions: "NAME POST TARGET BODY".
calls() {
	sed -n 's/^\([^ ]*\) begin \(POST .*\)/\1 \2/p' "$T/calls" |
		grep -e "${1:-.}" || true
}

# The same, each as "NAME WORD".
order() {
	calls "${1:-}" | sed -E \
		-e 's#^([^ ]*) POST /(pause_generation|pause).*#\1 pause#' \
		-e 's#^([^ ]*) POST /(flush_cache|reset_prefix).*#\1 flush#' \
		-e 's#^([^ ]*) POST /reset_(mm|encoder)_cache.*#\1 \2#' \
		-e 's#^([^ ]*) POST /pull_weights.*#\1 pull#' \
		-e 's#^([^ ]*) POST /update_weights_from_distrib.*#\1 cast#' \
		-e 's#^([^ ]*) POST /update_weights .*#\1 cast#' \
		-e 's#^([^ ]*) POST /(init|destroy)_weights?_.*#\1 \2#' \
		-e 's#^([^ ]*) POST /shutdown_weight_tr.*#\1 destroy#' \
		-e 's#^([^ ]*) POST /(begin|start)_weight_update.*#\1 begin#' \
		-e 's#^([^ ]*) POST /(end|finish)_weight_update.*#\1 end#' \
		-e 's#^([^ ]*) POST /(update_weights_from|collective).*#\1 load#' \
		-e 's#^([^ ]*) POST /weights?_checker.*#\1 sum#' \
		-e 's#^([^ ]*) POST /update_weight_version.*#\1 label#' \
		-e 's#^([^ ]*) POST /(continue_generation|resume).*#\1 resume#'
}

# add_alone NAME KIND [OPTION]...: a new server in the fleet, by its url, and
# ${MORE:-}, alone.
add_alone() {
	[ -s "$T/fleet.yaml" ] || echo "engines:" >"$T/fleet.yaml"
	serve "$@"
	printf '  - {name: %s, kind: %s, url: "%s"%s}\n' "$1" "$2" \
		"$(cat "$T/$1.url")" "${MORE:-}" >>"$T/fleet.yaml"
}

# source_of N: the checkpoint that is to be version N, in $T/vN.
source_of() {
	[ -d "$T/v$1" ] || checkpoint "$T/v$1" --size 1MiB --seed "$1"
}

# try N [OPTION]...: a push of it, with the suite's ${TRY[@]}; the test says how
# it ends.
try() {
	local n=$1

	shift
	source_of "$n"
	run --separate-stderr push "$T/v$n" "${TRY[@]}" "$@"
}

# publish N [OPTION]...: a push that must publish N.
publish() {
	try "$@"
	published "$1"
}

# published N: the push that was run has published version N.
published() {
	[ "$status" -eq 0 ] || echo "$stderr" >&2
	assert_equal "$status" 0
	decided "$1"
}

# tells N NAME...: each server tells that version.
tells() {
	local n=$1 name

	shift
	for name; do
		assert_equal "$name: $(tell_servers label --dir "$T" \
			--name "$name")" "$name: $n"
	done
}

# Version 1 with one thing changed is refused, and nobody is asked anything.
is_another_model() {
	local name=$1

	run --separate-stderr push "$T/bad" "${@:2}"
	assert_equal "$status" 65
	[[ "$stderr" == *"$name"*"version 1, which engine "* ]] || {
		echo "$stderr" >&2
		false
	}
	run order
	assert_output ""
	rm -r "$T/bad"
}

# refuses_another_model [OPTION]...: of push, for the fleet at hand.
refuses_another_model() {
	tensors "$T/v1" model.norm.w:BF16:8 lm_head.weight:BF16:64,8
	publish 1
	: >"$T/calls"
	tensors "$T/bad" model.norm.w:BF16:8
	is_another_model lm_head.weight "$@"
	tensors "$T/bad" norm.w:BF16:8 lm_head.weight:BF16:64,8
	is_another_model '"norm.w"' "$@"
	tensors "$T/bad" model.norm.w:F32:8 lm_head.weight:BF16:64,8
	is_another_model '"model.norm.w"' "$@"
}

# is_kept_paused NAME: it was asked something, and last not to resume.
is_kept_paused() {
	local last

	last=$(order "^$1 " | tail -n 1)
	[[ -n $last && $last != *resume ]]
}
