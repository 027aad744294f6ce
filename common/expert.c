#include "expert.h"

#include <string.h>

bool expert_is_routed(struct slice name)
{
	const char *p = name.p, *end = name.p + name.n, *dot;

	while (p < end && (dot = memchr(p, '.', (size_t)(end - p)))) {
		if (slice_eq((struct slice){ p, (size_t)(dot - p) },
			     SLICE("experts")))
			return true;
		p = dot + 1;
	}
	return false;
}
