#include "pipes/commit.h"
#include "common/buf.h"
#include "common/err.h"

#include <assert.h>

/* ---- what rows ask ---- */

static struct commit_engine *of(struct commit *c, const void *event)
{
	const struct commit_event *e = event;

	return &c->engine[e->engine];
}

static bool is_out(const void *m, const void *event)
{
	const struct commit *c = m;
	const struct commit_event *e = event;

	return c->engine[e->engine].out;
}

/* May the run go on without this engine? */
static bool can_spare(const void *m, const void *event)
{
	const struct commit *c = m;

	(void)event;
	return commit_in(c) > c->min;
}

/* Has every other engine that is in answered? */
static bool is_last(const void *m, const void *event)
{
	const struct commit *c = m;
	const struct commit_event *e = event;

	for (uint32_t i = 0; i < c->nengines; i++)
		if (i != e->engine && !c->engine[i].out &&
		    !c->engine[i].answered)
			return false;
	return true;
}

/* In-place engines are the last of the fleet (I6).  Is one in, from here on,
 * beside the one that the event is about to leave out? */
static bool has_in_place(const struct commit *c, uint32_t from, uint32_t lost)
{
	for (uint32_t i = from; i < c->nengines; i++)
		if (i != lost && !c->engine[i].out && c->engine[i].in_place)
			return true;
	return false;
}

static bool last_to_hold(const void *m, const void *event)
{
	return is_last(m, event) && has_in_place(m, 0, UINT32_MAX);
}

static bool spare_to_hold(const void *m, const void *event)
{
	const struct commit_event *e = event;

	return can_spare(m, event) && is_last(m, event) &&
	       has_in_place(m, 0, e->engine);
}

/* The wave is complete, and another one follows. */
static bool last_of_wave(const void *m, const void *event)
{
	const struct commit *c = m;

	return is_last(m, event) && has_in_place(c, c->hi, UINT32_MAX);
}

static bool spare_of_wave(const void *m, const void *event)
{
	return can_spare(m, event) && last_of_wave(m, event);
}

static bool spare_last(const void *m, const void *event)
{
	return can_spare(m, event) && is_last(m, event);
}

/* Is every other touched engine home or away? */
static bool is_last_home(const void *m, const void *event)
{
	const struct commit *c = m;
	const struct commit_event *e = event;

	for (uint32_t i = 0; i < c->nengines; i++) {
		const struct commit_engine *g = &c->engine[i];

		if (i != e->engine && g->touched && !g->home && !g->away)
			return false;
	}
	return true;
}

/* Is no other engine in? */
static bool is_alone(const void *m, const void *event)
{
	const struct commit *c = m;

	(void)event;
	return commit_in(c) == 1;
}

static bool is_alone_untouched(const void *m, const void *event)
{
	return is_alone(m, event) && !((const struct commit *)m)->touched;
}

static bool is_untouched(const void *m, const void *event)
{
	(void)event;
	return !((const struct commit *)m)->touched;
}

static bool is_published(const void *m, const void *event)
{
	(void)event;
	return ((const struct commit *)m)->published;
}

static bool is_same(const void *m, const void *event)
{
	(void)event;
	return ((const struct commit *)m)->same;
}

/* ---- what rows do; the state has moved already ---- */

static void put(struct commit *c, enum commit_act type, uint32_t engine)
{
	struct commit_action a = { type, engine };

	c->act[c->nacts++] = a;
}

static void unanswer(struct commit *c)
{
	for (uint32_t i = 0; i < c->nengines; i++)
		c->engine[i].answered = false;
}

static void blame(struct commit *c, const void *event)
{
	const struct commit_event *e = event;

	if (c->code || c->signal)
		return;
	c->code = e->code;
	c->signal = e->signal;
}

static void lock(void *m, const void *event)
{
	(void)event;
	put(m, CA_LOCK, 0);
}

static void recover(void *m, const void *event)
{
	(void)event;
	put(m, CA_RECOVER, 0);
}

static void probe(void *m, const void *event)
{
	(void)event;
	unanswer(m);
	put(m, CA_PROBE, 0);
}

static void answered(void *m, const void *event)
{
	of(m, event)->answered = true;
}

static void open_run(void *m, const void *event)
{
	(void)event;
	put(m, CA_OPEN, 0);
}

static void seek(void *m, const void *event)
{
	(void)event;
	put(m, CA_SEEK, 0);
}

static void begin(void *m, const void *event)
{
	struct commit *c = m;

	(void)event;
	unanswer(c);
	c->touched = true;
	for (uint32_t i = 0; i < c->nengines; i++)
		c->engine[i].touched |= !c->engine[i].out;
	put(c, CA_BEGIN, 0);
}

static void load(void *m, const void *event)
{
	(void)event;
	put(m, CA_TELL_OPENED, 0);
}

static void hash_only(void *m, const void *event)
{
	struct commit *c = m;

	(void)event;
	c->same = true;
	put(c, CA_TELL_OPENED, 0);
}

static void ask_receipts(void *m, const void *event)
{
	(void)event;
	unanswer(m);
	put(m, CA_ASK_RECEIPTS, 0);
}

static bool has_in(const struct commit *c, uint32_t lo, uint32_t hi)
{
	while (lo < hi && c->engine[lo].out)
		lo++;
	return lo < hi;
}

static void hold(void *m, const void *event)
{
	struct commit *c = m;

	(void)event;
	for (uint32_t i = 0; i < c->nengines; i++)
		c->engine[i].answered = !c->engine[i].in_place;
	c->lo = c->hi = 0;
	while (c->hi < c->nengines && !c->engine[c->hi].in_place)
		c->hi++;
	put(c, CA_HOLD, 0);
}

/* The next wave that has an engine: cut by id alone, so that what is left out
 * refills none. */
static void reload(void *m, const void *event)
{
	struct commit *c = m;

	(void)event;
	do {
		c->lo = c->hi;
		c->hi = c->groups && c->groups < c->nengines - c->lo
				? c->lo + c->groups
				: c->nengines;
	} while (c->hi < c->nengines && !has_in(c, c->lo, c->hi));
	for (uint32_t i = 0; i < c->nengines; i++)
		c->engine[i].answered = i < c->lo || i >= c->hi;
	put(c, CA_RELOAD, 0);
}

static void decide(void *m, const void *event)
{
	(void)event;
	put(m, CA_DECIDE, 0);
}

static void swap(void *m, const void *event)
{
	struct commit *c = m;

	(void)event;
	c->published = true;
	put(c, CA_SWAP, 0);
}

static void verdict(void *m, const void *event)
{
	(void)event;
	put(m, CA_VERDICT, 0);
}

static void verdict_same(void *m, const void *event)
{
	((struct commit *)m)->published = true;
	verdict(m, event);
}

/* It needs nothing, and counts as one of those that are needed. */
static void there(void *m, const void *event)
{
	struct commit *c = m;
	struct commit_engine *g = of(c, event);

	g->out = g->there = true;
	if (c->min > 1)
		c->min--;
}

static void there_open(void *m, const void *event)
{
	there(m, event);
	open_run(m, event);
}

static void there_same(void *m, const void *event)
{
	struct commit *c = m;

	there(c, event);
	c->same = true;
	verdict_same(c, event);
}

/* Restarted behind the last swap: what was touched is brought home. */
static void there_swap(void *m, const void *event)
{
	there(m, event);
	swap(m, event);
}

/* Who lags was told before. */
static void over(void *m, const void *event)
{
	((struct commit *)m)->same = true;
	verdict_same(m, event);
}

static void refuse(void *m, const void *event)
{
	blame(m, event);
	put(m, CA_TELL_ABORT, 0);
	put(m, CA_VERDICT, 0);
}

static void undo(void *m, const void *event)
{
	blame(m, event);
	put(m, CA_TELL_ABORT, 0);
	put(m, CA_CANCEL, 0);
}

/* The registry cannot be had, or there is no more time: what is not home, the
 * next commit has to see to. */
static void give_up(void *m, const void *event)
{
	struct commit *c = m;

	(void)event;
	for (uint32_t i = 0; i < c->nengines; i++)
		c->engine[i].away |= c->engine[i].touched && !c->engine[i].home;
	put(c, CA_VERDICT, 0);
}

static void leave(void *m, const void *event)
{
	blame(m, event);
	put(m, CA_TELL_ABORT, 0);
	give_up(m, event);
}

static void unknown(void *m, const void *event)
{
	((struct commit *)m)->unknown = true;
	refuse(m, event);
}

static void exclude(void *m, const void *event)
{
	const struct commit_event *e = event;

	of(m, event)->out = true;
	put(m, CA_EXCLUDE, e->engine);
}

static void exclude_open(void *m, const void *event)
{
	exclude(m, event);
	open_run(m, event);
}

static void exclude_load(void *m, const void *event)
{
	exclude(m, event);
	load(m, event);
}

static void exclude_hold(void *m, const void *event)
{
	exclude(m, event);
	hold(m, event);
}

static void exclude_reload(void *m, const void *event)
{
	exclude(m, event);
	reload(m, event);
}

static void exclude_decide(void *m, const void *event)
{
	exclude(m, event);
	decide(m, event);
}

static void home(void *m, const void *event)
{
	of(m, event)->home = true;
}

static void away(void *m, const void *event)
{
	of(m, event)->away = true;
}

static void home_last(void *m, const void *event)
{
	home(m, event);
	verdict(m, event);
}

static void away_last(void *m, const void *event)
{
	away(m, event);
	verdict(m, event);
}

/* ---- the table ---- */

#define LATE "its engine is excluded"
#define DECIDED "decided: only forward"

/* An excluded engine is brought back beside the run, in any state. */
#define HOMING(state)                                \
	{ state, CE_HOME, NULL, home, state, NULL }, \
		{ state, CE_AWAY, NULL, away, state, NULL },

/* clang-format off */
static const struct fsm_edge edges[] = {
	{ CS_PLAN,    CE_PLAN,      NULL, lock, CS_LOCK, NULL },
	{ CS_PLAN,    CE_OVER,      NULL, over, CS_DONE, NULL },
	{ CS_PLAN,    CE_AWAY,      NULL, away, CS_PLAN, NULL },
	{ CS_PLAN,    CE_FAIL,      NULL, refuse, CS_DONE, NULL },

	{ CS_LOCK,    CE_LOCKED,    NULL, recover, CS_RECOVER, NULL },
	{ CS_LOCK,    CE_FAIL,      is_published, give_up, CS_DONE, NULL },
	{ CS_LOCK,    CE_FAIL,      is_untouched, refuse, CS_DONE, NULL },
	{ CS_LOCK,    CE_FAIL,      NULL, leave, CS_DONE, NULL },
	{ CS_LOCK,    CE_LEAVE,     NULL, give_up, CS_DONE, NULL },

	{ CS_RECOVER, CE_RECOVERED, NULL, probe, CS_PROBE, NULL },
	{ CS_RECOVER, CE_AHEAD,     NULL, swap, CS_SWAP, NULL },
	{ CS_RECOVER, CE_OVER,      NULL, over, CS_DONE, NULL },
	{ CS_RECOVER, CE_AWAY,      NULL, away, CS_RECOVER, NULL },
	{ CS_RECOVER, CE_FAIL,      is_published, give_up, CS_DONE, NULL },
	{ CS_RECOVER, CE_FAIL,      is_untouched, refuse, CS_DONE, NULL },
	{ CS_RECOVER, CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	{ CS_RECOVER, CE_LEAVE,     NULL, give_up, CS_DONE, NULL },

	{ CS_PROBE,   CE_PROBED,    is_out, NULL, CS_PROBE, LATE },
	{ CS_PROBE,   CE_PROBED,    is_last, open_run, CS_OPEN, NULL },
	{ CS_PROBE,   CE_PROBED,    NULL, answered, CS_PROBE, NULL },
	{ CS_PROBE,   CE_THERE,     is_out, NULL, CS_PROBE, LATE },
	{ CS_PROBE,   CE_THERE,     is_alone_untouched, there_same, CS_DONE, NULL },
	{ CS_PROBE,   CE_THERE,     is_alone, there_swap, CS_SWAP, NULL },
	{ CS_PROBE,   CE_THERE,     is_last, there_open, CS_OPEN, NULL },
	{ CS_PROBE,   CE_THERE,     NULL, there, CS_PROBE, NULL },
	{ CS_PROBE,   CE_LOST,      is_out, NULL, CS_PROBE, LATE },
	{ CS_PROBE,   CE_LOST,      spare_last, exclude_open, CS_OPEN, NULL },
	{ CS_PROBE,   CE_LOST,      can_spare, exclude, CS_PROBE, NULL },
	{ CS_PROBE,   CE_LOST,      is_untouched, refuse, CS_DONE, NULL },
	{ CS_PROBE,   CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_PROBE,   CE_FAIL,      is_untouched, refuse, CS_DONE, NULL },
	{ CS_PROBE,   CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	HOMING(CS_PROBE)

	{ CS_OPEN,    CE_OPENED,    NULL, begin, CS_BEGIN, NULL },
	{ CS_OPEN,    CE_SAME,      NULL, hash_only, CS_HASH, NULL },
	{ CS_OPEN,    CE_SEEK,      NULL, seek, CS_SEEK, NULL },
	{ CS_OPEN,    CE_LOST,      is_out, NULL, CS_OPEN, LATE },
	{ CS_OPEN,    CE_LOST,      can_spare, exclude, CS_OPEN, NULL },
	{ CS_OPEN,    CE_LOST,      is_untouched, refuse, CS_DONE, NULL },
	{ CS_OPEN,    CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_OPEN,    CE_FAIL,      is_untouched, refuse, CS_DONE, NULL },
	{ CS_OPEN,    CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	HOMING(CS_OPEN)

	{ CS_SEEK,    CE_FOUND,     NULL, open_run, CS_OPEN, NULL },
	{ CS_SEEK,    CE_LOST,      is_out, NULL, CS_SEEK, LATE },
	{ CS_SEEK,    CE_LOST,      can_spare, exclude, CS_SEEK, NULL },
	{ CS_SEEK,    CE_LOST,      NULL, refuse, CS_DONE, NULL },
	{ CS_SEEK,    CE_FAIL,      NULL, refuse, CS_DONE, NULL },

	{ CS_BEGIN,   CE_BEGUN,     is_out, NULL, CS_BEGIN, LATE },
	{ CS_BEGIN,   CE_BEGUN,     is_last, load, CS_LOAD, NULL },
	{ CS_BEGIN,   CE_BEGUN,     NULL, answered, CS_BEGIN, NULL },
	{ CS_BEGIN,   CE_LOST,      is_out, NULL, CS_BEGIN, LATE },
	{ CS_BEGIN,   CE_LOST,      spare_last, exclude_load, CS_LOAD, NULL },
	{ CS_BEGIN,   CE_LOST,      can_spare, exclude, CS_BEGIN, NULL },
	{ CS_BEGIN,   CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_BEGIN,   CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	HOMING(CS_BEGIN)

	{ CS_LOAD,    CE_DRAINED,   NULL, ask_receipts, CS_RECEIPT, NULL },
	{ CS_LOAD,    CE_PROBED,    NULL, NULL, CS_LOAD, "the same boot" },
	{ CS_LOAD,    CE_LOST,      is_out, NULL, CS_LOAD, LATE },
	{ CS_LOAD,    CE_LOST,      can_spare, exclude, CS_LOAD, NULL },
	{ CS_LOAD,    CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_LOAD,    CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	HOMING(CS_LOAD)

	{ CS_HASH,    CE_DRAINED,   is_same, verdict_same, CS_DONE, NULL },
	{ CS_HASH,    CE_AWAY,      NULL, away, CS_HASH, NULL },
	{ CS_HASH,    CE_LOST,      NULL, NULL, CS_HASH, "none is touched" },
	{ CS_HASH,    CE_FAIL,      NULL, refuse, CS_DONE, NULL },

	{ CS_RECEIPT, CE_RECEIPT,   is_out, NULL, CS_RECEIPT, LATE },
	{ CS_RECEIPT, CE_RECEIPT,   last_to_hold, hold, CS_HOLD, NULL },
	{ CS_RECEIPT, CE_RECEIPT,   is_last, decide, CS_DECIDE, NULL },
	{ CS_RECEIPT, CE_RECEIPT,   NULL, answered, CS_RECEIPT, NULL },
	{ CS_RECEIPT, CE_LOST,      is_out, NULL, CS_RECEIPT, LATE },
	{ CS_RECEIPT, CE_LOST,      spare_to_hold, exclude_hold, CS_HOLD, NULL },
	{ CS_RECEIPT, CE_LOST,      spare_last, exclude_decide, CS_DECIDE, NULL },
	{ CS_RECEIPT, CE_LOST,      can_spare, exclude, CS_RECEIPT, NULL },
	{ CS_RECEIPT, CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_RECEIPT, CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	{ CS_RECEIPT, CE_DRAINED,   NULL, NULL, CS_RECEIPT, "said again" },
	{ CS_RECEIPT, CE_PROBED,    NULL, NULL, CS_RECEIPT, "the same boot" },
	HOMING(CS_RECEIPT)

	{ CS_HOLD,    CE_HELD,      is_out, NULL, CS_HOLD, LATE },
	{ CS_HOLD,    CE_HELD,      is_last, reload, CS_RELOAD, NULL },
	{ CS_HOLD,    CE_HELD,      NULL, answered, CS_HOLD, NULL },
	{ CS_HOLD,    CE_LOST,      is_out, NULL, CS_HOLD, LATE },
	{ CS_HOLD,    CE_LOST,      spare_to_hold, exclude_reload, CS_RELOAD, NULL },
	{ CS_HOLD,    CE_LOST,      spare_last, exclude_decide, CS_DECIDE, NULL },
	{ CS_HOLD,    CE_LOST,      can_spare, exclude, CS_HOLD, NULL },
	{ CS_HOLD,    CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_HOLD,    CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	{ CS_HOLD,    CE_DRAINED,   NULL, NULL, CS_HOLD, "said again" },
	HOMING(CS_HOLD)

	{ CS_RELOAD,  CE_LOADED,    is_out, NULL, CS_RELOAD, LATE },
	{ CS_RELOAD,  CE_LOADED,    last_of_wave, reload, CS_RELOAD, NULL },
	{ CS_RELOAD,  CE_LOADED,    is_last, decide, CS_DECIDE, NULL },
	{ CS_RELOAD,  CE_LOADED,    NULL, answered, CS_RELOAD, NULL },
	{ CS_RELOAD,  CE_LOST,      is_out, NULL, CS_RELOAD, LATE },
	{ CS_RELOAD,  CE_LOST,      spare_of_wave, exclude_reload, CS_RELOAD, NULL },
	{ CS_RELOAD,  CE_LOST,      spare_last, exclude_decide, CS_DECIDE, NULL },
	{ CS_RELOAD,  CE_LOST,      can_spare, exclude, CS_RELOAD, NULL },
	{ CS_RELOAD,  CE_LOST,      NULL, undo, CS_ABORT, NULL },
	{ CS_RELOAD,  CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	{ CS_RELOAD,  CE_DRAINED,   NULL, NULL, CS_RELOAD, "said again" },
	HOMING(CS_RELOAD)

	{ CS_DECIDE,  CE_AGREED,    NULL, swap, CS_SWAP, NULL },
	{ CS_DECIDE,  CE_UNKNOWN,   NULL, unknown, CS_DONE, NULL },
	{ CS_DECIDE,  CE_FAIL,      NULL, undo, CS_ABORT, NULL },
	HOMING(CS_DECIDE)

	{ CS_SWAP,    CE_HOME,      is_last_home, home_last, CS_DONE, NULL },
	{ CS_SWAP,    CE_AWAY,      is_last_home, away_last, CS_DONE, NULL },
	HOMING(CS_SWAP)
	{ CS_SWAP,    CE_LOST,      NULL, NULL, CS_SWAP, DECIDED },
	{ CS_SWAP,    CE_FAIL,      NULL, NULL, CS_SWAP, DECIDED },
	{ CS_SWAP,    CE_DRAINED,   NULL, NULL, CS_SWAP, "said again" },
	{ CS_SWAP,    CE_LEAVE,     NULL, give_up, CS_DONE, NULL },

	{ CS_ABORT,   CE_HOME,      is_last_home, home_last, CS_DONE, NULL },
	{ CS_ABORT,   CE_AWAY,      is_last_home, away_last, CS_DONE, NULL },
	HOMING(CS_ABORT)
	{ CS_ABORT,   CE_PROBED,    NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_BEGUN,     NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_DRAINED,   NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_RECEIPT,   NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_HELD,      NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_LOADED,    NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_LOST,      NULL, NULL, CS_ABORT, "aborted" },
	{ CS_ABORT,   CE_FAIL,      NULL, NULL, CS_ABORT, "first one counts" },
	{ CS_ABORT,   CE_LEAVE,     NULL, give_up, CS_DONE, NULL },

	{ CS_DONE,    CE_PROBED,    NULL, NULL, CS_DONE, "over" },
	{ CS_DONE,    CE_DRAINED,   NULL, NULL, CS_DONE, "over" },
	{ CS_DONE,    CE_LOST,      NULL, NULL, CS_DONE, "over" },
	{ CS_DONE,    CE_FAIL,      NULL, NULL, CS_DONE, "over" },
};
/* clang-format on */

static const char *const states[] = {
	[CS_PLAN] = "plan",	  [CS_LOCK] = "lock", [CS_RECOVER] = "recover",
	[CS_PROBE] = "probe",	  [CS_OPEN] = "open", [CS_SEEK] = "seek",
	[CS_BEGIN] = "begin",	  [CS_LOAD] = "load", [CS_HASH] = "hash",
	[CS_RECEIPT] = "receipt", [CS_HOLD] = "hold", [CS_RELOAD] = "reload",
	[CS_DECIDE] = "decide",	  [CS_SWAP] = "swap", [CS_ABORT] = "abort",
	[CS_DONE] = "done",
};
static_assert(COUNT(states) == CS_NSTATES, "name every state");

static const char *const events[] = {
	[CE_PLAN] = "plan",	      [CE_LOCKED] = "locked",
	[CE_RECOVERED] = "recovered", [CE_AHEAD] = "ahead",
	[CE_OVER] = "over",	      [CE_THERE] = "there",
	[CE_SEEK] = "seek",	      [CE_FOUND] = "found",
	[CE_PROBED] = "probed",	      [CE_OPENED] = "opened",
	[CE_SAME] = "same",	      [CE_BEGUN] = "begun",
	[CE_DRAINED] = "drained",     [CE_HELD] = "held",
	[CE_LOADED] = "loaded",	      [CE_RECEIPT] = "receipt",
	[CE_AGREED] = "agreed",	      [CE_UNKNOWN] = "unknown",
	[CE_HOME] = "home",	      [CE_AWAY] = "away",
	[CE_LOST] = "lost",	      [CE_FAIL] = "fail",
	[CE_LEAVE] = "leave",
};
static_assert(COUNT(events) == CE_NEVENTS, "name every event");

const struct fsm_table commit_table = {
	.name = "commit",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = states,
	.events = events,
	.nstates = CS_NSTATES,
	.nevents = CE_NEVENTS,
};

void commit_init(struct commit *c, struct commit_engine *engine, uint32_t n,
		 uint32_t min)
{
	*c = (struct commit){ .engine = engine, .nengines = n };
	c->min = min == 0 || min > n ? n : min;
}

void commit_resume(struct commit *c)
{
	c->touched = true;
	for (uint32_t i = 0; i < c->nengines; i++)
		c->engine[i].touched = true;
}

void commit_resume_decided(struct commit *c)
{
	commit_resume(c);
	c->published = true;
}

int commit_step(struct commit *c, const struct commit_event *e)
{
	int rc;

	c->nacts = 0;
	rc = fsm_step(&commit_table, &c->state, c, (uint8_t)e->type, e);
	return rc < 0 ? rc : 0;
}

uint32_t commit_in(const struct commit *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->nengines; i++)
		n += !c->engine[i].out;
	return n;
}

uint32_t commit_lagging(const struct commit *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->nengines; i++)
		n += (c->engine[i].out && !c->engine[i].there) ||
		     c->engine[i].away;
	return n;
}

static bool any_away(const struct commit *c)
{
	for (uint32_t i = 0; i < c->nengines; i++)
		if (c->engine[i].away)
			return true;
	return false;
}

uint8_t commit_exit(const struct commit *c)
{
	if (c->published)
		return commit_lagging(c) ? 3 : 0;
	if (c->unknown)
		return (uint8_t)err_exit_code(-E_AGAIN);
	if (c->touched && any_away(c))
		return 2;
	if (c->signal)
		return (uint8_t)(128 + c->signal);
	if (c->touched)
		return 1;
	return (uint8_t)err_exit_code(-(int)c->code);
}
