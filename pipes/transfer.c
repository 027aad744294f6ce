#include "pipes/transfer.h"

#include "common/bits.h"
#include "common/err.h"

#include <assert.h>
#include <string.h>

static uint8_t *held_of(const struct transfer *t, uint32_t engine)
{
	return t->held + engine * t->row;
}

static void emit(struct transfer *t, const struct xf_action *a)
{
	t->out(t->arg, a);
}

#define EMIT(t, do, ...) \
	emit(t, &(struct xf_action){ .what = (do), __VA_ARGS__ })

static struct xf_grant *grant_of(const struct transfer *t, uint32_t bucket)
{
	uint16_t s = t->slot_of[bucket];

	return s ? &t->grant[s - 1] : NULL;
}

/* It takes no more offers. */
static bool is_out(const struct xf_engine *e)
{
	return e->excluded || e->failed;
}

/* ---- failures ---- */

static void fail_engine(struct transfer *t, uint32_t engine, uint32_t bucket,
			int code, const char *cause)
{
	struct xf_engine *e = &t->engine[engine];

	if (is_out(e))
		return;
	e->failed = true;
	e->code = code;
	EMIT(t, XF_SAY_FAILED, .engine = engine, .bucket = bucket, .code = code,
	     .cause = cause);
}

static void fault(void *m, const void *event)
{
	struct transfer *t = m;
	const struct xf_event *e = event;

	if (e->engine != ID_NONE) {
		fail_engine(t, e->engine, e->bucket, e->code, e->cause);
		return;
	}
	EMIT(t, XF_SAY_FAILED, .engine = ID_NONE, .bucket = e->bucket,
	     .code = e->code, .cause = e->cause);
}

/* ---- what has become of a grant ---- */

static bool engine_has_moved(const struct transfer *t, const struct xf_grant *g,
			     uint32_t engine)
{
	const struct plan_engine *p = &t->plan->engine[engine];

	return t->engine[engine].severed ||
	       bits_are_set(g->moved, p->first_receiver, p->receivers);
}

static bool engine_has(const struct transfer *t, uint32_t engine, uint32_t b)
{
	return t->engine[engine].severed || bit_get(held_of(t, engine), b);
}

static bool has_moved(const struct transfer *t, const struct xf_grant *g)
{
	for (uint32_t e = g->first; e < g->first + g->count; e++)
		if (!engine_has_moved(t, g, e))
			return false;
	return true;
}

static bool is_held(const struct transfer *t, const struct xf_grant *g)
{
	for (uint32_t e = g->first; e < g->first + g->count; e++)
		if (!engine_has(t, e, g->bucket))
			return false;
	return true;
}

static void say_staged(struct transfer *t, uint32_t b)
{
	if (bit_get(t->staged, b))
		return;
	for (uint32_t e = 0; e < t->plan->nengines; e++)
		if (!engine_has(t, e, b))
			return;
	bit_set(t->staged, b);
	EMIT(t, XF_SAY_STAGED, .bucket = b);
}

static void close_grant(struct transfer *t, struct xf_grant *g)
{
	g->open = false;
	t->slot_of[g->bucket] = 0;
	t->nopen--;
	t->has_released = true;
	say_staged(t, g->bucket);
	EMIT(t, XF_SAY_RELEASED, .wave = g->wave, .bucket = g->bucket);
}

static void settle(struct transfer *t, struct xf_grant *g)
{
	if (!g->open)
		return;
	if (!g->said_moved && has_moved(t, g)) {
		g->said_moved = true;
		EMIT(t, XF_SAY_MOVED, .wave = g->wave, .bucket = g->bucket);
	}
	if (!g->said_acked && is_held(t, g)) {
		g->said_acked = true;
		EMIT(t, XF_SAY_ACKED, .wave = g->wave, .bucket = g->bucket);
	}
	if (g->said_moved && g->said_acked)
		close_grant(t, g);
}

/* ---- grants and offers ---- */

static struct xf_grant *free_slot(struct transfer *t)
{
	for (uint32_t i = 0; i < t->nslots; i++)
		if (!t->grant[i].open)
			return &t->grant[i];
	return NULL;
}

/* A receiver that needs nothing, of an engine that does. */
static void mark_kept(struct transfer *t, struct xf_grant *g, uint32_t r)
{
	const struct plan_receiver *p = &t->plan->receiver[r];
	uint32_t first = t->engine[p->engine].first_worker + p->worker;

	bit_set(g->moved, r);
	for (uint32_t w = first; w < first + p->workers; w++)
		bit_set(g->acked, w);
}

/* Who holds it already counts as moved. */
static void mark_held(struct transfer *t, struct xf_grant *g)
{
	for (uint32_t e = g->first; e < g->first + g->count; e++) {
		const struct plan_engine *p = &t->plan->engine[e];
		uint32_t end = p->first_receiver + p->receivers;

		for (uint32_t r = p->first_receiver; r < end; r++)
			if (bit_get(held_of(t, e), g->bucket))
				bit_set(g->moved, r);
			else if (bit_get(t->kept, r))
				mark_kept(t, g, r);
	}
}

static bool can_grant(const void *m, const void *event)
{
	const struct transfer *t = m;
	const struct xf_event *e = event;

	return t->told && !t->slot_of[e->bucket] && t->nopen < t->nslots;
}

static void grant(void *m, const void *event)
{
	struct transfer *t = m;
	const struct xf_event *e = event;
	struct xf_grant *g = free_slot(t);

	*g = (struct xf_grant){ .wave = e->wave,
				.bucket = e->bucket,
				.first = e->first,
				.count = e->count,
				.open = true,
				.acked = g->acked,
				.moved = g->moved };
	memset(g->acked, 0, t->nworkers / 8 + 1);
	memset(g->moved, 0, t->plan->nreceivers / 8 + 1);
	t->slot_of[e->bucket] = (uint16_t)(g - t->grant + 1);
	t->nopen++;
	mark_held(t, g);
	settle(t, g);
	if (g->open)
		EMIT(t, XF_PREPARE, .bucket = g->bucket);
}

static void offer(struct transfer *t, const struct xf_grant *g, uint32_t e)
{
	const struct plan_engine *p = &t->plan->engine[e];

	for (uint32_t r = p->first_receiver;
	     r < p->first_receiver + p->receivers; r++)
		if (!bit_get(t->kept, r))
			EMIT(t, XF_OFFER, .receiver = r, .wave = g->wave,
			     .bucket = g->bucket);
}

static void ready(void *m, const void *event)
{
	struct transfer *t = m;
	struct xf_grant *g =
		grant_of(t, ((const struct xf_event *)event)->bucket);
	bool is_needed = false;

	if (!g || g->ready)
		return;
	g->ready = true;
	for (uint32_t e = g->first; e < g->first + g->count; e++) {
		if (is_out(&t->engine[e]) || bit_get(held_of(t, e), g->bucket))
			continue;
		offer(t, g, e);
		is_needed = true;
	}
	/* Of an earlier instance only what credit was out for can have been
	 * sent: that comes back before anything is released. */
	if (is_needed && t->restarted && !t->has_released)
		t->resent += t->plan->bucket[g->bucket].bytes;
}

/* ---- acks and digests ---- */

/* What is claimed is a rank's share of a bucket. */
static uint32_t share_of(const struct transfer *t, uint32_t bucket,
			 uint32_t rank)
{
	return bucket * t->plan->nranks + rank;
}

static void differs(void *m, uint32_t engine, uint32_t share)
{
	const struct transfer *t = m;

	fail_engine(m, engine, share / t->plan->nranks, E_DATA,
		    "holds other bytes than the source has");
}

static void digest(void *m, const void *event)
{
	struct transfer *t = m;
	const struct xf_event *e = event;

	claims_judge(&t->claims, share_of(t, e->bucket, e->rank), &e->digest,
		     differs, t);
}

static void judge(struct transfer *t, uint32_t engine, const struct xf_event *e)
{
	uint32_t rank = t->plan->receiver[e->receiver].rank;
	uint32_t share = share_of(t, e->bucket, rank);
	int rc = claims_say(&t->claims, engine, share, &e->digest);

	if (rc == -E_DATA)
		differs(t, engine, share);
	else if (rc < 0)
		fail_engine(t, engine, e->bucket, E_DATA,
			    "engines disagree about too many buckets");
}

/* NULL, or what is wrong with it (I5). */
static const char *ack_fault(const struct transfer *t, uint32_t engine,
			     const struct xf_event *e)
{
	const struct plan_receiver *r = &t->plan->receiver[e->receiver];
	const struct xf_grant *g = grant_of(t, e->bucket);

	if (e->worker < r->worker || e->worker - r->worker >= r->workers)
		return "acknowledged for a worker that it does not have";
	if (!g && bit_get(held_of(t, engine), e->bucket))
		return "acknowledged one offer twice";
	if (!g || !g->ready || engine - g->first >= g->count)
		return "acknowledged an offer that was not made";
	if (bit_get(g->acked, t->engine[engine].first_worker + e->worker))
		return "acknowledged one offer twice";
	if (e->bytes != plan_share(t->plan, e->bucket, r->rank))
		return "acknowledged another size than was offered";
	return NULL;
}

static void ack(void *m, const void *event)
{
	struct transfer *t = m;
	const struct xf_event *e = event;
	uint32_t engine = t->plan->receiver[e->receiver].engine;
	struct xf_engine *n = &t->engine[engine];
	struct xf_grant *g = grant_of(t, e->bucket);
	const char *wrong;

	if (is_out(n))
		return;
	wrong = ack_fault(t, engine, e);
	if (wrong) {
		fail_engine(t, engine, e->bucket, E_PROTO, wrong);
		return;
	}
	judge(t, engine, e);
	if (n->failed)
		return;
	bit_set(g->acked, n->first_worker + e->worker);
	if (!bits_are_set(g->acked, n->first_worker,
			  t->plan->engine[engine].workers))
		return;
	bit_set(held_of(t, engine), e->bucket);
	settle(t, g);
}

static void moved(void *m, const void *event)
{
	struct transfer *t = m;
	const struct xf_event *e = event;
	struct xf_grant *g = grant_of(t, e->bucket);

	if (!g)
		return;
	bit_set(g->moved, e->receiver);
	settle(t, g);
}

/* ---- what receivers hold ---- */

static void ask(void *m, const void *event)
{
	struct transfer *t = m;

	(void)event;
	for (uint32_t r = 0; r < t->plan->nreceivers; r++)
		if (!t->engine[t->plan->receiver[r].engine].excluded)
			EMIT(t, XF_ASK_HOLDING, .receiver = r);
}

/* An engine holds what all its receivers hold. */
static void note_bitmap(struct transfer *t, uint32_t engine,
			struct slice bitmap, bool first)
{
	uint8_t *held = held_of(t, engine);

	for (size_t i = 0; i < t->row && !t->whole; i++) {
		uint8_t had = i < bitmap.n ? (uint8_t)bitmap.p[i] : 0;

		held[i] = first ? had : held[i] & had;
	}
}

static void note_held(void *m, const void *event)
{
	struct transfer *t = m;
	const struct xf_event *e = event;
	uint32_t engine = t->plan->receiver[e->receiver].engine;
	struct xf_engine *n = &t->engine[engine];
	bool first = n->unanswered == t->plan->engine[engine].receivers;

	if (n->unanswered == 0)
		return;
	n->unanswered--;
	note_bitmap(t, engine, e->bitmap, first);
	n->receivers_sealed = (first || n->receivers_sealed) && e->sealed;
	n->kept = (first || n->kept) && e->kept;
	if (e->kept)
		bit_set(t->kept, e->receiver);
	if (n->unanswered || !n->receivers_sealed || is_out(n))
		return;
	n->sealed = true;
	t->waiting--;
}

static void placed(void *m, const void *event)
{
	(void)event;
	((struct transfer *)m)->placed = true;
}

static bool all_known(const void *m, const void *event)
{
	const struct transfer *t = m;

	(void)event;
	if (t->whole && !t->placed)
		return false;
	for (uint32_t i = 0; i < t->plan->nengines; i++)
		if (t->engine[i].unanswered && !t->engine[i].excluded)
			return false;
	return true;
}

/* ---- admit's link ---- */

static void admit_up(void *m, const void *event)
{
	struct transfer *t = m;

	(void)event;
	t->admit_up = true;
	t->told = false;
}

static void admit_down(void *m, const void *event)
{
	struct transfer *t = m;

	(void)event;
	t->admit_up = t->told = false;
}

static bool can_tell(const void *m, const void *event)
{
	const struct transfer *t = m;

	(void)event;
	return t->admit_up && !t->told && t->nopen == 0;
}

static void tell(void *m, const void *event)
{
	struct transfer *t = m;

	(void)event;
	t->told = true;
	for (uint32_t e = 0; e < t->plan->nengines; e++) {
		const struct xf_engine *n = &t->engine[e];

		if (n->severed)
			EMIT(t, XF_SAY_EXCLUDED, .engine = e);
		if (!n->excluded)
			EMIT(t, XF_SAY_HOLDS, .engine = e, .sealed = n->sealed,
			     .bitmap = { (char *)held_of(t, e), t->row });
	}
}

/* ---- seal, exclude, end ---- */

static void sealed_engine(struct transfer *t, uint32_t e)
{
	t->engine[e].sealed = true;
	t->waiting--;
	EMIT(t, XF_SAY_SEALED, .engine = e);
}

static void seal_engine(struct transfer *t, uint32_t e)
{
	const struct plan_engine *p = &t->plan->engine[e];
	struct xf_engine *n = &t->engine[e];

	if (n->sealed)
		EMIT(t, XF_SAY_SEALED, .engine = e);
	if (n->sealed || n->unfinished || is_out(n))
		return;
	n->unfinished = p->receivers;
	for (uint32_t r = 0; r < p->receivers; r++)
		EMIT(t, XF_FINISH, .receiver = p->first_receiver + r);
	if (p->receivers == 0)
		sealed_engine(t, e);
}

static void seal(void *m, const void *event)
{
	const struct xf_event *e = event;

	for (uint32_t i = e->first; i < e->first + e->count; i++)
		seal_engine(m, i);
}

static void finished(void *m, const void *event)
{
	struct transfer *t = m;
	uint32_t r = ((const struct xf_event *)event)->receiver;
	uint32_t engine = t->plan->receiver[r].engine;
	struct xf_engine *n = &t->engine[engine];

	if (is_out(n) || n->unfinished == 0 || --n->unfinished)
		return;
	sealed_engine(t, engine);
}

static void exclude(void *m, const void *event)
{
	struct transfer *t = m;
	uint32_t engine = ((const struct xf_event *)event)->engine;
	struct xf_engine *n = &t->engine[engine];

	if (n->severed)
		EMIT(t, XF_SAY_EXCLUDED, .engine = engine);
	if (n->excluded)
		return;
	n->excluded = true;
	EMIT(t, XF_SEVER, .engine = engine);
}

static void severed(void *m, const void *event)
{
	struct transfer *t = m;
	uint32_t engine = ((const struct xf_event *)event)->engine;
	struct xf_engine *n = &t->engine[engine];

	if (n->severed || !n->excluded)
		return;
	n->severed = true;
	if (!n->sealed)
		t->waiting--;
	EMIT(t, XF_SAY_EXCLUDED, .engine = engine);
	for (uint32_t i = 0; i < t->nslots; i++)
		settle(t, &t->grant[i]);
	for (uint32_t b = 0; b < t->plan->nbuckets; b++)
		say_staged(t, b);
}

static void tell_commit(void *m, const void *event)
{
	struct transfer *t = m;

	(void)event;
	for (uint32_t e = 0; e < t->plan->nengines; e++) {
		const struct xf_engine *n = &t->engine[e];

		if (n->severed)
			EMIT(t, XF_SAY_EXCLUDED, .engine = e);
		else if (n->failed && !n->excluded)
			EMIT(t, XF_SAY_FAILED, .engine = e, .bucket = ID_NONE,
			     .code = n->code);
		else if (n->sealed && !n->excluded)
			EMIT(t, XF_SAY_SEALED, .engine = e);
	}
	if (t->state == XF_DONE)
		EMIT(t, XF_SAY_DRAINED, 0);
}

static bool is_hash_only(const void *m, const void *event)
{
	(void)m;
	return ((const struct xf_event *)event)->hash_only;
}

static bool all_sealed(const void *m, const void *event)
{
	const struct transfer *t = m;

	(void)event;
	return t->waiting == 0 && t->nopen == 0;
}

/* clang-format off */
#define EMITS(name, what)						\
	static void name(void *m, const void *event)			\
	{								\
		(void)event;						\
		EMIT(m, what, 0);					\
	}
/* clang-format on */
EMITS(hash_rest, XF_HASH_REST)
EMITS(drained, XF_SAY_DRAINED)
EMITS(stop, XF_STOP)

/* clang-format off */
#define ROW(from, on, when, act, to, why)				\
	{ from, on, when, act, to, why }
/* Facts that every state takes in alike. */
#define FACTS(s)							\
	ROW(s, XF_EV_ADMIT_UP, NULL, admit_up, s, NULL),		\
	ROW(s, XF_EV_ADMIT_DOWN, NULL, admit_down, s, NULL),		\
	ROW(s, XF_EV_COMMIT_UP, NULL, tell_commit, s, NULL),		\
	ROW(s, XF_EV_DIGEST, NULL, digest, s, NULL),			\
	ROW(s, XF_EV_PLACED, NULL, placed, s, NULL),			\
	ROW(s, XF_EV_FAULT, NULL, fault, s, NULL),			\
	ROW(s, XF_EV_EXCLUDE, NULL, exclude, s, NULL),			\
	ROW(s, XF_EV_SEVERED, NULL, severed, s, NULL),			\
	ROW(s, XF_EV_ABORT, NULL, stop, XF_ABORT, NULL)
/* Nothing was offered yet, or all of it has ended: a grant that was under way
 * when the last engine that needed it was excluded is released at once. */
#define IDLE(s)								\
	ROW(s, XF_EV_GRANT, NULL, NULL, s, "an older admit's"),		\
	ROW(s, XF_EV_READY, NULL, NULL, s, "no grant is open"),		\
	ROW(s, XF_EV_MOVED, NULL, NULL, s, "no grant is open"),		\
	ROW(s, XF_EV_ACK, NULL, ack, s, NULL),				\
	ROW(s, XF_EV_FINISHED, NULL, NULL, s, "not asked, or sealed")
#define AGAIN(s)							\
	ROW(s, XF_EV_OPENED, NULL, NULL, s, "said again"),		\
	ROW(s, XF_EV_HELD, NULL, NULL, s, "known already")
#define REST(s)								\
	ROW(s, XF_EV_GO, NULL, NULL, s, "nothing to do")
#define DEAF(on)							\
	ROW(XF_ABORT, on, NULL, NULL, XF_ABORT, "aborted")

static const struct fsm_edge edges[] = {
	ROW(XF_WAIT, XF_EV_OPENED, is_hash_only, hash_rest, XF_VERIFY, NULL),
	ROW(XF_WAIT, XF_EV_OPENED, NULL, ask, XF_ASK, NULL),
	FACTS(XF_WAIT),
	IDLE(XF_WAIT),
	ROW(XF_WAIT, XF_EV_SEAL, NULL, NULL, XF_WAIT, "an older admit's"),
	REST(XF_WAIT),

	ROW(XF_ASK, XF_EV_HELD, NULL, note_held, XF_ASK, NULL),
	ROW(XF_ASK, XF_EV_OPENED, NULL, NULL, XF_ASK, "said again"),
	FACTS(XF_ASK),
	IDLE(XF_ASK),
	ROW(XF_ASK, XF_EV_SEAL, NULL, NULL, XF_ASK, "an older admit's"),
	ROW(XF_ASK, XF_EV_GO, all_known, tell_commit, XF_RUN, NULL),
	REST(XF_ASK),

	FACTS(XF_RUN),
	AGAIN(XF_RUN),
	ROW(XF_RUN, XF_EV_GRANT, can_grant, grant, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_GRANT, NULL, NULL, XF_RUN,
	    "open already, or an older admit's"),
	ROW(XF_RUN, XF_EV_READY, NULL, ready, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_MOVED, NULL, moved, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_ACK, NULL, ack, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_SEAL, NULL, seal, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_FINISHED, NULL, finished, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_GO, can_tell, tell, XF_RUN, NULL),
	ROW(XF_RUN, XF_EV_GO, all_sealed, hash_rest, XF_VERIFY, NULL),
	REST(XF_RUN),

	FACTS(XF_VERIFY),
	AGAIN(XF_VERIFY),
	ROW(XF_VERIFY, XF_EV_GRANT, can_grant, grant, XF_VERIFY, NULL),
	IDLE(XF_VERIFY),
	ROW(XF_VERIFY, XF_EV_SEAL, NULL, seal, XF_VERIFY, NULL),
	ROW(XF_VERIFY, XF_EV_VERIFIED, NULL, drained, XF_DONE, NULL),
	ROW(XF_VERIFY, XF_EV_GO, can_tell, tell, XF_VERIFY, NULL),
	REST(XF_VERIFY),

	FACTS(XF_DONE),
	AGAIN(XF_DONE),
	ROW(XF_DONE, XF_EV_GRANT, can_grant, grant, XF_DONE, NULL),
	IDLE(XF_DONE),
	ROW(XF_DONE, XF_EV_SEAL, NULL, seal, XF_DONE, NULL),
	ROW(XF_DONE, XF_EV_GO, can_tell, tell, XF_DONE, NULL),
	REST(XF_DONE),

	DEAF(XF_EV_OPENED), DEAF(XF_EV_ADMIT_UP), DEAF(XF_EV_ADMIT_DOWN),
	DEAF(XF_EV_COMMIT_UP), DEAF(XF_EV_HELD), DEAF(XF_EV_GRANT),
	DEAF(XF_EV_READY), DEAF(XF_EV_DIGEST), DEAF(XF_EV_MOVED),
	DEAF(XF_EV_ACK), DEAF(XF_EV_SEAL), DEAF(XF_EV_FINISHED),
	DEAF(XF_EV_PLACED), DEAF(XF_EV_FAULT), DEAF(XF_EV_EXCLUDE),
	DEAF(XF_EV_SEVERED), DEAF(XF_EV_VERIFIED), DEAF(XF_EV_ABORT),
	DEAF(XF_EV_GO),
};
/* clang-format on */

static const char *const state_names[] = {
	[XF_WAIT] = "wait",	[XF_ASK] = "ask",   [XF_RUN] = "run",
	[XF_VERIFY] = "verify", [XF_DONE] = "done", [XF_ABORT] = "abort",
};
static_assert(COUNT(state_names) == XF_NSTATE, "name every state");

static const char *const event_names[] = { [XF_EV_OPENED] = "opened",
					   [XF_EV_ADMIT_UP] = "admit_up",
					   [XF_EV_ADMIT_DOWN] = "admit_down",
					   [XF_EV_COMMIT_UP] = "commit_up",
					   [XF_EV_HELD] = "held",
					   [XF_EV_GRANT] = "grant",
					   [XF_EV_READY] = "ready",
					   [XF_EV_DIGEST] = "digest",
					   [XF_EV_MOVED] = "moved",
					   [XF_EV_ACK] = "ack",
					   [XF_EV_SEAL] = "seal",
					   [XF_EV_FINISHED] = "finished",
					   [XF_EV_PLACED] = "placed",
					   [XF_EV_FAULT] = "fault",
					   [XF_EV_EXCLUDE] = "exclude",
					   [XF_EV_SEVERED] = "severed",
					   [XF_EV_VERIFIED] = "verified",
					   [XF_EV_ABORT] = "abort",
					   [XF_EV_GO] = "go" };
static_assert(COUNT(event_names) == XF_NEV, "name every event");

const struct fsm_table transfer_table = {
	.name = "transfer",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = state_names,
	.events = event_names,
	.nstates = XF_NSTATE,
	.nevents = XF_NEV,
};

int transfer_step(struct transfer *t, const struct xf_event *e)
{
	int rc;

	if (!transfer_knows(t, e))
		return -E_PROTO;
	rc = fsm_step(&transfer_table, &t->state, t, e->on, e);
	/* Its own steps end with a row that only stays. */
	while (rc >= 0 && (edges[rc].act || edges[rc].to != edges[rc].from))
		rc = fsm_step(&transfer_table, &t->state, t, XF_EV_GO, e);
	return rc < 0 ? rc : 0;
}
