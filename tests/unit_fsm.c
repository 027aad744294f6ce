#include "common/buf.h"
#include "common/err.h"
#include "common/fsm.h"
#include "tests/tap.h"

enum { IDLE, BUSY, NSTATE };
enum { GO, STOP, NEVENT };

struct machine {
	uint8_t state;
	int done;
	uint8_t seen; /* the state that the action met */
};

static bool is_large(const void *machine, const void *event)
{
	(void)machine;
	return *(const int *)event > 9;
}

static void work(void *machine, const void *event)
{
	struct machine *m = machine;

	m->done += *(const int *)event;
	m->seen = m->state;
}

static const char *const states[] = { "idle", "busy" };
static const char *const events[] = { "go", "stop" };
static const struct fsm_edge edges[] = {
	{ IDLE, GO, is_large, NULL, IDLE, "too large" },
	{ IDLE, GO, NULL, work, BUSY, NULL },
	{ BUSY, GO, is_large, work, BUSY, NULL },
	{ BUSY, STOP, NULL, NULL, IDLE, "nothing to do" },
};
static const struct fsm_table table = {
	.name = "test",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = states,
	.events = events,
	.nstates = NSTATE,
	.nevents = NEVENT,
};

static int step(struct machine *m, uint8_t on, int value)
{
	return fsm_step(&table, &m->state, m, on, &value);
}

int main(void)
{
	struct machine m = { .state = IDLE };

	eq_i64(step(&m, STOP, 0), -E_PROTO, "what has no row is refused");
	eq_u64(m.state, IDLE, "and changes nothing");
	eq_i64(step(&m, GO, 10), 0, "the first row whose condition holds");
	ok(m.done == 0 && m.state == IDLE, "without an action: dropped");
	eq_i64(step(&m, GO, 3), 1, "else the next one");
	ok(m.done == 3 && m.state == BUSY, "which acts and moves");
	eq_u64(m.seen, BUSY, "the action runs after the move");
	eq_i64(step(&m, GO, 3), -E_PROTO, "no row whose condition holds");
	ok(m.done == 3 && m.state == BUSY, "is refused as well");
	eq_i64(step(&m, GO, 10), 2, "a row may keep its state");
	eq_i64(step(&m, STOP, 0), 3, "a row may only move");
	ok(m.done == 13 && m.state == IDLE, "to where it says");
	return tap_done();
}
