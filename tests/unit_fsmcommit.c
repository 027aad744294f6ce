/* Runs tests/fsm/commit.t; see there for the words. */
#include "tests/fsmrun.h"

#include "common/err.h"
#include "common/log.h"
#include "pipes/commit.h"
#include "tests/fsmcover.h"

#define ENGINES_MAX 8

static const char *const word[CA_NACTS] = {
	[CA_LOCK] = "lock",	   [CA_RECOVER] = "recover",
	[CA_PROBE] = "probe",	   [CA_OPEN] = "open",
	[CA_BEGIN] = "begin",	   [CA_TELL_OPENED] = "opened",
	[CA_ASK_RECEIPTS] = "ask", [CA_HOLD] = "hold",
	[CA_RELOAD] = "reload",	   [CA_DECIDE] = "decide",
	[CA_SEEK] = "seek",	   [CA_SWAP] = "swap",
	[CA_EXCLUDE] = "exclude",  [CA_TELL_ABORT] = "abort",
	[CA_CANCEL] = "cancel",	   [CA_VERDICT] = "verdict",
};

static struct commit c;
static struct commit_engine engines[ENGINES_MAX];

/* The last `in_place` of them are, and load `groups` at a time. */
static void machine(uint32_t n, uint32_t min, uint32_t in_place,
		    uint32_t groups)
{
	BUG_ON(n > ENGINES_MAX);
	memset(engines, 0, sizeof engines);
	commit_init(&c, engines, n, min);
	c.groups = groups;
	for (uint32_t i = n - in_place; i < n; i++)
		engines[i].in_place = true;
}

static void reset(void)
{
	machine(2, 0, 0, 0);
}

static void state(struct buf *out)
{
	buf_addf(out, "%s", commit_table.states[c.state]);
}

static bool feed(enum commit_ev type, uint32_t engine)
{
	struct commit_event e = { .type = type,
				  .engine = engine,
				  .code = E_DATA };

	return commit_step(&c, &e) == 0;
}

/* The straight way, every engine answering, to the state of this name. */
static bool until(const char *name)
{
	static const enum commit_ev way[CS_NSTATES] = {
		[CS_PLAN] = CE_PLAN,	     [CS_LOCK] = CE_LOCKED,
		[CS_RECOVER] = CE_RECOVERED, [CS_PROBE] = CE_PROBED,
		[CS_OPEN] = CE_OPENED,	     [CS_BEGIN] = CE_BEGUN,
		[CS_LOAD] = CE_DRAINED,	     [CS_RECEIPT] = CE_RECEIPT,
		[CS_HOLD] = CE_HELD,	     [CS_RELOAD] = CE_LOADED,
		[CS_DECIDE] = CE_AGREED,
	};
	uint32_t e = 0;

	while (strcmp(commit_table.states[c.state], name) != 0) {
		uint8_t from = c.state;

		if (from > CS_DECIDE || !feed(way[from], e))
			return false;
		e = c.state == from ? e + 1 : 0;
	}
	return true;
}

/* What is no event of the machine, but how it starts. */
static bool start(char **words, size_t n)
{
	if (strcmp(words[0], "machine") == 0)
		machine((uint32_t)fsm_arg(words, n, "engines", 2),
			(uint32_t)fsm_arg(words, n, "min", 0),
			(uint32_t)fsm_arg(words, n, "in-place", 0),
			(uint32_t)fsm_arg(words, n, "groups", 0));
	else if (strcmp(words[0], "resumed") == 0)
		commit_resume(&c);
	else if (strcmp(words[0], "decided") == 0)
		commit_resume_decided(&c);
	else
		return n == 2 && strcmp(words[0], "until") == 0 &&
		       until(words[1]);
	return true;
}

static bool event(char **words, size_t n, struct buf *out)
{
	struct commit_event e = {
		.engine = (uint32_t)fsm_arg(words, n, "e", 0),
		.signal = (uint8_t)fsm_arg(words, n, "signal", 0),
		.code = E_DATA,
	};
	unsigned type = 0;

	while (type < CE_NEVENTS &&
	       strcmp(commit_table.events[type], words[0]) != 0)
		type++;
	if (type == CE_NEVENTS)
		return start(words, n);
	e.type = (enum commit_ev)type;
	if (commit_step(&c, &e) < 0)
		buf_addf(out, " refused");
	for (unsigned i = 0; i < c.nacts; i++) {
		buf_addf(out, " %s", word[c.act[i].type]);
		if (c.act[i].type == CA_EXCLUDE)
			buf_addf(out, "%u", c.act[i].engine);
		if (c.act[i].type == CA_RELOAD)
			buf_addf(out, "%u-%u", c.lo, c.hi - 1);
		if (c.act[i].type == CA_VERDICT)
			buf_addf(out, ":%u", commit_exit(&c));
	}
	return true;
}

static void last(void)
{
	fsm_all_taken(&commit_table);
}

int main(void)
{
	static const struct fsm_script ops = { reset, state, event, last };
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/fsm/commit.t", src ? src : ".");
	char *argv[] = { NULL, path };
	int rc = fsm_scripts(&ops, 2, argv);

	free(path);
	return rc;
}
