/* Groups that outlive a run: they rest, and are joined again by their token. */
#include "pipes/move_shell.h"

#include "common/err.h"
#include "common/log.h"
#include "common/watchdog.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void token_of(const struct group *g, struct digest *token)
{
	digest_of(g->id.b, NCCL_ID_LEN, token);
}

/* ---- the end of a run ---- */

/* A group that has failed says nothing of what its others still do. */
static bool is_quiet(const struct move *m)
{
	if (m->cast || m->forming)
		return false;
	for (uint32_t i = 0; i < m->ngroups; i++)
		if (m->group[i]->state == GROUP_OVER)
			return false;
	return true;
}

static void close_files(struct move *m)
{
	while (m->nfiles > 0) {
		int fd = m->file[--m->nfiles];

		if (fd >= 0)
			close(fd);
	}
}

static void drop_resting(struct move *m)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < m->ngroups; i++) {
		struct group *g = m->group[i];

		if (g->state != GROUP_RESTS) {
			m->group[kept++] = g;
			continue;
		}
		move_let_go(m, g);
		free(g);
	}
	m->ngroups = kept;
}

/* Numbers of groups, of waves and of buckets are each run's own. */
static void put_to_rest(struct move *m)
{
	for (uint32_t i = 0; i < m->ngroups; i++) {
		m->group[i]->state = GROUP_RESTS;
		m->group[i]->number = 0;
	}
	for (uint32_t i = 0; i < m->nstagings; i++)
		m->staging[i].bucket = ID_NONE;
}

void move_rest(struct move *m, uint64_t seq)
{
	struct msg reply = { .type = M_rested, .rested = { .seq = seq } };

	if (m->wire->keeps_ids || !is_quiet(m)) {
		move_refuse(m, seq, E_AGAIN, ID_NONE,
			    "its groups cannot be kept");
		return;
	}
	close_files(m);
	/* What this run had no use for, the next will have none for. */
	drop_resting(m);
	put_to_rest(m);
	move_send(m, &reply);
}

/* ---- the next one ---- */

void move_make_room(struct move *m, uint64_t room)
{
	if (room <= m->room)
		return;
	drop_resting(m);
	watchdog_set("the end of the staging", MOVE_END_MS);
	while (m->nstagings > 0)
		gpu_free(m->staging[--m->nstagings].memory);
	watchdog_clear();
	m->room = room;
}

uint32_t move_list_kept(const struct move *m, struct m_kept *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->ngroups; i++) {
		const struct group *g = m->group[i];

		if (g->state != GROUP_RESTS)
			continue;
		out[n].rank = g->rank;
		out[n].world = g->world;
		token_of(g, &out[n++].token);
	}
	return n;
}

struct group *move_find_kept(const struct move *m, const struct m_join *j)
{
	for (uint32_t i = 0; i < m->ngroups; i++) {
		struct group *g = m->group[i];
		struct digest token;

		token_of(g, &token);
		if (g->state == GROUP_RESTS && g->rank == j->rank &&
		    g->world == j->world && j->kept.n == DIGEST_LEN &&
		    memcmp(token.b, j->kept.p, DIGEST_LEN) == 0)
			return g;
	}
	return NULL;
}
