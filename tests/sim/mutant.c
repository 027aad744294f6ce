#include "mutant.h"

#include "common/err.h"
#include "common/fence.h"
#include "pipes/claims.h"
#include "pipes/commit.h"
#include "pipes/fan.h"
#include "pipes/receipt.h"
#include "pipes/registry.h"
#include "pipes/transfer.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define MUTANTS(X)                                                           \
	X(fence_skipped, "whatever the fence refuses passes")                \
	X(instance_inverted, "older instances pass, newer ones do not")      \
	X(closed_epoch_open, "a cancelled epoch is not closed")              \
	X(released_on_moved, "credit is returned when bytes have moved")     \
	X(acked_on_moved, "acked is said when bytes have moved")             \
	X(staged_on_moved, "staged is said when one wave has it")            \
	X(ack_unchecked, "digests of acks are not compared")                 \
	X(receipt_unchecked, "receipts are not compared")                    \
	X(credit_not_fifo, "credit returns in the order of finishing")       \
	X(credit_one_more, "one bucket more than the limit")                 \
	X(wave_one_more, "one engine more in a wave")                        \
	X(wave_not_sealed, "the next wave begins before this one is sealed") \
	X(oversize_passes, "a bucket above the limit is not refused")        \
	X(drained_early, "drained is said at the first ack")                 \
	X(held_forgotten, "what an engine holds already is sent again")      \
	X(swap_early, "swap is sent with the question for the receipt")      \
	X(pause_early, "engines are paused before the decision")             \
	X(resume_early, "engines are resumed before the decision")           \
	X(abort_forgets_one, "the abort does not reach the last engine")     \
	X(abort_not_heard, "transfer goes on after the abort")               \
	X(min_engines_one, "one engine is always enough")                    \
	X(number_not_raised, "a new version gets the highest number")        \
	X(exit_says_published, "exit 1 becomes 0")                           \
	X(exit_says_aborted, "exit 0 becomes 1")                             \
	X(decision_not_synced, "the decision's directory is not synced")     \
	X(decision_torn, "the decision is linked before it is synced")       \
	X(open_not_synced, "registry/open is not synced")                    \
	X(epoch_not_synced, "registry/epoch is not synced")                  \
	X(fence_not_synced, "an engine's fence is not synced")               \
	X(slot_not_synced, "a slot's files are not synced")                  \
	X(store_not_synced, "an engine's store directory is not synced")     \
	X(versions_not_synced, "an engine's versions/ is not synced")        \
	X(attention_not_written, "who is behind is not written down")        \
	X(lease_always, "a retired slot is written while somebody maps it")

enum {
	MU_none,
#define X(name, text) MU_##name,
	MUTANTS(X)
#undef X
		MU_N
};

static const struct {
	const char *name, *text;
} mutants[] = { { "none", "" },
#define X(name, text) { #name, text },
		MUTANTS(X)
#undef X
};

int mutant_count(void)
{
	return MU_N - 1;
}

const char *mutant_name(int i)
{
	return mutants[i].name;
}

const char *mutant_text(int i)
{
	return mutants[i].text;
}

bool mutant_is_rare(int i)
{
	return i == MU_fence_skipped || i == MU_instance_inverted ||
	       i == MU_closed_epoch_open || i == MU_abort_not_heard ||
	       i == MU_credit_not_fifo || i == MU_slot_not_synced;
}

int mutant_number(const char *name)
{
	for (int i = 1; i < MU_N; i++)
		if (strcmp(mutants[i].name, name) == 0)
			return i;
	return 0;
}

static bool is_on(int m)
{
	return sim.mutant == m;
}

/* ---- the fence ---- */

int __real_fence_check(const struct fence *f, const struct fence_speaker *who,
		       enum fence_use use, char *why);
int __wrap_fence_check(const struct fence *f, const struct fence_speaker *who,
		       enum fence_use use, char *why);
int __wrap_fence_check(const struct fence *f, const struct fence_speaker *who,
		       enum fence_use use, char *why)
{
	struct fence_speaker as = *who;
	struct fence g = *f;
	int rc;

	if (is_on(MU_closed_epoch_open))
		g.closed = false;
	if (is_on(MU_instance_inverted) && who->stage < FENCE_STAGES &&
	    who->epoch == f->epoch && f->instance[who->stage])
		as.instance = who->instance < f->instance[who->stage]
				      ? f->instance[who->stage]
				      : who->instance;
	rc = __real_fence_check(&g, &as, use, why);
	return rc < 0 && is_on(MU_fence_skipped) ? 0 : rc;
}

/* ---- transfer ---- */

int __real_transfer_step(struct transfer *t, const struct xf_event *e);
int __wrap_transfer_step(struct transfer *t, const struct xf_event *e);

static void say(struct transfer *t, enum xf_do what, uint32_t bucket)
{
	uint16_t slot = t->slot_of[bucket];
	struct xf_action a = { .what = what, .bucket = bucket };

	a.wave = slot ? t->grant[slot - 1].wave : 0;
	t->out(t->arg, &a);
}

/* As if it held nothing. */
static int forget_held(struct transfer *t, const struct xf_event *e)
{
	struct xf_event nothing = *e;

	nothing.bitmap = (struct slice){ 0 };
	return __real_transfer_step(t, &nothing);
}

int __wrap_transfer_step(struct transfer *t, const struct xf_event *e)
{
	if (e->on == XF_EV_HELD && !e->sealed && is_on(MU_held_forgotten))
		return forget_held(t, e);
	if (e->on == XF_EV_ABORT && is_on(MU_abort_not_heard))
		return 0;
	if (e->on == XF_EV_MOVED && t->slot_of[e->bucket]) {
		if (is_on(MU_released_on_moved))
			say(t, XF_SAY_RELEASED, e->bucket);
		if (is_on(MU_acked_on_moved))
			say(t, XF_SAY_ACKED, e->bucket);
		if (is_on(MU_staged_on_moved))
			say(t, XF_SAY_STAGED, e->bucket);
	}
	if (e->on == XF_EV_ACK && is_on(MU_drained_early))
		say(t, XF_SAY_DRAINED, e->bucket);
	return __real_transfer_step(t, e);
}

int __real_claims_say(struct claims *c, uint32_t engine, uint32_t bucket,
		      const struct digest *d);
int __wrap_claims_say(struct claims *c, uint32_t engine, uint32_t bucket,
		      const struct digest *d);
int __wrap_claims_say(struct claims *c, uint32_t engine, uint32_t bucket,
		      const struct digest *d)
{
	if (is_on(MU_ack_unchecked))
		return 0;
	return __real_claims_say(c, engine, bucket, d);
}

/* ---- admit ---- */

int __real_credit_finish(struct credit *c, struct credit_key k);
int __wrap_credit_finish(struct credit *c, struct credit_key k);
int __wrap_credit_finish(struct credit *c, struct credit_key k)
{
	if (is_on(MU_credit_not_fifo) && c->used)
		k = c->slot[c->head].key;
	return __real_credit_finish(c, k);
}

static struct credit_dim more(struct credit_dim d)
{
	if (d.limit) {
		d.limit++;
		d.free++;
	}
	return d;
}

bool __real_credit_has_room(const struct credit *c, uint64_t bytes,
			    bool exclusive);
bool __wrap_credit_has_room(const struct credit *c, uint64_t bytes,
			    bool exclusive);
bool __wrap_credit_has_room(const struct credit *c, uint64_t bytes,
			    bool exclusive)
{
	struct credit as = *c;

	if (is_on(MU_credit_one_more))
		as.buckets = more(c->buckets);
	return __real_credit_has_room(&as, bytes, exclusive);
}

int __real_credit_take(struct credit *c, struct credit_key k, uint64_t bytes,
		       bool exclusive);
int __wrap_credit_take(struct credit *c, struct credit_key k, uint64_t bytes,
		       bool exclusive);
int __wrap_credit_take(struct credit *c, struct credit_key k, uint64_t bytes,
		       bool exclusive)
{
	int rc;

	if (!is_on(MU_credit_one_more) || !c->buckets.limit)
		return __real_credit_take(c, k, bytes, exclusive);
	c->buckets = more(c->buckets);
	rc = __real_credit_take(c, k, bytes, exclusive);
	c->buckets.limit--;
	c->buckets.free--;
	return rc;
}

int __real_waves_init(struct waves *w, uint32_t staged, uint32_t engines,
		      int64_t limit);
int __wrap_waves_init(struct waves *w, uint32_t staged, uint32_t engines,
		      int64_t limit);
int __wrap_waves_init(struct waves *w, uint32_t staged, uint32_t engines,
		      int64_t limit)
{
	if (is_on(MU_wave_one_more) && limit > 0)
		limit++;
	return __real_waves_init(w, staged, engines, limit);
}

int __real_admit_step(struct admit *a, const struct admit_event *e);
int __wrap_admit_step(struct admit *a, const struct admit_event *e);
int __wrap_admit_step(struct admit *a, const struct admit_event *e)
{
	int rc = __real_admit_step(a, e);
	uint32_t first, count;

	if (!is_on(MU_wave_not_sealed) || a->state != ADM_SEAL)
		return rc;
	waves_get(&a->waves, a->wave, &first, &count);
	for (uint32_t i = first; i < first + count; i++)
		__real_admit_step(a, &(struct admit_event){ .on = ADM_EV_SEALED,
							    .engine = i });
	return rc;
}

uint32_t __real_admit_oversize(const struct plan_bucket *bucket,
			       uint32_t nbuckets, uint64_t max_bytes);
uint32_t __wrap_admit_oversize(const struct plan_bucket *bucket,
			       uint32_t nbuckets, uint64_t max_bytes);
uint32_t __wrap_admit_oversize(const struct plan_bucket *bucket,
			       uint32_t nbuckets, uint64_t max_bytes)
{
	if (is_on(MU_oversize_passes))
		return ID_NONE;
	return __real_admit_oversize(bucket, nbuckets, max_bytes);
}

int __real_admit_init(struct admit *a, const struct admit_limits *lim,
		      const struct plan_bucket *bucket, uint32_t nbuckets,
		      uint32_t staged, uint32_t engines);
int __wrap_admit_init(struct admit *a, const struct admit_limits *lim,
		      const struct plan_bucket *bucket, uint32_t nbuckets,
		      uint32_t staged, uint32_t engines);
int __wrap_admit_init(struct admit *a, const struct admit_limits *lim,
		      const struct plan_bucket *bucket, uint32_t nbuckets,
		      uint32_t staged, uint32_t engines)
{
	struct admit_limits as = *lim;

	if (is_on(MU_oversize_passes))
		as.bytes = 0;
	return __real_admit_init(a, &as, bucket, nbuckets, staged, engines);
}

/* ---- commit ---- */

int __real_receipt_check(const struct engine *e, const struct receipt_want *w);
int __wrap_receipt_check(const struct engine *e, const struct receipt_want *w);
int __wrap_receipt_check(const struct engine *e, const struct receipt_want *w)
{
	return is_on(MU_receipt_unchecked) ? 0 : __real_receipt_check(e, w);
}

static void forget_last(struct commit *c)
{
	for (unsigned i = 0; i < c->nacts; i++)
		if (c->act[i].type == CA_CANCEL && c->nengines > 1) {
			c->engine[c->nengines - 1].touched = false;
			c->engine[c->nengines - 1].home = true;
		}
}

int __real_commit_step(struct commit *c, const struct commit_event *e);
int __wrap_commit_step(struct commit *c, const struct commit_event *e);
int __wrap_commit_step(struct commit *c, const struct commit_event *e)
{
	int rc;

	rc = __real_commit_step(c, e);
	if (is_on(MU_abort_forgets_one))
		forget_last(c);
	return rc;
}

void __real_commit_init(struct commit *c, struct commit_engine *engine,
			uint32_t n, uint32_t min);
void __wrap_commit_init(struct commit *c, struct commit_engine *engine,
			uint32_t n, uint32_t min);
void __wrap_commit_init(struct commit *c, struct commit_engine *engine,
			uint32_t n, uint32_t min)
{
	__real_commit_init(c, engine, n, is_on(MU_min_engines_one) ? 1 : min);
}

int __real_commit_number(const struct commit_numbers *n, uint64_t *out);
int __wrap_commit_number(const struct commit_numbers *n, uint64_t *out);
int __wrap_commit_number(const struct commit_numbers *n, uint64_t *out)
{
	int rc = __real_commit_number(n, out);

	if (rc == 0 && is_on(MU_number_not_raised) && *out > 1)
		--*out;
	return rc;
}

uint8_t __real_commit_exit(const struct commit *c);
uint8_t __wrap_commit_exit(const struct commit *c);
uint8_t __wrap_commit_exit(const struct commit *c)
{
	uint8_t code = __real_commit_exit(c);

	if (code == 1 && is_on(MU_exit_says_published))
		return 0;
	if (code == 0 && is_on(MU_exit_says_aborted))
		return 1;
	return code;
}

/* What may not be sent before the decision, with the words of what may. */
static bool early(const struct m_ask_receipt *q, struct msg *m)
{
	if (is_on(MU_swap_early)) {
		m->type = M_swap;
		m->swap = (struct m_swap){ .fence = q->fence,
					   .boot = q->boot,
					   .version = q->version,
					   .token = 1 };
	} else if (is_on(MU_pause_early)) {
		m->type = M_pause;
		m->pause = (struct m_pause){ .fence = q->fence,
					     .boot = q->boot,
					     .token = 1,
					     .lease_ms = 1000 };
	} else if (is_on(MU_resume_early)) {
		m->type = M_resume;
		m->resume =
			(struct m_resume){ .fence = q->fence, .boot = q->boot };
	}
	return is_on(MU_swap_early) || is_on(MU_pause_early) ||
	       is_on(MU_resume_early);
}

int __real_fan_call(struct fan *f, uint32_t receiver, struct msg *m,
		    uint64_t tag, uint32_t replies, uint64_t deadline_ms);
int __wrap_fan_call(struct fan *f, uint32_t receiver, struct msg *m,
		    uint64_t tag, uint32_t replies, uint64_t deadline_ms);
int __wrap_fan_call(struct fan *f, uint32_t receiver, struct msg *m,
		    uint64_t tag, uint32_t replies, uint64_t deadline_ms)
{
	struct msg other = { 0 };

	if (m->type == M_ask_receipt && early(&m->ask_receipt, &other))
		__real_fan_call(f, receiver, &other, tag, 1, deadline_ms);
	return __real_fan_call(f, receiver, m, tag, replies, deadline_ms);
}

/* ---- the registry ---- */

int __real_registry_attention_write(struct registry *r, struct slice all);
int __wrap_registry_attention_write(struct registry *r, struct slice all);
int __wrap_registry_attention_write(struct registry *r, struct slice all)
{
	if (is_on(MU_attention_not_written) && all.n)
		return 0;
	return __real_registry_attention_write(r, all);
}

/* ---- the disk ---- */

static bool is_named(const struct node *n, const char *parent, const char *name)
{
	return n->name && strncmp(n->name, name, strlen(name)) == 0 &&
	       (!parent || (n->parent && n->parent->name &&
			    strcmp(n->parent->name, parent) == 0));
}

static bool has(const struct node *dir, const char *name)
{
	return dir->kind == N_DIR && disk_lookup(dir, name);
}

bool mutant_skips_sync(const struct node *n)
{
	const struct node *up = n->parent, *top = up ? up->parent : NULL;

	switch (sim.mutant) {
	case MU_decision_not_synced:
		return has(n, "decision");
	case MU_decision_torn:
		return is_named(n, NULL, ".tmp.decision");
	case MU_open_not_synced:
		return is_named(n, "reg", ".tmp.open");
	case MU_epoch_not_synced:
		return is_named(n, "reg", ".tmp.epoch");
	case MU_fence_not_synced:
		return is_named(n, NULL, ".tmp.fence");
	case MU_slot_not_synced:
		return n->kind == N_FILE && top && top->name &&
		       strcmp(top->name, "staging") == 0;
	case MU_versions_not_synced:
		return is_named(n, NULL, "versions");
	case MU_store_not_synced:
		return n->kind == N_DIR && up && up->name &&
		       strcmp(up->name, "store") == 0;
	default:
		return false;
	}
}

bool mutant_grants_leases(void)
{
	return is_on(MU_lease_always);
}
