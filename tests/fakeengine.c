/*
 * fakeengine - a receiver that keeps nothing, and lies as it is told.
 *
 *	fakeengine ipc://PATH [WORD]...
 *
 * Without words it is honest: it reads what it is offered from the attached
 * descriptors, hashes it, and gives receipts that are right; it stores
 * nothing and enforces no fence.  It is ready when PATH is there, and prints
 * every request as one JSON line on stdout.
 *
 *	name=N serving=V content=HEX registry=ID epoch=E
 *	room=BYTES post-load=TEXT boot=ID store=DIR
 *	blind			acks without reading (digest of zeros)
 *	bad-digest[=BUCKET]	one bit of the digest is wrong
 *	bad-size[=BUCKET]	one byte more
 *	double-ack[=BUCKET]	acks twice
 *	unknown-ack[=BUCKET]	acks an offer that nobody made, then the real
 *	never-ack[=BUCKET]
 *	slow-ack=MS		every ack that much later
 *	one-worker		acks only for its first worker
 *	refuse-bucket=BUCKET	refused, E_IO
 *	refuse=STEP silent=STEP	STEP: begin attach offer holding finish
 *				ask_receipt pause swap resume cancel probe
 *	die=STEP die-after=STEP	SIGKILL instead of the reply, or after it
 *	die-bucket=BUCKET	SIGKILL when that bucket is offered
 *	once			the STEP words hold for the first time only
 *	stale-boot		replies with another boot id
 *	bad-received bad-installed bad-bytes bad-version proof=LEVEL
 *				what the receipt lies about
 */
#include "common/content.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/pieces.h"
#include "common/safetensors.h"
#include "pipes/msg.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 1024
#define CONNS_MAX 16
#define ANY UINT64_MAX

static struct {
	const char *name, *registry, *post_load, *boot, *store;
	const char *refuse, *silent, *die, *die_after;
	uint64_t serving, epoch, room, proof;
	uint64_t bad_digest, bad_size, double_ack, unknown_ack, never_ack;
	uint64_t refuse_bucket, die_bucket, slow_ack;
	bool blind, one_worker, once, stale_boot;
	bool bad_received, bad_installed, bad_bytes, bad_version;
	struct digest content;
} lie = {
	.name = "fake",
	.registry = "",
	.post_load = "",
	.boot = "fake-boot",
	.store = "/fake",
	.room = UINT64_C(1) << 40,
	.proof = PROOF_COPIED,
	.bad_digest = ANY - 1,
	.bad_size = ANY - 1,
	.double_ack = ANY - 1,
	.unknown_ack = ANY - 1,
	.never_ack = ANY - 1,
	.refuse_bucket = ANY - 1,
	.die_bucket = ANY - 1,
};

static struct loop *loop;
static struct sock sock;
static int listener, conn[CONNS_MAX];
static struct msg_arena arena;
static struct buf frame, packed, text;

/* what was begun */
static struct {
	uint64_t version, bytes, epoch;
	uint32_t worker, workers, buckets, nfiles;
	char registry[65], run[65];
	char *path[FILES_MAX];
	struct m_slotfile file[FILES_MAX];
	int fd[FILES_MAX];
	unsigned char *held;
	bool sealed, paused;
	struct digest content;
} slot;

struct late {
	struct loop_timer timer;
	struct sock_peer to;
	struct buf frame;
};

static void die_now(void)
{
	raise(SIGKILL);
}

static void show(const struct msg *m)
{
	buf_clear(&text);
	msg_json(&text, m);
	puts(buf_cstr(&text));
	fflush(stdout);
}

/* ---- replies ---- */

static void send_late(void *arg)
{
	struct late *l = arg;

	sock_send(&sock, &l->to, buf_slice(&l->frame));
	buf_release(&l->frame);
	free(l);
}

static void reply(const struct sock_peer *to, const struct msg *m)
{
	struct late *l;

	buf_clear(&packed);
	if (msg_pack(&packed, m) < 0)
		exit(70);
	if (m->type != M_ack || lie.slow_ack == 0) {
		sock_send(&sock, to, buf_slice(&packed));
		return;
	}
	l = xcalloc(1, sizeof *l);
	l->to = *to;
	buf_add(&l->frame, packed.p, packed.n);
	l->timer.fn = send_late;
	l->timer.arg = l;
	loop_arm(loop, &l->timer, (int64_t)lie.slow_ack);
}

static struct slice boot(void)
{
	return slice_of(lie.stale_boot ? "another-boot" : lie.boot);
}

static void refuse(const struct sock_peer *to, uint64_t seq, uint32_t bucket)
{
	struct msg m = { .type = M_refused };

	m.refused = (struct m_refused){
		.seq = seq,
		.boot = boot(),
		.code = E_IO,
		.bucket = bucket,
		.cause = SLICE("the fake was told to refuse this"),
	};
	reply(to, &m);
}

/* Is this the step that a word names?  `once` wears words out. */
static bool hits(const char **word, const char *step)
{
	if (!*word || strcmp(*word, step) != 0)
		return false;
	if (lie.once)
		*word = NULL;
	return true;
}

static bool is_for(uint64_t wanted, uint64_t bucket)
{
	return wanted == ANY || wanted == bucket;
}

/* ---- bytes ---- */

static int hash_piece(const struct piece *p, struct digest *leaf)
{
	struct window w;
	int rc;

	window_init(&w, slot.fd[p->file], slot.file[p->file].bytes,
		    WINDOW_AUTO);
	rc = piece_hash(&w, p, leaf, NULL);
	window_release(&w);
	return rc;
}

static struct digest hash_offer(const struct m_offer *o)
{
	struct digest d = { { 0 } }, *leaf = NULL;
	size_t n = 0;

	for (uint32_t i = 0; !lie.blind && i < o->pieces.n; i++) {
		const struct m_piece *v = &o->pieces.v[i];
		struct piece p = { v->file, v->offset, v->bytes };

		leaf = xreallocarray(leaf, n + piece_leaves(&p), sizeof *leaf);
		if (v->file >= slot.nfiles || hash_piece(&p, leaf + n) < 0)
			memset(leaf + n, 0, sizeof *leaf);
		n += piece_leaves(&p);
	}
	if (!lie.blind)
		leaves_digest(leaf, n, &d);
	free(leaf);
	return d;
}

static void fold_object(struct content *c, enum content_kind kind,
			struct slice name, struct piece p)
{
	size_t n = piece_leaves(&p);
	struct digest *leaf = xcalloc(n, sizeof *leaf);

	if (n > 0)
		hash_piece(&p, leaf);
	content_add(c, kind, name, p.bytes, 0, leaf, (uint32_t)n);
	free(leaf);
}

static void fold_content(void)
{
	struct content c = { 0 };

	for (uint32_t f = 0; f < slot.nfiles; f++) {
		const struct m_slotfile *file = &slot.file[f];
		struct st st = { 0 };

		if (file->kind == FILE_CARRIED) {
			fold_object(&c, CONTENT_CARRIED, file->path,
				    (struct piece){ f, 0, file->bytes });
			continue;
		}
		if (slot.fd[f] < 0 ||
		    st_read_fd(&st, slot.path[f], slot.fd[f], file->bytes) < 0)
			continue;
		for (uint32_t i = 0; i < st.n; i++)
			fold_object(
				&c, CONTENT_TENSOR, st_name(&st, &st.tensor[i]),
				(struct piece){
					f, st.data_start + st.tensor[i].begin,
					st.tensor[i].end -
						st.tensor[i].begin });
		st_release(&st);
	}
	content_finish(&c, &slot.content);
	content_release(&c);
}

/* ---- requests ---- */

static void on_begin(const struct m_begin *b)
{
	for (uint32_t i = 0; i < slot.nfiles; i++)
		free(slot.path[i]);
	free(slot.held);
	slot.version = b->version;
	slot.bytes = b->bytes;
	slot.epoch = b->fence.epoch;
	slot.worker = b->worker;
	slot.workers = b->workers;
	slot.buckets = b->buckets;
	slot.sealed = false;
	snprintf(slot.registry, sizeof slot.registry, "%.*s",
		 SLICE_ARG(b->fence.registry));
	snprintf(slot.run, sizeof slot.run, "%.*s", SLICE_ARG(b->fence.run));
	slot.held = xcalloc(b->buckets / 8 + 1, 1);
	slot.nfiles = b->files.n < FILES_MAX ? b->files.n : FILES_MAX;
	for (uint32_t i = 0; i < slot.nfiles; i++) {
		slot.file[i] = b->files.v[i];
		slot.path[i] =
			xstrndup(slot.file[i].path.p, slot.file[i].path.n);
		slot.file[i].path = slice_of(slot.path[i]);
		slot.fd[i] = -1;
	}
}

static void on_offer(const struct sock_peer *to, const struct m_offer *o)
{
	struct msg m = { .type = M_ack };
	uint32_t workers = lie.one_worker ? 1 : slot.workers;

	if (is_for(lie.die_bucket, o->bucket))
		die_now();
	if (is_for(lie.refuse_bucket, o->bucket)) {
		refuse(to, o->seq, o->bucket);
		return;
	}
	m.ack = (struct m_ack){ .seq = o->seq,
				.boot = boot(),
				.bucket = o->bucket,
				.bytes = o->bytes,
				.digest = hash_offer(o) };
	if (o->bucket < slot.buckets)
		slot.held[o->bucket / 8] |= (unsigned char)(1 << o->bucket % 8);
	if (is_for(lie.never_ack, o->bucket))
		return;
	m.ack.digest.b[0] ^= is_for(lie.bad_digest, o->bucket);
	m.ack.bytes += is_for(lie.bad_size, o->bucket);
	for (uint32_t w = 0; w < workers; w++) {
		m.ack.worker = slot.worker + w;
		if (is_for(lie.unknown_ack, o->bucket)) {
			m.ack.seq = o->seq + 1000000;
			reply(to, &m);
			m.ack.seq = o->seq;
		}
		reply(to, &m);
		if (is_for(lie.double_ack, o->bucket))
			reply(to, &m);
	}
}

static void answer_state(const struct sock_peer *to, uint64_t seq)
{
	struct msg m = { .type = M_state };

	m.state = (struct m_state){
		.seq = seq,
		.boot = boot(),
		.table = msg_table_hash(),
		.build = SLICE(PACKAGE_VERSION),
		.name = slice_of(lie.name),
		.registry = slice_of(slot.registry[0] ? slot.registry
						      : lie.registry),
		.epoch = slot.epoch ? slot.epoch : lie.epoch,
		.run = slice_of(slot.run),
		.serving = lie.serving,
		.content = lie.content,
		.staged = slot.version,
		.highest =
			slot.version > lie.serving ? slot.version : lie.serving,
		.sealed = slot.sealed,
		.paused = slot.paused,
		.room = lie.room,
		.post_load = slice_of(lie.post_load),
		.pid = (uint32_t)getpid(),
		.store = slice_of(lie.store),
	};
	reply(to, &m);
}

static void answer_receipt(const struct sock_peer *to, uint64_t seq)
{
	struct msg m = { .type = M_receipt };

	m.receipt = (struct m_receipt){
		.seq = seq,
		.engine = slice_of(lie.name),
		.worker = slot.worker,
		.workers = slot.workers,
		.boot = boot(),
		.registry = slice_of(slot.registry),
		.epoch = slot.epoch,
		.run = slice_of(slot.run),
		.version = slot.version + lie.bad_version,
		.bytes = slot.bytes - lie.bad_bytes,
		.received = slot.content,
		.installed = slot.content,
		.proof = (uint8_t)lie.proof,
		.post_load = slice_of(lie.post_load),
	};
	m.receipt.received.b[0] ^= lie.bad_received;
	m.receipt.installed.b[0] ^= lie.bad_installed;
	reply(to, &m);
}

static void swap(void)
{
	lie.serving = slot.version;
	lie.content = slot.content;
	slot.version = 0;
	slot.sealed = false;
}

/* The plain replies: seq, boot, and then one field or none. */
#define SAY(what, ...)                                      \
	do {                                                \
		r.type = M_##what;                          \
		r.what = (struct m_##what){ .seq = seq,     \
					    .boot = boot(), \
					    __VA_ARGS__ };  \
		reply(to, &r);                              \
	} while (0)

static uint64_t seq_of(const struct msg *m)
{
	/* seq is the first field of every message to an engine */
	return m->probe.seq;
}

static void honest(const struct sock_peer *to, const struct msg *m)
{
	uint64_t seq = seq_of(m);
	struct msg r = { 0 };

	switch (m->type) {
	case M_probe:
	case M_status:
		answer_state(to, seq);
		break;
	case M_begin:
		on_begin(&m->begin);
		SAY(begun, );
		break;
	case M_offer:
		on_offer(to, &m->offer);
		break;
	case M_holding:
		SAY(held, .sealed = slot.sealed, .count = slot.buckets,
		    .bitmap = { (char *)slot.held, (slot.buckets + 7) / 8 });
		break;
	case M_finish:
		fold_content();
		slot.sealed = true;
		SAY(finished, .version = slot.version);
		break;
	case M_ask_receipt:
		answer_receipt(to, seq);
		break;
	case M_pause:
		slot.paused = true;
		SAY(paused, .token = m->pause.token);
		break;
	case M_swap:
		if (m->swap.version != lie.serving)
			swap();
		SAY(swapped, .version = lie.serving);
		break;
	case M_resume:
		slot.paused = false;
		SAY(resumed, .version = lie.serving, .pause_us = 1000);
		break;
	case M_cancel:
		slot.version = 0;
		slot.sealed = slot.paused = false;
		SAY(cancelled, .version = lie.serving);
		break;
	default:
		break;
	}
}

static void request(const struct sock_peer *to, const struct msg *m)
{
	const char *step = msg_name(m->type);

	show(m);
	if (hits(&lie.die, step))
		die_now();
	if (hits(&lie.silent, step))
		return;
	if (hits(&lie.refuse, step)) {
		refuse(to, seq_of(m), ID_NONE);
		return;
	}
	honest(to, m);
	if (hits(&lie.die_after, step)) {
		struct sock_poll p = { .fd = -1, .s = &sock };

		sock_poll(&p, 1, 200); /* let the reply out */
		die_now();
	}
}

static void sock_ready(void *arg)
{
	struct sock_peer from;
	struct msg m;

	(void)arg;
	while (sock_recv(&sock, &from, &frame) > 0)
		if (msg_unpack(&m, &arena, buf_slice(&frame)) == 0)
			request(&from, &m);
}

/* ---- PATH.fd ---- */

static void on_attach(int *c, const struct msg *m, const int *fds, size_t n)
{
	struct msg r = { .type = M_attached };

	for (size_t i = 0; i < n; i++)
		if (m->attach.first + i < slot.nfiles)
			slot.fd[m->attach.first + i] =
				fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
	r.attached.seq = m->attach.seq;
	if (hits(&lie.die, "attach"))
		die_now();
	if (hits(&lie.silent, "attach"))
		return;
	buf_clear(&packed);
	if (hits(&lie.refuse, "attach")) {
		r.type = M_refused;
		r.refused = (struct m_refused){ .seq = m->attach.seq,
						.boot = boot(),
						.code = E_IO,
						.bucket = ID_NONE,
						.cause = SLICE("told to") };
	}
	if (msg_pack(&packed, &r) == 0)
		fdpass_send(*c, buf_slice(&packed), NULL, 0);
	if (hits(&lie.die_after, "attach"))
		die_now();
}

static void conn_ready(void *arg)
{
	int *c = arg, fds[FDPASS_MAX], rc;
	struct msg m;
	size_t n;

	while ((rc = fdpass_recv(*c, &frame, fds, &n)) > 0) {
		if (msg_unpack(&m, &arena, buf_slice(&frame)) == 0 &&
		    m.type == M_attach) {
			show(&m);
			on_attach(c, &m, fds, n);
		}
		while (n > 0)
			close(fds[--n]);
	}
	if (rc == 0)
		return;
	loop_del_fd(loop, *c);
	close(*c);
	*c = -1;
}

static void listener_ready(void *arg)
{
	struct fdpass_peer peer;
	int fd;

	(void)arg;
	while ((fd = fdpass_accept(listener, &peer)) >= 0) {
		size_t i = 0;

		while (i < CONNS_MAX && conn[i] >= 0)
			i++;
		if (i == CONNS_MAX) {
			close(fd);
			continue;
		}
		conn[i] = fd;
		loop_add_fd(loop, fd, conn_ready, &conn[i]);
	}
}

/* ---- words ---- */

static const struct {
	const char *name;
	const char **text;
	uint64_t *number; /* a bucket where `any` */
	bool *flag, any;
} words[] = {
	{ "name", .text = &lie.name },
	{ "registry", .text = &lie.registry },
	{ "post-load", .text = &lie.post_load },
	{ "boot", .text = &lie.boot },
	{ "store", .text = &lie.store },
	{ "refuse", .text = &lie.refuse },
	{ "silent", .text = &lie.silent },
	{ "die", .text = &lie.die },
	{ "die-after", .text = &lie.die_after },
	{ "serving", .number = &lie.serving },
	{ "epoch", .number = &lie.epoch },
	{ "room", .number = &lie.room },
	{ "proof", .number = &lie.proof },
	{ "slow-ack", .number = &lie.slow_ack },
	{ "bad-digest", .number = &lie.bad_digest, .any = true },
	{ "bad-size", .number = &lie.bad_size, .any = true },
	{ "double-ack", .number = &lie.double_ack, .any = true },
	{ "unknown-ack", .number = &lie.unknown_ack, .any = true },
	{ "never-ack", .number = &lie.never_ack, .any = true },
	{ "refuse-bucket", .number = &lie.refuse_bucket },
	{ "die-bucket", .number = &lie.die_bucket },
	{ "blind", .flag = &lie.blind },
	{ "one-worker", .flag = &lie.one_worker },
	{ "once", .flag = &lie.once },
	{ "stale-boot", .flag = &lie.stale_boot },
	{ "bad-received", .flag = &lie.bad_received },
	{ "bad-installed", .flag = &lie.bad_installed },
	{ "bad-bytes", .flag = &lie.bad_bytes },
	{ "bad-version", .flag = &lie.bad_version },
};

static bool take_word(char *w)
{
	size_t len = strcspn(w, "=");
	const char *value = w[len] ? w + len + 1 : NULL;

	if (len == 7 && strncmp(w, "content", 7) == 0)
		return value &&
		       digest_parse(value, strlen(value), &lie.content) == 0;
	for (size_t i = 0; i < COUNT(words); i++) {
		if (strlen(words[i].name) != len ||
		    strncmp(words[i].name, w, len) != 0)
			continue;
		if (words[i].flag)
			return !value && (*words[i].flag = true);
		if (words[i].text)
			return (*words[i].text = value) != NULL;
		*words[i].number = value ? strtoull(value, NULL, 10) : ANY;
		return value || words[i].any;
	}
	return false;
}

static void on_signal(int signo, void *arg)
{
	(void)arg;
	if (signo == SIGTERM || signo == SIGINT)
		loop_stop(loop, 0);
}

int main(int argc, char **argv)
{
	char *fd_path;
	int rc;

	log_init("fakeengine", LOG_WARN);
	if (argc < 2 || strncmp(argv[1], "ipc://", 6) != 0)
		return 64;
	for (int i = 2; i < argc; i++)
		if (!take_word(argv[i])) {
			fprintf(stderr, "fakeengine: what is %s?\n", argv[i]);
			return 64;
		}
	for (size_t i = 0; i < CONNS_MAX; i++)
		conn[i] = -1;
	loop = loop_new();
	if (loop_signals(loop, on_signal, NULL) < 0)
		return 74;
	fd_path = xasprintf("%s.fd", argv[1] + 6);
	listener = fdpass_listen(fd_path, 0600);
	if (listener < 0 || sock_listen(&sock, argv[1], FRAME_MAX) < 0)
		return 75;
	loop_add_fd(loop, listener, listener_ready, NULL);
	loop_add_sock(loop, &sock, sock_ready, NULL);
	rc = loop_run(loop);
	sock_close(&sock);
	sock_end();
	loop_free(loop);
	unlink(fd_path);
	free(fd_path);
	unlink(argv[1] + 6);
	return rc < 0;
}
