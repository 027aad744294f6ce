/* The wire of weir-move-ipc: a bucket is in rank 0's staging, and the others
 * copy it from there. */
#include "pipes/move_shell.h"

#include "common/err.h"
#include "common/log.h"

#include <assert.h>
#include <string.h>

static_assert(NCCL_ID_LEN == MOVE_STAGING * GPU_HANDLE_LEN,
	      "an id has room for the handle of each buffer");

static const unsigned char no_handle[GPU_HANDLE_LEN];

static int no_library(uint32_t *library)
{
	*library = 0;
	return 0;
}

/* ---- a group ---- */

static unsigned char *handle_of(struct group *g, uint32_t buffer)
{
	return (unsigned char *)g->id.b + buffer * GPU_HANDLE_LEN;
}

/* One export for each reader: as many as it opens. */
static int share(struct move *m, struct group *g)
{
	int rc = move_open_staging(m, g->room);

	for (uint32_t i = 0; i < m->nstagings && rc == 0; i++)
		rc = gpu_share(m->staging[i].memory, handle_of(g, i));
	return rc;
}

static int map(struct move *m, struct group *g)
{
	int rc = move_open_ring(m, g->room);

	for (uint32_t i = 0; i < MOVE_STAGING && rc == 0; i++)
		if (memcmp(handle_of(g, i), no_handle, GPU_HANDLE_LEN) != 0)
			rc = gpu_map(&g->mapped[i], handle_of(g, i));
	return rc;
}

static int begin(struct move *m, struct group *g)
{
	return g->rank == 0 ? share(m, g) : map(m, g);
}

static int state(const struct group *g)
{
	(void)g;
	return 1;
}

/* That it could be mapped is all that there is to know. */
static int prove(struct move *m, struct group *g)
{
	move_formed(m, g);
	return 0;
}

/* Copies that are still on their way read it. */
static void end(struct move *m, struct group *g)
{
	int rc = g->rank > 0 ? gpu_stream_wait(m->copies) : 0;

	for (uint32_t i = 0; i < MOVE_STAGING; i++) {
		if (g->mapped[i] && rc == 0)
			rc = gpu_unmap(g->mapped[i]);
		g->mapped[i] = NULL;
	}
	if (rc < 0)
		move_give_up(m, rc);
}

/* ---- a bucket ---- */

/* Now, and not before, may others read it. */
static void loaded(void *arg)
{
	struct cast *c = arg;
	struct move *m = c->flown.m;

	c->state = CAST_HELD;
	if (c->is_orphan)
		move_finish(m, c);
	else
		move_launched(m, c);
}

static int offer_to_others(struct move *m, struct cast *c)
{
	c->state = CAST_FLIES;
	c->buffer = (uint8_t)(c->staging - m->staging);
	return move_when_done(m, m->copies, &c->flown, loaded, c);
}

static int launch(struct move *m, struct cast *c)
{
	if (c->group->rank == 0)
		return offer_to_others(m, c);
	if (c->npieces == 0) {
		move_finish(m, c);
		return 0;
	}
	c->from = c->group->mapped[c->buffer];
	c->state = CAST_UNLOADS;
	return 0;
}

const struct move_wire move_wire_ipc = {
	.keeps_ids = true,
	.version = no_library,
	.begin = begin,
	.state = state,
	.prove = prove,
	.launch = launch,
	.end = end,
};
