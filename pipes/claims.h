/*
 * claims.h - the digests that engines say they hold, against the source's.
 *
 * The source is hashed beside the offers, so an ack may come before or after
 * the source's own digest of that bucket.  An early claim is kept until then:
 * one per bucket with a bit for each engine that said the same, and a few
 * that differ.  So each wrong engine is named, and none that was right.
 *
 * With several source ranks each rank's share of a bucket counts as a bucket
 * here.
 *
 * Pure: no I/O, no clock; no allocation after claims_init().
 */
#ifndef WEIR_CLAIMS_H
#define WEIR_CLAIMS_H

#include "common/digest.h"

#define DISPUTES_MAX 64		/* early claims that differ from the first */

struct claims_dispute {
	uint32_t engine, bucket;
	struct digest digest;
};

struct claims {
	struct digest *own, *first;	/* per bucket: source's, first claim */
	uint8_t *hashed;		/* bit per bucket: own is known */
	uint8_t *same;			/* per engine a row: said `first` */
	size_t row;
	uint32_t engines;
	struct claims_dispute dispute[DISPUTES_MAX];
	uint32_t ndisputes;
};

void claims_init(struct claims *c, uint32_t engines, uint32_t buckets);
void claims_release(struct claims *c);		/* fine on a zeroed one */
/* An engine's word.  0: right, or not known yet; -E_DATA: wrong; -E_AGAIN:
 * more differ than can be kept. */
int claims_say(struct claims *c, uint32_t engine, uint32_t bucket,
	       const struct digest *d);
/* The source's own.  Calls wrong() for each engine that said otherwise. */
void claims_judge(struct claims *c, uint32_t bucket, const struct digest *d,
		  void (*wrong)(void *arg, uint32_t engine, uint32_t bucket),
		  void *arg);

#endif
