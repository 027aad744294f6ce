/* Every transport passes trcheck.h; then what is particular to one. */
#include "pipes/tr_mem.c" /* what its receivers hold is its own */
#include "common/fdpass.h"
#include "pipes/delta.h"
#include "pipes/vdir_write.h"
#include "tests/trcheck.h"

#define HELD_MAX 64
#define BASE 1u /* what a delta is made from */
#define CHANGED (MADE_HEADER + 5)

/* A receiver of the transport host, or of disk and delta: copies what it is
 * offered, or takes what it is to load; answers the youngest call first. */
struct fake {
	const char *path;
	struct sock sock;
	int listener, conn, fd;
	char *bytes;
	uint32_t first, workers;
	struct loop *loop;
	struct buf held[HELD_MAX];
	struct sock_peer from;
	uint32_t nheld;
	struct loop_timer later;
	bool twice; /* answers its first offer twice */
};

static struct fake fake[TR_RECEIVERS];
static const struct plan *plan;
static struct msg_arena arena;
static struct buf in, out;
static unsigned fenced;
static unsigned applied; /* deltas */

static void answer(struct fake *f, struct msg *m)
{
	buf_clear(&out);
	BUG_ON(msg_pack(&out, m) < 0);
	sock_send(&f->sock, &f->from, buf_slice(&out));
}

static bool copy_pieces(struct fake *f, const struct m_offer *o,
			struct digest *sum)
{
	struct digest leaf[8];

	for (uint32_t i = 0; i < o->pieces.n; i++) {
		const struct m_piece *p = &o->pieces.v[i];

		if (pread(f->fd, f->bytes + p->offset, p->bytes,
			  (off_t)p->offset) != (ssize_t)p->bytes)
			return false;
		digest_of(f->bytes + p->offset, p->bytes, &leaf[i]);
	}
	digest_of(leaf, o->pieces.n * DIGEST_LEN, sum);
	return true;
}

static void serve(struct fake *f, const struct m_offer *o)
{
	struct msg m = { .type = M_ack };
	uint64_t seq = o->seq;
	uint32_t bucket = o->bucket;

	fenced += o->seq >> 40 != o->fence.instance || o->version != 1;
	m.ack = (struct m_ack){ .seq = seq,
				.boot = SLICE("boot"),
				.bucket = bucket,
				.bytes = o->bytes };
	if (!copy_pieces(f, o, &m.ack.digest)) {
		m = (struct msg){ .type = M_refused };
		m.refused = (struct m_refused){ .seq = seq,
						.boot = SLICE("boot"),
						.code = E_DATA,
						.bucket = bucket,
						.cause = SLICE("cut") };
		answer(f, &m);
		return;
	}
	for (uint32_t w = 0; w < f->workers; w++) {
		m.ack.worker = f->first + w;
		answer(f, &m);
		if (f->twice)
			answer(f, &m);
	}
	f->twice = false;
}

static char *base_path(void)
{
	return vdir_path(plan->disk_dir, BASE);
}

static void read_version(struct fake *f, const char *dir)
{
	char *path = xasprintf("%s/" MADE_FILE, dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	BUG_ON(io_read_full(fd, f->bytes, plan->file[0].bytes) < 0);
	close(fd);
	free(path);
}

static void apply_delta(struct fake *f, const char *delta)
{
	struct delta_result r;
	char *base = base_path();
	char *made = xasprintf("%s/of-%d", plan->disk_dir, (int)(f - fake));
	struct delta_apply c = { .delta = delta,
				 .dir = base,
				 .out = made,
				 .registry = "",
				 .threads = 1 };

	BUG_ON(delta_apply(&c, &r) < 0);
	read_version(f, made);
	applied++;
	free(made);
	free(base);
}

static void load(struct fake *f, const struct m_load *l)
{
	char *place = xstrndup(l->place.p, l->place.n);
	struct msg m = { .type = M_loaded };

	m.loaded = (struct m_loaded){ .seq = l->seq,
				      .boot = SLICE("boot"),
				      .version = l->version };
	if (delta_is_one(place) > 0)
		apply_delta(f, place);
	else
		read_version(f, place);
	answer(f, &m);
	free(place);
}

static void serve_held(void *arg)
{
	struct fake *f = arg;

	while (f->nheld) {
		struct msg m;

		f->nheld--;
		BUG_ON(msg_unpack(&m, &arena, buf_slice(&f->held[f->nheld])) <
		       0);
		if (m.type == M_load)
			load(f, &m.load);
		else
			serve(f, &m.offer);
	}
}

static void offers(void *arg)
{
	struct fake *f = arg;

	while (f->nheld < HELD_MAX &&
	       sock_recv(&f->sock, &f->from, &f->held[f->nheld]) > 0)
		f->nheld++;
	loop_arm(f->loop, &f->later, 1);
}

static void drop_conn(struct fake *f)
{
	loop_del_fd(f->loop, f->conn);
	close(f->conn);
	f->conn = -1;
}

static void files(void *arg)
{
	struct fake *f = arg;
	int fds[FDPASS_MAX], rc;
	size_t n;
	struct msg m, reply = { .type = M_attached };

	while (f->conn >= 0 && (rc = fdpass_recv(f->conn, &in, fds, &n)) != 0) {
		if (rc < 0) {
			drop_conn(f);
			return;
		}
		BUG_ON(msg_unpack(&m, &arena, buf_slice(&in)) < 0 || n != 1);
		f->fd = fds[0];
		reply.attached.seq = m.attach.seq;
		buf_clear(&out);
		BUG_ON(msg_pack(&out, &reply) < 0);
		fdpass_send(f->conn, buf_slice(&out), NULL, 0);
	}
}

static void connected(void *arg)
{
	struct fake *f = arg;
	struct fdpass_peer peer;

	f->conn = fdpass_accept(f->listener, &peer);
	if (f->conn >= 0)
		loop_add_fd(f->loop, f->conn, files, f);
}

static void fakes_start(struct loop *l, const struct plan *p)
{
	plan = p;
	fenced = 0;
	applied = 0;
	for (uint32_t r = 0; r < TR_RECEIVERS; r++) {
		struct fake *f = &fake[r];
		const struct plan_receiver *v = &p->receiver[r];
		char *path = xasprintf("%s.fd", v->endpoint + 6);

		*f = (struct fake){ .loop = l,
				    .conn = -1,
				    .fd = -1,
				    .first = v->worker,
				    .workers = v->workers };
		f->later = (struct loop_timer){ .fn = serve_held, .arg = f };
		f->bytes = xcalloc(p->file[0].bytes, 1);
		f->listener = fdpass_listen(path, 0600);
		BUG_ON(f->listener < 0 ||
		       sock_listen(&f->sock, v->endpoint, FRAME_MAX) < 0);
		loop_add_fd(l, f->listener, connected, f);
		loop_add_sock(l, &f->sock, offers, f);
		free(path);
	}
}

static void stop_one(struct fake *f, const char *endpoint)
{
	char *path = xasprintf("%s.fd", endpoint + 6);

	loop_disarm(f->loop, &f->later);
	if (f->conn >= 0)
		drop_conn(f);
	if (f->fd >= 0)
		close(f->fd);
	loop_del_fd(f->loop, f->listener);
	close(f->listener);
	loop_del_sock(f->loop, &f->sock);
	sock_close(&f->sock);
	unlink(path);
	unlink(endpoint + 6);
	free(path);
	free(f->bytes);
	for (uint32_t i = 0; i < HELD_MAX; i++)
		buf_release(&f->held[i]);
}

static void fakes_stop(struct loop *l)
{
	(void)l;
	for (uint32_t r = 0; r < TR_RECEIVERS; r++)
		stop_one(&fake[r], plan->receiver[r].endpoint);
}

static const char *fakes_bytes(const struct transport *t, uint32_t receiver)
{
	(void)t;
	return fake[receiver].bytes;
}

static const char *mem_bytes(const struct transport *t, uint32_t receiver)
{
	const struct mem *m = t->self;

	return m->file[receiver][0];
}

/* ---- version directories ---- */

static const struct transfer_conf disk_conf;
static atomic_bool never;

static void disk_prepare(struct made *m, struct tr_env *env)
{
	char name[] = "/tmp/weir-trcheck-XXXXXX";
	int dirfd = io_open_dir(AT_FDCWD, m->dir);
	struct source s;

	/* It has been opened, and is not of the source. */
	BUG_ON(unlinkat(dirfd, "plan.weir", 0) < 0);
	close(dirfd);
	BUG_ON(source_open(&s, m->dir) < 0 || !mkdtemp(name));
	m->plan.structure = s.structure;
	source_release(&s);
	free(m->plan.disk_dir);
	m->plan.disk_dir = xstrdup(name);
	env->version = BASE + 1;
	env->conf = &disk_conf;
}

/* The version before: one byte is another. */
static void delta_prepare(struct made *m, struct tr_env *env)
{
	struct vdir_made made;
	int fd;

	disk_prepare(m, env);
	m->bytes[CHANGED] ^= 1;
	fd = memory_file(m->bytes, m->nbytes);
	m->bytes[CHANGED] ^= 1;
	BUG_ON(vdir_write_full(
		       &(struct vdir_write){ .disk_dir = m->plan.disk_dir,
					     .plan = &m->plan,
					     .fd = &fd,
					     .registry = "abc",
					     .version = BASE,
					     .threads = 1,
					     .cancel = &never },
		       &made) < 0);
	close(fd);
	free(made.path);
	env->base.version = BASE;
	env->base.content = made.content;
}

static void disk_stop(struct loop *l)
{
	fakes_stop(l);
	BUG_ON(io_remove_tree(AT_FDCWD, plan->disk_dir) < 0);
}

static const struct tr_bench mem = { .name = "mem",
				     .ops = &tr_mem_ops,
				     .bytes = mem_bytes };
static const struct tr_bench host = { .name = "host",
				      .ops = &tr_host_ops,
				      .start = fakes_start,
				      .stop = fakes_stop,
				      .bytes = fakes_bytes };
static const struct tr_bench disk = { .name = "disk",
				      .ops = &tr_disk_ops,
				      .prepare = disk_prepare,
				      .start = fakes_start,
				      .stop = disk_stop,
				      .bytes = fakes_bytes };
static const struct tr_bench delta = { .name = "delta",
				       .ops = &tr_delta_ops,
				       .prepare = delta_prepare,
				       .start = fakes_start,
				       .stop = disk_stop,
				       .bytes = fakes_bytes };

static bool is_lost(void)
{
	return tr.lost[1];
}

static void check_host(void)
{
	tr.bench = &host;
	tr_start();
	tr_attach();
	drop_conn(&fake[1]);
	ok(tr_run(is_lost), "host: the end of .fd is the end of the receiver");
	tr_send_last();
	ok(tr_run(tr_last_has), "host: the others go on");
	eq_u64(fenced, 0, "host: offers are numbered by instance");
	tr_stop();

	tr_start();
	tr_attach();
	fake[2].twice = true;
	tr_send_last();
	tr_run(tr_last_has);
	unsigned acks = 0;
	for (uint32_t b = 0; b < TR_BUCKETS; b++)
		acks += tr.acks[2][b];
	eq_u64(acks, TR_BUCKETS + 1, "host: a double ack is passed on");
	tr_stop();
}

static void check_whole(const struct tr_bench *bench, unsigned deltas)
{
	tr.bench = bench;
	tr_start();
	tr_attach();
	tr_send_all();
	tr_run(tr_all_have);
	ok(applied == deltas, "%s: %u of what was loaded are deltas",
	   bench->name, applied);
	tr_stop();
}

static const struct made_engine ranked[] = { { { "ipc:///a", "ipc:///b" } } };
static struct tr_event ranked_ack[2];

static void fetch(struct transport *t)
{
	struct tr_event e;

	while (transport_poll(t, &e) > 0)
		if (e.kind == TR_ACK)
			ranked_ack[e.receiver] = e;
}

static void no_wake(void *arg)
{
	(void)arg;
}

/* What worker r gets is rank r's, in files counted from 0. */
static void check_ranks(void)
{
	struct made made;
	struct transport t;
	const char *boot[2] = { "boot", "boot" }, *copy;
	char *path;
	int fd[2];
	struct tr_env env = {
		.plan = &made.plan, .fd = fd, .boot = boot, .wake = no_wake
	};

	make_ranked_plan(&made, ranked, 1, 2, TR_TENSOR, 2);
	path = xasprintf("%s/" MADE_FILE, made.dir);
	for (int i = 0; i < 2; i++)
		fd[i] = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	BUG_ON(transport_open(&t, &tr_mem_ops, &env) < 0);
	for (uint32_t r = 0; r < 2; r++)
		BUG_ON(transport_attach(&t, r) < 0);
	fetch(&t);
	BUG_ON(transport_offer(&t, 0, 1) < 0);
	for (uint32_t r = 0; r < 2; r++)
		BUG_ON(transport_post(&t, r) < 0);
	fetch(&t);
	ok(ranked_ack[0].bytes == TR_TENSOR && ranked_ack[0].worker == 0,
	   "ranks: the first worker has the first rank's share");
	ok(ranked_ack[1].bytes == TR_TENSOR / 2 && ranked_ack[1].worker == 1,
	   "ranks: the second the second's");
	copy = mem_bytes(&t, 1) + MADE_HEADER + TR_TENSOR;
	ok(memcmp(copy, made.bytes + MADE_HEADER + TR_TENSOR, TR_TENSOR / 2) ==
			   0 &&
		   copy[TR_TENSOR / 2] == 0 && copy[TR_TENSOR / 2 + 1] == 0,
	   "ranks: and no more of it");
	transport_close(&t);
	close(fd[0]);
	close(fd[1]);
	unmake_plan(&made);
}

static void check_nobody_there(void)
{
	struct transport t;

	tr.bench = &mem;
	tr_start();
	BUG_ON(transport_open(&t, &tr_host_ops, &tr.env) < 0);
	ok(transport_attach(&t, 0) == -E_UNAVAIL, "host: nobody listens: %s",
	   log_cause());
	transport_close(&t);
	tr_stop();
}

int main(void)
{
	log_quiet_thread(1);
	trcheck(&mem);
	trcheck(&host);
	trcheck(&disk);
	trcheck(&delta);
	check_host();
	check_whole(&disk, 0);
	check_whole(&delta, TR_RECEIVERS);
	check_nobody_there();
	check_ranks();
	ok(transport_find("host") == &tr_host_ops && !transport_find("Host"),
	   "found by name");
	msg_arena_release(&arena);
	buf_release(&in);
	buf_release(&out);
	sock_end();
	return tap_done();
}
