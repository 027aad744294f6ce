/* Runs tests/fsm/nccl.t; see there for the words. */
#include "tests/fsmrun.h"

#include "pipes/nccl_group.h"
#include "tests/fsmcover.h"

static const char *const act[NA_NACTS] = {
	[NA_ASK] = "ask",   [NA_ID] = "id",	    [NA_JOIN] = "join",
	[NA_CAST] = "cast", [NA_CLOSE] = "close",   [NA_ABORT] = "abort",
	[NA_DONE] = "done", [NA_BROKEN] = "broken",
};
static const char *const call[NC_N] = {
	[NC_JOIN] = "join", [NC_BEGIN] = "begin", [NC_LOAD] = "load",
	[NC_END] = "end",   [NC_LEAVE] = "leave",
};

static struct nccl_group g;

static void reset(void)
{
	nccl_group_init(&g, ENGINE_SGLANG, 1);
}

static void state(struct buf *out)
{
	buf_addf(out, "%s", nccl_group_table.states[g.state]);
}

static void add_acts(struct buf *out)
{
	for (unsigned i = 0; i < g.nacts; i++) {
		buf_addf(out, " %s", act[g.act[i]]);
		if (g.act[i] == NA_ASK)
			buf_addf(out, ":%s", call[g.call]);
	}
}

static bool event(char **words, size_t n, struct buf *out)
{
	unsigned ev = 0;

	if (strcmp(words[0], "group") == 0) {
		nccl_group_init(&g,
				fsm_arg(words, n, "kind", 0) ? ENGINE_VLLM
							     : ENGINE_SGLANG,
				(uint32_t)fsm_arg(words, n, "engines", 2));
		return true;
	}
	while (ev < NE_NEVENTS &&
	       strcmp(nccl_group_table.events[ev], words[0]) != 0)
		ev++;
	if (n != 1 || ev == NE_NEVENTS)
		return false;
	if (nccl_group_step(&g, (enum nccl_ev)ev) < 0)
		buf_addf(out, " refused");
	add_acts(out);
	return true;
}

static void last(void)
{
	fsm_all_taken(&nccl_group_table);
}

int main(void)
{
	static const struct fsm_script ops = { reset, state, event, last };
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/fsm/nccl.t", src ? src : ".");
	char *argv[] = { NULL, path };
	int rc = fsm_scripts(&ops, 2, argv);

	free(path);
	return rc;
}
