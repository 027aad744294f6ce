/*
 * progress.h - what RUN/events says, as a bar or as plain lines.
 *
 * Feed it lines (pipes/events.h writes them); it keeps counters and renders
 * them into text.  Pure but for the JSON reader: no clock, no terminal.  A
 * line that is no event of ours is ignored: progress is for people, and the
 * verdict does not depend on it.
 */
#ifndef WEIR_PROGRESS_H
#define WEIR_PROGRESS_H

#include "common/buf.h"

#define PROGRESS_NAME_MAX 80	/* bytes of an engine's name */

struct progress {
	/* told by the caller, from the plan */
	uint32_t buckets, engines, waves;
	uint64_t bytes;			/* of one engine */

	/* from events */
	uint64_t version;		/* 0: not opened yet */
	uint32_t wave;			/* of the last grant */
	uint32_t acked;			/* (wave, bucket) pairs */
	uint64_t moved_bytes;		/* acked, each wave counted */
	uint64_t credit_buckets, credit_bytes;
	uint64_t limit_buckets, limit_bytes;
	int64_t first_ns, last_ns;	/* first grant, newest event */
	bool decided;

	/* Who is counted: an event told again, by a stage that runs again or
	 * to a neighbour that does, counts once. */
	struct progress_who {
		char **name;
		uint32_t n;
	} sealing, swapping;
};

void progress_release(struct progress *p);

/* One line without its newline.  1 if out got a plain line that is worth
 * telling where there is no bar (a boundary moved); else 0. */
int progress_line(struct progress *p, struct slice line, struct buf *out);
/* The bar, at most width columns, no newline. */
void progress_bar(const struct progress *p, unsigned width, struct buf *out);

#endif
