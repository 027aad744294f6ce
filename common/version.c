#include "version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *version_name(char out[VERSION_NAME_SIZE], uint64_t version)
{
	snprintf(out, VERSION_NAME_SIZE, "%06llu", (unsigned long long)version);
	return out;
}

/* What is no number is written otherwise. */
uint64_t version_number(const char *name)
{
	uint64_t n = strtoull(name, NULL, 10);
	char again[VERSION_NAME_SIZE];

	return n <= VERSION_MAX && strcmp(version_name(again, n), name) == 0
		       ? n
		       : 0;
}
