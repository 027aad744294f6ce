#include "pipes/bring.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(call) (1u << (call))

static void step(struct bring_one *o, enum homing_ev ev);

void bring_init(struct bring *b, struct loop *l, uint32_t n, uint32_t instance)
{
	*b = (struct bring){ .loop = l,
			     .n = n,
			     .tokens = (uint64_t)instance << 32 };
	b->one = xcalloc(n + 1, sizeof *b->one);
}

void bring_release(struct bring *b)
{
	for (uint32_t i = 0; b->loop && i < b->n; i++) {
		loop_disarm(b->loop, &b->one[i].retry);
		loop_disarm(b->loop, &b->one[i].deadline);
	}
	free(b->one);
	*b = (struct bring){ 0 };
}

/* A lost reply must leave time for another attempt. */
static int64_t attempt_ms(struct bring_one *o, int64_t whole)
{
	int64_t left = o->due_ms - clock_mono_ms();
	int64_t part = whole / BRING_ATTEMPTS;

	o->cut = left < part;
	return left < part || part < 1 ? (left > 0 ? left : 1) : part;
}

static void ask(struct bring_one *o, enum engine_call call, int64_t ms)
{
	struct engine_ask a = {
		.call = call, .ms = ms, .token = o->token, .cause = o->b->cause
	};

	o->waiting |= BIT(call);
	engine_ask(o->e, &a);
}

/* An in-place engine of which we have not seen a load has to load now. */
static bool has_to_load(const struct bring_one *o)
{
	return o->e->ops->in_place && !o->e->live.loaded;
}

static int64_t swap_ms(struct bring_one *o)
{
	int64_t left = o->due_ms - clock_mono_ms();

	if (has_to_load(o))
		return left > 0 ? left : 1;
	return attempt_ms(o, o->b->engine_ms);
}

static void try_swap(struct bring_one *o)
{
	static const enum engine_call order[] = { EC_PAUSE, EC_SWAP,
						  EC_SET_VERSION, EC_RESUME };
	int64_t ms = swap_ms(o);

	o->token = ++o->b->tokens;
	for (size_t i = 0; i < COUNT(order); i++)
		ask(o, order[i], ms);
}

static void set_deadline(struct bring_one *o, int64_t ms)
{
	o->due_ms = clock_mono_ms() + ms;
	loop_arm(o->b->loop, &o->deadline, ms);
}

/* With its process its load has ended: only a start is waited for. */
static void hurry(struct bring_one *o)
{
	int64_t ms = o->b->engine_ms;

	if (!o->hasty && o->due_ms - clock_mono_ms() > ms)
		set_deadline(o, ms);
	o->hasty = true;
}

/* Why it went says more than that it is not there. */
static void recall(struct bring_one *o)
{
	struct engine *e = o->e;
	char *both;

	if (!o->own || strcmp(o->said, e->cause) == 0)
		return;
	both = xasprintf("%s; then: %s", o->said, e->cause);
	snprintf(e->cause, sizeof e->cause, "%s", both);
	free(both);
}

static void finish(struct bring_one *o, bool home)
{
	if (!home)
		recall(o);
	loop_disarm(o->b->loop, &o->retry);
	loop_disarm(o->b->loop, &o->deadline);
	o->waiting = 0;
	o->b->done(o->b->arg, o->e, home);
}

static void act(struct bring_one *o, enum homing_act a)
{
	struct bring *b = o->b;

	o->rc = 0;
	o->waiting = 0;
	o->cut = false;
	switch (a) {
	case HA_PROBE:
		ask(o, EC_PROBE, attempt_ms(o, b->engine_ms));
		break;
	case HA_RECEIPT:
		/* A restarted engine reads its slot again first; once. */
		if (!o->extended) {
			o->left_ms = o->due_ms - clock_mono_ms();
			set_deadline(o, b->load_ms + b->engine_ms);
		}
		o->extended = true;
		ask(o, EC_RECEIPT, attempt_ms(o, b->load_ms));
		break;
	case HA_SWAP:
		/* The time for the receipt is none for refused swaps. */
		if (o->left_ms > 0)
			set_deadline(o, o->left_ms);
		o->left_ms = 0;
		if (has_to_load(o) && !o->loading)
			set_deadline(o, b->load_ms + b->engine_ms);
		o->loading = true;
		try_swap(o);
		break;
	case HA_CANCEL:
		ask(o, EC_ABORT,
		    engine_is_poisoned(o->e) ? b->load_ms + b->engine_ms
					     : attempt_ms(o, b->engine_ms));
		break;
	case HA_TIMER:
		loop_arm(b->loop, &o->retry, BRING_RETRY_MS);
		break;
	case HA_HOME:
	case HA_AWAY:
		finish(o, a == HA_HOME);
		break;
	default:
		break;
	}
}

static void step(struct bring_one *o, enum homing_ev ev)
{
	if (homing_step(&o->m, ev) == 0)
		act(o, o->m.act);
}

static void on_retry(void *arg)
{
	step(arg, HE_TIMER);
}

static void on_deadline(void *arg)
{
	struct bring_one *o = arg;

	if (o->e->cause[0] == '\0')
		snprintf(o->e->cause, sizeof o->e->cause,
			 "engine %s: no answer in time", o->e->name);
	step(o, HE_DEADLINE);
}

void bring_it(struct bring *b, struct engine *e, enum homing_ev how)
{
	struct bring_one *o = &b->one[e->id];

	BUG_ON(e->id >= b->n);
	if (o->used)
		return;
	*o = (struct bring_one){ .b = b,
				 .e = e,
				 .used = true,
				 .retry = { .fn = on_retry, .arg = o },
				 .deadline = { .fn = on_deadline, .arg = o } };
	e->cause[0] = '\0';
	/* A load that is under way ends first. */
	set_deadline(o,
		     b->engine_ms + (engine_is_poisoned(e) ? b->load_ms : 0));
	step(o, how);
}

static bool bring_has(const struct bring *b, const struct engine *e)
{
	return e->id < b->n && b->one[e->id].used && b->one[e->id].e == e;
}

/* Only what was decided may be swapped in. */
static bool is_right(struct engine *e)
{
	char want[DIGEST_HEX], got[DIGEST_HEX];

	for (uint32_t i = 0; i < e->nparts; i++) {
		const struct engine_part *p = &e->part[i];
		const struct engine_share *s = engine_share(e, p);
		const struct engine_receipt *r = p->receipt;

		if (engine_part_is_there(e, p) ||
		    (r->version == e->goal->version &&
		     digest_eq(&r->received, &s->content)))
			continue;
		snprintf(e->cause, sizeof e->cause,
			 "engine %s: holds version %llu with content %s, "
			 "decided is %s",
			 e->name, (unsigned long long)r->version,
			 digest_hex(&r->received, got),
			 digest_hex(&s->content, want));
		return false;
	}
	return true;
}

static enum homing_ev meaning(struct bring_one *o, enum engine_call call)
{
	o->fenced = o->rc == -E_FENCED;
	if (o->fenced)
		return HE_REFUSED;
	if (o->rc < 0)
		return o->e->absent || (call == EC_ABORT &&
					engine_is_poisoned(o->e))
			       ? HE_GONE
			       : HE_FAILED;
	if (call == EC_PROBE && engine_is_there(o->e))
		return engine_is_paused(o->e) ? HE_HELD : HE_THERE;
	if (call == EC_RECEIPT && !is_right(o->e))
		return HE_REFUSED;
	return HE_OK;
}

/* That there was no time left for an answer tells nothing about the engine,
 * as what it said before does. */
static void note_cause(struct bring_one *o, int rc)
{
	char *cause = o->e->cause;

	if (o->cut && rc == -E_TIMEOUT && o->said[0]) {
		memcpy(cause, o->said, sizeof o->said);
	} else if (o->e->said || !o->own) {
		memcpy(o->said, cause, sizeof o->said);
		o->own = o->e->said;
		o->gone = o->e->absent;
	}
}

/* What it said may be true still; that it is not there is not. */
static void is_up(struct bring_one *o)
{
	o->own = false;
	if (o->gone)
		o->said[0] = o->e->cause[0] = '\0';
	o->gone = false;
}

bool bring_answer(struct bring *b, struct engine *e, enum engine_call call,
		  int rc)
{
	struct bring_one *o;

	if (!bring_has(b, e))
		return false;
	o = &b->one[e->id];
	if (!(o->waiting & BIT(call)))
		return true;
	o->waiting &= ~BIT(call);
	if (rc < 0)
		note_cause(o, rc);
	else if (call == EC_PROBE)
		is_up(o);
	if (rc < 0 && o->rc == 0)
		o->rc = rc;
	if (rc < 0 && e->absent)
		hurry(o);
	if (o->waiting == 0)
		step(o, meaning(o, call));
	return true;
}
