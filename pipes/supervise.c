#include "supervise.h"

#include "common/err.h"
#include "common/log.h"

static bool may_restart(const void *machine, const void *event)
{
	const struct supervised *p = machine;
	const struct supervisor *s = event;

	return !s->ending && p->restarts < SUPERVISE_TRIES;
}

static bool is_out_of_tries(const void *machine, const void *event)
{
	const struct supervised *p = machine;
	const struct supervisor *s = event;

	return !s->ending && p->restarts >= SUPERVISE_TRIES;
}

static bool is_ending(const void *machine, const void *event)
{
	(void)machine;
	return ((const struct supervisor *)event)->ending;
}

static void wait_longer(void *machine, const void *event)
{
	struct supervised *p = machine;

	(void)event;
	p->pause_ms = p->restarts ? (uint32_t)SUPERVISE_PAUSE_MS
					    << (p->restarts - 1)
				  : 0;
	p->restarts++;
	p->action = SUP_WAIT;
}

static void give_up(void *machine, const void *event)
{
	(void)event;
	((struct supervised *)machine)->action = SUP_TERMINATE;
}

static void start(void *machine, const void *event)
{
	(void)event;
	((struct supervised *)machine)->action = SUP_START;
}

static const struct fsm_edge edges[] = {
	{ SUP_RUNNING, SUP_EXIT_OVER, NULL, NULL, SUP_ENDED,
	  "it has nothing left to do, or a newer instance does it" },
	{ SUP_RUNNING, SUP_EXIT_FINAL, is_ending, NULL, SUP_ENDED,
	  "the run has its verdict, or was given up" },
	{ SUP_RUNNING, SUP_EXIT_FINAL, NULL, give_up, SUP_ENDED, NULL },
	{ SUP_RUNNING, SUP_EXIT_AGAIN, may_restart, wait_longer, SUP_PAUSING,
	  NULL },
	{ SUP_RUNNING, SUP_EXIT_AGAIN, is_out_of_tries, give_up, SUP_ENDED,
	  NULL },
	{ SUP_RUNNING, SUP_EXIT_AGAIN, is_ending, NULL, SUP_ENDED,
	  "the run has its verdict, or was given up" },
	{ SUP_PAUSING, SUP_DUE, is_ending, NULL, SUP_ENDED,
	  "the run has its verdict, or was given up" },
	{ SUP_PAUSING, SUP_DUE, NULL, start, SUP_RUNNING, NULL },
};

static const char *const state_names[] = {
	[SUP_RUNNING] = "running",
	[SUP_PAUSING] = "pausing",
	[SUP_ENDED] = "ended",
};
_Static_assert(COUNT(state_names) == SUP_NSTATES, "name every state");

static const char *const event_names[] = {
	[SUP_EXIT_OVER] = "exit-over",
	[SUP_EXIT_FINAL] = "exit-final",
	[SUP_EXIT_AGAIN] = "exit-again",
	[SUP_DUE] = "due",
};
_Static_assert(COUNT(event_names) == SUP_NEVENTS, "name every event");

const struct fsm_table supervise_table = {
	.name = "supervise",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = state_names,
	.events = event_names,
	.nstates = SUP_NSTATES,
	.nevents = SUP_NEVENTS,
};

void supervisor_init(struct supervisor *s)
{
	*s = (struct supervisor){ 0 };
}

static enum sup_action step(struct supervisor *s, enum stage_id id,
			    enum sup_event on)
{
	struct supervised *p = &s->stage[id];

	p->action = SUP_NOTHING;
	if (fsm_step(&supervise_table, &p->state, p, (uint8_t)on, s) < 0)
		BUG("stage %u: event %s in state %s", (unsigned)id,
		    event_names[on], state_names[p->state]);
	if (p->action == SUP_TERMINATE)
		s->ending = true;
	return p->action;
}

static enum sup_event event_of(int code, bool signalled)
{
	if (signalled || code == err_exit_code(-E_AGAIN) ||
	    code == err_exit_code(-E_NOMEM))
		return SUP_EXIT_AGAIN;
	if (code == 0 || code == err_exit_code(-E_FENCED))
		return SUP_EXIT_OVER;
	return SUP_EXIT_FINAL;
}

/* Nobody knows what a killed one would have said, nor what was touched before
 * this one. */
static bool is_unknown(const struct supervised *p, bool signalled)
{
	return signalled || p->restarts > 0;
}

enum sup_action supervisor_exit(struct supervisor *s, enum stage_id id,
				int code, bool signalled)
{
	struct supervised *p = &s->stage[id];

	p->code = is_unknown(p, signalled) ? err_exit_code(-E_AGAIN) : code;
	return step(s, id, event_of(code, signalled));
}

enum sup_action supervisor_due(struct supervisor *s, enum stage_id id)
{
	return step(s, id, SUP_DUE);
}

void supervisor_ending(struct supervisor *s)
{
	s->ending = true;
}

bool supervisor_is_done(const struct supervisor *s)
{
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		if (s->stage[id].state != SUP_ENDED)
			return false;
	}
	return true;
}

int supervisor_code(const struct supervisor *s)
{
	int other = 0;

	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		int code = s->stage[id].code;

		if (code == 0)
			continue;
		if (code < 128 && code != err_exit_code(-E_AGAIN))
			return code;
		other = other ? other : code;
	}
	return other;
}
