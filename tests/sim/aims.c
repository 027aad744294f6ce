/*
 * Worlds that are made for what seldom happens: six of seven seeds aim at one
 * row or some rows of a machine each, in turn.  What is drawn stays as it is,
 * but for the faults and settings that make that moment likely.  The seeds from
 * WORLD_CLOSE on take turns with those of aims_close.c.
 */
#include "aims.h"

#define OTHERS 2       /* fewer faults are left as they were drawn */
#define AIMED_STEPS 12 /* from the moment on, calls until it happens */
#define AIMED_WRITES 4 /* the same of a disk that fails */
#define SOME_WRITES 6  /* before it, with MANY_ */
#define GONE_MS 5000
#define DEAD_MS 60000
#define QUICK_MS 2000
#define PATIENT_MS 10000
#define SLUGGISH_MS 20
#define LARGE_BYTES 1000 /* of credit: each bucket fits */

/* clang-format off */
static const struct aim aims[] = {
	/* admit: who comes again, and what is said again */
	{ HOOKS, 0, { STAGE(admit, ADM_SEAL, KILL_STAGE, TRANSFER) } },
	{ AGAIN | SLOW, 0, { STAGE(admit, ADM_HASH, KILL_STAGE, COMMIT) } },
	{ AGAIN | SLOW, 14, { STAGE(admit, ADM_HASH, KILL_STAGE, TRANSFER) } },
	{ AGAIN | SLOW | SPARE, 13, { ENGINE(commit, CS_PROBE, KILL_ENGINE),
	    STAGE(admit, ADM_HASH, KILL_STAGE, COMMIT) } },
	{ AGAIN | SLOW, 0, { STAGE(admit, ADM_HASH, SIGNAL, COMMIT) } },
	{ SPARE, 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    STAGE(admit, ADM_ABORT, KILL_STAGE, TRANSFER) } },
	{ 0, 0, { LONG(commit, CS_BEGIN, STOP_ENGINE),
	    STAGE(commit, CS_ABORT, KILL_STAGE, COMMIT) } },
	/* transfer */
	{ 0, 0, { STAGE(transfer, XF_ASK, KILL_STAGE, COMMIT) } },
	{ SLOW | BIG, 4, { STAGE(transfer, XF_RUN, TWICE, ADMIT) } },
	{ SLOW, 1, { STAGE(transfer, XF_VERIFY, KILL_STAGE, ADMIT) } },
	{ AGAIN | SLOW, 13, { STAGE(transfer, XF_VERIFY, KILL_STAGE, ADMIT) } },
	{ SLOW, 5, { STAGE(transfer, XF_VERIFY, KILL_STAGE, COMMIT) } },
	{ SLOW | SPARE, 0, { ENGINE(transfer, XF_VERIFY, KILL_ENGINE) } },
	{ SLOW, 0, { STAGE(transfer, XF_VERIFY, SIGNAL, COMMIT) } },
	{ AGAIN | SLOW, 0, { STAGE(transfer, XF_VERIFY, SIGNAL, COMMIT) } },
	{ SLOW, 0, { STAGE(transfer, XF_VERIFY, DISK, TRANSFER) } },
	{ 0, 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(transfer, XF_RUN, SIGNAL, COMMIT),
	    STAGE(transfer, XF_ABORT, KILL_STAGE, ADMIT) } },
	{ 0, 6, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(transfer, XF_RUN, SIGNAL, COMMIT),
	    STAGE(transfer, XF_ABORT, KILL_STAGE, COMMIT) } },
	/* commit: its own failures */
	{ 0, 0, { STAGE(commit, CS_LOCK, SIGNAL, COMMIT) } },
	{ 0, 1, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_LOCK, SIGNAL, COMMIT) } },
	{ 0, 0, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT),
	    LATER(commit, CS_LOCK, DISK, COMMIT) } },
	{ NEXT, 0, { STAGE(commit, CS_LOAD, PUSH, COMMIT),
	    STAGE(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ 0, 1, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ 0, 3, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, KILL_ENGINE, COMMIT) } },
	{ SPARE, 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, KILL_ENGINE, COMMIT) } },
	{ SPARE, 7, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, KILL_ENGINE, COMMIT) } },
	{ 0, 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, KILL_ENGINE, COMMIT) } },
	{ SPARE, 0, { ENGINE(commit, CS_PROBE, KILL_ENGINE) } },
	{ JOIN, 0, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN | ALONE, 0, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN, 0, { STAGE(commit, CS_OPEN, SIGNAL, COMMIT) } },
	{ 0, 13, { STAGE(commit, CS_PROBE, DISK, COMMIT) } },
	{ 0, 0, { STAGE(commit, CS_RECOVER, DISK, COMMIT) } },
	{ 0, 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, DISK, COMMIT) } },
	{ 0, 0, { STAGE(commit, CS_RECEIPT, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, DISK, COMMIT) } },
	{ BACK, 0, { STAGE(commit, CS_SEEK, SIGNAL, COMMIT) } },
	/* commit: engines that are lost, and whether one can be spared */
	{ SPARE, 0, { ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ SPARE, 10, { LONG(commit, CS_BEGIN, STOP_ENGINE) } },
	{ SPARE | SLOW | BIG, 0, { ENGINE(commit, CS_LOAD, CUT),
	    ENGINE(transfer, XF_RUN, CUT), ENGINE(transfer, XF_VERIFY, CUT) } },
	{ SPARE | BIG, 17, { ENGINE(commit, CS_LOAD, CUT),
	    ENGINE(transfer, XF_VERIFY, CUT), ENGINE(transfer, XF_DONE, CUT) } },
	{ SPARE | BIG, 0, { ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    ENGINE(transfer, XF_RUN, KILL_ENGINE) } },
	{ SPARE, 1, { ENGINE(commit, CS_LOAD, LIE),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE, 0, { ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE, 15, { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ SPARE | IN_PLACE, 0, { ENGINE(commit, CS_LOAD, LIE),
	    LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ 0, 15, { STAGE(commit, CS_RECEIPT, SIGNAL, COMMIT) } },
	{ SPARE | IN_PLACE, 0, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE | SLOW, 0, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE, 0, { ENGINE(commit, CS_RECEIPT, SERVER),
	    ENGINE(commit, CS_HOLD, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, 3, { ENGINE(commit, CS_HOLD, KILL_ENGINE),
	    ENGINE(commit, CS_HOLD, SERVER) } },
	{ IN_PLACE, 17, { STAGE(commit, CS_HOLD, SIGNAL, COMMIT) } },
	{ SPARE | IN_PLACE, 0, { ENGINE(commit, CS_RELOAD, SERVER) } },
	{ SPARE | IN_PLACE | SLOW, 0, { ENGINE(commit, CS_RELOAD, SERVER) } },
	{ SPARE | IN_PLACE, 1, { ENGINE(commit, CS_HOLD, SERVER),
	    ENGINE(commit, CS_RELOAD, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, 0, { ENGINE(commit, CS_RELOAD, KILL_ENGINE),
	    ENGINE(commit, CS_RELOAD, SERVER) } },
	{ IN_PLACE, 16, { STAGE(commit, CS_RELOAD, SIGNAL, COMMIT) } },
	{ 0, 29, { STAGE(commit, CS_RECEIPT, DISK, COMMIT) } },
	{ SLOW, 0, { STAGE(commit, CS_RECEIPT, DISK, COMMIT) } },
	{ 0, 0, { ENGINE(commit, CS_DONE, KILL_ENGINE),
	    STAGE(commit, CS_DONE, SIGNAL, COMMIT) } },
	{ 0, 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    ENGINE(commit, CS_ABORT, KILL_ENGINE) } },
	/* engines that an earlier run has left behind */
	{ SPARE | NEXT, 0, { LONG(commit, CS_SWAP, STOP_ENGINE),
	    ENGINE(commit, CS_RECOVER, STALL) } },
	{ JOIN | NEXT, 0, { LONG(commit, CS_SWAP, STOP_ENGINE) } },
	{ AGAIN | NEXT, 0, { LONG(commit, CS_SWAP, STOP_ENGINE) } },
	/* slots: what comes while a job runs */
	{ HOOKS, 7, { STAGE(engine_slot, EN_SEALING, KILL_STAGE, TRANSFER) } },
	{ SLOW, 22, { STAGE(engine_slot, EN_SEALED, KILL_STAGE, TRANSFER) } },
	{ 0, 8, { STAGE(engine_slot, EN_MAKING, FULL, COMMIT) } },
	{ SLOW, 3, { STAGE(engine_slot, EN_MAKING, SIGNAL, COMMIT) } },
	{ SLOW | BIG, 0, { STAGE(engine_slot, EN_FILLING, SIGNAL, COMMIT) } },
	{ SLOW | BIG, 0, { ENGINE(engine_slot, EN_FILLING, LIE),
	    STAGE(engine_slot, EN_FILLING, SIGNAL, COMMIT) } },
	{ HOOKS, 0, { STAGE(engine_slot, EN_SEALING, SIGNAL, COMMIT) } },
	{ BACK | SLOW, 0, { STAGE(engine_slot, EN_MAKING, SIGNAL, COMMIT) } },
	{ SLOW | ECHOES, 14, { ENGINE(commit, CS_SWAP, KILL_ENGINE),
	    STAGE(engine_slot, EN_CHECKING, KILL_STAGE, COMMIT) } },
	{ SLOW | ECHOES, 0, { STAGE(engine_slot, EN_SEALED, PUSH, COMMIT) } },
	{ HOOKS | ECHOES, 0, { STAGE(engine_slot, EN_SEALING, PUSH, COMMIT) } },
	/* gates */
	{ HOOKS | ECHOES, 31, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    ENGINE(engine_gate, EN_PAUSING, ECHO) } },
	{ HOOKS | ECHOES, 0, { STAGE(engine_gate, EN_PAUSED, PUSH, COMMIT) } },
	{ HOOKS | ECHOES, 0, { STAGE(engine_gate, EN_SWAPPING, PUSH, COMMIT) } },
	/* on the way home */
	{ 0, 0, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_FIND, KILL_ENGINE) } },
	{ 0, 0, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    LONG(homing, HS_FIND, STOP_ENGINE) } },
	{ SLOW, 0, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_RECEIPT, KILL_ENGINE) } },
	{ SLOW, 17, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    LONG(homing, HS_RECEIPT, STOP_ENGINE) } },
	{ HOOKS, 1, { ENGINE(homing, HS_SWAP, KILL_ENGINE) } },
	{ 0, 0, { STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    LONG(homing, HS_CANCEL, STOP_ENGINE) } },
	/* an engine is left out, and comes home while another is waited for */
	{ SPARE, 10, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    AT(commit, CS_PROBE, STOP_ENGINE, NONE, OTHER_ | BRIEF_ | AGAIN_) } },
	{ SPARE, 9, { OTHER(commit, CS_BEGIN, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ SPARE, 0, { OTHER(commit, CS_LOAD, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE) } },
	{ SPARE, 0, { OTHER(commit, CS_RECEIPT, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, 0, { OTHER(commit, CS_HOLD, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE, 0, { OTHER(commit, CS_RELOAD, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_RELOAD, SERVER) } },
	/* an abort that waits for an engine, and who is told of it again */
	{ SPARE, 12, { OTHER(commit, CS_LOAD, STOP_ENGINE, LONG_),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    AT(commit, CS_LOAD, SIGNAL, COMMIT, LATE_),
	    LINK(transfer, XF_ABORT, COMMIT) } },
	{ SPARE, 10, { OTHER(commit, CS_LOAD, STOP_ENGINE, LONG_),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    AT(commit, CS_LOAD, SIGNAL, COMMIT, LATE_),
	    LINK(admit, ADM_ABORT, TRANSFER) } },
	/* links that are lost, and what was under way */
	{ 0, 11, { AT(commit, CS_LOAD, STOP_ENGINE, NONE, BRIEF_),
	    LINK(transfer, XF_ASK, COMMIT) } },
	{ BIG, 1, { LINK(transfer, XF_RUN, TRANSFER),
	    LINK(admit, ADM_WAIT, TRANSFER) } },
	{ BIG | SLOW, 4, { LINK(admit, ADM_LOAD, TRANSFER),
	    LINK(admit, ADM_WAIT, TRANSFER) } },
	{ SLOW | HOOKS, 0, { LINK(admit, ADM_SEAL, TRANSFER),
	    LINK(admit, ADM_WAIT, TRANSFER) } },
	{ SLOW, 18, { LINK(transfer, XF_VERIFY, TRANSFER),
	    LINK(admit, ADM_DONE, TRANSFER) } },
	{ SLOW | BIG, 8, { WIRE(commit, CS_LOAD, COMMIT) } },
	{ SLOW, 0, { WIRE(transfer, XF_VERIFY, COMMIT) } },
	{ 0, 18, { WIRE(transfer, XF_DONE, COMMIT) } },
	/* a lock that somebody holds who is stopped */
	{ NEXT, 12, { AT(commit, CS_LOAD, STOP_STAGE, COMMIT, LONG_),
	    AT(commit, CS_LOAD, PUSH, COMMIT, FIRST_ | LATE_),
	    AT(commit, CS_LOCK, SIGNAL, COMMIT, LATE_) } },
	{ 0, 13, { AT(commit, CS_LOAD, TWICE, COMMIT, LONG_),
	    AT(commit, CS_LOCK, SIGNAL, COMMIT, AGAIN_) } },
	{ 0, 2, { AT(commit, CS_SWAP, TWICE, COMMIT, LONG_),
	    AT(commit, CS_LOCK, SIGNAL, COMMIT, AGAIN_) } },
	/* recovery that waits for an engine */
	{ NEXT, 13, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    AT(commit, CS_LOAD, PUSH, COMMIT, FIRST_ | LATE_),
	    STAGE(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ SPARE | NEXT, 26, { LONG(commit, CS_SWAP, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ SPARE | NEXT, 0, { LONG(commit, CS_SWAP, STOP_ENGINE),
	    STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, DISK, COMMIT) } },
	/* a join of an engine that lags */
	{ JOIN | SPARE, 5, { AT(commit, CS_LOAD, KILL_ENGINE, NONE, FIRST_) } },
	{ JOIN | SPARE, 0, { AT(commit, CS_LOAD, KILL_ENGINE, NONE, FIRST_),
	    STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN | SPARE, 0, { AT(commit, CS_LOAD, KILL_ENGINE, NONE, FIRST_),
	    STAGE(commit, CS_DONE, KILL_STAGE, COMMIT) } },
	/* servers that fail, and receipts that do not come */
	{ SPARE | IN_PLACE | FAILS, 0, { { 0 } } },
	{ SPARE | IN_PLACE | FAILS, 0, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ WHOLE | IN_PLACE | FAILS, 0, { { 0 } } },
	{ SPARE | IN_PLACE, 1, { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ WHOLE, 10, { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	/* nobody is there for a while */
	{ GONE, 2, { ENGINE(homing, HS_SWAP, KILL_ENGINE) } },
	{ GONE, 0, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_FIND, KILL_ENGINE) } },
	{ GONE | SLOW, 9, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_RECEIPT, KILL_ENGINE) } },
	{ GONE | SPARE, 29, { OTHER(commit, CS_BEGIN, STOP_ENGINE, LAG_),
	    ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ GONE | SPARE | SLOW | BIG, 11, { ENGINE(commit, CS_LOAD, KILL_ENGINE) } },
	{ GONE | SPARE, 0, { OTHER(commit, CS_RECEIPT, STOP_ENGINE, LAG_),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ GONE | NEXT, 0, { STAGE(commit, CS_LOAD, PUSH, COMMIT),
	    ENGINE(commit, CS_RECOVER, KILL_ENGINE) } },
	{ GONE | NEXT, 7, { STAGE(commit, CS_SWAP, PUSH, COMMIT),
	    ENGINE(commit, CS_RECOVER, KILL_ENGINE) } },
	{ 0, 0, { AT(commit, CS_RECEIPT, KILL_STAGE, PLAN, ALL_) } },
	{ 0, 0, { AT(commit, CS_SWAP, KILL_STAGE, PLAN, ALL_) } },
	{ 0, 0, { STAGE(commit, CS_DECIDE, DISK, COMMIT) } },
	{ 0, 0, { ENGINE(commit, CS_PROBE, KILL_ENGINE),
	    STAGE(commit, CS_DONE, SIGNAL, COMMIT) } },
	{ 0, 0, { STAGE(admit, ADM_SEAL, SIGNAL, COMMIT) } },
	{ SLOW | BIG, 5, { STAGE(transfer, XF_RUN, SIGNAL, COMMIT) } },
	/* a stage that dies at each start */
	{ 0, 2, { AT(commit, CS_PROBE, KILL_STAGE, PLAN, ALL_) } },
	{ 0, 1, { AT(commit, CS_LOAD, KILL_STAGE, PLAN, ALL_) } },
	{ BIG, 6, { AT(commit, CS_LOAD, KILL_STAGE, ADMIT, ALL_) } },
	{ BIG, 0, { AT(commit, CS_LOAD, KILL_STAGE, TRANSFER, ALL_) } },
	{ 0, 0, { AT(commit, CS_LOAD, KILL_STAGE, COMMIT, ALL_) } },
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
	if (has(a, PAIR))
		world.engines = 2;
	if (has(a, WHOLE))
		world.min_engines = 0;
	if (has(a, IN_PLACE))
		world.in_place = 1 + (uint32_t)rng_below(r, world.engines);
	if (has(a, SERVERS))
		world.in_place = world.engines;
	if (has(a, WAVES)) {
		world.groups = 1;
		world.by_window = false;
	}
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
	if (has(a, FAILS))
		world.http_fails_one_in = 4 + (uint32_t)rng_below(r, 8);
	if (has(a, GONE | DEAD))
		world.restart_ms = has(a, DEAD) ? DEAD_MS : GONE_MS;
	if (has(a, LAZY))
		world.hook_long_one_in = 1;
	if (has(a, QUICK | PATIENT))
		world.engine_ms = has(a, QUICK) ? QUICK_MS : PATIENT_MS;
	if (has(a, SLUGGISH))
		sim.disk_slow_ns = SLUGGISH_MS * SIM_MS;
	world.unleased = has(a, UNLEASED);
	if (has(a, BIG)) {
		world.bucket_size = 16;
		world.buckets = 1 + rng_below(r, 3);
	}
}

/* The push of an aim's moments: the one that is of a kind, or the first. */
static uint32_t push_of(const struct aim *a, size_t i)
{
	if (a->at[i].how & FIRST_)
		return 0;
	if (has(a, NEXT))
		return i > 0;
	return has(a, AGAIN | JOIN | BACK) ? 1 : 0;
}

/* Longer than all that waits for it. */
static int64_t long_of(enum fault_kind k)
{
	return k == FAULT_SLOW	 ? 120 * SIM_S
	       : k == FAULT_BUSY ? 60 * SIM_S
				 : 30 * SIM_S;
}

static int64_t length(struct rng *r, const struct moment *m)
{
	if (m->how & LONG_)
		return long_of(m->kind);
	if (m->how & LINGER_)
		return world.engine_ms * SIM_MS +
		       (int64_t)rng_below(r, 2 * SIM_S);
	if (m->how & LAG_)
		return world.engine_ms * SIM_MS - (int64_t)rng_below(r, SIM_S);
	if (m->how & BRIEF_)
		return SIM_S + (int64_t)rng_below(r, SIM_S / 2);
	if (m->kind == FAULT_SLOW || m->kind == FAULT_BUSY)
		return 2 * SIM_S + (int64_t)rng_below(r, 3 * SIM_S);
	return (int64_t)rng_below(r, 2 * SIM_S);
}

/* States last for microseconds or longer: each order of magnitude alike. */
static int64_t moment(struct rng *r, const struct moment *m)
{
	if (m->how & NOW_)
		return 0;
	if (m->kind == FAULT_RISE && m->how & LAG_)
		return length(r, m);
	if (m->how & LATE_)
		return SIM_S / 2 + (int64_t)rng_below(r, SIM_S / 2);
	return (int64_t)rng_below(r, (uint64_t)SIM_US << rng_below(r, 12));
}

static uint32_t who(const struct moment *m, uint32_t engine)
{
	if (!world_is_of_engine(m->kind))
		return m->who;
	return m->how & OTHER_ ? (engine + 1) % world.engines : engine;
}

static uint64_t steps_of(struct rng *r, const struct moment *m)
{
	if (m->kind != FAULT_DISK)
		return rng_below(r, AIMED_STEPS);
	return (m->how & MANY_ ? SOME_WRITES : 0) + rng_below(r, AIMED_WRITES);
}

static void place(struct rng *r, const struct aim *a, size_t i, uint32_t engine)
{
	const struct moment *m = &a->at[i];
	int64_t when = moment(r, m), len = length(r, m);
	uint64_t steps = steps_of(r, m);

	world.fault[i] = (struct fault){
		.kind = m->kind,
		.push = push_of(a, i),
		.who = who(m, engine),
		.engine = engine,
		.own = true,
		.machine = m->machine,
		.state = m->state,
		.again = m->how & AGAIN_,
		.repeats = m->how & ALL_,
		.now = m->how & NOW_,
		.then = m->how & THEN_,
		.other = m->how & OTHER_,
		.loses = m->how & LOST_,
		.cut = m->how & LINK_	? CUT_LINK
		       : m->how & WIRE_ ? CUT_ENGINE
					: CUT_ANY,
		.steps = steps,
		.when = when,
		.len = len,
	};
}

static const struct aim *aim_of(const struct aim *v, size_t n, uint64_t turn)
{
	uint64_t all = 0;

	for (size_t i = 0; i < n; i++)
		all += 1 + v[i].turns;
	turn %= all;
	while (turn > v->turns)
		turn -= 1 + v++->turns;
	return v;
}

/* others: fewer faults are left as they were drawn. */
static void aim_at(struct rng *r, const struct aim *a, uint64_t others)
{
	uint32_t engine;
	size_t n = 0;

	shape_push(a);
	shape_fleet(r, a);
	shape_pace(r, a);
	engine = (uint32_t)rng_below(r, world.engines);
	if (has(a, IN_PLACE))
		engine = world.engines - 1;
	while (n < MOMENTS && a->at[n].machine)
		n++;
	world.nfaults = (uint32_t)(n + rng_below(r, others));
	for (size_t i = 0; i < n; i++)
		place(r, a, i, engine);
	for (size_t i = n; i < world.nfaults; i++)
		world_make_fault(r, &world.fault[i]);
}

void world_aim(struct rng *r, uint64_t turn)
{
	aim_at(r, aim_of(aims, COUNT(aims), turn), OTHERS);
}

void world_aim_close(struct rng *r, uint64_t turn)
{
	world.plain = true;
	world.bytes = world.bytes ? LARGE_BYTES : 0;
	aim_at(r, aim_of(close_aims, nclose_aims, turn), 1);
}
