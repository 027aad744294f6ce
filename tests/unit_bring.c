/* unit_bring - how an engine is brought home, and what is said of one that
 * cannot be.  The engine is a table of calls; only the loop is real. */
#include "pipes/bring.h"
#include "common/err.h"

#include "tests/tap.h"

#include <stdlib.h>

#define ENGINE_MS (BRING_RETRY_MS + BRING_RETRY_MS / 4)

static struct bring bring;
static struct loop *loop;
static struct loop_timer reply;
static bool cut; /* the attempt has less than its part of the time */
static bool is_home;
static char why[ENGINE_CAUSE];

static void on_reply(void *arg)
{
	struct engine *e = arg;

	snprintf(e->cause, sizeof e->cause, "%s",
		 cut ? "no answer" : "the hook failed");
	bring_answer(&bring, e, EC_ABORT, cut ? -E_TIMEOUT : -E_AGAIN);
}

static void take(struct engine *e, const struct engine_ask *ask)
{
	(void)e;
	cut = ask->ms < ENGINE_MS / BRING_ATTEMPTS;
	loop_arm(loop, &reply, 0);
}

static void done(void *arg, struct engine *e, bool home)
{
	(void)arg;
	is_home = home;
	memcpy(why, e->cause, sizeof why);
	loop_stop(loop, 0);
}

/* The second attempt comes when less than its part of the time is left: if a
 * slow machine misses even that, then there is none. */
static void test_last_words(void)
{
	static const struct engine_ops ops = { .call[EC_ABORT] = take };
	struct engine e = { .ops = &ops, .name = "a" };

	loop = loop_new();
	reply = (struct loop_timer){ .fn = on_reply, .arg = &e };
	bring_init(&bring, loop, 1, 1);
	bring.engine_ms = ENGINE_MS;
	bring.done = done;
	bring_it(&bring, &e, HE_BACK);
	ok(loop_run(loop) == 0 && !is_home, "it is away");
	eq_str(why, "the hook failed", "why: what it said when it had time");
	loop_disarm(loop, &reply);
	bring_release(&bring);
	loop_free(loop);
}

int main(void)
{
	test_last_words();
	return tap_done();
}
