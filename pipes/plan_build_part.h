/*
 * plan_build_part.h - what the two files of plan_build.h share; nobody else
 * includes this.
 *
 *	plan_build.c	which tensors go into which bucket
 *	plan_record.c	how a record is written, and all those that are no
 *			bucket of a source
 */
#ifndef WEIR_PLAN_BUILD_PART_H
#define WEIR_PLAN_BUILD_PART_H

#include "common/bucket.h"
#include "pipes/plan_build.h"

struct builder {
	const struct plan_input *in;
	const struct plan_conf *conf;
	const struct plan_output *out;
	struct digest_state digest;
	struct buf frame, pending;
	const struct ranks *ranks;
	uint32_t *first; /* file id, of each rank */
	struct bucket_packer packer;
	struct m_part *object;	/* its whole share, of each rank */
	uint64_t *used, *open;	/* by rank: the packer's, the open bucket's */
	uint64_t *size, *group; /* by rank: of an object, of a group of them */
	struct m_part *parts;	/* of the open bucket */
	uint32_t nparts;
	bool unordered; /* parts of the open bucket */
	struct together_links links;
	bool experts_alone; /* the transport's staging is shared */
	uint8_t *apart;	    /* bit of each tensor that comes after all others */
	struct m_end sum;
};

/* Writes it; what: the thing that a fault is about. */
int record_add(struct builder *b, const struct msg *m, const char *what);
/* Tells it, too, and whether nothing may be under way beside it. */
int record_bucket(struct builder *b, struct m_bucket *bucket);
int record_version(struct builder *b);
int record_files(struct builder *b);
int record_engines(struct builder *b);
/* The last one; then all is written. */
int record_end(struct builder *b);
/* All records of a published version, for other engines. */
int record_again(struct builder *b);

#endif
