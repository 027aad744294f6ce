#include "pipes/admit_io.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/admit.h"
#include "pipes/limits.h"
#include "pipes/stageconf.h"
#include "pipes/trcaps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct admission {
	const struct admit_conf *conf;
	struct stage *s;
	struct plan plan;
	bool has_plan;
	struct admit m;
	int rc; /* of sends inside a step */
};

/* ---- actions ---- */

static void tell(struct admission *a, const char *event, uint32_t wave,
		 uint32_t bucket)
{
	struct happening h = HAPPENED(event, .wave = EV(wave));

	if (bucket != ID_NONE) {
		h.bucket = EV(bucket);
		h.bytes = EV(a->plan.bucket[bucket].bytes);
	}
	h.credit_buckets = EV(a->m.credit.buckets.reserved);
	h.credit_bytes = EV(a->m.credit.bytes.reserved);
	h.limit_buckets = EV(a->m.credit.buckets.limit);
	h.limit_bytes = EV(a->m.credit.bytes.limit);
	events_tell(&a->s->events, &h);
}

static void send_down(struct admission *a, const struct msg *m)
{
	int rc = stage_send(a->s, DOWN, m);

	/* A link that is down is told again when it comes up. */
	if (rc < 0 && rc != -E_AGAIN && a->rc == 0)
		a->rc = rc;
}

static void perform(void *arg, const struct admit_action *o)
{
	struct admission *a = arg;
	struct msg m;

	switch (o->what) {
	case ADM_GRANT:
		m = (struct msg){ .type = M_grant,
				  .grant = { o->wave, o->bucket, o->first,
					     o->count } };
		tell(a, "granted", o->wave, o->bucket);
		send_down(a, &m);
		break;
	case ADM_SEAL_WAVE:
		m = (struct msg){ .type = M_seal,
				  .seal = { o->wave, o->first, o->count } };
		send_down(a, &m);
		break;
	case ADM_CREDIT_BACK:
		tell(a, "released", o->wave, o->bucket);
		break;
	case ADM_WAVE_COMPLETE:
		tell(a, "wave_complete", o->wave, ID_NONE);
		log_info("wave %" PRIu32 " of %" PRIu32 " is complete: "
			 "engines %" PRIu32 " to %" PRIu32,
			 o->wave + 1, a->m.nwaves, o->first,
			 o->first + o->count - 1);
		break;
	case ADM_NDO:
		break;
	}
}

static int step(struct admission *a, const struct admit_event *e)
{
	int rc = admit_step(&a->m, e);

	if (rc < 0)
		return log_error(E_PROTO,
				 "transfer sent %s, which does not "
				 "fit the plan",
				 admit_table.events[e->on]);
	rc = a->rc;
	a->rc = 0;
	return rc;
}

/* ---- the plan ---- */

static bool reads_once(const struct plan *p)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	if (transport_has(p->transport, TR_SOURCE_ONCE))
		return true;
	/* Each wave would read it from the disk again. */
	return pages > 0 && size > 0 &&
	       p->bytes / (uint64_t)size >= (uint64_t)pages;
}

static bool is_whole(const struct plan *p)
{
	return transport_has(p->transport, TR_WHOLE);
}

static struct admit_limits limits(const struct admission *a)
{
	const struct limits_conf *c = &a->conf->limits;
	struct admit_limits l = { .groups = c->groups,
				  .buckets = c->buckets,
				  .bytes = c->bytes };
	bool window = c->order == ORDER_WINDOW ||
		      (c->order == ORDER_AUTO && !is_whole(&a->plan) &&
		       reads_once(&a->plan));

	l.order = window ? ADM_BY_WINDOW : ADM_BY_WAVE;
	return l;
}

static int refuse_oversize(const struct admission *a, uint32_t b)
{
	char name[256];
	uint64_t bytes = 0;
	int rc = plan_largest_tensor(&a->plan, b, name, sizeof(name), &bytes);

	if (rc < 0)
		return rc;
	return log_error(E_DATA,
			 "bucket %" PRIu32 " of %" PRIu64 " bytes "
			 "exceeds --max-inflight-bytes %" PRIu64 " (tensor "
			 "\"%s\" of %" PRIu64 " bytes): raise it, or plan "
			 "with a smaller --bucket-size or --split-tensors",
			 b, a->plan.bucket[b].bytes, a->conf->limits.bytes,
			 name, bytes);
}

static int take_plan(struct admission *a)
{
	struct admit_limits l;
	uint32_t big;
	int rc = stage_await(a->s, PLAN_FILE);

	if (rc == 0)
		rc = plan_open(&a->plan, a->s->run.dirfd, PLAN_FILE);
	if (rc == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s holds no plan", a->s->run.path);
	if (rc != 0)
		return rc;
	a->has_plan = true;
	rc = limits_check(&a->conf->limits, a->plan.transport);
	if (rc < 0)
		return rc;
	l = limits(a);
	big = admit_oversize(a->plan.bucket, a->plan.nbuckets, l.bytes);
	if (big != ID_NONE)
		return refuse_oversize(a, big);
	rc = admit_init(&a->m, &l, a->plan.bucket, a->plan.nbuckets,
			plan_staged(&a->plan), a->plan.nengines);
	if (rc < 0)
		return log_error(E_DATA, "the plan has no engines or no "
					 "buckets");
	a->m.out = perform;
	a->m.arg = a;
	return 0;
}

/* ---- weir-admit FILE ---- */

/* Copied: a link would change with the user's file. */
static int bring_plan(struct admission *a, const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

	if (fd < 0)
		return log_errno(E_IO, "open plan %s", file);
	rc = io_copy_once(fd, a->s->run.dirfd, PLAN_FILE);
	close(fd);
	return rc == -E_AGAIN ? 0 : rc;
}

/* ---- the stage ---- */

static int prepare(struct stage *s)
{
	struct admission *a = s->self;
	int rc = 0;

	a->s = s;
	if (a->conf->common.args.n)
		rc = bring_plan(a, a->conf->common.args.v[0]);
	return rc < 0 ? rc : take_plan(a);
}

static int start(struct stage *s)
{
	struct admission *a = s->self;
	struct msg end = { .type = M_end, .end = a->plan.end };
	int rc = stage_send(s, DOWN, &end);

	/* The shell keeps it for whoever comes. */
	return rc == -E_AGAIN ? 0 : rc;
}

static int peer_up(struct stage *s, enum dir d)
{
	struct admission *a = s->self;

	if (d == UP)
		return 0;
	return step(a, &(struct admit_event){ .on = ADM_EV_LINK });
}

static int take_end(const struct admission *a, const struct m_end *end)
{
	if (digest_eq(&end->digest, &a->plan.end.digest))
		return 0;
	return log_error(E_DATA, "%s/%s is not what plan says it is",
			 a->s->run.path, PLAN_FILE);
}

static int from_plan(struct admission *a, const struct msg *m)
{
	if (m->type == M_end)
		return take_end(a, &m->end);
	return log_error(E_PROTO, "plan sent %s", msg_name(m->type));
}

static int take_opened(struct admission *a, const struct m_opened *o)
{
	if (a->s->epoch == 0)
		events_tell(&a->s->events,
			    &HAPPENED("opened", .version = EV(o->version)));
	a->s->epoch = o->epoch;
	return step(a, &(struct admit_event){ .on = ADM_EV_OPENED,
					      .phase = o->phase,
					      .hash_only = o->hash_only });
}

static int from_transfer(struct admission *a, const struct msg *m)
{
	struct admit_event e = { 0 };

	switch (m->type) {
	case M_opened:
		return take_opened(a, &m->opened);
	case M_holds:
		e = (struct admit_event){ .on = ADM_EV_HOLDS,
					  .engine = m->holds.engine,
					  .sealed = m->holds.sealed,
					  .count = m->holds.count,
					  .bitmap = m->holds.bitmap };
		break;
	case M_released:
		e = (struct admit_event){ .on = ADM_EV_RELEASED,
					  .wave = m->released.wave,
					  .bucket = m->released.bucket };
		break;
	case M_sealed:
		e = (struct admit_event){ .on = ADM_EV_SEALED,
					  .engine = m->sealed.engine };
		break;
	case M_exclude:
		e = (struct admit_event){ .on = ADM_EV_EXCLUDE,
					  .engine = m->exclude.engine };
		break;
	case M_excluded:
		e = (struct admit_event){ .on = ADM_EV_EXCLUDED,
					  .engine = m->excluded.engine };
		break;
	case M_abort:
		e.on = ADM_EV_ABORT;
		break;
	default:
		return log_error(E_PROTO, "transfer sent %s",
				 msg_name(m->type));
	}
	return step(a, &e);
}

static int message(struct stage *s, enum dir d, const struct msg *m)
{
	return d == UP ? from_plan(s->self, m) : from_transfer(s->self, m);
}

/* The plan is a file by now. */
static bool done_with_up(const struct stage *s)
{
	(void)s;
	return true;
}

static void stop(struct stage *s)
{
	(void)s;
}

static const struct stage_ops ops = {
	.id = STAGE_ADMIT,
	.prepare = prepare,
	.start = start,
	.peer_up = peer_up,
	.msg = message,
	.done_with_up = done_with_up,
	.stop = stop,
};

int admit_run(struct admit_conf *conf)
{
	struct admission a = { .conf = conf };
	struct stage stage = { 0 };
	struct stage_conf sc;
	struct buf dump = { 0 };
	int rc = stageconf_make(&admit_spec, conf, STAGE_ADMIT,
				&conf->stage_timeout_ms, &dump, &sc);

	if (rc < 0) {
		rc = stage_fail_early(rc);
	} else {
		sc.head = conf->common.args.n > 0;
		rc = stage_run(&stage, &ops, &sc, &a);
	}
	admit_release(&a.m);
	if (a.has_plan)
		plan_close(&a.plan);
	buf_release(&dump);
	return rc;
}
