/*
 * Numbers and receipts; the fence as a machine is tests/fsm/commit.t's.
 */
#include "common/buf.h"
#include "common/err.h"
#include "common/log.h"
#include "common/version.h"
#include "pipes/commit.h"
#include "pipes/receipt.h"
#include "tests/tap.h"

#include <stdlib.h>

static void test_numbers(void)
{
	static const struct {
		const char *name;
		struct commit_numbers n;
		int rc;
		uint64_t out;
	} t[] = {
		{ "the first one", { 0, 0, 0, 0, false }, 0, 1 },
		{ "highest decided + 1", { 0, 41, 7, 0, false }, 0, 42 },
		{ "highest probed + 1", { 0, 3, 57, 0, false }, 0, 58 },
		{ "a gap is normal", { 100, 3, 3, 0, false }, 0, 100 },
		{ "VF-06 1 after 57", { 1, 57, 57, 0, false }, -E_DATA, 0 },
		{ "VF-13 not above a probed one",
		  { 57, 3, 57, 0, false },
		  -E_DATA,
		  0 },
		{ "VF-06 57 again", { 57, 57, 57, 0, true }, -E_AGAIN, 0 },
		{ "an older decided one again",
		  { 5, 57, 57, 0, true },
		  -E_AGAIN,
		  0 },
		{ "pulled, undecided: another", { 0, 3, 3, 5, false }, 0, 6 },
		{ "pulled, undecided: not again",
		  { 5, 3, 3, 5, false },
		  -E_DATA,
		  0 },
		{ "no number is left",
		  { 0, VERSION_MAX, 0, 0, false },
		  -E_DATA,
		  0 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		uint64_t out = 0;
		int rc = commit_number(&t[i].n, &out);

		ok(rc == t[i].rc && out == t[i].out, "I12 %s", t[i].name);
	}
}

static struct engine_receipt right[2];
static struct engine_part parts[2];
static struct engine two[2];
static struct engine_share share;
static struct engine_goal goal;
static struct receipt_want want;

static void make_receipts(void)
{
	goal = (struct engine_goal){ .registry = "reg",
				     .run = "run",
				     .epoch = 3,
				     .version = 7,
				     .share = &share,
				     .nshares = 1 };
	want = (struct receipt_want){ .proof = PROOF_COPIED };
	share.bytes = 100;
	memset(share.content.b, 0xaa, DIGEST_LEN);
	for (int i = 0; i < 2; i++) {
		right[i] = (struct engine_receipt){ .boot = "boot",
						    .registry = "reg",
						    .run = "run",
						    .workers = 1,
						    .epoch = 3,
						    .version = 7,
						    .bytes = 100,
						    .received = share.content,
						    .installed = share.content,
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
	ok(receipt_has_peer(v, 2, 0, skip) && receipt_has_peer(v, 2, 1, skip),
	   "both were compared");
	ok(!receipt_odd_load(v, 2, skip), "of one post-load");
	right[1].installed.b[0] = 1;
	ok(receipt_agree(v, 2, skip, &odd) == -E_DATA && odd == 1,
	   "they differ: %s", log_cause());
	skip[1] = true;
	ok(receipt_agree(v, 2, skip, &odd) == 0,
	   "an excluded one is not asked");
	ok(!receipt_has_peer(v, 2, 0, skip), "a group of one");
	skip[1] = false;
	strcpy(right[1].post_load, "quantise");
	ok(receipt_agree(v, 2, skip, &odd) == 0 &&
		   !receipt_has_peer(v, 2, 0, skip),
	   "another post-load");
	ok(receipt_odd_load(v, 2, skip) == &two[1], "is told");
	right[0].varies = right[1].varies = true;
	strcpy(right[0].post_load, "quantise");
	ok(receipt_agree(v, 2, skip, &odd) == 0, "declared to vary");
	log_quiet_thread(0);
}

int main(void)
{
	test_numbers();
	test_receipts();
	return tap_done();
}
