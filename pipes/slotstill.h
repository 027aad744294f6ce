/*
 * slotstill.h - the files of a version in a store, as they were when all of
 * them had just been hashed.
 *
 * So that the same content under a new number need not be read again while
 * nobody touches it.  Times of links do not count: the store makes and removes
 * them itself.  Kept in memory: a new start knows of none, and reads.
 */
#ifndef WEIR_SLOTSTILL_H
#define WEIR_SLOTSTILL_H

#include "common/still.h"
#include "pipes/store.h"

#define SLOTSTILL_FILES_MAX 512u	/* each is open for a while */

/* {0} is of no version. */
struct slotstill {
	uint64_t version;
	struct still *file;	/* in the order of the slot */
	int *fd;		/* with leases, while they are watched; or NULL */
	uint32_t n;
};

/* Watches the files of slot in the directory of that version.  False: of
 * these nothing can be told. */
bool slotstill_begin(struct slotstill *t, const struct store *s,
		     uint64_t version, const struct store_slot *slot);
/* Was nobody there since, and would it be seen from now on?  Lets go. */
bool slotstill_end(struct slotstill *t);
bool slotstill_same(const struct slotstill *a, const struct slotstill *b);
void slotstill_release(struct slotstill *t);

#endif
