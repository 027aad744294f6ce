/*
 * checksum.h - the digest of a whole tensor, as slime's deltas name it.
 *
 *	xxh3-128	32 hexadecimal digits, canonical form
 *	adler32		8
 *	blake3		64; known by name, not built in
 *
 * Over the tensor's bytes from first to last, unlike digest.h's tree.  Pure.
 */
#ifndef WEIR_CHECKSUM_H
#define WEIR_CHECKSUM_H

#include "buf.h"
#include "digest.h"

#define CHECKSUM_HEX	65	/* bytes of the longest as text, NUL included */

enum checksum_kind {
	CHECKSUM_XXH3, CHECKSUM_ADLER32,
	CHECKSUM_BLAKE3,
	CHECKSUM_NKINDS
};

const char *checksum_name(enum checksum_kind k);
enum checksum_kind checksum_of(struct slice name);	/* or NKINDS */
bool checksum_is_built(enum checksum_kind k);
/* Is that text one of this kind: so many lower-case digits? */
bool checksum_is_text(enum checksum_kind k, struct slice text);

struct checksum {
	enum checksum_kind kind;
	uint32_t a, b;
	struct digest_state xxh;
};

void checksum_begin(struct checksum *c, enum checksum_kind kind);
void checksum_add(struct checksum *c, const void *p, size_t n);
/* As text, terminated; out has CHECKSUM_HEX bytes.  Returns out. */
char *checksum_end(const struct checksum *c, char *out);

#endif
