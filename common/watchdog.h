/*
 * watchdog.h - ends the process when a call does not return.
 *
 * For calls into libraries that may hang and cannot be interrupted, in a
 * process made for them alone: whoever started it reports its end, goes on,
 * and may start another.  One thread; a call is watched between
 * watchdog_set() and watchdog_clear().  The process ends with WATCHDOG_EXIT
 * and a line on stderr that names the call.
 */
#ifndef WEIR_WATCHDOG_H
#define WEIR_WATCHDOG_H

#include <stdint.h>

#define WATCHDOG_EXIT 86

int watchdog_start(void);
/* what: of the call; lent until it is cleared. */
void watchdog_set(const char *what, int64_t ms);
void watchdog_clear(void);

#endif
