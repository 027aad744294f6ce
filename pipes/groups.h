/*
 * groups.h - names of the weight-update groups of ours that a server may be
 * in still, oldest first.
 *
 * One is noted, durably, before it is made, and forgotten when the server has
 * answered to its end: what a dead run has left is left by its own name, and
 * no other name is tried.  Pure.
 */
#ifndef WEIR_GROUPS_H
#define WEIR_GROUPS_H

#include "common/buf.h"

#define GROUPS_MAX 8		/* at one server */
#define GROUP_NAME_MAX 64	/* bytes */

struct groups {
	struct slice name[GROUPS_MAX];	/* owned, NUL behind each */
	uint32_t n;
};

void groups_release(struct groups *g);
/* Unless it is there.  Of more than GROUPS_MAX the oldest is forgotten. */
void groups_add(struct groups *g, struct slice name);
void groups_add_all(struct groups *g, const struct slice *name, uint32_t n);
/* The n oldest; all, if there are not as many. */
void groups_forget(struct groups *g, uint32_t n);
void groups_forget_newest(struct groups *g);
/* "A, B" */
void groups_text(const struct groups *g, struct buf *out);

#endif
