#include "pipes/engine_part.h"
#include "common/log.h"

#include "common/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

typedef unsigned long long ull;

const char *const engine_event_names[] = {
	[EN_BEGIN] = "begin",
	[EN_ATTACH] = "attach",
	[EN_OFFER] = "offer",
	[EN_HOLDING] = "holding",
	[EN_FINISH] = "finish",
	[EN_LOAD] = "load",
	[EN_RECEIPT] = "ask_receipt",
	[EN_PAUSE] = "pause",
	[EN_SWAP] = "swap",
	[EN_RESUME] = "resume",
	[EN_CANCEL] = "cancel",
	[EN_MADE] = "made",
	[EN_MAKE_FAILED] = "make-failed",
	[EN_LINKED] = "linked",
	[EN_COPY_BEGUN] = "copy-begun",
	[EN_COPIED] = "copied",
	[EN_COPY_FAILED] = "copy-failed",
	[EN_SEAL_OK] = "seal-ok",
	[EN_SEAL_FAILED] = "seal-failed",
	[EN_PUBLISHED] = "published",
	[EN_PUBLISH_FAILED] = "publish-failed",
	[EN_HOOK_OK] = "hook-ok",
	[EN_HOOK_FAILED] = "hook-failed",
	[EN_LEASE_END] = "lease-end",
	[EN_GO] = "go",
};
static_assert(COUNT(engine_event_names) == EN_NEV, "name every event");

const char *const engine_slot_names[] = {
	[EN_IDLE] = "idle",	  [EN_MAKING] = "making",
	[EN_FILLING] = "filling", [EN_SEALING] = "sealing",
	[EN_SEALED] = "sealed",	  [EN_CHECKING] = "checking",
	[EN_BROKEN] = "broken",	  [EN_DROPPING] = "dropping",
};
static_assert(COUNT(engine_slot_names) == EN_NSLOT, "name every state");

const char *const engine_gate_names[] = {
	[EN_OPEN] = "open",	    [EN_PAUSING] = "pausing",
	[EN_PAUSED] = "paused",	    [EN_SWAPPING] = "swapping",
	[EN_RESUMING] = "resuming",
};
static_assert(COUNT(engine_gate_names) == EN_NGATE, "name every state");

static const char *const do_name[] = {
	[EN_DO_REPLY] = "reply",
	[EN_DO_REFUSE] = "refuse",
	[EN_DO_ATTACH] = "attach",
	[EN_DO_OFFER] = "offer",
	[EN_DO_HOLDING] = "holding",
	[EN_DO_MAKE] = "make",
	[EN_DO_SEAL] = "seal",
	[EN_DO_LOAD] = "load",
	[EN_DO_CHECK] = "check",
	[EN_DO_STOP] = "stop",
	[EN_DO_DROP] = "drop",
	[EN_DO_HOOK_PAUSE] = "hook-pause",
	[EN_DO_HOOK_SWAP] = "hook-swap",
	[EN_DO_HOOK_RESUME] = "hook-resume",
	[EN_DO_PUBLISH] = "publish",
	[EN_DO_UNPUBLISH] = "unpublish",
	[EN_DO_LEASE] = "lease",
	[EN_DO_LEASE_OFF] = "lease-off",
	[EN_DO_PAUSED] = "pause-applies",
	[EN_DO_SERVING] = "pause-ends",
};
static_assert(COUNT(do_name) == EN_NDO, "name every action");

/* ---- what is handed out ---- */

struct en_action *engine_push(struct engine *e, enum en_do what)
{
	struct en_action *a;

	BUG_ON(e->queued == EN_ACTIONS_MAX);
	a = &e->queue[(e->head + e->queued++) % EN_ACTIONS_MAX];
	*a = (struct en_action){ .what = what };
	return a;
}

/* Ends a pending request; one that is not pending got its end already. */
struct en_action *engine_end(struct engine *e, enum en_ev req, enum en_do what)
{
	struct en_action *a;

	if (!e->pending[req])
		return NULL;
	e->pending[req] = false;
	a = engine_push(e, what);
	a->req = req;
	return a;
}

void engine_reply(struct engine *e, enum en_ev req)
{
	engine_end(e, req, EN_DO_REPLY);
}

void engine_refuse(struct engine *e, enum en_ev req, int code, const char *fmt,
		   ...)
{
	struct en_action *a = engine_end(e, req, EN_DO_REFUSE);
	va_list ap;

	if (!a)
		return;
	a->code = code;
	va_start(ap, fmt);
	vsnprintf(a->cause, sizeof a->cause, fmt, ap);
	va_end(ap);
}

void engine_fail(struct engine *e, enum en_ev req, const struct en_event *ev)
{
	engine_refuse(e, req, ev->code, "%s", ev->cause ? ev->cause : "");
}

void engine_refuse_swap(struct engine *e, const struct en_event *ev)
{
	if (e->slot != EN_SEALED || ev->version != e->version)
		engine_refuse(
			e, EN_SWAP, -E_PROTO,
			"swap: version %llu is not sealed here (%llu is %s)",
			(ull)ev->version, (ull)e->version,
			engine_slot_names[e->slot]);
	else if (!e->fresh)
		engine_refuse(
			e, EN_SWAP, -E_AGAIN,
			"swap: version %llu was sealed before a restart: ask "
			"for a receipt first",
			(ull)ev->version);
	else if (!digest_eq(&ev->content, &e->content))
		engine_refuse(e, EN_SWAP, -E_DATA,
			      "swap: version %llu has another content here",
			      (ull)ev->version);
	else
		engine_refuse(e, EN_SWAP, -E_AGAIN,
			      "swap: not paused with this token; pause again");
}

bool engine_is_of_slot(const struct engine *e, const struct en_event *ev)
{
	bool versioned = ev->on == EN_OFFER || ev->on == EN_FINISH ||
			 ev->on == EN_LOAD || ev->on == EN_RECEIPT;

	return ev->epoch == e->epoch &&
	       (!versioned || ev->version == e->version);
}

static void refuse_begin(struct engine *e, const struct en_event *ev)
{
	if (ev->version <= e->serving)
		engine_refuse(
			e, EN_BEGIN, -E_FENCED,
			"version %llu is not above version %llu, which is "
			"served",
			(ull)ev->version, (ull)e->serving);
	else if (e->gate == EN_SWAPPING)
		engine_refuse(e, EN_BEGIN, -E_AGAIN, "a swap is under way");
	else
		engine_refuse(
			e, EN_BEGIN, -E_PROTO,
			"this run has begun another version %llu here, which "
			"is %s",
			(ull)e->version, engine_slot_names[e->slot]);
}

static void refuse_slot(struct engine *e, const struct en_event *ev)
{
	if (e->slot == EN_BROKEN && ev->epoch == e->epoch)
		engine_refuse(e, ev->on, e->broken_code, "%s", e->broken);
	else if (e->slot == EN_IDLE || ev->epoch != e->epoch)
		engine_refuse(e, ev->on, -E_FENCED,
			      "%s: epoch %llu has begun nothing",
			      engine_event_names[ev->on], (ull)ev->epoch);
	else if (!engine_is_of_slot(e, ev))
		engine_refuse(e, ev->on, -E_FENCED,
			      "%s of version %llu: %llu is %s",
			      engine_event_names[ev->on], (ull)ev->version,
			      (ull)e->version, engine_slot_names[e->slot]);
	else if (ev->on == EN_FINISH && !e->whole)
		engine_refuse(e, ev->on, -E_PROTO,
			      "finish: %u of %u buckets are held", e->held,
			      e->buckets);
	else
		engine_refuse(e, ev->on, -E_PROTO, "%s: version %llu is %s",
			      engine_event_names[ev->on], (ull)e->version,
			      engine_slot_names[e->slot]);
}

void engine_refuse_unknown(struct engine *e, const struct en_event *ev)
{
	if (ev->on == EN_BEGIN)
		refuse_begin(e, ev);
	else if (ev->on <= EN_RECEIPT)
		refuse_slot(e, ev);
	else if (ev->on == EN_SWAP)
		engine_refuse_swap(e, ev);
	else if (ev->on == EN_RESUME)
		engine_refuse(e, ev->on, -E_FENCED,
			      "resume: another token paused");
	else
		engine_refuse(e, ev->on, -E_AGAIN, "%s while %s",
			      engine_event_names[ev->on],
			      engine_gate_names[e->gate]);
}

bool engine_next(struct engine *e, struct en_action *a)
{
	if (e->queued == 0)
		return false;
	*a = e->queue[e->head];
	e->head = (e->head + 1) % EN_ACTIONS_MAX;
	e->queued--;
	return true;
}

/* ---- the fence, and what the store had ---- */

static enum fence_use use_of(enum en_ev req, bool adopt)
{
	switch (req) {
	case EN_BEGIN:
		return adopt ? FENCE_ADOPT : FENCE_BEGIN;
	case EN_CANCEL:
		return FENCE_CANCEL;
	case EN_PAUSE:
	case EN_SWAP:
	case EN_RESUME:
		return FENCE_SERVE;
	default:
		return FENCE_WORK;
	}
}

int engine_admit(const struct engine *e, enum en_ev req,
		 const struct fence_speaker *who, bool adopt,
		 struct fence *moved, char *why)
{
	enum fence_use use = use_of(req, adopt);
	int rc = fence_check(&e->fence, who, use, why);

	if (rc <= 0)
		return rc;
	*moved = e->fence;
	fence_move(moved, who, use);
	return 1;
}

void engine_init(struct engine *e, const struct fence *f)
{
	*e = (struct engine){ .fence = *f };
}

void engine_set_serving(struct engine *e, const struct en_version *v)
{
	e->serving = v->version;
	e->serving_epoch = v->epoch;
	e->serving_structure = v->structure;
	e->serving_content = v->content;
}

void engine_set_sealed(struct engine *e, const struct en_version *v)
{
	e->slot = EN_SEALED;
	e->version = v->version;
	e->epoch = v->epoch;
	e->structure = v->structure;
	e->content = v->content;
}

void engine_set_paused(struct engine *e, uint64_t lease_ms)
{
	e->gate = EN_PAUSED;
	e->lease_ms = lease_ms;
}

const char *engine_event_name(enum en_ev ev)
{
	return engine_event_names[ev];
}

const char *engine_do_name(enum en_do what)
{
	return do_name[what];
}
