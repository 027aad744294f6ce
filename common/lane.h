/*
 * lane.h - runs of bytes, compared as many at a time as any vector unit can.
 *
 * All from any address.  Pure.
 */
#ifndef WEIR_LANE_H
#define WEIR_LANE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t lane __attribute__((vector_size(16)));

#define LANE		sizeof(lane)
#define LINE		(4 * LANE)	/* bytes looked at as one */

static inline lane lane_at(const uint8_t *p)
{
	lane v;

	memcpy(&v, p, sizeof v);
	return v;
}

static inline void lane_put(uint8_t *p, lane v)
{
	memcpy(p, &v, sizeof v);
}

static inline bool lane_is_zero(lane v)
{
	return (v[0] | v[1]) == 0;
}

static inline bool line_is_zero(const uint8_t *p)
{
	return lane_is_zero((lane_at(p) | lane_at(p + LANE)) |
			    (lane_at(p + 2 * LANE) | lane_at(p + 3 * LANE)));
}

/* A bit for each byte that is not 0, the lowest for the first. */
#ifdef __SSE2__
static inline uint64_t lane_set(lane v)
{
	typedef char bytes __attribute__((vector_size(16)));
	bytes is_zero = (bytes)((bytes)v == (bytes){ 0 });

	return (uint16_t)~__builtin_ia32_pmovmskb128(is_zero);
}
#else
static inline uint64_t word_set(uint64_t v)
{
	const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);

	v = le64toh(v);
	v = (((v & low) + low) | v) & ~low;
	return ((v >> 7) * UINT64_C(0x0102040810204080)) >> 56;
}

static inline uint64_t lane_set(lane v)
{
	return word_set(v[0]) | word_set(v[1]) << 8;
}
#endif

/* The same of a line; of what differs in two. */
static inline uint64_t line_set(const uint8_t *p)
{
	uint64_t m = 0;

	for (size_t i = 0; i < LINE; i += LANE)
		m |= lane_set(lane_at(p + i)) << i;
	return m;
}

static inline uint64_t line_differs(const uint8_t *a, const uint8_t *b)
{
	uint64_t m = 0;

	for (size_t i = 0; i < LINE; i += LANE)
		m |= lane_set(lane_at(a + i) ^ lane_at(b + i)) << i;
	return m;
}

static inline bool line_is_same(const uint8_t *a, const uint8_t *b)
{
	lane d = lane_at(a) ^ lane_at(b);

	for (size_t i = LANE; i < LINE; i += LANE)
		d |= lane_at(a + i) ^ lane_at(b + i);
	return lane_is_zero(d);
}

#endif
