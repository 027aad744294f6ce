#!/usr/bin/env bats
# The tree's own rules (DESIGN 11, STYLE 2 and 3), read from the sources.

load helpers

# Headers of the C library, POSIX and Linux.  All others are foreign.
SYSTEM='^(assert|ctype|dirent|dlfcn|elf|endian|errno|fcntl|ftw|fnmatch|getopt|glob|grp|inttypes|libgen|limits|locale|math|netdb|poll|pthread|pwd|regex|sched|semaphore|setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|syslog|termios|threads|time|uchar|ucontext|unistd|wchar)\.h$|^(sys|linux|asm|arpa|netinet|net)/|^(cpuid|immintrin|x86intrin|emmintrin)\.h$'

sources() {
	(cd "$SRC" && find bin common pipes -name '*.[ch]' -o -name '*.def')
}

# "FILE HEADER" of every include in quotes, with its directory made explicit.
own_includes() {
	(cd "$SRC" && sources | xargs grep -H '^#[[:space:]]*include "' |
		sed -E 's/^([^:]*):#[[:space:]]*include "([^"]*)".*/\1 \2/' |
		while read -r file header; do
			case $header in
			*/*) echo "$file $header" ;;
			*) echo "$file ${file%/*}/$header" ;;
			esac
		done)
}

foreign_includes() {
	(cd "$SRC" && sources | xargs grep -H '^#[[:space:]]*include <' |
		sed -E 's/^([^:]*):#[[:space:]]*include <([^>]*)>.*/\1 \2/' |
		awk -v system="$SYSTEM" '$2 !~ system { print $2, $1 }' |
		sort -u)
}

# The sources without comments and strings, "FILE:LINE:text".  Line numbers
# stay; good enough for calls, which these rules are about.
code() {
	(cd "$SRC" && find "$@" -name '*.[ch]' | while read -r f; do
		sed -E 's/"([^"\\]|\\.)*"/""/g; s,/\*([^*]|\*[^/])*\*/,,g' "$f" |
			awk -v f="$f" '
			/\/\*/ { sub(/\/\*.*/, ""); open = 1; print f ":" NR ":" $0; next }
			open { if (!/\*\//) next; sub(/.*\*\//, ""); open = 0 }
			{ print f ":" NR ":" $0 }'
	done)
}

@test "there is something to look at" {
	[ "$(sources | wc -l)" -gt 5 ]
	[ "$(own_includes | wc -l)" -gt 5 ]
	[ "$(code common | wc -l)" -gt 100 ]
}

@test "common includes only common" {
	run awk '$1 ~ /^common\// && $2 !~ /^common\//' <(own_includes)
	assert_output ""
}

@test "pipes includes only pipes and common" {
	run awk '$1 ~ /^pipes\// && $2 !~ /^(common|pipes)\//' <(own_includes)
	assert_output ""
}

@test "bin includes only pipes and common" {
	run awk '$1 ~ /^bin\// && $2 !~ /^(common|pipes|bin)\//' \
		<(own_includes)
	assert_output ""
}

@test "every include in quotes names a file of the tree" {
	own_includes | while read -r file header; do
		[ -e "$SRC/$header" ] || echo "$file includes $header"
	done >"$T/missing"
	run cat "$T/missing"
	assert_output ""
}

@test "each foreign header has one including file" {
	run awk '
		NF && $1 == last { print $1 ": " file " and " $2 }
		{ last = $1; file = $2 }' <(foreign_includes)
	assert_output ""
}

@test "foreign headers are included by .c files, not by headers" {
	run awk '$2 !~ /\.c$/' <(foreign_includes)
	assert_output ""
}

@test "nothing sleeps" {
	run grep -E '\b(sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep) *\(' \
		<(code bin common pipes)
	assert_output ""
}

@test "only bin exits, beside running out of memory" {
	run grep -E '\b(exit|quick_exit) *\(' <(code common pipes)
	refute_line --regexp '^(pipes/|common/([^b]|b[^u]))'
	run grep -cE '\bexit *\(' "$SRC/common/buf.c"
	assert_output 1
}

@test "files are shorter than 700 lines" {
	(cd "$SRC" && find bin common pipes tests -name '*.[ch]' \
		-exec awk 'FNR == 700 { print FILENAME }' {} +) >"$T/long"
	run cat "$T/long"
	assert_output ""
}

@test "lines are shorter than 100 columns" {
	(cd "$SRC" && find bin common pipes tests -name '*.[ch]' |
		while read -r f; do
			expand "$f" | awk -v f="$f" 'length > 100 {
				print f ":" NR }'
		done) >"$T/long"
	run cat "$T/long"
	assert_output ""
}

@test "every source file is built, once" {
	(cd "$SRC" && find bin common pipes -name '*.c' |
		sort) >"$T/files"
	sed -n 's/^[a-z_]*_SOURCES += *//p; s/^weir[a-z_]*_SOURCES = *//p' \
		"$SRC/Makefile.am" | grep -v ^tests/ | tr ' ' '\n' | sort >"$T/built"
	run diff "$T/files" "$T/built"
	assert_output ""
}

@test "every unit program is built, once" {
	(cd "$SRC" && find tests -name 'unit_*.c' | sed 's/\.c$//' |
		sort) >"$T/files"
	sed -n 's/^check_PROGRAMS += *\(tests\/unit_\)/\1/p' \
		"$SRC/Makefile.am" | sort >"$T/built"
	run diff "$T/files" "$T/built"
	assert_output ""
}

# What they do not need costs each start, and each reader of their memory.
@test "only transfer carries the transports" {
	for p in plan admit commit; do
		run nm "$BUILD/weir-$p"
		assert_success
		refute_output --regexp 'tr_(host|mem|disk|delta|nccl|ipc)_ops'
	done
	run nm "$BUILD/weir-transfer"
	assert_output --partial tr_host_ops
}

@test "every program has a page, with an EXIT STATUS section" {
	sed -n 's/^bin_PROGRAMS += *//p' "$SRC/Makefile.am" |
		while read -r name; do
			page=$SRC/share/man/$name.1.in
			grep -qx '@EXIT_STATUS@' "$page" ||
				echo "$name has no page, or no EXIT STATUS"
		done >"$T/missing"
	run cat "$T/missing"
	assert_output ""
}

@test "the manual's exit codes are those of err.h" {
	sed -n 's/^\tX(E_[A-Z]*,[[:space:]]*\([0-9]*\),.*/\1/p' \
		"$SRC/common/err.h" | sort -u >"$T/codes"
	[ "$(wc -l <"$T/codes")" -gt 5 ]
	sed -n 's/^\.It \([6-7][0-9]\)$/\1/p' \
		"$SRC/share/man/exit-status.inc" | sort -u >"$T/manual"
	run diff "$T/codes" "$T/manual"
	assert_output ""
}
