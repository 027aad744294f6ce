#include "pipes/homing.h"
#include "common/buf.h"

#include <assert.h>

#define DO(name, what)                               \
	static void name(void *m, const void *event) \
	{                                            \
		(void)event;                         \
		((struct homing *)m)->act = (what);  \
	}
DO(probe, HA_PROBE)
DO(receipt, HA_RECEIPT)
DO(swap, HA_SWAP)
DO(cancel, HA_CANCEL)
DO(timer, HA_TIMER)
DO(home, HA_HOME)
DO(away, HA_AWAY)

static void look(void *m, const void *event)
{
	((struct homing *)m)->hurried = true;
	probe(m, event);
}

static bool is_hurried(const void *m, const void *event)
{
	(void)event;
	return ((const struct homing *)m)->hurried;
}

/* clang-format off */
static const struct fsm_edge edges[] = {
	{ HS_IDLE,    HE_FORWARD,  NULL, swap, HS_SWAP, NULL },
	{ HS_IDLE,    HE_FIND,     NULL, probe, HS_FIND, NULL },
	{ HS_IDLE,    HE_LOOK,     NULL, look, HS_FIND, NULL },
	{ HS_IDLE,    HE_BACK,     NULL, cancel, HS_CANCEL, NULL },

	{ HS_FIND,    HE_OK,       NULL, receipt, HS_RECEIPT, NULL },
	{ HS_FIND,    HE_THERE,    NULL, home, HS_HOME, NULL },
	{ HS_FIND,    HE_HELD,     NULL, swap, HS_SWAP, NULL },
	{ HS_FIND,    HE_FAILED,   NULL, timer, HS_WAIT, NULL },
	{ HS_FIND,    HE_GONE,     is_hurried, away, HS_AWAY, NULL },
	{ HS_FIND,    HE_GONE,     NULL, timer, HS_WAIT, NULL },
	{ HS_FIND,    HE_REFUSED,  NULL, away, HS_AWAY, NULL },
	{ HS_FIND,    HE_DEADLINE, NULL, away, HS_AWAY, NULL },

	{ HS_RECEIPT, HE_OK,       NULL, swap, HS_SWAP, NULL },
	{ HS_RECEIPT, HE_FAILED,   NULL, timer, HS_WAIT, NULL },
	{ HS_RECEIPT, HE_GONE,     NULL, timer, HS_WAIT, NULL },
	{ HS_RECEIPT, HE_REFUSED,  NULL, away, HS_AWAY, NULL },
	{ HS_RECEIPT, HE_DEADLINE, NULL, away, HS_AWAY, NULL },

	{ HS_SWAP,    HE_OK,       NULL, home, HS_HOME, NULL },
	{ HS_SWAP,    HE_FAILED,   NULL, timer, HS_WAIT, NULL },
	{ HS_SWAP,    HE_GONE,     NULL, timer, HS_WAIT, NULL },
	{ HS_SWAP,    HE_REFUSED,  NULL, away, HS_AWAY, NULL },
	{ HS_SWAP,    HE_DEADLINE, NULL, away, HS_AWAY, NULL },

	{ HS_WAIT,    HE_TIMER,    NULL, probe, HS_FIND, NULL },
	{ HS_WAIT,    HE_DEADLINE, NULL, away, HS_AWAY, NULL },

	{ HS_CANCEL,  HE_OK,       NULL, home, HS_HOME, NULL },
	{ HS_CANCEL,  HE_FAILED,   NULL, timer, HS_WAIT_BACK, NULL },
	/* It serves nothing and reads nothing: somebody must look at it. */
	{ HS_CANCEL,  HE_GONE,     NULL, away, HS_AWAY, NULL },
	/* Fenced off: a newer run owns the engine, ours is closed there. */
	{ HS_CANCEL,  HE_REFUSED,  NULL, home, HS_HOME, NULL },
	{ HS_CANCEL,  HE_DEADLINE, NULL, away, HS_AWAY, NULL },

	{ HS_WAIT_BACK, HE_TIMER,    NULL, cancel, HS_CANCEL, NULL },
	{ HS_WAIT_BACK, HE_DEADLINE, NULL, away, HS_AWAY, NULL },
};
/* clang-format on */

static const char *const states[] = {
	[HS_IDLE] = "idle",	      [HS_FIND] = "find",
	[HS_RECEIPT] = "receipt",     [HS_SWAP] = "swap",
	[HS_WAIT] = "wait",	      [HS_CANCEL] = "cancel",
	[HS_WAIT_BACK] = "wait-back", [HS_HOME] = "home",
	[HS_AWAY] = "away",
};
static_assert(COUNT(states) == HS_NSTATES, "name every state");

static const char *const events[] = {
	[HE_FORWARD] = "forward", [HE_FIND] = "find",
	[HE_LOOK] = "look",	  [HE_BACK] = "back",
	[HE_OK] = "ok",		  [HE_THERE] = "there",
	[HE_HELD] = "held",	  [HE_FAILED] = "failed",
	[HE_GONE] = "gone",	  [HE_REFUSED] = "refused",
	[HE_TIMER] = "timer",	  [HE_DEADLINE] = "deadline",
};
static_assert(COUNT(events) == HE_NEVENTS, "name every event");

const struct fsm_table homing_table = {
	.name = "homing",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = states,
	.events = events,
	.nstates = HS_NSTATES,
	.nevents = HE_NEVENTS,
};

int homing_step(struct homing *h, enum homing_ev e)
{
	int rc;

	h->act = HA_NONE;
	rc = fsm_step(&homing_table, &h->state, h, (uint8_t)e, NULL);
	return rc < 0 ? rc : 0;
}
