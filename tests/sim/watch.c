/* Frames, and what the engines make of them: I1, I2, I10, I12. */
#include "watch.h"

#include "common/log.h"

#include <string.h>

struct watch watch;

void watch_begin(void)
{
	struct msg_arena a = watch.arena;

	watch = (struct watch){ .arena = a };
}

void watch_end(void)
{
}

static bool word_of(const struct m_fence *f, struct word *w)
{
	const struct push *p = world_push(f->run);

	if (!p || f->stage >= STAGE_N)
		return false;
	*w = (struct word){ .epoch = f->epoch,
			    .push = p->index,
			    .instance = f->instance,
			    .stage = f->stage };
	return true;
}

/* ---- requests ---- */

#define ASKED(name, ver)              \
	case M_##name:                \
		a->seq = m->name.seq; \
		a->version = (ver);   \
		return word_of(&m->name.fence, &a->by)

static bool asked_of(const struct msg *m, struct asked *a)
{
	*a = (struct asked){ .type = m->type, .bucket = ID_NONE };
	if (m->type == M_offer)
		a->bucket = m->offer.bucket;
	switch (m->type) {
		ASKED(begin, m->begin.version);
		ASKED(offer, m->offer.version);
		ASKED(holding, 0);
		ASKED(finish, m->finish.version);
		ASKED(ask_receipt, m->ask_receipt.version);
		ASKED(pause, 0);
		ASKED(swap, m->swap.version);
		ASKED(resume, 0);
		ASKED(cancel, 0);
	default:
		return false;
	}
}

/* I10, in the checker's own words: what came before is over. */
static bool is_stale(const struct seen_engine *e, const struct asked *a)
{
	if (a->by.epoch != e->epoch)
		return a->by.epoch < e->epoch;
	if (e->epoch == 0)
		return false;
	if (a->by.push != e->push)
		return true;
	if (a->by.instance < e->instance[a->by.stage])
		return true;
	return e->closed && a->type != M_cancel;
}

void watch_to_engine(uint32_t i, const void *conn, const struct msg *m)
{
	struct seen_engine *e = &watch.engine[i];
	struct asked a;

	if (!asked_of(m, &a))
		return;
	a.conn = conn;
	a.used = true;
	a.stale = is_stale(e, &a);
	e->asked[e->next++ % ASKED_MAX] = a;
}

static struct asked *find_asked(struct seen_engine *e, const void *conn,
				uint64_t seq)
{
	for (uint32_t i = 0; i < ASKED_MAX; i++) {
		struct asked *a = &e->asked[i];

		if (a->used && a->conn == conn && a->seq == seq)
			return a;
	}
	return NULL;
}

/* ---- replies ---- */

static void take_word(struct seen_engine *e, const struct asked *a)
{
	const struct word *w = &a->by;

	if (w->epoch > e->epoch) {
		e->epoch = w->epoch;
		e->push = w->push;
		memset(e->instance, 0, sizeof e->instance);
		e->closed = false;
	}
	if (w->epoch == e->epoch && w->instance > e->instance[w->stage])
		e->instance[w->stage] = w->instance;
	if (a->type == M_cancel && w->epoch == e->epoch)
		e->closed = true;
}

static void begun(struct seen_engine *e, const struct asked *a)
{
	if (e->begun && e->version == a->version &&
	    e->begun_epoch == a->by.epoch)
		return;
	e->begun = true;
	e->begun_epoch = a->by.epoch;
	e->sealed = e->gave_receipt = e->failed = false;
	/* One that was excluded may yet say that it has begun. */
	if (e->out_of != e->push)
		e->out = false;
	e->lied = e->lied_ack = false;
	e->version = a->version;
	memset(e->held, 0, sizeof e->held);
}

/* What it has acted upon must be on its disk: it may be restarted. */
static void check_fence(uint32_t i, const struct asked *a)
{
	char path[48];
	struct msg m;

	snprintf(path, sizeof path, "/store/%u/fence", i);
	if (!seen_record(path, true, M_fence_file, &m) ||
	    m.fence_file.epoch < a->by.epoch)
		sim_break("I10",
			  "engine-%u has begun epoch %llu, and a power cut "
			  "would make it forget that",
			  i, (unsigned long long)a->by.epoch);
}

static void take_held(struct seen_engine *e, const struct m_held *h)
{
	const unsigned char *bits = (const void *)h->bitmap.p;

	for (uint32_t b = 0; b < h->count && b < BUCKETS_MAX; b++)
		e->held[b] = h->sealed || (bits[b / 8] >> b % 8 & 1);
	e->sealed = e->sealed || h->sealed;
}

/* What was published before: its bytes tell which. */
static uint32_t source_of(const struct digest *content)
{
	const struct decided *v = seen_content(content);

	return v ? v->source : PUSHES_MAX;
}

static void take_receipt(struct seen_engine *e, uint32_t i,
			 const struct m_receipt *r, bool lied)
{
	const struct push *p = world_push(r->run);
	uint32_t source;

	e->gave_receipt = true;
	e->received = r->received;
	e->lied = lied; /* the last one counts: an earlier asker died */
	if (lied || !p)
		return;
	source = p->source;
	if (p->kind == PUSH_BACK || p->kind == PUSH_JOIN)
		source = source_of(&r->received);
	if (!seen_bytes(i, "staging", r->version, source) &&
	    !seen_bytes(i, "versions", r->version, source))
		sim_break("I1",
			  "engine-%u gives a receipt of version %llu, "
			  "whose bytes are not those of the source",
			  i, (unsigned long long)r->version);
}

static void says_it_serves(struct seen_engine *e, uint32_t i, uint64_t version)
{
	if (version == 0)
		return;
	if (version < e->said)
		sim_break("I12", "engine-%u serves %llu after %llu", i,
			  (unsigned long long)version,
			  (unsigned long long)e->said);
	e->said = version;
	if (!seen_decided(version, false))
		sim_break("I2", "engine-%u serves version %llu, undecided", i,
			  (unsigned long long)version);
}

static void effect(struct seen_engine *e, uint32_t i, const struct asked *a,
		   const struct msg *m, bool lied)
{
	switch (m->type) {
	case M_begun:
		check_fence(i, a);
		begun(e, a);
		break;
	case M_ack:
		if (m->ack.bucket < BUCKETS_MAX)
			e->held[m->ack.bucket] = true;
		e->lied_ack = e->lied_ack || lied;
		break;
	case M_held:
		take_held(e, &m->held);
		break;
	case M_finished:
		e->sealed = true;
		break;
	case M_receipt:
		take_receipt(e, i, &m->receipt, lied);
		break;
	case M_swapped:
		says_it_serves(e, i, m->swapped.version);
		break;
	case M_resumed:
		says_it_serves(e, i, m->resumed.version);
		break;
	default:
		break;
	}
}

static uint64_t seq_of(const struct msg *m)
{
	switch (m->type) {
	case M_begun:
		return m->begun.seq;
	case M_ack:
		return m->ack.seq;
	case M_held:
		return m->held.seq;
	case M_finished:
		return m->finished.seq;
	case M_receipt:
		return m->receipt.seq;
	case M_paused:
		return m->paused.seq;
	case M_swapped:
		return m->swapped.seq;
	case M_resumed:
		return m->resumed.seq;
	case M_cancelled:
		return m->cancelled.seq;
	default:
		return 0;
	}
}

/* Is it answered when its hook has ended, whatever has begun meanwhile?  A
 * swap if that is of the same run, whose swaps are all of one version, or if it
 * is of what is served, and so changes nothing. */
static bool is_of_gate(const struct seen_engine *e, const struct asked *a)
{
	if (a->type == M_swap)
		return (a->by.epoch == e->epoch && !e->closed) ||
		       a->version == e->said;
	return a->type == M_pause || a->type == M_resume;
}

/* Anything but a refusal is an effect: it must not be of a stale request. */
void watch_from_engine(uint32_t i, const void *conn, const struct msg *m,
		       bool lied)
{
	struct seen_engine *e = &watch.engine[i];
	uint64_t seq = seq_of(m);
	struct asked *a;

	if (m->type == M_state) {
		says_it_serves(e, i, m->state.serving);
		return;
	}
	a = seq ? find_asked(e, conn, seq) : NULL;
	if (!a)
		return;
	if (a->stale || (!is_of_gate(e, a) && is_stale(e, a)))
		sim_break("I10",
			  "engine-%u answers a %s of epoch %llu, %s.%u, and "
			  "has acted on epoch %llu, instance %u%s",
			  i, msg_name(a->type), (unsigned long long)a->by.epoch,
			  stage_name(a->by.stage), a->by.instance,
			  (unsigned long long)e->epoch,
			  e->instance[a->by.stage],
			  e->closed ? ", closed" : "");
	take_word(e, a);
	effect(e, i, a, m, lied);
}

/* ---- every frame ---- */

static bool is_engine(const char *name, uint32_t *i)
{
	if (strncmp(name, "engine-", 7) != 0)
		return false;
	*i = (uint32_t)(name[7] - '0');
	return *i < ENGINES_MAX;
}

static void frame_of(struct proc *p, const char *to, const void *conn,
		     const struct msg *m, int how)
{
	uint32_t i;

	if (p->fenced && how != FRAME_TAKEN)
		sim_break("I10", "%s[%d] is fenced off, and sends a %s",
			  p->name, p->pid, msg_name(m->type));
	if (is_engine(p->name, &i)) {
		if (how != FRAME_TAKEN)
			watch_from_engine(i, conn, m, how == FRAME_LIE);
		else
			watch_to_engine(i, conn, m);
	} else if (m->type >= M_probe && m->type <= M_refused) {
		if (how != FRAME_TAKEN && is_engine(to, &i))
			watch_request(p, i, m);
	} else {
		watch_link(p, conn, m, how != FRAME_TAKEN);
	}
}

void watch_said(struct proc *p, struct slice text)
{
	static const char said[] = "is fenced off";

	if (memmem(text.p, text.n, said, sizeof said - 1))
		p->fenced = true;
}

static uint8_t sent; /* the last one's type */

uint8_t watch_sent(void)
{
	return sent;
}

void watch_frame(struct proc *p, const char *to, const void *conn,
		 struct slice frame, int how)
{
	struct proc *running = sim.p;
	int was;
	struct msg m;

	/* Memory of the checks is nobody's. */
	sim.p = NULL;
	was = log_quiet_thread(1);
	sent = 0;
	if (msg_unpack(&m, &watch.arena, frame) >= 0) {
		sent = m.type;
		if (sim.trace && m.type != M_beat)
			sim_tell("%s %s %s %s", p->name,
				 how == FRAME_TAKEN ? "takes" : "sends",
				 msg_name(m.type),
				 how == FRAME_TAKEN ? "" : to);
		frame_of(p, to, conn, &m, how);
	}
	log_quiet_thread(was);
	sim.p = running;
}
