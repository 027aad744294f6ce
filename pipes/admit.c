#include "pipes/admit.h"

#include "common/bits.h"
#include "common/err.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *held_by(const struct admit *a, uint32_t wave)
{
	return a->held + wave * a->row;
}

static void emit(struct admit *a, enum admit_do what, uint32_t bucket)
{
	struct admit_action o = { .what = what,
				  .wave = a->wave,
				  .bucket = bucket };

	waves_get(&a->waves, a->wave, &o.first, &o.count);
	a->out(a->arg, &o);
}

/* ---- facts about waves ---- */

static bool engine_is_done(const struct admit_engine *e)
{
	return e->excluded ? e->severed : e->sealed;
}

static bool wave_is_complete(const struct admit *a, uint32_t wave)
{
	uint32_t first, count;

	waves_get(&a->waves, wave, &first, &count);
	for (uint32_t e = first; e < first + count; e++)
		if (!engine_is_done(&a->engine[e]))
			return false;
	return true;
}

/* Nobody is left in it to receive anything. */
static bool wave_is_void(const struct admit *a, uint32_t wave)
{
	uint32_t first, count;

	waves_get(&a->waves, wave, &first, &count);
	for (uint32_t e = first; e < first + count; e++)
		if (!a->engine[e].excluded)
			return false;
	return true;
}

static uint32_t first_incomplete(const struct admit *a, uint32_t from)
{
	while (from < a->nwaves && wave_is_complete(a, from))
		from++;
	return from;
}

static bool wave_may_load(const struct admit *a, uint32_t wave)
{
	uint32_t first, count;

	waves_get(&a->waves, wave, &first, &count);
	return first < a->waves.staged || a->phase >= 2;
}

/* ---- one pass: buckets lo .. hi-1 to the current wave ---- */

static void skip_held(struct admit *a)
{
	const uint8_t *held = held_by(a, a->wave);

	if (wave_is_void(a, a->wave))
		a->cursor = a->hi;
	while (a->cursor < a->hi && bit_get(held, a->cursor))
		a->cursor++;
}

static void start_pass(struct admit *a, uint32_t wave)
{
	a->wave = wave;
	a->cursor = a->lo;
	a->pending = 0;
	skip_held(a);
}

static bool held_by_all(const struct admit *a, uint32_t b)
{
	for (uint32_t w = 0; w < a->nwaves; w++)
		if (!bit_get(held_by(a, w), b) && !wave_is_void(a, w))
			return false;
	return true;
}

static int take(struct admit *a, uint32_t wave, uint32_t b)
{
	return credit_take(&a->credit, (struct credit_key){ wave, b },
			   a->bucket[b].bytes, a->bucket[b].exclusive);
}

static void give_back(struct admit *a)
{
	struct admit_action o = { .what = ADM_CREDIT_BACK };
	struct credit_key k;

	while (credit_release(&a->credit, &k, &o.bytes) > 0) {
		o.wave = k.wave;
		o.bucket = k.bucket;
		a->out(a->arg, &o);
	}
}

/* A window of reservations, keyed by bucket alone: it is held through all
 * waves and closes at the first bucket that does not fit beside the others. */
static void open_window(struct admit *a)
{
	while (a->hi < a->nbuckets && held_by_all(a, a->hi))
		a->hi++;
	a->lo = a->hi;
	while (a->hi < a->nbuckets && take(a, 0, a->hi) == 0)
		a->hi++;
	start_pass(a, 0);
}

static void close_window(struct admit *a)
{
	credit_finish_all(&a->credit);
	give_back(a);
	open_window(a);
}

/* ---- guards of ADM_EV_GO ---- */

static const struct admit *of(const void *machine)
{
	return machine;
}

static bool is_ready(const void *m, const void *e)
{
	const struct admit *a = of(m);

	(void)e;
	if (!a->opened || a->hash_only)
		return false;
	for (uint32_t i = 0; i < a->waves.engines; i++)
		if (!a->engine[i].heard && !a->engine[i].excluded)
			return false;
	return true;
}

static bool is_hash_only(const void *m, const void *e)
{
	(void)e;
	return of(m)->opened && of(m)->hash_only;
}

static bool all_complete(const void *m, const void *e)
{
	(void)e;
	return is_ready(m, e) && first_incomplete(of(m), 0) == of(m)->nwaves;
}

static bool must_hold(const void *m, const void *e)
{
	(void)e;
	return !wave_may_load(of(m), of(m)->wave);
}

static bool can_grant(const void *m, const void *e)
{
	const struct admit *a = of(m);

	(void)e;
	if (a->cursor >= a->hi)
		return false;
	return a->order == ADM_BY_WINDOW ||
	       credit_has_room(&a->credit, a->bucket[a->cursor].bytes,
			       a->bucket[a->cursor].exclusive);
}

static bool pass_is_over(const void *m, const void *e)
{
	(void)e;
	return of(m)->cursor >= of(m)->hi && of(m)->pending == 0;
}

static bool can_next_pass(const void *m, const void *e)
{
	const struct admit *a = of(m);

	return a->order == ADM_BY_WINDOW && pass_is_over(m, e) &&
	       a->wave + 1 < a->nwaves;
}

static bool can_next_window(const void *m, const void *e)
{
	return of(m)->order == ADM_BY_WINDOW && pass_is_over(m, e) &&
	       of(m)->lo < of(m)->hi;
}

static bool wave_is_sealed(const void *m, const void *e)
{
	(void)e;
	return wave_is_complete(of(m), of(m)->wave);
}

static bool is_last_wave(const void *m, const void *e)
{
	return wave_is_sealed(m, e) &&
	       first_incomplete(of(m), of(m)->wave + 1) == of(m)->nwaves;
}

static bool seals_next(const void *m, const void *e)
{
	return of(m)->sealing && wave_is_sealed(m, e);
}

/* ---- what ADM_EV_GO does ---- */

/* Everything from the plan and what was heard; see admit.h.  Nothing is in
 * flight: what was granted before counts as returned. */
static void rebuild(void *m, const void *e)
{
	struct admit *a = m;
	struct credit *c = &a->credit;
	uint64_t buckets = c->buckets.peak, bytes = c->bytes.peak;

	(void)e;
	credit_finish_all(c);
	give_back(a);
	credit_init(c, c->buckets.limit, c->bytes.limit, c->slot, c->nslots);
	c->buckets.peak = buckets;
	c->bytes.peak = bytes;
	a->sealing = false;
	a->lo = a->hi = 0;
	if (a->order == ADM_BY_WINDOW) {
		open_window(a);
		return;
	}
	a->hi = a->nbuckets;
	start_pass(a, first_incomplete(a, 0));
}

static void grant(void *m, const void *e)
{
	struct admit *a = m;

	(void)e;
	if (a->order == ADM_BY_WAVE)
		take(a, a->wave, a->cursor);
	a->pending++;
	emit(a, ADM_GRANT, a->cursor++);
	skip_held(a);
}

static void next_pass(void *m, const void *e)
{
	struct admit *a = m;

	(void)e;
	start_pass(a, a->wave + 1);
}

static void next_window(void *m, const void *e)
{
	(void)e;
	close_window(m);
}

static void seal(void *m, const void *e)
{
	struct admit *a = m;

	(void)e;
	if (a->order == ADM_BY_WINDOW && !a->sealing) {
		a->sealing = true;
		a->wave = first_incomplete(a, 0);
		if (a->wave == a->nwaves)
			a->wave = a->nwaves - 1;
	}
	if (!wave_is_complete(a, a->wave) && !wave_is_void(a, a->wave))
		emit(a, ADM_SEAL_WAVE, ID_NONE);
}

static void complete(void *m, const void *e)
{
	(void)e;
	emit(m, ADM_WAVE_COMPLETE, ID_NONE);
}

static void next_wave(void *m, const void *e)
{
	struct admit *a = m;

	(void)e;
	emit(a, ADM_WAVE_COMPLETE, ID_NONE);
	start_pass(a, first_incomplete(a, a->wave + 1));
}

static void next_seal(void *m, const void *e)
{
	struct admit *a = m;

	emit(a, ADM_WAVE_COMPLETE, ID_NONE);
	a->wave = first_incomplete(a, a->wave + 1);
	seal(a, e);
}

static void resume(void *m, const void *e)
{
	(void)e;
	skip_held(m);
}

/* ---- what the other events do ---- */

static void relink(void *m, const void *e)
{
	struct admit *a = m;

	(void)e;
	for (uint32_t i = 0; i < a->waves.engines; i++)
		a->engine[i].heard = false;
	memset(a->held, 0xff, a->nwaves * a->row);
}

static void note_opened(void *m, const void *event)
{
	struct admit *a = m;
	const struct admit_event *e = event;

	a->opened = true;
	a->hash_only = e->hash_only;
	if (e->phase > a->phase)
		a->phase = e->phase;
}

/* A bit that is missing from the bitmap counts as not held. */
static void note_holds(void *m, const void *event)
{
	struct admit *a = m;
	const struct admit_event *e = event;
	uint8_t *held = held_by(a, waves_of(&a->waves, e->engine));

	for (size_t i = 0; i < a->row; i++)
		held[i] &= i < e->bitmap.n ? (uint8_t)e->bitmap.p[i] : 0;
	a->engine[e->engine].heard = true;
	a->engine[e->engine].sealed = e->sealed;
}

static void note_sealed(void *m, const void *event)
{
	struct admit *a = m;

	a->engine[((const struct admit_event *)event)->engine].sealed = true;
}

static void note_exclude(void *m, const void *event)
{
	struct admit *a = m;

	a->engine[((const struct admit_event *)event)->engine].excluded = true;
	/* Its wave may have nobody left. */
	skip_held(a);
}

static void note_excluded(void *m, const void *event)
{
	struct admit *a = m;
	uint32_t e = ((const struct admit_event *)event)->engine;

	a->engine[e].excluded = a->engine[e].severed = true;
	skip_held(a);
}

static bool is_open(const void *m, const void *event)
{
	const struct admit *a = m;
	const struct admit_event *e = event;

	if (a->pending == 0 || e->wave != a->wave)
		return false;
	if (a->order == ADM_BY_WAVE)
		return credit_is_open(
			&a->credit, (struct credit_key){ e->wave, e->bucket });
	return e->bucket >= a->lo && e->bucket < a->cursor &&
	       !bit_get(held_by(a, a->wave), e->bucket);
}

static void released(void *m, const void *event)
{
	struct admit *a = m;
	const struct admit_event *e = event;

	bit_set(held_by(a, a->wave), e->bucket);
	a->pending--;
	if (a->order == ADM_BY_WINDOW)
		return;
	credit_finish(&a->credit, (struct credit_key){ e->wave, e->bucket });
	give_back(a);
}

/* clang-format off */
#define ROW(from, on, when, act, to, why)				\
	{ from, on, when, act, to, why }
/* Facts about engines are taken in by every state alike. */
#define FACTS(s)							\
	ROW(s, ADM_EV_OPENED, NULL, note_opened, s, NULL),		\
	ROW(s, ADM_EV_SEALED, NULL, note_sealed, s, NULL),		\
	ROW(s, ADM_EV_EXCLUDE, NULL, note_exclude, s, NULL),		\
	ROW(s, ADM_EV_EXCLUDED, NULL, note_excluded, s, NULL),		\
	ROW(s, ADM_EV_LINK, NULL, relink, ADM_WAIT, NULL),		\
	ROW(s, ADM_EV_ABORT, NULL, NULL, ADM_ABORT, "grant no more")
#define LATE(s)								\
	ROW(s, ADM_EV_RELEASED, NULL, NULL, s,				\
	    "not open: told again; never adds credit")
#define TOLD(s)								\
	ROW(s, ADM_EV_HOLDS, NULL, NULL, s, "nothing was asked")
#define REST(s)								\
	ROW(s, ADM_EV_GO, NULL, NULL, s, "nothing to do")
#define DEAF(on)							\
	ROW(ADM_ABORT, on, NULL, NULL, ADM_ABORT, "aborted")

static const struct fsm_edge edges[] = {
	FACTS(ADM_WAIT),
	ROW(ADM_WAIT, ADM_EV_HOLDS, NULL, note_holds, ADM_WAIT, NULL),
	LATE(ADM_WAIT),
	ROW(ADM_WAIT, ADM_EV_GO, is_hash_only, NULL, ADM_HASH,
	    "a decided number again"),
	ROW(ADM_WAIT, ADM_EV_GO, all_complete, NULL, ADM_DONE,
	    "restarted after the last seal"),
	ROW(ADM_WAIT, ADM_EV_GO, is_ready, rebuild, ADM_LOAD, NULL),
	REST(ADM_WAIT),

	FACTS(ADM_LOAD),
	ROW(ADM_LOAD, ADM_EV_RELEASED, is_open, released, ADM_LOAD, NULL),
	LATE(ADM_LOAD),
	TOLD(ADM_LOAD),
	ROW(ADM_LOAD, ADM_EV_GO, must_hold, NULL, ADM_HOLD,
	    "in-place engines wait for phase 2"),
	ROW(ADM_LOAD, ADM_EV_GO, can_grant, grant, ADM_LOAD, NULL),
	ROW(ADM_LOAD, ADM_EV_GO, can_next_pass, next_pass, ADM_LOAD, NULL),
	ROW(ADM_LOAD, ADM_EV_GO, can_next_window, next_window, ADM_LOAD, NULL),
	ROW(ADM_LOAD, ADM_EV_GO, pass_is_over, seal, ADM_SEAL, NULL),
	REST(ADM_LOAD),

	FACTS(ADM_HOLD),
	LATE(ADM_HOLD),
	TOLD(ADM_HOLD),
	ROW(ADM_HOLD, ADM_EV_GO, must_hold, NULL, ADM_HOLD, "not yet"),
	ROW(ADM_HOLD, ADM_EV_GO, NULL, resume, ADM_LOAD, NULL),

	FACTS(ADM_SEAL),
	LATE(ADM_SEAL),
	TOLD(ADM_SEAL),
	ROW(ADM_SEAL, ADM_EV_GO, is_last_wave, complete, ADM_DONE, NULL),
	ROW(ADM_SEAL, ADM_EV_GO, seals_next, next_seal, ADM_SEAL, NULL),
	ROW(ADM_SEAL, ADM_EV_GO, wave_is_sealed, next_wave, ADM_LOAD, NULL),
	REST(ADM_SEAL),

	FACTS(ADM_DONE),
	LATE(ADM_DONE),
	TOLD(ADM_DONE),
	REST(ADM_DONE),

	FACTS(ADM_HASH),
	LATE(ADM_HASH),
	TOLD(ADM_HASH),
	REST(ADM_HASH),

	DEAF(ADM_EV_LINK), DEAF(ADM_EV_OPENED), DEAF(ADM_EV_HOLDS),
	DEAF(ADM_EV_RELEASED), DEAF(ADM_EV_SEALED), DEAF(ADM_EV_EXCLUDE),
	DEAF(ADM_EV_EXCLUDED), DEAF(ADM_EV_ABORT), DEAF(ADM_EV_GO),
};
/* clang-format on */

static const char *const state_names[] = {
	[ADM_WAIT] = "wait",   [ADM_LOAD] = "load", [ADM_SEAL] = "seal",
	[ADM_HOLD] = "hold",   [ADM_HASH] = "hash", [ADM_DONE] = "done",
	[ADM_ABORT] = "abort",
};
static_assert(COUNT(state_names) == ADM_NSTATE, "name every state");

static const char *const event_names[] = {
	[ADM_EV_LINK] = "link",
	[ADM_EV_OPENED] = "opened",
	[ADM_EV_HOLDS] = "holds",
	[ADM_EV_RELEASED] = "released",
	[ADM_EV_SEALED] = "sealed",
	[ADM_EV_EXCLUDE] = "exclude",
	[ADM_EV_EXCLUDED] = "excluded",
	[ADM_EV_ABORT] = "abort",
	[ADM_EV_GO] = "go",
};
static_assert(COUNT(event_names) == ADM_NEV, "name every event");

const struct fsm_table admit_table = {
	.name = "admit",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = state_names,
	.events = event_names,
	.nstates = ADM_NSTATE,
	.nevents = ADM_NEV,
};

uint32_t admit_oversize(const struct plan_bucket *bucket, uint32_t nbuckets,
			uint64_t max_bytes)
{
	for (uint32_t b = 0; b < nbuckets; b++)
		if (max_bytes && bucket[b].bytes > max_bytes)
			return b;
	return ID_NONE;
}

int admit_init(struct admit *a, const struct admit_limits *lim,
	       const struct plan_bucket *bucket, uint32_t nbuckets,
	       uint32_t staged, uint32_t engines)
{
	uint32_t slots = nbuckets < GRANTS_MAX ? nbuckets : GRANTS_MAX;
	int64_t groups =
		lim->groups > INT64_MAX ? INT64_MAX : (int64_t)lim->groups;
	int rc;

	*a = (struct admit){ .order = lim->order,
			     .bucket = bucket,
			     .nbuckets = nbuckets };
	rc = waves_init(&a->waves, staged, engines, groups);
	if (rc < 0)
		return rc;
	if (nbuckets == 0 ||
	    admit_oversize(bucket, nbuckets, lim->bytes) != ID_NONE)
		return -E_DATA;
	a->nwaves = waves_count(&a->waves);
	a->row = nbuckets / 8 + 1;
	a->engine = xcalloc(engines, sizeof(*a->engine));
	a->held = xcalloc(a->nwaves, a->row);
	credit_init(&a->credit, lim->buckets, lim->bytes,
		    xcalloc(slots, sizeof(struct credit_slot)), slots);
	relink(a, NULL);
	return 0;
}

void admit_release(struct admit *a)
{
	free(a->engine);
	free(a->held);
	free(a->credit.slot);
	*a = (struct admit){ 0 };
}

static bool is_in_plan(const struct admit *a, const struct admit_event *e)
{
	switch (e->on) {
	case ADM_EV_HOLDS:
		return e->engine < a->waves.engines && e->count == a->nbuckets;
	case ADM_EV_SEALED:
	case ADM_EV_EXCLUDE:
	case ADM_EV_EXCLUDED:
		return e->engine < a->waves.engines;
	case ADM_EV_RELEASED:
		return e->wave < a->nwaves && e->bucket < a->nbuckets;
	default:
		return true;
	}
}

int admit_step(struct admit *a, const struct admit_event *e)
{
	const struct fsm_edge *row;
	int rc;

	if (!is_in_plan(a, e))
		return -E_PROTO;
	rc = fsm_step(&admit_table, &a->state, a, e->on, e);
	if (rc < 0)
		return rc;
	/* Each step of the machine's own grants, seals or moves on: it ends
	 * with a row that does nothing and stays. */
	do {
		uint8_t was = a->state;

		row = &edges[fsm_step(&admit_table, &a->state, a, ADM_EV_GO,
				      e)];
		if (!row->act && row->to == was)
			return 0;
	} while (row);
	return 0;
}
