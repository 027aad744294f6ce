/* The wire of weir-move-nccl: a bucket is one broadcast. */
#include "pipes/move_shell.h"

#include "common/err.h"
#include "common/log.h"
#include "common/nccl.h"

#include <stdlib.h>
#include <string.h>

static int state(const struct group *g)
{
	return nccl_state(g->comm);
}

/* ---- the first bytes of a group ---- */

/* The same at all ranks, and another for each group and each run. */
static void fill_probe(const struct group *g, char *p)
{
	struct digest d;

	for (size_t i = 0; i < MOVE_PROBE; i += DIGEST_LEN) {
		const uint64_t at = i;
		struct digest_state s;

		digest_begin(&s);
		digest_add(&s, g->id.b, NCCL_ID_LEN);
		digest_add(&s, &g->joined, sizeof(g->joined));
		digest_add(&s, &at, sizeof(at));
		digest_end(&s, &d);
		memcpy(p + i, d.b, DIGEST_LEN);
	}
}

static bool probe_is_right(const struct move *m, const struct group *g)
{
	char *want = xmalloc(MOVE_PROBE);
	bool is_right;

	fill_probe(g, want);
	is_right = memcmp(want, m->probe, MOVE_PROBE) == 0;
	free(want);
	return is_right;
}

static int open_probe(struct move *m)
{
	int rc = 0;

	if (!m->probe)
		rc = move_host_alloc(m, &m->probe, MOVE_PROBE,
				     &m->probe_is_pinned);
	if (rc == 0 && !m->probe_memory)
		rc = gpu_alloc(&m->probe_memory, MOVE_PROBE);
	return rc;
}

static void probed(void *arg)
{
	struct group *g = arg;
	struct move *m = g->probed.m;

	if (g->state != GROUP_PROBING)
		return;
	if (!g->sums && !probe_is_right(m, g)) {
		move_end_group(m, g, E_IO,
			       "the group formed, but other bytes came than "
			       "were sent");
		return;
	}
	move_formed(m, g);
}

static int queue_probe(struct move *m, struct group *g)
{
	int rc = 0;

	if (g->rank == 0) {
		fill_probe(g, m->probe);
		rc = gpu_copy(g->stream, m->probe_memory, m->probe, MOVE_PROBE);
	}
	if (rc == 0)
		rc = nccl_broadcast(g->comm, m->probe_memory, MOVE_PROBE,
				    g->stream);
	if (rc == 0 && g->rank != 0)
		rc = gpu_copy(g->stream, m->probe, m->probe_memory, MOVE_PROBE);
	return rc < 0 ? rc
		      : move_when_done(m, g->stream, &g->probed, probed, g);
}

/* Whatever the sum is: that it came is what is asked. */
static int queue_sum(struct move *m, struct group *g)
{
	int rc;

	memset(m->probe, 0, sizeof(float));
	rc = gpu_copy(g->stream, m->probe_memory, m->probe, sizeof(float));
	if (rc == 0)
		rc = nccl_sum_float(g->comm, m->probe_memory, g->stream);
	return rc < 0 ? rc
		      : move_when_done(m, g->stream, &g->probed, probed, g);
}

static int prove(struct move *m, struct group *g)
{
	if (g->is_foreign && !g->sums) {
		move_formed(m, g);
		return 0;
	}
	g->state = GROUP_PROBING;
	return g->sums ? queue_sum(m, g) : queue_probe(m, g);
}

/* ---- a group ---- */

static int begin(struct move *m, struct group *g)
{
	int rc = g->rank == 0 ? nccl_new_id(&g->id) : 0;

	if (rc == 0)
		rc = open_probe(m);
	if (rc == 0)
		rc = move_open_staging(m, g->room);
	if (rc == 0)
		rc = nccl_begin(&g->comm, &g->id, g->rank, g->world);
	return rc;
}

static void end(struct move *m, struct group *g)
{
	(void)m;
	if (g->comm)
		nccl_end(g->comm);
	g->comm = NULL;
}

/* ---- the broadcast ---- */

static void flown(void *arg)
{
	struct cast *c = arg;
	struct move *m = c->flown.m;

	/* Broken, it ends early, and what it has brought is not all. */
	if (c->group->state == GROUP_FORMED && nccl_state(c->group->comm) < 0)
		move_end_group(m, c->group, E_UNAVAIL, log_cause());
	c->group->flying--;
	if (c->group->rank == 0 || c->npieces == 0 || c->is_orphan)
		move_finish(m, c);
	else
		c->state = CAST_UNLOADS;
}

static int launch(struct move *m, struct cast *c)
{
	struct group *g = c->group;
	int rc = gpu_stream_after(g->stream, m->copies);

	c->from = c->staging->memory;
	if (rc == 0)
		rc = nccl_broadcast(g->comm, c->staging->memory, c->bytes,
				    g->stream);
	if (rc < 0)
		return rc;
	c->state = CAST_FLIES;
	rc = move_when_done(m, g->stream, &c->flown, flown, c);
	if (rc < 0)
		return rc;
	g->flying++;
	if (g->rank == 0)
		move_launched(m, c);
	return 0;
}

const struct move_wire move_wire_nccl = {
	.version = nccl_version,
	.begin = begin,
	.state = state,
	.prove = prove,
	.launch = launch,
	.end = end,
};
