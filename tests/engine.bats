#!/usr/bin/env bats
# weir-engine alone, asked by tests/engclient; see there for its words.

bats_require_minimum_version 1.5.0
load helpers

setup() {
	common_setup
	E="ipc://$T/e"
	mkdir "$T/src"
	source_dir "$T/src" 100000
}

# An engine that is killed leaves its sockets to the next one.
teardown() {
	[ ! -e "$T/engine.pid" ] || stop engine || true
	common_teardown
}

# shard FILE BYTES [CONTENT]: a shard with one tensor of so many bytes.
shard() {
	local head="{\"w\":{\"dtype\":\"U8\",\"shape\":[$2],"

	head+="\"data_offsets\":[0,$2]}}"
	{
		printf "\\x$(printf %02x "${#head}")"'\0\0\0\0\0\0\0%s' "$head"
		head -c "$2" "${3:-/dev/urandom}"
	} >"$1"
}

# Buckets: 0 a.safetensors, 1 config.json.
source_dir() {
	shard "$1/a.safetensors" "$2"
	echo '{"a":1}' >"$1/config.json"
}

# engine [OPTION]...: started, listening.
engine() {
	start engine weir-engine --name e0 --store "$T/store" --listen "$E" \
		"$@" -v
	wait_for contains "$T/engine.err" listens
}

ask() { run --separate-stderr "$BUILD/tests/engclient" "$E"; }

# field NAME: of the last reply with it
field() {
	sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" <<<"$output" | tail -1
}


# push VERSION DIR [WORD]...: all of it; the words go to begin.
push() {
	local version=$1 dir=$2

	shift 2
	ask <<-END
	probe
	begin dir=$dir version=$version epoch=$version run=r$version $*
	attach
	offer bucket=0
	offer bucket=1
	finish
	receipt
	pause
	swap
	resume
	END
}

pushed() { assert_equal "$(field msg)" resumed; }

@test "NC-02 to take part in groups for another size, or by what has none, is refused" {
	engine
	ask <<-END
	probe
	begin dir=$T/src
	enroll transport=nccl bytes=7
	enroll transport=host
	END
	assert_success
	assert_output --partial "enroll for 7 bytes: the version has "
	assert_output --partial "transport host has no groups"
	run leftover_processes
	refute_output --partial weir-move
}

versions() { find "$T/store/versions" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' '; }

served() { readlink "$T/store/current"; }

@test "a push from begin to resume: current is the source, byte for byte" {
	engine
	push 1 "$T/src"
	pushed
	assert_equal "$(served)" versions/000001
	diff -r "$T/src" "$T/store/current"
	assert_equal "$(field received)" "$(field installed)"
	assert_equal "$(field bytes)" "$(cat "$T"/src/* | wc -c)"
}

@test "no reply without an answer: what a run must not do is refused" {
	engine
	ask <<-END
	probe
	offer bucket=0
	begin dir=$T/src
	offer bucket=0
	attach
	offer bucket=0 piece=0:0:10
	offer bucket=0 piece=0:0:10 piece=0:9:10
	offer bucket=0 piece=9:0:10
	offer bucket=9
	offer bucket=1 bytes=7
	finish
	receipt
	swap
	status
	END
	assert_line --partial 'offer: no run has begun here'
	assert_line --partial 'no descriptor of a.safetensors was attached'
	assert_line --partial '"bucket":0,"cause":"bucket 0: piece 1'
	assert_line --partial 'bucket 0: offered with other pieces before'
	assert_line --partial 'bucket 9: only 2 have begun'
	assert_line --partial 'bucket 1: its pieces have 8 bytes'
	assert_line --partial 'finish: 0 of 2 buckets are held'
	assert_equal "$(field serving)" 0
}

@test "descriptors that lie are refused, and named" {
	engine
	ask <<-END
	probe
	begin dir=$T/src
	attach mode=w
	attach mode=d
	attach mode=r first=1 count=2
	END
	assert_line --partial \
		'the descriptor for a.safetensors is not open for reading only'
	assert_line --partial 'for a.safetensors is not a regular file'
	echo longer >>"$T/src/config.json"
	ask <<-END
	probe
	set epoch=1
	attach first=1 count=1 dir=$T/src
	END
	assert_line --partial 'for config.json has another size'
}

@test "begin with paths that escape, sums that are wrong" {
	engine
	ask <<-END
	probe
	begin dir=$T/src size=5
	status
	END
	assert_line --partial "the version is said to have 5"
	assert_equal "$(field registry)" ""
}

@test "VF-01 VF-02 a source truncated under way fails its bucket; no version" {
	engine
	mkfifo "$T/words"
	start asking sh -c "exec $BUILD/tests/engclient $E <$T/words"
	exec 8>"$T/words"
	printf 'probe\nbegin dir=%s\nattach\noffer bucket=1\n' "$T/src" >&8
	wait_for contains "$T/asking.out" '"ack"'
	truncate -s 500 "$T/src/a.safetensors"
	# the pieces were known before: header, then the tensor
	printf 'offer bucket=0 piece=0:0:63 piece=0:63:100000\n' >&8
	printf 'finish\nstatus\n' >&8
	exec 8>&-
	wait_for_end "$(pid_of asking)"
	run cat "$T/asking.out"
	assert_line --regexp 'refused.*"bucket":0,"cause":"bucket 0: '
	assert_line --partial 'finish: 1 of 2 buckets are held'
	assert_equal "$(field serving)" 0
	assert_file_not_exist "$T/store/slots/000001"
	shard "$T/src/a.safetensors" 100000
	ask <<-END
	cancel
	END
	assert_equal "$(field msg)" cancelled
	ask <<-END
	probe
	begin dir=$T/src epoch=2 run=r2
	attach
	offer bucket=0
	offer bucket=1
	finish
	receipt
	pause
	swap
	resume
	END
	pushed
	diff -r "$T/src" "$T/store/current"
}

@test "VF-03 no receipt before every byte is there" {
	engine
	ask <<-END
	probe
	begin dir=$T/src
	receipt
	finish
	END
	assert_line --partial 'ask_receipt: version 1 is filling'
	assert_line --partial 'finish: 0 of 2 buckets are held'
}

@test "VF-04 VF-09 staged is not served: both are told apart" {
	engine
	push 1 "$T/src"
	ask <<-END
	probe
	begin dir=$T/src version=2 epoch=2 run=r2
	status
	attach
	offer bucket=0
	offer bucket=1
	finish
	status
	cancel
	status
	END
	assert_line --regexp '"serving":1,.*"staged":2,.*"sealed":false'
	assert_line --regexp '"serving":1,.*"staged":2,.*"sealed":true'
	assert_line --regexp '"serving":1,.*"staged":0,'
	assert_equal "$(served)" versions/000001
	assert_equal "$(ls -A "$T/store/staging")" ""
}

@test "VF-05 a failed post-load is served by nobody until a whole new load" {
	engine --post-load "echo first; echo out of cheese >&2; exit 3"
	push 1 "$T/src"
	assert_line --partial 'post-load failed with status 3: out of cheese'
	# of finish, of receipt, and in the command that probe shows
	assert_equal "$(grep -c 'out of cheese' <<<"$output")" 3
	assert_equal "$(served || true)" ""
	ask <<-END
	probe
	begin dir=$T/src
	cancel
	status
	END
	assert_line --partial 'has begun another version 1 here, which is broken'
	assert_equal "$(field staged)" 0
}

@test "VF-06 VF-13 numbers only go up; an older epoch changes nothing" {
	engine
	push 57 "$T/src"
	ask <<-END
	probe
	begin dir=$T/src epoch=58 version=1
	begin epoch=58 version=0
	begin epoch=58 version=57
	begin epoch=3 version=99
	pause epoch=58 run=other
	cancel epoch=57 run=r57
	status
	END
	assert_line --partial 'version 1 is not above version 57, which is served'
	assert_line --partial 'version 57 is not above version 57'
	assert_line --partial 'epoch 3 of run r1 is over'
	assert_line --partial 'epoch 58 belongs to run r1, not to other'
	assert_equal "$(field serving)" 57
	assert_equal "$(field highest)" 57
}

@test "the fence outlives the engine; another registry only with --adopt" {
	engine
	push 5 "$T/src"
	stop engine
	engine
	ask <<-END
	probe
	begin dir=$T/src registry=B version=6 epoch=6
	begin registry=A version=6 epoch=4
	END
	assert_line --partial 'the store belongs to registry A, not to B'
	assert_line --partial 'epoch 4 of run r1 is over'
	stop engine
	engine --adopt
	ask <<-END
	probe
	begin dir=$T/src registry=B version=6 epoch=1
	begin registry=C version=6 epoch=9
	END
	assert_line --partial '"begun"'
	assert_line --partial 'the store belongs to registry B, not to C'
}

# begin_of REGISTRY EPOCH
begin_of() {
	ask <<-END
	probe
	begin dir=$T/src registry=$1 version=$2 epoch=$2
	END
}

# restart [OPTION]...: after a SIGKILL.
restart() {
	kill -KILL "$(pid_of engine)"
	wait_for is_dead "$(pid_of engine)"
	rm "$T/engine.err"
	engine "$@"
}

@test "I9 --adopt that was used is used up for a restart with the same options" {
	engine --adopt
	begin_of A 1
	restart --adopt
	begin_of B 2
	assert_line --partial '"begun"'
	restart --adopt
	assert_file_contains "$T/engine.err" \
		'registry B took the store over from A; to use it again'
	begin_of A 3
	assert_line --partial 'the store belongs to registry B, not to A'
	run weir-dump "$T/store/fence"
	assert_line --partial '"former":"A","spent":true'
	begin_of B 3
	assert_line --partial '"begun"'
	restart
	restart --adopt
	begin_of C 4
	assert_line --partial '"begun"'
}

@test "FS-01 write all, fsync files, record, rename, then current, each synced" {
	strace -qq -e trace=none true || skip "no ptrace here"
	# The leak checker of a sanitizer build cannot work under strace.
	export ASAN_OPTIONS=detect_leaks=0
	start engine strace -f -y -o "$T/trace" \
		-e trace=fsync,renameat,symlinkat,linkat \
		weir-engine --store "$T/store" --listen "$E" -v
	wait_for contains "$T/engine.err" listens
	push 1 "$T/src"
	pushed
	kill "$(pgrep -P "$(pid_of engine)")"
	wait_for_end "$(pid_of engine)"
	run awk '
	/fsync/ && /staging\/000001\/a.safetensors/ { print "file" }
	/fsync/ && /staging\/000001>/ { print "directory" }
	/rename/ && /tmp.000001/ { print "record" }
	/fsync/ && /store\/slots>/ { print "slots" }
	/rename/ && /"versions\/000001"/ { print "version" }
	/fsync/ && /store\/versions>/ { print "versions" }
	/rename/ && /"current"/ { print "current" }
	/fsync/ && /store>/ && seen { print "root" }
	/rename/ && /"current"/ { seen = 1 }
	' "$T/trace"
	# The first one is the start's, which believes no name before.
	assert_output "$(printf '%s\n' versions file directory record slots \
		version versions current root)"
}

@test "FS-02 SH-01 no room: need and have, nothing left, the old one served" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	mkdir "$T/small"
	start engine unshare -m sh -c "
		mount -t tmpfs -o size=3m none '$T/small' && exec weir-engine \
		--store '$T/small/store' --listen '$E' -v"
	wait_for contains "$T/engine.err" listens
	source_dir "$T/src" 1000000
	push 1 "$T/src"
	pushed
	mkdir "$T/large"
	source_dir "$T/large" 64000000
	push 2 "$T/large"
	assert_line --regexp 'no space in .*/small/store for version 2: need 640[0-9]* bytes, have [0-9]+'
	push 3 "$T/src"
	pushed
}

@test "FS-10 a sparse source arrives in full" {
	engine
	shard "$T/src/a.safetensors" 4000000 /dev/zero
	cp --sparse=always "$T/src/a.safetensors" "$T/src/b"
	mv "$T/src/b" "$T/src/a.safetensors"
	push 1 "$T/src"
	pushed
	cmp "$T/src/a.safetensors" "$T/store/current/a.safetensors"
}

@test "SH-02 killed under way, again and again: nothing piles up" {
	for i in 1 2 3; do
		engine
		ask <<-END
		probe
		begin dir=$T/src epoch=$i
		attach
		offer bucket=0
		END
		assert_equal "$(field msg)" ack
		kill -KILL "$LAST_PID"
		wait_for_end "$LAST_PID" || true
		rm -f "$T/engine.err"
	done
	mkdir "$T/store/staging/notours"
	engine
	assert_equal "$(ls "$T/store/staging")" notours
	assert_equal "$(ls -A "$T/store/slots")$(ls -A "$T/store/versions")" ""
	push 9 "$T/src"
	pushed
}

@test "SH-04 an ack comes after the bytes" {
	engine
	shard "$T/src/a.safetensors" 40000000
	"$BUILD/tests/engclient" "$E" > >(
		while read -r reply; do
			[[ $reply == *'"ack"'* ]] || continue
			cmp "$T/src/a.safetensors" \
				"$T/store/staging/000001/a.safetensors" &&
				echo same >"$T/same"
			break
		done
	) <<-END
	probe
	begin dir=$T/src
	attach
	offer bucket=0
	END
	wait_for test -e "$T/same"
}

@test "ST-18 mapping refused: written and read by calls, bytes right" {
	shard "$T/src/a.safetensors" 160000000 /dev/zero
	start engine sh -c "ulimit -v 150000 && exec weir-engine \
		--copy-threads 1 --store '$T/store' --listen '$E' -v"
	skip_if_sanitized
	wait_for contains "$T/engine.err" listens
	push 1 "$T/src"
	pushed
	cmp "$T/src/a.safetensors" "$T/store/current/a.safetensors"
}

@test "ST-19 signalling NaNs arrive bit for bit" {
	engine
	yes $'\x01\x00\xa0\x7f\xff\xff' | tr -d '\n' | head -c 50001 >"$T/nan"
	shard "$T/src/a.safetensors" 50001 "$T/nan"
	push 1 "$T/src"
	pushed
	cmp "$T/src/a.safetensors" "$T/store/current/a.safetensors"
}

@test "ZQ-13 an engine started again at once is there, with another boot" {
	local old

	engine
	ask <<<status
	old=$(field boot)
	kill -KILL "$LAST_PID"
	wait_for_end "$LAST_PID" || true
	rm -f "$T/engine.err"
	engine
	ask <<-END
	begin dir=$T/src boot=$old
	status
	END
	assert_line --partial "for boot $old of this engine, which was started"
	refute [ "$(field boot)" = "$old" ]
}

@test "ZQ-15 ipc only, 0600, and frames that are no messages end nothing" {
	engine
	assert_equal "$(stat -c %a "$T/e.fd")" 600
	assert_equal "$(stat -c %a "$T/e")" 600
	ask <<-END
	raw dd ffffffff 00
	raw ddffffffff
	raw 9191919191919191
	raw c1
	raw 00
	status
	END
	assert_equal "$(field msg)" state
	run --separate-stderr weir-engine --store "$T/s2" \
		--listen tcp://127.0.0.1:7777
	one_line_error 78 "tcp://127.0.0.1:7777" "only ipc://"
}

@test "a request of another build is answered: what is to be done" {
	engine
	ask <<-END
	raw 93300501
	status
	END
	assert_equal "$(field msg)" refused
	assert_equal "$(field seq)" 5
	assert_regex "$(field cause)" "another version of weir's messages.*restart"
}

@test "a second engine: on the same store, at the same endpoint" {
	engine
	run --separate-stderr weir-engine --store "$T/store" \
		--listen "ipc://$T/f"
	one_line_error 75 "store $T/store is in use by a weir-engine with pid $(pid_of engine)"
	run --separate-stderr weir-engine --store "$T/s2" --listen "$E"
	one_line_error 75 "$T/e.fd: somebody listens there"
	push 1 "$T/src"
	pushed
}

@test "usage: what is missing, and values out of range, are named" {
	run --separate-stderr weir-engine --store "$T/s" --listen "$E" \
		--in-place
	one_line_error 64 "--device"
	run --separate-stderr weir-engine --store "$T/s"
	one_line_error 64 "--listen"
	run --separate-stderr weir-engine --store "$T/s" --listen "$E" --keep 0
	one_line_error 64 "keep"
	run --separate-stderr weir-engine --store "$T/s" --listen "$E" \
		--allow nobody-of-that-name
	one_line_error 64 "nobody-of-that-name"
}

@test "ready-fd: a newline when it listens" {
	start engine sh -c "exec weir-engine --store '$T/store' \
		--listen '$E' --ready-fd 4 4>'$T/ready'"
	wait_for test -s "$T/ready"
	assert_equal "$(wc -c <"$T/ready")" 1
	stop engine
	assert_file_not_exist "$T/e"
	assert_file_not_exist "$T/e.fd"
}

@test "a begin again keeps what is held; a held bucket is acked again" {
	engine
	ask <<-END
	probe
	begin dir=$T/src
	attach
	offer bucket=0
	begin
	holding
	offer bucket=0 instance=2
	offer bucket=1 instance=1
	END
	assert_line --partial '"count":2,"bitmap":1'
	assert_equal "$(grep -c '"ack"' <<<"$output")" 2
	assert_line --partial 'instance 1 was replaced by instance 2'
}

@test "one ack for each worker" {
	engine
	ask <<-END
	probe
	begin dir=$T/src worker=2 workers=3
	attach
	offer bucket=0 replies=3
	END
	assert_line --partial '"worker":2'
	assert_line --partial '"worker":3'
	assert_line --partial '"worker":4'
}

@test "reread: a byte that changed between copy and receipt is found" {
	engine
	ask <<-END
	probe
	begin dir=$T/src proof=3
	attach
	offer bucket=0
	offer bucket=1
	finish
	receipt
	END
	assert_equal "$(field proof)" 3
	ask <<<cancel
	ask <<-END
	probe
	begin epoch=2 dir=$T/src proof=3
	attach
	offer bucket=0
	offer bucket=1
	END
	spoil "$T/store/staging/000001/a.safetensors" 5000
	ask <<-END
	probe
	set epoch=2
	finish
	END
	assert_line --regexp 'a.safetensors: 100000 bytes at [0-9]+ are not what was copied'
}

@test "a restart keeps a sealed slot, and hashes it before a receipt" {
	engine
	ask <<-END
	probe
	begin dir=$T/src workers=2
	attach
	offer bucket=0 replies=2
	offer bucket=1 replies=2
	finish
	END
	stop engine
	rm -f "$T/engine.err"
	engine
	ask <<-END
	probe
	pause
	swap
	receipt
	swap
	resume
	END
	assert_line --partial 'ask for a receipt first'
	assert_line --regexp '"workers":2,.*"proof":3'
	pushed
	diff -r "$T/src" "$T/store/current"
}

@test "a slot that changed while the engine was away gives no receipt" {
	engine
	ask <<-END
	probe
	begin dir=$T/src
	attach
	offer bucket=0
	offer bucket=1
	finish
	END
	stop engine
	rm -f "$T/engine.err"
	spoil "$T/store/staging/000001/a.safetensors" 5000
	engine
	ask <<-END
	probe
	receipt
	END
	assert_line --partial 'version 1 is not what was sealed before the restart'
}

@test "post-load: its slot, its version, and a digest of what it made" {
	# shellcheck disable=SC2016
	engine --post-load 'cd "$WEIR_SLOT" && echo "$WEIR_VERSION $WEIR_ENGINE" >made && echo done'
	push 4 "$T/src"
	pushed
	assert_equal "$(cat "$T/store/current/made")" "4 e0"
	refute [ "$(field received)" = "$(field installed)" ]
	assert_file_contains "$T/engine.err" 'post-load: done'
	push 5 "$T/src"
	pushed
}

@test "post-load says what is no text: refused with it all the same" {
	engine --post-load 'printf "bad \\377\\001\\n" >&2; exit 3'
	push 4 "$T/src"
	assert_line --partial 'post-load failed with status 3: bad '
	stop engine
	rm -f "$T/engine.err"
	engine --post-load 'yes é | tr -d "\\n" | head -c 1999 >&2; exit 3'
	push 5 "$T/src"
	assert_line --partial 'post-load failed with status 3: '
}

@test "post-load is killed with all it started when the run is cancelled" {
	# shellcheck disable=SC2016
	engine --post-load 'sleep 1000 & echo $$ >"'"$T"'/pid"; wait'
	"$BUILD/tests/engclient" "$E" >"$T/out" <<-END &
	probe
	begin dir=$T/src
	attach
	offer bucket=0
	offer bucket=1
	finish
	END
	asking=$!
	wait_for test -s "$T/pid"
	ask <<<cancel
	assert_equal "$(field msg)" cancelled
	wait_for_end "$asking"
	assert_file_contains "$T/out" 'the run was cancelled'
	wait_for is_dead "$(cat "$T/pid")"
}

# dies_with_engine: what wrote its pids to $T/pid, line by line.
dies_with_engine() {
	local pid

	wait_for test -s "$T/pid"
	kill -KILL "$(pid_of engine)"
	while read -r pid; do
		wait_for is_dead "$pid"
	done <"$T/pid"
	# shellcheck disable=SC2034 # common_teardown asks
	KILLED_LEAVE=1
}

@test "post-load dies with an engine that is killed, and all it started" {
	# shellcheck disable=SC2016
	engine --post-load 'sleep 1000 & printf "%s\n" $$ $! >"'"$T"'/pid"; wait'
	printf '%s\n' probe "begin dir=$T/src" attach 'offer bucket=0' \
		'offer bucket=1' finish >"$T/words"
	start ask sh -c "exec $BUILD/tests/engclient $E <$T/words"
	dies_with_engine
}

@test "a hook dies with an engine that is killed, and all it started" {
	# shellcheck disable=SC2016
	engine --on-pause 'sleep 1000 & printf "%s\n" $$ $! >"'"$T"'/pid"; wait'
	printf 'probe\npause\n' >"$T/words"
	start ask sh -c "exec $BUILD/tests/engclient $E <$T/words"
	dies_with_engine
}

@test "a hook is the parent of nothing that it did not start" {
	# shellcheck disable=SC2016
	engine --on-pause 'exec python3 -c "import os; os.wait()"'
	printf 'probe\npause\n' >"$T/words"
	run "$BUILD/tests/engclient" "$E" <"$T/words"
	assert_line --partial 'ChildProcessError'
}

@test "hooks: in order, with the version that is served" {
	# shellcheck disable=SC2016
	engine --on-pause 'echo pause $WEIR_VERSION >>'"$T/hooks" \
		--on-swap 'echo swap $WEIR_VERSION $(basename "$WEIR_SLOT") >>'"$T/hooks" \
		--on-resume 'echo resume $WEIR_VERSION >>'"$T/hooks"
	push 1 "$T/src"
	pushed
	assert_equal "$(cat "$T/hooks")" "$(printf '%s\n' 'pause 0' \
		'swap 1 000001' 'resume 1')"
}

@test "hooks that fail: on-pause refuses; on-swap leaves the old version" {
	engine
	push 1 "$T/src"
	stop engine
	rm -f "$T/engine.err"
	engine --on-pause "echo no >&2; test -e '$T/may'" \
		--on-swap "echo cannot load >&2; exit 1"
	push 2 "$T/src"
	assert_line --partial 'on-pause failed with status 1: no'
	touch "$T/may"
	ask <<-END
	probe
	set version=2 epoch=2 run=r2
	receipt
	pause
	swap
	resume
	status
	END
	assert_line --partial 'on-swap failed with status 1: cannot load'
	assert_equal "$(served)" versions/000001
	assert_line --regexp '"serving":1,.*"staged":2,.*"sealed":true'
}

@test "killed while paused: the next start resumes the engine process" {
	engine --on-pause "echo pause >>$T/hooks" \
		--on-resume "echo resume >>$T/hooks"
	ask <<-END
	probe
	pause lease=600000 epoch=1 run=r1
	END
	assert_line --partial '"paused"'
	kill -KILL "$(pid_of engine)"
	wait_for is_dead "$(pid_of engine)"
	rm "$T/engine.err"
	engine --on-resume "echo resume >>$T/hooks"
	wait_for contains "$T/hooks" resume
	assert_equal "$(tr '\n' ' ' <"$T/hooks")" "pause resume "
	wait_for test ! -e "$T/store/paused"
	ask <<<probe
	assert_equal "$(field paused)" false
}

@test "a hook that hangs is killed at its deadline" {
	engine --on-pause "sleep 1000" --hook-timeout 200ms
	ask <<-END
	probe
	pause
	END
	assert_line --partial 'on-pause did not end within 200 ms'
}

@test "a pause ends with its lease" {
	engine --on-resume "touch '$T/resumed'"
	ask <<-END
	probe
	pause lease=50
	END
	assert_equal "$(field msg)" paused
	wait_for test -e "$T/resumed"
	not_paused() {
		ask <<<status
		[ "$(field paused)" = false ]
	}
	wait_for not_paused
}

@test "TM-02 a pause ends with its lease, though the wall clock is set back" {
	skip_if_sanitized
	export CLOCK_SHIFT="$T/shift" LD_PRELOAD="$BUILD/tests/clock/shift.so"
	engine --on-resume "touch '$T/resumed'"
	ask <<-END
	probe
	pause lease=1000
	END
	assert_equal "$(field msg)" paused
	echo -86400 >"$T/shift"
	wait_for test -e "$T/resumed"
}

@test "retention: keep 1 and 2, and a version served is never removed" {
	engine --keep 1
	for v in 1 2 3; do push $v "$T/src"; done
	assert_equal "$(versions)" "000002 000003 "
	ask <<-END
	probe
	begin dir=$T/src version=4 epoch=4
	END
	assert_equal "$(ls "$T/store/versions")" 000003
	stop engine
	rm -f "$T/engine.err"
	engine --keep 2
	for v in 5 6 7; do push $v "$T/src"; done
	assert_equal "$(versions)" "000005 000006 000007 "
	assert_equal "$(served)" versions/000007
}

@test "memory does not grow with the checkpoint" {
	local anon

	engine
	skip_if_sanitized
	shard "$T/src/a.safetensors" 100000000 /dev/zero
	push 1 "$T/src"
	pushed
	anon=$(awk '/RssAnon/ { print $2 }' "/proc/$(pid_of engine)/status")
	assert [ "$anon" -lt 32768 ]
}

@test "pieces that reach beyond their objects are refused, not folded" {
	local size

	rm "$T/src/config.json"
	size=$(stat -c %s "$T/src/a.safetensors")
	engine
	ask <<-END
	probe
	begin dir=$T/src
	attach
	offer bucket=0 piece=0:0:$size
	finish
	END
	assert_line --partial '"w\" at'
	assert_line --partial 'did not come in pieces of its own'
}

@test "I10 a stale begin does not change what the pending one makes" {
	mkdir "$T/other"
	shard "$T/other/b.safetensors" 4096
	engine --post-load 'sleep 60'
	ask <<-END
	probe
	begin dir=$T/src version=1
	attach
	offer bucket=0
	offer bucket=1
	END
	printf 'probe\nfinish version=1\n' >"$T/finish"
	printf 'probe\nbegin dir=%s version=2 epoch=2 run=r2\n' "$T/src" \
		>"$T/begin"
	start finish sh -c "$BUILD/tests/engclient $E <$T/finish"
	wait_for pgrep -f -P "$(pid_of engine)" 'sleep 60'
	start begin sh -c "$BUILD/tests/engclient $E <$T/begin"
	wait_for contains "$T/engine.err" 'the run was cancelled'
	ask <<-END
	probe
	begin dir=$T/other version=9 epoch=1 run=r1
	END
	assert_line --partial 'epoch 1 of run r1 is over'
	wait_for_end "$(pid_of begin)"
	assert contains "$T/begin.out" '"begun"'
	assert_dir_exists "$T/store/staging/000002"
	assert_file_exists "$T/store/staging/000002/config.json"
}

@test "ready-fd: not open is a usage error, before anything is made" {
	run --separate-stderr weir-engine --name e0 --store "$T/store" \
		--listen "$E" --ready-fd 77
	one_line_error 64 "--ready-fd 77" "not open"
	assert_not_exist "$T/store"
}
