/*
 * beside.h - a directory built beside its place and put there in one step.
 *
 *	PARENT/NAME		the place
 *	PARENT/.NAME.weir-new	what is being built, or, right after an
 *				exchange, what was in the place before
 *
 * Whoever builds holds a lock on the directory that he builds in (flock; the
 * kernel drops it when he dies), so two that build for one place exclude
 * each other: the second is told so.  What a dead one left is removed by the
 * next that opens the same place.  Killed anywhere, the place holds what it
 * held before or all of what was built, which beside_put() and
 * beside_exchange() have made durable before; files must have been synced
 * by their writers.
 */
#ifndef WEIR_BESIDE_H
#define WEIR_BESIDE_H

#include <stdbool.h>
#include <sys/stat.h>

struct beside {
	int parent_fd;
	int fd;			/* of what is being built */
	char *path;		/* as the user gave it, for messages */
	char *name, *stage;	/* below the parent */
};

/* path need not exist; its parent must.  A link is followed to its target,
 * which then is the place.  -E_AGAIN, logged: somebody builds there now. */
int beside_open(struct beside *b, const char *path);
/* Removes what a dead one left beside that place, if there is something and
 * nobody builds.  Quiet: the next to build there will say what is wrong. */
void beside_sweep(const char *path);
/* Would it appear there?  Nothing, or an empty directory, is there now. */
bool beside_is_free(const char *path);
/* Appears under its name, which must be free, or an empty directory.
 * -E_AGAIN, not logged, if it is neither. */
int beside_put(struct beside *b);
/* Takes the place of the directory that old describes, which is removed.
 * -E_AGAIN, logged, if another is there by now. */
int beside_exchange(struct beside *b, const struct stat *old);
/* Can the parent's file system exchange two names?  0, or a negative E_*,
 * logged, with what to do. */
int beside_can_exchange(const struct beside *b);
/* Ends; what was not put is removed.  Fine after any failure and on
 * BESIDE_INIT. */
void beside_close(struct beside *b);
#define BESIDE_INIT { .parent_fd = -1, .fd = -1 }

/* For tests: called between any two steps that a crash can come between. */
extern void (*beside_step)(const char *what);
void beside_tell(const char *what);

#endif
