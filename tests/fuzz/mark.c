#include "pipes/vmark.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* The mark of a version directory, and one file that it may be made from. */
void fuzz_mark(struct slice in)
{
	const struct vmark_from from = {
		.path = "model.safetensors",
		.still = { 1, 2, 3, 4, 5 },
	};
	struct vmark m;
	int rc;

	fuzz_file(VMARK_NAME, in);
	rc = vmark_read(fuzz_dir(), "d", &m);
	if (rc > 0) {
		BUG_ON(strlen(m.kind) >= VMARK_TEXT_MAX);
		BUG_ON(strlen(m.registry) >= VMARK_TEXT_MAX);
	}
	BUG_ON(rc <= 0 && vmark_is_from(fuzz_dir(), &from, 1));
	BUG_ON(vmark_is_from(fuzz_dir(), &from, 0));
}
