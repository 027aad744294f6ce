#include "pipes/progress.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define WIDTH 80

/* Lines of RUN/events, and the bar after each. */
void fuzz_event(struct slice in)
{
	static struct buf out;
	struct progress p = { .buckets = (uint32_t)fuzz_number(&in, 1),
			      .engines = 2,
			      .waves = (uint32_t)fuzz_number(&in, 1),
			      .bytes = 1 << 20 };

	while (in.n > 0) {
		const char *end = memchr(in.p, '\n', in.n);
		struct slice line =
			fuzz_take(&in, end ? (size_t)(end - in.p) : in.n);

		fuzz_take(&in, 1);
		buf_clear(&out);
		progress_line(&p, line, &out);
		buf_clear(&out);
		progress_bar(&p, WIDTH, &out);
		BUG_ON(out.n > WIDTH);
	}
	progress_release(&p);
}
