#include "pipes/engine_part.h"
#include "common/err.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

/* ---- guards ---- */

#define GUARD(name)                                               \
	static bool name(const void *machine, const void *event); \
	static bool name##_(const struct engine *e,               \
			    const struct en_event *ev);           \
	static bool name(const void *machine, const void *event)  \
	{                                                         \
		return name##_(machine, event);                   \
	}                                                         \
	static bool name##_(const struct engine *e, const struct en_event *ev)
#define ACT(name)                                                         \
	static void name##_(struct engine *e, const struct en_event *ev); \
	static void name(void *machine, const void *event)                \
	{                                                                 \
		name##_(machine, event);                                  \
	}                                                                 \
	static void name##_(struct engine *e, const struct en_event *ev)

GUARD(is_new)
{
	return ev->version > e->serving && e->gate != EN_SWAPPING;
}

/* The same begin again: its reply was lost. */
GUARD(is_same)
{
	return ev->epoch == e->epoch && ev->version == e->version &&
	       ev->bytes == e->bytes && ev->buckets == e->buckets &&
	       ev->worker == e->worker && ev->workers == e->workers &&
	       ev->whole == e->whole &&
	       digest_eq(&ev->structure, &e->structure);
}

/* What an older run left is dropped; nothing of this run's own is. */
GUARD(is_newer)
{
	return ev->epoch != e->epoch && is_new(e, ev);
}

GUARD(is_slots)
{
	return engine_is_of_slot(e, ev);
}

/* A version comes in one way or the other. */
GUARD(is_offered)
{
	return engine_is_of_slot(e, ev) && !e->whole;
}

GUARD(is_whole)
{
	return engine_is_of_slot(e, ev) && e->whole;
}

GUARD(is_full)
{
	return is_offered_(e, ev) && e->held == e->buckets && e->busy == 0;
}

GUARD(is_fresh)
{
	return engine_is_of_slot(e, ev) && e->fresh;
}

GUARD(is_receipt_of_served)
{
	return e->serving && ev->version == e->serving &&
	       ev->epoch == e->serving_epoch;
}

GUARD(is_served)
{
	return e->serving && ev->version == e->serving &&
	       digest_eq(&ev->content, &e->serving_content);
}

GUARD(may_swap)
{
	return e->slot == EN_SEALED && e->fresh && ev->version == e->version &&
	       ev->token == e->token && digest_eq(&ev->content, &e->content);
}

GUARD(token_fits)
{
	return ev->token == 0 || ev->token == e->token;
}

GUARD(is_at_rest)
{
	(void)ev;
	return e->busy == 0;
}

GUARD(wants_begin)
{
	(void)ev;
	return e->pending[EN_BEGIN];
}

/* Is what the slot holds of the run that the pending cancel ends?  A newer
 * run may have begun since. */
static bool is_cancelled(const struct engine *e)
{
	return e->slot != EN_IDLE && e->epoch <= e->cancel_epoch;
}

GUARD(wants_drop)
{
	(void)ev;
	return e->pending[EN_CANCEL] && is_cancelled(e) &&
	       e->gate != EN_SWAPPING;
}

GUARD(is_switching)
{
	(void)ev;
	return e->gate == EN_SWAPPING;
}

GUARD(wants_pause)
{
	(void)ev;
	return e->pending[EN_PAUSE];
}

/* A swap that came while on-pause ran. */
GUARD(wants_swap)
{
	(void)ev;
	return e->pending[EN_SWAP];
}

GUARD(wants_served_swap)
{
	(void)ev;
	return e->pending[EN_SWAP] && is_served(e, &e->swap);
}

GUARD(wants_good_swap)
{
	(void)ev;
	return e->pending[EN_SWAP] && may_swap(e, &e->swap);
}

GUARD(wants_resume)
{
	(void)ev;
	return e->pending[EN_RESUME] || e->pending[EN_CANCEL] || e->lapsed;
}

/* ---- the slot's acts ---- */

static void forget_slot(struct engine *e)
{
	e->version = e->epoch = 0;
	e->held = e->buckets = e->busy = 0;
	e->fresh = false;
}

ACT(make)
{
	const struct en_event *b = &e->begin;

	(void)ev;
	forget_slot(e);
	e->version = b->version;
	e->epoch = b->epoch;
	e->structure = b->structure;
	e->bytes = b->bytes;
	e->buckets = b->buckets;
	e->worker = b->worker;
	e->workers = b->workers;
	e->whole = b->whole;
	e->busy = 1;
	engine_push(e, EN_DO_MAKE);
}

ACT(made)
{
	(void)ev;
	e->busy--;
	engine_reply(e, EN_BEGIN);
}

ACT(linked)
{
	made(e, ev);
	e->held = e->buckets;
	e->fresh = true;
	e->content = ev->content;
}

ACT(make_failed)
{
	forget_slot(e);
	engine_fail(e, EN_BEGIN, ev);
}

ACT(say_again)
{
	engine_reply(e, ev->on);
}

ACT(attach)
{
	(void)ev;
	engine_end(e, EN_ATTACH, EN_DO_ATTACH);
}

ACT(offer)
{
	(void)ev;
	engine_end(e, EN_OFFER, EN_DO_OFFER);
}

ACT(holding)
{
	(void)ev;
	engine_end(e, EN_HOLDING, EN_DO_HOLDING);
}

ACT(copy_begun)
{
	(void)ev;
	e->busy++;
}

ACT(copied)
{
	(void)ev;
	e->busy--;
	e->held++;
}

ACT(job_ended)
{
	(void)ev;
	e->busy--;
}

ACT(seal)
{
	(void)ev;
	e->busy++;
	engine_push(e, EN_DO_SEAL);
}

ACT(load)
{
	(void)ev;
	e->busy++;
	engine_push(e, EN_DO_LOAD);
}

ACT(check)
{
	(void)ev;
	e->busy++;
	engine_push(e, EN_DO_CHECK);
}

ACT(sealed)
{
	e->busy--;
	e->fresh = true;
	e->content = ev->content;
	engine_reply(e, EN_FINISH);
	engine_reply(e, EN_LOAD);
	engine_reply(e, EN_RECEIPT);
}

ACT(seal_failed)
{
	e->busy--;
	e->broken_code = ev->code;
	snprintf(e->broken, sizeof e->broken, "%s", ev->cause);
	engine_fail(e, EN_FINISH, ev);
	engine_fail(e, EN_LOAD, ev);
	engine_fail(e, EN_RECEIPT, ev);
}

static void abandon(struct engine *e)
{
	for (int r = EN_ATTACH; r <= EN_RECEIPT; r++)
		engine_refuse(e, (enum en_ev)r, -E_FENCED,
			      "the run was cancelled");
}

ACT(stop)
{
	abandon(e);
	if (ev->on == EN_CANCEL)
		engine_refuse(e, EN_BEGIN, -E_FENCED, "the run was cancelled");
	engine_push(e, EN_DO_STOP);
}

ACT(drop)
{
	(void)ev;
	abandon(e);
	engine_push(e, EN_DO_DROP);
	forget_slot(e);
}

ACT(drop_and_make)
{
	drop(e, ev);
	make(e, ev);
}

ACT(forget_begin)
{
	(void)ev;
	engine_refuse(e, EN_BEGIN, -E_FENCED, "the run was cancelled");
}

/* clang-format off */
#define ROW(from, on, when, act, to, why) \
	{ (from), (on), (when), (act), (to), (why) }
/* An older run's slot gives way to a newer one's. */
#define GIVES_WAY(s) \
	ROW(s, EN_BEGIN, is_newer, stop, EN_DROPPING, NULL), \
	ROW(s, EN_CANCEL, NULL, stop, EN_DROPPING, NULL)
#define ANSWERS(s) \
	ROW(s, EN_BEGIN, is_same, say_again, s, NULL), \
	ROW(s, EN_ATTACH, is_slots, attach, s, NULL), \
	ROW(s, EN_OFFER, is_offered, offer, s, NULL), \
	ROW(s, EN_HOLDING, is_slots, holding, s, NULL)

static const struct fsm_edge slot_edges[] = {
	ROW(EN_IDLE, EN_BEGIN, is_new, make, EN_MAKING, NULL),
	ROW(EN_IDLE, EN_RECEIPT, is_receipt_of_served, say_again, EN_IDLE,
	    NULL),
	ROW(EN_IDLE, EN_CANCEL, NULL, NULL, EN_IDLE, "nothing to drop"),
	ROW(EN_IDLE, EN_GO, wants_begin, make, EN_MAKING, NULL),

	ROW(EN_MAKING, EN_MADE, NULL, made, EN_FILLING, NULL),
	ROW(EN_MAKING, EN_LINKED, NULL, linked, EN_SEALED, NULL),
	ROW(EN_MAKING, EN_MAKE_FAILED, NULL, make_failed, EN_IDLE, NULL),
	ROW(EN_MAKING, EN_BEGIN, is_same, NULL, EN_MAKING,
	    "answered when made"),
	GIVES_WAY(EN_MAKING),

	ANSWERS(EN_FILLING),
	ROW(EN_FILLING, EN_COPY_BEGUN, NULL, copy_begun, EN_FILLING, NULL),
	ROW(EN_FILLING, EN_COPIED, NULL, copied, EN_FILLING, NULL),
	ROW(EN_FILLING, EN_COPY_FAILED, NULL, job_ended, EN_FILLING, NULL),
	ROW(EN_FILLING, EN_FINISH, is_full, seal, EN_SEALING, NULL),
	ROW(EN_FILLING, EN_LOAD, is_whole, load, EN_SEALING, NULL),
	GIVES_WAY(EN_FILLING),

	ANSWERS(EN_SEALING),
	ROW(EN_SEALING, EN_FINISH, is_slots, NULL, EN_SEALING,
	    "answered when sealed"),
	ROW(EN_SEALING, EN_LOAD, is_slots, NULL, EN_SEALING,
	    "answered when sealed"),
	ROW(EN_SEALING, EN_SEAL_OK, NULL, sealed, EN_SEALED, NULL),
	ROW(EN_SEALING, EN_SEAL_FAILED, NULL, seal_failed, EN_BROKEN, NULL),
	GIVES_WAY(EN_SEALING),

	ANSWERS(EN_SEALED),
	ROW(EN_SEALED, EN_FINISH, is_slots, say_again, EN_SEALED, NULL),
	ROW(EN_SEALED, EN_LOAD, is_slots, say_again, EN_SEALED, NULL),
	ROW(EN_SEALED, EN_RECEIPT, is_fresh, say_again, EN_SEALED, NULL),
	ROW(EN_SEALED, EN_RECEIPT, is_slots, check, EN_CHECKING, NULL),
	ROW(EN_SEALED, EN_BEGIN, is_newer, drop_and_make, EN_MAKING, NULL),
	ROW(EN_SEALED, EN_CANCEL, is_switching, NULL, EN_SEALED,
	    "after the swap"),
	ROW(EN_SEALED, EN_CANCEL, NULL, drop, EN_IDLE, NULL),
	ROW(EN_SEALED, EN_GO, wants_drop, drop, EN_IDLE, NULL),

	ROW(EN_CHECKING, EN_BEGIN, is_same, say_again, EN_CHECKING, NULL),
	ROW(EN_CHECKING, EN_HOLDING, is_slots, holding, EN_CHECKING, NULL),
	ROW(EN_CHECKING, EN_FINISH, is_slots, NULL, EN_CHECKING,
	    "answered when checked"),
	ROW(EN_CHECKING, EN_LOAD, is_slots, NULL, EN_CHECKING,
	    "answered when checked"),
	ROW(EN_CHECKING, EN_RECEIPT, is_slots, NULL, EN_CHECKING,
	    "answered when checked"),
	ROW(EN_CHECKING, EN_SEAL_OK, NULL, sealed, EN_SEALED, NULL),
	ROW(EN_CHECKING, EN_SEAL_FAILED, NULL, seal_failed, EN_BROKEN, NULL),
	GIVES_WAY(EN_CHECKING),

	ROW(EN_BROKEN, EN_BEGIN, is_newer, drop_and_make, EN_MAKING, NULL),
	ROW(EN_BROKEN, EN_CANCEL, NULL, drop, EN_IDLE, NULL),

	ROW(EN_DROPPING, EN_MADE, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_LINKED, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_MAKE_FAILED, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_COPIED, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_COPY_FAILED, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_SEAL_OK, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_SEAL_FAILED, NULL, job_ended, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_CANCEL, NULL, forget_begin, EN_DROPPING, NULL),
	ROW(EN_DROPPING, EN_BEGIN, is_newer, NULL, EN_DROPPING,
	    "made when this is gone"),
	ROW(EN_DROPPING, EN_GO, is_at_rest, drop, EN_IDLE, NULL),
};
/* clang-format on */

/* ---- the gate's acts ---- */

ACT(hook_pause)
{
	(void)ev;
	engine_push(e, EN_DO_HOOK_PAUSE);
}

ACT(paused)
{
	(void)ev;
	engine_push(e, EN_DO_PAUSED);
	engine_push(e, EN_DO_LEASE);
	engine_reply(e, EN_PAUSE);
}

ACT(pause_again)
{
	(void)ev;
	engine_push(e, EN_DO_LEASE);
	engine_reply(e, EN_PAUSE);
}

/* How far the hook came is unknown: on-resume brings the engine back. */
ACT(pause_failed)
{
	engine_fail(e, EN_PAUSE, ev);
	engine_push(e, EN_DO_HOOK_RESUME);
}

ACT(hook_resume)
{
	(void)ev;
	e->lapsed = false;
	engine_push(e, EN_DO_HOOK_RESUME);
}

/* A pause that came meanwhile is next; the resume behind it waits for it. */
ACT(resumed)
{
	bool pauses = e->pending[EN_PAUSE];

	(void)ev;
	if (!pauses)
		e->token = 0;
	engine_push(e, EN_DO_LEASE_OFF);
	engine_push(e, EN_DO_SERVING);
	if (!pauses || e->resume_token != e->token)
		engine_reply(e, EN_RESUME);
}

/* The next end of the lease tries again. */
ACT(resume_failed)
{
	engine_push(e, EN_DO_LEASE);
	engine_fail(e, EN_RESUME, ev);
	engine_fail(e, EN_CANCEL, ev);
	/* Paused still: that is what a pause behind it wants. */
	engine_reply(e, EN_PAUSE);
}

ACT(forget_pause)
{
	(void)ev;
	engine_refuse(e, EN_PAUSE, -E_FENCED, "the run was cancelled");
	engine_refuse(e, EN_SWAP, -E_FENCED, "the run was cancelled");
}

ACT(publish)
{
	(void)ev;
	engine_push(e, EN_DO_PUBLISH);
}

ACT(say_swapped)
{
	(void)ev;
	engine_reply(e, EN_SWAP);
}

ACT(refuse_waiting_swap)
{
	(void)ev;
	engine_refuse_swap(e, &e->swap);
}

ACT(swap_failed)
{
	engine_fail(e, EN_SWAP, ev);
}

ACT(hook_swap)
{
	(void)ev;
	engine_push(e, EN_DO_HOOK_SWAP);
}

ACT(unpublish)
{
	struct en_action *a = engine_push(e, EN_DO_UNPUBLISH);

	a->code = ev->code;
	snprintf(a->cause, sizeof a->cause, "%s", ev->cause ? ev->cause : "");
}

ACT(swapped)
{
	(void)ev;
	engine_set_serving(e, &(struct en_version){
				      .version = e->version,
				      .epoch = e->epoch,
				      .structure = e->structure,
				      .content = e->content,
			      });
	forget_slot(e);
	e->slot = EN_IDLE;
	engine_reply(e, EN_SWAP);
}

ACT(lapse)
{
	(void)ev;
	e->lapsed = true;
}

/* clang-format off */
#define LATER(s, on) ROW(s, on, NULL, NULL, s, "answered afterwards")

static const struct fsm_edge gate_edges[] = {
	ROW(EN_OPEN, EN_PAUSE, NULL, hook_pause, EN_PAUSING, NULL),
	ROW(EN_OPEN, EN_GO, wants_pause, hook_pause, EN_PAUSING, NULL),
	ROW(EN_OPEN, EN_RESUME, NULL, say_again, EN_OPEN, NULL),
	ROW(EN_OPEN, EN_SWAP, is_served, say_again, EN_OPEN, NULL),
	ROW(EN_OPEN, EN_CANCEL, NULL, NULL, EN_OPEN, "nothing to resume"),

	ROW(EN_PAUSING, EN_HOOK_OK, NULL, paused, EN_PAUSED, NULL),
	ROW(EN_PAUSING, EN_HOOK_FAILED, NULL, pause_failed, EN_RESUMING, NULL),
	LATER(EN_PAUSING, EN_PAUSE),
	LATER(EN_PAUSING, EN_SWAP),
	LATER(EN_PAUSING, EN_RESUME),
	LATER(EN_PAUSING, EN_CANCEL),

	ROW(EN_PAUSED, EN_PAUSE, NULL, pause_again, EN_PAUSED, NULL),
	ROW(EN_PAUSED, EN_SWAP, is_served, say_again, EN_PAUSED, NULL),
	ROW(EN_PAUSED, EN_SWAP, may_swap, publish, EN_SWAPPING, NULL),
	ROW(EN_PAUSED, EN_RESUME, token_fits, hook_resume, EN_RESUMING, NULL),
	ROW(EN_PAUSED, EN_CANCEL, NULL, hook_resume, EN_RESUMING, NULL),
	ROW(EN_PAUSED, EN_LEASE_END, NULL, hook_resume, EN_RESUMING, NULL),
	ROW(EN_PAUSED, EN_GO, wants_served_swap, say_swapped, EN_PAUSED, NULL),
	ROW(EN_PAUSED, EN_GO, wants_good_swap, publish, EN_SWAPPING, NULL),
	ROW(EN_PAUSED, EN_GO, wants_swap, refuse_waiting_swap, EN_PAUSED,
	    NULL),
	ROW(EN_PAUSED, EN_GO, wants_resume, hook_resume, EN_RESUMING, NULL),

	ROW(EN_SWAPPING, EN_PUBLISHED, NULL, hook_swap, EN_SWAPPING, NULL),
	ROW(EN_SWAPPING, EN_PUBLISH_FAILED, NULL, swap_failed, EN_PAUSED,
	    NULL),
	ROW(EN_SWAPPING, EN_HOOK_OK, NULL, swapped, EN_PAUSED, NULL),
	ROW(EN_SWAPPING, EN_HOOK_FAILED, NULL, unpublish, EN_SWAPPING, NULL),
	ROW(EN_SWAPPING, EN_LEASE_END, NULL, lapse, EN_SWAPPING, NULL),
	LATER(EN_SWAPPING, EN_SWAP),
	LATER(EN_SWAPPING, EN_RESUME),
	LATER(EN_SWAPPING, EN_CANCEL),

	ROW(EN_RESUMING, EN_HOOK_OK, NULL, resumed, EN_OPEN, NULL),
	ROW(EN_RESUMING, EN_HOOK_FAILED, NULL, resume_failed, EN_PAUSED, NULL),
	ROW(EN_RESUMING, EN_SWAP, is_served, say_again, EN_RESUMING, NULL),
	ROW(EN_RESUMING, EN_SWAP, wants_pause, NULL, EN_RESUMING,
	    "behind the pause"),
	LATER(EN_RESUMING, EN_PAUSE),
	LATER(EN_RESUMING, EN_RESUME),
	ROW(EN_RESUMING, EN_CANCEL, NULL, forget_pause, EN_RESUMING, NULL),
};

#define TABLE(n, edges_, states_, nstates_)				\
	{ .name = n, .edges = edges_, .nedges = COUNT(edges_),		\
	  .states = states_, .nstates = nstates_,			\
	  .events = engine_event_names, .nevents = EN_NEV }
/* clang-format on */

const struct fsm_table engine_slot_table =
	TABLE("engine slot", slot_edges, engine_slot_names, EN_NSLOT);
const struct fsm_table engine_gate_table =
	TABLE("engine gate", gate_edges, engine_gate_names, EN_NGATE);

/* ---- steps ---- */

static bool is_gates(enum en_ev on)
{
	return (on >= EN_PAUSE && on <= EN_CANCEL) ||
	       (on >= EN_PUBLISHED && on <= EN_LEASE_END);
}

static void note_request(struct engine *e, const struct en_event *ev)
{
	if (ev->on == EN_BEGIN)
		e->begin = *ev;
	if (ev->on == EN_SWAP)
		e->swap = *ev;
	if (ev->on == EN_RESUME)
		e->resume_token = ev->token;
	if (ev->on == EN_CANCEL)
		e->cancel_epoch = ev->epoch;
	if (ev->on == EN_PAUSE && e->gate != EN_SWAPPING) {
		e->token = ev->token;
		e->lease_ms = ev->lease_ms;
		e->lapsed = false;
	}
	e->pending[ev->on] = true;
}

static bool go(struct engine *e, const struct fsm_table *t, uint8_t *state)
{
	const struct en_event ev = { .on = EN_GO };

	return fsm_step(t, state, e, EN_GO, &ev) >= 0;
}

/* What had to wait and can be done now. */
static void settle(struct engine *e)
{
	do {
		if (e->gate == EN_OPEN && !is_cancelled(e))
			engine_reply(e, EN_CANCEL);
	} while (go(e, &engine_slot_table, &e->slot) ||
		 go(e, &engine_gate_table, &e->gate));
}

void engine_step(struct engine *e, const struct en_event *ev)
{
	int rc = -E_PROTO;

	if (ev->on < EN_NREQ)
		note_request(e, ev);
	if (!is_gates(ev->on) || ev->on == EN_CANCEL)
		rc = fsm_step(&engine_slot_table, &e->slot, e, ev->on, ev);
	if (is_gates(ev->on))
		rc = fsm_step(&engine_gate_table, &e->gate, e, ev->on, ev);
	if (rc < 0 && ev->on < EN_NREQ)
		engine_refuse_unknown(e, ev);
	settle(e);
}
