/*
 * units.h - sizes and times as people read them.  Pure.
 *
 *	64 MiB   1.5 GiB   999 B        600 ms   2.5 s   19 s
 *
 * Binary units, as --bucket-size and the limits have them, so that a limit
 * reads as it was given.  What must be exact is printed in bytes.
 */
#ifndef WEIR_UNITS_H
#define WEIR_UNITS_H

#include "buf.h"

#define UNITS_MAX 24		/* bytes of one, NUL included */

/* Both write into out and return it. */
const char *units_size(uint64_t bytes, char out[UNITS_MAX]);
const char *units_time(int64_t ms, char out[UNITS_MAX]);

#endif
