/*
 * fsm.h - edge tables: what a machine does is a list of rows, and what is
 * not in the list is refused.
 *
 *	from, on -> do -> to
 *
 * The first row whose state and event match and whose `when` (NULL: always)
 * holds is taken.  A row may keep the state by naming it as `to`.  A row
 * without `act` drops the event; `why` says why.  Pure.
 */
#ifndef WEIR_FSM_H
#define WEIR_FSM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fsm_edge {
	uint8_t from, on;
	bool (*when)(const void *machine, const void *event);
	void (*act)(void *machine, const void *event);
	uint8_t to;
	const char *why;
};

struct fsm_table {
	const char *name;			/* "admit" */
	const struct fsm_edge *edges;
	size_t nedges;
	const char *const *states, *const *events;	/* names */
	uint8_t nstates, nevents;
};

/* Takes one event: *state moves, the row's act runs *after* it has moved.
 * Returns the row's index, or -E_PROTO (nothing happened). */
int fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
	     uint8_t on, const void *event);

#endif
