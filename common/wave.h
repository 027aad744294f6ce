/*
 * wave.h - engines taken in fleet order, at most N at a time (I6).
 *
 * Engines are ids 0 .. engines-1 in plan order, staged kinds first.  Waves
 * are runs of that order, fixed by the two counts and the limit alone: never
 * refilled, never mixing staged and in-place engines.  A limit of 0, or one
 * at or above the count, takes all engines of a kind at once.
 *
 *	5 staged at 2:	(0,1) (2,3) (4)
 *
 * Pure: no I/O, no clock, no allocation.
 */
#ifndef WEIR_WAVE_H
#define WEIR_WAVE_H

#include <stdint.h>

struct waves {
	uint32_t staged, engines;	/* the first of them are staged */
	uint32_t limit;			/* engines of one wave, never 0 */
};

/* -E_USAGE: a limit below 0 or above UINT32_MAX.  -E_DATA: no engine, or
 * more staged ones than engines. */
int waves_init(struct waves *w, uint32_t staged, uint32_t engines,
	       int64_t limit);
uint32_t waves_count(const struct waves *w);
/* Engines first .. first+count-1 make wave i; i < waves_count(). */
void waves_get(const struct waves *w, uint32_t i, uint32_t *first,
	       uint32_t *count);
/* The wave that engine e belongs to; e < engines. */
uint32_t waves_of(const struct waves *w, uint32_t e);

#endif
