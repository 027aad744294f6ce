#include "tests/fuzz/fuzz.h"
#include "pipes/msg.h"

/* What is taken has one encoding: packed again it is the same bytes. */
void fuzz_msg(struct slice in)
{
	static struct msg_arena arena;
	static struct buf json, again;
	struct msg m;

	if (msg_unpack(&m, &arena, in) < 0)
		return;
	buf_clear(&json);
	msg_json(&json, &m);
	buf_clear(&again);
	BUG_ON(msg_pack(&again, &m) < 0);
	BUG_ON(!slice_eq(buf_slice(&again), in));
}
