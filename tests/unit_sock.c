#include "common/clock.h"
#include "common/err.h"
#include "common/fds.h"
#include "common/io.h"
#include "common/log.h"
#include "common/sock.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME 65536u
#define PATIENCE_MS 60000 /* a bound, not a measure */
#define SLOW_FRAMES 10000u
#define LAST_WORDS 500u /* below SOCK_HWM */

static char dir[] = "/tmp/unit_sock.XXXXXX";

static char *at(const char *name)
{
	static char ring[4][128];
	static unsigned i;
	char *s = ring[i++ % 4];

	snprintf(s, sizeof ring[0], "ipc://%s/%s", dir, name);
	return s;
}

static bool wait_ready(struct sock *s)
{
	struct sock_poll p = { .s = s, .fd = -1 };

	return sock_poll(&p, 1, PATIENCE_MS) > 0;
}

static int recv_wait(struct sock *s, struct sock_peer *from, struct buf *out)
{
	int64_t end = clock_mono_ms() + PATIENCE_MS;
	int rc;

	while ((rc = sock_recv(s, from, out)) == 0 && clock_mono_ms() < end)
		wait_ready(s);
	return rc;
}

static enum sock_news news_wait(struct sock *s, char *ep, size_t size)
{
	int64_t end = clock_mono_ms() + PATIENCE_MS;
	enum sock_news news;

	while ((news = sock_news(s, ep, size)) == SOCK_QUIET &&
	       clock_mono_ms() < end)
		wait_ready(s);
	return news;
}

static int send_str(struct sock *s, const struct sock_peer *to, const char *t)
{
	return sock_send(s, to, slice_of(t));
}

static void test_pair(void)
{
	struct sock a, b;
	struct sock_peer peer = { 0 };
	struct buf in = { 0 };
	struct stat st;
	char ep[128];

	eq_i64(sock_listen(&a, at("pair"), FRAME), 0, "listen");
	ok(stat(at("pair") + 6, &st) == 0 && (st.st_mode & 0777) == 0600,
	   "ZQ-15 the socket file is ours alone");
	eq_i64(sock_dial(&b, at("pair"), FRAME), 0, "dial");
	eq_i64(news_wait(&b, ep, sizeof ep), SOCK_UP, "the connection is told");
	eq_str(ep, at("pair"), "by the endpoint as given");
	eq_i64(send_str(&b, NULL, "hello"), 0, "send");
	eq_i64(recv_wait(&a, &peer, &in), 1, "receive");
	eq_str(buf_cstr(&in), "hello", "the frame");
	ok(peer.uid == geteuid(), "and whose it is");
	eq_i64(send_str(&a, &peer, "back"), 0, "reply");
	eq_i64(recv_wait(&b, NULL, &in), 1, "receive the reply");
	eq_str(buf_cstr(&in), "back", "the reply");
	eq_i64(sock_recv(&b, NULL, &in), 0, "nothing more");
	peer.id[0] ^= 1;
	eq_i64(send_str(&a, &peer, "x"), -E_UNAVAIL,
	       "ZQ-03 an unknown peer is an error");
	sock_close(&a);
	ok(stat(at("pair") + 6, &st) < 0, "close removes the file");
	eq_i64(news_wait(&b, ep, sizeof ep), SOCK_LOST, "the end is told");
	sock_close(&b);
	buf_release(&in);
}

static void test_frame_max(void)
{
	struct sock a, b;
	struct sock_peer peer;
	struct buf in = { 0 };
	char ep[128], *big = xcalloc(FRAME + 1, 1);

	sock_listen(&a, at("max"), FRAME);
	sock_dial(&b, at("max"), FRAME);
	news_wait(&b, ep, sizeof ep);
	sock_send(&b, NULL, (struct slice){ big, FRAME });
	eq_i64(recv_wait(&a, &peer, &in), 1, "a frame of the greatest size");
	eq_u64(in.n, FRAME, "whole");
	sock_send(&b, NULL, (struct slice){ big, FRAME + 1 });
	eq_i64(news_wait(&b, ep, sizeof ep), SOCK_LOST,
	       "ZQ-15 a larger one ends the connection");
	eq_i64(sock_recv(&a, &peer, &in), 0, "and is not received");
	sock_close(&a);
	sock_close(&b);
	buf_release(&in);
	free(big);
}

static void test_refused(void)
{
	struct sock a, b;
	char longest[160] = "ipc:///";
	struct stat st;
	int fd;

	memset(longest + 7, 'a', SOCK_PATH_MAX);
	eq_i64(sock_listen(&a, "tcp://*:5555", FRAME), -E_CONFIG,
	       "ZQ-15 tcp is refused");
	eq_i64(sock_listen(&a, longest, FRAME), -E_CONFIG, "path too long");
	eq_i64(sock_listen(&a, "ipc://*", FRAME), -E_CONFIG, "wildcard");
	eq_i64(sock_listen(&a, "ipc://@abstract", FRAME), -E_CONFIG,
	       "abstract name");
	eq_i64(sock_dial(&a, "", FRAME), -E_CONFIG, "empty");
	eq_i64(sock_listen(&a, at("used"), FRAME), 0, "listen");
	eq_i64(sock_listen(&b, at("used"), FRAME), -E_AGAIN,
	       "a live listener is not replaced");
	sock_close(&a);
	fd = open(at("file") + 6, O_CREAT | O_WRONLY, 0600);
	close(fd);
	eq_i64(sock_listen(&a, at("file"), FRAME), -E_CONFIG,
	       "a plain file is not replaced");
	ok(stat(at("file") + 6, &st) == 0 && S_ISREG(st.st_mode),
	   "it is still there");
	unlink(at("file") + 6);
}

static _Noreturn void echo(const char *endpoint, int ready)
{
	struct sock s;
	struct sock_peer peer;
	struct buf in = { 0 };

	if (sock_listen(&s, endpoint, FRAME) < 0)
		_exit(1);
	if (ready >= 0 && write(ready, "r", 1) != 1)
		_exit(1);
	for (;;)
		if (recv_wait(&s, &peer, &in) > 0)
			sock_send(&s, &peer, buf_slice(&in));
}

/* A child that listens and echoes. */
static pid_t spawn_echo(const char *endpoint)
{
	int ready[2];
	pid_t pid;
	char c;

	if (pipe(ready) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0)
		echo(endpoint, ready[1]);
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		pid = -1;
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static bool echoes(struct sock *s, const struct sock_peer *name, const char *t)
{
	struct sock_peer from;
	struct buf in = { 0 };
	bool good = send_str(s, name, t) == 0 &&
		    recv_wait(s, &from, &in) == 1 &&
		    slice_eq(buf_slice(&in), slice_of(t)) &&
		    from.n == name->n && !memcmp(from.id, name->id, from.n);

	buf_release(&in);
	return good;
}

static enum sock_news up_wait(struct sock *s, char *ep, size_t size)
{
	enum sock_news news;

	do
		news = news_wait(s, ep, size);
	while (news == SOCK_REACHED);
	return news;
}

/* Must come first: children use zmq, so we must not have yet. */
static void test_fan(void)
{
	struct sock_peer one = { .n = 2, .id = "r1" };
	struct sock_peer two = { .n = 2, .id = "r2" };
	pid_t p1 = spawn_echo(at("r1")), p2 = spawn_echo(at("r2"));
	pid_t spare;
	struct sock f;
	char ep[128];

	if (!ok(p1 > 0 && p2 > 0, "two receivers"))
		return;
	sock_fan(&f, FRAME);
	eq_i64(sock_fan_add(&f, at("r1"), &one), 0, "add one");
	eq_i64(sock_fan_add(&f, at("r2"), &two), 0, "add another");
	eq_i64(up_wait(&f, ep, sizeof ep), SOCK_UP, "one is up");
	eq_i64(up_wait(&f, ep, sizeof ep), SOCK_UP, "the other is up");
	ok(echoes(&f, &one, "a"), "one echoes, under our name");
	ok(echoes(&f, &two, "b"), "two echoes");
	end(p1);
	eq_i64(news_wait(&f, ep, sizeof ep), SOCK_LOST, "a kill is seen");
	eq_str(ep, at("r1"), "of the right one");
	ok(echoes(&f, &two, "c"), "the other goes on");
	spare = fork();
	if (spare == 0) {
		execl("/proc/self/exe", "unit_sock", "echo", at("r1"),
		      (char *)NULL);
		_exit(127);
	}
	do
		news_wait(&f, ep, sizeof ep);
	while (strcmp(ep, at("r1")) != 0);
	ok(echoes(&f, &one, "d"),
	   "ZQ-13 a restarted receiver is reached under the same name");
	ok(echoes(&f, &two, "e"), "ZQ-10 fork and exec disturb nobody");
	end(spare);
	end(p2);
	sock_close(&f);
	sock_end();
	unlink(at("r1") + 6);
	unlink(at("r2") + 6);
}

/* ZQ-03: nothing is dropped at the mark, the sender is told. */
static void test_slow(void)
{
	struct sock a, b;
	struct sock_peer peer;
	struct buf in = { 0 };
	char ep[128], text[32], want[32];
	unsigned sent = 0, got = 0, full = 0;
	bool order = true;

	sock_listen(&a, at("slow"), FRAME);
	sock_dial(&b, at("slow"), FRAME);
	news_wait(&b, ep, sizeof ep);
	while (got < SLOW_FRAMES) {
		while (sent < SLOW_FRAMES) {
			snprintf(text, sizeof text, "%u", sent);
			if (send_str(&b, NULL, text) == -E_AGAIN) {
				full++;
				break;
			}
			sent++;
		}
		/* libzmq looks for room once in a millisecond only: the mark
		 * may be told although all has arrived. */
		if (sent == got)
			continue;
		if (recv_wait(&a, &peer, &in) != 1)
			break;
		snprintf(want, sizeof want, "%u", got++);
		order = order && !strcmp(buf_cstr(&in), want);
	}
	eq_u64(got, SLOW_FRAMES, "ZQ-03 10000 frames to a slow reader arrive");
	ok(order, "in order");
	ok(full > 0, "the sender met the mark");
	sock_close(&a);
	sock_close(&b);
	buf_release(&in);
}

static void test_absent(void)
{
	struct sock b;
	int64_t start = clock_mono_ms();
	struct buf in = { 0 };
	struct sock_poll p = { .s = &b, .fd = -1 };
	char ep[128];

	sock_dial(&b, at("absent"), FRAME);
	ok(sock_poll(&p, 1, 50) == 0, "ZQ-05 no peer: nothing happens");
	eq_i64(sock_news(&b, ep, sizeof ep), SOCK_QUIET, "and nothing is told");
	send_str(&b, NULL, "unsent");
	sock_close(&b);
	sock_end();
	ok(clock_mono_ms() - start < PATIENCE_MS,
	   "ZQ-06 unsent frames do not hold the end up");
	buf_release(&in);
}

/* Says much at the end of its life. */
static void last_words(const char *endpoint)
{
	struct sock_peer peer;
	struct buf in = { 0 };
	struct sock s;

	if (sock_listen(&s, endpoint, FRAME) < 0 ||
	    recv_wait(&s, &peer, &in) != 1)
		_exit(1);
	for (unsigned i = 0; i < LAST_WORDS; i++)
		send_str(&s, &peer, "a last word");
	sock_finish(&s, PATIENCE_MS);
	sock_end();
	_exit(0);
}

/* In a child, and with no context here, which is not to be forked. */
static void test_last_words(void)
{
	char *endpoint = at("last"), ep[128];
	struct buf in = { 0 };
	unsigned heard = 0;
	struct sock s;
	pid_t pid = fork();

	if (pid == 0)
		last_words(endpoint);
	sock_dial(&s, endpoint, FRAME);
	send_str(&s, NULL, "what happened?");
	while (heard < LAST_WORDS && recv_wait(&s, NULL, &in) == 1)
		heard++;
	eq_u64(heard, LAST_WORDS, "ZQ-06 what is said at the end arrives");
	while (news_wait(&s, ep, sizeof ep) == SOCK_UP)
		;
	sock_close(&s);
	sock_end();
	waitpid(pid, NULL, 0);
	buf_release(&in);
}

static void on_alarm(int signo)
{
	(void)signo;
}

static void storm(long us)
{
	struct itimerval t = { { 0, us }, { 0, us } };
	struct sigaction sa = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

static void test_eintr(void)
{
	struct sock a, b;
	struct sock_peer peer;
	struct buf in = { 0 };
	char ep[128];
	int64_t start;
	unsigned n = 0;

	storm(1000);
	sock_listen(&a, at("eintr"), FRAME);
	sock_dial(&b, at("eintr"), FRAME);
	news_wait(&b, ep, sizeof ep);
	for (; n < 500; n++)
		if (send_str(&b, NULL, "x") < 0 ||
		    recv_wait(&a, &peer, &in) != 1)
			break;
	eq_u64(n, 500, "ZQ-09 frames under a storm of signals");
	start = clock_mono_ms();
	eq_i64(sock_poll(&(struct sock_poll){ .s = &a, .fd = -1 }, 1, 100), 0,
	       "a wait under a storm");
	ok(clock_mono_ms() - start >= 99, "is not cut short");
	sock_close(&a);
	sock_close(&b);
	sock_end();
	storm(0);
	buf_release(&in);
}

/* Many, since a signal must meet libzmq taking a socket's commands. */
static void test_eintr_open(void)
{
	struct sock a, b;
	unsigned n = 0;

	storm(20);
	for (; n < 1000; n++) {
		if (sock_listen(&a, at("open"), FRAME) < 0)
			break;
		if (sock_dial(&b, at("open"), FRAME) < 0) {
			sock_close(&a);
			break;
		}
		sock_close(&b);
		sock_close(&a);
	}
	sock_end();
	storm(0);
	eq_u64(n, 1000, "ZQ-09 sockets opened under a storm of signals");
}

static unsigned inheritable(void)
{
	unsigned n = 0;

	for (int fd = 3; fd < 256; fd++) {
		int flags = fcntl(fd, F_GETFD);

		n += flags >= 0 && !(flags & FD_CLOEXEC);
	}
	return n;
}

static void test_cloexec(void)
{
	struct sock a, b;
	char ep[128];
	unsigned before = inheritable();

	sock_listen(&a, at("exec"), FRAME);
	sock_dial(&b, at("exec"), FRAME);
	news_wait(&b, ep, sizeof ep);
	eq_u64(inheritable(), before, "ZQ-10 all descriptors close on exec");
	sock_close(&a);
	sock_close(&b);
	sock_end();
}

/* ZQ-11, in a child, for a limit cannot be raised again. */
static int few_fds(rlim_t limit, size_t need)
{
	struct rlimit lim = { limit, limit };
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_NOFILE, &lim);
		_exit(-fds_need(need, "64 receivers"));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : 1;
}

static int few_fds_socket(rlim_t limit)
{
	struct rlimit lim = { limit, limit };
	struct sock s;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		setrlimit(RLIMIT_NOFILE, &lim);
		_exit(-sock_fan(&s, FRAME));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : 1;
}

static void test_fds(void)
{
	eq_i64(few_fds(32, 64), -E_CONFIG, "ZQ-11 64 receivers in 32");
	eq_i64(few_fds(100, 64), 0, "ZQ-11 64 receivers in 100");
	eq_i64(few_fds_socket(10), -E_CONFIG, "ZQ-11 no room for a socket");
	eq_i64(few_fds_socket(40), 0, "ZQ-11 room for a socket");
}

int main(int argc, char **argv)
{
	log_init("unit_sock", LOG_ERROR);
	log_quiet_thread(1);
	if (argc == 3)
		echo(argv[2], -1);
	if (!mkdtemp(dir))
		return 1;
	test_fds();
	test_fan();
	test_pair();
	test_frame_max();
	test_refused();
	test_slow();
	test_absent();
	test_last_words();
	test_eintr();
	test_eintr_open();
	test_cloexec();
	ok(rmdir(dir) == 0, "no socket file is left");
	return tap_done();
}
