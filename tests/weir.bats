#!/usr/bin/env bats
# weir.bats - `weir NAME`, and what all programs have in common.
# shellcheck disable=SC2154 # status, output, stderr: set by run

load helpers

# The programs, without "weir-".
programs() {
	sed -n 's/^bin_PROGRAMS += weir-//p' "$SRC/Makefile.am"
}

@test "weir --help lists every program, with its own summary" {
	local name

	[ "$(programs | wc -l)" -ge 8 ]
	for name in $(programs); do
		weir "$name" --help |
			sed -n "s/^weir-$name: \(.*\)\.$/  $name \1/p"
	done | sed 's/  */ /g' | sort >"$T/own"
	weir --help | grep '^  [a-z]' | sed 's/  */ /g' | sort >"$T/listed"
	diff "$T/own" "$T/listed"
}

@test "every program has a manual page with its exit codes and examples" {
	local name page section

	for name in weir $(programs | sed 's/^/weir-/'); do
		page=$BUILD/$name.1
		assert_exist "$page"
		for section in NAME SYNOPSIS DESCRIPTION "EXIT STATUS" \
			EXAMPLES "SEE ALSO"; do
			grep -q "^\.Sh $section$" "$page" ||
				fail "$name.1 has no $section"
		done
		for section in $(programs | sed 's/^/weir-/'); do
			[ "$name" != weir ] ||
				grep -q "^\.Xr $section 1" "$page"
		done
	done
}

@test "UX-02 --help and --version: stdout, exit 0; a full disk is noticed" {
	local name

	for name in weir $(programs | sed 's/^/weir-/'); do
		run --separate-stderr "$name" --help
		assert_success
		assert_equal "$stderr" ""
		assert_line --index 0 --partial "usage: $name"
		run --separate-stderr "$name" --version
		assert_success
		assert_output --partial "weir"
		run bash -c "$name --help >/dev/full"
		assert_failure 74
	done
}

@test "weir: no name, a wrong one, one that cannot be run" {
	run --separate-stderr weir
	one_line_error 64 "weir --help"
	run --separate-stderr weir nothing
	one_line_error 64 "there is no weir-nothing"
	run --separate-stderr weir keygen
	one_line_error 64 "weir keygen is not built yet"
	run --separate-stderr weir ../push
	one_line_error 64 "../push"
	mkdir "$T/bin"
	cp "$BUILD/weir" "$T/bin"
	install -m 0644 /dev/null "$T/bin/weir-nox"
	run --separate-stderr env PATH="$T/bin" "$T/bin/weir" nox
	one_line_error 77 "weir-nox"
}

@test "names that cannot travel are refused at the start" {
	local option

	for option in "ipc://$T/caf"$'\xe9' "sglang=http://caf"$'\xe9' \
		"ipc://$T/a"$'\x01' "ipc://$T/a b"; do
		run --separate-stderr weir-plan --source "$T" --dry-run \
			--engine "$option"
		one_line_error 64 "--engine"
	done
	run --separate-stderr weir-engine --store "$T/caf"$'\xe9' \
		--listen "ipc://$T/e.sock"
	one_line_error 64 "--store $T/caf" "UTF-8"
	for option in --name --post-load; do
		run --separate-stderr weir-engine --store "$T/s" \
			--listen "ipc://$T/e.sock" "$option" $'a\nb'
		one_line_error 64 "$option" 'a\x0ab'
		run --separate-stderr weir-engine --store "$T/s" \
			--listen "ipc://$T/e.sock" "$option" $'caf\xe9'
		one_line_error 64 "$option" 'caf\xe9'
	done
}

@test "FL-08 more engine groups than can be counted: plan and admit agree" {
	local program

	for program in weir-plan weir-admit weir-push; do
		run --separate-stderr bash -c "$program \
			--max-inflight-engine-groups 4294967296 </dev/null |
			cat >/dev/null; exit \${PIPESTATUS[0]}"
		one_line_error 64 '"4294967296" given' "to 4294967295"
	done
}
