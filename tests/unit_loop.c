#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/loop.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#define TIMERS 1000u
#define TURNS_MS 200 /* several turns of a loop, even a late one */

static struct loop *l;
static char trail[64]; /* what happened, a letter each */

static void note(char c)
{
	size_t n = strlen(trail);

	if (n + 1 < sizeof trail)
		trail[n] = c;
}

static void on_letter(void *arg)
{
	note(*(const char *)arg);
}

static void on_stop(void *arg)
{
	loop_stop(l, *(int *)arg);
}

static int run_for(int64_t ms)
{
	static int rc = 7;
	struct loop_timer t = { .fn = on_stop, .arg = &rc };
	int got;

	memset(trail, 0, sizeof trail);
	loop_arm(l, &t, ms);
	got = loop_run(l);
	loop_disarm(l, &t);
	return got;
}

static void test_timers(void)
{
	struct loop_timer a = { .fn = on_letter, .arg = "a" };
	struct loop_timer b = { .fn = on_letter, .arg = "b" };
	struct loop_timer c = { .fn = on_letter, .arg = "c" };

	loop_arm(l, &c, 9);
	loop_arm(l, &a, 1);
	loop_arm(l, &b, 5);
	eq_i64(run_for(20), 7, "run returns what stop was given");
	eq_str(trail, "abc", "timers fire by deadline, once");
	loop_arm(l, &a, 1);
	loop_arm(l, &b, 2);
	loop_arm(l, &a, 8);
	loop_disarm(l, &b);
	loop_disarm(l, &b);
	run_for(20);
	eq_str(trail, "a", "rearmed: once; disarmed: never");
	loop_stop(l, -E_DATA);
	loop_stop(l, -E_IO);
	eq_i64(loop_run(l), -E_DATA, "stopped before it runs, the first wins");
}

static int pipe_a[2], pipe_b[2];

/* Arms itself until what waits in the pipe was read. */
static void on_again(void *arg)
{
	struct loop_timer *t = arg;

	if (strchr(trail, 'p') == NULL && strlen(trail) < sizeof trail - 1)
		loop_arm(l, t, 0);
	note('t');
}

static void on_pipe(void *arg)
{
	char c;

	if (read(*(int *)arg, &c, 1) == 1)
		note(c);
}

static void test_soon(void)
{
	struct loop_timer t = { .fn = on_again, .arg = &t };
	struct loop_timer u = { .fn = on_letter, .arg = "u" };

	loop_add_fd(l, pipe_a[0], on_pipe, &pipe_a[0]);
	loop_arm(l, &t, 0);
	loop_arm(l, &u, 0);
	if (write(pipe_a[1], "p", 1) != 1)
		note('!');
	run_for(20);
	ok(strchr(trail, 'p') && strchr(trail, 'u') && strchr(trail, 't'),
	   "one that arms itself at once lets others run: %s", trail);
	loop_del_fd(l, pipe_a[0]);
}

static struct many {
	struct loop_timer t;
	int64_t want;
} many[TIMERS];
static int64_t last_due;
static unsigned fired, disorder;

static void on_many(void *arg)
{
	struct many *m = arg;

	disorder += m->want < last_due;
	last_due = m->want;
	fired++;
}

static void test_heap(void)
{
	unsigned armed = TIMERS;
	unsigned seed = 1;

	for (size_t i = 0; i < TIMERS; i++) {
		seed = seed * 1103515245 + 12345;
		many[i].t.fn = on_many;
		many[i].t.arg = &many[i];
		loop_arm(l, &many[i].t, 1 + (seed >> 16) % 30);
		many[i].want = many[i].t.due_ms;
	}
	for (size_t i = 0; i < TIMERS; i += 3, armed--)
		loop_disarm(l, &many[i].t);
	run_for(60);
	eq_u64(fired, armed, "every armed timer fired");
	eq_u64(disorder, 0, "in order of their deadlines");
}

static void on_readable(void *arg)
{
	char c;

	if (read(*(int *)arg, &c, 1) == 1)
		note(c);
}

static void on_remove_other(void *arg)
{
	on_readable(arg);
	loop_del_fd(l, pipe_b[0]);
}

static void on_remove_self(void *arg)
{
	on_readable(arg);
	loop_del_fd(l, *(int *)arg);
	loop_add_fd(l, pipe_b[0], on_readable, &pipe_b[0]);
}

static void on_writable(void *arg)
{
	(void)arg;
	note('w');
	loop_want_out(l, pipe_a[1], false, on_writable);
}

static void feed(int fd, const char *s)
{
	ok(write(fd, s, strlen(s)) == (ssize_t)strlen(s), "feed %s", s);
}

static void test_fds(void)
{
	loop_add_fd(l, pipe_a[0], on_remove_other, &pipe_a[0]);
	loop_add_fd(l, pipe_b[0], on_readable, &pipe_b[0]);
	feed(pipe_a[1], "1");
	feed(pipe_b[1], "2");
	run_for(TURNS_MS);
	eq_str(trail, "1", "a source removed by another's callback is quiet");
	loop_del_fd(l, pipe_a[0]);
	loop_add_fd(l, pipe_a[0], on_remove_self, &pipe_a[0]);
	feed(pipe_a[1], "34");
	run_for(TURNS_MS);
	eq_str(trail, "32", "one that removes itself, and adds another");
	loop_del_fd(l, pipe_b[0]);
	loop_add_fd(l, pipe_a[1], on_letter, "e");
	loop_want_out(l, pipe_a[1], true, on_writable);
	run_for(TURNS_MS);
	eq_str(trail, "w", "writable, until not wanted");
	loop_del_fd(l, pipe_a[1]);
	loop_add_fd(l, pipe_b[0], on_remove_self, &pipe_b[0]);
	loop_del_fd(l, pipe_b[0]);
}

/* TM-02: what is there is read before the deadline is looked at. */
static void test_late(void)
{
	struct loop_timer t = { .fn = on_letter, .arg = "t" };
	int64_t until = clock_mono_ms() + 5;

	loop_add_fd(l, pipe_a[0], on_readable, &pipe_a[0]);
	loop_arm(l, &t, 1);
	while (clock_mono_ms() < until) /* as if stopped */
		;
	feed(pipe_a[1], "r");
	run_for(TURNS_MS);
	/* "4" is left from test_fds. */
	eq_str(trail, "4tr", "TM-02 read first, then the deadline");
	loop_del_fd(l, pipe_a[0]);
}

static void on_stop_early(void *arg)
{
	on_pipe(arg);
	loop_stop(l, 3);
}

/* Whoever stops the loop has nothing done after that. */
static void test_stopped(void)
{
	struct loop_timer t = { .fn = on_letter, .arg = "t" };

	loop_add_fd(l, pipe_a[0], on_stop_early, &pipe_a[0]);
	loop_add_fd(l, pipe_b[0], on_pipe, &pipe_b[0]);
	feed(pipe_a[1], "a");
	feed(pipe_b[1], "b");
	loop_arm(l, &t, 0);
	memset(trail, 0, sizeof trail);
	eq_i64(loop_run(l), 3, "a callback stops the loop");
	eq_str(trail, "a", "no other of that round is called");
	loop_del_fd(l, pipe_a[0]);
	run_for(20);
	eq_str(trail, "bt", "what was left waits for the next run");
	loop_del_fd(l, pipe_b[0]);
}

static bool signals_go_on;

static void on_signal(int signo, void *arg)
{
	(void)arg;
	if (signals_go_on)
		raise(signo);
	note(signo == SIGTERM ? 'T' : signo == SIGINT ? 'I' : '?');
}

static void on_alarm(int signo)
{
	(void)signo;
}

static void test_signals(void)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval storm = { { 0, 1000 }, { 0, 1000 } };
	struct itimerval calm = { 0 };
	int64_t start;

	eq_i64(loop_signals(l, on_signal, NULL), 0, "signals");
	raise(SIGTERM);
	raise(SIGINT);
	run_for(TURNS_MS);
	ok(!strcmp(trail, "TI") || !strcmp(trail, "IT"), "both are told: %s",
	   trail);
	raise(SIGPIPE);
	ok(true, "SIGPIPE is ignored");
	signals_go_on = true;
	raise(SIGCHLD);
	eq_i64(run_for(5), 7, "ZQ-09 signals without end hold up no timer");
	signals_go_on = false;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &storm, NULL);
	start = clock_mono_ms();
	run_for(50);
	ok(clock_mono_ms() - start >= 50, "ZQ-09 a storm does not hurry us");
	setitimer(ITIMER_REAL, &calm, NULL);
}

static struct sock server, client;

static void on_server(void *arg)
{
	struct sock_peer peer;
	struct buf in = { 0 };

	(void)arg;
	while (sock_recv(&server, &peer, &in) > 0)
		sock_send(&server, &peer, buf_slice(&in));
	buf_release(&in);
}

static void on_client(void *arg)
{
	static int rc = 3;
	struct buf in = { 0 };
	char ep[64];

	(void)arg;
	while (sock_news(&client, ep, sizeof ep) == SOCK_UP)
		note('u');
	while (sock_recv(&client, NULL, &in) > 0)
		on_stop(&rc);
	buf_release(&in);
}

static void test_socks(void)
{
	memset(trail, 0, sizeof trail);
	sock_listen(&server, "inproc://loop", 64);
	sock_dial(&client, "inproc://loop", 64);
	loop_add_sock(l, &server, on_server, NULL);
	loop_add_sock(l, &client, on_client, NULL);
	sock_send(&client, NULL, SLICE("x"));
	eq_i64(loop_run(l), 3, "sockets talk");
	loop_del_sock(l, &client);
	loop_del_sock(l, &server);
	sock_close(&client);
	sock_close(&server);
	sock_end();
}

int main(void)
{
	log_init("unit_loop", LOG_ERROR);
	l = loop_new();
	if (pipe(pipe_a) < 0 || pipe(pipe_b) < 0)
		return 1;
	fcntl(pipe_a[0], F_SETFL, O_NONBLOCK);
	fcntl(pipe_b[0], F_SETFL, O_NONBLOCK);
	test_timers();
	test_soon();
	test_heap();
	test_fds();
	test_late();
	test_stopped();
	test_signals();
	test_socks();
	loop_free(l);
	return tap_done();
}
