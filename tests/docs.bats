#!/usr/bin/env bats
# Pages that are generated are as the programs print them.

bats_require_minimum_version 1.5.0
load helpers

@test "share/doc/messages.md is what weir-dump --reference prints" {
	weir-dump --reference | diff -u "$SRC/share/doc/messages.md" -
}
