#include "pipes/recfile.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

/* As the file stands; what is read is written again the same. */
void fuzz_recfile(struct slice in)
{
	static struct msg_arena arena;
	static struct buf again;
	struct rec_reader r = { 0 };
	struct msg m;
	int rc;

	fuzz_file("r", in);
	if (rec_open(&r, fuzz_dir(), "r", 1 << 20) < 0)
		return;
	buf_clear(&again);
	while ((rc = rec_next(&r, &m, &arena)) > 0)
		BUG_ON(rec_append(&again, &m) < 0);
	if (rc == 0 && again.n > 0)
		BUG_ON(!slice_eq(buf_slice(&again), in));
	rec_close(&r);
}
