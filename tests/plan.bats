#!/usr/bin/env bats
# shellcheck disable=SC2154 # stderr: set by run
# weir-plan -o and --dry-run: what leaves it, and what does not.

bats_require_minimum_version 1.5.0
load helpers

FIXTURES="$BATS_TEST_DIRNAME/fixtures"

# checkpoint NAME=BYTES...: one shard of U8 tensors, in $T/c.
checkpoint() {
	mkdir -p "$T/c"
	python3 - "$T/c/model.safetensors" "$@" <<-'PY'
	import json, struct, sys
	head, at = {}, 0
	for arg in sys.argv[2:]:
	    name, size = arg.rsplit("=", 1)
	    head[name] = {"dtype": "U8", "shape": [int(size)],
	                  "data_offsets": [at, at + int(size)]}
	    at += int(size)
	head = json.dumps(head).encode()
	with open(sys.argv[1], "wb") as f:
	    f.write(struct.pack("<Q", len(head)) + head)
	    f.truncate(8 + len(head) + at)
	PY
}

# plan [OPTION...]: of $T/c for one engine, into $T/plan.
plan() {
	run --separate-stderr weir-plan --source "$T/c" \
		--engine "ipc://$T/e" -o "$T/plan" "$@"
}

# One line a bucket: "bytes kind:start+bytes ...", tensors by name.
buckets() {
	weir-dump "$T/plan" | python3 -c '
import json, sys
for line in sys.stdin:
    r = json.loads(line)
    if r["msg"] != "bucket":
        continue
    said = ["%s:%d+%d" % (p["name"] or ("", "header", "carried")[p["kind"]],
                          p["start"], p["bytes"]) for p in r["parts"]]
    print(r["bytes"], *said)'
}

header_bytes() {
	weir-dump "$T/plan" | python3 -c '
import json, sys
print(sum(json.loads(l).get("header", 0) for l in sys.stdin))'
}

MIB=1048576

@test "the records of a plan, and its end" {
	checkpoint a=3 b=4
	echo '{}' >"$T/c/config.json"
	plan
	assert_success
	assert_output ""
	run weir-dump "$T/plan"
	assert_success
	assert_equal "$(grep -o '^{"msg":"[a-z]*' <<<"$output" | cut -c9- | xargs)" \
		"version file file engine bucket end"
	assert_line --partial '"path":"config.json","kind":1'
	assert_line --partial '"records":5,"files":2,"engines":1,"buckets":1,"tensors":2'
	assert_equal "$(buckets | cut -d' ' -f2-)" \
		"carried:0+3 header:0+$(header_bytes) a:0+3 b:0+4"
}

@test "IX-12 the same input gives the same plan, other input another" {
	"$FIXTURES/mkckpt.py" --size 4MiB --shards 3 "$T/c"
	plan --bucket-size 1MiB
	cp "$T/plan" "$T/first"
	plan --bucket-size 1MiB
	cmp "$T/first" "$T/plan"
	plan --bucket-size 2MiB
	run ! cmp -s "$T/first" "$T/plan"
}

@test "BK-01 a tensor as large as the bucket, one byte more and less" {
	for size in $((MIB - 1)) $MIB $((MIB + 1)) $((16 * MIB)); do
		checkpoint before=10 "w=$size" after=10
		plan --bucket-size 1MiB
		assert_success
		run buckets
		assert_line "$size w:0+$size"
		assert_equal "${#lines[@]}" 3
		assert_line "10 after:0+10"
	done
}

@test "BK-01 split: pieces on leaf edges, all bytes once" {
	checkpoint before=10 "w=$((40 * MIB + 1))" after=10
	plan --bucket-size 32MiB --split-tensors
	assert_success
	run buckets
	assert_line "$((32 * MIB)) w:0+$((32 * MIB))"
	assert_line "$((8 * MIB + 11)) w:$((32 * MIB))+$((8 * MIB + 1)) after:0+10"
}

@test "BK-02 a bucket below a leaf: pieces of one leaf" {
	checkpoint "w=$((40 * MIB))"
	for size in 1 1MiB 16777215; do
		plan --bucket-size "$size" --split-tensors
		assert_success
		run buckets
		assert_line "$((16 * MIB)) w:0+$((16 * MIB))"
		assert_line "$((16 * MIB)) w:$((16 * MIB))+$((16 * MIB))"
		assert_line "$((8 * MIB)) w:$((32 * MIB))+$((8 * MIB))"
	done
}

# Parts of a bucket are in the order of their bytes, and all of them together
# are each file once.  "in order": over all buckets, too.
check_parts() {
	weir-dump "$T/plan" | python3 -c '
import json, sys
size, runs, last = {}, {}, (0, 0)
for line in sys.stdin:
    r = json.loads(line)
    if r["msg"] == "file":
        size[r["id"]] = r["bytes"]
    if "in order" not in sys.argv:
        last = (0, 0)
    for p in r.get("parts", ()):
        at = (p["file"], p["offset"])
        assert at >= last, p
        last = (p["file"], p["offset"] + p["bytes"])
        runs.setdefault(p["file"], []).append((p["offset"], last[1]))
for file, bytes in size.items():
    at = 0
    for begin, end in sorted(runs[file]):
        assert begin == at, (file, begin, at)
        at = end
    assert at == bytes, (file, at)' "$@"
}

@test "BK-05 parts are in the order of their bytes, of any dtypes" {
	"$FIXTURES/mkckpt.py" --size 4MiB --shards 2 --dtype mix "$T/c"
	plan --bucket-size 300kB --keep-together none
	assert_success
	check_parts "in order"
	plan --bucket-size 300kB
	assert_success
	check_parts
}

@test "BK-04 built-in groups share a bucket where they fit" {
	checkpoint l.gate_proj.weight=40 l.k_proj.weight=10 l.o_proj.weight=30 \
		l.q_proj.weight=20 l.q_proj.weight_scale_inv=1 l.up_proj.weight=70 \
		l.v_proj.weight=10
	plan --bucket-size 100
	assert_success
	check_parts
	run buckets
	# gate and up do not fit: as if they were no group.
	assert_line "81 l.gate_proj.weight:0+40 l.k_proj.weight:0+10 l.q_proj.weight:0+20 l.q_proj.weight_scale_inv:0+1 l.v_proj.weight:0+10"
	assert_line "100 l.o_proj.weight:0+30 l.up_proj.weight:0+70"
	plan --bucket-size 100 --keep-together none
	run buckets
	assert_line "100 l.gate_proj.weight:0+40 l.k_proj.weight:0+10 l.o_proj.weight:0+30 l.q_proj.weight:0+20"
}

@test "BK-04 --keep-together: as asked, or a plan error with the group" {
	checkpoint a.0.x=60 a.1.x=60 a.0.y=40 a.1.y=41 b=1
	plan --bucket-size 200 --keep-together '^(a\.[0-9]+)\.'
	assert_success
	check_parts
	run buckets
	assert_line "100 a.0.x:0+60 a.0.y:0+40"
	assert_line "102 a.1.x:0+60 a.1.y:0+41 b:0+1"
	rm "$T/plan"
	plan --bucket-size 100 --keep-together '^(a\.[0-9]+)\.'
	one_line_error 65 '"a.1"' 'its 2 tensors' 101 100
	[ ! -e "$T/plan" ]
	# Several: the first that matches counts; "none" beside them.
	plan --bucket-size 200 --keep-together none --keep-together 'y$' \
		--keep-together '^(a\.[0-9]+)\.'
	assert_success
	run buckets
	assert_line --partial "a.0.y:0+40 a.1.y:0+41"
}

# cast [OPTION...]: the same for a server that takes bucket by bucket.
cast() {
	printf 'engines:\n  - {name: a, kind: sglang, url: "http://[::1]:9"}\n' \
		>"$T/fleet.yaml"
	run --separate-stderr weir-plan --source "$T/c" --transport nccl \
		--fleet "$T/fleet.yaml" -o "$T/plan" "$@"
}

@test "BK-01 BK-04 what a server cannot be broadcast is refused in the plan" {
	checkpoint l.gate_proj.weight=60 l.up_proj.weight=60
	cast --bucket-size 100
	one_line_error 65 '"l.{gate,up}_proj"' "its 2 tensors" 120 100 \
		"--keep-together none"
	cast --bucket-size 120
	assert_success
	cast --bucket-size 100 --keep-together none
	assert_success
	rm -r "$T/c"
	checkpoint "w=$((40 * MIB))"
	cast --bucket-size 16MiB --split-tensors
	one_line_error 78 '"w"' --split-tensors
	cast --bucket-size 16MiB
	assert_success
	rm -r "$T/c"
	"$FIXTURES/mkbad.py" all-dtypes "$T/c"
	cast
	one_line_error 78 "of dtype F"
}

@test "BK-04 a group of more tensors than a bucket describes" {
	local names=()

	for ((i = 0; i < 4097; i++)); do
		names+=("t$i=1")
	done
	checkpoint "${names[@]}"
	plan --keep-together '(t)'
	one_line_error 65 '"t"' 4097 4096
	plan --keep-together '(t[0-9])'
	assert_success
	check_parts
}

@test "--keep-together: bad expressions are quoted" {
	checkpoint w=1
	for value in '(' '(a)\1' 'a{1001}' '[z-a]'; do
		plan --keep-together "$value"
		one_line_error 64 "\"$value\""
	done
	run --separate-stderr weir-plan --source "$T/c" --engine "ipc://$T/e" \
		--keep-together '(' --run "$T/run/r"
	assert_equal "$status" 64
}

@test "MD-07 a group over several shards shares a bucket" {
	"$FIXTURES/mkckpt.py" --size 2MiB --layers 4 --shards 7 "$T/c"
	plan --bucket-size 300kB
	assert_success
	check_parts
	weir-dump "$T/plan" | python3 -c '
import collections, json, re, sys
where, files = collections.defaultdict(set), collections.defaultdict(set)
for line in sys.stdin:
    r = json.loads(line)
    for p in r.get("parts", ()):
        m = re.match(r"(.*layers.\d+.)(?:self_attn.[qkv]|mlp.(?:gate|up))_proj",
                     p["name"])
        if m:
            key = m[1] + ("mlp" if "mlp" in p["name"] else "qkv")
            where[key].add(r["id"])
            files[key].add(p["file"])
assert len(where) == 8, where
assert all(len(v) == 1 for v in where.values()), where
assert any(len(v) > 1 for v in files.values()), files'
}

@test "BK-06 no bucket exceeds its size but one large tensor alone" {
	checkpoint a=600 b=400 c=999 d=1 e=1000 f=1001 g=999
	plan --bucket-size 1000
	assert_success
	run buckets
	assert_line "1000 a:0+600 b:0+400"
	assert_line "1000 c:0+999 d:0+1"
	assert_line "1000 e:0+1000"
	assert_line "1001 f:0+1001"
	assert_line "999 g:0+999"
}

@test "BK-09 credit below a bucket: both numbers and the tensor" {
	checkpoint "w=$((2 * MIB))"
	run --separate-stderr weir-plan --source "$T/c" --engine "ipc://$T/e" \
		--dry-run --max-inflight-bytes 1MiB --bucket-size 1MiB
	one_line_error 65 "$((2 * MIB))" "$MIB" '"w"'
}

@test "ST-11 ST-12 all dtypes, scalars and empty tensors are planned" {
	"$FIXTURES/mkbad.py" all-dtypes "$T/c"
	plan
	assert_success
	weir-dump "$T/plan" >"$T/json"
	assert_equal "$(grep -o '"dtype":"[A-Z0-9_]*[^"]' "$T/json" | sort -u |
		grep -cv '"dtype":"$')" 22
	grep -q '"shape":\[\]' "$T/json"
	grep -q '"shape":\[0\]' "$T/json"
}

@test "empty tensors alone are a plan too" {
	checkpoint nothing=0 more=0
	plan --bucket-size 1
	assert_success
	run buckets
	assert_output --partial "nothing:0+0"
}

# CASE CODE TEXT of tests/fixtures/mkbad.py
refuses() {
	rm -rf "$T/c"
	"$FIXTURES/mkbad.py" "$1" "$T/c"
	plan
	one_line_error "$2" "$3"
	[ ! -e "$T/plan" ] || fail "$1: a plan was left"
}

@test "ST-01 ST-02 ST-03 ST-04 files that are no shards" {
	for case in cut-1 cut-4k cut-data cut-half trailing-1 trailing-1m \
		lfs html huge-header header-past-end short; do
		refuses "$case" 65 .safetensors
	done
}

@test "ST-08 ST-11 headers that lie" {
	for case in overlap hole name-twice dtype; do
		refuses "$case" 65 .safetensors
	done
}

@test "IX-01 IX-02 IX-04 IX-10 an index that does not fit" {
	refuses shard-missing 66 model-0000
	for case in mapped-elsewhere two-shards not-in-index not-in-header \
		no-index index-name-twice; do
		refuses "$case" 65 model-0000
	done
}

@test "IX-07 a path that escapes" {
	checkpoint w=1
	echo '{"weight_map":{"w":"../x.safetensors"}}' \
		>"$T/c/model.safetensors.index.json"
	plan
	one_line_error 65 ../x.safetensors
}

@test "no source, no such source" {
	run --separate-stderr weir-plan --engine ipc:///e -o "$T/plan"
	one_line_error 64 --source
	run --separate-stderr weir-plan --source "$T/none" --engine ipc:///e \
		-o "$T/plan"
	one_line_error 66 "$T/none"
}

@test "FL-06 no engines" {
	checkpoint w=1
	run --separate-stderr weir-plan --source "$T/c" -o "$T/plan"
	one_line_error 64 "no engines"
	printf 'engines: []\n' >"$T/fleet.yaml"
	run --separate-stderr weir-plan --source "$T/c" -o "$T/plan" \
		--fleet "$T/fleet.yaml"
	one_line_error 78 "no engines"
	[ ! -e "$T/plan" ]
}

@test "transports that are not built are named" {
	checkpoint w=1
	plan --transport ucx
	one_line_error 64 "transport ucx: not built yet"
	plan --transport pigeon
	one_line_error 64 '"pigeon"'
	plan --transport mem
	assert_success
	weir-dump "$T/plan" | grep -q '"transport":"mem"'
}

@test "FL-08 values that are none are quoted" {
	checkpoint w=1
	for value in 0 -1 1.5 "" x 1KB; do
		plan --bucket-size "$value"
		one_line_error 64 --bucket-size "\"$value\""
	done
	for value in -1 1.5 ""; do
		plan --max-inflight-engine-groups "$value"
		one_line_error 64 --max-inflight-engine-groups "\"$value\""
	done
}

# dry OPTION...: a dry run of five engines.
dry() {
	local engines=()

	for i in 0 1 2 3 4; do
		engines+=(--engine "ipc://$T/e$i")
	done
	run --separate-stderr weir-plan --source "$T/c" "${engines[@]}" \
		--dry-run "$@"
}

@test "FL-08 dry run: waves of 0, 1, 2, 5 and 100" {
	checkpoint w=1
	for pair in 0=1 1=5 2=3 5=1 100=1; do
		dry --max-inflight-engine-groups "${pair%=*}"
		assert_success
		assert_equal "$(grep -c '^wave' <<<"$output")" "${pair#*=}"
	done
	dry --max-inflight-engine-groups 2
	assert_line --partial "wave 1 of 3: engine-0 engine-1;"
	assert_line --partial "wave 3 of 3: engine-4;"
}

@test "I6 dry run: waves of staged engines first, and none of both kinds" {
	checkpoint w=1
	printf '%s\n' engines: \
		'  - {name: s, kind: sglang, url: "http://[::1]:9"}' \
		"  - {name: a, workers: [{endpoint: 'ipc://$T/a'}]}" \
		'  - {name: v, kind: vllm, url: "http://[::1]:8"}' \
		"  - {name: b, workers: [{endpoint: 'ipc://$T/b'}]}" \
		>"$T/fleet.yaml"
	run weir-plan --source "$T/c" --fleet "$T/fleet.yaml" --dry-run \
		--max-inflight-engine-groups 3
	assert_success
	assert_line --partial "wave 1 of 2: a b;"
	assert_line --partial "wave 2 of 2: s v;"
}

@test "dry run: peak credit, time at a rate, JSON" {
	checkpoint a=1536 b=1536 c=1536 d=1536
	dry --bucket-size 1536 --max-inflight-buckets 2 \
		--max-inflight-bytes 3072 --rate 1kB --json
	assert_success
	assert_equal "${#lines[@]}" 1
	assert_output --partial '"peak_credit_buckets":2,"peak_credit_bytes":3072'
	assert_output --regexp '"bytes":6[0-9]{3},.*"ms":6[0-9]{3}\}'
	dry --bucket-size 1536
	assert_output --partial "peak credit 1 bucket, 1536 bytes"
	[ -z "$(find "$T/run" -mindepth 1)" ] || fail "a dry run left a run"
}

@test "-o replaces a plan whole, and leaves nothing beside it" {
	checkpoint w=1
	mkdir "$T/out"
	plan -o "$T/out/plan"
	assert_success
	checkpoint w=2
	plan -o "$T/out/plan"
	assert_success
	assert_equal "$(ls -A "$T/out")" plan
	weir-dump "$T/out/plan" | grep -q '"total":2'
	plan -o "$T/none/plan"
	one_line_error 66 "$T/none/plan"
	plan --dry-run
	one_line_error 64 --dry-run
}

@test "a tensor's name with a line in it is refused" {
	checkpoint $'a\nb=1'
	plan
	one_line_error 65 'a\x0ab'
}

@test "UX-04 help and version go to stdout" {
	run --separate-stderr weir-plan --help
	assert_success
	assert_output --partial --bucket-size
	assert_equal "$stderr" ""
	run --separate-stderr weir-plan --version
	assert_success
	assert_equal "$stderr" ""
}

@test "UX-09 locale and environment change nothing" {
	"$FIXTURES/mkckpt.py" --size 1MiB --shards 2 "$T/c"
	plan --bucket-size 100kB
	cp "$T/plan" "$T/first"
	for env in LC_ALL=de_DE.UTF-8 LC_ALL=tr_TR LC_ALL=POSIX TZ=Nowhere/None \
		TMPDIR=/none -uHOME; do
		rm -f "$T/plan"
		env "$env" weir-plan --source "$T/c" --engine "ipc://$T/e" \
			-o "$T/plan" --bucket-size 100kB
		cmp "$T/first" "$T/plan"
	done
}

@test "UX-09 a fleet of 2 MB" {
	checkpoint w=1
	python3 - >"$T/fleet.yaml" <<-'PY'
	print("engines:")
	for i in range(20000):
	    print(f"  - name: engine-of-a-long-name-{i:08}\n"
	          f"    workers: [{{endpoint: \"ipc:///run/weir/a-long-path/{i}\"}}]")
	PY
	[ "$(stat -c %s "$T/fleet.yaml")" -gt 2000000 ]
	run --separate-stderr weir-plan --source "$T/c" -o "$T/plan" \
		--fleet "$T/fleet.yaml"
	assert_success
	weir-dump "$T/plan" | grep -q '"engines":20000'
}

@test "memory for each tensor is bounded, whatever the plan's length" {
	if grep -q __asan_init "$(command -v weir-plan)"; then
		skip "built with a sanitizer"
	fi
	"$FIXTURES/mkbad.py" many "$T/c"
	# 500,000 tensors: 400 bytes each over the start, in KiB.
	(
		ulimit -d $((500000 * 400 / 1024 + 16384))
		weir-plan --source "$T/c" --engine "ipc://$T/e" -o "$T/plan" \
			--bucket-size 1kB
	)
	weir-dump "$T/plan" | tail -n 1 | grep -q '"tensors":500000'
}

# stage RUN [OPTION...]: weir-plan as a stage, its line in $T/line.
stage() {
	local run=$1

	shift
	start plan weir-plan --source "$T/c" --engine "ipc://$T/e" \
		--run "$run" "$@"
	wait_for contains "$T/plan.out" weir-link
}

@test "as a stage: the plan is there before the line goes out" {
	checkpoint w=1
	stage "$T/run/r"
	grep -q "^weir-link 1 $T/run/r ipc://" "$T/plan.out"
	weir-dump "$T/run/r/plan.weir" | tail -n 1 | grep -q '"msg":"end"'
	weir-dump "$T/run/r" | grep -q '"event":"planned"'
	status=0
	stop plan TERM || status=$?
	assert_equal "$status" 143
}

@test "a plan started again reads its plan and not the source" {
	checkpoint w=1
	stage "$T/run/r"
	stop plan KILL || true
	cp "$T/run/r/plan.weir" "$T/first"
	rm -r "$T/c"
	start plan weir-plan --run "$T/run/r"
	wait_for contains "$T/plan.out" weir-link
	cmp "$T/first" "$T/run/r/plan.weir"
	status=0
	stop plan TERM || status=$?
	assert_equal "$status" 143
}

@test "a stage that cannot plan: one line, a verdict, a line to the next" {
	checkpoint w=1
	truncate -s -1 "$T/c/model.safetensors"
	run --separate-stderr weir-plan --source "$T/c" --engine "ipc://$T/e" \
		--run "$T/run/r"
	assert_equal "$status" 65
	assert_equal "${#stderr_lines[@]}" 1
	assert_output --regexp '^weir-fail 1 65 '
	weir-dump "$T/run/r/verdict" | grep -q '"exit":65'
	[ ! -e "$T/run/r/plan.weir" ]
	[ -z "$(find "$T/run/r" -name '.tmp*')" ]
}

@test "a terminal on stdout is refused with a hint" {
	command -v script >/dev/null || skip "no script(1)"
	checkpoint w=1
	run script -qec "weir-plan --source $T/c --engine ipc://$T/e" /dev/null
	assert_equal "$status" 64
	assert_output --partial "-o FILE"
}

@test "a fleet that is a directory is named" {
	checkpoint w=1
	run --separate-stderr weir-plan --source "$T/c" --fleet "$T/c" --dry-run
	one_line_error 65 "fleet $T/c: is a directory"
}

@test "BK-02 more buckets than a version may have: refused at once, with the count" {
	checkpoint a=3
	D=$(mktemp -d /dev/shm/weir-plan.XXXXXX 2>/dev/null) ||
		skip "no /dev/shm, where files may be that large"
	cp "$T/c"/* "$D"
	truncate -s 9223372036854775807 "$D/huge.txt"
	run --separate-stderr timeout 120 weir-plan --source "$D" \
		--engine ipc:///x --dry-run
	rm -r "$D"
	one_line_error 65 "more than 4194304 buckets" "--bucket-size"
}

@test "BK-01 carried files of any size: in pieces that fit the bucket size" {
	checkpoint a=3
	truncate -s 5GiB "$T/c/weights.custom"
	printf x >>"$T/c/weights.custom"
	plan --bucket-size 64MiB
	assert_success
	run buckets
	assert_equal "${#lines[@]}" 82
	assert_line "67108864 carried:5301600256+67108864"
	assert_line "1 carried:5368709120+1"
}
