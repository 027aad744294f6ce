/*
 * fetch.h - a version directory is taken into a store.
 *
 * Into the slot that a begin made for it, which is empty: files of the plan's
 * names and sizes, shared with the directory where the file system can
 * (reflink) and copied otherwise, never linked: the store is the engine's
 * alone.  What was fetched is hashed by the seal that follows, and so the
 * receipt tells what is there, whatever the mark says.
 *
 * Runs in a thread, for as long as a disk takes; looks at *cancel.
 */
#ifndef WEIR_FETCH_H
#define WEIR_FETCH_H

#include "pipes/store.h"

struct fetch {
	const struct store *store;
	const struct store_slot *slot;	/* wanted; staging/N is there */
	char *place;			/* absolute path; owned */
	int64_t wait_ms;		/* for it to be whole (vdir.h) */
	unsigned threads;		/* that read at a time (FS-05) */
	const atomic_bool *cancel;
};

/* -E_NOINPUT: not there, not whole; -E_DATA: another version, another
 * registry's.  Logged. */
int fetch_run(const struct fetch *f);

#endif
