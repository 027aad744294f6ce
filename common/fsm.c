#include "fsm.h"
#include "err.h"

static bool matches(const struct fsm_edge *e, uint8_t state, uint8_t on,
		    const void *machine, const void *event)
{
	return e->from == state && e->on == on &&
	       (!e->when || e->when(machine, event));
}

int fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
	     uint8_t on, const void *event)
{
	for (size_t i = 0; i < t->nedges; i++) {
		const struct fsm_edge *e = &t->edges[i];

		if (!matches(e, *state, on, machine, event))
			continue;
		*state = e->to;
		if (e->act)
			e->act(machine, event);
		return (int)i;
	}
	return -E_PROTO;
}
