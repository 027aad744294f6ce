/*
 * vdir_keep.h - which version directories may go.
 *
 * Of one registry's own, by their marks; what anybody else has in the same
 * place is left alone.  These stay:
 *
 *	the newest `keep` that are published
 *	those that somebody may be serving or loading, by their numbers
 *	those that one that stays is made from, and so on
 *	those that somebody reads right now (vdir.h)
 *
 * All others go: retired ones, and those that a run wrote whose version was
 * never published.  What a dead writer left beside them goes as well.
 */
#ifndef WEIR_VDIR_KEEP_H
#define WEIR_VDIR_KEEP_H

#include "pipes/vdir.h"

struct vdir_keep {
	const char *disk_dir, *registry;
	uint64_t keep;
	const uint64_t *used;		/* numbers in use */
	size_t nused;
	/* Is this what was published under the number? */
	bool (*is_published)(void *ctx, uint64_t version,
			     const struct digest *content);
	void *ctx;
};

/* Failures are logged: the next one tries again. */
void vdir_prune(const struct vdir_keep *k);

#endif
