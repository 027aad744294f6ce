#include "pipes/handoff.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

void fuzz_handoff(struct slice in)
{
	static struct handoff h;

	if (handoff_parse(&h, in) < 0)
		return;
	if (h.kind == HANDOFF_FAIL) {
		BUG_ON(h.code < 0 || h.code > 255);
		BUG_ON(strlen(h.cause) > in.n);
		return;
	}
	BUG_ON(h.run[0] != '/' || strncmp(h.endpoint, "ipc://", 6) != 0);
	BUG_ON(strlen(h.run) + strlen(h.endpoint) > in.n);
}
