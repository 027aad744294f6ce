/*
 * carry_many.h - many files at once into one directory, by all cores.
 *
 * Each becomes a new file of ours: its extents are shared where the file
 * system can (reflink), else it is copied, large ones in pieces.  A hard link
 * is made only when asked for: a trainer that writes its next checkpoint into
 * the same files would change every version that was linked to them.
 * Everything is synced; directories on the way are made.
 */
#ifndef WEIR_CARRY_MANY_H
#define WEIR_CARRY_MANY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct carry_item {
	const char *path;		/* below the directory */
	int from;			/* open for reading */
	uint64_t bytes;
};

struct carry_many {
	int to;				/* directory */
	const char *name;		/* of it, for messages */
	const struct carry_item *item;
	uint32_t n;
	unsigned threads;		/* 0: all cores */
	mode_t mode;			/* 0: that of each */
	bool link;			/* hard links where that is possible */
	const atomic_bool *cancel;	/* then -E_AGAIN */
};

int carry_many(const struct carry_many *c);

#endif
