#include "pipes/trcaps.h"
#include "common/buf.h"

#include <string.h>

/* clang-format off */
static const struct {
	const char *name;
	unsigned caps; /* enum tr_caps */
} all[] = {
	{ "host",     TR_CAN_LOSE },
	{ "mem",      TR_CAN_LOSE },
	{ "disk",     TR_CAN_LOSE | TR_DURABLE | TR_WHOLE },
	{ "delta",    TR_CAN_LOSE | TR_DURABLE | TR_WHOLE },
	{ "nccl",     TR_DEVICE | TR_FANOUT | TR_KEEPS },
	{ "cuda-ipc", TR_DEVICE | TR_FANOUT | TR_SHARED_STAGING },
};
/* clang-format on */

bool transport_has(const char *name, enum tr_caps cap)
{
	for (size_t i = 0; i < COUNT(all); i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].caps & cap;
	return false;
}
