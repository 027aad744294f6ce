/* Runs tests/fsm/engine.t; see there for the words. */
#include "common/log.h"
#include "pipes/engine.h"
#include "tests/errname.h"
#include "tests/fsmcover.h"
#include "tests/fsmrun.h"

static struct engine e;

static void reset(void)
{
	engine_init(&e, &(struct fence){ .epoch = 1 });
}

static void state(struct buf *out)
{
	buf_addf(out, "%s/%s", engine_slot_table.states[e.slot],
		 engine_gate_table.states[e.gate]);
}

static void add_action(struct buf *out, const struct en_action *a)
{
	buf_addf(out, " %s", engine_do_name(a->what));
	if (a->what == EN_DO_REPLY || a->what == EN_DO_REFUSE)
		buf_addf(out, ":%s", engine_event_name(a->req));
	if (a->what == EN_DO_REFUSE)
		buf_addf(out, ":%s", err_name(a->code));
}

/* "serving v=4 c=4" and "sealed v=5 c=5": what a store had at the start. */
static bool start_with(char **words, size_t n)
{
	struct en_version v = {
		.version = fsm_arg(words, n, "v", 0),
		.epoch = fsm_arg(words, n, "e", 1),
		.content = { { (uint8_t)fsm_arg(words, n, "c", 0) } },
	};

	if (strcmp(words[0], "serving") == 0)
		engine_set_serving(&e, &v);
	else if (strcmp(words[0], "was-sealed") == 0)
		engine_set_sealed(&e, &v);
	else
		return false;
	return true;
}

static bool event(char **words, size_t n, struct buf *out)
{
	struct en_event ev = { .epoch = fsm_arg(words, n, "e", 1),
			       .version = fsm_arg(words, n, "v", 1),
			       .buckets = (uint32_t)fsm_arg(words, n, "n", 1),
			       .whole = fsm_arg(words, n, "whole", 0),
			       .token = fsm_arg(words, n, "t", 7),
			       .lease_ms = 1000,
			       .code = -E_IO,
			       .cause = "told to fail" };
	struct en_action a;
	int on = 0;

	if (start_with(words, n))
		return true;
	ev.content.b[0] = (uint8_t)fsm_arg(words, n, "c", 0);
	while (on < EN_NEV &&
	       strcmp(words[0], engine_event_name((enum en_ev)on)) != 0)
		on++;
	if (on == EN_NEV)
		return false;
	ev.on = (enum en_ev)on;
	engine_step(&e, &ev);
	while (engine_next(&e, &a))
		add_action(out, &a);
	return true;
}

static void last(void)
{
	fsm_all_taken(&engine_slot_table);
	fsm_all_taken(&engine_gate_table);
}

int main(void)
{
	static const struct fsm_script ops = { reset, state, event, last };
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/fsm/engine.t", src ? src : ".");
	char *argv[] = { NULL, path };
	int rc;

	log_init("unit_engine", LOG_ERROR);
	log_quiet_thread(1);
	rc = fsm_scripts(&ops, 2, argv);
	free(path);
	return rc;
}
