/*
 * fsmcover.h - every row of a machine's table must be taken by its scripts.
 *
 *	static void last(void)
 *	{
 *		fsm_all_taken(&commit_table);
 *	}
 *
 * For a program that is linked with --wrap=fsm_step.
 */
#ifndef WEIR_FSMCOVER_H
#define WEIR_FSMCOVER_H

#include "common/fsm.h"
#include "tests/tap.h"

#include <stdlib.h>

#define FSM_ROWS_MAX 256
#define FSM_TABLES_MAX 2

static struct {
	const struct fsm_table *table;
	bool row[FSM_ROWS_MAX];
} fsm_taken[FSM_TABLES_MAX];

int __real_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);
int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);

/* Of this table: the rows that were taken. */
static inline bool *fsm_rows(const struct fsm_table *t)
{
	size_t i = 0;

	while (fsm_taken[i].table && fsm_taken[i].table != t)
		if (++i == FSM_TABLES_MAX)
			abort();
	fsm_taken[i].table = t;
	return fsm_taken[i].row;
}

int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event)
{
	int row = __real_fsm_step(t, state, machine, on, event);

	if (row >= 0 && row < FSM_ROWS_MAX)
		fsm_rows(t)[row] = true;
	return row;
}

/* Names the rows that were not. */
static inline void fsm_all_taken(const struct fsm_table *t)
{
	const bool *taken = fsm_rows(t);
	size_t missing = 0;

	for (size_t i = 0; i < t->nedges; i++) {
		const struct fsm_edge *e = &t->edges[i];

		if (i < FSM_ROWS_MAX && taken[i])
			continue;
		missing++;
		printf("# not taken: %s %s%s -> %s%s%s\n", t->states[e->from],
		       t->events[e->on], e->when ? " ?" : "",
		       t->states[e->to], e->why ? ": " : "",
		       e->why ? e->why : "");
	}
	ok(missing == 0, "%s: %zu of %zu rows are taken", t->name,
	   t->nedges - missing, t->nedges);
}

#endif
