/*
 * delta_build.h - the files of the version that a delta makes; part of
 * delta.h.
 *
 * All bytes of the base are read once: hashed, changed where the delta says
 * so, hashed again and written.  Tensors and spans of them are done by all
 * threads, the largest first.  A file in which nothing changes is made only
 * where the new version is to share nothing with the base; shared extents
 * (reflink) are not written again.
 *
 * The kernel is asked to begin with its writing as it goes; at the end, every
 * file is synced once.
 */
#ifndef WEIR_DELTA_BUILD_H
#define WEIR_DELTA_BUILD_H

#include "pipes/delta_fit.h"

struct build_file;
struct build_task;

/* The caller sets what stands before the gap. */
struct build {
	const struct delta_apply *conf;
	const struct delta *delta;
	struct fit *fit;		/* its sums are filled */
	int to;				/* directory */

	struct sums after;		/* of what was made */
	struct build_file *file;	/* of the base */
	struct build_task *task;
	uint32_t ntasks;
};

int build_run(struct build *b);
/* Was that file made? */
bool build_has(const struct build *b, const char *path);
void build_release(struct build *b);

#endif
