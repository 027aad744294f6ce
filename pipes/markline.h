/*
 * markline.h - weir's own small files beside weights: facts, one a line.
 *
 *	{"weir_delta":1,"version":7,"base_version":6,...}
 *	{"tensor":"a","encoding":"xor","dtype":"BF16",...}
 *	{"end":2}
 *
 * Each line is a flat JSON object whose keys are in the table of markline.c;
 * the last one counts those before it, so that a file that was cut is never
 * taken for a whole one.  Who reads says which keys a line must have, by the
 * bits in `has`.
 */
#ifndef WEIR_MARKLINE_H
#define WEIR_MARKLINE_H

#include "common/buf.h"
#include "common/digest.h"

#define MARK_BYTES_MAX	(256u << 20)	/* of a file */
#define MARK_FORMAT	1u		/* of weir_delta, weir_version */

/*	key		kind */
#define MARK_LIST(X)			\
	X(weir_delta,	number)		\
	X(weir_version,	number)		\
	X(kind,		text)		\
	X(registry,	text)		\
	X(version,	number)		\
	X(base_version,	number)		\
	X(encoding,	text)		\
	X(parent,	digest)		\
	X(content,	digest)		\
	X(parent_tensors, digest)	\
	X(tensors,	digest)		\
	X(structure,	digest)		\
	X(tensor,	text)		\
	X(dtype,	text)		\
	X(shape,	text)		\
	X(before,	digest)		\
	X(file,		text)		\
	X(bytes,	number)		\
	X(digest,	digest)		\
	X(from,		text)		\
	X(device,	number)		\
	X(inode,	number)		\
	X(modified,	number)		\
	X(changed,	number)		\
	X(end,		number)

enum mark_key {
#define X(key, kind) MARK_##key,
	MARK_LIST(X)
#undef X
	MARK_NKEYS
};
#define MARK_BIT(key) (UINT32_C(1) << MARK_##key)

typedef uint64_t mark_number;
typedef struct slice mark_text;
typedef struct digest mark_digest;

struct markline {
	uint32_t has;		/* MARK_BIT of each key that is there */
#define X(key, kind) mark_##kind key;
	MARK_LIST(X)
#undef X
};

/* Appends a line of what it has; the end line of n lines. */
void markline_add(struct buf *out, const struct markline *m);
void markline_end(struct buf *out, uint64_t n);

/* m and its texts are lent for the call.  0, or a logged failure. */
typedef int markline_fn(void *ctx, const struct markline *m);
/* All lines but the end line.  -E_DATA, logged with name and line. */
int markline_read(const char *name, struct slice text, markline_fn *fn,
		  void *ctx);

#endif
