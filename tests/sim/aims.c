/*
 * Worlds that are made for what seldom happens: with --aims, three of four
 * seeds aim at one row or some rows of a machine each, in turn.  What is drawn
 * stays as it is, but for the faults and settings that make that moment likely.
 */
#include "story.h"

#include "pipes/admit.h"
#include "pipes/commit.h"
#include "pipes/engine.h"
#include "pipes/homing.h"
#include "pipes/transfer.h"

#define OTHERS 2       /* fewer faults are left as they were drawn */
#define AIMED_STEPS 12 /* from the moment on, calls until it happens */

/* What the world must have. */
enum {
	SPARE = 1 << 0,	   /* an engine can be left out */
	IN_PLACE = 1 << 1, /* servers */
	AGAIN = 1 << 2,	   /* the second push: a decided number */
	JOIN = 1 << 3,
	BACK = 1 << 4,
	SLOW = 1 << 5,	 /* jobs take their time */
	HOOKS = 1 << 6,	 /* commands of engines too */
	ALONE = 1 << 7,	 /* one engine */
	ECHOES = 1 << 8, /* old requests are heard */
	NEXT = 1 << 9,	 /* the second fault is the next push's */
	BIG = 1 << 10,	 /* many buckets */
};

struct moment {
	const struct fsm_table *machine;
	uint8_t state;
	enum fault_kind kind;
	uint32_t who; /* a stage; the engine is drawn */
	bool again;   /* of a stage that was started again */
	bool is_long;
};

struct aim {
	unsigned world;
	struct moment at[3];
};

#define STAGE(m, s, k, w)                                         \
	{                                                         \
		&m##_table, s, FAULT_##k, STAGE_##w, false, false \
	}
#define LATER(m, s, k, w)                                        \
	{                                                        \
		&m##_table, s, FAULT_##k, STAGE_##w, true, false \
	}
#define ENGINE(m, s, k)                                   \
	{                                                 \
		&m##_table, s, FAULT_##k, 0, false, false \
	}
#define LONG(m, s, k)                                    \
	{                                                \
		&m##_table, s, FAULT_##k, 0, false, true \
	}

/* clang-format off */
static const struct aim aims[] = {
	/* admit: who comes again, and what is said again */
	{ HOOKS, { STAGE(admit, ADM_SEAL, KILL_STAGE, TRANSFER) } },
	{ AGAIN | SLOW, { STAGE(admit, ADM_HASH, KILL_STAGE, COMMIT) } },
	{ AGAIN | SLOW, { STAGE(admit, ADM_HASH, KILL_STAGE, TRANSFER) } },
	{ AGAIN | SLOW | SPARE, { ENGINE(commit, CS_PROBE, KILL_ENGINE),
	    STAGE(admit, ADM_HASH, KILL_STAGE, COMMIT) } },
	{ AGAIN | SLOW, { STAGE(admit, ADM_HASH, SIGNAL, COMMIT) } },
	{ SPARE, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    STAGE(admit, ADM_ABORT, KILL_STAGE, TRANSFER) } },
	{ 0, { LONG(commit, CS_BEGIN, STOP_ENGINE),
	    STAGE(commit, CS_ABORT, KILL_STAGE, COMMIT) } },
	/* transfer */
	{ 0, { STAGE(transfer, XF_ASK, KILL_STAGE, COMMIT) } },
	{ SLOW | BIG, { STAGE(transfer, XF_RUN, TWICE, ADMIT) } },
	{ SLOW, { STAGE(transfer, XF_VERIFY, KILL_STAGE, ADMIT) } },
	{ AGAIN | SLOW, { STAGE(transfer, XF_VERIFY, KILL_STAGE, ADMIT) } },
	{ SLOW, { STAGE(transfer, XF_VERIFY, KILL_STAGE, COMMIT) } },
	{ SLOW | SPARE, { ENGINE(transfer, XF_VERIFY, KILL_ENGINE) } },
	{ SLOW, { STAGE(transfer, XF_VERIFY, SIGNAL, COMMIT) } },
	{ AGAIN | SLOW, { STAGE(transfer, XF_VERIFY, SIGNAL, COMMIT) } },
	{ SLOW, { STAGE(transfer, XF_VERIFY, DISK, TRANSFER) } },
	{ 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(transfer, XF_RUN, SIGNAL, COMMIT),
	    STAGE(transfer, XF_ABORT, KILL_STAGE, ADMIT) } },
	{ 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(transfer, XF_RUN, SIGNAL, COMMIT),
	    STAGE(transfer, XF_ABORT, KILL_STAGE, COMMIT) } },
	/* commit: its own failures */
	{ 0, { STAGE(commit, CS_LOCK, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_LOCK, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT),
	    LATER(commit, CS_LOCK, DISK, COMMIT) } },
	{ NEXT, { STAGE(commit, CS_LOAD, PUSH, COMMIT),
	    STAGE(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, KILL_ENGINE, COMMIT) } },
	{ SPARE, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, KILL_ENGINE, COMMIT) } },
	{ SPARE, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, KILL_ENGINE, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, KILL_ENGINE, COMMIT) } },
	{ SPARE, { ENGINE(commit, CS_PROBE, KILL_ENGINE) } },
	{ JOIN, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN | ALONE, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN, { STAGE(commit, CS_OPEN, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_PROBE, DISK, COMMIT) } },
	{ 0, { STAGE(commit, CS_RECOVER, DISK, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, DISK, COMMIT) } },
	{ 0, { STAGE(commit, CS_RECEIPT, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, DISK, COMMIT) } },
	{ BACK, { STAGE(commit, CS_SEEK, SIGNAL, COMMIT) } },
	/* commit: engines that are lost, and whether one can be spared */
	{ SPARE, { ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ SPARE, { LONG(commit, CS_BEGIN, STOP_ENGINE) } },
	{ SPARE | SLOW | BIG, { ENGINE(commit, CS_LOAD, CUT),
	    ENGINE(transfer, XF_RUN, CUT), ENGINE(transfer, XF_VERIFY, CUT) } },
	{ SPARE | BIG, { ENGINE(commit, CS_LOAD, CUT),
	    ENGINE(transfer, XF_VERIFY, CUT), ENGINE(transfer, XF_DONE, CUT) } },
	{ SPARE | BIG, { ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    ENGINE(transfer, XF_RUN, KILL_ENGINE) } },
	{ SPARE, { ENGINE(commit, CS_LOAD, LIE),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE, { ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE, { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_LOAD, LIE),
	    LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ 0, { STAGE(commit, CS_RECEIPT, SIGNAL, COMMIT) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE | SLOW, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_RECEIPT, SERVER),
	    ENGINE(commit, CS_HOLD, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_HOLD, KILL_ENGINE),
	    ENGINE(commit, CS_HOLD, SERVER) } },
	{ IN_PLACE, { STAGE(commit, CS_HOLD, SIGNAL, COMMIT) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_RELOAD, SERVER) } },
	{ SPARE | IN_PLACE | SLOW, { ENGINE(commit, CS_RELOAD, SERVER) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_HOLD, SERVER),
	    ENGINE(commit, CS_RELOAD, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_RELOAD, KILL_ENGINE),
	    ENGINE(commit, CS_RELOAD, SERVER) } },
	{ IN_PLACE, { STAGE(commit, CS_RELOAD, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_RECEIPT, DISK, COMMIT) } },
	{ SLOW, { STAGE(commit, CS_RECEIPT, DISK, COMMIT) } },
	{ 0, { ENGINE(commit, CS_DONE, KILL_ENGINE),
	    STAGE(commit, CS_DONE, SIGNAL, COMMIT) } },
	{ 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    ENGINE(commit, CS_ABORT, KILL_ENGINE) } },
	/* engines that an earlier run has left behind */
	{ SPARE | NEXT, { LONG(commit, CS_SWAP, STOP_ENGINE),
	    ENGINE(commit, CS_RECOVER, STALL) } },
	{ JOIN | NEXT, { LONG(commit, CS_SWAP, STOP_ENGINE) } },
	{ AGAIN | NEXT, { LONG(commit, CS_SWAP, STOP_ENGINE) } },
	/* slots: what comes while a job runs */
	{ HOOKS, { STAGE(engine_slot, EN_SEALING, KILL_STAGE, TRANSFER) } },
	{ SLOW, { STAGE(engine_slot, EN_SEALED, KILL_STAGE, TRANSFER) } },
	{ 0, { STAGE(engine_slot, EN_MAKING, FULL, COMMIT) } },
	{ SLOW, { STAGE(engine_slot, EN_MAKING, SIGNAL, COMMIT) } },
	{ SLOW | BIG, { STAGE(engine_slot, EN_FILLING, SIGNAL, COMMIT) } },
	{ SLOW | BIG, { ENGINE(engine_slot, EN_FILLING, LIE),
	    STAGE(engine_slot, EN_FILLING, SIGNAL, COMMIT) } },
	{ HOOKS, { STAGE(engine_slot, EN_SEALING, SIGNAL, COMMIT) } },
	{ BACK | SLOW, { STAGE(engine_slot, EN_MAKING, SIGNAL, COMMIT) } },
	{ SLOW | ECHOES, { ENGINE(commit, CS_SWAP, KILL_ENGINE),
	    STAGE(engine_slot, EN_CHECKING, KILL_STAGE, COMMIT) } },
	{ SLOW | ECHOES, { STAGE(engine_slot, EN_SEALED, PUSH, COMMIT) } },
	{ HOOKS | ECHOES, { STAGE(engine_slot, EN_SEALING, PUSH, COMMIT) } },
	/* gates */
	{ HOOKS | ECHOES, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    ENGINE(engine_gate, EN_PAUSING, ECHO) } },
	{ HOOKS | ECHOES, { STAGE(engine_gate, EN_PAUSED, PUSH, COMMIT) } },
	{ HOOKS | ECHOES, { STAGE(engine_gate, EN_SWAPPING, PUSH, COMMIT) } },
	/* on the way home */
	{ 0, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_FIND, KILL_ENGINE) } },
	{ 0, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    LONG(homing, HS_FIND, STOP_ENGINE) } },
	{ SLOW, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_RECEIPT, KILL_ENGINE) } },
	{ SLOW, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    LONG(homing, HS_RECEIPT, STOP_ENGINE) } },
	{ HOOKS, { ENGINE(homing, HS_SWAP, KILL_ENGINE) } },
	{ 0, { STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    LONG(homing, HS_CANCEL, STOP_ENGINE) } },
};
/* clang-format on */

static bool has(const struct aim *a, unsigned what)
{
	return a->world & what;
}

static void shape_push(const struct aim *a)
{
	static const struct {
		unsigned what;
		enum push_kind kind;
	} of[] = { { AGAIN, PUSH_AGAIN },
		   { JOIN, PUSH_JOIN },
		   { BACK, PUSH_BACK } };

	for (size_t i = 0; i < COUNT(of); i++) {
		if (!has(a, of[i].what))
			continue;
		world.pushes = 3;
		world.push[1].kind = of[i].kind;
	}
	if (has(a, NEXT))
		world.pushes = 3;
}

static void shape_fleet(struct rng *r, const struct aim *a)
{
	if (has(a, ALONE))
		world.engines = 1;
	if (has(a, SPARE)) {
		world.engines = 2 + (uint32_t)rng_below(r, 3);
		world.min_engines = 1;
	}
	if (has(a, IN_PLACE))
		world.in_place = 1 + (uint32_t)rng_below(r, world.engines);
	if (world.in_place > world.engines)
		world.in_place = world.engines;
	if (world.groups > world.engines)
		world.groups = 0;
	if (world.min_engines > world.engines)
		world.min_engines = 0;
}

static void shape_pace(struct rng *r, const struct aim *a)
{
	if (has(a, SLOW | HOOKS))
		world.slow_one_in = 1 + (uint32_t)rng_below(r, 2);
	if (has(a, HOOKS)) {
		world.hooks = world.post_load = true;
		world.hook_fails_one_in = 0;
		world.hook_long_one_in = rng_one_in(r, 2) ? 2 : 8;
	}
	if (has(a, ECHOES))
		world.echoes = true;
	if (has(a, BIG)) {
		world.bucket_size = 16;
		world.buckets = 1 + rng_below(r, 3);
	}
}

/* The push of an aim's moments: the one that is of a kind, or the first. */
static uint32_t push_of(const struct aim *a, size_t i)
{
	if (has(a, NEXT))
		return i > 0;
	return has(a, AGAIN | JOIN | BACK) ? 1 : 0;
}

/* States last for microseconds or longer: each order of magnitude alike. */
static int64_t moment(struct rng *r)
{
	return (int64_t)rng_below(r, (uint64_t)SIM_US << rng_below(r, 12));
}

static void place(struct rng *r, const struct aim *a, size_t i, uint32_t engine)
{
	const struct moment *m = &a->at[i];
	struct fault *f = &world.fault[i];

	*f = (struct fault){
		.kind = m->kind,
		.push = push_of(a, i),
		.who = world_is_of_engine(m->kind) ? engine : m->who,
		.machine = m->machine,
		.state = m->state,
		.again = m->again,
		.steps = rng_below(r, AIMED_STEPS),
		.when = moment(r),
		.len = m->is_long ? 30 * SIM_S
				  : (int64_t)rng_below(r, 2 * SIM_S),
	};
}

void world_aim(struct rng *r, uint64_t which)
{
	const struct aim *a = &aims[which % COUNT(aims)];
	uint32_t engine;
	size_t n = 0;

	shape_push(a);
	shape_fleet(r, a);
	shape_pace(r, a);
	engine = (uint32_t)rng_below(r, world.engines);
	if (has(a, IN_PLACE))
		engine = world.engines - 1;
	while (n < COUNT(a->at) && a->at[n].machine)
		n++;
	world.nfaults = (uint32_t)(n + rng_below(r, OTHERS));
	for (size_t i = 0; i < n; i++)
		place(r, a, i, engine);
	for (size_t i = n; i < world.nfaults; i++)
		world_make_fault(r, &world.fault[i]);
}
