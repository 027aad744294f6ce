#include "gputext.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_dash(int i)
{
	return i == 4 || i == 6 || i == 8 || i == 10;
}

void gpu_uuid_text(const unsigned char uuid[GPU_UUID_LEN],
		   char text[GPU_UUID_TEXT])
{
	size_t n = (size_t)snprintf(text, GPU_UUID_TEXT, "GPU-");

	for (int i = 0; i < GPU_UUID_LEN; i++)
		n += (size_t)snprintf(text + n, GPU_UUID_TEXT - n, "%s%02x",
				      has_dash(i) ? "-" : "", uuid[i]);
}

static bool take_byte(const char *text, unsigned char *out)
{
	char two[3] = { text[0], text[0] ? text[1] : '\0' };

	if (!isxdigit((unsigned char)two[0]) ||
	    !isxdigit((unsigned char)two[1]))
		return false;
	*out = (unsigned char)strtoul(two, NULL, 16);
	return true;
}

bool gpu_uuid_of(const char *text, unsigned char uuid[GPU_UUID_LEN])
{
	unsigned char out[GPU_UUID_LEN];

	if (strncmp(text, "GPU-", 4) != 0)
		return false;
	text += 4;
	for (int i = 0; i < GPU_UUID_LEN; i++, text += 2) {
		if (has_dash(i) && *text++ != '-')
			return false;
		if (!take_byte(text, &out[i]))
			return false;
	}
	if (*text)
		return false;
	memcpy(uuid, out, sizeof(out));
	return true;
}

bool gpu_hex(const char *text, unsigned char *out, size_t n)
{
	for (size_t i = 0; i < n; i++, text += 2)
		if (!take_byte(text, &out[i]))
			return false;
	return *text == '\0';
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
