# shellcheck shell=bash
# shellcheck disable=SC2154 # status, output, stderr: set by run
# delta.bash - what the suites of weir-delta share.

# The interpreter that has the modules of share/setup.
for PYTHON in /usr/bin/python3 python3; do
	"$PYTHON" -c 'import numpy, xxhash, zstandard' 2>/dev/null && break
done
export PYTHON

mkckpt() { "$PYTHON" "$SRC/tests/fixtures/mkckpt.py" "$@" 2>/dev/null; }
mktensors() { "$PYTHON" "$SRC/tests/fixtures/mktensors.py" "$@"; }
mkstep() { "$PYTHON" "$SRC/tests/fixtures/mkstep.py" "$@"; }
slime() { "$PYTHON" "$SRC/tests/slimedelta.py" "$@"; }

# make_delta OLD NEW OUT BASE VERSION [OPTION]...
make_delta() {
	weir-delta diff -q "$1" "$2" -o "$3" --base-version "$4" \
		--weight-version "$5" "${@:6}"
}

# tree DIR: names and bytes of all that is in it.
tree() { (cd "$1" && find . ! -name .weir-version | sort &&
	find . -type f ! -name .weir-version -print0 | sort -z |
	xargs -0 sha256sum); }

# refuses CODE REGEX COMMAND...: one line, nothing written beside.
refuses() {
	local code=$1 want=$2

	shift 2
	tree "$D" >"$T/before.tree"
	run --separate-stderr "$@"
	[ "$status" -eq "$code" ] || fail "status $status: $stderr"
	[[ "$stderr" =~ $want ]] || fail "said: $stderr"
	[ "$(grep -c error <<<"$stderr")" -eq 1 ] || fail "lines: $stderr"
	tree "$D" | diff "$T/before.tree" - || fail "something was written"
}

skip_if_sanitized() {
	! grep -q __asan_init "$BUILD/weir-delta" || skip "built with a sanitizer"
}
