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

static void let_go(struct group *g)
{
	watchdog_set("ncclCommAbort", MOVE_END_MS);
	if (g->comm)
		nccl_end(g->comm);
	gpu_stream_free(g->stream);
	watchdog_clear();
	g->comm = g->stream = NULL;
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
	let_go(g);
	move_go_on(m);
}

void move_leave(struct move *m, uint32_t number)
{
	struct group *g = move_group(m, number);

	if (g)
		move_end_group(m, g, 0, "");
}

/* An idle group's others may have left already: that is no fault. */
void move_look(void *arg)
{
	struct move *m = arg;
	int rc = gpu_check(m->copies);

	loop_arm(m->loop, &m->look, MOVE_LOOK_MS);
	if (rc < 0) {
		move_give_up(m, rc);
		return;
	}
	for (uint32_t i = 0; i < m->ngroups; i++) {
		struct group *g = m->group[i];

		if (g->state != GROUP_FORMED || g->flying == 0)
			continue;
		rc = nccl_state(g->comm);
		if (rc < 0)
			move_end_group(m, g, -rc, log_cause());
	}
}

void move_free_groups(struct move *m)
{
	for (uint32_t i = 0; i < m->ngroups; i++) {
		if (m->group[i]->state != GROUP_OVER)
			let_go(m->group[i]);
		free(m->group[i]);
	}
	free(m->group);
}

/* ---- its first bytes ---- */

/* The same at all ranks, and another for each group. */
static void fill_probe(const struct group *g, char *p)
{
	struct digest d;

	for (size_t i = 0; i < MOVE_PROBE; i += DIGEST_LEN) {
		const uint64_t at = i;
		struct digest_state s;

		digest_begin(&s);
		digest_add(&s, g->id.b, NCCL_ID_LEN);
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

static void joined(struct move *m, const struct group *g, bool formed)
{
	struct msg reply = { .type = M_joined };

	reply.joined = (struct m_joined){ .seq = g->seq,
					  .group = g->number,
					  .formed = formed };
	move_send(m, &reply);
}

static void formed(struct move *m, struct group *g)
{
	g->state = GROUP_FORMED;
	m->forming = NULL;
	loop_disarm(m->loop, &m->deadline);
	joined(m, g, true);
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
	formed(m, g);
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

/* ---- forming ---- */

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

static void look_at_forming(void *arg)
{
	struct move *m = arg;
	struct group *g = m->forming;
	int rc = nccl_state(g->comm);

	if (rc == 0) {
		loop_arm(m->loop, &m->form, MOVE_FORM_MS);
		return;
	}
	if (rc > 0 && g->is_foreign && !g->sums) {
		formed(m, g);
	} else if (rc > 0) {
		g->state = GROUP_PROBING;
		rc = g->sums ? queue_sum(m, g) : queue_probe(m, g);
	}
	if (rc < 0)
		move_end_group(m, g, -rc, log_cause());
}

static int open_probe(struct move *m)
{
	int rc = 0;

	if (!m->probe)
		rc = gpu_host_alloc((void **)&m->probe, MOVE_PROBE,
				    &m->probe_is_pinned);
	if (rc == 0 && !m->probe_memory)
		rc = gpu_alloc(&m->probe_memory, MOVE_PROBE);
	return rc;
}

static int begin(struct move *m, struct group *g)
{
	struct msg reply = { .type = M_grouped };
	int rc = g->rank == 0 ? nccl_new_id(&g->id) : 0;

	if (rc == 0)
		rc = open_probe(m);
	if (rc == 0)
		rc = move_open_staging(m, g->room);
	if (rc == 0)
		rc = gpu_stream_new(&g->stream);
	if (rc == 0)
		rc = nccl_begin(&g->comm, &g->id, g->rank, g->world);
	if (rc < 0)
		return rc;
	if (g->rank == 0) {
		reply.grouped = (struct m_grouped){
			.seq = g->seq,
			.group = g->number,
			.id = { g->id.b, NCCL_ID_LEN },
		};
		move_send(m, &reply);
	}
	joined(m, g, false);
	return 0;
}

static bool is_used(const struct move *m, const struct m_join *j)
{
	for (uint32_t i = 0; i < m->ngroups; i++)
		if (m->group[i]->number == j->group ||
		    (j->id.n == NCCL_ID_LEN &&
		     memcmp(m->group[i]->id.b, j->id.p, NCCL_ID_LEN) == 0))
			return true;
	return false;
}

/* NULL, or why not; nothing of the library has been asked by then. */
static const char *wrong_with(const struct move *m, const struct m_join *j)
{
	if (j->rank >= j->world || j->group == 0)
		return "join: no such rank in a group of that size";
	if (j->id.n != (j->rank == 0 ? 0 : NCCL_ID_LEN))
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

void move_join(struct move *m, const struct m_join *j)
{
	const char *wrong = wrong_with(m, j);
	struct group *g;
	int rc;

	if (wrong) {
		move_refuse(m, j->seq, E_PROTO, ID_NONE, wrong);
		return;
	}
	g = m->forming = add_group(m, j);
	m->deadline = (struct loop_timer){ .fn = expired, .arg = m };
	m->form = (struct loop_timer){ .fn = look_at_forming, .arg = m };
	loop_arm(m->loop, &m->deadline, (int64_t)g->ms);
	loop_arm(m->loop, &m->form, 0);
	rc = begin(m, g);
	if (rc < 0)
		move_end_group(m, g, -rc, log_cause());
}
