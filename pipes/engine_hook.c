#include "pipes/engine_shell.h"
#include "common/err.h"
#include "common/log.h"
#include "common/units.h"

#include <stdlib.h>

typedef unsigned long long ull;

static const char *const hook_name[] = {
	[HOOK_PAUSE] = "on-pause",
	[HOOK_SWAP] = "on-swap",
	[HOOK_RESUME] = "on-resume",
};

static void hook_ready(void *arg);

static void watch(struct shell *sh)
{
	if (sh->hook.pidfd >= 0)
		loop_add_fd(sh->loop, sh->hook.pidfd, hook_ready, sh);
	if (sh->hook.out_fd >= 0)
		loop_add_fd(sh->loop, sh->hook.out_fd, hook_ready, sh);
}

static void unwatch(struct shell *sh)
{
	if (sh->hook.pidfd >= 0)
		loop_del_fd(sh->loop, sh->hook.pidfd);
	if (sh->hook.out_fd >= 0)
		loop_del_fd(sh->loop, sh->hook.out_fd);
}

static void end_hook(struct shell *sh, int rc)
{
	loop_disarm(sh->loop, &sh->hook_timer);
	shell_report(sh, rc < 0 ? EN_HOOK_FAILED : EN_HOOK_OK, rc);
}

/* The child may close its descriptors when it steps. */
static void hook_ready(void *arg)
{
	struct shell *sh = arg;
	int rc;

	unwatch(sh);
	rc = child_step(&sh->hook);
	if (rc == 0)
		watch(sh);
	else
		end_hook(sh, rc);
}

static void hook_late(void *arg)
{
	struct shell *sh = arg;
	char time[UNITS_MAX];

	shell_hook_stop(sh);
	end_hook(sh, log_error(E_TIMEOUT, "%s did not end within %s",
			       hook_name[sh->hook_kind],
			       units_time(sh->conf->hook_ms, time)));
}

void shell_hook_stop(struct shell *sh)
{
	unwatch(sh);
	child_kill(&sh->hook);
}

static int start(struct shell *sh, const char *command)
{
	uint64_t v = sh->store.serving;
	char *dir = v ? store_slot_path(&sh->store, v) : xstrdup("");
	char *slot = xasprintf("WEIR_SLOT=%s", dir);
	char *version = xasprintf("WEIR_VERSION=%llu", (ull)v);
	char *engine = xasprintf("WEIR_ENGINE=%s", sh->conf->name);
	const char *const env[] = { slot, version, engine, NULL };
	int rc = child_start(&sh->hook, hook_name[sh->hook_kind], command, env);

	free(engine);
	free(version);
	free(slot);
	free(dir);
	return rc;
}

/* Without a command nothing is spawned: the pause is as long as a rename. */
void shell_hook(struct shell *sh, enum engine_hook kind)
{
	const char *command = sh->conf->hook[kind];
	int rc;

	sh->hook_kind = kind;
	if (!command) {
		shell_report(sh, EN_HOOK_OK, 0);
		return;
	}
	rc = kind == HOOK_PAUSE ? store_set_paused(&sh->store) : 0;
	if (rc >= 0)
		rc = start(sh, command);
	if (rc < 0) {
		shell_report(sh, EN_HOOK_FAILED, rc);
		return;
	}
	watch(sh);
	sh->hook_timer.fn = hook_late;
	sh->hook_timer.arg = sh;
	loop_arm(sh->loop, &sh->hook_timer, sh->conf->hook_ms);
}
