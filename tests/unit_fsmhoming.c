/* Runs tests/fsm/homing.t; see there for the words. */
#include "tests/fsmrun.h"

#include "pipes/homing.h"
#include "tests/fsmcover.h"

static const char *const word[HA_NACTS] = {
	[HA_NONE] = "",		[HA_PROBE] = " probe",	 [HA_RECEIPT] = " ask",
	[HA_SWAP] = " swap",	[HA_CANCEL] = " cancel", [HA_TIMER] = " timer",
	[HA_HOME] = " is-home", [HA_AWAY] = " is-away",
};

static struct homing h;

static void reset(void)
{
	h = (struct homing){ 0 };
}

static void state(struct buf *out)
{
	buf_addf(out, "%s", homing_table.states[h.state]);
}

static bool event(char **words, size_t n, struct buf *out)
{
	unsigned type = 0;

	while (type < HE_NEVENTS &&
	       strcmp(homing_table.events[type], words[0]) != 0)
		type++;
	if (n != 1 || type == HE_NEVENTS)
		return false;
	if (homing_step(&h, (enum homing_ev)type) < 0)
		buf_addf(out, " refused");
	buf_addf(out, "%s", word[h.act]);
	return true;
}

static void last(void)
{
	fsm_all_taken(&homing_table);
}

int main(void)
{
	static const struct fsm_script ops = { reset, state, event, last };
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/fsm/homing.t", src ? src : ".");
	char *argv[] = { NULL, path };
	int rc = fsm_scripts(&ops, 2, argv);

	free(path);
	return rc;
}
