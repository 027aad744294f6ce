/*
 * bits.h - bitmaps as bytes: bit i is bit i % 8 of byte i / 8, as on the
 * wire.  Sizes are the caller's.
 */
#ifndef WEIR_BITS_H
#define WEIR_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool bit_get(const uint8_t *v, size_t i)
{
	return v[i / 8] >> (i % 8) & 1;
}

static inline void bit_set(uint8_t *v, size_t i)
{
	v[i / 8] |= (uint8_t)(1u << (i % 8));
}

static inline bool bits_are_set(const uint8_t *v, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++)
		if (!bit_get(v, i))
			return false;
	return true;
}

#endif
