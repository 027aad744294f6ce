/*
 * engine_run.h - weir-engine: the shell around the machine of engine.h.
 *
 * Listens at one endpoint ("ipc://PATH") for requests and at PATH.fd for
 * descriptors of source files; copies with a few threads; runs the commands
 * that let an engine process follow.  Ends on SIGTERM or SIGINT.
 */
#ifndef WEIR_ENGINE_RUN_H
#define WEIR_ENGINE_RUN_H

#include "common/buf.h"

#include <sys/types.h>

#define ENGINE_THREADS_MAX 64
#define ENGINE_ALLOW_MAX 64

enum engine_hook { HOOK_PAUSE, HOOK_SWAP, HOOK_RESUME, HOOK_N };

struct engine_conf {
	const char *name, *store, *listen;
	unsigned keep, copy_threads;
	bool has_device, in_place;
	uint32_t device;		/* its number, as the process sees it */
	uint64_t reread;		/* every so many pushes; 0: never */
	const char *post_load;		/* command, or NULL */
	bool post_load_varies, adopt;
	const char *hook[HOOK_N];	/* command, or NULL */
	int64_t hook_ms, post_load_ms;	/* their deadlines */
	uid_t allow[ENGINE_ALLOW_MAX];
	unsigned nallow;
	int ready_fd;			/* gets a newline; -1: none */
};

/* Until a signal.  -E_AGAIN: store or endpoint are another engine's. */
int engine_run(const struct engine_conf *conf);

#endif
