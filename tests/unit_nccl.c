/* Transports nccl and cuda-ipc pass trcheck.h, over stand-ins: real movers,
 * receivers in this process. */
#include "tests/trcheck.h"

#include "common/err.h"
#include "pipes/mover.h"

#include <sys/mman.h>

#define ERRANDS 64

/* Forwards what it is asked to a mover of its own, which writes its file. */
struct fake {
	struct sock sock;
	struct mover *mover;
	struct loop *loop;
	int fd;
	uint64_t bytes;
	char *map;
	uint32_t first, workers;
	struct sock_peer from;
	struct m_offer errand[ERRANDS]; /* by seq; pieces copied */
	struct m_piece piece[ERRANDS][8];
	uint32_t nerrands;
};

static struct fake fake[TR_RECEIVERS];
static struct msg_arena arena;
static struct buf in, out;
static unsigned lost_movers;
static const struct mover_kind *kind; /* of the bench that runs */

static void answer(struct fake *f, const struct msg *m)
{
	buf_clear(&out);
	BUG_ON(msg_pack(&out, m) < 0);
	sock_send(&f->sock, &f->from, buf_slice(&out));
}

static void ack(struct fake *f, const struct m_offer *o)
{
	struct digest leaf[8];
	struct msg m = { .type = M_ack };

	m.ack = (struct m_ack){ .seq = o->seq,
				.boot = SLICE("boot"),
				.bucket = o->bucket,
				.bytes = o->bytes };
	for (uint32_t i = 0; i < o->pieces.n; i++)
		digest_of(f->map + o->pieces.v[i].offset, o->pieces.v[i].bytes,
			  &leaf[i]);
	digest_of(leaf, o->pieces.n * DIGEST_LEN, &m.ack.digest);
	for (uint32_t w = 0; w < f->workers; w++) {
		m.ack.worker = f->first + w;
		answer(f, &m);
	}
}

static void said(void *arg, const struct msg *m)
{
	struct fake *f = arg;
	struct msg reply = *m;

	if (m->type == M_ack) {
		for (uint32_t i = 0; i < f->nerrands; i++)
			if (f->errand[i].seq == m->ack.seq)
				ack(f, &f->errand[i]);
		return;
	}
	if (m->type == M_enrolled)
		reply.enrolled.boot = SLICE("boot");
	else if (m->type == M_joined)
		reply.joined.boot = SLICE("boot");
	answer(f, &reply);
}

static void ended(void *arg, int rc)
{
	(void)arg;
	(void)rc;
	lost_movers++;
}

static const struct mover_ops ops = { .msg = said, .ended = ended };

static void keep(struct fake *f, const struct m_offer *o)
{
	uint32_t i = f->nerrands++;

	BUG_ON(i == ERRANDS || o->pieces.n > 8);
	f->errand[i] = *o;
	f->errand[i].pieces.v = f->piece[i];
	memcpy(f->piece[i], o->pieces.v, o->pieces.n * sizeof(*o->pieces.v));
}

static void asked(void *arg)
{
	struct fake *f = arg;
	struct msg m;

	while (sock_recv(&f->sock, &f->from, &in) > 0) {
		BUG_ON(msg_unpack(&m, &arena, buf_slice(&in)) < 0);
		if (m.type == M_offer)
			keep(f, &m.offer);
		mover_send(f->mover, &m, NULL, 0);
	}
}

static void start_mover(struct fake *f, uint32_t receiver)
{
	struct msg m = { .type = M_attach };
	char device[8];

	/* NCCL wants another one for each, cuda-ipc one for all. */
	snprintf(device, sizeof(device), "%u",
		 kind == &mover_nccl ? receiver + 1 : 0);
	setenv("CUDA_VISIBLE_DEVICES", device, 1);
	BUG_ON(mover_start(&f->mover, f->loop, kind, &ops, f) < 0);
	m.attach.count = 1;
	BUG_ON(mover_send(f->mover, &m, &f->fd, 1) < 0);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
}

static void start(struct loop *l, const struct plan *p)
{
	for (uint32_t r = 0; r < TR_RECEIVERS; r++) {
		struct fake *f = &fake[r];
		const struct plan_receiver *v = &p->receiver[r];

		*f = (struct fake){ .loop = l,
				    .bytes = p->file[0].bytes,
				    .first = v->worker,
				    .workers = v->workers };
		f->fd = memfd_create("slot", MFD_CLOEXEC);
		BUG_ON(ftruncate(f->fd, (off_t)f->bytes) < 0 ||
		       sock_listen(&f->sock, v->endpoint, FRAME_MAX) < 0);
		f->map = mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, f->fd, 0);
		loop_add_sock(l, &f->sock, asked, f);
		start_mover(f, r);
	}
}

static void stop(struct loop *l)
{
	for (uint32_t r = 0; r < TR_RECEIVERS; r++) {
		struct fake *f = &fake[r];

		mover_free(f->mover);
		loop_del_sock(l, &f->sock);
		sock_close(&f->sock);
		unlink(tr_endpoint[r] + strlen("ipc://"));
		munmap(f->map, f->bytes);
		close(f->fd);
	}
}

static const char *bytes(const struct transport *t, uint32_t receiver)
{
	(void)t;
	return fake[receiver].map;
}

static const struct tr_bench nccl = { .name = "nccl",
				      .ops = &tr_nccl_ops,
				      .start = start,
				      .stop = stop,
				      .bytes = bytes };

static const struct tr_bench ipc = { .name = "cuda-ipc",
				     .ops = &tr_ipc_ops,
				     .start = start,
				     .stop = stop,
				     .bytes = bytes };

/* ---- a mover that is asked what it must not do ---- */

static struct {
	struct loop *loop;
	struct mover *mover;
	struct loop_timer limit;
	char id[128];
	char cause[256];
	unsigned entered, replies;
	bool is_over;
} solo;

static void solo_said(void *arg, const struct msg *m)
{
	(void)arg;
	if (m->type == M_grouped)
		memcpy(solo.id, m->grouped.id.p, sizeof(solo.id));
	if (m->type == M_joined)
		solo.entered += !m->joined.formed;
	if (m->type == M_refused)
		snprintf(solo.cause, sizeof(solo.cause), "%.*s",
			 SLICE_ARG(m->refused.cause));
	solo.replies++;
	loop_stop(solo.loop, 0);
}

static void solo_ended(void *arg, int rc)
{
	(void)arg;
	(void)rc;
	snprintf(solo.cause, sizeof(solo.cause), "%s", log_cause());
	solo.is_over = true;
	loop_stop(solo.loop, 0);
}

static const struct mover_ops solo_ops = { .msg = solo_said,
					   .ended = solo_ended };

static void solo_expired(void *arg)
{
	(void)arg;
	loop_stop(solo.loop, -1);
}

static void solo_join(struct m_join join, unsigned replies)
{
	struct msg m = { .type = M_join, .join = join };

	if (!m.join.ms)
		m.join.ms = TR_PATIENCE_MS;
	solo.replies = 0;
	solo.cause[0] = '\0';
	BUG_ON(mover_send(solo.mover, &m, NULL, 0) < 0);
	while (solo.replies < replies && loop_run(solo.loop) == 0)
		;
}

static void solo_start(void)
{
	solo.is_over = false;
	solo.loop = loop_new();
	solo.limit.fn = solo_expired;
	loop_arm(solo.loop, &solo.limit, TR_PATIENCE_MS);
	BUG_ON(mover_start(&solo.mover, solo.loop, &mover_nccl, &solo_ops,
			   NULL) < 0);
}

static void solo_stop(void)
{
	loop_disarm(solo.loop, &solo.limit);
	mover_free(solo.mover);
	loop_free(solo.loop);
}

/* One that cannot go on: nobody else has to end it. */
static void check_hang(const char *fault, uint64_t ms, const char *call)
{
	struct msg leave = { .type = M_leave, .leave = { .group = 1 } };
	struct msg enroll = { .type = M_enroll };

	setenv("WEIR_STANDIN_FAULT", fault, 1);
	solo_start();
	unsetenv("WEIR_STANDIN_FAULT");
	mover_send(solo.mover, &enroll, NULL, 0);
	solo_join((struct m_join){ .group = 1, .world = 3, .ms = ms }, 1);
	mover_send(solo.mover, &leave, NULL, 0);
	while (!solo.is_over && loop_run(solo.loop) == 0)
		;
	ok(solo.is_over && strstr(solo.cause, call), "NC-03 %s: it ends: %s",
	   fault, solo.cause);
	solo_stop();
}

static void check_mover(void)
{
	struct slice id = { solo.id, sizeof(solo.id) };
	struct msg leave = { .type = M_leave, .leave = { .group = 1 } };
	struct msg enroll = { .type = M_enroll };

	solo_start();
	solo_join((struct m_join){ .group = 1, .world = 3 }, 1);
	eq_str(solo.cause, "join: it has not enrolled",
	       "a group needs a device");
	mover_send(solo.mover, &enroll, NULL, 0);
	solo_join(
		(struct m_join){ .group = 1, .rank = 3, .world = 3, .id = id },
		2);
	eq_str(solo.cause, "join: no such rank in a group of that size",
	       "NC-02 rank 3 of 3");
	solo_join((struct m_join){ .group = 1, .rank = 1, .world = 3 }, 1);
	eq_str(solo.cause, "join: an id of another length than ids have",
	       "NC-04 an id that no rank 0 has made");
	solo_join((struct m_join){ .group = 1, .world = 3 }, 2);
	eq_u64(solo.entered, 1, "rank 0 makes an id and waits for the others");
	mover_send(solo.mover, &leave, NULL, 0);
	solo_join(
		(struct m_join){ .group = 2, .rank = 1, .world = 3, .id = id },
		1);
	eq_str(solo.cause, "join: that group, or its id, was used before",
	       "NC-04 an id that was used before");
	solo_stop();
}

static const char *build_dir(void)
{
	return getenv("BUILD") ? getenv("BUILD") : ".";
}

/* Is it there to be run? */
static bool has_mover(const struct mover_kind *k)
{
	char *mover = xasprintf("%s/%s", build_dir(), k->program);
	bool is_there = access(mover, X_OK) == 0;

	free(mover);
	return is_there;
}

static void set_up(void)
{
	char *lib = xasprintf("%s/tests/standin", build_dir());

	setenv("WEIR_LIBEXEC", build_dir(), 1);
	setenv("LD_LIBRARY_PATH", lib, 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	free(lib);
}

static void check_nccl(void)
{
	kind = &mover_nccl;
	trcheck(&nccl);
	check_mover();
	ok(!solo.is_over, "and it has not ended by itself");
	check_hang("begin-hang", 200, "the start of a group did not return");
	check_hang("abort-hang", 0, "the end of a group did not return");
}

int main(void)
{
	log_init("unit_nccl", LOG_WARN);
	if (!has_mover(&mover_ipc))
		return tap_skip("built without CUDA");
	set_up();
	kind = &mover_ipc;
	trcheck(&ipc);
	if (has_mover(&mover_nccl))
		check_nccl();
	eq_u64(lost_movers, 0, "no mover ended before its time");
	msg_arena_release(&arena);
	buf_release(&in);
	buf_release(&out);
	sock_end();
	return tap_done();
}
