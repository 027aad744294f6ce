#include "tests/tap.h"

#include "common/err.h"
#include "pipes/transfer.h"

#define BUCKETS 3

static struct transfer t;
static struct buf trace;
static struct plan plan;
static struct plan_bucket bucket[BUCKETS];
static struct plan_engine engine[2];
static struct plan_receiver receiver[4];

/* Engine 0: 3 workers at 2 receivers (2 + 1).  Engine 1: one of each. */
static void make_plan(void)
{
	for (uint32_t b = 0; b < BUCKETS; b++)
		bucket[b].bytes = 100;
	engine[0] = (struct plan_engine){ .name = "a",
					  .workers = 3,
					  .receivers = 2 };
	engine[1] = (struct plan_engine){
		.name = "b", .workers = 1, .first_receiver = 2, .receivers = 1
	};
	receiver[0] = (struct plan_receiver){ .workers = 2 };
	receiver[1] = (struct plan_receiver){ .worker = 2, .workers = 1 };
	receiver[2] = (struct plan_receiver){ .engine = 1, .workers = 1 };
	plan = (struct plan){ .engine = engine,
			      .receiver = receiver,
			      .bucket = bucket,
			      .nranks = 1,
			      .nengines = 2,
			      .nreceivers = 3,
			      .nbuckets = BUCKETS };
}

static const char *const names[XF_NDO] = {
	[XF_ASK_HOLDING] = "ask",
	[XF_PREPARE] = "prepare",
	[XF_OFFER] = "offer",
	[XF_FINISH] = "finish",
	[XF_SEVER] = "sever",
	[XF_HASH_REST] = "hash",
	[XF_STOP] = "stop",
	[XF_SAY_HOLDS] = "holds",
	[XF_SAY_RELEASED] = "released",
	[XF_SAY_STAGED] = "staged",
	[XF_SAY_MOVED] = "moved",
	[XF_SAY_ACKED] = "acked",
	[XF_SAY_FAILED] = "failed",
	[XF_SAY_DRAINED] = "drained",
	[XF_SAY_SEALED] = "sealed",
	[XF_SAY_EXCLUDED] = "excluded",
};

static void record(void *arg, const struct xf_action *a)
{
	(void)arg;
	buf_addf(&trace, " %s", names[a->what]);
	switch (a->what) {
	case XF_ASK_HOLDING:
	case XF_FINISH:
		buf_addf(&trace, "%u", a->receiver);
		break;
	case XF_OFFER:
		buf_addf(&trace, "%u:%u", a->receiver, a->bucket);
		break;
	case XF_SAY_HOLDS:
		buf_addf(&trace, "%u:%x%s", a->engine, (uint8_t)*a->bitmap.p,
			 a->sealed ? "s" : "");
		break;
	case XF_SAY_FAILED:
		if (a->engine != ID_NONE)
			buf_addf(&trace, "%u", a->engine);
		if (a->bucket != ID_NONE)
			buf_addf(&trace, ":%u", a->bucket);
		break;
	case XF_PREPARE:
	case XF_SAY_RELEASED:
	case XF_SAY_STAGED:
	case XF_SAY_MOVED:
	case XF_SAY_ACKED:
		buf_addf(&trace, "%u", a->bucket);
		break;
	case XF_HASH_REST:
	case XF_STOP:
	case XF_SAY_DRAINED:
		break;
	default:
		buf_addf(&trace, "%u", a->engine);
	}
}

static const char *seen(void)
{
	static struct buf last;

	buf_clear(&last);
	buf_add(&last, trace.p, trace.n);
	buf_clear(&trace);
	return buf_cstr(&last);
}

static int step(struct xf_event e)
{
	return transfer_step(&t, &e);
}

#define EV(name, ...) step((struct xf_event){ __VA_ARGS__, .on = XF_EV_##name })

static void held(uint32_t r, uint8_t bits, bool sealed)
{
	EV(HELD, .receiver = r, .sealed = sealed, .count = BUCKETS,
	   .bitmap = { (const char *)&bits, 1 });
}

static struct digest sum(uint8_t x)
{
	return (struct digest){ { x } };
}

static void ack(uint32_t r, uint32_t worker, uint32_t b)
{
	EV(ACK, .receiver = r, .worker = worker, .bucket = b, .bytes = 100,
	   .digest = sum(1));
}

static void moved(uint32_t r, uint32_t b)
{
	EV(MOVED, .receiver = r, .bucket = b);
}

/* A wave of both engines, to its first offers. */
static void start(bool restarted)
{
	transfer_release(&t);
	make_plan();
	transfer_init(&t, &plan, restarted);
	t.out = record;
	EV(ADMIT_UP, .engine = 0);
	EV(OPENED, .engine = 0);
	for (uint32_t r = 0; r < 3; r++)
		held(r, 0, false);
	buf_clear(&trace);
}

static void grant(uint32_t b)
{
	EV(GRANT, .bucket = b, .first = 0, .count = 2);
	EV(READY, .bucket = b);
}

static void serve(uint32_t b)
{
	grant(b);
	ack(0, 0, b), ack(0, 1, b), ack(1, 2, b), ack(2, 0, b);
	moved(0, b), moved(1, b), moved(2, b);
}

static void test_start(void)
{
	make_plan();
	transfer_init(&t, &plan, false);
	t.out = record;
	EV(ADMIT_UP, .engine = 0);
	EV(GRANT, .bucket = 0, .first = 0, .count = 2);
	eq_str(seen(), "", "a grant before opened is an older admit's");
	EV(OPENED, .engine = 0);
	eq_str(seen(), " ask0 ask1 ask2", "opened: every receiver is asked");
	held(0, 0x3, false);
	held(1, 0x6, false);
	eq_str(seen(), "", "holds wait for all");
	held(2, 0x7, true);
	eq_str(seen(), " sealed1 holds0:2 holds1:7s",
	       "an engine holds what all its receivers hold");
	EV(GRANT, .bucket = 1, .first = 0, .count = 2);
	eq_str(seen(), " moved1 acked1 staged1 released1",
	       "a grant of what all hold is released at once");
	grant(0);
	eq_str(seen(), " prepare0 offer0:0 offer1:0",
	       "offered only to who lacks it");
}

static void test_four_truths(void)
{
	start(false);
	grant(0);
	eq_str(seen(), " prepare0 offer0:0 offer1:0 offer2:0",
	       "one per receiver");
	EV(GRANT, .bucket = 0, .first = 0, .count = 2);
	EV(READY, .bucket = 0);
	eq_str(seen(), "", "a second grant of it changes nothing");
	ack(2, 0, 0), ack(0, 0, 0), ack(0, 1, 0);
	moved(2, 0), moved(0, 0);
	eq_str(seen(), "", "not moved by every receiver yet");
	moved(1, 0);
	eq_str(seen(), " moved0", "moved, said when it is true");
	ack(1, 2, 0);
	eq_str(seen(), " acked0 staged0 released0",
	       "acked only after every worker of every receiver");
	serve(1), serve(2);
	seen();
	EV(SEAL, .first = 0, .count = 2);
	eq_str(seen(), " finish0 finish1 finish2", "seal");
	EV(FINISHED, .receiver = 2);
	EV(FINISHED, .receiver = 0);
	eq_str(seen(), " sealed1", "an engine is sealed as one");
	EV(FINISHED, .receiver = 1);
	eq_str(seen(), " sealed0 hash", "all sealed: the rest is hashed");
	EV(VERIFIED, .engine = 0);
	eq_str(seen(), " drained", "then drained");
	EV(COMMIT_UP, .engine = 0);
	eq_str(seen(), " sealed0 sealed1 drained", "and said again");
}

static void test_staged_waits_for_later_waves(void)
{
	start(false);
	EV(GRANT, .bucket = 0, .first = 1, .count = 1);
	EV(READY, .bucket = 0);
	ack(2, 0, 0), moved(2, 0);
	eq_str(seen(), " prepare0 offer2:0 acked0 moved0 released0",
	       "not staged: the other wave will read it");
	EV(GRANT, .wave = 1, .bucket = 0, .first = 0, .count = 1);
	EV(READY, .bucket = 0);
	ack(0, 0, 0), ack(0, 1, 0), ack(1, 2, 0), moved(0, 0);
	seen();
	moved(1, 0);
	eq_str(seen(), " moved0 staged0 released0", "now it is");
}

static const char *wrong_ack(struct xf_event e)
{
	start(false);
	grant(0);
	ack(0, 0, 0);
	seen();
	e.on = XF_EV_ACK;
	step(e);
	return seen();
}

static void test_acks_refused(void)
{
	struct xf_event good = {
		.receiver = 0, .worker = 1, .bytes = 100, .digest = sum(1)
	};
	struct xf_event e = good;

	e.worker = 0;
	eq_str(wrong_ack(e), " failed0:0", "I5 the same worker twice");
	e = good, e.worker = 2;
	eq_str(wrong_ack(e), " failed0:0", "I5 a worker that is not there");
	e = good, e.bucket = 1;
	eq_str(wrong_ack(e), " failed0:1", "I5 never offered");
	e = good, e.bytes = 99;
	eq_str(wrong_ack(e), " failed0:0", "I5 another size");
	e = good, e.digest = sum(0);
	eq_str(wrong_ack(e), " failed0:0", "no digest is a wrong one");
	e.bucket = 99;
	e.on = XF_EV_ACK;
	eq_i64(step(e), -E_PROTO, "a bucket that is not in the plan");
	start(false);
	serve(0);
	seen();
	ack(2, 0, 0);
	eq_str(seen(), " failed1:0", "I5 twice, after it was released");
	ack(2, 0, 0);
	eq_str(seen(), "", "a failed engine is not heard again");
}

static void test_digests(void)
{
	start(false);
	EV(DIGEST, .bucket = 0, .digest = sum(2));
	grant(0);
	seen();
	ack(2, 0, 0);
	eq_str(seen(), " failed1:0", "VF-03 the source knows better");
	start(false);
	grant(0);
	ack(2, 0, 0);
	EV(ACK, .receiver = 0, .worker = 0, .bytes = 100, .digest = sum(7));
	seen();
	EV(DIGEST, .bucket = 0, .digest = sum(7));
	eq_str(seen(), " failed1:0", "an early claim is judged later");
	start(false);
	grant(0);
	ack(2, 0, 0);
	EV(ACK, .receiver = 0, .worker = 0, .bytes = 100, .digest = sum(7));
	seen();
	EV(DIGEST, .bucket = 0, .digest = sum(1));
	eq_str(seen(), " failed0:0", "and who was right is not accused");
}

/* Two ranks of 60 and 100 bytes; two engines of a worker for each. */
static void start_ranks(void)
{
	static uint64_t share[2 * BUCKETS] = { 60, 100, 60, 100, 60, 100 };

	transfer_release(&t);
	make_plan();
	for (uint32_t e = 0; e < 2; e++)
		engine[e] = (struct plan_engine){ .name = &"ab"[e],
						  .workers = 2,
						  .first_receiver = 2 * e,
						  .receivers = 2 };
	for (uint32_t r = 0; r < 4; r++)
		receiver[r] = (struct plan_receiver){ .engine = r / 2,
						      .worker = r % 2,
						      .workers = 1,
						      .rank = r % 2 };
	plan.nranks = 2;
	plan.nreceivers = 4;
	plan.share = share;
	transfer_init(&t, &plan, false);
	t.out = record;
	EV(ADMIT_UP, .engine = 0);
	EV(OPENED, .engine = 0);
	for (uint32_t r = 0; r < 4; r++)
		held(r, 0, false);
	grant(0);
	buf_clear(&trace);
}

static void ack_share(uint32_t r, uint64_t bytes, uint8_t digest)
{
	EV(ACK, .receiver = r, .worker = r % 2, .bucket = 0, .bytes = bytes,
	   .digest = sum(digest));
}

static void test_ranks(void)
{
	start_ranks();
	EV(DIGEST, .bucket = 0, .rank = 0, .digest = sum(3));
	ack_share(0, 60, 3), ack_share(1, 100, 4);
	ack_share(2, 60, 3), ack_share(3, 100, 4);
	eq_str(seen(), " acked0",
	       "a worker's share has its own size and digest");
	EV(DIGEST, .bucket = 0, .rank = 1, .digest = sum(4));
	for (uint32_t r = 0; r < 4; r++)
		moved(r, 0);
	eq_str(seen(), " moved0 staged0 released0", "moved by all ranks");

	start_ranks();
	ack_share(0, 60, 3), ack_share(1, 60, 3);
	eq_str(seen(), " failed0:0", "another rank's share");
	ack_share(3, 100, 9);
	eq_str(seen(), "", "not judged yet");
	EV(DIGEST, .bucket = 0, .rank = 0, .digest = sum(9));
	eq_str(seen(), "", "another rank's digest judges it not");
	EV(DIGEST, .bucket = 0, .rank = 1, .digest = sum(4));
	eq_str(seen(), " failed1:0", "its own does, and names the engine");
}

/* Engine 0's receiver 0 linked a slot that it kept, its receiver 1 has none. */
static void test_kept(void)
{
	transfer_release(&t);
	make_plan();
	transfer_init(&t, &plan, false);
	t.out = record;
	EV(ADMIT_UP, .engine = 0);
	EV(OPENED, .engine = 0);
	EV(HELD, .receiver = 0, .sealed = true, .kept = true, .count = BUCKETS,
	   .bitmap = SLICE("\7"));
	held(1, 0, false);
	held(2, 0x7, true);
	seen();
	grant(0);
	eq_str(seen(), " prepare0 offer1:0",
	       "what a receiver kept is not offered to it");
	ack(1, 2, 0), moved(1, 0);
	eq_str(seen(), " acked0 moved0 staged0 released0",
	       "the others' acks are enough");
	ack(0, 0, 0);
	eq_str(seen(), " failed0:0", "and it has none to give");
}

static void test_exclusion(void)
{
	start(false);
	grant(0), grant(1);
	ack(2, 0, 0), moved(2, 0);
	seen();
	EV(FAULT, .engine = 0, .bucket = 1, .code = E_TIMEOUT, .cause = "x");
	eq_str(seen(), " failed0:1", "one dead worker fails its engine");
	grant(2);
	eq_str(seen(), " prepare2 offer2:2", "nothing new is offered to it");
	EV(EXCLUDE, .engine = 0);
	eq_str(seen(), " sever0", "I7 held until severed");
	EV(SEVERED, .engine = 0);
	eq_str(seen(), " excluded0 moved0 acked0 staged0 released0",
	       "then targets shrink and FIFO release goes on");
	EV(EXCLUDE, .engine = 0);
	eq_str(seen(), " excluded0", "idempotent");
	ack(0, 0, 1);
	eq_str(seen(), "", "its acks are dropped");
	ack(2, 0, 1), moved(2, 1), ack(2, 0, 2), moved(2, 2);
	seen();
	EV(SEAL, .first = 0, .count = 2);
	EV(FINISHED, .receiver = 2);
	eq_str(seen(), " finish2 sealed1 hash", "and the run can end");
	eq_u64(transfer_receiving(&t), 1, "with the others");
}

static void test_restart(void)
{
	start(true);
	grant(0);
	eq_u64(t.resent, 100,
	       "I9 what a restarted one offers is sent again, once for all");
	ack(0, 0, 0), ack(0, 1, 0), ack(1, 2, 0), ack(2, 0, 0);
	moved(0, 0), moved(1, 0), moved(2, 0);
	grant(1);
	eq_u64(t.resent, 100, "I9 until credit has come back");
	seen();
	EV(ADMIT_DOWN, .engine = 0);
	EV(GRANT, .bucket = 2, .first = 0, .count = 2);
	EV(ADMIT_UP, .engine = 0);
	eq_str(seen(), "", "admit is new: first all in flight ends");
	ack(0, 0, 1), ack(0, 1, 1), ack(1, 2, 1), ack(2, 0, 1);
	moved(0, 1), moved(1, 1), moved(2, 1);
	eq_str(seen(), " acked1 moved1 staged1 released1 holds0:3 holds1:3",
	       "then it is told");
}

static void test_abort_and_hash_only(void)
{
	start(false);
	grant(0);
	seen();
	EV(ABORT, .engine = 0);
	ack(2, 0, 0);
	EV(SEAL, .first = 0, .count = 2);
	eq_str(seen(), " stop", "after abort nothing is done");
	transfer_release(&t);
	transfer_init(&t, &plan, false);
	t.out = record;
	EV(OPENED, .hash_only = true);
	EV(VERIFIED, .engine = 0);
	eq_str(seen(), " hash drained", "hash only: nobody is asked");
	EV(FAULT, .engine = ID_NONE, .bucket = 1, .code = E_DATA);
	eq_str(seen(), " failed:1", "the source's fault names no engine");
}

int main(void)
{
	test_start();
	test_four_truths();
	test_staged_waits_for_later_waves();
	test_acks_refused();
	test_digests();
	test_ranks();
	test_kept();
	test_exclusion();
	test_restart();
	test_abort_and_hash_only();
	transfer_release(&t);
	buf_release(&trace);
	return tap_done();
}
