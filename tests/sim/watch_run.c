/* What stages say to each other and to engines: I3 to I7, I10, I11. */
#include "watch.h"

#include "pipes/recfile.h"

#include <string.h>

#define ULL(x) ((unsigned long long)(x))

/* ---- the plan, as it is on the disk ---- */

static void learn_plan(struct seen_run *r, uint32_t push)
{
	char path[48];
	struct slice all;
	struct rec_reader rec = { .name = "plan" };
	struct msg m;

	if (r->nbuckets)
		return;
	snprintf(path, sizeof path, "/run/r%u/plan.weir", push);
	if (!seen_file(path, false, &all))
		return;
	rec.all = all;
	rec.off = strlen(RECFILE_MAGIC);
	while (rec_next(&rec, &m, &watch.arena) > 0) {
		if (m.type != M_bucket || m.bucket.id >= BUCKETS_MAX)
			continue;
		r->bytes[m.bucket.id] = m.bucket.bytes;
		r->nbuckets = m.bucket.id + 1;
	}
}

bool watch_oversize(uint32_t push)
{
	struct seen_run *r = &watch.run[push];

	learn_plan(r, push);
	for (uint32_t b = 0; b < r->nbuckets; b++)
		if (world.bytes && r->bytes[b] > world.bytes)
			return true;
	return false;
}

/* ---- admit ---- */

static void hello_of_admit(struct seen_run *r)
{
	r->head = r->n = 0;
}

static struct seen_engine *engine_of(const struct push *p, uint32_t e)
{
	return &watch.engine[p->fleet[e]];
}

/* One that serves a join's version from the start is not asked. */
static bool is_complete(const struct push *p, uint32_t e)
{
	const struct seen_engine *s = engine_of(p, e);

	return s->sealed || s->out ||
	       (p->kind == PUSH_JOIN && s->said == watch.top);
}

static void check_wave(const struct push *p, uint32_t wave, uint32_t first,
		       uint32_t count)
{
	uint32_t from, end;

	watch_wave(p, wave, &from, &end);
	if (first != from || count == 0 || first + count != end)
		sim_break("I6", "wave %u is engines %u to %u, not %u to %u",
			  wave, first, first + count - 1, from, end - 1);
	for (uint32_t e = 0; e < first && !world.by_window; e++)
		if (!is_complete(p, e))
			sim_break("I6",
				  "wave %u begins and engine-%u is not "
				  "complete",
				  wave, p->fleet[e]);
}

static void check_credit(const struct seen_run *r)
{
	uint64_t n = 0, bytes = 0, fifo_n = r->n - r->head, fifo_bytes = 0;
	uint64_t most = world.buckets;

	if (world.buckets == 0 && world.bytes == 0)
		most = 1;
	for (uint32_t i = r->head; i < r->n; i++) {
		uint64_t b = r->bytes[r->grant[i].bucket % BUCKETS_MAX];

		fifo_bytes += b;
		n += !r->grant[i].back;
		bytes += r->grant[i].back ? 0 : b;
	}
	if ((most && n > most) || (world.bytes && bytes > world.bytes))
		sim_break("I4",
			  "%llu buckets of %llu bytes are reserved, at "
			  "most %llu of %llu",
			  ULL(n), ULL(bytes), ULL(most), ULL(world.bytes));
	if ((most && fifo_n > most) ||
	    (world.bytes && fifo_bytes > world.bytes))
		sim_break("I5",
			  "credit came back out of order: %llu buckets "
			  "of %llu bytes are out since the oldest",
			  ULL(fifo_n), ULL(fifo_bytes));
}

static void grant(struct seen_run *r, const struct push *p,
		  const struct m_grant *g)
{
	learn_plan(r, p->index);
	sim_tell("  wave %u bucket %u engines %u+%u", g->wave, g->bucket,
		 g->first, g->count);
	if (r->aborts)
		sim_break("I6", "a grant after the abort");
	if (r->n == GRANTS_SEEN)
		return;
	r->grant[r->n].wave = g->wave;
	r->grant[r->n].bucket = g->bucket;
	r->grant[r->n++].back = false;
	check_wave(p, g->wave, g->first, g->count);
	check_credit(r);
}

static void released_to_admit(struct seen_run *r, const struct m_released *m)
{
	for (uint32_t i = r->head; i < r->n; i++)
		if (r->grant[i].wave == m->wave &&
		    r->grant[i].bucket == m->bucket)
			r->grant[i].back = true;
	while (r->head < r->n && r->grant[r->head].back)
		r->head++;
}

/* ---- transfer ---- */

/* Engines of one kind are cut into waves; those in place come last. */
void watch_wave(const struct push *p, uint32_t wave, uint32_t *first,
		uint32_t *end)
{
	uint32_t most = world.groups ? (uint32_t)world.groups : p->nfleet;
	uint32_t staged = 0, i = 0;

	while (staged < p->nfleet &&
	       p->fleet[staged] < world.engines - world.in_place)
		staged++;
	for (*end = 0; i <= wave; i++) {
		uint32_t of = *end < staged ? staged : p->nfleet;

		*first = *end;
		*end = of - *first > most ? *first + most : of;
	}
}

static void check_holds(const struct push *p, const char *what, uint32_t first,
			uint32_t end, uint32_t bucket)
{
	for (uint32_t e = first; e < end; e++) {
		const struct seen_engine *s = engine_of(p, e);

		if (!s->out && bucket < BUCKETS_MAX && !s->held[bucket])
			sim_break("I7",
				  "bucket %u is %s and engine-%u does "
				  "not hold it",
				  bucket, what, p->fleet[e]);
	}
}

static void wave_has(const struct push *p, const char *what, uint32_t wave,
		     uint32_t bucket)
{
	uint32_t first, end;

	watch_wave(p, wave, &first, &end);
	check_holds(p, what, first, end, bucket);
}

/* A restarted transfer sends again what credit was out for, at most. */
static void check_resent(const struct seen_run *r, uint64_t resent)
{
	uint64_t n = world.buckets, most = 0, largest = 0;

	for (uint32_t b = 0; b < r->nbuckets; b++) {
		most += r->bytes[b];
		largest = r->bytes[b] > largest ? r->bytes[b] : largest;
	}
	if (n == 0 && world.bytes == 0)
		n = 1;
	if (n && n * largest < most)
		most = n * largest;
	if (world.bytes && world.bytes < most)
		most = world.bytes;
	if (resent > most)
		sim_break("I9", "%llu bytes were sent again, credit is %llu",
			  ULL(resent), ULL(most));
}

static void drained(struct seen_run *r, const struct push *p,
		    const struct m_drained *d)
{
	learn_plan(r, p->index);
	check_resent(r, d->resent);
	r->content = d->content;
	r->has_content = true;
	if (p->kind == PUSH_AGAIN)
		return; /* nobody was begun */
	for (uint32_t e = 0; e < p->nfleet; e++)
		if (!is_complete(p, e))
			sim_break("I1", "drained, and engine-%u is not sealed",
				  p->fleet[e]);
}

static void released_by_transfer(struct seen_run *r, const struct push *p,
				 const struct m_released *m)
{
	wave_has(p, "released", m->wave, m->bucket);
	if (m->wave < ENGINES_MAX && m->bucket < BUCKETS_MAX)
		r->released[m->wave][m->bucket] = true;
}

static void admit_sent(struct seen_run *r, const struct push *p,
		       const struct msg *m)
{
	if (m->type == M_hello)
		hello_of_admit(r);
	else if (m->type == M_grant)
		grant(r, p, &m->grant);
}

static void transfer_sent(struct proc *proc, struct seen_run *r,
			  const struct push *p, const struct msg *m)
{
	if (proc->pid > r->transfer_pid)
		r->transfer_pid = proc->pid;
	switch (m->type) {
	case M_released:
		released_by_transfer(r, p, &m->released);
		break;
	case M_acked:
		wave_has(p, "acked", m->acked.wave, m->acked.bucket);
		break;
	case M_staged:
		check_holds(p, "staged", 0, p->nfleet, m->staged.bucket);
		break;
	case M_sealed:
		if (m->sealed.engine < p->nfleet &&
		    !is_complete(p, m->sealed.engine))
			sim_break("I6", "engine-%u is said to be sealed",
				  p->fleet[m->sealed.engine]);
		break;
	case M_drained:
		drained(r, p, &m->drained);
		break;
	default:
		break;
	}
}

static void exclude(const struct push *p, uint32_t e)
{
	engine_of(p, e)->out = true;
	engine_of(p, e)->out_of = p->index;
}

/* Whom commit left out before it opened the run has no boot there; that it is
 * excluded is said after that. */
static void leave_out(const struct push *p, const struct m_opened *o)
{
	for (uint32_t e = 0; e < p->nfleet && !o->hash_only; e++) {
		uint32_t i = 0;

		while (i < o->boots.n && o->boots.v[i].engine != e)
			i++;
		if (i == o->boots.n)
			exclude(p, e);
	}
}

static void link_sent(struct proc *proc, struct seen_run *r,
		      const struct msg *m)
{
	const struct push *p = &world.push[proc->where];

	if (strcmp(proc->name, "admit") == 0)
		admit_sent(r, p, m);
	else if (strcmp(proc->name, "transfer") == 0)
		transfer_sent(proc, r, p, m);
	else if (strcmp(proc->name, "commit") != 0)
		return;
	else if (m->type == M_opened)
		leave_out(p, &m->opened);
	else if (m->type == M_exclude && m->exclude.engine < p->nfleet)
		exclude(p, m->exclude.engine);
}

/* An abort counts from whom the last hello came: an older instance is not
 * heard (I10). */
static void link_taken(struct proc *p, struct seen_run *r, const void *conn,
		       const struct msg *m)
{
	bool admit = strcmp(p->name, "admit") == 0;
	uint8_t stage = admit ? STAGE_TRANSFER : STAGE_COMMIT;

	if (m->type == M_hello && m->hello.stage == stage)
		r->below[admit] = conn;
	else if (m->type == M_released && admit)
		released_to_admit(r, &m->released);
	else if (m->type == M_abort && conn != r->below[admit])
		return;
	else if (m->type == M_abort && admit)
		r->aborts = true;
	else if (m->type == M_abort && strcmp(p->name, "transfer") == 0)
		r->aborted_pid = p->pid;
}

void watch_link(struct proc *p, const void *conn, const struct msg *m,
		bool sent)
{
	struct seen_run *r = &watch.run[p->where];

	if (sent)
		link_sent(p, r, m);
	else
		link_taken(p, r, conn, m);
}

/* ---- requests to engines ---- */

static uint32_t number_in_plan(const struct push *p, uint32_t engine)
{
	uint32_t e = 0;

	while (e < p->nfleet && p->fleet[e] != engine)
		e++;
	return e;
}

/* What an older one says, which does not know yet that it is one, no engine
 * hears. */
static void check_again(const struct proc *proc, const struct seen_run *r,
			uint32_t engine, const struct m_offer *o)
{
	if (proc->pid >= r->transfer_pid && o->wave < ENGINES_MAX &&
	    o->bucket < BUCKETS_MAX && r->released[o->wave][o->bucket])
		sim_break("I9",
			  "bucket %u goes to engine-%u again, and its credit "
			  "was back",
			  o->bucket, engine);
}

static void offer(struct proc *proc, uint32_t engine, const struct m_offer *o)
{
	const struct push *p = &world.push[proc->where];
	uint32_t first, end, e = number_in_plan(p, engine);

	check_again(proc, &watch.run[p->index], engine, o);
	if (watch.run[p->index].aborted_pid == proc->pid)
		sim_break("I6", "bucket %u is offered after the abort",
			  o->bucket);
	watch_wave(p, o->wave, &first, &end);
	sim_tell("  wave %u bucket %u", o->wave, o->bucket);
	if (e < first || e >= end)
		sim_break("I6", "engine-%u is not of wave %u", engine, o->wave);
	for (uint32_t i = 0; i < first && !world.by_window; i++)
		if (!is_complete(p, i))
			sim_break("I6",
				  "engine-%u is offered a bucket, and "
				  "engine-%u is not complete",
				  engine, p->fleet[i]);
}

/* `open` names all that the run may touch; a power cut must leave it. */
static void begin(const struct m_begin *b, uint32_t e)
{
	const struct push *p = world_push(b->fence.run);
	char path[48];
	struct slice text;
	struct msg m;

	if (!p)
		return;
	snprintf(path, sizeof path, "/run/%s/plan.weir", p->run);
	if (!seen_file(path, false, &text))
		sim_break("I11", "engine-%u is begun without a plan", e);
	if (watch_oversize(p->index))
		sim_break("I8", "engine-%u is begun, and a bucket does not fit",
			  e);
	if (!seen_record("/reg/open", true, M_open, &m) ||
	    m.open.epoch != b->fence.epoch || m.open.version != b->version)
		sim_break("I9",
			  "engine-%u is begun, and registry/open would "
			  "not survive a power cut",
			  e);
	if (b->fence.epoch > watch.begun)
		watch.begun = b->fence.epoch;
}

static void swap(const struct m_swap *s, uint32_t e)
{
	if (!seen_decided(s->version, true))
		sim_break("I2",
			  "engine-%u is told to serve version %llu, "
			  "which is not durably decided",
			  e, ULL(s->version));
}

/* Before the decision of its run an engine is neither paused nor resumed,
 * unless the run is being aborted. */
static void gate(const struct m_fence *f, const struct proc *p, uint32_t e,
		 const char *what)
{
	const struct seen_engine *s = &watch.engine[e];

	(void)p;
	if (!s->begun || s->closed || s->begun_epoch != f->epoch || s->out)
		return;
	if (!seen_decided(s->version, false))
		sim_break("I3",
			  "engine-%u is asked to %s, and version %llu is "
			  "undecided",
			  e, what, ULL(s->version));
}

void watch_request(struct proc *p, uint32_t e, const struct msg *m)
{
	switch (m->type) {
	case M_offer:
		offer(p, e, &m->offer);
		break;
	case M_begin:
		begin(&m->begin, e);
		break;
	case M_swap:
		swap(&m->swap, e);
		break;
	case M_pause:
		gate(&m->pause.fence, p, e, "pause");
		break;
	case M_resume:
		gate(&m->resume.fence, p, e, "resume");
		break;
	default:
		break;
	}
}
