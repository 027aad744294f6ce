#!/usr/bin/env bats
# shellcheck disable=SC2154 # stderr: set by run
# Checkpoints as people published them: the layouts of fixtures/mkpublic.py.
# "N bytes" are the sizes of the public files: the look-alikes are true.

bats_require_minimum_version 1.5.0
load fleet

# make LAYOUT [OPTION]: in $T/c.
make() {
	rm -rf "$T/c"
	"$SRC/tests/fixtures/mkpublic.py" "$@" "$T/c"
}

plan() {
	run --separate-stderr weir-plan --source "${CHECKPOINT:-$T/c}" \
		--engine "ipc://$T/e" -o "$T/plan" "$@"
}

# A field of the plan's end record.
end_field() {
	weir-dump "$T/plan" | tail -n 1 | grep -o "\"$1\":[0-9]*" | cut -d: -f2
}

# plans LAYOUT TENSORS: all of it, and every byte of its files.
plans() {
	make "$1"
	plan
	assert_success
	assert_equal "$(end_field tensors)" "$2"
	assert_equal "$(end_field bytes)" "$(find -L "$T/c" -maxdepth 1 \
		-type f -printf '%s\n' | awk '{ n += $1 } END { printf "%.0f", n }')"
}

# refuses CODE PART...: what is in $T/c.
refuses() {
	rm -f "$T/plan"
	plan
	one_line_error "$@"
	[ ! -e "$T/plan" ]
}

# is_long FILE BYTES
is_long() { assert_equal "$(stat -c %s "$T/c/$1")" "$2"; }

# The layer or expert that stands in more than one file, counted.
split_over_files() {
	weir-dump "$T/plan" | python3 -c '
import collections, json, re, sys
files = collections.defaultdict(set)
for line in sys.stdin:
    for p in json.loads(line).get("parts", ()):
        m = re.match(sys.argv[1], p["name"])
        if m:
            files[m[0]].add(p["file"])
print(sum(len(v) > 1 for v in files.values()), len(files))' "$1"
}

@test "gemma-2b: a layer in both files, no head and no word about it" {
	plans gemma-2b 164
	is_long model-00001-of-00002.safetensors 4945242264
	is_long model-00002-of-00002.safetensors 67121608
	assert_equal "$(split_over_files 'model.layers.[0-9]+[.]')" "1 18"
}

@test "MD-01 a head that is not there and not tied is named" {
	make gemma-2b
	echo '{"model_type": "gemma", "tie_word_embeddings": false,
	      "architectures": ["GemmaForCausalLM"]}' >"$T/c/config.json"
	refuses 65 lm_head.weight
}

@test "BLOOM: headers without padding, data at odd offsets" {
	plans bloom-one-index 845
	is_long model_00072-of-00072.safetensors 57530
	weir-dump "$T/plan" >"$T/json"
	# 8 bytes more than the lengths of the headers; the order within a
	# layer's file is not on record, so that 1249 was 1309.
	for header in 327 1249 186; do
		grep -q "\"header\":$header," "$T/json"
	done
}

@test "BLOOM's index of two documents" {
	make bloom
	refuses 65 model.safetensors.index.json "follows the end of the document"
}

@test "MD-07 WizardLM-2-8x22B: experts over two files stay together" {
	plans wizardlm-2-8x22b 1739
	is_long model-00059-of-00059.safetensors 997233472
	assert_equal "$(split_over_files 'model.layers.[0-9]+[.]')" "56 56"
	assert_equal "$(split_over_files '.*experts.[0-7][.]')" "33 448"
	plan --bucket-size 1GiB \
		--keep-together '(layers\.[0-9]+\..*experts\.[0-9]+)\.'
	assert_success
	weir-dump "$T/plan" | python3 -c '
import collections, json, re, sys
buckets = collections.defaultdict(set)
for line in sys.stdin:
    r = json.loads(line)
    for p in r.get("parts", ()):
        m = re.match(".*layers.[0-9]+[.].*experts.[0-9]", p["name"])
        if m:
            buckets[m[0]].add(r["id"])
assert len(buckets) == 448
assert all(len(v) == 1 for v in buckets.values())'
}

@test "IX-12 Qwen3.5-18B-REAP: 15,973 names" {
	plans qwen3-5-18b-reap 15973
	assert_equal "$(grep -c safetensors \
		"$T/c/model.safetensors.index.json")" 15973
	assert_file_contains "$T/c/model.safetensors.index.json" \
		'"total_size": 37087995136'
}

@test "Pythia-1.4B reward model: F32, a tensor of one element" {
	plans pythia-1-4b-reward 293
	is_long model-00006-of-00006.safetensors 470011212
	assert_file_contains "$T/c/model.safetensors.index.json" \
		'"total_size": 5246377988'
}

@test "IX-09 Molmo NF4: names that begin other names, more metadata" {
	plans molmo-nf4 26
	make molmo-index-only
	refuses 66 "2 of 2 shards missing" model-00001-of-00002.safetensors
}

@test "granite: one file, no index, tied" {
	plans granite-3-1-1b 218
	is_long model.safetensors 2669283096
}

@test "Llama-3.1-8B" {
	plans llama-3-1-8b 291
	assert_file_contains "$T/c/model.safetensors.index.json" \
		'"total_size": 16060522496'
}

@test "IX-02 stale shards beside the index stay behind" {
	make stale-shards
	[ "$(find "$T/c" -name '*.safetensors' | wc -l)" -eq 6 ]
	plan -v
	assert_success
	assert_equal "$(end_field tensors)" 291
	[[ "$stderr" == *"2 entries"* ]] || fail "not told: $stderr"
}

@test "IX-10 two splits and no index are refused with their names" {
	make two-splits
	refuses 65 model.safetensors.index.json diffusion_pytorch_model-00001-of-00004
}

@test "DeepSeek-V3: weights and scales together, a second head" {
	plans deepseek-v3 245
	weir-dump "$T/plan" | python3 -c '
import json, sys
where = {}
for line in sys.stdin:
    r = json.loads(line)
    for p in r.get("parts", ()):
        where[p["name"]] = r["id"]
scales = [n for n in where if n.endswith("_scale_inv")]
assert len(scales) == 112, len(scales)
for n in scales:
    assert where[n] == where[n.removesuffix("_scale_inv")], n'
}

@test "GLM-5-NVFP4: a header of 100,000 bytes, scalars by the hundred" {
	plans glm-5-nvfp4-shard 852
	weir-dump "$T/plan" | grep -q '"header":100008,'
}

@test "ST-04 a header for 1,290,000 tensors is over the format's limit" {
	make million-in-one
	refuses 65 model.safetensors 132095296 100000000
}

@test "IX-12 a million tensors in ten shards" {
	make million
	# A bound, not a pace: quadratic look-ups would take an hour.
	run --separate-stderr timeout 120 weir-plan --source "$T/c" \
		--engine "ipc://$T/e" -o "$T/plan"
	assert_success
	assert_equal "$(end_field tensors)" 1000000
}

@test "IX-01 CoSER: 15 of 30 files" {
	make half-downloaded
	refuses 66 "of 30 shards missing" model-00016-of-00030.safetensors
}

@test "ST-01 DeepSeek-V4-Flash JANG: files that are short by megabytes" {
	make cut-shards
	refuses 65 model-00002-of-00004.safetensors
}

@test "a header padded with NUL" {
	make nul-padded
	refuses 65 model.safetensors "NUL byte"
}

@test "ST-12 gpt-2-spanish: scalars" {
	plans gpt-2-spanish 121
	weir-dump "$T/plan" | grep -q '"name":"h.0.attn.masked_bias","dtype":"F32","shape":\[\]'
}

@test "ST-03 LFS pointers in place of shards" {
	make lfs-pointers
	[[ "$(stat -c %s "$T/c/model-00001-of-00004.safetensors")" == 13[45] ]]
	refuses 65 model-00001-of-00004.safetensors LFS
}

@test "IX-07 the layout of a hub's cache" {
	make hub-cache
	CHECKPOINT=$T/c/snapshots/0123abcd plan
	assert_success
	assert_equal "$(end_field tensors)" 164
}

@test "pushed: each small one, byte by byte" {
	local source layout

	engines a
	fleet a
	for layout in gemma-2b pythia-1-4b-reward molmo-nf4 granite-3-1-1b \
		deepseek-v3 gpt-2-spanish hub-cache stale-shards; do
		make "$layout" --small
		source=$T/c
		[ "$layout" != hub-cache ] || source=$T/c/snapshots/0123abcd
		run --separate-stderr push "$source" --expect any \
			--bucket-size 64KiB
		assert_success
		[ "$layout" != stale-shards ] || rm "$T"/c/*-of-00002.*
		holds a "$source" || fail "$layout differs"
		[ -z "$(find "$T/a/current/" -type l)" ]
	done
	assert_equal "$(serving a)" 8
}

@test "BK-04 any bucket size and grouping, the same content" {
	local size contents=()

	engines a
	fleet a
	make gemma-2b --small
	for size in 1 64KiB 1MiB 1GiB; do
		for group in none '^(model\.layers\.[0-9]+\.norm)'; do
			run --separate-stderr push "$T/c" --bucket-size "$size" \
				--keep-together "$group"
			assert_success
			contents+=("$(grep -o 'content [0-9a-f]*' <<<"$output")")
			holds a "$T/c"
		done
	done
	assert_equal "${#contents[@]}" 8
	assert_equal "$(printf '%s\n' "${contents[@]}" | sort -u | wc -l)" 1
}
