#include "pipes/transfer_io.h"

#include "common/bits.h"
#include "common/err.h"
#include "common/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tags on the fan; ATTACHED: and it can read the source. */
enum { ASK_HOLDING = 1, ASK_ATTACHED, ASK_FINISH };

/* fan.h, transport.h: an engine's failure, by receiver. */
static void xfer_fault(struct xfer *x, uint32_t receiver, uint32_t bucket,
		       int code, const char *cause)
{
	xfer_add(x,
		 &(struct xf_event){
			 .on = XF_EV_FAULT,
			 .engine = x->plan.receiver[receiver].engine,
			 .bucket = bucket,
			 .code = code == E_OK ? E_PROTO : code,
		 },
		 cause);
}

/* ---- the source ---- */

static void hashed(void *arg, uint32_t bucket, const struct digest *d)
{
	struct xfer *x = arg;

	for (uint32_t r = 0; r < x->plan.nranks; r++)
		XFER(x, DIGEST, .bucket = bucket, .rank = r, .digest = d[r]);
	if (bit_get(x->awaited, bucket))
		XFER(x, READY, .bucket = bucket);
	xfer_drive(x);
}

static void source_failed(void *arg, uint32_t bucket, int code,
			  const char *cause)
{
	struct xfer *x = arg;

	xfer_add(x,
		 &(struct xf_event){ .on = XF_EV_FAULT,
				     .engine = ID_NONE,
				     .bucket = bucket,
				     .code = code },
		 cause);
	xfer_drive(x);
}

static void verified(void *arg, const struct digest *content,
		     enum source_proof proof)
{
	struct xfer *x = arg;

	digest_fold(content, x->plan.nranks, &x->content);
	if (xfer_is_again(x) && !digest_eq(&x->content, &x->plan.content)) {
		source_failed(x, ID_NONE, E_DATA,
			      "the source changed while it was sent");
		return;
	}
	if (x->placed.is && !digest_eq(&x->content, &x->placed.content)) {
		source_failed(x, ID_NONE, E_DATA,
			      "the source changed while its version directory "
			      "was written");
		return;
	}
	for (uint32_t r = 0; r < x->plan.nranks; r++)
		x->share[r].content = content[r];
	x->proof = proof;
	XFER(x, VERIFIED, .engine = ID_NONE);
	xfer_drive(x);
}

static const struct srchash_ops hash_ops = {
	.hashed = hashed,
	.failed = source_failed,
	.verified = verified,
};

bool xfer_is_again(const struct xfer *x)
{
	return x->plan.kind != RUN_PUBLISH;
}

bool xfer_is_whole(const struct xfer *x)
{
	return transport_has(x->plan.transport, TR_WHOLE);
}

/* What is missing here is a fault before anything has begun; later instances
 * have nothing to say that the first did not. */
static int check_transport(const struct xfer *x)
{
	const struct transport_ops *ops = transport_find(x->plan.transport);

	if (!ops)
		return log_error(E_CONFIG, "transport %s is not built in",
				 x->plan.transport);
	return x->s->run.instance == 1
		       ? transport_check(ops, x->conf, x->plan.nranks)
		       : 0;
}

int xfer_open_source(struct xfer *x)
{
	int rc;

	x->awaited = xcalloc(x->plan.nbuckets / 8 + 1, 1);
	x->share = xcalloc(x->plan.nranks, sizeof(*x->share));
	if (xfer_is_again(x)) {
		xfer_seek_init(x);
		return 0;
	}
	rc = check_transport(x);
	return rc == 0 ? srcfiles_open(&x->files, &x->plan) : rc;
}

static int start_hash(struct xfer *x)
{
	if (!x->hash)
		x->hash = srchash_new(x->s->loop, &x->files,
				      (unsigned)x->conf->hash_threads,
				      &hash_ops, x);
	return x->hash ? 0 : -E_IO;
}

/* Known to be what the base was made from, and nobody has had it open for
 * writing meanwhile. */
static bool is_base_still(struct xfer *x)
{
	int was = log_quiet_thread(1);
	bool is = x->tr.is_base && x->placed.is &&
		  digest_eq(&x->placed.content, &x->opened.base.content) &&
		  srcfiles_watch(&x->files) == 0 &&
		  srcfiles_are_leased(&x->files) &&
		  srcfiles_check(&x->files) == 0;

	log_quiet_thread(was);
	return is;
}

static void say_unread(struct xfer *x)
{
	x->proof = SOURCE_UNREAD;
	XFER(x, VERIFIED, .engine = ID_NONE);
}

/* Without a hasher nothing was sent: every engine kept what it needs. */
static void hash_rest(struct xfer *x)
{
	if (!x->hash) {
		x->content = x->plan.content;
		for (uint32_t r = 0; r < x->plan.nshares; r++)
			x->share[r] = x->plan.shares[r];
		say_unread(x);
	} else if (is_base_still(x)) {
		x->content = x->share[0].content = x->placed.content;
		say_unread(x);
	} else {
		srchash_rest(x->hash);
	}
}

/* Cold: read and hashed before it is offered, so that the disk is read once
 * and in large pieces, and engines find it in memory. */
static void make_ready(struct xfer *x, uint32_t bucket)
{
	if (!srchash_is_hashed(x->hash, bucket) &&
	    srchash_is_cold(x->hash, bucket))
		bit_set(x->awaited, bucket);
	else
		XFER(x, READY, .bucket = bucket);
	srchash_want(x->hash, bucket);
}

/* ---- the transport ---- */

/* What fails at one receiver the machine tells, with its engine. */
static int call(struct xfer *x, uint32_t receiver, struct msg *m, uint64_t tag,
		uint64_t ms)
{
	int was = log_quiet_thread(1);
	int rc = fan_call(x->fan, receiver, m, tag, 1, ms);

	log_quiet_thread(was);
	return rc;
}

static void ask(struct xfer *x, uint32_t receiver, uint64_t tag)
{
	struct msg m = { .type = M_holding,
			 .holding = {
				 .fence = x->env.fence,
				 .boot = slice_of(x->opened.boot[receiver]) } };
	int rc = call(x, receiver, &m, tag, x->opened.engine_ms);

	if (rc < 0)
		xfer_fault(x, receiver, ID_NONE, -rc, log_cause());
}

static void placed(struct xfer *x, const struct tr_event *e)
{
	x->placed.is = true;
	x->placed.content = e->digest;
	x->placed.bytes = e->bytes;
	XFER(x, PLACED, .engine = ID_NONE);
}

static void take_event(struct xfer *x, const struct tr_event *e)
{
	switch (e->kind) {
	case TR_PLACED:
		placed(x, e);
		break;
	case TR_LOADED:
		XFER(x, FINISHED, .receiver = e->receiver);
		break;
	case TR_ATTACHED:
		ask(x, e->receiver, ASK_ATTACHED);
		break;
	case TR_MOVED:
		XFER(x, MOVED, .receiver = e->receiver, .bucket = e->bucket);
		break;
	case TR_ACK:
		XFER(x, ACK, .receiver = e->receiver, .bucket = e->bucket,
		     .worker = e->worker, .bytes = e->bytes,
		     .digest = e->digest);
		break;
	case TR_FAILED:
	case TR_LOST:
		if (e->receiver == ID_NONE)
			source_failed(x, ID_NONE, e->code, e->cause);
		else
			xfer_fault(x, e->receiver, e->bucket, e->code,
				   e->cause);
		break;
	}
}

static void poll_transport(void *arg)
{
	struct xfer *x = arg;
	struct tr_event e;

	while (x->is_moving && transport_poll(&x->tr, &e) > 0) {
		take_event(x, &e);
		xfer_drive(x);
	}
}

static void wake(void *arg)
{
	struct xfer *x = arg;

	loop_arm(x->s->loop, &x->poll, 0);
}

void xfer_attach(struct xfer *x, uint32_t receiver)
{
	int was = log_quiet_thread(1);
	int rc = start_hash(x);

	/* Not known before the transport was opened, if it was sought. */
	x->env.fd = x->files.fd;
	if (rc == 0)
		rc = transport_attach(&x->tr, receiver);
	log_quiet_thread(was);
	if (rc < 0)
		xfer_fault(x, receiver, ID_NONE, -rc, log_cause());
}

static void offer(struct xfer *x, const struct xf_action *a)
{
	int was = log_quiet_thread(1), rc = 0;

	if (x->tr.bucket != a->bucket || x->tr.wave != a->wave)
		rc = transport_offer(&x->tr, a->wave, a->bucket);
	if (rc == 0)
		rc = transport_post(&x->tr, a->receiver);
	log_quiet_thread(was);
	if (rc < 0)
		xfer_fault(x, a->receiver, a->bucket, -rc, log_cause());
}

/* ---- requests to receivers ---- */

static struct slice boot_in(const struct msg *m)
{
	return m->type == M_held ? m->held.boot : m->finished.boot;
}

static void take_reply(struct xfer *x, uint32_t r, uint64_t tag,
		       const struct msg *m)
{
	if (!slice_eq(boot_in(m), slice_of(x->opened.boot[r]))) {
		xfer_fault(x, r, ID_NONE, E_FENCED, "it was restarted");
		return;
	}
	if (m->type == M_finished) {
		XFER(x, FINISHED, .receiver = r);
		return;
	}
	if (m->held.count != x->plan.nbuckets) {
		xfer_fault(x, r, ID_NONE, E_PROTO,
			   "it counts buckets that are not in the plan");
		return;
	}
	/* Asked again when it can read the source. */
	if (xfer_is_again(x) && !m->held.sealed && tag == ASK_HOLDING) {
		xfer_need_source(x, r);
		return;
	}
	XFER(x, HELD, .receiver = r, .sealed = m->held.sealed,
	     .kept = m->held.kept, .count = m->held.count,
	     .bitmap = m->held.bitmap);
}

static void replied(void *arg, uint32_t receiver, uint64_t tag,
		    const struct msg *m, int rc)
{
	struct xfer *x = arg;
	char cause[XFER_CAUSE_MAX];

	if (rc < 0) {
		xfer_fault(x, receiver, ID_NONE, -rc, log_cause());
	} else if (m->type == M_refused) {
		snprintf(cause, sizeof(cause), "%.*s",
			 SLICE_ARG(m->refused.cause));
		xfer_fault(x, receiver, m->refused.bucket, m->refused.code,
			   cause);
	} else {
		take_reply(x, receiver, tag, m);
	}
	/* The bitmap is lent for this call only. */
	xfer_drive(x);
}

/* Holding and finish change nothing when they are answered twice. */
static void stray(void *arg, uint32_t receiver, const struct msg *m)
{
	(void)arg;
	log_debug("receiver %" PRIu32 ": %s that nobody waits for", receiver,
		  msg_name(m->type));
}

static void lost(void *arg, uint32_t receiver)
{
	struct xfer *x = arg;

	xfer_fault(x, receiver, ID_NONE, E_UNAVAIL,
		   "its receiver closed its connection");
	xfer_drive(x);
}

static const struct fan_ops fan_ops = {
	.reply = replied,
	.stray = stray,
	.lost = lost,
};

static void load(struct xfer *x, uint32_t receiver)
{
	int was = log_quiet_thread(1);
	int rc = transport_load(&x->tr, receiver);

	log_quiet_thread(was);
	if (rc < 0)
		xfer_fault(x, receiver, ID_NONE, -rc, log_cause());
}

static void finish(struct xfer *x, uint32_t receiver)
{
	struct msg m = { .type = M_finish,
			 .finish = { .fence = x->env.fence,
				     .boot = slice_of(x->opened.boot[receiver]),
				     .version = x->opened.version } };
	int rc = call(x, receiver, &m, ASK_FINISH, x->opened.load_ms);

	if (rc < 0)
		xfer_fault(x, receiver, ID_NONE, -rc, log_cause());
}

/* Closing its descriptors' connection and forgetting its requests is all
 * that this side has; what it copies it can only read. */
static void sever(struct xfer *x, uint32_t engine)
{
	const struct plan_engine *e = &x->plan.engine[engine];

	for (uint32_t i = 0; x->is_moving && i < e->receivers; i++) {
		transport_abort(&x->tr, e->first_receiver + i);
		fan_forget(x->fan, e->first_receiver + i);
	}
	XFER(x, SEVERED, .engine = engine);
}

/* ---- life ---- */

static int open_fan(struct xfer *x)
{
	int rc;

	x->fan = fan_new(x->s->loop, &fan_ops, x);
	if (!x->fan)
		return -E_IO;
	rc = fan_reserve(x->fan, x->plan.nreceivers, 3);
	for (uint32_t r = 0; rc == 0 && r < x->plan.nreceivers; r++)
		rc = fan_add(x->fan, x->plan.receiver[r].endpoint);
	return rc;
}

static int open_transport(struct xfer *x)
{
	const struct transport_ops *ops = transport_find(x->plan.transport);

	x->env = (struct tr_env){
		.loop = x->s->loop,
		.plan = &x->plan,
		.fd = x->files.fd,
		.fence = { .registry = slice_of(x->opened.registry),
			   .epoch = x->opened.epoch,
			   .run = slice_of(x->s->run.name),
			   .stage = STAGE_TRANSFER,
			   .instance = x->s->run.instance },
		.version = x->opened.version,
		.proof = x->opened.proof,
		.boot = (const char *const *)x->opened.boot,
		.base = x->opened.base,
		.conf = x->conf,
		.engine_ms = x->opened.engine_ms,
		.load_ms = x->opened.load_ms,
		.wake = wake,
		.arg = x,
	};
	x->poll = (struct loop_timer){ .fn = poll_transport, .arg = x };
	return transport_open(&x->tr, ops, &x->env);
}

/* Nothing is offered; but the decision need not wait for it. */
static void want_all(struct xfer *x)
{
	for (uint32_t b = 0; b < x->plan.nbuckets; b++)
		srchash_want(x->hash, b);
}

int xfer_start_moving(struct xfer *x, bool hash_only)
{
	int rc;

	rc = xfer_is_again(x) ? 0 : start_hash(x);
	if (rc < 0 || hash_only)
		return rc;
	rc = open_fan(x);
	if (rc == 0)
		rc = open_transport(x);
	x->is_moving = rc == 0;
	if (rc == 0 && xfer_is_whole(x) && !x->tr.is_base)
		want_all(x);
	return rc;
}

/* It serves the version: to its engine's others it is as one that kept it. */
static void hold_all(struct xfer *x, uint32_t receiver)
{
	size_t row = x->plan.nbuckets / 8 + 1;

	if (!x->every) {
		x->every = xcalloc(row, 1);
		for (uint32_t b = 0; b < x->plan.nbuckets; b++)
			bit_set(x->every, b);
	}
	XFER(x, HELD, .receiver = receiver, .sealed = true, .kept = true,
	     .count = x->plan.nbuckets, .bitmap = { (char *)x->every, row });
}

static void ask_holding(struct xfer *x, uint32_t receiver)
{
	if (!*x->opened.boot[receiver])
		hold_all(x, receiver);
	else if (xfer_is_again(x))
		ask(x, receiver, ASK_HOLDING);
	else
		xfer_attach(x, receiver);
}

static void ask_finish(struct xfer *x, uint32_t receiver)
{
	if (!*x->opened.boot[receiver])
		XFER(x, FINISHED, .receiver = receiver);
	else if (xfer_is_whole(x))
		load(x, receiver);
	else
		finish(x, receiver);
}

/* Lets go of all engines; may come from inside of their callbacks. */
static void stop_moving(struct xfer *x)
{
	xfer_seek_stop(x);
	if (!x->is_moving)
		return;
	x->is_moving = false;
	loop_disarm(x->s->loop, &x->poll);
	transport_abort_all(&x->tr);
	for (uint32_t r = 0; r < x->plan.nreceivers; r++)
		fan_forget(x->fan, r);
}

void xfer_do(struct xfer *x, const struct xf_action *a)
{
	switch (a->what) {
	case XF_ASK_HOLDING:
		ask_holding(x, a->receiver);
		break;
	case XF_PREPARE:
		make_ready(x, a->bucket);
		break;
	case XF_OFFER:
		offer(x, a);
		break;
	case XF_FINISH:
		ask_finish(x, a->receiver);
		break;
	case XF_SEVER:
		sever(x, a->engine);
		break;
	case XF_HASH_REST:
		hash_rest(x);
		break;
	case XF_STOP:
		stop_moving(x);
		break;
	default:
		BUG("action %d is none of these", (int)a->what);
	}
}

void xfer_close_moving(struct xfer *x)
{
	if (x->is_moving && stage_has_published(x->s))
		transport_keep(&x->tr);
	stop_moving(x);
	transport_close(&x->tr);
	fan_free(x->fan);
	srchash_free(x->hash);
	x->fan = NULL;
	x->hash = NULL;
}
