#include "pipes/transfer.h"

#include <stdlib.h>
#include <string.h>

static void make_slots(struct transfer *t)
{
	t->nslots =
		t->plan->nbuckets < GRANTS_MAX ? t->plan->nbuckets : GRANTS_MAX;
	t->grant = xcalloc(t->nslots, sizeof(*t->grant));
	for (uint32_t i = 0; i < t->nslots; i++) {
		t->grant[i].acked = xcalloc(t->nworkers / 8 + 1, 1);
		t->grant[i].moved = xcalloc(t->plan->nreceivers / 8 + 1, 1);
	}
}

void transfer_init(struct transfer *t, const struct plan *plan, bool restarted)
{
	uint32_t n = plan->nbuckets;

	*t = (struct transfer){ .plan = plan,
				.restarted = restarted,
				.waiting = plan->nengines };
	t->row = n / 8 + 1;
	t->engine = xcalloc(plan->nengines, sizeof(*t->engine));
	for (uint32_t e = 0; e < plan->nengines; e++) {
		t->engine[e].unanswered = plan->engine[e].receivers;
		t->engine[e].first_worker = t->nworkers;
		t->nworkers += plan->engine[e].workers;
	}
	make_slots(t);
	t->slot_of = xcalloc(n, sizeof(*t->slot_of));
	t->held = xcalloc(plan->nengines, t->row);
	claims_init(&t->claims, plan->nengines, n * plan->nranks);
	t->staged = xcalloc(t->row, 1);
	t->kept = xcalloc(plan->nreceivers / 8 + 1, 1);
}

void transfer_set_whole(struct transfer *t)
{
	t->whole = true;
	memset(t->held, 0xff, t->plan->nengines * t->row);
}

void transfer_release(struct transfer *t)
{
	for (uint32_t i = 0; i < t->nslots; i++) {
		free(t->grant[i].acked);
		free(t->grant[i].moved);
	}
	free(t->grant);
	free(t->engine);
	free(t->slot_of);
	free(t->held);
	free(t->staged);
	free(t->kept);
	claims_release(&t->claims);
	*t = (struct transfer){ 0 };
}

uint32_t transfer_receiving(const struct transfer *t)
{
	uint32_t n = 0;

	for (uint32_t e = 0; e < t->plan->nengines; e++)
		n += !t->engine[e].excluded && !t->engine[e].kept;
	return n;
}

static bool range_is_in(uint32_t first, uint32_t count, uint32_t n)
{
	return count && first < n && count <= n - first;
}

bool transfer_knows(const struct transfer *t, const struct xf_event *e)
{
	const struct plan *p = t->plan;

	switch (e->on) {
	case XF_EV_HELD:
		return e->receiver < p->nreceivers && e->count == p->nbuckets;
	case XF_EV_FINISHED:
		return e->receiver < p->nreceivers;
	case XF_EV_MOVED:
	case XF_EV_ACK:
		return e->receiver < p->nreceivers && e->bucket < p->nbuckets;
	case XF_EV_READY:
		return e->bucket < p->nbuckets;
	case XF_EV_DIGEST:
		return e->bucket < p->nbuckets && e->rank < p->nranks;
	case XF_EV_GRANT:
		return e->bucket < p->nbuckets &&
		       range_is_in(e->first, e->count, p->nengines);
	case XF_EV_SEAL:
		return range_is_in(e->first, e->count, p->nengines);
	case XF_EV_EXCLUDE:
	case XF_EV_SEVERED:
		return e->engine < p->nengines;
	case XF_EV_FAULT:
		return e->engine == ID_NONE || e->engine < p->nengines;
	default:
		return true;
	}
}
