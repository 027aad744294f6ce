/* Numbers only go up (I12). */
#include "pipes/commit.h"
#include "common/err.h"
#include "common/version.h"

int commit_number(const struct commit_numbers *n, uint64_t *out)
{
	uint64_t top = n->decided > n->served ? n->decided : n->served;

	if (n->pulled > top)
		top = n->pulled;
	if (n->asked_is_decided)
		return -E_AGAIN;
	if (n->asked && n->asked <= top)
		return -E_DATA;
	if (top >= VERSION_MAX)
		return -E_DATA;
	*out = n->asked ? n->asked : top + 1;
	return 0;
}
