/*
 * content.h - the content digest, folded from leaf digests.
 *
 * Both sides of a transfer make it: the source from what it read, an engine
 * from what arrived.  Parts of objects (tensors, carried files) come in any
 * order and from anywhere; digest.h says what the tree is.  Headers of shards
 * are no objects: what they say is in the structure digest.
 *
 * Memory: 48 bytes and the name for each part, 16 for each leaf of an object
 * that comes in several parts.  Pure but for the cause of a failure.
 */
#ifndef WEIR_CONTENT_H
#define WEIR_CONTENT_H

#include "buf.h"
#include "digest.h"

#define CONTENT_NAME_MAX 65535u	/* bytes of a name or path */

/* In the order of the fold. */
enum content_kind { CONTENT_TENSOR, CONTENT_CARRIED };

struct content_part;

/* {0} is an empty one. */
struct content {
	struct content_part *part;
	uint32_t n, cap;
	struct buf names;
	struct buf leaves;	/* struct digest, of split objects */
};

/* Leaves that an object, or a part of one, of so many bytes has. */
uint64_t content_leaves(uint64_t bytes);

/*
 * Adds leaves start / DIGEST_LEAF ... of an object of total bytes; n is
 * content_leaves() of the part's bytes, 0 only for an empty object.  Copies
 * name and leaves.  -E_DATA, logged, if the part is not within the object.
 */
int content_add(struct content *c, enum content_kind kind, struct slice name,
		uint64_t total, uint64_t start, const struct digest *leaf,
		uint32_t n);
/* Folds.  -E_DATA, logged with the name, if leaves of an object are missing
 * or there twice.  More may be added afterwards. */
int content_finish(const struct content *c, struct digest *out);
/* Was the same part added, with other leaves? */
bool content_differs(const struct content *c, enum content_kind kind,
		     struct slice name, uint64_t start,
		     const struct digest *leaf);
void content_release(struct content *c);

#endif
