#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, output: set by run
# Completions: what the build made of the option tables.

load helpers

DIR="$BUILD/completion"

programs() { sed -n 's/^bin_PROGRAMS += //p' "$SRC/Makefile.am"; }

# The options that --help tells of.
options() { "$1" --help | grep -oE '^  (-., |    )--[a-z-]+' | grep -oE -- '--.*'; }

@test "each program has completions for each shell, with each option" {
	local program option

	for program in $(programs); do
		for option in $([ "$program" = weir ] || options "$program"); do
			grep -q -- " ${option}[ ']" "$DIR/$program.bash" &&
				grep -q -- "${option}[=[]" "$DIR/_$program" &&
				grep -q -- "-l ${option#--} " "$DIR/$program.fish" ||
				fail "$program: no $option"
		done
		[ "$program" = weir ] || [ "$(options "$program" | wc -l)" -ge 7 ]
	done
	for program in $(programs | sed -n 's/^weir-//p'); do
		grep -qw -- "$program" "$DIR/weir.bash" &&
			grep -q "'$program:" "$DIR/_weir" &&
			grep -q -- "-a $program " "$DIR/weir.fish" ||
			fail "weir: no $program"
	done
	run ! grep -r -- '--help-' "$DIR"
}

# they_parse SHELL FILE...
they_parse() {
	local file shell=$1

	shift
	command -v "$shell" >/dev/null || skip "no $shell"
	for file; do
		"$shell" -n "$file"
	done
}

@test "bash: they parse" { they_parse bash "$DIR"/*.bash; }
@test "zsh: they parse" { they_parse zsh "$DIR"/_*; }
@test "fish: they parse" { they_parse fish "$DIR"/*.fish; }

# What fish offers for the last word of a line.
fish_completes() {
	fish --no-config -c '
		for f in $argv[1]/*.fish; source $f; end
		complete -C $argv[2]' "$DIR" "$1" | cut -f 1 | xargs
}

@test "fish: options, choices, names, files" {
	command -v fish >/dev/null || skip "no fish"
	mkdir -p "$T/d/dir"
	touch "$T/d/file" "$T/d/when"
	cd "$T/d"
	assert_equal "$(fish_completes "weir-plan --buck")" --bucket-size
	assert_equal "$(fish_completes "weir-admit --order w")" "wave window"
	assert_equal "$(fish_completes "weir pu")" push
	assert_equal "$(fish_completes "weir push --order w")" "wave window"
	assert_equal "$(fish_completes "weir plan --source $T/d/")" "$T/d/dir/"
	assert_equal "$(fish_completes "weir plan -o $T/d/f")" "$T/d/file"
}

# completes WORD...: what bash offers for the last one.
completes() {
	bash --norc -c '
		. "$1/weir.bash"; . "$1/$2.bash"
		COMP_WORDS=("${@:2}")
		COMP_CWORD=$(($# - 2))
		"${2//-/_}_complete"
		printf "%s\n" "${COMPREPLY[@]}"' _ "$DIR" "$@" | xargs
}

@test "bash: options, choices, names, files" {
	mkdir -p "$T/d/dir"
	touch "$T/d/file"
	assert_equal "$(completes weir-plan --bucket)" --bucket-size
	assert_equal "$(completes weir-admit --order "")" "auto wave window"
	assert_equal "$(completes weir-admit --order = wi)" window
	assert_equal "$(completes weir-plan --bucket-size "")" ""
	assert_equal "$(completes weir-plan --source "$T/d/")" "$T/d/dir"
	assert_equal "$(completes weir-plan -o "$T/d/f")" "$T/d/file"
	assert_equal "$(completes weir pu)" push
	assert_equal "$(completes weir push --weight)" --weight-version
	assert_equal "$(completes weir none --weight)" ""
}

@test "make install puts them where the shells look" {
	make -C "$BUILD" -s install-completions DESTDIR="$T/root" \
		datadir=/usr/share
	[ -s "$T/root/usr/share/bash-completion/completions/weir-push" ]
	[ -s "$T/root/usr/share/zsh/site-functions/_weir-push" ]
	[ -s "$T/root/usr/share/fish/vendor_completions.d/weir-push.fish" ]
	make -C "$BUILD" -s uninstall-completions DESTDIR="$T/root" \
		datadir=/usr/share
	[ -z "$(find "$T/root" -type f)" ]
}
