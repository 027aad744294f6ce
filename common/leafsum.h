/*
 * leafsum.h - XXH3-128 in parts that a device can work on at once; C and CUDA.
 *
 * XXH3 takes more than LEAFSUM_MIN bytes in blocks of 1 KiB, 16 stripes each,
 * by 8 lanes of 64 bits.  What a stripe adds to a lane does not depend on the
 * lane's state, and is added modulo 2^64: so the sums of all blocks of all
 * leaves can be made at once, which is nearly all of the work.  What is left
 * is one short chain for each lane of a leaf: add a block's sum, scramble.
 * The digest is digest.h's, bit by bit.
 *
 *	leafsum.cu	two kernels, a thread for each sum and each chain
 *	leafsum.c	from a leaf's lanes to its digest, on the host
 */
#ifndef WEIR_LEAFSUM_H
#define WEIR_LEAFSUM_H

#include <stdint.h>
#include <string.h>

#define LEAFSUM_MIN	240u		/* bytes; what is shorter: digest.h */
#define LEAFSUM_STRIPE	64u
#define LEAFSUM_BLOCK	1024u
#define LEAFSUM_LANES	8u
#define LEAFSUM_SECRET	192u		/* bytes; what XXH3 is salted with */
#define LEAFSUM_LAST	(LEAFSUM_SECRET - LEAFSUM_STRIPE - 7)

#ifdef __CUDACC__
#define LEAFSUM_FN static inline __device__
#else
#define LEAFSUM_FN static inline
#endif

struct leafsum_run {
	const unsigned char *p;		/* aligned to 8 bytes */
	uint64_t n;			/* more than LEAFSUM_MIN */
	uint64_t first;			/* of its blocks' sums */
};

/* All on the device. */
struct leafsum_work {
	const struct leafsum_run *run;
	const unsigned char *secret;	/* aligned as well */
	uint64_t *sum;			/* of each block, LEAFSUM_LANES */
	uint64_t *lane;			/* of each run, LEAFSUM_LANES */
	uint32_t n;
};

/* Blocks that have a sum: not the last one, which is not scrambled. */
LEAFSUM_FN uint64_t leafsum_blocks(uint64_t n)
{
	return (n - 1) / LEAFSUM_BLOCK;
}

LEAFSUM_FN uint64_t leafsum_aligned(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, __builtin_assume_aligned(p, sizeof(v)), sizeof(v));
	return v;
}

LEAFSUM_FN uint64_t leafsum_anywhere(const unsigned char *p)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < sizeof(v); i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* What a lane gets of its own 8 bytes and of its neighbour's. */
LEAFSUM_FN uint64_t leafsum_term(uint64_t own, uint64_t other, uint64_t secret)
{
	uint64_t key = own ^ secret;

	return other + (uint64_t)(uint32_t)key * (key >> 32);
}

LEAFSUM_FN uint64_t leafsum_stripe(const unsigned char *p,
				   const unsigned char *secret, unsigned lane)
{
	return leafsum_term(leafsum_aligned(p + 8 * lane),
			    leafsum_aligned(p + 8 * (lane ^ 1)),
			    leafsum_aligned(secret + 8 * lane));
}

/* The last 64 bytes count once more, wherever they begin. */
LEAFSUM_FN uint64_t leafsum_last(const unsigned char *p,
				 const unsigned char *secret, unsigned lane)
{
	return leafsum_term(leafsum_anywhere(p + 8 * lane),
			    leafsum_anywhere(p + 8 * (lane ^ 1)),
			    leafsum_anywhere(secret + 8 * lane));
}

LEAFSUM_FN uint64_t leafsum_stripes(const unsigned char *p, uint64_t n,
				    const unsigned char *secret, unsigned lane)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += leafsum_stripe(p + i * LEAFSUM_STRIPE, secret + 8 * i,
				      lane);
	return sum;
}

LEAFSUM_FN uint64_t leafsum_scramble(uint64_t lane, uint64_t secret)
{
	lane ^= lane >> 47;
	lane ^= secret;
	return lane * 0x9E3779B1u;
}

LEAFSUM_FN uint64_t leafsum_begin(unsigned lane)
{
	const uint64_t begin[LEAFSUM_LANES] = {
		0xC2B2AE3Du,	      0x9E3779B185EBCA87u,
		0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
		0x85EBCA77C2B2AE63u, 0x85EBCA77u,
		0x27D4EB2F165667C5u, 0x9E3779B1u,
	};

	return begin[lane];
}

/* Thread t of a run, up to LEAFSUM_LANES * leafsum_blocks(). */
LEAFSUM_FN void leafsum_sum(const struct leafsum_work *w, uint32_t run,
			    uint64_t t)
{
	const struct leafsum_run *r = &w->run[run];
	uint64_t block = t / LEAFSUM_LANES;

	w->sum[r->first * LEAFSUM_LANES + t] = leafsum_stripes(
		r->p + block * LEAFSUM_BLOCK, LEAFSUM_BLOCK / LEAFSUM_STRIPE,
		w->secret, t % LEAFSUM_LANES);
}

/* Thread t, up to LEAFSUM_LANES * n; all sums have been made. */
LEAFSUM_FN void leafsum_chain(const struct leafsum_work *w, uint64_t t)
{
	const struct leafsum_run *r = &w->run[t / LEAFSUM_LANES];
	unsigned lane = t % LEAFSUM_LANES;
	const uint64_t *sum = w->sum + r->first * LEAFSUM_LANES + lane;
	uint64_t blocks = leafsum_blocks(r->n), acc = leafsum_begin(lane);
	uint64_t done = blocks * LEAFSUM_BLOCK;
	uint64_t secret = leafsum_aligned(w->secret + LEAFSUM_SECRET -
					  LEAFSUM_STRIPE + 8 * lane);

	for (uint64_t i = 0; i < blocks; i++)
		acc = leafsum_scramble(acc + sum[i * LEAFSUM_LANES], secret);
	acc += leafsum_stripes(r->p + done, (r->n - 1 - done) / LEAFSUM_STRIPE,
			       w->secret, lane);
	w->lane[t] = acc + leafsum_last(r->p + r->n - LEAFSUM_STRIPE,
					w->secret + LEAFSUM_LAST, lane);
}

#ifndef __CUDACC__
#include "digest.h"

/* The digest of a run of n bytes, of its lanes. */
void leafsum_end(const uint64_t lane[LEAFSUM_LANES], uint64_t n,
		 const unsigned char secret[LEAFSUM_SECRET],
		 struct digest *out);
#endif

#endif
