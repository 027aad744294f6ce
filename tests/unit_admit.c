#include "tests/tap.h"

#include "common/err.h"
#include "pipes/admit.h"

#define BUCKETS 6

static struct admit a;
static struct buf trace;
static struct plan_bucket bucket[BUCKETS];
static uint32_t granted[64], ngranted; /* wave * 16 + bucket, open ones */
static uint64_t peak_engines;

static void record(void *arg, const struct admit_action *o)
{
	(void)arg;
	switch (o->what) {
	case ADM_GRANT:
		buf_addf(&trace, " g%u.%u", o->wave, o->bucket);
		granted[ngranted++] = o->wave * 16 + o->bucket;
		if (o->count > peak_engines)
			peak_engines = o->count;
		break;
	case ADM_SEAL_WAVE:
		buf_addf(&trace, " seal%u", o->wave);
		break;
	case ADM_CREDIT_BACK:
		buf_addf(&trace, " r%u", o->bucket);
		break;
	case ADM_WAVE_COMPLETE:
		buf_addf(&trace, " done%u", o->wave);
		break;
	case ADM_NDO:
		break;
	}
}

/* What happened since the last look. */
static const char *seen(void)
{
	static struct buf last;

	buf_clear(&last);
	buf_add(&last, trace.p, trace.n);
	buf_clear(&trace);
	return buf_cstr(&last);
}

static int step(struct admit_event e)
{
	return admit_step(&a, &e);
}

#define EV(name, ...) \
	step((struct admit_event){ __VA_ARGS__, .on = ADM_EV_##name })

static int holds(uint32_t engine, uint8_t bits, bool sealed)
{
	return EV(HOLDS, .engine = engine, .sealed = sealed, .count = BUCKETS,
		  .bitmap = { (const char *)&bits, 1 });
}

static int make(struct admit_limits lim, uint32_t staged, uint32_t engines)
{
	admit_release(&a);
	ngranted = 0;
	peak_engines = 0;
	for (uint32_t b = 0; b < BUCKETS; b++)
		bucket[b] = (struct plan_bucket){ .bytes = 1536 };
	buf_clear(&trace);
	int rc = admit_init(&a, &lim, bucket, BUCKETS, staged, engines);

	a.out = record;
	return rc;
}

static void start(struct admit_limits lim, uint32_t engines)
{
	make(lim, engines, engines);
	EV(LINK, .engine = 0);
	EV(OPENED, .phase = 1);
	for (uint32_t e = 0; e < engines; e++)
		holds(e, 0, false);
}

static void release(uint32_t wave, uint32_t b)
{
	EV(RELEASED, .wave = wave, .bucket = b);
}

static void test_waits(void)
{
	make((struct admit_limits){ .buckets = 2 }, 2, 2);
	EV(LINK, .engine = 0);
	eq_str(seen(), "", "nothing is granted before opened");
	holds(0, 0, false);
	holds(1, 0, false);
	eq_str(seen(), "", "nor with holds alone");
	EV(OPENED, .phase = 1);
	eq_str(seen(), " g0.0 g0.1", "opened and holds: the first window");
	EV(ABORT, .engine = 0);
	release(0, 0);
	eq_str(seen(), "", "nothing after abort");
	eq_u64(a.state, ADM_ABORT, "and for good");
	make((struct admit_limits){ .buckets = 2 }, 2, 2);
	EV(OPENED, .phase = 1);
	holds(0, 0, false);
	EV(EXCLUDE, .engine = 1);
	eq_str(seen(), " g0.0 g0.1", "an excluded engine is not waited for");
}

static void test_wave_order(void)
{
	start((struct admit_limits){ .groups = 1, .buckets = 2, .bytes = 3072 },
	      2);
	eq_str(seen(), " g0.0 g0.1", "wave 0 starts");
	release(0, 1);
	eq_str(seen(), "", "FIFO: the second keeps its credit");
	release(0, 0);
	eq_str(seen(), " r0 r1 g0.2 g0.3", "then both return in order");
	release(0, 0);
	release(1, 2);
	eq_str(seen(), "", "BK-07 told again, or of another wave: no credit");
	for (uint32_t b = 2; b < 5; b++)
		release(0, b);
	eq_str(seen(), " r2 g0.4 r3 g0.5 r4", "the window moves on");
	EV(SEALED, .engine = 1);
	eq_str(seen(), "", "another engine's seal changes nothing");
	release(0, 5);
	eq_str(seen(), " r5 seal0", "all held: seal");
	EV(SEALED, .engine = 0);
	eq_str(seen(), " done0", "both sealed: complete");
	eq_u64(a.state, ADM_DONE, "wave 1 was sealed already");
	eq_u64(a.credit.buckets.peak, 2, "BK-07 peak of exactly 2 buckets");
	eq_u64(a.credit.bytes.peak, 3072, "BK-07 and 3072 bytes");
	ok(a.credit.used == 0, "nothing is reserved at the end");
}

static void test_next_wave_waits(void)
{
	start((struct admit_limits){ .groups = 1, .buckets = 6 }, 2);
	for (uint32_t b = 0; b < BUCKETS; b++)
		release(0, b);
	seen();
	eq_u64(a.state, ADM_SEAL, "FL-09 wave 0 is not sealed");
	EV(SEALED, .engine = 0);
	eq_str(seen(), " done0 g1.0 g1.1 g1.2 g1.3 g1.4 g1.5",
	       "FL-09 wave 1 starts when wave 0 is complete");
	eq_u64(peak_engines, 1, "FL-08 wave 1: strictly one engine at a time");
}

static void test_window_order(void)
{
	start((struct admit_limits){ .groups = 1,
				     .buckets = 4,
				     .order = ADM_BY_WINDOW },
	      2);
	eq_str(seen(), " g0.0 g0.1 g0.2 g0.3", "a window of 4 to wave 0");
	for (uint32_t b = 0; b < 4; b++)
		release(0, b);
	eq_str(seen(), " g1.0 g1.1 g1.2 g1.3", "it keeps its credit");
	eq_u64(a.credit.buckets.reserved, 4, "all through the waves");
	release(0, 3);
	for (uint32_t b = 4; b-- > 0;)
		release(1, b);
	eq_str(seen(), " r0 r1 r2 r3 g0.4 g0.5", "then the last window");
	release(0, 4), release(0, 5), release(1, 4), release(1, 5);
	eq_str(seen(), " g1.4 g1.5 r4 r5 seal0", "one more pass seals");
	EV(SEALED, .engine = 0);
	eq_str(seen(), " done0 seal1", "wave after wave");
	EV(SEALED, .engine = 1);
	eq_str(seen(), " done1", "to the end");
	eq_u64(a.state, ADM_DONE, "done");
}

static void test_window_exclusive(void)
{
	make((struct admit_limits){ .buckets = 4, .order = ADM_BY_WINDOW }, 1,
	     1);
	bucket[2].exclusive = true;
	EV(OPENED, .phase = 1);
	holds(0, 0, false);
	eq_str(seen(), " g0.0 g0.1", "a window closes before an exclusive");
	release(0, 0), release(0, 1);
	eq_str(seen(), " r0 r1 g0.2", "which is a window of its own");
	release(0, 2);
	eq_str(seen(), " r2 g0.3 g0.4 g0.5", "and then the rest");
}

static void test_exclusive_in_wave(void)
{
	make((struct admit_limits){ .buckets = 4 }, 1, 1);
	bucket[1].exclusive = true;
	EV(OPENED, .phase = 1);
	holds(0, 0, false);
	eq_str(seen(), " g0.0", "an exclusive bucket waits");
	release(0, 0);
	eq_str(seen(), " r0 g0.1", "goes alone");
	release(0, 1);
	eq_str(seen(), " r1 g0.2 g0.3 g0.4 g0.5", "and lets go");
}

static void test_kinds(void)
{
	make((struct admit_limits){ 0 }, 1, 2);
	EV(OPENED, .phase = 1);
	holds(0, 0, true);
	holds(1, 0, false);
	eq_str(seen(), "", "in-place engines wait");
	eq_u64(a.state, ADM_HOLD, "for phase 2");
	EV(OPENED, .phase = 2);
	eq_str(seen(), " g1.0", "both limits zero: one bucket, blocking");
	release(1, 0);
	eq_str(seen(), " r0 g1.1", "then the next");
}

static void test_exclusion(void)
{
	start((struct admit_limits){ .groups = 1, .buckets = 2 }, 3);
	seen();
	EV(EXCLUDE, .engine = 0);
	eq_str(seen(), "", "excluded: its grants are still out");
	release(0, 0), release(0, 1);
	eq_str(seen(), " r0 r1", "no more are given to it, nor a seal");
	EV(EXCLUDED, .engine = 0);
	eq_str(seen(), " done0 g1.0 g1.1", "severed: the wave is complete");
	EV(EXCLUDED, .engine = 2);
	for (uint32_t b = 0; b < BUCKETS; b++)
		release(1, b);
	seen();
	EV(SEALED, .engine = 1);
	eq_str(seen(), " done1", "a wave of excluded engines is skipped");
	eq_u64(a.state, ADM_DONE, "done");
}

static void test_restart(void)
{
	start((struct admit_limits){ .groups = 1, .buckets = 2 }, 2);
	release(0, 0);
	seen();
	EV(LINK, .engine = 0);
	release(0, 1);
	eq_str(seen(), "", "a new link: nothing until all holds are in");
	holds(0, 0x03, false);
	holds(1, 0, false);
	eq_str(seen(), " r1 r2 g0.2 g0.3", "goes on from what is held");
	eq_u64(a.credit.buckets.reserved, 2, "with the credit it should have");
	EV(LINK, .engine = 0);
	holds(0, 0x3f, false);
	holds(1, 0, false);
	eq_str(seen(), " r2 r3 seal0", "all held and not sealed: seal again");
	EV(LINK, .engine = 0);
	holds(0, 0x3f, true);
	holds(1, 0x15, false);
	eq_str(seen(), " g1.1 g1.3", "the current wave is the first unsealed");
	EV(LINK, .engine = 0);
	holds(0, 0x3f, true);
	holds(1, 0x3f, true);
	eq_u64(a.state, ADM_DONE, "all sealed: nothing is left");
}

static void test_window_restart(void)
{
	start((struct admit_limits){ .groups = 1,
				     .buckets = 3,
				     .order = ADM_BY_WINDOW },
	      2);
	seen();
	EV(LINK, .engine = 0);
	holds(0, 0x0f, false);
	holds(1, 0x03, false);
	eq_str(seen(), " r0 r1 r2 g0.4", "what all waves hold is in no window");
	release(0, 4);
	eq_str(seen(), " g1.2 g1.3 g1.4", "each wave gets what it lacks");
	release(1, 2), release(1, 3), release(1, 4);
	eq_str(seen(), " r2 r3 r4 g0.5", "and the next window opens");
}

static void test_refusals(void)
{
	eq_i64(make((struct admit_limits){ .bytes = 1535 }, 1, 1), -E_DATA,
	       "BK-09 oversize is refused with the plan in hand");
	eq_u64(admit_oversize(bucket, BUCKETS, 1535), 0, "BK-09 naming it");
	eq_u64(admit_oversize(bucket, BUCKETS, 1536), ID_NONE, "at the limit");
	eq_i64(make((struct admit_limits){ 0 }, 0, 0), -E_DATA,
	       "FL-06 no engines");
	start((struct admit_limits){ 0 }, 1);
	eq_i64(EV(SEALED, .engine = 9), -E_PROTO, "an engine that is not");
	eq_i64(EV(RELEASED, .bucket = 99), -E_PROTO, "a bucket that is not");
	make((struct admit_limits){ 0 }, 1, 1);
	EV(OPENED, .phase = 1, .hash_only = true);
	holds(0, 0, false);
	eq_str(seen(), "", "hash only: no grant");
	eq_u64(a.state, ADM_HASH, "hash only");
}

/* Any fleet, any bound, buckets released in a scrambled order. */
static void test_contract(uint32_t engines, uint32_t groups, bool window)
{
	bool sound = true;
	uint32_t turns = 0;
	char name[80];

	start((struct admit_limits){ .groups = groups,
				     .buckets = 2,
				     .bytes = 3072,
				     .order = window ? ADM_BY_WINDOW
						     : ADM_BY_WAVE },
	      engines);
	while (a.state != ADM_DONE && turns++ < 1000) {
		uint32_t first, count;

		sound &= a.credit.buckets.reserved <= 2 &&
			 a.credit.bytes.reserved <= 3072 && ngranted <= 2;
		if (ngranted) {
			uint32_t g = granted[ngranted - 1];

			ngranted--;
			release(g / 16, g % 16);
			continue;
		}
		waves_get(&a.waves, a.wave, &first, &count);
		for (uint32_t e = first; e < first + count; e++)
			EV(SEALED, .engine = e);
	}
	snprintf(name, sizeof(name), "FL-08 %u engines at %u, order %s",
		 engines, groups, window ? "window" : "wave");
	ok(sound && a.state == ADM_DONE && a.credit.used == 0 &&
		   (groups == 0 || peak_engines <= groups),
	   "%s", name);
	eq_u64(a.credit.bytes.peak, 3072, "peak of exactly 3072 bytes");
}

int main(void)
{
	static const uint32_t fleets[] = { 1, 2, 4, 5, 7 };

	test_waits();
	test_wave_order();
	test_next_wave_waits();
	test_window_order();
	test_window_exclusive();
	test_exclusive_in_wave();
	test_kinds();
	test_exclusion();
	test_restart();
	test_window_restart();
	test_refusals();
	for (size_t i = 0; i < COUNT(fleets); i++)
		for (uint32_t g = 0; g <= 8; g += g < 2 ? 1 : 3) {
			test_contract(fleets[i], g, false);
			test_contract(fleets[i], g, true);
		}
	admit_release(&a);
	buf_release(&trace);
	return tap_done();
}
