/*
 * trcheck.h - what every transport must do: one suite, run with each.
 *
 * A bench makes a transport with the receivers that it needs; they answer
 * while the loop runs.  Two engines: one of two receivers with two and one
 * workers, one of one.
 *
 * To *send* is to post all buckets, or, by a transport that carries versions
 * whole, to load the one that was placed; a receiver *has* the version when
 * each of its workers has acked each bucket, or it has loaded.
 */
#ifndef WEIR_TESTS_TRCHECK_H
#define WEIR_TESTS_TRCHECK_H

#include "pipes/transport.h"
#include "tests/planmake.h"
#include "tests/tap.h"

#define TR_BUCKETS 6
#define TR_TENSOR 40000u
#define TR_RECEIVERS 3
#define TR_PATIENCE_MS 60000

struct tr_bench {
	const char *name;
	const struct transport_ops *ops;
	/* Receivers, before open and after close; may be NULL. */
	void (*start)(struct loop *l, const struct plan *p);
	void (*stop)(struct loop *l);
	/* What else it needs, beside the plan's directory; may be NULL. */
	void (*prepare)(struct made *made, struct tr_env *env);
	/* The receiver's copy of the file. */
	const char *(*bytes)(const struct transport *t, uint32_t receiver);
};

static char tr_endpoint[TR_RECEIVERS][64];
static const struct made_engine tr_engines[] = {
	{ { tr_endpoint[0], tr_endpoint[0], tr_endpoint[1] } },
	{ { tr_endpoint[2] } },
};

static struct {
	const struct tr_bench *bench;
	struct made made;
	struct loop *loop;
	struct transport t;
	struct tr_env env;
	int fd;
	const char *boot[TR_RECEIVERS];
	/* What has been seen. */
	unsigned attached[TR_RECEIVERS], lost[TR_RECEIVERS];
	unsigned loaded[TR_RECEIVERS], placed, source_failed;
	unsigned moved[TR_RECEIVERS][TR_BUCKETS];
	unsigned acks[TR_RECEIVERS][TR_BUCKETS];
	unsigned failed[TR_RECEIVERS][TR_BUCKETS], refused[TR_RECEIVERS];
	unsigned workers[TR_RECEIVERS];	/* bits seen */
	unsigned wrong, events;
	struct loop_timer wake, limit;
	bool (*until)(void);
} tr;

static bool tr_is_whole(void)
{
	return transport_has(tr.bench->ops->name, TR_WHOLE);
}

static void tr_ack(const struct tr_event *e)
{
	const char *p = tr.made.bytes + MADE_HEADER + e->bucket * TR_TENSOR;
	uint64_t bytes = TR_TENSOR + (e->bucket ? 0 : MADE_HEADER);
	struct digest leaf[2], want;

	digest_of(tr.made.bytes, MADE_HEADER, &leaf[0]);
	digest_of(p, TR_TENSOR, &leaf[1]);
	digest_of(leaf + (e->bucket != 0), (2 - (e->bucket != 0)) * DIGEST_LEN,
		  &want);
	tr.wrong += e->bytes != bytes || !digest_eq(&want, &e->digest);
	tr.wrong += e->worker > 2;
	tr.acks[e->receiver][e->bucket]++;
	tr.workers[e->receiver] |= 1u << e->worker;
}

static void tr_see(const struct tr_event *e)
{
	tr.events++;
	switch (e->kind) {
	case TR_ATTACHED:
		tr.attached[e->receiver]++;
		break;
	case TR_MOVED:
		tr.moved[e->receiver][e->bucket]++;
		break;
	case TR_ACK:
		tr_ack(e);
		break;
	case TR_FAILED:
		tr.wrong += e->code == 0 || e->cause[0] == '\0';
		if (e->receiver == ID_NONE)
			tr.source_failed++;
		else if (e->bucket == ID_NONE)
			tr.refused[e->receiver]++;
		else
			tr.failed[e->receiver][e->bucket]++;
		break;
	case TR_LOST:
		tr.lost[e->receiver]++;
		break;
	case TR_PLACED:
		tr.wrong += e->bytes == 0 || digest_is_zero(&e->digest);
		tr.placed++;
		break;
	case TR_LOADED:
		tr.loaded[e->receiver]++;
		break;
	}
}

static void tr_look(void *arg)
{
	struct tr_event e;

	(void)arg;
	while (tr.t.ops && transport_poll(&tr.t, &e) > 0)
		tr_see(&e);
	if (tr.until && tr.until())
		loop_stop(tr.loop, 0);
}

static void tr_wake(void *arg)
{
	(void)arg;
	loop_arm(tr.loop, &tr.wake, 0);
}

static void tr_expired(void *arg)
{
	(void)arg;
	loop_stop(tr.loop, -1);
}

/* Runs the loop until the condition holds; false after a while. */
static bool tr_run(bool (*until)(void))
{
	int rc;

	tr.until = until;
	loop_arm(tr.loop, &tr.limit, TR_PATIENCE_MS);
	tr_wake(NULL);
	rc = loop_run(tr.loop);
	loop_disarm(tr.loop, &tr.limit);
	tr.until = NULL;
	return rc == 0;
}

/* All but the transport. */
static void tr_prepare(void)
{
	const struct tr_bench *b = tr.bench;
	char *path;

	memset(&tr, 0, sizeof tr);
	tr.bench = b;
	make_plan(&tr.made, tr_engines, 2, TR_BUCKETS, TR_TENSOR);
	tr.loop = loop_new();
	tr.wake.fn = tr_look;
	tr.limit.fn = tr_expired;
	path = xasprintf("%s/" MADE_FILE, tr.made.dir);
	tr.fd = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	for (uint32_t r = 0; r < TR_RECEIVERS; r++)
		tr.boot[r] = "boot";
	tr.env = (struct tr_env){
		.loop = tr.loop, .plan = &tr.made.plan, .fd = &tr.fd,
		.fence = { .registry = SLICE("abc"), .epoch = 1,
			   .run = SLICE("run"), .stage = STAGE_TRANSFER,
			   .instance = 3 },
		.version = 1, .boot = tr.boot, .engine_ms = TR_PATIENCE_MS,
		.load_ms = TR_PATIENCE_MS, .wake = tr_wake,
	};
	if (b->prepare)
		b->prepare(&tr.made, &tr.env);
	if (b->start)
		b->start(tr.loop, &tr.made.plan);
}

static void tr_open(void)
{
	BUG_ON(transport_open(&tr.t, tr.bench->ops, &tr.env) < 0);
}

static void tr_start(void)
{
	tr_prepare();
	tr_open();
}

static void tr_stop(void)
{
	transport_close(&tr.t);
	if (tr.bench->stop)
		tr.bench->stop(tr.loop);
	loop_free(tr.loop);
	close(tr.fd);
	unmake_plan(&tr.made);
}

static bool tr_all_attached(void)
{
	return tr.attached[0] && tr.attached[1] && tr.attached[2];
}

static void tr_attach(void)
{
	for (uint32_t r = 0; r < TR_RECEIVERS; r++)
		BUG_ON(transport_attach(&tr.t, r) < 0);
	ok(tr_run(tr_all_attached), "%s: all attach", tr.bench->name);
}

static bool tr_is_placed(void)
{
	return tr.placed;
}

static void tr_load(uint32_t first)
{
	BUG_ON(!tr_run(tr_is_placed));
	for (uint32_t r = first; r < TR_RECEIVERS; r++)
		BUG_ON(transport_load(&tr.t, r) < 0);
}

static void tr_post(uint32_t first)
{
	int rc = 0;

	for (uint32_t b = 0; b < TR_BUCKETS && rc == 0; b++) {
		rc = transport_offer(&tr.t, 0, b);
		for (uint32_t r = first; r < TR_RECEIVERS && rc == 0; r++)
			rc = transport_post(&tr.t, r);
	}
	BUG_ON(rc < 0);
}

/* To the receivers from the first on. */
static void tr_send(uint32_t first)
{
	if (tr_is_whole())
		tr_load(first);
	else
		tr_post(first);
}

static void tr_send_all(void)
{
	tr_send(0);
}

static void tr_send_last(void)
{
	tr_send(TR_RECEIVERS - 1);
}

static unsigned tr_want(uint32_t receiver)
{
	return tr.made.plan.receiver[receiver].workers;
}

static bool tr_has(uint32_t receiver)
{
	if (tr_is_whole())
		return tr.loaded[receiver];
	for (uint32_t b = 0; b < TR_BUCKETS; b++)
		if (tr.acks[receiver][b] < tr_want(receiver))
			return false;
	return true;
}

static bool tr_all_have(void)
{
	return tr_has(0) && tr_has(1) && tr_has(2);
}

static bool tr_last_has(void)
{
	return tr_has(2);
}

static bool tr_is_once(uint32_t receiver)
{
	if (tr_is_whole())
		return tr.loaded[receiver] == 1;
	for (uint32_t b = 0; b < TR_BUCKETS; b++)
		if (tr.acks[receiver][b] != tr_want(receiver) ||
		    tr.moved[receiver][b] == 0)
			return false;
	return true;
}

static void tr_check_delivery(void)
{
	const char *name = tr.bench->name;

	tr_start();
	tr_attach();
	tr_send_all();
	ok(tr.events == TR_RECEIVERS + tr.placed,
	   "%s: nothing happens inside the calls", name);
	ok(tr_run(tr_all_have), "%s: every receiver has it", name);
	for (uint32_t r = 0; r < TR_RECEIVERS; r++)
		ok(tr_is_once(r) &&
			   memcmp(tr.bench->bytes(&tr.t, r), tr.made.bytes,
				  tr.made.nbytes) == 0,
		   "%s: receiver %u has all, and said so once", name, r);
	eq_u64(tr.workers[0] | tr.workers[1], tr_is_whole() ? 0 : 7,
	       "in the name of each worker");
	eq_u64(tr.wrong, 0, "with the right sizes and digests");
	tr_stop();
}

/* What carries buckets loads nothing, and the other way round. */
static void tr_check_other_kind(void)
{
	const char *name = tr.bench->name;

	tr_start();
	tr_attach();
	if (tr_is_whole())
		ok(transport_offer(&tr.t, 0, 0) == -E_BUG &&
			   transport_post(&tr.t, 0) == -E_BUG,
		   "%s: no buckets", name);
	else
		ok(transport_load(&tr.t, 0) == -E_BUG, "%s: no whole versions",
		   name);
	tr_stop();
}

/* By whichever call it has. */
static int tr_send_one(uint32_t receiver)
{
	return tr_is_whole() ? transport_load(&tr.t, receiver)
			     : transport_post(&tr.t, receiver);
}

static void tr_check_misuse(void)
{
	const char *name = tr.bench->name;

	tr_start();
	ok(transport_offer(&tr.t, 0, TR_BUCKETS) == -E_BUG,
	   "%s: no such bucket", name);
	if (!tr_is_whole())
		transport_offer(&tr.t, 0, 0);
	ok(tr_send_one(0) == -E_BUG, "%s: nothing before attach", name);
	tr_attach();
	ok(transport_attach(&tr.t, 0) == -E_BUG, "%s: attach twice", name);
	transport_abort(&tr.t, 0);
	ok(tr_send_one(0) == -E_BUG, "%s: nothing after abort", name);
	tr_stop();
}

static unsigned tr_seen_of_aborted(void)
{
	unsigned n = tr.loaded[0];

	for (uint32_t b = 0; b < TR_BUCKETS; b++)
		n += tr.acks[0][b] + tr.moved[0][b] + tr.failed[0][b];
	return n + tr.lost[0] + tr.refused[0];
}

static bool tr_last_attached(void)
{
	return tr.attached[2];
}

static bool tr_has_some(void)
{
	return tr.loaded[0] || tr.acks[0][0] || tr.acks[0][1] || tr.acks[0][2] ||
	       tr.acks[0][3] || tr.acks[0][4] || tr.acks[0][5];
}

static void tr_check_abort(void)
{
	const char *name = tr.bench->name;
	unsigned before;

	tr_start();
	transport_abort(&tr.t, 0);
	ok(transport_attach(&tr.t, 0) == -E_BUG, "%s: aborted before attach",
	   name);
	BUG_ON(transport_attach(&tr.t, 2) < 0);
	tr_run(tr_last_attached);
	tr_send_last();
	ok(tr_run(tr_last_has), "%s: the other goes on", name);
	tr_stop();

	tr_start();
	for (uint32_t r = 0; r < TR_RECEIVERS; r++)
		BUG_ON(transport_attach(&tr.t, r) < 0);
	transport_abort(&tr.t, 0);
	tr_run(tr_last_attached);
	eq_u64(tr.attached[0], 0, "aborted while it attaches: no event of it");
	tr_stop();

	tr_start();
	tr_attach();
	tr_send_all();
	transport_abort(&tr.t, 0);
	transport_abort(&tr.t, 0);
	transport_abort(&tr.t, 1);
	ok(tr_run(tr_last_has), "%s: aborted in flight: the other goes on",
	   name);
	eq_u64(tr_seen_of_aborted(), 0, "and no event of the aborted comes");
	tr_stop();

	tr_start();
	tr_attach();
	tr_send_all();
	tr_run(tr_has_some);
	before = tr_seen_of_aborted();
	transport_abort_all(&tr.t);
	transport_abort_all(&tr.t);
	tr_look(NULL);
	eq_u64(tr_seen_of_aborted(), before, "aborted half-way: silence");
	tr_stop();

	tr_start();
	tr_attach();
	tr_send_all();
	tr_stop();
	ok(true, "%s: closed in flight", name);
}

static bool tr_source_failed(void)
{
	return tr.source_failed;
}

static bool tr_last_failed(void)
{
	return tr.failed[0][TR_BUCKETS - 1] && tr.failed[1][TR_BUCKETS - 1] &&
	       tr.failed[2][TR_BUCKETS - 1] && tr.acks[2][0];
}

static void tr_cut_source(void)
{
	char *path = xasprintf("%s/" MADE_FILE, tr.made.dir);

	BUG_ON(truncate(path, (off_t)tr.made.nbytes - 1) < 0);
	free(path);
}

static void tr_check_whole_truncated(void)
{
	tr_prepare();
	tr_cut_source();
	tr_open();
	ok(tr_run(tr_source_failed), "%s: a source that was cut is not placed",
	   tr.bench->name);
	eq_u64(tr.placed + tr.wrong, 0, "with code and cause");
	tr_stop();
}

static void tr_check_truncated(void)
{
	const char *name = tr.bench->name;

	if (tr_is_whole()) {
		tr_check_whole_truncated();
		return;
	}
	tr_start();
	tr_attach();
	tr_cut_source();
	tr_send_all();
	ok(tr_run(tr_last_failed), "%s: a source that was cut fails its bucket",
	   name);
	eq_u64(tr.failed[2][0], 0, "and no other");
	eq_u64(tr.wrong, 0, "with code and cause");
	tr_stop();
}

static void trcheck(const struct tr_bench *bench)
{
	tr.bench = bench;
	log_quiet_thread(1);
	for (int r = 0; r < TR_RECEIVERS; r++)
		snprintf(tr_endpoint[r], sizeof tr_endpoint[r],
			 "ipc:///tmp/weir-trcheck-%d-%d", (int)getpid(), r);
	tr_check_delivery();
	tr_check_misuse();
	tr_check_other_kind();
	tr_check_abort();
	tr_check_truncated();
}

#endif
