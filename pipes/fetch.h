/*
 * fetch.h - a version directory is taken into a store.
 *
 * Into the slot that a begin made for it, which is empty: files of the plan's
 * names and sizes, shared with the directory where the file system can
 * (reflink) and copied otherwise, never linked: the store is the engine's
 * alone.  What was fetched is hashed by the seal that follows, and so the
 * receipt tells what is there, whatever the mark says.
 *
 * Of a delta the new files are made from the version that is served, or, if
 * that is not what it needs, from the deltas before it and the newest full
 * version that they lead back to, all beside it in the same directory.  What
 * serves is never written; if nothing leads there, nothing is written at all.
 * A delta that changes nothing takes a link to each file of what is served.
 *
 * Runs in a thread, for as long as a disk takes; looks at *cancel.
 */
#ifndef WEIR_FETCH_H
#define WEIR_FETCH_H

#include "pipes/slotstill.h"
#include "pipes/store.h"

struct fetch {
	const struct store *store;
	const struct store_slot *slot;	/* wanted; staging/N is there */
	char *place;			/* absolute path; owned */
	/* What a delta may be applied to: the version served, as it was
	 * received.  NULL: there is none. */
	char *has_path;			/* owned */
	uint64_t has;
	struct digest has_content;
	/* Its files as they were hashed, if the wanted version may be it, by
	 * links; else NULL.  Then they are the wanted one's. */
	struct slotstill *still;
	int64_t wait_ms;		/* for it to be whole (vdir.h) */
	unsigned threads;		/* that read at a time (FS-05) */
	const atomic_bool *cancel;
};

/* 1: it is the version served, whose files nobody has touched: they are linked
 * and were not read.  -E_NOINPUT: not there, not whole; -E_DATA: another
 * version, another registry's.  Logged. */
int fetch_run(const struct fetch *f);
void fetch_release(struct fetch *f);
/* Part of it (fetch_diff.c): the place is a delta. */
int fetch_diff(const struct fetch *f);

#endif
