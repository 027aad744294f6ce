#include "pipes/move_shell.h"

#include "common/err.h"
#include "common/log.h"
#include "common/units.h"
#include "common/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group *move_group(struct move *m, uint32_t number)
{
	for (uint32_t i = m->ngroups; i > 0; i--)
		if (m->group[i - 1]->number == number)
			return m->group[i - 1];
	return NULL;
}

/* ---- the end of a group ---- */

void move_let_go(struct move *m, struct group *g)
{
	watchdog_set("the end of a group", MOVE_END_MS);
	m->wire->end(m, g);
	gpu_stream_free(g->stream);
	watchdog_clear();
	g->stream = NULL;
}

void move_end_group(struct move *m, struct group *g, int code,
		    const char *cause)
{
	char kept[1024];

	if (g->state == GROUP_OVER)
		return;
	snprintf(kept, sizeof(kept), "%s", cause);
	if (m->forming == g) {
		m->forming = NULL;
		loop_disarm(m->loop, &m->deadline);
		loop_disarm(m->loop, &m->form);
		if (code)
			move_refuse(m, g->seq, code, ID_NONE, kept);
	}
	g->state = GROUP_OVER;
	move_drop_casts(m, g, code, kept);
	move_let_go(m, g);
	move_go_on(m);
}

void move_leave(struct move *m, uint32_t number)
{
	struct group *g = move_group(m, number);

	if (g)
		move_end_group(m, g, 0, "");
}

static int state_of(const struct move *m, const struct group *g)
{
	int rc;

	watchdog_set("a look at a group", MOVE_CALL_MS);
	rc = m->wire->state(g);
	watchdog_clear();
	return rc;
}

/* An idle group's others may have left already: that is no fault. */
static bool is_in_use(const struct group *g)
{
	return g->state == GROUP_PROBING ||
	       (g->state == GROUP_FORMED && g->flying > 0);
}

void move_look(void *arg)
{
	struct move *m = arg;
	int rc;

	watchdog_set("a look at the device", MOVE_CALL_MS);
	rc = gpu_check(m->copies);
	watchdog_clear();
	loop_arm(m->loop, &m->look, MOVE_LOOK_MS);
	if (rc < 0) {
		move_give_up(m, rc);
		return;
	}
	for (uint32_t i = 0; i < m->ngroups; i++) {
		struct group *g = m->group[i];

		if (!is_in_use(g))
			continue;
		rc = state_of(m, g);
		if (rc < 0)
			move_end_group(m, g, -rc, log_cause());
	}
}

void move_free_groups(struct move *m)
{
	for (uint32_t i = 0; i < m->ngroups; i++) {
		if (m->group[i]->state != GROUP_OVER)
			move_let_go(m, m->group[i]);
		free(m->group[i]);
	}
	free(m->group);
}

/* ---- forming ---- */

static void joined(struct move *m, const struct group *g, bool formed)
{
	struct msg reply = { .type = M_joined };

	reply.joined = (struct m_joined){ .seq = g->seq,
					  .group = g->number,
					  .formed = formed,
					  .pinned = m->pinned };
	move_send(m, &reply);
}

void move_formed(struct move *m, struct group *g)
{
	g->state = GROUP_FORMED;
	m->forming = NULL;
	loop_disarm(m->loop, &m->deadline);
	joined(m, g, true);
}

static const char *interface_hint(void)
{
	const char *name = getenv("NCCL_SOCKET_IFNAME");

	return name ? name : "not set";
}

static void expired(void *arg)
{
	struct move *m = arg;
	struct group *g = m->forming;
	char cause[512], time[UNITS_MAX];

	snprintf(cause, sizeof(cause),
		 g->state == GROUP_PROBING
			 ? "the group of %u formed, but no data came within %s "
			   "(NCCL_SOCKET_IFNAME is %s)"
			 : "the group of %u did not form within %s "
			   "(NCCL_SOCKET_IFNAME is %s)",
		 g->world, units_time((int64_t)g->ms, time), interface_hint());
	move_end_group(m, g, E_TIMEOUT, cause);
}

static int prove(struct move *m, struct group *g)
{
	int rc;

	watchdog_set("the first bytes of a group", MOVE_CALL_MS);
	rc = m->wire->prove(m, g);
	watchdog_clear();
	return rc;
}

static void look_at_forming(void *arg)
{
	struct move *m = arg;
	struct group *g = m->forming;
	int rc = state_of(m, g);

	if (rc == 0) {
		loop_arm(m->loop, &m->form, MOVE_FORM_MS);
		return;
	}
	if (rc > 0)
		rc = prove(m, g);
	if (rc < 0)
		move_end_group(m, g, -rc, log_cause());
}

static int begin(struct move *m, struct group *g)
{
	int rc;

	watchdog_set("the start of a group", (int64_t)g->ms);
	rc = gpu_stream_new(&g->stream);
	if (rc == 0)
		rc = m->wire->begin(m, g);
	watchdog_clear();
	return rc;
}

/* Rank 0 tells the others what they need to join it. */
static void call_others(struct move *m, const struct group *g)
{
	struct msg reply = { .type = M_grouped };

	reply.grouped = (struct m_grouped){ .seq = g->seq, .group = g->number };
	if (g->joined == 0)
		reply.grouped.id = (struct slice){ g->id.b, NCCL_ID_LEN };
	move_send(m, &reply);
}

static bool is_used(const struct move *m, const struct m_join *j)
{
	for (uint32_t i = 0; i < m->ngroups; i++)
		if (m->group[i]->number == j->group ||
		    (j->id.n == NCCL_ID_LEN && !m->wire->keeps_ids &&
		     memcmp(m->group[i]->id.b, j->id.p, NCCL_ID_LEN) == 0))
			return true;
	return false;
}

/* NULL, or why not; nothing of the library has been asked by then. */
static const char *wrong_with(const struct move *m, const struct m_join *j)
{
	if (!move_is_enrolled(m))
		return "join: it has not enrolled";
	if (j->rank >= j->world || j->group == 0)
		return "join: no such rank in a group of that size";
	if (j->kept.n > 0 && !move_find_kept(m, j))
		return "join: it does not have that group any more";
	if (j->id.n != (j->rank == 0 || j->kept.n > 0 ? 0 : NCCL_ID_LEN))
		return "join: an id of another length than ids have";
	if (is_used(m, j))
		return "join: that group, or its id, was used before";
	if (m->forming)
		return "join: another group is forming";
	if (m->ngroups == MOVE_GROUPS_MAX)
		return "join: too many groups for one process";
	return NULL;
}

static struct group *add_group(struct move *m, const struct m_join *j)
{
	struct group *g = xcalloc(1, sizeof(*g));

	*g = (struct group){ .number = j->group,
			     .rank = j->rank,
			     .world = j->world,
			     .seq = j->seq,
			     .ms = j->ms,
			     .room = j->room,
			     .is_foreign = j->foreign,
			     .sums = j->sums };
	if (j->id.n)
		memcpy(g->id.b, j->id.p, NCCL_ID_LEN);
	m->group = xreallocarray(m->group, m->ngroups + 1, sizeof(*m->group));
	m->group[m->ngroups++] = g;
	return g;
}

static struct group *wake_group(struct move *m, const struct m_join *j)
{
	struct group *g = move_find_kept(m, j);

	g->number = j->group;
	g->state = GROUP_FORMING;
	g->seq = j->seq;
	g->ms = j->ms;
	g->joined++;
	return g;
}

void move_join(struct move *m, const struct m_join *j)
{
	const char *wrong = wrong_with(m, j);
	struct group *g;
	int rc = 0;

	if (wrong) {
		move_refuse(m, j->seq, E_PROTO, ID_NONE, wrong);
		return;
	}
	g = j->kept.n > 0 ? wake_group(m, j) : add_group(m, j);
	m->forming = g;
	m->deadline = (struct loop_timer){ .fn = expired, .arg = m };
	m->form = (struct loop_timer){ .fn = look_at_forming, .arg = m };
	loop_arm(m->loop, &m->deadline, (int64_t)g->ms);
	loop_arm(m->loop, &m->form, 0);
	if (g->joined == 0)
		rc = begin(m, g);
	if (rc < 0) {
		move_end_group(m, g, -rc, log_cause());
		return;
	}
	if (g->rank == 0)
		call_others(m, g);
	joined(m, g, false);
}
