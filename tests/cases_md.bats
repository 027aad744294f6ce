#!/usr/bin/env bats
# MD - a checkpoint that is whole, but not of the model that engines serve.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

# The model of every test: an embedding, two layers, a head.
MODEL=("model.embed_tokens.weight:BF16:64,8" "model.layers.0.w:BF16:512,4"
	"model.layers.1.w:BF16:512,4" "lm_head.weight:BF16:64,8")

# serves_model NAME...: version 1, from $T/one.
serves_model() {
	engines "$@"
	fleet "$@"
	tensors "$T/one" "${MODEL[@]}"
	push "$T/one" >/dev/null 2>&1
}

# like DIR SED...: the model with one thing changed.
like() {
	local dir=$1 names=()

	shift
	mapfile -t names < <(printf '%s\n' "${MODEL[@]}" | sed "$@")
	tensors "$dir" "${names[@]}"
}

# other PART...: the checkpoint $T/bad is refused, by each engine's word.
other() {
	run --separate-stderr push "$T/bad"
	refused 65 "$@" "version 1" "engine a" "--expect any"
	still_one a
}

@test "MD-01 a head that engines have and the checkpoint lacks" {
	serves_model a b
	like "$T/bad" /lm_head/d
	other lm_head.weight missing
	still_one b
	push "$T/bad" --expect any >/dev/null 2>&1
	holds a "$T/bad"
	holds b "$T/bad"
	# Tied from now on: that is what is expected.
	rm -rf "$T/bad"
	like "$T/bad" ''
	run --separate-stderr push "$T/bad"
	refused 65 lm_head.weight "not in version 2"
}

@test "MD-04 names that would match nothing are refused, the first by name" {
	serves_model a
	like "$T/bad" 's/^model[.]//'
	other '"embed_tokens.weight"' "not in"
}

@test "MD-05 a slice in the place of the whole tensor" {
	serves_model a
	like "$T/bad" '/layers.1/s/512/256/'
	other '"model.layers.1.w"' "BF16 [256,4]" "BF16 [512,4]"
}

@test "MD-08 another dtype: no silent cast" {
	serves_model a
	like "$T/bad" '/layers/s/BF16/F32/'
	other '"model.layers.0.w"' "F32 [512,4]" "BF16 [512,4]"
	push "$T/bad" --expect any >/dev/null 2>&1
	holds a "$T/bad"
}

@test "MD-08 by hand: the four end alike, and no engine is asked to begin" {
	serves_model a
	like "$T/bad" 's/BF16/F16/'
	codes=()
	by_hand "$T/bad" "" "" "" >"$T/out" 2>"$T/err" ||
		codes=("${PIPESTATUS[@]}")
	assert_equal "${codes[*]}" "65 65 65 65"
	still_one a
}

@test "MD-07 MD-08 the same tensors in other files are the same model" {
	serves_model a
	checkpoint "$T/whole" --size 1MiB --seed 1
	checkpoint "$T/parts" --size 1MiB --seed 2 --shards 4
	push "$T/whole" --expect any >/dev/null 2>&1
	push "$T/parts" >/dev/null 2>&1
	holds a "$T/parts"
	push "$T/whole" >/dev/null 2>&1
	holds a "$T/whole"
}

@test "MD-08 who serves nothing expects nothing; who lags is no measure" {
	serves_model a
	like "$T/two" 's/BF16/F32/'
	push "$T/two" --expect any >/dev/null 2>&1
	engine b
	fleet a b
	push "$T/two" >/dev/null 2>&1
	holds b "$T/two"
	stop b
	fleet a
	push "$T/one" --expect any >/dev/null 2>&1
	engine b
	fleet a b
	push "$T/one" >/dev/null 2>&1
	holds b "$T/one"
}

@test "MD-08 an engine started again, or of a lost registry" {
	serves_model a
	stop a
	engine a
	like "$T/bad" 's/BF16/F32/'
	other '"model.embed_tokens.weight"' F32 BF16
	stop a
	mv "$T/registry" "$T/lost"
	engine a --adopt
	run --separate-stderr push "$T/bad" --weight-version 2
	refused 65 structure "version 1" "engine a" "--expect any"
	push "$T/one" --weight-version 2 >/dev/null 2>&1
	holds a "$T/one"
}

@test "MD-09 post-load once for each version, after the last byte, before swap" {
	tensors "$T/one" "${MODEL[@]}"
	cat >"$T/post.sh" <<-EOF
	cmp '$T/one/model.safetensors' "\$WEIR_SLOT/model.safetensors" &&
	cmp '$T/one/config.json' "\$WEIR_SLOT/config.json" || exit
	echo "\$WEIR_VERSION:\$(readlink '$T/a/current')" >>'$T/post'
	EOF
	engine a --post-load "sh '$T/post.sh'"
	fleet a
	for _ in 1 2 3; do
		push "$T/one" --bucket-size 1000 >/dev/null 2>&1
	done
	assert_equal "$(xargs <"$T/post")" \
		"1: 2:versions/000001 3:versions/000002"
}

@test "MD-10 a second set of weights in the index is one version with the first" {
	local index='{"weight_map":{"a":"model.safetensors","b":"draft/model.safetensors"}}'

	engines a
	fleet a
	tensors "$T/one" a:BF16:4
	tensors "$T/one/draft" b:BF16:2
	rm "$T/one/draft/config.json"
	echo "$index" >"$T/one/model.safetensors.index.json"
	push "$T/one" >/dev/null 2>&1
	run diff -r "$T/one" "$T/a/current"
	assert_output ""
	# Left out by the next push: said, as a tensor that is missing.
	tensors "$T/bad" a:BF16:4
	run --separate-stderr push "$T/bad"
	refused 65 '"b"' missing "--expect any"
	assert_equal "$(serving a)" 1
}
