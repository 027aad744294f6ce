/*
 * patch.h - what changed in a tensor, in three encodings.
 *
 *	xor		new ^ old, as long as the tensor
 *	overwrite	u32 n | n positions of bytes, u32 | n bytes
 *	sparse		"WSP1" | u8 element size | 3 zero bytes | u64 n |
 *			n times: gap, the element's new bytes
 *
 * All integers little endian.  The first two travel as zstd frames and are
 * slime's; positions and their count have 32 bits there, so that overwrite is
 * not for a tensor of 4 GiB or more.  sparse is weir's own and stands as it
 * is: a gap is the number of unchanged elements since the last changed one
 * (or the start), seven bits to the byte, low ones first, the top bit says
 * that more follow, no longer than needed.  It may be applied again: values
 * are new ones, as in overwrite and unlike in xor.
 *
 * Tensors are handled in pieces; for sparse, pieces end between elements.
 * Reading is strict: what it accepts is exactly what writing makes.  Pure.
 */
#ifndef WEIR_PATCH_H
#define WEIR_PATCH_H

#include "buf.h"

#define PATCH_OVERWRITE_MAX	(UINT64_C(1) << 32)	/* a tensor has fewer bytes */
#define SPARSE_HEAD		16u	/* bytes before the first gap */

enum patch_kind { PATCH_XOR, PATCH_OVERWRITE, PATCH_SPARSE, PATCH_NKINDS };

const char *patch_name(enum patch_kind k);
/* The kind of that name, or PATCH_NKINDS. */
enum patch_kind patch_of(struct slice name);

bool patch_is_same(const void *a, const void *b, size_t n);
/* dst = a ^ b.  dst may be a or b. */
void patch_xor(void *dst, const void *a, const void *b, size_t n);
/* dst ^= diff, of which most is 0.  Is there a bit that is not? */
bool patch_xor_into(void *dst, const void *diff, size_t n);

/* How many bytes differ; their positions, from base on, to pos (room for
 * 4 * n bytes), and those bytes of b to value (n bytes). */
size_t patch_points(const void *a, const void *b, size_t n, uint32_t base,
		    uint8_t *pos, uint8_t *value);

/* The element size that sparse uses: 1, 2, 4 or 8 bytes. */
unsigned sparse_element(unsigned dtype_bits);

struct sparse_out {
	struct buf *out;
	size_t head;		/* where in out the payload begins */
	unsigned size;		/* of an element */
	uint64_t at, last;	/* elements seen; behind the last changed */
	uint64_t n;
};

/* The payload is appended to out, lent until sparse_finish(). */
void sparse_begin(struct sparse_out *s, unsigned element, struct buf *out);
/* n bytes that are the same in both. */
void sparse_skip(struct sparse_out *s, uint64_t n);
void sparse_add(struct sparse_out *s, const void *a, const void *b, size_t n);
void sparse_finish(struct sparse_out *s);

struct sparse_in {
	const uint8_t *p, *end;
	unsigned size;
	uint64_t elements;	/* of the tensor */
	uint64_t left;		/* changes to come */
	uint64_t next;		/* element of the next one; no more: elements */
};

/* Of a tensor of so many bytes.  All: -E_DATA, not logged, if the payload is
 * none of such a tensor. */
int sparse_open(struct sparse_in *s, struct slice payload, unsigned element,
		uint64_t bytes);
/* Changes piece, the n bytes from off on; pieces come in order.  1 if there
 * was a change, 0 if not. */
int sparse_apply(struct sparse_in *s, void *piece, uint64_t off, size_t n);
int sparse_close(const struct sparse_in *s);
/* The most bytes that a payload for such a tensor can have. */
uint64_t sparse_bound(unsigned element, uint64_t bytes);

#endif
