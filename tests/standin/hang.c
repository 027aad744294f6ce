/*
 * hang.c - a watched call that never returns, in the movers of mutants*.c:
 * WEIR_HANG is what watchdog_set() calls it, and it is watched for HANG_MS.
 */
#include "common/watchdog.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANG_MS 100

void __real_watchdog_set(const char *what, int64_t ms);
void __wrap_watchdog_set(const char *what, int64_t ms);

void __wrap_watchdog_set(const char *what, int64_t ms)
{
	const char *wanted = getenv("WEIR_HANG");

	if (!wanted || strcmp(wanted, what) != 0) {
		__real_watchdog_set(what, ms);
		return;
	}
	__real_watchdog_set(what, HANG_MS);
	for (;;)
		pause();
}
