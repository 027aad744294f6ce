/*
 * Servers that pull: they bring a copy of their own up to the version while
 * they serve, and load that at the barrier.
 *
 * A pull is part of an engine's receipt, and waves bound pulls as they bound
 * loads.  A copy knows versions by number alone, so that a number which may
 * have been pulled is not used again; what follows a number that was not
 * decided is whole, as a copy that has it is no base of a delta.
 */
#include "pipes/commit_io.h"

static bool pulls(const struct commit_io *c, uint32_t i)
{
	return !c->m.engine[i].out && engine_pulls(c->engine[i]);
}

bool commit_has_pulls(const struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (pulls(c, i))
			return true;
	return false;
}

static void ask(struct commit_io *c, uint32_t i, int64_t ms)
{
	struct engine_ask a = { .call = EC_RECEIPT, .ms = ms };

	engine_ask(c->engine[i], &a);
}

/* The next engines that pull, as many as may load at a time. */
static void pull_on(struct commit_io *c)
{
	uint32_t most = c->m.groups ? c->m.groups : c->m.nengines;

	for (; c->pull_next < c->m.nengines && c->pulling < most;
	     c->pull_next++) {
		if (!pulls(c, c->pull_next))
			continue;
		c->pulling++;
		ask(c, c->pull_next, c->conf->load_timeout_ms);
	}
}

void commit_ask_receipts(struct commit_io *c)
{
	int rc = commit_has_pulls(c) ? commit_learn_groups(c) : 0;

	if (rc < 0) {
		commit_fail(c, rc);
		return;
	}
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (!c->m.engine[i].out && !pulls(c, i))
			ask(c, i, c->conf->engine_timeout_ms);
	c->pull_next = c->pulling = 0;
	pull_on(c);
}

/* The wave is complete, and nothing has failed. */
void commit_pulled(struct commit_io *c, const struct engine *e)
{
	if (!engine_pulls(e) || c->pulling == 0 || --c->pulling > 0)
		return;
	if (c->m.state == CS_RECEIPT)
		pull_on(c);
}
