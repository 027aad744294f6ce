/*
 * The fence as a machine: stories of events, and the state and actions that
 * each must give.  Also the machine of one engine on its way home, numbers,
 * exit codes and receipts.
 */
#include "common/buf.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/commit.h"
#include "pipes/homing.h"
#include "pipes/receipt.h"
#include "tests/tap.h"

#include <stdlib.h>

#define ENGINES_MAX 4

static const char *const act_names[CA_NACTS] = {
	[CA_LOCK] = "lock",	   [CA_RECOVER] = "recover",
	[CA_PROBE] = "probe",	   [CA_OPEN] = "open",
	[CA_BEGIN] = "begin",	   [CA_TELL_OPENED] = "opened",
	[CA_ASK_RECEIPTS] = "ask", [CA_DECIDE] = "decide",
	[CA_SWAP] = "swap",	   [CA_EXCLUDE] = "exclude",
	[CA_TELL_ABORT] = "tell",  [CA_CANCEL] = "cancel",
	[CA_VERDICT] = "verdict",
};

static struct commit c;
static struct commit_engine engines[ENGINES_MAX];

static int event_named(const char *name)
{
	for (unsigned i = 0; i < CE_NEVENTS; i++)
		if (strcmp(commit_table.events[i], name) == 0)
			return (int)i;
	return -1;
}

/* "lost 2" -> "abort: tell cancel"; "fail" carries E_DATA, "int" SIGINT. */
static const char *say(const char *what)
{
	static char out[256];
	char name[32] = "";
	unsigned engine = 0;
	struct commit_event e;
	int n, type;

	sscanf(what, "%31s %u", name, &engine);
	if (strcmp(name, "resumed") == 0)
		commit_resume(&c);
	if (strcmp(name, "decided") == 0)
		commit_resume_decided(&c);
	if (strcmp(name, "resumed") == 0 || strcmp(name, "decided") == 0)
		return commit_table.states[c.state];
	e = (struct commit_event){ .engine = engine, .code = E_DATA };
	type = event_named(name);
	if (strcmp(name, "int") == 0) {
		type = CE_FAIL;
		e.code = E_AGAIN;
		e.signal = 2;
	}
	e.type = (enum commit_ev)type;
	if (type < 0 || commit_step(&c, &e) < 0)
		return "refused";
	n = snprintf(out, sizeof out, "%s", commit_table.states[c.state]);
	for (unsigned i = 0; i < c.nacts; i++)
		n += snprintf(out + n, sizeof out - (size_t)n, "%s%s",
			      i ? " " : ": ", act_names[c.act[i].type]);
	return out;
}

struct line {
	const char *event, *want;
};

static void tell(const char *story, uint32_t n, uint32_t min, uint8_t code,
		 const struct line *lines)
{
	memset(engines, 0, sizeof engines);
	commit_init(&c, engines, n, min);
	for (; lines->event; lines++) {
		char name[128];

		snprintf(name, sizeof name, "%s: %s", story, lines->event);
		eq_str(say(lines->event), lines->want, name);
	}
	ok(c.state == CS_DONE, "%s: ends", story);
	ok(commit_exit(&c) == code, "%s: exit %u, got %u", story, code,
	   commit_exit(&c));
}

#define STORY(name, n, min, code, ...) \
	tell(name, n, min, code, (const struct line[]){ __VA_ARGS__, { 0 } })

#define UP_TO_PROBE                                                 \
	{ "plan", "lock: lock" }, { "locked", "recover: recover" }, \
	{                                                           \
		"recovered", "probe: probe"                         \
	}
#define UP_TO_BEGIN                                                         \
	UP_TO_PROBE, { "probed 0", "probe" }, { "probed 1", "open: open" }, \
	{                                                                   \
		"opened", "begin: begin"                                    \
	}
#define UP_TO_LOAD                           \
	UP_TO_BEGIN, { "begun 1", "begin" }, \
	{                                    \
		"begun 0", "load: opened"    \
	}
#define UP_TO_SWAP                                                             \
	UP_TO_LOAD, { "drained", "receipt: ask" }, { "receipt 0", "receipt" }, \
		{ "receipt 1", "decide: decide" },                             \
	{                                                                      \
		"agreed", "swap: swap"                                         \
	}

static void test_stories(void)
{
	STORY("published", 2, 0, 0, UP_TO_SWAP, { "home 1", "swap" },
	      { "home 0", "done: verdict" });
	STORY("VF-04 FL-05 an engine lags", 2, 0, 3, UP_TO_SWAP,
	      { "away 1", "swap" }, { "home 0", "done: verdict" });
	STORY("nothing before the plan (I11)", 2, 0, 65,
	      { "locked", "refused" }, { "drained", "refused" },
	      { "fail", "done: tell verdict" });
	STORY("I1 no decision before all receipts", 2, 0, 1, UP_TO_LOAD,
	      { "receipt 0", "refused" }, { "agreed", "refused" },
	      { "drained", "receipt: ask" }, { "agreed", "refused" },
	      { "lost 1", "abort: tell cancel" }, { "receipt 0", "abort" },
	      { "home 0", "abort" }, { "home 1", "done: verdict" });
	STORY("VF-01 a failed bucket aborts", 2, 0, 1, UP_TO_LOAD,
	      { "lost 0", "abort: tell cancel" }, { "drained", "abort" },
	      { "home 1", "abort" }, { "home 0", "done: verdict" });
	STORY("FL-05 an abort that does not arrive", 2, 0, 2, UP_TO_LOAD,
	      { "fail", "abort: tell cancel" }, { "fail", "abort" },
	      { "away 1", "abort" }, { "home 0", "done: verdict" });
	STORY("refused before any engine is touched", 2, 0, 65, UP_TO_PROBE,
	      { "probed 0", "probe" }, { "lost 1", "done: tell verdict" });
	STORY("a signal in place of 1", 2, 0, 130, UP_TO_LOAD,
	      { "int", "abort: tell cancel" }, { "home 1", "abort" },
	      { "home 0", "done: verdict" });
	STORY("2 outranks a signal", 2, 0, 2, UP_TO_LOAD,
	      { "int", "abort: tell cancel" }, { "away 1", "abort" },
	      { "home 0", "done: verdict" });
	STORY("a signal before anything is touched", 2, 0, 130, UP_TO_PROBE,
	      { "int", "done: tell verdict" });
	STORY("after the decision only forward", 2, 0, 0, UP_TO_SWAP,
	      { "int", "swap" }, { "lost 0", "swap" }, { "fail", "swap" },
	      { "home 0", "swap" }, { "home 1", "done: verdict" });
	STORY("link called, then failed", 2, 0, 75, UP_TO_LOAD,
	      { "drained", "receipt: ask" }, { "receipt 0", "receipt" },
	      { "receipt 1", "decide: decide" },
	      { "unknown", "done: tell verdict" });
	STORY("failed before the link", 2, 0, 1, UP_TO_LOAD,
	      { "drained", "receipt: ask" }, { "receipt 0", "receipt" },
	      { "receipt 1", "decide: decide" },
	      { "fail", "abort: tell cancel" }, { "home 0", "abort" },
	      { "home 1", "done: verdict" });
	STORY("VF-06 a decided number, equal content", 2, 0, 0, UP_TO_PROBE,
	      { "probed 0", "probe" }, { "probed 1", "open: open" },
	      { "same", "hash: opened" }, { "drained", "done: verdict" });
	STORY("... which an engine does not serve", 2, 0, 3, UP_TO_PROBE,
	      { "probed 0", "probe" }, { "probed 1", "open: open" },
	      { "same", "hash: opened" }, { "away 1", "hash" },
	      { "drained", "done: verdict" });
	STORY("... with other content", 2, 0, 65, UP_TO_PROBE,
	      { "probed 0", "probe" }, { "probed 1", "open: open" },
	      { "same", "hash: opened" }, { "fail", "done: tell verdict" });
	STORY("restarted behind the decision", 2, 0, 0, { "decided", "plan" },
	      { "plan", "lock: lock" }, { "locked", "recover: recover" },
	      { "ahead", "swap: swap" }, { "home 0", "swap" },
	      { "home 1", "done: verdict" });
	STORY("decided, and the registry cannot be had again", 2, 0, 3,
	      { "decided", "plan" }, { "plan", "lock: lock" },
	      { "fail", "done: verdict" });
	STORY("decided, and recovery fails", 2, 0, 3, { "decided", "plan" },
	      { "plan", "lock: lock" }, { "locked", "recover: recover" },
	      { "fail", "done: verdict" });
	STORY("touched, and the registry cannot be had again", 2, 0, 2,
	      { "resumed", "plan" }, { "plan", "lock: lock" },
	      { "int", "done: tell verdict" });
	STORY("touched, and recovery fails", 1, 0, 1, { "resumed", "plan" },
	      { "plan", "lock: lock" }, { "locked", "recover: recover" },
	      { "fail", "abort: tell cancel" }, { "home 0", "done: verdict" });
}

static void test_exclusion(void)
{
	STORY("FL-01 --min-engines: one is dead at the probe", 2, 1, 3,
	      UP_TO_PROBE, { "lost 0", "probe: exclude" },
	      { "probed 0", "probe" }, { "probed 1", "open: open" },
	      { "opened", "begin: begin" }, { "begun 1", "load: opened" },
	      { "drained", "receipt: ask" }, { "receipt 1", "decide: decide" },
	      { "agreed", "swap: swap" }, { "home 1", "done: verdict" });
	STORY("excluded under way, brought back beside the run", 2, 1, 3,
	      UP_TO_LOAD, { "lost 1", "load: exclude" }, { "lost 1", "load" },
	      { "home 1", "load" }, { "drained", "receipt: ask" },
	      { "receipt 1", "receipt" }, { "receipt 0", "decide: decide" },
	      { "agreed", "swap: swap" }, { "home 0", "done: verdict" });
	STORY("its cancel outlasts the decision", 2, 1, 3, UP_TO_LOAD,
	      { "lost 1", "load: exclude" }, { "drained", "receipt: ask" },
	      { "receipt 0", "decide: decide" }, { "agreed", "swap: swap" },
	      { "home 0", "swap" }, { "away 1", "done: verdict" });
	STORY("FL-04 below the minimum: abort", 2, 1, 1, UP_TO_LOAD,
	      { "lost 1", "load: exclude" }, { "home 1", "load" },
	      { "lost 0", "abort: tell cancel" },
	      { "home 0", "done: verdict" });
	STORY("the last one missing is excluded at begin", 2, 1, 3, UP_TO_BEGIN,
	      { "begun 0", "begin" }, { "lost 1", "load: exclude opened" },
	      { "home 1", "load" }, { "drained", "receipt: ask" },
	      { "receipt 0", "decide: decide" }, { "agreed", "swap: swap" },
	      { "home 0", "done: verdict" });
	STORY("... and at the receipts", 2, 1, 3, UP_TO_LOAD,
	      { "drained", "receipt: ask" }, { "receipt 0", "receipt" },
	      { "lost 1", "decide: exclude decide" }, { "home 1", "decide" },
	      { "agreed", "swap: swap" }, { "home 0", "done: verdict" });
}

/* A restarted commit may have touched engines: a refusal is an abort. */
static void test_resumed(void)
{
	memset(engines, 0, sizeof engines);
	commit_init(&c, engines, 2, 0);
	say("plan");
	say("locked");
	commit_resume(&c);
	eq_str(say("recovered"), "probe: probe", "resumed: probes again");
	eq_str(say("probed 0"), "probe", "resumed: one is there");
	eq_str(say("lost 1"), "abort: tell cancel",
	       "FL-01 resumed: another boot aborts, and cancels");
	eq_str(say("home 0"), "abort", "resumed: one is back");
	eq_str(say("away 1"), "done: verdict", "resumed: one is not");
	ok(commit_exit(&c) == 2, "resumed: needs attention");
}

static void test_numbers(void)
{
	static const struct {
		const char *name;
		struct commit_numbers n;
		int rc;
		uint64_t out;
	} t[] = {
		{ "the first one", { 0, 0, 0, false }, 0, 1 },
		{ "highest decided + 1", { 0, 41, 7, false }, 0, 42 },
		{ "highest probed + 1", { 0, 3, 57, false }, 0, 58 },
		{ "a gap is normal", { 100, 3, 3, false }, 0, 100 },
		{ "VF-06 1 after 57", { 1, 57, 57, false }, -E_DATA, 0 },
		{ "VF-13 not above a probed one",
		  { 57, 3, 57, false },
		  -E_DATA,
		  0 },
		{ "VF-06 57 again", { 57, 57, 57, true }, -E_AGAIN, 0 },
		{ "an older decided one again",
		  { 5, 57, 57, true },
		  -E_AGAIN,
		  0 },
		{ "no number is left",
		  { 0, UINT64_MAX, 0, false },
		  -E_DATA,
		  0 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		uint64_t out = 0;
		int rc = commit_number(&t[i].n, &out);

		ok(rc == t[i].rc && out == t[i].out, "I12 %s", t[i].name);
	}
}

static void test_homing(void)
{
	static const struct {
		const char *name;
		enum homing_ev ev[12];
		enum homing_act last;
		enum homing_state end;
		int n;
	} t[] = {
		{ "forward", { HE_FORWARD, HE_OK }, HA_HOME, HS_HOME, 2 },
		{ "FL-05 a lost reply: found held, swapped again",
		  { HE_FORWARD, HE_FAILED, HE_TIMER, HE_HELD, HE_OK },
		  HA_HOME,
		  HS_HOME,
		  5 },
		{ "restarted after the decision: a fresh receipt first",
		  { HE_FORWARD, HE_FAILED, HE_TIMER, HE_OK, HE_OK, HE_OK },
		  HA_HOME,
		  HS_HOME,
		  6 },
		{ "swapped already",
		  { HE_FIND, HE_THERE },
		  HA_HOME,
		  HS_HOME,
		  2 },
		{ "lagging",
		  { HE_FORWARD, HE_FAILED, HE_DEADLINE },
		  HA_AWAY,
		  HS_AWAY,
		  3 },
		{ "fenced off",
		  { HE_FIND, HE_OK, HE_REFUSED },
		  HA_AWAY,
		  HS_AWAY,
		  3 },
		{ "back",
		  { HE_BACK, HE_FAILED, HE_TIMER, HE_OK },
		  HA_HOME,
		  HS_HOME,
		  4 },
		{ "FL-01 back: a dead engine is not waited for",
		  { HE_BACK, HE_FAILED, HE_TIMER, HE_GONE },
		  HA_AWAY,
		  HS_AWAY,
		  4 },
		{ "forward: a dead engine may be started again",
		  { HE_FORWARD, HE_GONE, HE_TIMER, HE_GONE, HE_TIMER,
		    HE_THERE },
		  HA_HOME,
		  HS_HOME,
		  6 },
		{ "FL-04 one known to be away is not waited for again",
		  { HE_LOOK, HE_GONE },
		  HA_AWAY,
		  HS_AWAY,
		  2 },
		{ "back, never answered",
		  { HE_BACK, HE_DEADLINE },
		  HA_AWAY,
		  HS_AWAY,
		  2 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct homing h = { 0 };
		int rc = 0;

		for (int k = 0; k < t[i].n && rc == 0; k++)
			rc = homing_step(&h, t[i].ev[k]);
		ok(rc == 0 && h.act == t[i].last && h.state == t[i].end,
		   "homing: %s", t[i].name);
	}
}

static struct engine_receipt right[2];
static struct engine_part parts[2];
static struct engine two[2];
static struct engine_goal goal;
static struct receipt_want want;

static void make_receipts(void)
{
	goal = (struct engine_goal){ .registry = "reg",
				     .run = "run",
				     .epoch = 3,
				     .version = 7,
				     .bytes = 100 };
	want = (struct receipt_want){ .proof = PROOF_COPIED };
	memset(want.content.b, 0xaa, DIGEST_LEN);
	for (int i = 0; i < 2; i++) {
		right[i] = (struct engine_receipt){ .boot = "boot",
						    .registry = "reg",
						    .run = "run",
						    .workers = 1,
						    .epoch = 3,
						    .version = 7,
						    .bytes = 100,
						    .received = want.content,
						    .installed = want.content,
						    .proof = PROOF_COPIED };
		snprintf(right[i].engine, ENGINE_TEXT, "e%d", i);
		parts[i] = (struct engine_part){ .workers = 1,
						 .boot = "boot",
						 .receipt = &right[i] };
		two[i] = (struct engine){ .name = right[i].engine,
					  .goal = &goal,
					  .part = &parts[i],
					  .nparts = 1 };
	}
	two[0].name = (char *)"e0";
	two[1].name = (char *)"e1";
}

#define WRONG(what, change, rc_want, text)                        \
	do {                                                      \
		make_receipts();                                  \
		change;                                           \
		ok(receipt_check(&two[0], &want) == -(rc_want) && \
			   strstr(log_cause(), text) &&           \
			   strstr(log_cause(), "e0"),             \
		   "%s: %s", what, log_cause());                  \
	} while (0)

static void test_receipts(void)
{
	struct engine *v[2] = { &two[0], &two[1] };
	bool skip[2] = { false, false };
	uint32_t odd = 9;

	log_quiet_thread(1);
	make_receipts();
	ok(receipt_check(&two[0], &want) == 0, "a right receipt");
	WRONG("VF-03 no receipt", parts[0].receipt = NULL, E_PROTO, "no");
	WRONG("VF-03 bytes", right[0].bytes = 0, E_DATA, "0 bytes");
	WRONG("VF-03 content", right[0].received.b[0] = 1, E_DATA, "01aa");
	WRONG("VF-03 proof", right[0].proof = PROOF_ACK, E_PROTO, "\"ack\"");
	WRONG("another name", snprintf(right[0].engine, 3, "ex"), E_PROTO,
	      "\"ex\"");
	WRONG("another boot", right[0].boot[0] = 'x', E_PROTO, "boot");
	WRONG("another registry", right[0].registry[0] = 'x', E_PROTO,
	      "registry");
	WRONG("another run", right[0].run[0] = 'x', E_PROTO, "run");
	WRONG("an older epoch", right[0].epoch = 2, E_PROTO, "epoch 2");
	WRONG("VF-02 another version", right[0].version = 6, E_PROTO,
	      "version 6");
	WRONG("a worker is missing", parts[0].workers = 2, E_PROTO, "workers");

	make_receipts();
	ok(receipt_agree(v, 2, skip, &odd) == 0, "installed digests agree");
	ok(receipt_compared(v, 2, skip) == 2, "both were compared");
	right[1].installed.b[0] = 1;
	ok(receipt_agree(v, 2, skip, &odd) == -E_DATA && odd == 1,
	   "they differ: %s", log_cause());
	skip[1] = true;
	ok(receipt_agree(v, 2, skip, &odd) == 0,
	   "an excluded one is not asked");
	ok(receipt_compared(v, 2, skip) == 0, "a group of one");
	skip[1] = false;
	strcpy(right[1].post_load, "quantise");
	ok(receipt_agree(v, 2, skip, &odd) == 0, "another post-load");
	right[0].varies = right[1].varies = true;
	strcpy(right[0].post_load, "quantise");
	ok(receipt_agree(v, 2, skip, &odd) == 0, "declared to vary");
	log_quiet_thread(0);
}

int main(void)
{
	test_stories();
	test_exclusion();
	test_resumed();
	test_numbers();
	test_homing();
	test_receipts();
	return tap_done();
}
