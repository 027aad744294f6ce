#include "pipes/engine.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

/* What the shell knows beside the machine. */
static struct engine e;
static bool asked[EN_NREQ];
static unsigned copies, jobs, makes;

static void perform(const struct en_action *a)
{
	switch (a->what) {
	case EN_DO_REPLY:
	case EN_DO_REFUSE:
	case EN_DO_ATTACH:
	case EN_DO_OFFER:
	case EN_DO_HOLDING:
		BUG_ON(!asked[a->req]);
		asked[a->req] = false;
		break;
	case EN_DO_SEAL:
	case EN_DO_LOAD:
	case EN_DO_CHECK:
		jobs++;
		break;
	case EN_DO_MAKE:
		makes++;
		break;
	default:
		break;
	}
}

/* A job or copy that is not there cannot end. */
static bool can_come(enum en_ev on)
{
	switch (on) {
	case EN_COPIED:
	case EN_COPY_FAILED:
		return copies > 0;
	case EN_SEAL_OK:
	case EN_SEAL_FAILED:
		return jobs > 0;
	case EN_MADE:
	case EN_LINKED:
	case EN_MAKE_FAILED:
		return makes > 0;
	case EN_COPY_BEGUN:
		return e.slot == EN_FILLING && !e.whole &&
		       copies + e.held < e.buckets;
	case EN_GO:
		return false;
	default:
		return true;
	}
}

static void count(enum en_ev on)
{
	if (on == EN_COPY_BEGUN)
		copies++;
	else if (on == EN_COPIED || on == EN_COPY_FAILED)
		copies--;
	else if (on == EN_SEAL_OK || on == EN_SEAL_FAILED)
		jobs--;
	else if (on == EN_MADE || on == EN_LINKED || on == EN_MAKE_FAILED)
		makes--;
}

static bool admitted(enum en_ev on, const struct en_event *ev, unsigned who)
{
	static const struct slice names[] = { { "A", 1 }, { "B", 1 } };
	struct fence_speaker s = {
		.registry = names[who & 1],
		.run = names[who >> 1 & 1],
		.epoch = ev->epoch,
		.instance = who >> 2 & 3,
		.stage = (uint8_t)(who >> 4 & 7),
	};
	char why[FENCE_WHY_MAX];
	struct fence moved = e.fence;

	if (engine_admit(&e, on, &s, who >> 7 & 1, &moved, why) < 0)
		return false;
	BUG_ON(moved.epoch < e.fence.epoch &&
	       strcmp(moved.registry, e.fence.registry) == 0);
	e.fence = moved;
	return true;
}

/* I2: what is served changes only by an accepted swap of a sealed slot, once
 * its hook has ended well. */
static void step(const struct en_event *ev)
{
	uint64_t serving = e.serving, staged = e.version;
	bool sealed = e.slot == EN_SEALED && e.fresh;
	struct en_action a;

	engine_step(&e, ev);
	while (engine_next(&e, &a))
		perform(&a);
	BUG_ON(e.serving != serving &&
	       (ev->on != EN_HOOK_OK || !sealed || e.serving != staged));
	BUG_ON(memcmp(asked, e.pending, sizeof asked) != 0);
	BUG_ON(e.busy != copies + jobs + makes);
	BUG_ON(e.slot != EN_IDLE && e.held > e.buckets);
}

/* Events of eight bytes: requests past the fence, and what the shell tells. */
void fuzz_engine(struct slice in)
{
	char text[16];

	memset(asked, 0, sizeof asked);
	copies = jobs = makes = 0;
	engine_init(&e, &(struct fence){ .epoch = 0 });
	while (in.n > 0) {
		enum en_ev on = (enum en_ev)(fuzz_number(&in, 1) % EN_NEV);
		unsigned who = (unsigned)fuzz_number(&in, 1), flags;
		struct en_event ev = {
			.on = on,
			.epoch = fuzz_number(&in, 1),
			.version = fuzz_number(&in, 1),
			.content = { { (uint8_t)(fuzz_number(&in, 1) & 1) } },
			.buckets = (uint32_t)fuzz_number(&in, 1) & 3,
			.lease_ms = 1000,
			.workers = 1,
			.code = -E_IO,
			.cause = text,
		};

		flags = (unsigned)fuzz_number(&in, 1);
		ev.token = flags & 3;
		ev.whole = flags >> 2 & 1;
		snprintf(text, sizeof text, "%u",
			 (unsigned)fuzz_number(&in, 1));
		if (!can_come(on) || (on < EN_NREQ && !admitted(on, &ev, who)))
			continue;
		if (on < EN_NREQ)
			asked[on] = true;
		count(on);
		step(&ev);
	}
}
