/* unit_supervise - restart policy of weir push, without a process. */
#include "pipes/supervise.h"

#include "tests/fsmcover.h"

static void test_final(void)
{
	struct supervisor s;

	supervisor_init(&s);
	ok(supervisor_exit(&s, STAGE_ADMIT, 76, false) == SUP_NOTHING,
	   "fenced off: a newer one goes on");
	supervisor_init(&s);
	ok(supervisor_exit(&s, STAGE_PLAN, 65, false) == SUP_TERMINATE,
	   "a data error without a verdict: nobody takes its place");
	ok(s.stage[STAGE_PLAN].state == SUP_ENDED, "plan has ended");
	ok(!supervisor_is_done(&s), "the others still run");
	supervisor_exit(&s, STAGE_ADMIT, 65, false);
	supervisor_exit(&s, STAGE_TRANSFER, 65, false);
	supervisor_exit(&s, STAGE_COMMIT, 65, false);
	ok(supervisor_is_done(&s) && supervisor_code(&s) == 65,
	   "all ended alike");
}

static void test_restarts(void)
{
	struct supervisor s;
	int64_t pause = -1;

	supervisor_init(&s);
	for (int i = 0; i < SUPERVISE_TRIES; i++) {
		ok(supervisor_exit(&s, STAGE_ADMIT, 137, true) == SUP_WAIT &&
			   s.stage[STAGE_ADMIT].pause_ms > pause,
		   "kill %d: another try after a longer pause", i + 1);
		ok(i > 0 || s.stage[STAGE_ADMIT].pause_ms == 0,
		   "the first at once");
		pause = s.stage[STAGE_ADMIT].pause_ms;
		ok(supervisor_due(&s, STAGE_ADMIT) == SUP_START, "started");
	}
	ok(supervisor_exit(&s, STAGE_ADMIT, 137, true) == SUP_TERMINATE,
	   "out of tries: the others are asked to abort");
	ok(supervisor_exit(&s, STAGE_COMMIT, 75, false) == SUP_NOTHING,
	   "and nothing starts again");
}

/* It may come anywhere, and says nothing to the others. */
static void test_memory(void)
{
	struct supervisor s;

	supervisor_init(&s);
	ok(supervisor_exit(&s, STAGE_COMMIT, 71, false) == SUP_WAIT,
	   "out of memory: another try");
	ok(supervisor_due(&s, STAGE_COMMIT) == SUP_START, "started");
	ok(supervisor_exit(&s, STAGE_COMMIT, 74, false) == SUP_TERMINATE,
	   "which cannot enter its run");
	ok(supervisor_code(&s) == 75, "engines may have been touched");
	supervisor_init(&s);
	supervisor_ending(&s);
	ok(supervisor_exit(&s, STAGE_COMMIT, 71, false) == SUP_NOTHING,
	   "out of memory behind the verdict is final");
}

static void test_verdict(void)
{
	struct supervisor s;

	supervisor_init(&s);
	ok(supervisor_exit(&s, STAGE_TRANSFER, 75, false) == SUP_WAIT,
	   "75 before the verdict is tried again");
	supervisor_ending(&s);
	ok(supervisor_due(&s, STAGE_TRANSFER) == SUP_NOTHING &&
		   s.stage[STAGE_TRANSFER].state == SUP_ENDED,
	   "a verdict during the pause: not started");
	ok(supervisor_exit(&s, STAGE_PLAN, 137, true) == SUP_NOTHING,
	   "a kill after the verdict is final");
}

static void test_code(void)
{
	struct supervisor s;

	supervisor_init(&s);
	supervisor_ending(&s);
	supervisor_exit(&s, STAGE_PLAN, 137, true);
	supervisor_exit(&s, STAGE_ADMIT, 75, false);
	ok(supervisor_code(&s) == 75, "a kill leaves the outcome unknown");
	supervisor_exit(&s, STAGE_COMMIT, 78, false);
	ok(supervisor_code(&s) == 78, "a reason outranks signals and 75");
	supervisor_init(&s);
	supervisor_ending(&s);
	supervisor_exit(&s, STAGE_PLAN, 130, false);
	ok(supervisor_code(&s) == 130, "a signal that was obeyed is the code");
}

int main(void)
{
	test_final();
	test_restarts();
	test_memory();
	test_verdict();
	test_code();
	fsm_all_taken(&supervise_table);
	return tap_done();
}
