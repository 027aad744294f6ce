#!/usr/bin/env bats
# shellcheck disable=SC2154,SC2030,SC2031 # set by run; subshells by intent
# Every endpoint of both engines, in both dialects, with every fault: each
# call ends by its deadline and says what it met; nothing is resumed after a
# load that may have failed.
#
# Most of the time is waiting: rows are tried side by side, each with a server
# of its own.

load fleet
load http

setup() { stand_in_setup; }
teardown() { stand_in_teardown; }

FAULTS="slow silent stall trickle half close lie flood"

# CALL ENDPOINT WHAT: the call that meets it.  WHAT: "must", or "may": it is
# passed over where it fails, but its time is spent; "text": any answer is
# one, even a lie.
sglang_new="probe GET:/model_info must
probe GET:/server_info may
probe GET:/ready text
probe OPTIONS:/pause_generation text
probe OPTIONS:/flush_cache text
probe OPTIONS:/update_weights_from_disk text
probe OPTIONS:/update_weight_version text
probe OPTIONS:/weights_checker may
probe OPTIONS:/get_weights_by_name may
pause POST:/pause_generation must
flush POST:/flush_cache text
load POST:/update_weights_from_disk must
load POST:/weights_checker may
version POST:/update_weight_version must
resume POST:/continue_generation must"
sglang_old="probe GET:/get_model_info must
probe GET:/get_server_info may
load POST:/get_weights_by_name may"
vllm_new="probe GET:/v1/models must
probe GET:/is_sleeping must
probe GET:/is_paused must
probe GET:/weight_info must
probe OPTIONS:/pause text
probe OPTIONS:/reset_prefix_cache text
probe OPTIONS:/collective_rpc text
probe OPTIONS:/weight_checker may
pause POST:/pause must
flush POST:/reset_prefix_cache text
flush POST:/reset_mm_cache text
flush POST:/reset_encoder_cache text
load POST:/collective_rpc must
load POST:/weight_checker may
version POST:/update_weight_version must
resume POST:/resume must"
vllm_old="pause POST:/pause must
load POST:/collective_rpc must
resume POST:/resume must"

# calls_to CALL MS: the calls up to that one, which has MS, and what must not
# happen behind it.
calls_to() {
	case $1 in
	probe) echo "ms=$2 probe" ;;
	pause) echo "probe ms=$2 pause+flush" ;;
	flush) echo "probe pause ms=$2 flush" ;;
	load) echo "probe pause+flush ms=$2 load+version+resume" ;;
	version) echo "probe pause+flush load ms=$2 version+resume" ;;
	resume) echo "probe pause+flush load version ms=$2 resume" ;;
	esac
}

# ms_of CALL FAULT: little where all of it is spent.
ms_of() {
	case $1/$2 in
	*/slow | */lie) echo 20000 ;;
	flush/* | */silent | */stall | */trickle) echo 600 ;;
	*) echo 20000 ;;
	esac
}

# is_right CALL WHAT FAULT FILE: is that how it has to end?
is_right() {
	case $2/$3 in
	*/slow | text/lie) ! grep -qv ' ok$' "$4" ;;
	may/lie | may/half | may/close | may/flood) ! grep -qv ' ok$' "$4" ;;
	may/*) grep -Eq "^$1 (ok|E_TIMEOUT .*engine )" "$4" ;;
	*) grep -Eq "^$1 E_[A-Z]+ engine " "$4" && ! grep -q '^resume ok' "$4" ;;
	esac
}

# One row with one fault; says so if it does not end as it has to.
try_one() {
	local kind=$1 age=$2 call=$3 target=$4 what=$5 fault=$6
	local name="$kind.$age.${target//[:\/]/_}.$fault" rc=0

	# shellcheck disable=SC2046 # words of calls_to, an option or none
	serve "$name" "$kind" $([ "$age" = new ] || echo --old)
	faults "$name" "$target $fault"
	# shellcheck disable=SC2046
	timeout 200 "$BUILD/tests/enclient" "$kind" "$(cat "$T/$name.url")" \
		"ipc://$T/store.sock" a 20000 \
		$(calls_to "$call" "$(ms_of "$call" "$fault")") \
		>"$T/$name.out" 2>"$T/$name.err" || rc=$?
	[ "$rc" -eq 0 ] && is_right "$call" "$what" "$fault" "$T/$name.out" &&
		return
	echo "$name: $call ($what) ended with $rc:"
	cat "$T/$name.out"
}

# rows KIND AGE TABLE: all of them, with all faults.
rows() {
	local fault

	while read -r row; do
		for fault in $FAULTS; do
			echo "$1 $2 $row $fault"
		done
	done <<<"$3"
}

# Eight side by side: what takes long is silence.
matrix() {
	export -f try_one is_right calls_to ms_of serve faults tell_servers
	export T BUILD SERVERS
	run xargs -P 8 -L 1 bash -c 'try_one "$@"' _ <"$T/rows"
	assert_output ""
	assert_equal "$status" 0
}

@test "HT-14 HT-05 every endpoint of SGLang with every fault, both dialects" {
	rows sglang new "$sglang_new" >"$T/rows"
	rows sglang old "$sglang_old" >>"$T/rows"
	matrix
}

@test "HT-14 HT-05 every endpoint of vLLM with every fault, both dialects" {
	rows vllm new "$vllm_new" >"$T/rows"
	rows vllm old "$vllm_old" >>"$T/rows"
	matrix
}
