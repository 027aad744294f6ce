#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, output: set by run
# The store that torch's clients form a group over: its sockets and bounds,
# and (make interop) torch's own clients.

load helpers

# store [MS [KEY VALUE]]: a store as a process; its port is in $PORT.
store() {
	start store "$BUILD/tests/tcpstored" 127.0.0.1 0 "${1:-60000}" \
		"${2:--}" "${3:-x}"
	wait_for test -s "$T/store.out"
	PORT=$(head -n 1 "$T/store.out")
}

connect() { exec 8<>"/dev/tcp/127.0.0.1/$PORT"; }
# shellcheck disable=SC2059 # bytes are what a format is for
say() { printf "$@" >&8; }

# answered BYTES: as many come, and are in $T/answer.
answered() { timeout 120 head -c "$1" <&8 >"$T/answer"; }
is_closed() { [ -z "$(timeout 120 cat <&8 2>/dev/null)" ]; }

@test "what torch's clients said is answered as torch's server did" {
	local dialect said

	for dialect in current 1.13; do
		said=$SRC/tests/golden/tcpstore/$dialect
		store
		connect
		cat "$said.in" >&8
		answered "$(stat -c %s "$said.out")"
		cmp "$T/answer" "$said.out"
		exec 8>&-
		stop store
	done
}

@test "who waits is woken by a key that is set later" {
	store 60000 /g//0 secret
	connect
	say '\x05\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0/g//0'
	answered 1
	printf '\0' | cmp - "$T/answer"
	say '\x02\5\0\0\0\0\0\0\0/g//0'
	answered 14
	printf '\6\0\0\0\0\0\0\0secret' | cmp - "$T/answer"
	exec 8>&-
	stop store
	grep -q "waiting for: /g//0" "$T/store.out"
}

@test "who speaks no TCPStore is closed and named; others go on" {
	store
	connect
	exec 7<>"/dev/tcp/127.0.0.1/$PORT"
	printf 'GET / HTTP/1.1\r\n\r\n' >&7
	[ -z "$(timeout 120 cat <&7 2>/dev/null)" ]
	exec 7>&-
	say '\x06'
	answered 8
	say '\x07'
	is_closed
	exec 8>&-
	stop store
	contains "$T/store.err" "is closed: query 71 is unknown"
	contains "$T/store.err" "is closed: WATCH_KEY is not served here"
}

@test "a request that is half there ends with the store's deadline" {
	store 3000
	connect
	say '\x02\5\0\0'
	is_closed
	exec 8>&-
	ends "$(pid_of store)"
	assert_equal "$status" 69
	contains "$T/store.err" "the deadline passed"
}

@test "one address is listened at, and a taken port is said" {
	local host

	store
	for host in 0.0.0.0 :: localhost 127.0.0.1.5; do
		run "$BUILD/tests/tcpstored" $host 0 1000 - x </dev/null
		assert_equal "$status" 78
		assert_output --partial "$host"
	done
	run "$BUILD/tests/tcpstored" 127.0.0.1 "$PORT" 1000 - x </dev/null
	assert_equal "$status" 75
	stop store
}

@test "one client too many is closed, and the rest is answered" {
	store
	python3 - "$PORT" <<-'END'
		import socket, sys

		at = ("127.0.0.1", int(sys.argv[1]))
		peers = [socket.create_connection(at) for _ in range(300)]
		for peer in peers:
		    peer.sendall(b"\x06")
		assert all(peer.recv(8) == bytes(8) for peer in peers)
		late = socket.create_connection(at)
		try:
		    assert late.recv(1) == b""
		except ConnectionResetError:
		    pass
		peers[0].close()
		peers[1].sendall(b"\x06")
		assert peers[1].recv(8) == bytes(8)
	END
	stop store
	contains "$T/store.err" "one too many"
}

# ---- make interop: PYTHONS are interpreters that have torch ----

SLOW=900 # seconds: a store stands while torch is imported

torches() {
	[ -n "${INTEROP_PYTHONS:-}" ] || skip "make interop"
	for PYTHON in $INTEROP_PYTHONS; do
		if ! "$PYTHON" "$SRC/tests/torchstore.py" version; then
			echo "# $PYTHON: no torch" >&3
			continue
		fi
		echo "# $("$PYTHON" "$SRC/tests/torchstore.py" version)" >&3
		"$@"
	done
}

# Of one server, then of the other; what they hear is compared.
hear() {
	timeout "$SLOW" "$PYTHON" "$SRC/tests/torchstore.py" talk 127.0.0.1 "$1"
}

same_talk() {
	start theirs "$PYTHON" "$SRC/tests/torchstore.py" serve
	WAIT_SECONDS=$SLOW wait_for test -s "$T/theirs.out"
	hear "$(cat "$T/theirs.out")" >"$T/theirs"
	stop theirs || true
	store "${SLOW}000"
	hear "$PORT" >"$T/ours"
	stop store
	sed 's/^/# /' "$T/ours" >&3
	diff "$T/theirs" "$T/ours"
}

@test "interop: torch's clients hear the same of us as of torch's server" {
	torches same_talk
}

workers_join() {
	store "${SLOW}000" /g/g//cuda//0 secret
	timeout "$SLOW" "$PYTHON" "$SRC/tests/torchstore.py" join 127.0.0.1 \
		"$PORT" 3 g g//cuda//0 >"$T/ranks"
	stop store
	printf '%s 736563726574\n' 1 2 3 | diff - <(sort "$T/ranks")
	contains "$T/store.out" "joined 3"
}

@test "interop: three workers join and get the id that is set for them" {
	torches workers_join
}
