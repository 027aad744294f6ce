# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # for the suites; set by run
# device.bash - engines with --device and their consumers, over the stand-in.
#
#	load device

load fleet

setup_file() {
	local name seed=0

	for name in one two three; do
		python3 "$SRC/tests/fixtures/mkckpt.py" --size 2MiB --shards 2 --finite \
			--seed $((++seed)) "$BATS_FILE_TMPDIR/$name" \
			>/dev/null 2>&1
	done
}

setup() {
	common_setup
	needs_mover weir-move-slot CUDA
	local name

	for name in one two three; do
		ln -s "$BATS_FILE_TMPDIR/$name" "$T/$name"
	done
	fleet a
}

dpush() { push "$@" --bucket-size 512KiB >"$T/push.out" 2>"$T/push.err"; }

# consumer NAME [DEVICE]: told by tell(); its answers are $T/NAME.out.
consumer() {
	local to

	mkfifo "$T/$1.in"
	start "$1" bash -c 'exec "$@" <"$0"' "$T/$1.in" \
		"$BUILD/tests/devclient" "$T/a" "${@:2}"
	exec {to}>"$T/$1.in"
	IN[$1]=$to
	: >"$T/$1.asked"
	answered "$1"
}
declare -gA IN

# answered NAME: to all that it was told, and to that it has begun.
answered() {
	wait_for has_lines "$T/$1.out" $(($(wc -l <"$T/$1.asked") + 1))
}

has_lines() { [ "$(wc -l <"$1")" -ge "$2" ]; }

# tell NAME LINE EXPECTED: its answer.
tell() {
	echo "$2" >>"$T/$1.asked"
	echo "$2" >&"${IN[$1]}"
	[ -n "${3:-}" ] || return 0
	answered "$1"
	run tail -n 1 "$T/$1.out"
	assert_output --regexp "^$3"
}

# maps NAME SOURCE VERSION: and its tensors are the source's.
maps() {
	tell "$1" map "ok $3"
	tell "$1" "dump $T/$1.dump" "ok [1-9]"
	python3 - "$2" >"$T/$1.want" <<-'END'
	import glob, json, sys
	out = {}
	for path in glob.glob(sys.argv[1] + "/*.safetensors"):
	    raw = open(path, "rb").read()
	    n = int.from_bytes(raw[:8], "little")
	    head = json.loads(raw[8:8 + n])
	    head.pop("__metadata__", None)
	    for name, t in head.items():
	        a, b = t["data_offsets"]
	        shape = "".join(" %d" % d for d in t["shape"])
	        out[name] = (b"%s %s%s %d\n" % (name.encode(),
	            t["dtype"].encode(), shape.encode(), b - a)
	            + raw[8 + n + a:8 + n + b])
	for name in sorted(out, key=str.encode):
	    sys.stdout.buffer.write(out[name])
	END
	cmp "$T/$1.dump" "$T/$1.want"
}

live_is() {
	tell "$1" live ok
	[ "$output" = "ok $2" ]
}

# Of the mover that has the device.
mover_pid() { leftover_processes | awk '/[w]eir-move-slot/ { print $1 }'; }
