/*
 * watch.h - weir-watch: each published version, told once, in order.
 *
 * One JSON line on stdout per decision above the last version told; then
 * --exec CMD, with the same facts in its environment; then the number is
 * made durable in --state.  So none is ever missed, over restarts too, and
 * one is told again only if the watcher ended between the first step and the
 * last: such a version's CMD did not succeed, or its success was not
 * recorded.  A CMD that fails ends the watcher (75) with its version untold.
 *
 * Decisions are the source, not the ledger, which may lag.  inotify only
 * makes it prompt: the registry is looked at every WATCH_TICK_MS as well, and
 * may be made after the watcher was started, moved away and back, or restored;
 * another one in its place ends the watcher (78).  Until then a registry that
 * was found once and cannot be read is away.  The watcher takes no lock and
 * changes nothing in the registry.
 */
#ifndef WEIR_WATCH_H
#define WEIR_WATCH_H

#include "common/opt.h"

#define WATCH_TICK_MS		1000
#define WATCH_ENGINES_MAX	(96u << 10)	/* bytes of WEIR_ENGINES */

struct watch_conf {
	struct opt_common common;
	char *exec, *state;
	bool once;
	uint64_t since;
	int64_t exec_timeout_ms;
};

extern const struct opt_spec watch_spec;

/* Returns the exit code. */
int watch_run(const struct watch_conf *conf);

#endif
