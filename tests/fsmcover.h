/*
 * fsmcover.h - every row of a machine's table must be taken by its scripts.
 *
 *	static void last(void)
 *	{
 *		fsm_all_taken(&commit_table);
 *	}
 *
 * For a program of one machine that is linked with --wrap=fsm_step.
 */
#ifndef WEIR_FSMCOVER_H
#define WEIR_FSMCOVER_H

#include "common/fsm.h"
#include "tests/tap.h"

#define FSM_ROWS_MAX 256

static bool fsm_taken[FSM_ROWS_MAX];

int __real_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);
int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);

int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event)
{
	int row = __real_fsm_step(t, state, machine, on, event);

	if (row >= 0 && row < FSM_ROWS_MAX)
		fsm_taken[row] = true;
	return row;
}

/* Names the rows that were not. */
static inline void fsm_all_taken(const struct fsm_table *t)
{
	size_t missing = 0;

	for (size_t i = 0; i < t->nedges; i++) {
		const struct fsm_edge *e = &t->edges[i];

		if (i < FSM_ROWS_MAX && fsm_taken[i])
			continue;
		missing++;
		printf("# not taken: %s %s%s -> %s\n", t->states[e->from],
		       t->events[e->on], e->when ? " ?" : "",
		       t->states[e->to]);
	}
	ok(missing == 0, "%s: %zu of %zu rows are taken", t->name,
	   t->nedges - missing, t->nedges);
}

#endif
