#include "pipes/nccl_group.h"

#include <assert.h>

static void add(struct nccl_group *g, enum nccl_act a)
{
	g->act[g->nacts++] = a;
}

static void ask(struct nccl_group *g, enum nccl_call call)
{
	g->call = call;
	g->waiting = g->engines;
	add(g, NA_ASK);
}

static void join(struct nccl_group *g)
{
	g->asks = true;
	add(g, NA_JOIN);
}

/* ---- rows ---- */

static void form(void *m, const void *event)
{
	struct nccl_group *g = m;

	(void)event;
	ask(g, NC_JOIN);
	if (!g->lazy)
		join(g);
}

static void begin(void *m, const void *event)
{
	(void)event;
	ask(m, NC_BEGIN);
}

/* The engines make the first one's communicator when they take it. */
static void bucket(void *m, const void *event)
{
	struct nccl_group *g = m;

	(void)event;
	ask(g, NC_LOAD);
	if (!g->asks)
		join(g);
	add(g, NA_CAST);
	g->casting = true;
}

static void end(void *m, const void *event)
{
	(void)event;
	ask(m, NC_END);
}

static void leave(void *m, const void *event)
{
	struct nccl_group *g = m;

	(void)event;
	if (g->asks)
		add(g, NA_ABORT);
	if (!g->joined)
		add(g, NA_CLOSE);
	ask(g, NC_LEAVE);
}

static void give_id(void *m, const void *event)
{
	(void)event;
	((struct nccl_group *)m)->has_id = true;
	add(m, NA_ID);
}

static void note_answer(void *m, const void *event)
{
	(void)event;
	((struct nccl_group *)m)->waiting--;
}

static void note_joined(void *m, const void *event)
{
	(void)event;
	((struct nccl_group *)m)->joined = true;
	add(m, NA_CLOSE);
}

static void note_moved(void *m, const void *event)
{
	(void)event;
	((struct nccl_group *)m)->casting = false;
}

static void answered(void *m, const void *event)
{
	note_answer(m, event);
	add(m, NA_DONE);
}

static void joined_last(void *m, const void *event)
{
	note_joined(m, event);
	add(m, NA_DONE);
}

static void moved_last(void *m, const void *event)
{
	note_moved(m, event);
	add(m, NA_DONE);
}

static void fail(void *m, const void *event)
{
	struct nccl_group *g = m;

	(void)event;
	if (g->asks)
		add(g, NA_ABORT);
	if (!g->joined)
		add(g, NA_CLOSE);
	add(g, NA_BROKEN);
}

/* ---- conditions ---- */

/* All that is missing is this one answer. */
static bool is_last_answer(const void *m, const void *event)
{
	const struct nccl_group *g = m;

	(void)event;
	return g->waiting == 1 && !g->casting && g->asks == g->joined;
}

static bool has_answers(const void *m, const void *event)
{
	(void)event;
	return ((const struct nccl_group *)m)->waiting > 0;
}

static bool may_join(const void *m, const void *event)
{
	const struct nccl_group *g = m;

	(void)event;
	return g->asks && !g->joined;
}

static bool joins_last(const void *m, const void *event)
{
	const struct nccl_group *g = m;

	return may_join(m, event) && g->waiting == 0 && !g->casting;
}

static bool may_move(const void *m, const void *event)
{
	const struct nccl_group *g = m;

	(void)event;
	return g->joined && g->casting;
}

static bool moves_last(const void *m, const void *event)
{
	return may_move(m, event) && !has_answers(m, event);
}

static bool has_no_id(const void *m, const void *event)
{
	(void)event;
	return !((const struct nccl_group *)m)->has_id;
}

#define LATE "the id is in the store"
#define OVER "the group is broken"

/* clang-format off */
static const struct fsm_edge edges[] = {
	{ NS_NEW,       NE_FORM,   NULL, form, NS_FORMING, NULL },

	{ NS_FORMING,   NE_WANTED, has_no_id, give_id, NS_FORMING, NULL },
	{ NS_FORMING,   NE_WANTED, NULL, NULL, NS_FORMING, LATE },
	{ NS_FORMING,   NE_ANSWER, is_last_answer, answered, NS_IDLE, NULL },
	{ NS_FORMING,   NE_ANSWER, has_answers, note_answer, NS_FORMING, NULL },
	{ NS_FORMING,   NE_JOINED, joins_last, joined_last, NS_IDLE, NULL },
	{ NS_FORMING,   NE_JOINED, may_join, note_joined, NS_FORMING, NULL },
	{ NS_FORMING,   NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_IDLE,      NE_BEGIN,  NULL, begin, NS_BEGINNING, NULL },
	{ NS_IDLE,      NE_LEAVE,  NULL, leave, NS_LEAVING, NULL },
	{ NS_IDLE,      NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_BEGINNING, NE_ANSWER, is_last_answer, answered, NS_OPEN, NULL },
	{ NS_BEGINNING, NE_ANSWER, has_answers, note_answer, NS_BEGINNING, NULL },
	{ NS_BEGINNING, NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_OPEN,      NE_BUCKET, NULL, bucket, NS_LOADING, NULL },
	{ NS_OPEN,      NE_END,    NULL, end, NS_ENDING, NULL },
	{ NS_OPEN,      NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_LOADING,   NE_WANTED, has_no_id, give_id, NS_LOADING, NULL },
	{ NS_LOADING,   NE_WANTED, NULL, NULL, NS_LOADING, LATE },
	{ NS_LOADING,   NE_JOINED, may_join, note_joined, NS_LOADING, NULL },
	{ NS_LOADING,   NE_ANSWER, is_last_answer, answered, NS_OPEN, NULL },
	{ NS_LOADING,   NE_ANSWER, has_answers, note_answer, NS_LOADING, NULL },
	{ NS_LOADING,   NE_MOVED,  moves_last, moved_last, NS_OPEN, NULL },
	{ NS_LOADING,   NE_MOVED,  may_move, note_moved, NS_LOADING, NULL },
	{ NS_LOADING,   NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_ENDING,    NE_ANSWER, is_last_answer, answered, NS_IDLE, NULL },
	{ NS_ENDING,    NE_ANSWER, has_answers, note_answer, NS_ENDING, NULL },
	{ NS_ENDING,    NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_LEAVING,   NE_ANSWER, is_last_answer, answered, NS_GONE, NULL },
	{ NS_LEAVING,   NE_ANSWER, has_answers, note_answer, NS_LEAVING, NULL },
	{ NS_LEAVING,   NE_FAILED, NULL, fail, NS_BROKEN, NULL },

	{ NS_BROKEN,    NE_WANTED, NULL, NULL, NS_BROKEN, OVER },
	{ NS_BROKEN,    NE_ANSWER, NULL, NULL, NS_BROKEN, OVER },
	{ NS_BROKEN,    NE_JOINED, NULL, NULL, NS_BROKEN, OVER },
	{ NS_BROKEN,    NE_MOVED,  NULL, NULL, NS_BROKEN, OVER },
	{ NS_BROKEN,    NE_FAILED, NULL, NULL, NS_BROKEN, OVER },
};
/* clang-format on */

static const char *const states[] = {
	[NS_NEW] = "new",	[NS_FORMING] = "forming",
	[NS_IDLE] = "idle",	[NS_BEGINNING] = "beginning",
	[NS_OPEN] = "open",	[NS_LOADING] = "loading",
	[NS_ENDING] = "ending", [NS_LEAVING] = "leaving",
	[NS_GONE] = "gone",	[NS_BROKEN] = "broken",
};
static_assert(COUNT(states) == NS_NSTATES, "name every state");

static const char *const events[] = {
	[NE_FORM] = "form",	[NE_BEGIN] = "begin",	[NE_BUCKET] = "bucket",
	[NE_END] = "end",	[NE_LEAVE] = "leave",	[NE_WANTED] = "wanted",
	[NE_ANSWER] = "answer", [NE_JOINED] = "joined", [NE_MOVED] = "moved",
	[NE_FAILED] = "failed",
};
static_assert(COUNT(events) == NE_NEVENTS, "name every event");

const struct fsm_table nccl_group_table = {
	.name = "nccl-group",
	.edges = edges,
	.nedges = COUNT(edges),
	.states = states,
	.events = events,
	.nstates = NS_NSTATES,
	.nevents = NE_NEVENTS,
};

void nccl_group_init(struct nccl_group *g, enum engine_kind kind,
		     uint32_t engines)
{
	*g = (struct nccl_group){ .lazy = kind == ENGINE_SGLANG,
				  .engines = engines };
}

int nccl_group_step(struct nccl_group *g, enum nccl_ev ev)
{
	int row;

	g->nacts = 0;
	row = fsm_step(&nccl_group_table, &g->state, g, (uint8_t)ev, NULL);
	return row < 0 ? row : 0;
}
