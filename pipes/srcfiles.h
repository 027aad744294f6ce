/*
 * srcfiles.h - the planned files, opened read-only, and whether they are
 * still what they were.
 *
 * The source is what was opened, by descriptor: a file that is replaced by
 * rename meanwhile is fine.  Each file gets a read lease where the kernel
 * grants one; a lease that was held from before the first read until after
 * the last one means that nobody wrote.  A broken lease is let go at once, so
 * that the writer waits for a moment only, and the file counts as unleased.
 */
#ifndef WEIR_SRCFILES_H
#define WEIR_SRCFILES_H

#include "common/srcdir.h"
#include "pipes/planfile.h"

struct srcfiles {
	const struct plan *plan;	/* lent */
	struct srcdir *dir;		/* of each rank */
	struct srcdir_id *id;		/* as planned, or as opened */
	int *fd;
	bool *leased;
};

/* Opens all, each checked against the plan: device, inode, size, time of
 * change, and the digest of a shard's header.  -E_DATA naming the file if it
 * is another one by now; -E_NOINPUT.  Logged. */
int srcfiles_open(struct srcfiles *s, const struct plan *plan);
/* The same files in other directories, one for each rank, whichever they are
 * now: sizes and headers must be the plan's, the rest only a digest tells. */
int srcfiles_open_at(struct srcfiles *s, const struct plan *plan,
		     const char *const *dirs);
void srcfiles_close(struct srcfiles *s);	/* fine on a zeroed one */
/* Lets go of leases that somebody waits for.  How many. */
uint32_t srcfiles_watch(struct srcfiles *s);
/* For who reads once: -E_DATA, logged, naming a file whose lease is broken. */
int srcfiles_guard(struct srcfiles *s);
/* Unchanged by what stat says?  0, or -E_DATA naming the file. */
int srcfiles_check(struct srcfiles *s);
/* Every lease has been held all the time. */
bool srcfiles_are_leased(const struct srcfiles *s);

#endif
