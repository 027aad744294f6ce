#include "pipes/tr_nccl.h"

#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_member(const struct group *g, uint32_t receiver)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->member[i] == receiver)
			return true;
	return false;
}

static struct group *new_group(struct transport *t, const uint32_t *member,
			       uint32_t count)
{
	struct nccl *n = tr_nccl_of(t);
	struct group *g = xcalloc(1, sizeof(*g));

	g->root = tr_nccl_root_of(t, member[0]);
	g->n = count;
	g->member = xcalloc(count, sizeof(*g->member));
	g->entered = xcalloc(count, sizeof(*g->entered));
	memcpy(g->member, member, count * sizeof(*member));
	n->group = xreallocarray(n->group, n->ngroups + 1, sizeof(*n->group));
	n->group[n->ngroups++] = g;
	g->number = n->ngroups;
	return g;
}

struct group *tr_nccl_group_of(struct transport *t, const uint32_t *member,
			       uint32_t count)
{
	const struct nccl *n = tr_nccl_of(t);

	for (uint32_t i = 0; i < n->ngroups; i++) {
		struct group *g = n->group[i];

		if (g->state != GROUP_BROKEN && g->n == count &&
		    memcmp(g->member, member, count * sizeof(*member)) == 0)
			return g;
	}
	return new_group(t, member, count);
}

void tr_nccl_break_group(struct transport *t, struct group *g, int code,
			 const char *cause)
{
	struct msg m = { .type = M_leave, .leave = { .group = g->number } };
	struct nccl *n = tr_nccl_of(t);
	bool was_known = g->state == GROUP_FORMING || g->state == GROUP_FORMED;

	if (g->state == GROUP_BROKEN)
		return;
	g->state = GROUP_BROKEN;
	if (was_known && g->root->mover)
		mover_send(g->root->mover, &m, NULL, 0);
	for (struct cast *c = n->cast; c; c = c->next)
		if (c->group == g)
			tr_nccl_fail_cast(t, c, code, cause);
	tr_nccl_sweep(n);
	loop_arm(t->env->loop, &n->turn, 0);
}

void tr_nccl_lose(struct transport *t, uint32_t receiver, int code,
		  const char *cause)
{
	struct nccl *n = tr_nccl_of(t);
	char others[TR_CAUSE_MAX + 128];

	snprintf(others, sizeof(others), "its group lost engine %s: %s",
		 tr_nccl_name_of(t, receiver), cause);
	for (struct cast *c = n->cast; c; c = c->next)
		for (uint32_t i = 0; i < c->group->n; i++)
			if (c->post[i].receiver == receiver)
				tr_nccl_fail_post(t, c, &c->post[i], code,
						  cause);
	for (uint32_t i = 0; i < n->ngroups; i++)
		if (is_member(n->group[i], receiver))
			tr_nccl_break_group(t, n->group[i], code, others);
}

void tr_nccl_not_formed(struct transport *t, struct group *g, int code,
			const char *cause)
{
	char text[TR_CAUSE_MAX];
	int all = 1;

	for (uint32_t i = 0; i < g->n; i++) {
		if (g->entered[i])
			continue;
		all = 0;
		snprintf(text, sizeof(text),
			 "did not join its group of %u ranks: %.300s", g->n + 1,
			 cause);
		tr_nccl_lose(t, g->member[i], code, text);
		break;
	}
	snprintf(text, sizeof(text),
		 "all %u ranks came, but their group did not form: %.300s",
		 g->n + 1, cause);
	if (all)
		tr_nccl_break_group(t, g, code, text);
}

static void find_kept(struct transport *t, struct group *g)
{
	const struct kept **other = xcalloc(g->n, sizeof(*other));

	for (uint32_t i = 0; i < g->n; i++)
		other[i] = &tr_nccl_of(t)->device[g->member[i]].kept;
	g->is_kept = kept_take(&g->root->device.kept, other, g->n, &g->token);
	free(other);
	log_info("group of %u ranks: %s", g->n + 1,
		 g->is_kept ? "an older run's" : "new");
}

static struct slice token_of(const struct group *g)
{
	struct slice token = { (const char *)g->token.b, DIGEST_LEN };

	return g->is_kept ? token : (struct slice){ NULL, 0 };
}

void tr_nccl_ask_to_join(struct transport *t, struct group *g,
			 const struct m_grouped *id)
{
	const struct tr_env *env = t->env;
	struct nccl *n = tr_nccl_of(t);

	for (uint32_t i = 0; i < g->n && g->state == GROUP_FORMING; i++) {
		struct msg m = { .type = M_join };
		int rc;

		m.join = (struct m_join){
			.fence = env->fence,
			.boot = slice_of(env->boot[g->member[i]]),
			.group = g->number,
			.id = id->id,
			.kept = token_of(g),
			.rank = i + 1,
			.world = g->n + 1,
			.room = g->root->room,
			.ms = env->load_ms,
		};
		/* Its mover knows why at its own deadline, and speaks first. */
		rc = fan_call(n->fan, g->member[i], &m, TAG_JOIN | g->number, 2,
			      env->load_ms + env->load_ms / 2);
		if (rc < 0)
			tr_nccl_lose(t, g->member[i], -rc, log_cause());
	}
}

void tr_nccl_form(struct transport *t, struct group *g)
{
	struct msg m = { .type = M_join };
	int rc;

	g->state = GROUP_FORMING;
	g->missing = g->n + 1;
	g->seq = ++tr_nccl_of(t)->seq;
	find_kept(t, g);
	m.join = (struct m_join){ .seq = g->seq,
				  .fence = t->env->fence,
				  .group = g->number,
				  .world = g->n + 1,
				  .kept = token_of(g),
				  .room = g->root->room,
				  .ms = t->env->load_ms };
	rc = mover_send(g->root->mover, &m, NULL, 0);
	if (rc < 0)
		tr_nccl_break_group(t, g, -rc, log_cause());
}

void tr_nccl_one_formed(struct transport *t, struct group *g)
{
	if (g->state != GROUP_FORMING || --g->missing > 0)
		return;
	g->state = GROUP_FORMED;
	loop_arm(t->env->loop, &tr_nccl_of(t)->turn, 0);
}

void tr_nccl_free_groups(struct nccl *n)
{
	for (uint32_t i = 0; i < n->ngroups; i++) {
		free(n->group[i]->member);
		free(n->group[i]->entered);
		free(n->group[i]);
	}
	free(n->group);
}
