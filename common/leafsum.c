#include "leafsum.h"

__extension__ typedef unsigned __int128 product;

static uint64_t fold(uint64_t a, uint64_t b)
{
	product p = (product)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t merge(const uint64_t lane[LEAFSUM_LANES],
		      const unsigned char *secret, uint64_t start)
{
	uint64_t h = start;

	for (unsigned i = 0; i < LEAFSUM_LANES; i += 2)
		h += fold(lane[i] ^ leafsum_anywhere(secret + 8 * i),
			  lane[i + 1] ^ leafsum_anywhere(secret + 8 * i + 8));
	h ^= h >> 37;
	h *= 0x165667919E3779F9u;
	return h ^ h >> 32;
}

static void put(uint64_t v, uint8_t out[8])
{
	for (unsigned i = 0; i < 8; i++)
		out[i] = (uint8_t)(v >> (56 - 8 * i));
}

void leafsum_end(const uint64_t lane[LEAFSUM_LANES], uint64_t n,
		 const unsigned char secret[LEAFSUM_SECRET], struct digest *out)
{
	put(merge(lane, secret + LEAFSUM_SECRET - LEAFSUM_STRIPE - 11,
		  ~(n * 0xC2B2AE3D27D4EB4Fu)),
	    out->b);
	put(merge(lane, secret + 11, n * 0x9E3779B185EBCA87u), out->b + 8);
}
