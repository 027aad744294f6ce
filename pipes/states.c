#include "pipes/states.h"
#include "common/fsm.h"
#include "pipes/admit.h"
#include "pipes/commit.h"
#include "pipes/engine.h"
#include "pipes/homing.h"
#include "pipes/nccl_group.h"
#include "pipes/supervise.h"
#include "pipes/transfer.h"

static const struct fsm_table *const machines[] = {
	&admit_table,	    &commit_table,   &engine_gate_table,
	&engine_slot_table, &homing_table,   &nccl_group_table,
	&supervise_table,   &transfer_table,
};

static void edge_text(struct buf *out, const struct fsm_table *t,
		      const struct fsm_edge *e)
{
	buf_addf(out, "%s %s %s%s -> %s", t->name, t->states[e->from],
		 t->events[e->on], e->when ? " ?" : "", t->states[e->to]);
	if (e->why)
		buf_addf(out, " (%s)", e->why);
	buf_addf(out, "\n");
}

void states_text(struct buf *out)
{
	for (size_t i = 0; i < COUNT(machines); i++)
		for (size_t k = 0; k < machines[i]->nedges; k++)
			edge_text(out, machines[i], &machines[i]->edges[k]);
}
