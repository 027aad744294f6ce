#include "common/err.h"
#include "pipes/facts.h"
#include "pipes/run.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

/* Facts as they come over a link: kept and said again. */
static void keep_facts(struct slice in)
{
	static struct msg_arena arena;
	struct facts f = { 0 };
	struct msg m;

	while (in.n > 0) {
		struct slice frame = fuzz_part(&in);

		if (msg_unpack(&m, &arena, frame) < 0)
			continue;
		if (facts_is_fact(m.type))
			BUG_ON(facts_keep(&f, &m) < 0);
		else if (m.type == M_excluded)
			facts_drop_failed(&f, m.excluded.engine);
	}
	for (size_t i = 0; i < f.n; i++)
		BUG_ON(msg_unpack(&m, &arena, buf_slice(&f.v[i].frame)) < 0);
	facts_release(&f);
}

static void read_endpoint(struct run *r, struct slice in)
{
	char *endpoint = NULL;

	fuzz_file("plan.endpoint", in);
	if (run_lookup(r, STAGE_PLAN, &endpoint) >= 0)
		free(endpoint);
}

static void read_verdict(struct run *r, struct slice in)
{
	static struct msg_arena arena;
	static struct buf frame;
	struct msg m;

	fuzz_file("verdict", in);
	if (run_verdict_read(r, &m, &arena, &frame) > 0)
		BUG_ON(m.type != M_verdict);
}

/* The first byte says which file, or messages. */
void fuzz_rundir(struct slice in)
{
	struct run r = { .dirfd = fuzz_dir() };
	pid_t pid;

	switch (fuzz_number(&in, 1) % 4) {
	case 0:
		keep_facts(in);
		break;
	case 1:
		read_endpoint(&r, in);
		break;
	case 2:
		read_verdict(&r, in);
		break;
	default:
		fuzz_file("plan.1", in);
		run_is_alive(&r, STAGE_PLAN, &pid);
	}
}
