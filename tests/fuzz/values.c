#include "common/opt.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

/* Nothing is written for what is no value. */
void fuzz_values(struct slice in)
{
	char *s = xstrndup(in.p, in.n);
	uint64_t n = 77;
	int64_t ms = 77;

	BUG_ON(!opt_read_uint(s, &n) && n != 77);
	n = 77;
	BUG_ON(!opt_read_size(s, &n) && n != 77);
	BUG_ON(opt_read_duration(s, &ms) ? ms < 0 : ms != 77);
	free(s);
}
