#!/usr/bin/env bats
# --post-load fp8: what comes of a checkpoint, and when it is refused.  The
# numbers are unit_fp8's.

bats_require_minimum_version 1.5.0
load cases

# `make interop-fp8` has numbers rounded by ml_dtypes, and takes more of them.
FP8_PYTHON=${FP8_PYTHON:-python3}
FP8_CHECK=${FP8_CHECK:-}
FP8_SIZE=${FP8_SIZE:-200KiB}

# two_shards DIR SEED: numbers like weights, with an index.
two_shards() {
	checkpoint "$1" --size "$FP8_SIZE" --layers 1 --shards 2 --finite --seed "$2"
}

# finite DIR NAME:DTYPE:SHAPE...
finite() { tensors --finite "$@"; }

# right SOURCE NAME [OPTION]...: what the engine serves is that, quantised.
right() {
	# shellcheck disable=SC2086 # an option, or none
	run "$FP8_PYTHON" "$SRC/tests/fp8check.py" $FP8_CHECK "${@:3}" \
		"$1" "$T/$2/current"
	assert_success
	assert_output --regexp '^[1-9][0-9]* numbers.*: right$'
}

# A core that we may use.
one_core() { taskset -pc $$ | sed 's/.*[: ,-]\([0-9][0-9]*\)$/\1/'; }

same() { diff -r "$T/$1/current/" "$T/$2/current/"; }

# installed N NAME: the digest in that engine's record of version N.
installed() {
	weir-dump "$T/$2/slots/$(printf %06d "$1")" |
		sed -n 's/.*"installed":"\([0-9a-f]*\)".*/\1/p'
}

@test "fp8: waves of two, value by value; twice the same, whatever the cores" {
	local name

	two_shards "$T/one" 1
	two_shards "$T/two" 2
	for name in a b c; do
		engine "$name" --post-load fp8
	done
	start d taskset -c "$(one_core)" weir-engine --name d --store "$T/d" --post-load fp8 \
		--listen "ipc://$T/d.sock"
	wait_for test -S "$T/d.sock"
	fleet a b c d
	run --separate-stderr push "$T/one" --max-inflight-engine-groups 2
	assert_success
	right "$T/one" a
	same a b
	same a c
	same a d
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_success
	push "$T/two" --max-inflight-engine-groups 2 >"$T/out" 2>&1
	right "$T/two" b
	same a b
	same a d
	push "$T/one" >"$T/out" 2>&1
	right "$T/one" c
	assert_equal "$(installed 3 a)" "$(installed 1 a)"
	assert_equal "$(installed 3 d)" "$(installed 1 a)"
	refute [ "$(installed 2 a)" = "$(installed 1 a)" ]
	# Not what was received: files, sizes and names are others'.
	for name in a b c d; do
		assert_equal "$(ls -A "$T/$name/staging")" ""
	done
}

@test "fp8: every dtype and shape, and what is left as it is" {
	local l=model.layers.0

	finite "$T/one" "$l.self_attn.q_proj.weight:BF16:130,257" \
		"$l.self_attn.k_proj.weight:F16:1,300" \
		"$l.self_attn.v_proj.weight:F32:129,1" \
		"$l.self_attn.o_proj.weight:F8_E4M3:5,7" \
		"$l.self_attn.o_proj.weight_scale_inv:F32:1,1" \
		"$l.self_attn.q_proj.bias:BF16:130" "$l.mlp.gate.weight:BF16:8,64" \
		"$l.mlp.experts.gate_up_proj:BF16:2,3,4" "$l.mlp.s:F32:" \
		"$l.mlp.up_proj.weight:BF16:0,5" "$l.input_layernorm.weight:F32:64" \
		"model.embed_tokens.weight:BF16:20,64" "lm_head.weight:F16:20,64" \
		"visual.blocks.0.attn.qkv.weight:BF16:30,40" "odd:U8:3" "wide:F64:2"
	engine a --post-load fp8
	fleet a
	push "$T/one" >"$T/out" 2>&1
	right "$T/one" a --quantised '0\.self_attn\.[qkv]_proj\.weight$'
}

@test "fp8: config and index keep what else they have; no config is made one" {
	two_shards "$T/one" 1
	python3 - "$T/one" <<-'END'
		import json, sys
		path = sys.argv[1] + "/config.json"
		config = json.load(open(path))
		config["deep"] = [{"a": {"b": [1, 1e-05, "\u00e9\n\u2028", None]}}]
		config["time_step_limit"] = [0.0, float("inf"), -float("inf")]
		json.dump(config, open(path, "w"), separators=(",", ":"))
		path = sys.argv[1] + "/model.safetensors.index.json"
		index = json.load(open(path))
		index["metadata"]["total_parameters"] = 12345
		json.dump(index, open(path, "w"))
	END
	engine a --post-load fp8
	fleet a
	push "$T/one" >"$T/out" 2>&1
	right "$T/one" a
	assert_equal "$(jq .metadata.total_parameters \
		"$T/a/current/model.safetensors.index.json")" 12345
	rm "$T/one/config.json"
	push "$T/one" >"$T/out" 2>&1
	echo '{}' >"$T/one/config.json"
	right "$T/one" a
}

# refuses PART...: of $T/bad, and version 1 is served still, quantised.
refuses() {
	run --separate-stderr push "$T/bad" --expect any
	refused 1 "engine a" "$@"
	assert_equal "$(serving a)" 1
	assert_equal "$(ls -A "$T/a/staging")" ""
}

@test "fp8: what cannot be quantised is refused by name, the old one served" {
	local w=model.layers.0.mlp.up_proj.weight

	two_shards "$T/one" 1
	engine a --post-load fp8
	fleet a
	push "$T/one" >"$T/out" 2>&1
	finite "$T/bad" "$w:BF16:200,300"
	# Row 150, column 7: infinity.
	printf '\x80\x7f' | dd of="$T/bad/model.safetensors" bs=1 conv=notrunc \
		seek=$(($(stat -c %s "$T/bad/model.safetensors") - 120000 + \
			2 * (150 * 300 + 7))) status=none
	refuses "tensor \"$w\": NaN or infinity at row 150, column 7"
	finite "$T/bad" "$w:BF16:200,300"
	echo '{"a": 1, "quantization_config": {}}' >"$T/bad/config.json"
	refuses "config.json has a quantization_config"
	echo '{"text_config": {"quantization_config": {"quant_method": "x"}}}' \
		>"$T/bad/config.json"
	refuses "config.json has a quantization_config"
	right "$T/one" a
	# Of nothing, or of a part that stays as it is.
	echo '{"quantization_config": null, "a": 1, "text_config":
		{"b": 2, "quantization_config": null}, "vision_config":
		{"quantization_config": {"quant_method": "x"}}}' \
		>"$T/one/config.json"
	push "$T/one" >"$T/out" 2>&1
	right "$T/one" a
}

@test "fp8: the bare name is built in, ./fp8 is a command" {
	two_shards "$T/one" 1
	printf '#!/bin/sh\necho mine >"$WEIR_SLOT/mine"\n' >"$T/fp8"
	chmod +x "$T/fp8"
	cd "$T"
	PATH=$T:$PATH engine a --post-load fp8
	engine b --post-load ./fp8
	fleet a b
	push "$T/one" >"$T/out" 2>&1
	right "$T/one" a
	holds b "$T/one"
	assert_equal "$(cat "$T/b/current/mine")" mine
}

@test "fp8: no room for a shard beside it: said at begin, or when it is known" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	finite "$T/one" l.up_proj.weight:BF16:1000,1000
	finite "$T/two" lm_head.weight:BF16:1000,950 l.up_proj.weight:BF16:10,10
	start a unshare -m sh -c "mkdir '$T/a' && mount -t tmpfs -o size=2900k \
		none '$T/a' && exec weir-engine --name a --store '$T/a' \
		--listen 'ipc://$T/a.sock' --post-load fp8 --load-timeout 60s"
	wait_for test -S "$T/a.sock"
	fleet a
	run --separate-stderr push "$T/one"
	assert_equal "$status" 1
	one_error "engine a" "no space in" "need 30001"
	run --separate-stderr push "$T/two"
	assert_equal "$status" 1
	one_error "engine a" "no space beside model.safetensors" "need 1900"
}

@test "fp8: memory is that of its threads, whatever the checkpoint" {
	local kib peak=0

	skip_if_sanitized
	tensors --sparse "$T/one" l.up_proj.weight:BF16:32768,1024 \
		l.down_proj.weight:BF16:32768,1024
	start a taskset -c "$(one_core)" weir-engine --name a --store "$T/a" \
		--listen "ipc://$T/a.sock" --post-load fp8
	wait_for test -S "$T/a.sock"
	fleet a
	start_push p "$T/one"
	while ! is_dead "$(pid_of p)"; do
		kib=$(awk '/^RssAnon/ { print $2 }' "/proc/$(pid_of a)/status")
		((kib <= peak)) || peak=$kib
	done
	ends_with 0 p
	grep -q '"l.up_proj.weight_scale_inv"' "$T/a/current/model.safetensors"
	echo "peak: $peak KiB"
	[ "$peak" -gt 0 ]
	[ "$peak" -le $(((3 + 32) * 1024)) ]
}

# slow_engine WHAT: its writes to the new files are slow, or the nth kills it.
# One thread writes all.
slow_engine() {
	strace -qq -e trace=none true || skip "no ptrace here"
	skip_if_sanitized
	finite "$T/one" l.up_proj.weight:BF16:6400,128
	start a taskset -c "$(one_core)" strace -qq -D -f -o /dev/null \
		-P "$T/a/staging/000001/.weir-fp8" \
		-e trace=pwrite64 -e inject="pwrite64:$1" weir-engine --name a --store "$T/a" \
		--listen "ipc://$T/a.sock" --post-load fp8
	wait_for test -S "$T/a.sock"
	fleet a
}

@test "fp8: killed in the middle, the slot is dropped; the next push is whole" {
	slow_engine signal=KILL:when=7
	run --separate-stderr push "$T/one"
	assert_failure
	wait_for_end "$(pid_of a)" || true
	assert_exist "$T/a/staging/000001/.weir-fp8"
	engine a --post-load fp8
	assert_equal "$(ls -A "$T/a/staging")" ""
	run --separate-stderr push "$T/one"
	assert_success
	right "$T/one" a
	assert_not_exist "$T/a/current/.weir-fp8"
}

# converting NAME: that push is on its way, version 1 half done.
converting() {
	start_push "$1" "$T/one"
	wait_for test -e "$T/a/staging/000001/.weir-fp8"
}

@test "fp8: a cancel ends it in the middle, and so does SIGTERM" {
	slow_engine delay_enter=200000
	converting one
	kill "$(pid_of one)"
	ends_with 143 one
	wait_for test ! -e "$T/a/staging/000001"
	converting two
	stop a
	assert_exist "$T/a/staging/000001"
	assert_not_exist "$T/a/staging/000001/.weir-fp8"
	kill "$(pid_of two)"
	wait_for_end "$(pid_of two)" || true
	run grep -c 'post-load fp8: 1 of' "$T/a.err"
	assert_output 0
}
