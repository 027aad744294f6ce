/*
 * copy.h - memory to memory, past the cache, hashing on the way.
 *
 * A weight is written once and read much later by somebody else: a normal
 * store would first read the destination's line and then push useful lines
 * out.  So the destination is written with non-temporal stores, and the
 * source is hashed block by block while it is in the cache: one pass over
 * memory instead of two.  Bytes move as integers, never through a float
 * register's conversions: every payload arrives bit for bit.
 *
 * The kernel is chosen at run time.  Stores are fenced before a call
 * returns, so that whoever is told about the bytes sees them.  Source and
 * destination must not overlap; any alignment and length will do.  Pure.
 */
#ifndef WEIR_COPY_H
#define WEIR_COPY_H

#include "digest.h"

/* Bytes that are hashed and then stored while they are still in the cache. */
#define COPY_BLOCK ((size_t)32 << 10)

void copy_hash(void *dst, const void *src, size_t n, struct digest_state *s);

#endif
