#!/usr/bin/env bats
# shellcheck disable=SC2154 # status, output: set by run
# The systemd units, and what the engine tells a service manager.

load fleet

UNITS="weir-engine weir-push"

@test "units: each option is one, the programs stand where they are installed" {
	local unit option

	for unit in $UNITS; do
		grep -q "^ExecStart=/.*/$unit " "$BUILD/systemd/$unit@.service"
		run ! grep -q '@bindir@' "$BUILD/systemd/$unit@.service"
		for option in $(sed -n 's/^ExecStart=//p' \
			"$BUILD/systemd/$unit@.service" | grep -oE -- '--[a-z-]+'); do
			"$unit" --help | grep -q -- " $option" ||
				fail "$unit: no $option"
		done
	done
}

@test "units: systemd-analyze verify finds nothing" {
	local unit

	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	for unit in $UNITS; do
		sed "s,^ExecStart=[^ ]*/,ExecStart=$BUILD/," \
			"$BUILD/systemd/$unit@.service" >"$T/$unit@x.service"
		run systemd-analyze verify --man=no "$T/$unit@x.service"
		assert_success
		[[ "$output" != *"$unit"* ]] || fail "$output"
	done
}

# A service manager's socket, which says what it was told.
manager() {
	start manager python3 -c '
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1].replace("@", "\0"))
open(sys.argv[2], "w").close()
print(s.recv(100).decode(), flush=True)' "$1" "$T/bound"
	wait_for test -e "$T/bound"
}

@test "notify: READY=1 when the engine listens" {
	local socket

	for socket in "$T/notify" "@weir-test-$$-$RANDOM"; do
		rm -f "$T/bound"
		manager "$socket"
		NOTIFY_SOCKET=$socket engine a
		ends_with 0 manager
		assert_equal "$(cat "$T/manager.out")" READY=1
		stop a || true
		rm -f "$T/notify"
	done
}

@test "notify: a manager that is gone is no failure" {
	NOTIFY_SOCKET=$T/none engine a
	assert_file_contains "$T/a.err" "$T/none"
}
