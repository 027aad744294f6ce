#include "units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BELOW_TEN 9.995	    /* two digits behind the point */
#define BELOW_HUNDRED 99.95 /* one */

/* "1.50" is "1.5", "64.0" is "64". */
static void trim(char *s)
{
	size_t n = strlen(s);

	if (!strchr(s, '.'))
		return;
	while (s[n - 1] == '0')
		s[--n] = '\0';
	if (s[n - 1] == '.')
		s[n - 1] = '\0';
}

const char *units_size(uint64_t bytes, char out[UNITS_MAX])
{
	static const char *const units[] = { "B",   "KiB", "MiB", "GiB",
					     "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	char number[UNITS_MAX / 2];
	size_t u = 0;

	for (; v >= (u ? 1023.5 : 1024) && u + 1 < COUNT(units); u++)
		v /= 1024;
	snprintf(number, sizeof number, "%.*f",
		 u == 0 || v >= BELOW_HUNDRED ? 0
		 : v >= BELOW_TEN	      ? 1
					      : 2,
		 v);
	trim(number);
	snprintf(out, UNITS_MAX, "%s %s", number, units[u]);
	return out;
}

const char *units_time(int64_t ms, char out[UNITS_MAX])
{
	char number[UNITS_MAX - 3];

	if (ms < 1000) {
		snprintf(out, UNITS_MAX, "%" PRId64 " ms", ms);
		return out;
	}
	snprintf(number, sizeof number, "%.*f", ms < 9950 ? 1 : 0,
		 (double)ms / 1000);
	trim(number);
	snprintf(out, UNITS_MAX, "%s s", number);
	return out;
}
