#include "pipes/delta_choice.h"
#include "pipes/delta.h"

/* In the order of the names. */
static const unsigned encodings[] = { PATCH_XOR, PATCH_OVERWRITE, PATCH_SPARSE,
				      DELTA_AUTO };

const char *const delta_encodings[] = { "xor", "overwrite", "sparse", "auto",
					NULL };
const char *const delta_checksums[] = { "xxh3-128", "adler32", "blake3", NULL };

unsigned delta_encoding_of(unsigned choice)
{
	return encodings[choice];
}
