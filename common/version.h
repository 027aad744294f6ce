/*
 * version.h - a version's number, and the name that it has in directories.
 *
 * 000042: six digits at least, so that a listing is in order.  0 is none.
 * Pure.
 */
#ifndef WEIR_VERSION_H
#define WEIR_VERSION_H

#include <stdint.h>

#define VERSION_MAX ((UINT64_C(1) << 53) - 1) /* exact for any JSON reader */
#define VERSION_NAME_SIZE 24	/* of any number's name, and NUL */

/* Returns out. */
char *version_name(char out[VERSION_NAME_SIZE], uint64_t version);
/* Of a name that version_name() makes; 0 for anything else. */
uint64_t version_number(const char *name);

#endif
