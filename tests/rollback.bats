#!/usr/bin/env bats
# rollback.bats - an older version again, as a new number.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load fleet

# Versions 1 and 2 at these engines; the source of 1 stays in $T/one.
two_versions() {
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 1
	checkpoint "$T/two" --size 1MiB --shards 2 --seed 2
	fleet "$@"
	push "$T/one" >/dev/null 2>&1
	push "$T/two" >/dev/null 2>&1
}

# And the first is not kept with --keep 1.
third_version() {
	checkpoint "$T/three" --size 1MiB --shards 2 --seed 3
	push "$T/three" >/dev/null 2>&1
}

rollback() { weir-rollback --registry "$T/$REGISTRY_DIR" "$@"; }

# What transfer says that it has sent.
sent() {
	sed -n 's/.*"event":"drained".*"bytes":\([0-9]*\).*/\1/p' \
		"$(newest_run)/events"
}

inode() { stat -c %i "$T/$1/$2"; }

@test "rollback: a new number, no byte moves where the slot is kept" {
	local file=model-00001-of-00002.safetensors name

	engines a b
	two_versions a b
	rm -r "$T/one"
	run --separate-stderr rollback
	assert_success
	assert_output --partial "version 3 published: 2 engines"
	assert_equal "$(serving a) $(serving b)" "3 3"
	for name in a b; do
		cmp "$T/$name/versions/000003/$file" \
			"$T/$name/versions/000001/$file"
		assert_equal "$(inode $name versions/000003/$file)" \
			"$(inode $name versions/000001/$file)"
		assert_equal "$(stat -c %h "$T/$name/current/$file")" 2
	done
	assert_equal "$(sent)" 0
	[[ $stderr == *"moved:   0 B (each engine keeps the version: no source was read)"* ]]
	run grep -c '"event":"granted"' "$(newest_run)/events"
	assert_output 0
	assert_clean_runs
}

@test "rollback: without the slot the bytes come from the source" {
	engine a
	engine b --keep 1
	two_versions a b
	third_version
	run --separate-stderr rollback --to 1
	assert_success
	assert_equal "$(serving a) $(serving b)" "4 4"
	cmp "$T/one/model-00001-of-00002.safetensors" \
		"$T/b/current/model-00001-of-00002.safetensors"
	holds a "$T/one"
	holds b "$T/one"
	assert_equal "$(sent)" "$(du -bc "$T/one"/* | tail -n 1 | cut -f 1)"
	assert_clean_runs
}

@test "rollback: the source holds other weights, a peer's store has them" {
	engine a --keep 3
	engine b --keep 1
	two_versions a b
	third_version
	cp -r "$T/one" "$T/kept"
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 9
	run --separate-stderr rollback -v --to 1
	assert_success
	[[ $stderr == *"warn version 1 is taken from $T/a/versions/000001: $T/one holds other weights by now"* ]]
	# An event told again to a stage counts once.
	[[ $stderr == *"(2 of 2)"* && $stderr != *"(3 of 2)"* ]]
	assert_equal "$(serving a) $(serving b)" "4 4"
	holds a "$T/kept"
	holds b "$T/kept"
	# Only b was sent anything.
	assert_equal "$(sent)" "$(du -bc "$T/kept"/* | tail -n 1 | cut -f 1)"
	assert_equal "$(stat -c %h "$T/b/current/config.json")" 1
}

@test "rollback: the bytes are nowhere: 66, what was tried, nothing touched" {
	local fences

	engines a
	engine b --keep 1
	two_versions a b
	third_version
	stop a
	rm -r "${T:?}/a" "$T/one"
	engine a
	checkpoint "$T/one" --size 1MiB --shards 2 --seed 9
	fleet b
	fences=$(md5sum "$T/b/fence")
	run --separate-stderr rollback --to 1 --fleet "$T/fleet.yaml"
	assert_failure 66
	assert_output ""
	[[ $stderr == *"engine b does not keep version 1"* ]]
	[[ $stderr == *"$T/one holds other weights by now"* ]]
	[[ $stderr == *"$T/a/versions/000001"* ]]
	assert_equal "$(md5sum "$T/b/fence")" "$fences"
	assert_equal "$(serving b)" 3
	assert_not_exist "$T/registry/open"
	# Given where it is now, it works.
	checkpoint "$T/moved" --size 1MiB --shards 2 --seed 1
	run --separate-stderr rollback --to 1 --fleet "$T/fleet.yaml" \
		--source "$T/moved"
	assert_success
	assert_equal "$(serving b)" 4
	cmp "$T/moved/config.json" "$T/b/current/config.json"
}

@test "rollback: a bad kept slot is loaded anew" {
	engines a b
	two_versions a b
	spoil "$T/a/versions/000001/model-00001-of-00002.safetensors" 4096
	run --separate-stderr rollback
	assert_success
	holds a "$T/one"
	holds b "$T/one"
	assert_file_contains "$T/a.err" "is kept here, but"
	assert_equal "$(sent)" "$(du -bc "$T/one"/* | tail -n 1 | cut -f 1)"
}

@test "rollback: a slot after post-load is linked, if it is the same one" {
	engine a --post-load 'echo a >>"$WEIR_SLOT/extra"'
	engine b
	two_versions a b
	stop b
	engine b --post-load 'echo b >>"$WEIR_SLOT/extra"'
	run --separate-stderr rollback
	assert_success
	assert_equal "$(serving a) $(serving b)" "3 3"
	# Once: it was not processed again; b's was not, until now.
	assert_equal "$(cat "$T/a/current/extra") $(cat "$T/b/current/extra")" \
		"a b"
	assert_equal "$(stat -c %h "$T/a/current/extra")" 2
	assert_equal "$(stat -c %h "$T/b/current/extra")" 1
}

@test "rollback: a --source that holds other weights is named" {
	engine a --keep 1
	two_versions a
	third_version
	run --separate-stderr rollback --to 1 --source "$T/two"
	assert_success
	[[ $stderr == *"warn version 1 is taken from $T/one: $T/two holds other weights by now"* ]]
	holds a "$T/one"
}

@test "rollback: a --source is a place to look, and not looked at in vain" {
	engines a
	two_versions a
	run --separate-stderr rollback --to 1 --source "$T/nowhere"
	one_line_error 66 "source $T/nowhere" "No such file"
	run --separate-stderr rollback --to 1 --source "$T/one" \
		--source "$T/two"
	one_line_error 64 "--source: 2 given, version 1 has 1 rank"
	assert_equal "$(serving a)" 2
	# What it holds is not asked: version 1 is known by its content.
	run --separate-stderr rollback --to 1 --source "$T/two"
	assert_success
	[[ $stderr == *"each engine keeps the version: no source was read"* ]]
	holds a "$T/one"
	assert_equal "$(sent)" 0
}

@test "I12 a rollback takes a new number: one that is published is refused" {
	engines a
	two_versions a
	for n in 1 2; do
		run --separate-stderr rollback --to 1 --weight-version $n
		one_line_error 65 \
			"version $n is not above 2, the highest published"
	done
	assert_equal "$(serving a)" 2
	run --separate-stderr rollback --to 1 --weight-version 9
	assert_success
	assert_equal "$(serving a)" 9
	holds a "$T/one"
}

@test "rollback: which one" {
	engines a
	checkpoint "$T/one" --size 256KiB --seed 1
	fleet a
	run --separate-stderr rollback
	one_line_error 66 "nothing was ever published"
	push "$T/one" >/dev/null 2>&1
	run --separate-stderr rollback
	one_line_error 66 "nothing else was published before version 1"
	run --separate-stderr rollback --to 7
	one_line_error 66 "version 7 is not published"
	run --separate-stderr rollback --to x
	one_line_error 64 "\"x\""
	checkpoint "$T/two" --size 256KiB --seed 2
	push "$T/two" >/dev/null 2>&1
	# There and back again, and then once more the same.
	rollback >/dev/null 2>&1
	holds a "$T/one"
	weir rollback --registry "$T/registry" >/dev/null 2>&1
	holds a "$T/two"
	rollback --to 2 --weight-version 57 >/dev/null 2>&1
	holds a "$T/two"
	assert_equal "$(serving a)" 57
	# A retired slot with two names is never written into.
	checkpoint "$T/three" --size 256KiB --seed 3
	push "$T/three" >/dev/null 2>&1
	push "$T/one" >/dev/null 2>&1
	cmp "$T/three/config.json" "$T/a/versions/000058/config.json"
	holds a "$T/one"
}
