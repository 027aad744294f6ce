/*
 * srchash.h - the source's own digests, made beside the offers.
 *
 * Independent of what engines say: own reads, own hash.  A bucket is hashed
 * once it is wanted (in that order), on a few threads, through bounded
 * windows under a guard: a source that is truncated under way fails its
 * bucket, not the process.  srchash_rest() hashes what is left, hashes a
 * second time what no lease protected, and checks that the files are what
 * they were.
 *
 * Memory: 16 bytes for each rank's share of a bucket and for each tensor, one
 * window for each thread.
 */
#ifndef WEIR_SRCHASH_H
#define WEIR_SRCHASH_H

#include "common/loop.h"
#include "pipes/srcfiles.h"

struct srchash;

struct srchash_ops {
	/* d: of each rank's share of it. */
	void (*hashed)(void *arg, uint32_t bucket, const struct digest *d);
	/* The source's fault; bucket may be ID_NONE.  cause is lent. */
	void (*failed)(void *arg, uint32_t bucket, int code,
		       const char *cause);
	/* content: of each rank. */
	void (*verified)(void *arg, const struct digest *content,
			 enum source_proof proof);
};

/* Callbacks come from the loop, never from inside these functions, and may
 * not free it.  files is lent.  NULL: logged. */
struct srchash *srchash_new(struct loop *l, struct srcfiles *files,
			    unsigned threads, const struct srchash_ops *ops,
			    void *arg);
/* Idempotent. */
void srchash_want(struct srchash *h, uint32_t bucket);
bool srchash_is_hashed(const struct srchash *h, uint32_t bucket);
/* Would reading it go to a disk? */
bool srchash_is_cold(struct srchash *h, uint32_t bucket);
/* Once: verified() or failed() follows. */
void srchash_rest(struct srchash *h);
/* Stops the threads and forgets; NULL is fine. */
void srchash_free(struct srchash *h);

#endif
