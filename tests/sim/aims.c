/*
 * Worlds that are made for what seldom happens: six of seven seeds aim at one
 * row or some rows of a machine each, in turn.  What is drawn stays as it is,
 * but for the faults and settings that make that moment likely.
 */
#include "story.h"

#include "pipes/admit.h"
#include "pipes/commit.h"
#include "pipes/engine.h"
#include "pipes/homing.h"
#include "pipes/transfer.h"

#define OTHERS 2       /* fewer faults are left as they were drawn */
#define AIMED_STEPS 12 /* from the moment on, calls until it happens */
#define AIMED_WRITES 4 /* the same of a disk that fails */
#define GONE_MS 5000
#define MOMENTS 4

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
	NEXT = 1 << 9,	 /* all but the first are the next push's */
	BIG = 1 << 10,	 /* many buckets */
	FAILS = 1 << 11, /* servers that answer wrongly at times */
	WHOLE = 1 << 12, /* no engine can be left out */
	GONE = 1 << 13	 /* who dies is away for a while */
};

/* How it happens. */
enum {
	AGAIN_ = 1 << 0, /* in a stage that was started again */
	LONG_ = 1 << 1,	 /* longer than all time-outs */
	LAG_ = 1 << 2,	 /* nearly as long as an engine may take */
	BRIEF_ = 1 << 3, /* not as long as any time-out */
	OTHER_ = 1 << 4, /* another engine than the others' */
	FIRST_ = 1 << 5, /* in the first push */
	LATE_ = 1 << 6,	 /* some time after the state was entered */
	LINK_ = 1 << 7,	 /* cuts: of the link that the stage has dialled */
	WIRE_ = 1 << 8,	 /* cuts: of the stage's connection to an engine */
	ALL_ = 1 << 9	 /* kills: each that takes its place, too */
};

struct moment {
	const struct fsm_table *machine;
	uint8_t state;
	enum fault_kind kind;
	uint32_t who; /* a stage; the engine is drawn */
	unsigned how;
};

struct aim {
	unsigned world;
	struct moment at[MOMENTS];
};

/* Turns, for what is met the least: beside the world's bits. */
#define MORE(turns) ((unsigned)(turns) << 16)

#define AT(m, s, k, w, how)                              \
	{                                                \
		&m##_table, s, FAULT_##k, STAGE_##w, how \
	}
#define STAGE(m, s, k, w) AT(m, s, k, w, 0)
#define LATER(m, s, k, w) AT(m, s, k, w, AGAIN_)
#define ENGINE(m, s, k) AT(m, s, k, NONE, 0)
#define LONG(m, s, k) AT(m, s, k, NONE, LONG_)
#define LINK(m, s, w) AT(m, s, CUT, w, LINK_)
#define WIRE(m, s, w) AT(m, s, CUT, w, WIRE_)
#define OTHER(m, s, k, how) AT(m, s, k, NONE, OTHER_ | (how))

/* clang-format off */
static const struct aim aims[] = {
	/* admit: who comes again, and what is said again */
	{ HOOKS, { STAGE(admit, ADM_SEAL, KILL_STAGE, TRANSFER) } },
	{ AGAIN | SLOW, { STAGE(admit, ADM_HASH, KILL_STAGE, COMMIT) } },
	{ AGAIN | SLOW | MORE(14), { STAGE(admit, ADM_HASH, KILL_STAGE, TRANSFER) } },
	{ AGAIN | SLOW | SPARE | MORE(13), { ENGINE(commit, CS_PROBE, KILL_ENGINE),
	    STAGE(admit, ADM_HASH, KILL_STAGE, COMMIT) } },
	{ AGAIN | SLOW, { STAGE(admit, ADM_HASH, SIGNAL, COMMIT) } },
	{ SPARE, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    STAGE(admit, ADM_ABORT, KILL_STAGE, TRANSFER) } },
	{ 0, { LONG(commit, CS_BEGIN, STOP_ENGINE),
	    STAGE(commit, CS_ABORT, KILL_STAGE, COMMIT) } },
	/* transfer */
	{ 0, { STAGE(transfer, XF_ASK, KILL_STAGE, COMMIT) } },
	{ SLOW | BIG | MORE(4), { STAGE(transfer, XF_RUN, TWICE, ADMIT) } },
	{ SLOW | MORE(1), { STAGE(transfer, XF_VERIFY, KILL_STAGE, ADMIT) } },
	{ AGAIN | SLOW | MORE(13), { STAGE(transfer, XF_VERIFY, KILL_STAGE, ADMIT) } },
	{ SLOW | MORE(5), { STAGE(transfer, XF_VERIFY, KILL_STAGE, COMMIT) } },
	{ SLOW | SPARE, { ENGINE(transfer, XF_VERIFY, KILL_ENGINE) } },
	{ SLOW, { STAGE(transfer, XF_VERIFY, SIGNAL, COMMIT) } },
	{ AGAIN | SLOW, { STAGE(transfer, XF_VERIFY, SIGNAL, COMMIT) } },
	{ SLOW, { STAGE(transfer, XF_VERIFY, DISK, TRANSFER) } },
	{ 0, { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(transfer, XF_RUN, SIGNAL, COMMIT),
	    STAGE(transfer, XF_ABORT, KILL_STAGE, ADMIT) } },
	{ MORE(6), { LONG(commit, CS_LOAD, STOP_ENGINE),
	    STAGE(transfer, XF_RUN, SIGNAL, COMMIT),
	    STAGE(transfer, XF_ABORT, KILL_STAGE, COMMIT) } },
	/* commit: its own failures */
	{ 0, { STAGE(commit, CS_LOCK, SIGNAL, COMMIT) } },
	{ MORE(1), { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_LOCK, SIGNAL, COMMIT) } },
	{ 0, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT),
	    LATER(commit, CS_LOCK, DISK, COMMIT) } },
	{ NEXT, { STAGE(commit, CS_LOAD, PUSH, COMMIT),
	    STAGE(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ MORE(1), { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ MORE(3), { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, KILL_ENGINE, COMMIT) } },
	{ SPARE, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, KILL_ENGINE, COMMIT) } },
	{ SPARE | MORE(7), { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, KILL_ENGINE, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, KILL_ENGINE, COMMIT) } },
	{ SPARE, { ENGINE(commit, CS_PROBE, KILL_ENGINE) } },
	{ JOIN, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN | ALONE, { STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN, { STAGE(commit, CS_OPEN, SIGNAL, COMMIT) } },
	{ MORE(13), { STAGE(commit, CS_PROBE, DISK, COMMIT) } },
	{ 0, { STAGE(commit, CS_RECOVER, DISK, COMMIT) } },
	{ 0, { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_PROBE, DISK, COMMIT) } },
	{ 0, { STAGE(commit, CS_RECEIPT, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, DISK, COMMIT) } },
	{ BACK, { STAGE(commit, CS_SEEK, SIGNAL, COMMIT) } },
	/* commit: engines that are lost, and whether one can be spared */
	{ SPARE, { ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ SPARE | MORE(10), { LONG(commit, CS_BEGIN, STOP_ENGINE) } },
	{ SPARE | SLOW | BIG, { ENGINE(commit, CS_LOAD, CUT),
	    ENGINE(transfer, XF_RUN, CUT), ENGINE(transfer, XF_VERIFY, CUT) } },
	{ SPARE | BIG | MORE(17), { ENGINE(commit, CS_LOAD, CUT),
	    ENGINE(transfer, XF_VERIFY, CUT), ENGINE(transfer, XF_DONE, CUT) } },
	{ SPARE | BIG, { ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    ENGINE(transfer, XF_RUN, KILL_ENGINE) } },
	{ SPARE | MORE(1), { ENGINE(commit, CS_LOAD, LIE),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE, { ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE | MORE(15), { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_LOAD, LIE),
	    LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ MORE(15), { STAGE(commit, CS_RECEIPT, SIGNAL, COMMIT) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE | SLOW, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_RECEIPT, SERVER),
	    ENGINE(commit, CS_HOLD, KILL_ENGINE) } },
	{ SPARE | IN_PLACE | MORE(3), { ENGINE(commit, CS_HOLD, KILL_ENGINE),
	    ENGINE(commit, CS_HOLD, SERVER) } },
	{ IN_PLACE | MORE(17), { STAGE(commit, CS_HOLD, SIGNAL, COMMIT) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_RELOAD, SERVER) } },
	{ SPARE | IN_PLACE | SLOW, { ENGINE(commit, CS_RELOAD, SERVER) } },
	{ SPARE | IN_PLACE | MORE(1), { ENGINE(commit, CS_HOLD, SERVER),
	    ENGINE(commit, CS_RELOAD, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, { ENGINE(commit, CS_RELOAD, KILL_ENGINE),
	    ENGINE(commit, CS_RELOAD, SERVER) } },
	{ IN_PLACE | MORE(16), { STAGE(commit, CS_RELOAD, SIGNAL, COMMIT) } },
	{ MORE(29), { STAGE(commit, CS_RECEIPT, DISK, COMMIT) } },
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
	{ HOOKS | MORE(7), { STAGE(engine_slot, EN_SEALING, KILL_STAGE, TRANSFER) } },
	{ SLOW | MORE(22), { STAGE(engine_slot, EN_SEALED, KILL_STAGE, TRANSFER) } },
	{ MORE(8), { STAGE(engine_slot, EN_MAKING, FULL, COMMIT) } },
	{ SLOW | MORE(3), { STAGE(engine_slot, EN_MAKING, SIGNAL, COMMIT) } },
	{ SLOW | BIG, { STAGE(engine_slot, EN_FILLING, SIGNAL, COMMIT) } },
	{ SLOW | BIG, { ENGINE(engine_slot, EN_FILLING, LIE),
	    STAGE(engine_slot, EN_FILLING, SIGNAL, COMMIT) } },
	{ HOOKS, { STAGE(engine_slot, EN_SEALING, SIGNAL, COMMIT) } },
	{ BACK | SLOW, { STAGE(engine_slot, EN_MAKING, SIGNAL, COMMIT) } },
	{ SLOW | ECHOES | MORE(14), { ENGINE(commit, CS_SWAP, KILL_ENGINE),
	    STAGE(engine_slot, EN_CHECKING, KILL_STAGE, COMMIT) } },
	{ SLOW | ECHOES, { STAGE(engine_slot, EN_SEALED, PUSH, COMMIT) } },
	{ HOOKS | ECHOES, { STAGE(engine_slot, EN_SEALING, PUSH, COMMIT) } },
	/* gates */
	{ HOOKS | ECHOES | MORE(31), { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
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
	{ SLOW | MORE(17), { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    LONG(homing, HS_RECEIPT, STOP_ENGINE) } },
	{ HOOKS | MORE(1), { ENGINE(homing, HS_SWAP, KILL_ENGINE) } },
	{ 0, { STAGE(commit, CS_LOAD, SIGNAL, COMMIT),
	    LONG(homing, HS_CANCEL, STOP_ENGINE) } },
	/* an engine is left out, and comes home while another is waited for */
	{ SPARE | MORE(10), { STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    AT(commit, CS_PROBE, STOP_ENGINE, NONE, OTHER_ | BRIEF_ | AGAIN_) } },
	{ SPARE | MORE(9), { OTHER(commit, CS_BEGIN, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ SPARE, { OTHER(commit, CS_LOAD, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE) } },
	{ SPARE, { OTHER(commit, CS_RECEIPT, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ SPARE | IN_PLACE, { OTHER(commit, CS_HOLD, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_HOLD, SERVER) } },
	{ SPARE | IN_PLACE, { OTHER(commit, CS_RELOAD, STOP_ENGINE, BRIEF_),
	    ENGINE(commit, CS_RELOAD, SERVER) } },
	/* an abort that waits for an engine, and who is told of it again */
	{ SPARE | MORE(12), { OTHER(commit, CS_LOAD, STOP_ENGINE, LONG_),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    AT(commit, CS_LOAD, SIGNAL, COMMIT, LATE_),
	    LINK(transfer, XF_ABORT, COMMIT) } },
	{ SPARE | MORE(10), { OTHER(commit, CS_LOAD, STOP_ENGINE, LONG_),
	    ENGINE(commit, CS_LOAD, KILL_ENGINE),
	    AT(commit, CS_LOAD, SIGNAL, COMMIT, LATE_),
	    LINK(admit, ADM_ABORT, TRANSFER) } },
	/* links that are lost, and what was under way */
	{ MORE(11), { AT(commit, CS_LOAD, STOP_ENGINE, NONE, BRIEF_),
	    LINK(transfer, XF_ASK, COMMIT) } },
	{ BIG | MORE(1), { LINK(transfer, XF_RUN, TRANSFER),
	    LINK(admit, ADM_WAIT, TRANSFER) } },
	{ BIG | SLOW | MORE(4), { LINK(admit, ADM_LOAD, TRANSFER),
	    LINK(admit, ADM_WAIT, TRANSFER) } },
	{ SLOW | HOOKS, { LINK(admit, ADM_SEAL, TRANSFER),
	    LINK(admit, ADM_WAIT, TRANSFER) } },
	{ SLOW | MORE(18), { LINK(transfer, XF_VERIFY, TRANSFER),
	    LINK(admit, ADM_DONE, TRANSFER) } },
	{ SLOW | BIG | MORE(8), { WIRE(commit, CS_LOAD, COMMIT) } },
	{ SLOW, { WIRE(transfer, XF_VERIFY, COMMIT) } },
	{ MORE(18), { WIRE(transfer, XF_DONE, COMMIT) } },
	/* a lock that somebody holds who is stopped */
	{ NEXT | MORE(12), { AT(commit, CS_LOAD, STOP_STAGE, COMMIT, LONG_),
	    AT(commit, CS_LOAD, PUSH, COMMIT, FIRST_ | LATE_),
	    AT(commit, CS_LOCK, SIGNAL, COMMIT, LATE_) } },
	{ MORE(13), { AT(commit, CS_LOAD, TWICE, COMMIT, LONG_),
	    AT(commit, CS_LOCK, SIGNAL, COMMIT, AGAIN_) } },
	{ MORE(2), { AT(commit, CS_SWAP, TWICE, COMMIT, LONG_),
	    AT(commit, CS_LOCK, SIGNAL, COMMIT, AGAIN_) } },
	/* recovery that waits for an engine */
	{ NEXT | MORE(13), { LONG(commit, CS_LOAD, STOP_ENGINE),
	    AT(commit, CS_LOAD, PUSH, COMMIT, FIRST_ | LATE_),
	    STAGE(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ SPARE | NEXT | MORE(26), { LONG(commit, CS_SWAP, STOP_ENGINE),
	    STAGE(commit, CS_LOAD, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, SIGNAL, COMMIT) } },
	{ SPARE | NEXT, { LONG(commit, CS_SWAP, STOP_ENGINE),
	    STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT),
	    LATER(commit, CS_RECOVER, DISK, COMMIT) } },
	/* a join of an engine that lags */
	{ JOIN | SPARE | MORE(5), { AT(commit, CS_LOAD, KILL_ENGINE, NONE, FIRST_) } },
	{ JOIN | SPARE, { AT(commit, CS_LOAD, KILL_ENGINE, NONE, FIRST_),
	    STAGE(commit, CS_SWAP, KILL_STAGE, COMMIT) } },
	{ JOIN | SPARE, { AT(commit, CS_LOAD, KILL_ENGINE, NONE, FIRST_),
	    STAGE(commit, CS_DONE, KILL_STAGE, COMMIT) } },
	/* servers that fail, and receipts that do not come */
	{ SPARE | IN_PLACE | FAILS, { { 0 } } },
	{ SPARE | IN_PLACE | FAILS, { ENGINE(commit, CS_HOLD, SERVER) } },
	{ WHOLE | IN_PLACE | FAILS, { { 0 } } },
	{ SPARE | IN_PLACE | MORE(1), { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	{ WHOLE | MORE(10), { LONG(commit, CS_RECEIPT, STOP_ENGINE) } },
	/* nobody is there for a while */
	{ GONE | MORE(2), { ENGINE(homing, HS_SWAP, KILL_ENGINE) } },
	{ GONE, { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_FIND, KILL_ENGINE) } },
	{ GONE | SLOW | MORE(9), { ENGINE(homing, HS_SWAP, KILL_ENGINE),
	    ENGINE(homing, HS_RECEIPT, KILL_ENGINE) } },
	{ GONE | SPARE | MORE(29), { OTHER(commit, CS_BEGIN, STOP_ENGINE, LAG_),
	    ENGINE(commit, CS_BEGIN, KILL_ENGINE) } },
	{ GONE | SPARE | SLOW | BIG | MORE(11), { ENGINE(commit, CS_LOAD, KILL_ENGINE) } },
	{ GONE | SPARE, { OTHER(commit, CS_RECEIPT, STOP_ENGINE, LAG_),
	    ENGINE(commit, CS_RECEIPT, KILL_ENGINE) } },
	{ GONE | NEXT, { STAGE(commit, CS_LOAD, PUSH, COMMIT),
	    ENGINE(commit, CS_RECOVER, KILL_ENGINE) } },
	{ GONE | NEXT | MORE(7), { STAGE(commit, CS_SWAP, PUSH, COMMIT),
	    ENGINE(commit, CS_RECOVER, KILL_ENGINE) } },
	{ 0, { AT(commit, CS_RECEIPT, KILL_STAGE, PLAN, ALL_) } },
	{ 0, { AT(commit, CS_SWAP, KILL_STAGE, PLAN, ALL_) } },
	{ 0, { STAGE(commit, CS_DECIDE, DISK, COMMIT) } },
	{ 0, { ENGINE(commit, CS_PROBE, KILL_ENGINE),
	    STAGE(commit, CS_DONE, SIGNAL, COMMIT) } },
	{ 0, { STAGE(admit, ADM_SEAL, SIGNAL, COMMIT) } },
	{ SLOW | BIG | MORE(5), { STAGE(transfer, XF_RUN, SIGNAL, COMMIT) } },
	/* a stage that dies at each start */
	{ MORE(2), { AT(commit, CS_PROBE, KILL_STAGE, PLAN, ALL_) } },
	{ MORE(1), { AT(commit, CS_LOAD, KILL_STAGE, PLAN, ALL_) } },
	{ BIG | MORE(6), { AT(commit, CS_LOAD, KILL_STAGE, ADMIT, ALL_) } },
	{ BIG, { AT(commit, CS_LOAD, KILL_STAGE, TRANSFER, ALL_) } },
	{ 0, { AT(commit, CS_LOAD, KILL_STAGE, COMMIT, ALL_) } },
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
	if (has(a, WHOLE))
		world.min_engines = 0;
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
	if (has(a, FAILS))
		world.http_fails_one_in = 4 + (uint32_t)rng_below(r, 8);
	if (has(a, GONE))
		world.restart_ms = GONE_MS;
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

/* States last for microseconds or longer: each order of magnitude alike. */
static int64_t moment(struct rng *r, const struct moment *m)
{
	if (m->how & LATE_)
		return SIM_S / 2 + (int64_t)rng_below(r, SIM_S / 2);
	return (int64_t)rng_below(r, (uint64_t)SIM_US << rng_below(r, 12));
}

static int64_t length(struct rng *r, const struct moment *m)
{
	if (m->how & LONG_)
		return 30 * SIM_S;
	if (m->how & LAG_)
		return world.engine_ms * SIM_MS - (int64_t)rng_below(r, SIM_S);
	if (m->how & BRIEF_)
		return SIM_S + (int64_t)rng_below(r, SIM_S / 2);
	return (int64_t)rng_below(r, 2 * SIM_S);
}

static uint32_t who(const struct moment *m, uint32_t engine)
{
	if (!world_is_of_engine(m->kind))
		return m->who;
	return m->how & OTHER_ ? (engine + 1) % world.engines : engine;
}

static void place(struct rng *r, const struct aim *a, size_t i, uint32_t engine)
{
	const struct moment *m = &a->at[i];
	int64_t when = moment(r, m), len = length(r, m);
	uint64_t steps = rng_below(r, m->kind == FAULT_DISK ? AIMED_WRITES
							    : AIMED_STEPS);

	world.fault[i] = (struct fault){
		.kind = m->kind,
		.push = push_of(a, i),
		.who = who(m, engine),
		.machine = m->machine,
		.state = m->state,
		.again = m->how & AGAIN_,
		.repeats = m->how & ALL_,
		.cut = m->how & LINK_	? CUT_LINK
		       : m->how & WIRE_ ? CUT_ENGINE
					: CUT_ANY,
		.steps = steps,
		.when = when,
		.len = len,
	};
}

static uint64_t turns_of(const struct aim *a)
{
	return 1 + a->world / MORE(1);
}

static const struct aim *aim_of(uint64_t turn)
{
	uint64_t all = 0;

	for (size_t i = 0; i < COUNT(aims); i++)
		all += turns_of(&aims[i]);
	turn %= all;
	for (size_t i = 0;; i++) {
		if (turn < turns_of(&aims[i]))
			return &aims[i];
		turn -= turns_of(&aims[i]);
	}
}

void world_aim(struct rng *r, uint64_t turn)
{
	const struct aim *a = aim_of(turn);
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
	world.nfaults = (uint32_t)(n + rng_below(r, OTHERS));
	for (size_t i = 0; i < n; i++)
		place(r, a, i, engine);
	for (size_t i = n; i < world.nfaults; i++)
		world_make_fault(r, &world.fault[i]);
}
