/*
 * en_cast.c - a server takes the weights by broadcast: in a weight-update
 * group of its own, whose rank 0 is ours.  Which calls that are, of which
 * kind of server, nccl_wire.h says.
 *
 * Four who do not know each other: the server, by its calls; the TCPStore
 * that its workers meet at; weir-move-nccl, which reads the source's files
 * and broadcasts; and nccl_group.h, which says what comes when.  Each load
 * makes a group, and leaves it.  Whatever fails ends the mover, and with it
 * the communicator: the server's workers see that, or their own watchdog.
 */
#include "pipes/en_cast.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "pipes/mover.h"
#include "pipes/nccl_group.h"
#include "pipes/srcfiles.h"
#include "pipes/tcpstore_io.h"

#include <stdlib.h>
#include <string.h>

#define GROUP 1u	    /* the mover's number of it */
#define CALL_MAX (4u << 20) /* bytes of a call's body */
#define LOOK_MS 100	    /* between two looks at the source's leases */

struct http_cast {
	struct http_engine *h;
	const struct plan *plan;
	struct nccl_group g;
	struct srcfiles files;
	struct mover *mover;
	struct tcpstore_io *store;
	struct loop_timer due, look;
	const char *name; /* the newest that it may be in */
	unsigned char id[NCCL_ID_SIZE];
	bool has_id, is_wanted; /* the id */
	bool has_ended;		/* its update */
	struct cast_bucket b;	/* on its way */
	bool casts;		/* is to broadcast it, when it can */
	uint32_t flying;	/* broadcasts */
	uint64_t seq;
};

static void step(struct http_cast *c, enum nccl_ev ev);

static enum engine_kind kind_of(const struct http_cast *c)
{
	return c->h->e->ops->kind;
}

/* ---- its end ---- */

void http_cast_free(struct http_cast *c)
{
	if (!c)
		return;
	loop_disarm(c->h->e->host->loop, &c->due);
	loop_disarm(c->h->e->host->loop, &c->look);
	mover_free(c->mover);
	tcpstore_io_free(c->store);
	srcfiles_close(&c->files);
	cast_release(&c->b);
	free(c);
}

static void end(struct http_cast *c, int rc)
{
	struct http_engine *h = c->h;

	if (http_is_busy(h->http))
		http_cancel(h->http);
	http_cast_free(c);
	h->cast = NULL;
	http_cast_ended(h, rc);
}

/* h->why says it. */
static void fail(struct http_cast *c, int rc)
{
	end(c, rc);
}

static void fail_logged(struct http_cast *c, int rc)
{
	fail(c, http_say(c->h, rc, "%.600s", log_cause()));
}

/* Its peers have deadlines of their own, which are shorter and say more: the
 * mover's most. */
static int64_t part_ms(const struct http_cast *c, int64_t of_8)
{
	return http_left_ms(c->h) * of_8 / 8 + 1;
}

static void on_due(void *arg)
{
	struct http_cast *c = arg;

	fail(c, http_say(c->h, -E_TIMEOUT,
			 "its weight-update group is %s still, %u buckets of "
			 "%u were sent",
			 nccl_group_table.states[c->g.state], c->b.number,
			 c->plan->nbuckets));
}

/* A blend would go out, and the writer waits for us. */
static void on_look(void *arg)
{
	struct http_cast *c = arg;
	int rc = srcfiles_guard(&c->files);

	if (rc < 0)
		fail_logged(c, rc);
	else
		loop_arm(c->h->e->host->loop, &c->look, LOOK_MS);
}

/* ---- the mover ---- */

static int send_mover(struct http_cast *c, struct msg *m, const int *fd,
		      size_t n)
{
	return mover_send(c->mover, m, fd, n);
}

static int send_files(struct http_cast *c)
{
	uint32_t n = c->plan->nfiles;
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i += FDPASS_MAX) {
		struct msg m = { .type = M_attach };

		m.attach.first = i;
		m.attach.count = n - i < FDPASS_MAX ? n - i : FDPASS_MAX;
		rc = send_mover(c, &m, c->files.fd + i, m.attach.count);
	}
	return rc;
}

static int join(struct http_cast *c)
{
	struct msg m = { .type = M_join };

	m.join = (struct m_join){ .seq = ++c->seq,
				  .group = GROUP,
				  .world = c->h->e->live.ranks + 1,
				  .room = cast_room(c->plan),
				  .ms = (uint64_t)part_ms(c, 6),
				  .foreign = true,
				  .sums = nccl_sums_first(kind_of(c)) };
	return send_mover(c, &m, NULL, 0);
}

/* The tensors from..to in one broadcast.  Each is another bucket to the mover,
 * which sends a bucket that it has read to as many groups as it can. */
static int offer(struct http_cast *c, size_t from, size_t to)
{
	struct msg m = { .type = M_offer };
	struct m_offer *o = &m.offer;

	o->seq = ++c->seq;
	o->bucket = (uint32_t)o->seq;
	o->group = GROUP;
	o->pieces.v = c->b.piece + from;
	for (size_t i = from; i < to; i++) {
		if (c->b.piece[i].bytes == 0)
			continue;
		o->bytes += c->b.piece[i].bytes;
		c->b.piece[from + o->pieces.n++] = c->b.piece[i];
	}
	c->flying += o->bytes > 0;
	return o->bytes ? send_mover(c, &m, NULL, 0) : 0;
}

static int cast(struct http_cast *c)
{
	const struct cast_bucket *b = &c->b;
	uint64_t chunk = cast_chunk(c->plan);
	enum nccl_form form = nccl_form_of(kind_of(c), c->h->packing != NP_NONE,
					   b->tensor, b->n);
	size_t from = 0, to;
	int rc = 0;

	c->casts = false;
	for (; rc == 0 && from < b->n; from = to) {
		to = nccl_cast_end(form, b->tensor, b->n, from, chunk);
		rc = offer(c, from, to);
	}
	if (rc == 0 && c->flying == 0)
		step(c, NE_MOVED);
	return rc;
}

static void moved(struct http_cast *c)
{
	if (--c->flying == 0)
		step(c, NE_MOVED);
}

/* ---- the store ---- */

struct giving {
	struct http_cast *c;
	struct buf *key;
	size_t n;
};

static void find_wish(void *arg, struct slice key)
{
	struct giving *g = arg;

	if (!nccl_is_id_key(kind_of(g->c), g->c->name, key))
		return;
	g->key = xreallocarray(g->key, g->n + 1, sizeof *g->key);
	g->key[g->n] = (struct buf){ 0 };
	buf_add(&g->key[g->n++], key.p, key.n);
}

static struct giving find_wishes(struct http_cast *c)
{
	struct giving g = { .c = c };

	if (c->store)
		tcpstore_each_missing(tcpstore_io_store(c->store), find_wish,
				      &g);
	return g;
}

static void forget_wishes(struct giving *g)
{
	for (size_t i = 0; i < g->n; i++)
		buf_release(&g->key[i]);
	free(g->key);
}

/* To all that wait for it, whatever they call it. */
static int give_id(struct http_cast *c)
{
	struct giving g = find_wishes(c);
	struct buf value = { 0 };
	int rc = 0;

	nccl_id_value(kind_of(c), c->id, &value);
	for (size_t i = 0; rc == 0 && i < g.n; i++)
		rc = tcpstore_io_set(c->store, buf_slice(&g.key[i]),
				     buf_slice(&value));
	buf_release(&value);
	forget_wishes(&g);
	return rc;
}

static void on_news(void *arg)
{
	struct http_cast *c = arg;
	struct giving g = find_wishes(c);
	bool is_wanted = g.n > 0;

	forget_wishes(&g);
	if (is_wanted && !c->g.has_id)
		step(c, NE_WANTED);
}

static void on_over(void *arg)
{
	struct http_cast *c = arg;

	fail(c, http_say(c->h, -E_TIMEOUT,
			 "its workers did not meet at the store: %llu of %u "
			 "came",
			 (unsigned long long)tcpstore_joined(
				 tcpstore_io_store(c->store)),
			 c->h->e->live.ranks));
}

static int open_store(struct http_cast *c)
{
	const struct tcpstore_conf conf = { .host = http_here(c->h->http),
					    .ms = part_ms(c, 7),
					    .news = on_news,
					    .over = on_over,
					    .arg = c };

	return tcpstore_io_open(&c->store, c->h->e->host->loop, &conf);
}

/* ---- the server ---- */

static bool is_done(const struct http_cast *c, const struct http_reply *r)
{
	struct doc *d;
	bool done;

	if (r->rc < 0 || r->status != 200)
		return r->rc == 0 && r->status == 404 &&
		       nccl_may_lack(c->g.call);
	d = doc_parse(r->body);
	done = nccl_says_done(kind_of(c), c->g.call, d);
	doc_free(d);
	return done;
}

static int judge(struct http_cast *c, const struct http_reply *r)
{
	const char *path = nccl_call_path(kind_of(c), c->g.call);
	struct http_engine *h = c->h;
	char said[HTTP_CITED];

	if (is_done(c, r))
		return 0;
	if (r->rc < 0)
		return http_say(h, r->rc, "%s: %s", path, r->why);
	http_cite(r, said);
	return http_say(h, http_refusal(r->status), "%s: %s%s", path, said,
			c->g.call == NC_BEGIN ? "; it may have to be restarted"
					      : "");
}

static void on_reply(void *arg, const struct http_reply *r)
{
	struct http_cast *c = arg;
	int rc = judge(c, r);

	/* It has the weights; the group's name is never used again. */
	if (rc < 0 && c->g.call == NC_LEAVE) {
		log_warn("engine %s: %s", c->h->e->name, c->h->why);
		rc = 0;
	}
	if (rc < 0)
		fail(c, rc);
	else
		step(c, NE_ANSWER);
}

static int ask(struct http_cast *c)
{
	struct http_request q = { .method = "POST",
				  .path = nccl_call_path(kind_of(c), c->g.call),
				  .ms = part_ms(c, 7) };
	struct nccl_ask a = { .group = c->name,
			      .host = http_here(c->h->http),
			      .offset = 1,
			      .ranks = c->h->e->live.ranks + 1,
			      .packing = c->h->packing,
			      .chunk = cast_chunk(c->plan),
			      .buffers = CAST_BUFFERS,
			      .tensor = c->b.tensor,
			      .ntensors = c->b.n };
	struct buf b = { 0 };
	struct jsonw j;
	int rc;

	if (c->store)
		a.port = tcpstore_io_port(c->store);
	jsonw_begin(&j, &b, CALL_MAX);
	jsonw_object(&j, NULL);
	nccl_call_body(kind_of(c), c->g.call, &a, &j);
	jsonw_end(&j);
	rc = jsonw_finish(&j);
	q.body = buf_slice(&b);
	if (rc == 0)
		http_call(c->h->http, &q, on_reply, c);
	buf_release(&b);
	return rc;
}

/* ---- what comes next ---- */

static void command(struct http_cast *c)
{
	int rc = 0;

	switch (c->g.state) {
	case NS_IDLE:
		step(c, c->has_ended ? NE_LEAVE : NE_BEGIN);
		return;
	case NS_OPEN:
		/* No load is sent after an abort. */
		if (http_is_aborted(c->h)) {
			fail(c, http_say(c->h, -E_AGAIN, "the run is aborted"));
			return;
		}
		rc = cast_next(c->h, &c->b);
		c->has_ended = rc == 0;
		if (rc < 0)
			fail(c, rc);
		else
			step(c, rc ? NE_BUCKET : NE_END);
		return;
	default:
		end(c, 0);
	}
}

static int act(struct http_cast *c, enum nccl_act a)
{
	switch (a) {
	case NA_ASK:
		return ask(c);
	case NA_ID:
		c->is_wanted = true;
		return c->has_id ? give_id(c) : 0;
	case NA_JOIN:
		return join(c);
	case NA_CAST:
		c->casts = true;
		return c->g.joined ? cast(c) : 0;
	case NA_CLOSE:
		tcpstore_io_free(c->store);
		c->store = NULL;
		return c->casts && c->g.joined ? cast(c) : 0;
	case NA_ABORT:
		mover_free(c->mover);
		c->mover = NULL;
		return 0;
	default:
		return 0;
	}
}

static void step(struct http_cast *c, enum nccl_ev ev)
{
	enum nccl_act todo[NCCL_ACTS_MAX];
	unsigned n;
	int rc = nccl_group_step(&c->g, ev);

	if (rc < 0) {
		fail_logged(c, log_error(E_PROTO, "a %s while its group is %s",
					 nccl_group_table.events[ev],
					 nccl_group_table.states[c->g.state]));
		return;
	}
	n = c->g.nacts;
	memcpy(todo, c->g.act, sizeof todo);
	for (unsigned i = 0; i < n; i++) {
		if (todo[i] == NA_DONE) {
			command(c);
			return;
		}
		rc = act(c, todo[i]);
		if (rc < 0) {
			fail_logged(c, rc);
			return;
		}
	}
}

/* ---- what the mover says ---- */

static void take_id(struct http_cast *c, struct slice id)
{
	int rc;

	memcpy(c->id, id.p, id.n < sizeof c->id ? id.n : sizeof c->id);
	c->has_id = true;
	rc = c->is_wanted ? give_id(c) : 0;
	if (rc < 0)
		fail_logged(c, rc);
}

static void mover_said(void *arg, const struct msg *m)
{
	struct http_cast *c = arg;

	switch (m->type) {
	case M_enrolled:
		step(c, NE_FORM);
		break;
	case M_grouped:
		take_id(c, m->grouped.id);
		break;
	case M_joined:
		if (m->joined.formed)
			step(c, NE_JOINED);
		break;
	case M_ack:
		moved(c);
		break;
	case M_refused:
		fail(c, http_say(c->h, -m->refused.code, "rank 0: %.*s",
				 SLICE_ARG(m->refused.cause)));
		break;
	default:
		break;
	}
}

static void mover_ended(void *arg, int rc)
{
	fail_logged(arg, rc);
}

static const struct mover_ops mover_ops = {
	.msg = mover_said,
	.ended = mover_ended,
};

/* ---- its start ---- */

static int start(struct http_cast *c)
{
	struct loop *l = c->h->e->host->loop;
	struct msg m = { .type = M_enroll };
	int rc = srcfiles_open(&c->files, c->plan);

	if (rc == 0)
		rc = open_store(c);
	if (rc == 0)
		rc = mover_start(&c->mover, l, &mover_nccl, &mover_ops, c);
	m.enroll.seq = ++c->seq;
	m.enroll.transport = slice_of("nccl");
	if (rc == 0)
		rc = send_mover(c, &m, NULL, 0);
	return rc == 0 ? send_files(c) : rc;
}

void http_cast_start(struct http_engine *h)
{
	const struct groups *g = &h->e->live.groups;
	struct http_cast *c = xcalloc(1, sizeof *c);
	int rc;

	h->cast = c;
	c->h = h;
	c->plan = h->e->goal->plan;
	c->name = g->name[g->n - 1].p;
	c->due = (struct loop_timer){ .fn = on_due, .arg = c };
	c->look = (struct loop_timer){ .fn = on_look, .arg = c };
	nccl_group_init(&c->g, kind_of(c), 1);
	loop_arm(h->e->host->loop, &c->due, http_left_ms(h));
	rc = start(c);
	if (rc < 0)
		fail_logged(c, rc);
	else
		loop_arm(h->e->host->loop, &c->look, LOOK_MS);
}
