/*
 * fakerecv - a receiver that answers what it is told to, for commit's tests.
 *
 *	fakerecv NAME ENDPOINT [OPTION=VALUE]...
 *
 *	serving=N content=HEX registry=ID room=N epoch=N
 *	staged=N	holds version N, sealed (after a restart)
 *	received=HEX	what its receipts say; installed=HEX likewise
 *	table=N		hash of the messages that it says it speaks
 *	bytes=N proof=N name=NAME run=NAME post-load=TEXT
 *	REQUEST=ACTION	probe begin receipt pause swap resume cancel:
 *			refuse, silent, die, lose (do it, do not answer);
 *			ACTION:K only for the first K of them
 *
 * Every request is one line on stdout, before it is answered: its name and
 * what matters ("swap 7").  SIGTERM ends it.
 */
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/loop.h"
#include "pipes/msg.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum request { PROBE, BEGIN, RECEIPT, PAUSE, SWAP, RESUME, CANCEL, NREQUESTS };
static const char *const names[NREQUESTS] = {
	"probe", "begin", "receipt", "pause", "swap", "resume", "cancel",
};

static struct {
	const char *name, *says, *post_load;
	char boot[64], registry[65], run[65], lied_run[65];
	uint64_t serving, staged, room, epoch, bytes, token, table;
	bool lied_bytes, sealed;
	uint32_t worker, workers;
	uint8_t proof;
	struct digest content, received, installed;
	char action[NREQUESTS][16];
	unsigned times[NREQUESTS];
	struct loop *loop;
	struct sock sock;
} f = { .room = UINT64_MAX, .proof = PROOF_COPIED, .workers = 1 };

static void hex(struct digest *d, const char *v)
{
	if (digest_parse(v, strlen(v), d) < 0)
		exit(64);
}

static bool set_action(const char *key, const char *v)
{
	for (unsigned i = 0; i < NREQUESTS; i++) {
		if (strcmp(key, names[i]) != 0)
			continue;
		f.times[i] = UINT32_MAX;
		sscanf(v, "%15[^:]:%u", f.action[i], &f.times[i]);
		return true;
	}
	return false;
}

static void set(const char *arg)
{
	static const struct {
		const char *key;
		uint64_t *to;
	} numbers[] = {
		{ "serving", &f.serving }, { "staged", &f.staged },
		{ "room", &f.room },	   { "epoch", &f.epoch },
		{ "table", &f.table },
	};
	char key[32];
	const char *v = strchr(arg, '=');

	if (!v)
		exit(64);
	snprintf(key, sizeof key, "%.*s", (int)(v - arg), arg);
	v++;
	for (size_t i = 0; i < COUNT(numbers); i++)
		if (strcmp(key, numbers[i].key) == 0)
			*numbers[i].to = strtoull(v, NULL, 10);
	if (strcmp(key, "content") == 0)
		hex(&f.content, v);
	else if (strcmp(key, "received") == 0)
		hex(&f.received, v);
	else if (strcmp(key, "installed") == 0)
		hex(&f.installed, v);
	else if (strcmp(key, "registry") == 0)
		snprintf(f.registry, sizeof f.registry, "%s", v);
	else if (strcmp(key, "bytes") == 0)
		f.bytes = strtoull(v, NULL, 10), f.lied_bytes = true;
	else if (strcmp(key, "proof") == 0)
		f.proof = (uint8_t)atoi(v);
	else if (strcmp(key, "name") == 0)
		f.says = v;
	else if (strcmp(key, "run") == 0)
		snprintf(f.lied_run, sizeof f.lied_run, "%s", v);
	else if (strcmp(key, "post-load") == 0)
		f.post_load = v;
	else
		set_action(key, v);
}

static void reply(const struct sock_peer *to, const struct msg *m)
{
	struct buf b = { 0 };

	if (msg_pack(&b, m) == 0)
		sock_send(&f.sock, to, buf_slice(&b));
	buf_release(&b);
}

static void copy(char *to, struct slice s)
{
	snprintf(to, 65, "%.*s", SLICE_ARG(s));
}

static void state(uint64_t seq, struct msg *r)
{
	r->type = M_state;
	r->state.seq = seq;
	r->state.boot = slice_of(f.boot);
	r->state.table = f.table ? f.table : msg_table_hash();
	r->state.build = SLICE("test");
	r->state.name = slice_of(f.says);
	r->state.registry = slice_of(f.registry);
	r->state.epoch = f.epoch;
	r->state.run = slice_of(f.run);
	r->state.serving = f.serving;
	r->state.content = f.content;
	r->state.staged = f.staged;
	r->state.sealed = f.sealed;
	r->state.paused = f.token != 0;
	r->state.room = f.room;
}

static void begin(const struct m_begin *m, struct msg *r)
{
	copy(f.registry, m->fence.registry);
	copy(f.run, m->fence.run);
	f.epoch = m->fence.epoch;
	f.staged = m->version;
	f.sealed = true;
	f.worker = m->worker;
	f.workers = m->workers;
	if (!f.lied_bytes)
		f.bytes = m->bytes;
	r->type = M_begun;
	r->begun.seq = m->seq;
	r->begun.boot = slice_of(f.boot);
}

static void receipt(const struct m_ask_receipt *m, struct msg *r)
{
	r->type = M_receipt;
	r->receipt.seq = m->seq;
	r->receipt.engine = slice_of(f.name);
	r->receipt.worker = f.worker;
	r->receipt.workers = f.workers;
	r->receipt.boot = slice_of(f.boot);
	r->receipt.registry = slice_of(f.registry);
	r->receipt.epoch = m->fence.epoch;
	r->receipt.run = f.lied_run[0] ? slice_of(f.lied_run) : m->fence.run;
	r->receipt.version = f.staged;
	r->receipt.bytes = f.bytes;
	r->receipt.received = f.received;
	r->receipt.installed = f.installed;
	r->receipt.proof = f.proof;
	r->receipt.post_load = slice_of(f.post_load ? f.post_load : "");
}

static void refuse(uint64_t seq, uint8_t code, const char *why, struct msg *r)
{
	r->type = M_refused;
	r->refused.seq = seq;
	r->refused.boot = slice_of(f.boot);
	r->refused.code = code;
	r->refused.bucket = ID_NONE;
	r->refused.cause = slice_of(why);
}

static void swap(const struct m_swap *m, struct msg *r)
{
	bool there =
		f.serving == m->version && digest_eq(&f.content, &m->content);

	if (!there && (f.token == 0 || f.token != m->token)) {
		refuse(m->seq, E_AGAIN, "not paused with this token", r);
		return;
	}
	if (!there &&
	    (f.staged != m->version || !digest_eq(&f.received, &m->content))) {
		refuse(m->seq, E_DATA, "holds something else", r);
		return;
	}
	f.serving = m->version;
	f.content = m->content;
	f.staged = 0;
	r->type = M_swapped;
	r->swapped.seq = m->seq;
	r->swapped.boot = slice_of(f.boot);
	r->swapped.version = f.serving;
}

static enum request request_of(const struct msg *m, uint64_t *seq, uint64_t *n)
{
	*n = 0;
	switch (m->type) {
	case M_probe:
		*seq = m->probe.seq;
		return PROBE;
	case M_begin:
		*seq = m->begin.seq;
		*n = m->begin.version;
		return BEGIN;
	case M_ask_receipt:
		*seq = m->ask_receipt.seq;
		*n = m->ask_receipt.version;
		return RECEIPT;
	case M_pause:
		*seq = m->pause.seq;
		return PAUSE;
	case M_swap:
		*seq = m->swap.seq;
		*n = m->swap.version;
		return SWAP;
	case M_resume:
		*seq = m->resume.seq;
		return RESUME;
	case M_cancel:
		*seq = m->cancel.seq;
		return CANCEL;
	default:
		return NREQUESTS;
	}
}

static void perform(const struct msg *m, enum request q, uint64_t seq,
		    struct msg *r)
{
	switch (q) {
	case PROBE:
		state(seq, r);
		break;
	case BEGIN:
		begin(&m->begin, r);
		break;
	case RECEIPT:
		receipt(&m->ask_receipt, r);
		break;
	case PAUSE:
		f.token = m->pause.token;
		r->type = M_paused;
		r->paused.seq = seq;
		r->paused.boot = slice_of(f.boot);
		r->paused.token = f.token;
		break;
	case SWAP:
		swap(&m->swap, r);
		break;
	case RESUME:
		f.token = 0;
		r->type = M_resumed;
		r->resumed.seq = seq;
		r->resumed.boot = slice_of(f.boot);
		r->resumed.version = f.serving;
		r->resumed.pause_us = 700;
		break;
	case CANCEL:
		f.token = 0;
		f.staged = 0;
		r->type = M_cancelled;
		r->cancelled.seq = seq;
		r->cancelled.boot = slice_of(f.boot);
		r->cancelled.version = f.serving;
		break;
	default:
		break;
	}
}

static void on_frame(const struct sock_peer *from, const struct msg *m)
{
	struct msg r = { 0 };
	uint64_t seq, n;
	enum request q = request_of(m, &seq, &n);
	const char *act = "";

	if (m->type == M_status) {
		state(m->status.seq, &r);
		reply(from, &r);
		return;
	}
	if (q == NREQUESTS)
		return;
	printf("%s %llu\n", names[q], (unsigned long long)n);
	if (f.times[q] > 0) {
		f.times[q]--;
		act = f.action[q];
	}
	if (strcmp(act, "die") == 0)
		raise(SIGKILL);
	if (strcmp(act, "silent") == 0)
		return;
	if (strcmp(act, "refuse") == 0)
		refuse(seq, E_IO, "told to refuse", &r);
	else
		perform(m, q, seq, &r);
	if (strcmp(act, "lose") != 0)
		reply(from, &r);
}

static void on_sock(void *arg)
{
	struct msg_arena arena = { 0 };
	struct sock_peer from;
	struct buf b = { 0 };
	struct msg m;

	(void)arg;
	while (sock_recv(&f.sock, &from, &b) > 0)
		if (msg_unpack(&m, &arena, buf_slice(&b)) == 0)
			on_frame(&from, &m);
	msg_arena_release(&arena);
	buf_release(&b);
}

static void on_signal(int signo, void *arg)
{
	(void)signo;
	(void)arg;
	loop_stop(f.loop, 0);
}

int main(int argc, char **argv)
{
	log_init("fakerecv", LOG_WARN);
	if (argc < 3)
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	f.name = f.says = argv[1];
	for (int i = 3; i < argc; i++)
		set(argv[i]);
	f.sealed = f.staged != 0;
	snprintf(f.boot, sizeof f.boot, "%ld-%lld", (long)getpid(),
		 (long long)clock_mono_ns());
	f.loop = loop_new();
	if (!f.loop || loop_signals(f.loop, on_signal, NULL) < 0 ||
	    sock_listen(&f.sock, argv[2], FRAME_MAX) < 0)
		return 74;
	loop_add_sock(f.loop, &f.sock, on_sock, NULL);
	printf("ready\n");
	loop_run(f.loop);
	loop_del_sock(f.loop, &f.sock);
	sock_close(&f.sock);
	loop_free(f.loop);
	sock_end();
	return 0;
}
