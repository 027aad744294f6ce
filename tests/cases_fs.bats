#!/usr/bin/env bats
# FS, SH - file systems that are full, slow to show, sparse or shared.
# shellcheck disable=SC2030,SC2031,SC2154 # status, stderr: set by run

load cases

@test "FS-01 the decision: receipts and decision synced before it is said" {
	strace -qq -e trace=none true || skip "no ptrace here"
	skip_if_sanitized
	checkpoints
	engines a
	fleet a
	weir-plan --source "$T/one" --fleet "$T/fleet.yaml" |
		weir-admit | weir-transfer |
		strace -f -y -o "$T/trace" \
			-e trace=fsync,linkat,renameat,unlinkat,write \
			weir-commit --registry "$T/registry" >"$T/out"
	run awk '
		/fsync/ && /versions\/000001/ { synced = 1; print "sync" }
		/rename/ && /"receipts"/ { print "receipts" }
		/linkat/ && /"decision"/ { print "decision" }
		/write\(/ && /published/ { print "said" }
	' "$T/trace"
	assert_output --regexp \
		$'receipts\n(sync\n)+decision\nsync\n(.*\n)*said'
}

@test "FS-02 SH-01 no room at the publisher or at an engine: said, and mended" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	base a
	start b unshare -m sh -c "mkdir '$T/b' && mount -t tmpfs -o size=400k \
		none '$T/b' && exec weir-engine --name b --store '$T/b' \
		--listen 'ipc://$T/b.sock'"
	wait_for test -S "$T/b.sock"
	fleet a b
	run --separate-stderr push "$T/two"
	[ "$status" -eq 1 ] || [ "$status" -eq 69 ] || [ "$status" -eq 74 ]
	one_error "engine b" "has room for" "needs 7211"
	still_one a
	stop b
	fleet a
	run --separate-stderr unshare -m sh -c "mkdir '$T/full' &&
		mount -t tmpfs -o size=16k none '$T/full' &&
		head -c 12k /dev/zero >'$T/full/x' &&
		exec weir-push --source '$T/two' --fleet '$T/fleet.yaml' \
			--registry '$T/full/registry'"
	assert_equal "$status" 74
	one_error "$T/full/registry" "No space"
	still_one a
	then_two a
}

# The fence of the cancel, which frees it all, has to be written as well.
@test "FS-02 a post-load that fills the store: cancelled all the same" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	base a
	start b unshare -m sh -c "mkdir '$T/b' && mount -t tmpfs -o size=4m \
		none '$T/b' && exec weir-engine --name b --store '$T/b' \
		--listen 'ipc://$T/b.sock' --post-load \
		'test -e $T/may || yes >\$WEIR_SLOT/x'"
	wait_for test -S "$T/b.sock"
	fleet a b
	for _ in 1 2; do
		run --separate-stderr push "$T/two"
		refused 1 "engine b" "No space"
		still_one a
	done
	touch "$T/may"
	push "$T/two" --weight-version 2 >/dev/null 2>&1
	holds a "$T/two"
}

@test "FS-02 no room at an engine, --min-engines: left out, and told once" {
	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	base a
	start b unshare -m sh -c "mkdir '$T/b' && mount -t tmpfs -o size=400k \
		none '$T/b' && exec weir-engine --name b --store '$T/b' \
		--listen 'ipc://$T/b.sock'"
	wait_for test -S "$T/b.sock"
	fleet a b
	run --separate-stderr push "$T/two" --min-engines 1
	assert_equal "$status" 3
	[[ $stderr == *"b is excluded: engine b"*"has room for"* ]]
	one_error "b is excluded"
	assert_equal "$(serving a)" 2
}

@test "FS-04 a source that is not all there yet: named, later it is fine" {
	base a
	cp -r "$T/two" "$T/bad"
	mv "$T/bad/model-00002-of-00002.safetensors" "$T/late"
	run --separate-stderr push "$T/bad"
	refused 66 model-00002-of-00002.safetensors
	still_one a
	head -c 5000 "$T/late" >"$T/bad/model-00002-of-00002.safetensors"
	run --separate-stderr push "$T/bad"
	refused 65 model-00002-of-00002.safetensors
	still_one a
	cp "$T/late" "$T/bad/model-00002-of-00002.safetensors"
	push "$T/bad" >/dev/null 2>&1
	holds a "$T/two"
}

@test "FS-05 readers are few by default, and waves bound them" {
	local names=()

	run weir-engine --help
	assert_output --partial "two, or one for each core"
	run weir-transfer --help
	assert_output --partial "(default 2)"
	for ((i = 0; i < 8; i++)); do
		names+=("e$i")
	done
	checkpoint "$T/one" --size 1MiB
	engines "${names[@]}"
	fleet "${names[@]}"
	push "$T/one" --max-inflight-engine-groups 2 --bucket-size 256KiB \
		>/dev/null 2>&1
	python3 "$SRC/tests/checkevents.py" "$(newest_run)/events" --groups 2 \
		--engines "$(IFS=,; echo "${names[*]}")"
	holds e7 "$T/one"
}

@test "FS-09 three publishers at once: a number each, none lost" {
	local i

	base a
	for i in 1 2 3; do
		checkpoint "$T/s$i" --size 1MiB --seed 1$i
		start_push p$i "$T/s$i" --wait 200s
	done
	for i in 1 2 3; do
		ends_with 0 p$i
	done
	assert_equal "$(serving a)" 4
	for i in 2 3 4; do
		decided $i
	done
	# a holder that dies leaves no lock
	fake c silent=finish serving=4
	fleet a c
	start_push dead "$T/two"
	wait_for asked_finish
	kill -KILL "$(pid_of dead)"
	wait_for is_dead "$(pid_of dead)"
	wait_for no_stages
	stop c
	fleet a
	push "$T/two" --wait 200s >/dev/null 2>&1
	holds a "$T/two"
}

asked_finish() { [ "$(asked c finish)" -gt 0 ]; }

@test "FS-10 sparse shards arrive in full" {
	engines a
	fleet a
	tensors --sparse "$T/holes" x:U8:20000000 y:BF16:1000000
	printf end | dd of="$T/holes/model.safetensors" bs=1 conv=notrunc \
		seek=12000000 status=none
	push "$T/holes" --bucket-size 1MiB --split-tensors >/dev/null 2>&1
	holds a "$T/holes"
}

@test "SH-02 publisher and engine killed again and again: nothing piles up" {
	local i

	checkpoints
	for i in 1 2 3; do
		held_engine a
		fleet a
		[ $i -gt 1 ] || push "$T/one" >/dev/null 2>&1
		touch "$T/hold"
		start_push push "$T/two"
		held a
		kill -KILL "$(pid_of push)"
		kill_engine a
		rm "$T/hold"
		wait_for no_leftover_processes
	done
	held_engine a
	push "$T/two" >/dev/null 2>&1
	holds a "$T/two"
	assert_clean_runs
	assert_equal "$(echo "$T"/a/versions/*)" \
		"$T/a/versions/000001 $T/a/versions/000002"
	assert_equal "$(ls -A "$T/a/staging")" ""
}

# on_read_only ERROR COMMAND...: all of $T/fixed is, for it.
on_read_only() {
	local error=$1

	shift
	run --separate-stderr timeout 60 unshare -m sh -c \
		'mount -t tmpfs -o ro,mode=0700 none "$0" && exec "$@"' \
		"$T/fixed" "$@"
	assert_equal "$status" 77
	one_error "$error: Read-only file system"
}

@test "a read-only file system: what cannot be done there is said" {
	local fixed=$T/fixed

	unshare -m true 2>/dev/null || skip "no mount namespaces here"
	base a
	mkdir "$fixed"
	on_read_only "listen on $fixed/b.sock.fd" weir-engine --name b \
		--store "$T/b" --listen "ipc://$fixed/b.sock"
	on_read_only "create directory $fixed/b" weir-engine --name b \
		--store "$fixed/b" --listen "ipc://$T/b.sock"
	on_read_only "$fixed/registry" weir-push --source "$T/two" \
		--fleet "$T/fleet.yaml" --registry "$fixed/registry"
	on_read_only "create directory $fixed/run" weir-push --source "$T/two" \
		--fleet "$T/fleet.yaml" --run "$fixed/run"
	still_one a
}

@test "SH-04 a receipt is worth the bytes: what is served is what was hashed" {
	base a
	push "$T/two" --accept-proof reread >"$T/out" 2>"$T/err"
	assert_file_contains "$T/err" "reread"
	holds a "$T/two"
}
