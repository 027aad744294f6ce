/*
 * digest.h - XXH3-128, in weir's tree form.  (The only includer of xxHash.)
 *
 *	leaf	 XXH3-128 of up to 16 MiB of a tensor, counted from its start
 *	tensor	 XXH3-128 over the concatenated leaf digests
 *	content	 XXH3-128 over the tensor digests in name order, then those of
 *		 the carried files in path order
 *
 * so that a tensor's digest is the same at every bucket size and split
 * (splits fall on leaf edges).  Of several source ranks each has its own
 * content digest, and the version's is digest_fold() of them.  A digest is
 * stored in xxHash's canonical (big-endian) form; an empty tensor has no
 * leaves.  A checksum, not a signature: it finds faults, not adversaries.
 */
#ifndef WEIR_DIGEST_H
#define WEIR_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_LEN	16
#define DIGEST_LEAF	((uint64_t)16 << 20)	/* bytes of one leaf */
#define DIGEST_HEX	(2 * DIGEST_LEN + 1)

struct digest {
	uint8_t b[DIGEST_LEN];
};

/* Streaming; small enough to sit in a struct, must be 64-byte aligned. */
struct digest_state {
	_Alignas(64) unsigned char opaque[640];
};

void digest_begin(struct digest_state *s);
void digest_add(struct digest_state *s, const void *p, size_t n);
void digest_end(const struct digest_state *s, struct digest *out);

#define DIGEST_SECRET	192

/* What XXH3 is salted with, for who computes it elsewhere (leafsum.h). */
void digest_secret(unsigned char out[DIGEST_SECRET]);

void digest_of(const void *p, size_t n, struct digest *out);
/* The digest of what comes in n shares: of one, its own; else XXH3-128 over
 * theirs in order. */
void digest_fold(const struct digest *share, uint32_t n, struct digest *out);
bool digest_eq(const struct digest *a, const struct digest *b);
bool digest_is_zero(const struct digest *d);
/* Lower case, terminated; out has DIGEST_HEX bytes.  Returns out. */
char *digest_hex(const struct digest *d, char *out);
/* 32 lower-case digits, or -E_DATA (not logged). */
int digest_parse(const char *hex, size_t n, struct digest *out);

#endif
