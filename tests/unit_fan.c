#include "pipes/fan.c" /* the count of its open calls is its own */
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_MS 60000 /* a bound, not a measure */
#define MANY 5000u
#define TURN 100u

static char dir[] = "/tmp/unit_fan.XXXXXX";
static struct loop *l;
static struct fan *f;

/* A receiver of ours, that answers as it is told to. */
static struct fake {
	struct sock s;
	char endpoint[64];
	enum { MUTE, ANSWER, ACKS, REFUSE, WRONG, GARBAGE } mode;
	uint32_t acks;
	uint64_t last_seq;
	struct sock_peer last_peer;
	unsigned got;
} fake[2];

static struct {
	unsigned replies, ends, strays, lost;
	uint64_t tag;
	uint32_t receiver;
	int rc;
	enum msg_type type;
	bool again; /* call again when one ends without a reply */
} seen;

/* libzmq looks for room once in a millisecond only: the mark may be told
 * although all has been read. */
static int send_patiently(struct fake *k, struct slice frame)
{
	int rc = sock_send(&k->s, &k->last_peer, frame);

	for (unsigned i = 0; rc == -E_AGAIN && i < PATIENCE_MS; i++) {
		sock_poll(NULL, 0, 1);
		rc = sock_send(&k->s, &k->last_peer, frame);
	}
	return rc;
}

static void pack_send(struct fake *k, const struct msg *m)
{
	struct buf b = { 0 };

	if (msg_pack(&b, m) < 0)
		ok(false, "pack %s", msg_name(m->type));
	if (send_patiently(k, buf_slice(&b)) < 0)
		ok(false, "send %s", msg_name(m->type));
	buf_release(&b);
}

static void send_state(struct fake *k)
{
	struct msg m = { .type = M_state };

	m.state.seq = k->last_seq;
	pack_send(k, &m);
}

static void send_refused(struct fake *k)
{
	struct msg m = { .type = M_refused };

	m.refused.seq = k->last_seq;
	m.refused.code = E_FENCED;
	pack_send(k, &m);
}

static void send_ack(struct fake *k, uint32_t worker)
{
	struct msg m = { .type = M_ack };

	m.ack.seq = k->last_seq;
	m.ack.worker = worker;
	pack_send(k, &m);
}

static void answer(struct fake *k)
{
	switch (k->mode) {
	case MUTE:
		break;
	case ANSWER:
		send_state(k);
		break;
	case ACKS:
		for (uint32_t i = 0; i < k->acks; i++)
			send_ack(k, i);
		break;
	case REFUSE:
		send_refused(k);
		break;
	case WRONG:
		send_ack(k, 0);
		break;
	case GARBAGE:
		sock_send(&k->s, &k->last_peer, SLICE("\xc1"));
		break;
	}
}

static void on_fake(void *arg)
{
	struct fake *k = arg;
	struct msg_arena arena = { 0 };
	struct buf in = { 0 };
	struct msg m;

	/* A few at a time, so that the fan reads before our mark is met. */
	for (unsigned i = 0; i < TURN; i++) {
		if (sock_recv(&k->s, &k->last_peer, &in) <= 0)
			break;
		if (msg_unpack(&m, &arena, buf_slice(&in)) < 0)
			continue;
		k->last_seq = m.probe.seq;
		k->got++;
		answer(k);
	}
	msg_arena_release(&arena);
	buf_release(&in);
}

static void fake_start(unsigned i)
{
	struct fake *k = &fake[i];

	snprintf(k->endpoint, sizeof k->endpoint, "ipc://%s/r%u", dir, i);
	ok(sock_listen(&k->s, k->endpoint, FRAME_MAX) == 0, "fake %u is up", i);
	loop_add_sock(l, &k->s, on_fake, k);
}

static void fake_stop(unsigned i)
{
	loop_del_sock(l, &fake[i].s);
	sock_close(&fake[i].s);
}

static int call(uint32_t receiver, uint64_t tag, uint64_t ms)
{
	struct msg m = { .type = M_status };

	return fan_call(f, receiver, &m, tag, 1, ms);
}

static int offer(uint32_t receiver, uint64_t tag, uint32_t replies)
{
	struct msg m = { .type = M_offer };

	return fan_call(f, receiver, &m, tag, replies, PATIENCE_MS);
}

static void on_reply(void *arg, uint32_t receiver, uint64_t tag,
		     const struct msg *m, int rc)
{
	(void)arg;
	if (m)
		seen.replies++;
	else
		seen.ends++;
	seen.tag = tag;
	seen.receiver = receiver;
	seen.rc = rc;
	seen.type = m ? m->type : MSG_NONE;
	if (!m && seen.again) {
		seen.again = false;
		call(receiver, 77, PATIENCE_MS);
	}
	loop_stop(l, 1);
}

static void on_stray(void *arg, uint32_t receiver, const struct msg *m)
{
	(void)arg;
	(void)receiver;
	(void)m;
	seen.strays++;
	loop_stop(l, 1);
}

static void on_lost(void *arg, uint32_t receiver)
{
	(void)arg;
	(void)receiver;
	seen.lost++;
	loop_stop(l, 1);
}

static void on_late(void *arg)
{
	(void)arg;
	loop_stop(l, 0);
}

/* Runs until *what has come to be n. */
static bool until(const unsigned *what, unsigned n)
{
	struct loop_timer t = { .fn = on_late };
	int rc = 1;

	loop_arm(l, &t, PATIENCE_MS);
	while (*what < n && rc == 1)
		rc = loop_run(l);
	loop_disarm(l, &t);
	return *what == n;
}

static void reset(void)
{
	memset(&seen, 0, sizeof seen);
	fake[0].mode = fake[1].mode = ANSWER;
	fake[0].got = fake[1].got = 0;
}

static void test_reply(void)
{
	reset();
	eq_i64(call(1, 42, PATIENCE_MS), 0, "call");
	ok(until(&seen.replies, 1), "is answered");
	eq_u64(seen.tag, 42, "tag comes back");
	eq_u64(seen.receiver, 1, "by the receiver asked");
	eq_u64(f->open, 0, "and has ended");
	send_state(&fake[1]);
	ok(until(&seen.strays, 1), "I5 a second reply is stray");
	reset();
	fake[0].mode = WRONG;
	call(0, 1, PATIENCE_MS);
	ok(until(&seen.strays, 1), "a reply of the wrong type is stray");
	eq_u64(f->open, 1, "and ends nothing");
	send_refused(&fake[0]);
	ok(until(&seen.replies, 1), "refused answers anything");
	eq_u64(seen.type, M_refused, "and is handed on");
}

static void test_other(void)
{
	reset();
	fake[0].mode = MUTE;
	call(0, 1, PATIENCE_MS);
	call(1, 2, PATIENCE_MS);
	ok(until(&seen.replies, 1), "one of two is answered");
	fake[1].last_seq--; /* that of the other's call */
	send_state(&fake[1]);
	ok(until(&seen.strays, 1), "I5 nobody answers for another");
	eq_u64(f->open, 1, "the other's call is open");
	fan_forget(f, 0);
	eq_u64(f->open, 0, "forgotten");
	eq_u64(seen.ends, 0, "silently");
}

static void test_multi(void)
{
	reset();
	fake[0].mode = ACKS;
	fake[0].acks = 4;
	eq_i64(offer(0, 5, 3), 0, "an offer to three workers");
	ok(until(&seen.strays, 1), "the fourth of three acks is stray");
	eq_u64(seen.replies, 3, "three were replies");
	eq_u64(f->open, 0, "the offer has ended");
	fake[0].mode = REFUSE;
	offer(0, 6, 3);
	ok(until(&seen.replies, 4), "refused");
	eq_u64(f->open, 0, "ends the offer for all workers");
}

static void test_deadline(void)
{
	reset();
	fake[0].mode = MUTE;
	call(0, 9, 20);
	ok(until(&seen.ends, 1), "ZQ-01 no answer");
	eq_i64(seen.rc, -E_TIMEOUT, "ends by the deadline");
	ok(strstr(log_cause(), fake[0].endpoint) &&
		   strstr(log_cause(), "status"),
	   "ZQ-01 cause names endpoint and request: %s", log_cause());
	fake[0].mode = ANSWER;
	send_state(&fake[0]);
	ok(until(&seen.strays, 1), "ZQ-12 the late reply is stray");
	call(0, 10, PATIENCE_MS);
	ok(until(&seen.replies, 1) && seen.tag == 10,
	   "ZQ-12 and the next call gets its own");
}

static void test_garbage(void)
{
	reset();
	fake[0].mode = GARBAGE;
	fake[1].mode = MUTE;
	call(1, 4, PATIENCE_MS);
	call(0, 3, PATIENCE_MS);
	ok(until(&seen.ends, 1), "ZQ-15 a frame that is no message");
	eq_i64(seen.rc, -E_PROTO, "ends the receiver's calls");
	ok(strstr(log_cause(), "another version of weir's messages") != NULL,
	   "and says what it is likely to be: %s", log_cause());
	eq_u64(f->open, 1, "and not another's");
	fan_forget(f, 1);
}

static void test_lost(void)
{
	reset();
	fake[0].mode = MUTE;
	seen.again = true;
	call(0, 1, PATIENCE_MS);
	call(0, 2, PATIENCE_MS);
	fake_stop(0);
	ok(until(&seen.lost, 1), "a receiver's end is seen");
	eq_u64(seen.ends, 2, "its calls have ended");
	eq_i64(seen.rc, -E_UNAVAIL, "as unavailable");
	eq_u64(f->open, 1, "one made meanwhile waits");
	fake[0].mode = ANSWER;
	fake_start(0);
	ok(until(&seen.replies, 1) && seen.tag == 77,
	   "ZQ-13 and is answered by its successor");
	eq_u64(fake[0].got, 1, "which got nothing else");
}

static void test_many(void)
{
	unsigned failed = 0;

	reset();
	for (unsigned i = 0; i < MANY; i++)
		failed += call(i % 2, i, 6 * PATIENCE_MS) < 0;
	eq_u64(failed, 0, "ZQ-03 more calls than the mark");
	eq_u64(f->open, MANY, "all open");
	ok(until(&seen.replies, MANY), "all answered");
	eq_u64(seen.ends + seen.strays, 0, "and nothing else");
}

static void test_absent(const char *endpoint)
{
	reset();
	eq_i64(fan_add(f, endpoint), 0, "add one that is not there");
	call(2, 1, 20);
	ok(until(&seen.ends, 1), "ZQ-05 ends by its deadline");
	ok(strstr(log_cause(), "not connected") != NULL, "ZQ-05 %s",
	   log_cause());
	ok(!fan_is_absent(f, 2), "too early to say that nobody is there");
	call(2, 1, 20 * PATIENCE_MS);
	ok(until(&seen.ends, 2), "FL-01 nobody listens: ends long before it");
	eq_i64(seen.rc, -E_UNAVAIL, "as unavailable");
	ok(strstr(log_cause(), endpoint) != NULL, "ZQ-05 %s", log_cause());
	ok(fan_is_absent(f, 2), "known to be absent");
	fake[0].got = 0;
}

static int unix_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int join(int fd, const struct sockaddr_un *sa)
{
	return connect(fd, (const struct sockaddr *)sa, sizeof *sa);
}

/* A listener that accepts nobody: the kernel does, up to its backlog. */
static int deaf(struct sockaddr_un *sa, const char *name, int backlog)
{
	int fd = unix_socket();

	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(sa->sun_path, sizeof sa->sun_path, "%s/%s", dir, name);
	ok(fd >= 0 && bind(fd, (struct sockaddr *)sa, sizeof *sa) == 0 &&
		   listen(fd, backlog) == 0,
	   "a %s listener", name);
	return fd;
}

static void add(const struct sockaddr_un *sa)
{
	char endpoint[sizeof sa->sun_path + 8];

	snprintf(endpoint, sizeof endpoint, "ipc://%s", sa->sun_path);
	eq_i64(fan_add(f, endpoint), 0, "add it");
}

/* Like a stopped process: nobody shakes hands, or there is not even room for
 * one more that waits for it. */
static void test_deaf(void)
{
	struct sockaddr_un silent, busy;
	int fd[] = { deaf(&silent, "silent", 8), deaf(&busy, "busy", 0),
		     unix_socket(), unix_socket() };

	reset();
	ok(join(fd[2], &busy) == 0 && join(fd[3], &busy) < 0 && errno == EAGAIN,
	   "no room at the busy one");
	add(&silent);
	add(&busy);
	call(3, 1, FAN_ABSENT_MS + FAN_ABSENT_MS / 2);
	call(4, 1, FAN_ABSENT_MS + FAN_ABSENT_MS / 2);
	for (unsigned n = 1; n <= 2; n++) {
		ok(until(&seen.ends, n), "TM-02 waited for");
		eq_i64(seen.rc, -E_TIMEOUT, "to the deadline");
		ok(!fan_is_absent(f, seen.receiver), "it may live");
	}
	for (size_t i = 0; i < COUNT(fd); i++)
		close(fd[i]);
	unlink(silent.sun_path);
	unlink(busy.sun_path);
}

int main(void)
{
	static const struct fan_ops ops = { on_reply, on_stray, on_lost };
	char absent[64];

	log_init("unit_fan", LOG_ERROR);
	if (!mkdtemp(dir))
		return 1;
	l = loop_new();
	f = fan_new(l, &ops, NULL);
	log_quiet_thread(1);
	eq_i64(fan_reserve(f, 1u << 30, 2), -E_CONFIG, "ZQ-11 too many");
	log_quiet_thread(0);
	eq_i64(fan_reserve(f, 3, 1), 0, "ZQ-11 few enough");
	fan_number_from(f, (uint64_t)7 << 40);
	fake_start(0);
	fake_start(1);
	ok(fan_add(f, fake[0].endpoint) == 0, "add");
	ok(fan_add(f, fake[1].endpoint) == 0, "add");
	test_reply();
	ok(fake[1].last_seq >> 40 == 7, "numbers start where told");
	test_other();
	test_multi();
	test_deadline();
	test_garbage();
	test_many();
	test_lost();
	snprintf(absent, sizeof absent, "ipc://%s/absent", dir);
	test_absent(absent);
	test_deaf();
	call(0, 1, PATIENCE_MS); /* open at the end: freed */
	fan_free(f);
	fake_stop(0);
	fake_stop(1);
	sock_end();
	loop_free(l);
	ok(rmdir(dir) == 0, "nothing is left");
	return tap_done();
}
