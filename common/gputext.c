#include "gputext.h"

#include <stddef.h>
#include <stdio.h>

void gpu_uuid_text(const unsigned char uuid[GPU_UUID_LEN],
		   char text[GPU_UUID_TEXT])
{
	size_t n = (size_t)snprintf(text, GPU_UUID_TEXT, "GPU-");

	for (int i = 0; i < GPU_UUID_LEN; i++) {
		bool dash = i == 4 || i == 6 || i == 8 || i == 10;

		n += (size_t)snprintf(text + n, GPU_UUID_TEXT - n, "%s%02x",
				      dash ? "-" : "", uuid[i]);
	}
}

void nccl_version_text(uint32_t code, char text[NCCL_TEXT])
{
	snprintf(text, NCCL_TEXT, "%u.%u.%u", code / 10000 % 100,
		 code / 100 % 100, code % 100);
}

bool nccl_is_compatible(uint32_t a, uint32_t b)
{
	return a / 100 == b / 100;
}
