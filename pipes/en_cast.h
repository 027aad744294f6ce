/*
 * en_cast.h - what of a plan a server is broadcast: its tensors, whole,
 * bucket by bucket.
 *
 * What cannot be broadcast is found before anything is paused, and what cannot
 * be packed before it is joined: http_cast_check().
 */
#ifndef WEIR_EN_CAST_H
#define WEIR_EN_CAST_H

#include "pipes/en_http.h"

/* Of the largest bucket: so much is on its way while so much is loaded. */
#define CAST_CHUNKS 4
#define CAST_BUFFERS 2

struct cast_bucket {
	uint32_t number, next;		/* this one; to be looked at next */
	size_t n;
	struct nccl_tensor tensor[MSG_PARTS_MAX];
	struct m_piece piece[MSG_PARTS_MAX];
	struct msg_arena arena;
};

/* The next bucket that has tensors: 1; 0: there is none.  -E_*, h->why: one of
 * them cannot be broadcast.  {0} is before the first one. */
int cast_next(struct http_engine *h, struct cast_bucket *b);
void cast_release(struct cast_bucket *b);
/* Bytes of the largest bucket, and of a packed chunk. */
uint64_t cast_room(const struct plan *p);
uint64_t cast_chunk(const struct plan *p);

#endif
