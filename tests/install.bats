#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, output: set by run
# make install: what is put where, and what pkg-config says of it.

load helpers

in_build() { make -C "$BUILD" -s "$@" DESTDIR="$T/root" prefix=/opt/weir; }

# Paths below the prefix, as they should be.
expected() {
	local program

	while read -r program; do
		case $program in
		weir-move-*)
			echo "libexec/weir/$program"
			continue
			;;
		esac
		echo "bin/$program"
		echo "share/man/man1/$program.1"
		echo "share/bash-completion/completions/$program"
		echo "share/zsh/site-functions/_$program"
		echo "share/fish/vendor_completions.d/$program.fish"
	done < <(cd "$BUILD" && find . -maxdepth 1 -type f -executable \
		-name 'weir*' -printf '%f\n')
	echo lib/systemd/system/weir-engine@.service
	echo lib/systemd/system/weir-push@.service
	echo lib/pkgconfig/weir.pc
	if [ -e "$BUILD/libweir-client.a" ]; then
		echo lib/libweir-client.a
		echo include/weir-client.h
		echo share/doc/weir/examples/consumer.c
		echo share/doc/weir/examples/trainer.py
	fi
	[ ! -e "$BUILD/weir-leafsum.ptx" ] || echo libexec/weir/weir-leafsum.ptx
	echo share/weir/messages.schema.json
	(cd "$SRC" && ls README.md LICENSE) | sed 's,^,share/doc/weir/,'
	(cd "$SRC/share/doc" && find . -type f -printf '%P\n') |
		sed 's,^,share/doc/weir/,'
}

@test "make install DESTDIR=: all of it, nothing else; uninstall leaves nothing" {
	in_build install >"$T/log" 2>&1
	diff <(expected | LC_ALL=C sort) \
		<(cd "$T/root/opt/weir" && find . ! -type d -printf '%P\n' |
			LC_ALL=C sort)
	assert_equal "$(find "$T/root" ! -type d ! -path "$T/root/opt/weir/*")" ""
	"$T/root/opt/weir/bin/weir" plan --version
	python3 -m json.tool \
		"$T/root/opt/weir/share/weir/messages.schema.json" >"$T/json"
	in_build uninstall >"$T/log" 2>&1
	assert_equal "$(find "$T/root" ! -type d)" ""
}

@test "pkg-config: version and places" {
	local name

	in_build install-pkgconfigDATA >/dev/null
	export PKG_CONFIG_PATH=$T/root/opt/weir/lib/pkgconfig
	pkg-config --validate weir
	assert_equal "weir-plan (weir) $(pkg-config --modversion weir)" \
		"$(weir-plan --version)"
	for name in prefix bindir libexecdir datadir schema; do
		run pkg-config --variable=$name weir
		assert_success
		[[ $output == /* ]]
	done
	assert_equal "$(basename "$output")" messages.schema.json
	# As a whole elsewhere: all follow the prefix.
	assert_equal "$(pkg-config --define-variable=prefix=/else \
		--variable=schema weir)" /else/share/weir/messages.schema.json
}
