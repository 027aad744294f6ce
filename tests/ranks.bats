#!/usr/bin/env bats
# ranks.bats - several --source directories: rank r feeds worker r of every
# engine.
# shellcheck disable=SC2030,SC2031,SC2154 # exports of tests; set by run

load ranks

# Engines a and b of two workers serve version 1; rank r of version 2 is
# there, and a's worker 1 seals it only when $T/hold is gone.
held_ranks() {
	local hold="while [ -e '$T/hold' ]; do sleep 0.02; done"

	ranks one 2 1
	worker a 0
	worker a 1 --post-load "$hold"
	workers b 2
	fleet_of 2 a b
	ranked_push 2>/dev/null
	all_hold one 2 a b
	ranks two 2 11
	touch "$T/hold"
	look_at_new_runs
}

held_push() {
	start push weir-push "${sources[@]}" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" --bucket-size 64KiB \
		--max-inflight-buckets 2 --stage-timeout 60s "$@"
	wait_for told sealed
}

# refused CODE PART...: the last run was, before any engine was touched.
refused() {
	one_line_error "$@"
	assert_not_exist "$T/a.0/fence"
}

# pushed COUNT NAME...: the first COUNT ranks of r, in waves of one engine.
pushed() {
	local n=$1

	shift
	sources=("${sources[@]:0:2*n}")
	fleet_of "$n" "$@"
	run --separate-stderr ranked_push --bucket-size 100KiB \
		--max-inflight-engine-groups 1 --max-inflight-buckets 3
	assert_success
	[[ $output == *" in $n ranks, content "* ]]
	[[ $stderr == *"of the largest rank"* ]]
	all_hold r "$n" "$@"
	assert_clean_runs
}

@test "VF-05 two and four ranks of unequal sizes to engines of as many workers" {
	ranks r 4 1
	workers a4 4
	workers a2 2 --post-load true
	workers b2 2 --post-load true
	pushed 4 a4
	pushed 2 a2 b2
	# Of different ranks they differ, within each they must not.
	[[ $stderr == *"digests compared: 2 of 2 engines"* ]]
}

@test "one flush boundary, the largest rank's bytes, peak equal to both limits" {
	pairs
	workers a 2
	workers b 2
	fleet_of 2 a b
	weir-plan "${sources[@]}" --fleet "$T/fleet.yaml" --bucket-size 1536 \
		-o "$T/p"
	weir-plan "${sources[@]}" --fleet "$T/fleet.yaml" --bucket-size 1536 \
		-o "$T/again"
	cmp "$T/p" "$T/again"
	weir-dump --parts "$T/p" >"$T/parts"
	assert_file_contains "$T/parts" '{"rank":1,"file":"config.json"'
	assert_file_contains "$T/parts" '"rank":1,"file":"model.safetensors"'
	weir-dump "$T/p" | python3 -c '
import json, sys
files, buckets = {}, []
for m in map(json.loads, sys.stdin):
    if m["msg"] == "file":
        files[m["id"]] = m["rank"]
    if m["msg"] == "bucket":
        names, size = [[], []], [0, 0]
        for p in m["parts"]:
            names[files[p["file"]]].append(p["name"])
            size[files[p["file"]]] += p["bytes"]
        assert names[0] == names[1], names
        assert max(size) == m["bytes"], size
        buckets.append((names[0], m["bytes"]))
want = [["t%d" % i, "t%d" % (i + 1)] for i in (0, 2, 4, 6)]
assert buckets[1:] == [(w, 1536) for w in want], buckets'
	run weir-plan "${sources[@]}" --fleet "$T/fleet.yaml" \
		--bucket-size 1536 --dry-run --max-inflight-buckets 2 \
		--max-inflight-bytes 3072
	assert_success
	assert_output --partial "rank 0: $T/r.0; 2 files, "
	assert_output --partial "rank 1: $T/r.1; 2 files, "
	assert_output --partial \
		"peak credit 2 buckets, 3072 bytes of the largest rank"
	ranked_push --bucket-size 1536 --max-inflight-buckets 2 \
		--max-inflight-bytes 3072 2>/dev/null
	run python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" \
		--engines a,b --buckets 2 --bytes 3072
	assert_success
	assert_output --partial "peak_buckets=2 peak_bytes=3072"
	all_hold r 2 a b
}

@test "ranks: shares split, empty, kept together, and files of one rank only" {
	tensors "$T/r.0" 1 l.q_proj.weight:U8:40000000 l.k_proj.weight:U8:0 \
		norm:F32:1 z:BF16:3,5
	tensors "$T/r.1" 2 z:BF16:7,5 l.k_proj.weight:U8:20000000 \
		l.q_proj.weight:U8:17 norm:F32:0
	echo 1 >"$T/r.1/of-rank-1.txt"
	: >"$T/r.1/empty.txt"
	sources=(--source "$T/r.0" --source "$T/r.1")
	workers a 2
	fleet_of 2 a
	ranked_push --bucket-size 1KiB --split-tensors 2>/dev/null
	all_hold r 2 a
	ranked_push --bucket-size 41MB --keep-together '(l)\..*weight' \
		2>/dev/null
	all_hold r 2 a
	run --separate-stderr ranked_push --bucket-size 30MB \
		--keep-together '(l)\..*weight'
	one_line_error 65 '"l"' "2 tensors" 40000000 30000000
}

@test "wrong counts of ranks and workers are refused with both numbers" {
	sources=(--source "$T/r.0" --source "$T/r.1")
	fleet_of 3 a
	run --separate-stderr ranked_push
	refused 78 "engine a: 3 workers, but 2 source ranks"
	fleet_of 1 a
	run --separate-stderr ranked_push
	refused 78 "engine a: 1 worker, but 2 source ranks"
	run --separate-stderr weir-push "${sources[@]}" \
		--engine "ipc://$T/a.0.sock" --registry "$T/registry"
	refused 78 "1 worker, but 2 source ranks"
	# One receiver holds one checkpoint.
	printf '%s\n' "engines:" "  - name: a" "    workers:" \
		"      - endpoint: ipc://$T/a.0.sock" \
		"      - endpoint: ipc://$T/a.0.sock" >"$T/fleet.yaml"
	run --separate-stderr ranked_push
	refused 78 "engine a: workers 0 and 1 share ipc://$T/a.0.sock"
}

@test "a tensor that a rank lacks, or has otherwise, is refused by name" {
	fleet_of 2 a
	sources=(--source "$T/r.0" --source "$T/r.1")
	tensors "$T/r.0" 1 a:F32:2,3 b:F32:4
	tensors "$T/r.1" 2 a:F32:2,9
	run --separate-stderr ranked_push
	refused 65 "source rank 1 ($T/r.1) has no tensor \"b\", rank 0" \
		"2 tensors"
	tensors "$T/r.1" 2 a:F32:2,9 b:F32:1 c:F32:1
	run --separate-stderr ranked_push
	refused 65 "source rank 0 ($T/r.0) has no tensor \"c\", rank 1"
	tensors "$T/r.1" 2 a:F32:2,9 b:BF16:4
	run --separate-stderr ranked_push
	refused 65 "tensor \"b\": dtype F32 in source rank 0" "BF16 in rank 1"
	tensors "$T/r.1" 2 a:F32:18 b:F32:4
	run --separate-stderr ranked_push
	refused 65 "tensor \"a\": dimensions: 2 in source rank 0" "1 in rank 1"
	sources+=(--source "$T/none")
	fleet_of 3 a
	run --separate-stderr ranked_push
	refused 66 "$T/none"
}

@test "IX-02 twins in one rank are refused, the same name in two is a shard" {
	fleet_of 2 a
	ranks r 2 1
	# Rank 1 has two shards: one gets a tensor of the other.
	python3 - "$T/r.1" <<-'END'
		import json, struct, sys
		d = sys.argv[1]
		x = json.load(open(d + "/model.safetensors.index.json"))
		name = next(n for n, f in x["weight_map"].items() if "00001" in f)
		path = d + "/model-00002-of-00002.safetensors"
		b = open(path, "rb").read()
		n = struct.unpack("<Q", b[:8])[0]
		h = json.loads(b[8:8 + n])
		end = len(b) - 8 - n
		h[name] = {"dtype": "U8", "shape": [4], "data_offsets": [end, end + 4]}
		h = json.dumps(h).encode()
		open(path, "wb").write(struct.pack("<Q", len(h)) + h + b[8 + n:] + b"twin")
	END
	run --separate-stderr ranked_push
	refused 65 "$T/r.1" "model.embed_tokens.weight"
}

@test "IX-13 a rank whose shapes changed since the plan is refused, named" {
	ranks r 2 1
	workers a 2
	fleet_of 2 a
	weir-plan "${sources[@]}" --fleet "$T/fleet.yaml" -o "$T/p"
	rm -r "$T/r.1"
	checkpoint "$T/r.1" --size 1MiB --layers 2 --seed 9
	# shellcheck disable=SC2016 # for that shell
	run --separate-stderr bash -c 'set -o pipefail; weir-admit "$1" |
		weir-transfer | weir-commit --registry "$2"' _ \
		"$T/p" "$T/registry"
	assert_failure 65
	[[ $stderr == *"$T/r.1/"*"changed since the plan"* ]]
	assert_not_exist "$T/a.0/fence"
}

@test "MD-08 a rank of other shapes than are served is refused by tensor and rank" {
	tensors "$T/r.0" 1 a:F32:2,3 b:F32:4
	tensors "$T/r.1" 2 a:F32:2,9 b:F32:0
	sources=(--source "$T/r.0" --source "$T/r.1")
	workers a 2
	fleet_of 2 a
	ranked_push 2>/dev/null
	# The same whole, cut elsewhere.
	tensors "$T/r.0" 3 a:F32:2,4 b:F32:4
	tensors "$T/r.1" 4 a:F32:2,8 b:F32:0
	run --separate-stderr ranked_push
	one_line_error 65 'tensor "a" of rank 0 is F32 [2,4]' \
		"F32 [2,3] in version 1"
	tensors "$T/r.0" 3 a:F32:2,3 b:F32:4
	run --separate-stderr ranked_push
	one_line_error 65 'tensor "a" of rank 1 is F32 [2,8]' \
		"F32 [2,9] in version 1"
	ranked_push --expect any 2>/dev/null
	all_hold r 2 a
}

@test "VF-06 a decided number again: other shares differ, the same are enough" {
	ranks r 2 1
	workers a 2
	fleet_of 2 a
	ranked_push --weight-version 7 2>/dev/null
	run --separate-stderr ranked_push --weight-version 7
	assert_success
	assert_output --partial "version 7 was published already"
	# Equal ranks in another order are another version.
	sources=(--source "$T/r.1" --source "$T/r.0")
	run --separate-stderr ranked_push --weight-version 7
	assert_failure 65
	[[ $stderr == *"version 7 is published with structure"* ]]
	# So is the whole of them in one.
	sources=(--source "$T/r.0")
	run --separate-stderr ranked_push --weight-version 7
	assert_failure 65
	ranks r 2 1
	checkpoint "$T/r.1" --size 256KiB --layers 2 --shards 2 --seed 5
	run --separate-stderr ranked_push --weight-version 7
	assert_failure 65
	[[ $stderr == *"version 7 is published with content"* ]]
	run weir-status --registry "$T/registry" --fleet "$T/fleet.yaml"
	assert_success
}

@test "BK-12 a rank that is written while it is sent: found, not published" {
	held_ranks
	held_push
	spoil "$T/two.1/model-00002-of-00002.safetensors" 5000
	rm "$T/hold"
	ends_with 1 push
	assert_file_contains "$T/push.err" "$T/two.1"
	all_hold one 2 a b
	run decided 2
	assert_failure
}

@test "I9 any stage killed in mid-run with ranks: published, once, right" {
	local stage stages

	held_ranks
	for stages in plan,transfer admit,commit; do
		touch "$T/hold"
		look_at_new_runs
		held_push
		for stage in ${stages/,/ }; do
			kill -KILL "$(pid_in_run "$stage.1")"
		done
		for stage in ${stages/,/ }; do
			wait_for test -e "$(newest_run)/$stage.2"
		done
		rm "$T/hold"
		ends_with 0 push
		all_hold two 2 a b
		assert_clean_runs
	done
}

@test "one dead worker fails exactly its engine" {
	held_ranks
	held_push --min-engines 1
	kill_engine b.1
	wait_for told excluded
	rm "$T/hold"
	ends_with 3 push
	assert_file_contains "$T/push.err" "engine b"
	all_hold two 2 a
	holds b.0 "$T/one.0"
	holds b.1 "$T/one.1"
	# Back again, it catches up with all others.
	worker b 1
	run --separate-stderr ranked_push
	assert_success
	all_hold two 2 a b
	assert_not_exist "$T/registry/attention"
}

@test "rollback and --only give each worker its own share" {
	ranks one 2 1
	workers a 2
	workers b 2
	fleet_of 2 a b
	ranked_push 2>/dev/null
	ranks two 2 11
	ranked_push 2>/dev/null
	# One worker has lost its store: the bytes come from the source.
	stop b.1
	rm -r "$T/b.1"
	worker b 1
	weir-rollback --fleet "$T/fleet.yaml" --registry "$T/registry"
	assert_equal "$(serving a.0) $(serving b.1)" "3 3"
	all_hold one 2 a b
	stop a.0
	stop a.1
	rm -r "$T/a.0" "$T/a.1"
	workers a 2
	weir-push --fleet "$T/fleet.yaml" --registry "$T/registry" --only a
	all_hold one 2 a b
}

@test "an engine that could not be swapped is brought to its own shares later" {
	ranks one 2 1
	workers a 2
	worker b 0
	worker b 1 --on-swap "! [ -e '$T/refuse' ]"
	fleet_of 2 a b
	ranked_push 2>/dev/null
	ranks two 2 11
	touch "$T/refuse"
	run --separate-stderr ranked_push --engine-timeout 4s
	assert_failure 3
	[[ $stderr == *"engine b"* ]]
	holds b.1 "$T/one.1"
	assert_exist "$T/registry/attention"
	run weir-status --registry "$T/registry"
	assert_failure 2
	rm "$T/refuse"
	run --separate-stderr ranked_push --weight-version 2
	assert_success
	all_hold two 2 a b
	assert_not_exist "$T/registry/attention"
	run weir-status --registry "$T/registry"
	assert_success
}

@test "rollback and --only of ranks: linked, or from a peer's workers" {
	held_ranks
	rm "$T/hold"
	ranked_push 2>/dev/null
	all_hold two 2 a b
	run --separate-stderr weir-rollback --registry "$T/registry"
	assert_success
	all_hold one 2 a b
	assert_equal "$(stat -c %h "$T/b.1/current/config.json")" 2
	run grep -c '"event":"granted"' "$(newest_run)/events"
	assert_output 0
	# The first rank's source is other weights by now, the second's gone.
	cp -r "$T/one.0" "$T/kept.0"
	mv "$T/one.1" "$T/kept.1"
	checkpoint "$T/one.0" --size 512KiB --layers 2 --seed 77
	workers c 2
	fleet_of 2 a b c
	run --separate-stderr weir-push --only c -v \
		--fleet "$T/fleet.yaml" --registry "$T/registry"
	assert_success
	[[ $stderr == *"is taken from $T/b.0/versions/000003: "* ]]
	all_hold kept 2 c
}

# lost_store NAME.W: it comes back with an empty one.
lost_store() {
	stop "$1"
	rm -r "${T:?}/$1"
	worker "${1%.*}" "${1##*.}"
}

@test "--only mends an engine of several workers of which some lost their store" {
	local before

	ranks one 2 1
	workers a 2
	workers b 2
	fleet_of 2 a b
	ranked_push 2>/dev/null
	lost_store a.1
	before=$(stat -c %i "$T/a.0/versions/000001")
	run --separate-stderr weir-push --only a --registry "$T/registry"
	assert_success
	assert_output --partial "version 1 joined"
	all_hold one 2 a b
	assert_equal "$(stat -c %i "$T/a.0/versions/000001")" "$before"
	# The first, and with every worker of one source.
	lost_store a.0
	run --separate-stderr weir-push --only a --registry "$T/registry"
	assert_success
	all_hold one 2 a b
	ranks two 2 7
	run --separate-stderr ranked_push
	assert_success
	all_hold two 2 a b
	assert_clean_runs
}

@test "--only mends an engine of which one worker serves an older version" {
	ranks one 2 1
	workers a 2
	fleet_of 2 a
	ranked_push 2>/dev/null
	ranks two 2 7
	stop a.1
	cp -r "$T/a.1" "$T/old"
	worker a 1
	ranked_push 2>/dev/null
	# An older copy of its store: it serves version 1 again.
	stop a.1
	rm -r "${T:?}/a.1"
	mv "$T/old" "$T/a.1"
	worker a 1
	run --separate-stderr weir-push --only a --registry "$T/registry"
	assert_success
	all_hold two 2 a
}
