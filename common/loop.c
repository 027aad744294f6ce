#include "loop.h"
#include "clock.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define POLL_ON_STACK 64		/* descriptors; more are allocated */
#define TIMER_MAX_MS ((int64_t)1 << 40) /* some 34 years: no overflow */

struct source {
	void (*fn)(void *), (*out_fn)(void *);
	void *arg;
	bool gone; /* removed: its place is taken back after the round */
};

struct loop {
	/* Two arrays, one index: polls are handed to sock_poll() as they are,
	 * and nothing is built again while nothing changes. */
	struct sock_poll *poll;
	struct source *source;
	size_t n, cap;
	loop_poll_fn *poll_fn;
	bool any_gone;
	struct loop_timer **heap; /* earliest first */
	size_t timers, timers_cap;
	int signal_fd;
	void (*signal_fn)(int signo, void *);
	void *signal_arg;
	bool stopped;
	int rc;
};

static void fill_fds(struct pollfd *p, const struct sock_poll *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (struct pollfd){
			.fd = v[i].fd,
			.events =
				(short)(POLLIN | (v[i].want_out ? POLLOUT : 0)),
		};
}

static void take_fds(const struct pollfd *p, struct sock_poll *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		v[i].ready = (p[i].revents & ~POLLOUT) != 0;
		v[i].ready_out = v[i].want_out && (p[i].revents & POLLOUT);
	}
}

/* As sock_poll(), which would make every program load libzmq. */
static int poll_fds(struct sock_poll *v, size_t n, int64_t ms)
{
	struct pollfd few[POLL_ON_STACK], *p = few;
	int rc;

	if (n > POLL_ON_STACK)
		p = xreallocarray(NULL, n, sizeof *p);
	fill_fds(p, v, n);
	rc = poll(p, n, (int)ms);
	if (rc < 0 && errno == EINTR)
		rc = 0;
	else if (rc < 0)
		rc = log_errno(E_IO, "poll");
	else
		take_fds(p, v, n);
	if (p != few)
		free(p);
	return rc;
}

struct loop *loop_new(void)
{
	struct loop *l = xcalloc(1, sizeof *l);

	l->poll_fn = poll_fds;
	l->signal_fd = -1;
	return l;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	if (l->signal_fd >= 0)
		close(l->signal_fd);
	free(l->poll);
	free(l->source);
	free(l->heap);
	free(l);
}

static size_t find(const struct loop *l, int fd, const struct sock *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (!l->source[i].gone && l->poll[i].fd == fd &&
		    l->poll[i].s == s)
			return i;
	return l->n;
}

static void add(struct loop *l, struct sock_poll p, struct source s)
{
	BUG_ON(find(l, p.fd, p.s) < l->n);
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 16;
		l->poll = xreallocarray(l->poll, l->cap, sizeof *l->poll);
		l->source = xreallocarray(l->source, l->cap, sizeof *l->source);
	}
	l->poll[l->n] = p;
	l->source[l->n++] = s;
}

/* Callbacks of this round still walk the arrays: only marked here. */
static void del(struct loop *l, int fd, const struct sock *s)
{
	size_t i = find(l, fd, s);

	if (i == l->n)
		return;
	l->source[i].gone = true;
	l->any_gone = true;
}

static void sweep(struct loop *l)
{
	size_t kept = 0;

	if (!l->any_gone)
		return;
	for (size_t i = 0; i < l->n; i++) {
		if (l->source[i].gone)
			continue;
		l->source[kept] = l->source[i];
		l->poll[kept++] = l->poll[i];
	}
	l->n = kept;
	l->any_gone = false;
}

void loop_add_fd(struct loop *l, int fd, void (*fn)(void *), void *arg)
{
	BUG_ON(fd < 0);
	add(l, (struct sock_poll){ .fd = fd },
	    (struct source){ .fn = fn, .arg = arg });
}

void loop_want_out(struct loop *l, int fd, bool on, void (*fn)(void *))
{
	size_t i = find(l, fd, NULL);

	BUG_ON(i == l->n);
	l->poll[i].want_out = on;
	l->source[i].out_fn = fn;
}

void loop_del_fd(struct loop *l, int fd)
{
	del(l, fd, NULL);
}

void loop_add_polled(struct loop *l, struct sock *s, void (*fn)(void *),
		     void *arg, loop_poll_fn *poll_fn)
{
	l->poll_fn = poll_fn;
	add(l, (struct sock_poll){ .fd = -1, .s = s },
	    (struct source){ .fn = fn, .arg = arg });
}

void loop_del_sock(struct loop *l, struct sock *s)
{
	del(l, -1, s);
}

static void put(struct loop *l, size_t i, struct loop_timer *t)
{
	l->heap[i] = t;
	t->slot = i;
}

static void sift_up(struct loop *l, size_t i)
{
	struct loop_timer *t = l->heap[i];

	while (i > 0 && l->heap[(i - 1) / 2]->due_ms > t->due_ms) {
		put(l, i, l->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put(l, i, t);
}

static void sift_down(struct loop *l, size_t i)
{
	struct loop_timer *t = l->heap[i];

	for (;;) {
		size_t k = 2 * i + 1;

		if (k >= l->timers)
			break;
		if (k + 1 < l->timers &&
		    l->heap[k + 1]->due_ms < l->heap[k]->due_ms)
			k++;
		if (l->heap[k]->due_ms >= t->due_ms)
			break;
		put(l, i, l->heap[k]);
		i = k;
	}
	put(l, i, t);
}

void loop_disarm(struct loop *l, struct loop_timer *t)
{
	size_t i = t->slot;

	if (!t->due_ms)
		return;
	BUG_ON(i >= l->timers || l->heap[i] != t);
	t->due_ms = 0;
	l->timers--;
	if (i == l->timers)
		return;
	put(l, i, l->heap[l->timers]);
	sift_up(l, i);
	sift_down(l, l->heap[i]->slot);
}

void loop_arm(struct loop *l, struct loop_timer *t, int64_t ms)
{
	BUG_ON(!t->fn);
	loop_disarm(l, t);
	if (l->timers == l->timers_cap) {
		l->timers_cap = l->timers_cap ? 2 * l->timers_cap : 16;
		l->heap = xreallocarray(l->heap, l->timers_cap,
					sizeof(struct loop_timer *));
	}
	if (ms > TIMER_MAX_MS)
		ms = TIMER_MAX_MS;
	t->due_ms = clock_mono_ms() + (ms > 0 ? ms : 0);
	put(l, l->timers++, t);
	sift_up(l, t->slot);
}

static void fire_timers(struct loop *l)
{
	int64_t now = clock_mono_ms();
	size_t most = l->timers;

	while (!l->stopped && most-- && l->timers &&
	       l->heap[0]->due_ms <= now) {
		struct loop_timer *t = l->heap[0];

		loop_disarm(l, t);
		t->fn(t->arg);
	}
}

static int64_t next_wait(const struct loop *l)
{
	int64_t left;

	if (!l->timers)
		return LOOP_IDLE_MS;
	left = l->heap[0]->due_ms - clock_mono_ms();
	if (left < 0)
		return 0;
	return left < LOOP_IDLE_MS ? left : LOOP_IDLE_MS;
}

static const int handled[] = { SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGIO };

/* As many as can be pending at once: signals that come faster than they are
 * told of hold up neither timers nor descriptors. */
static void read_signals(void *arg)
{
	struct loop *l = arg;
	struct signalfd_siginfo si;

	for (size_t i = 0; i < COUNT(handled) &&
			   read(l->signal_fd, &si, sizeof si) == sizeof si;
	     i++)
		l->signal_fn((int)si.ssi_signo, l->signal_arg);
}

int loop_signals(struct loop *l, void (*fn)(int signo, void *), void *arg)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < COUNT(handled); i++)
		sigaddset(&set, handled[i]);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->signal_fd < 0)
		return log_errno(E_CONFIG, "signalfd");
	l->signal_fn = fn;
	l->signal_arg = arg;
	loop_add_fd(l, l->signal_fd, read_signals, l);
	return 0;
}

/* Sources that a callback adds are not ready before the next round. */
static void dispatch(struct loop *l)
{
	for (size_t i = 0, n = l->n; i < n && !l->stopped; i++) {
		if (l->poll[i].ready && !l->source[i].gone)
			l->source[i].fn(l->source[i].arg);
		if (l->poll[i].ready_out && !l->source[i].gone &&
		    l->poll[i].want_out && !l->stopped)
			l->source[i].out_fn(l->source[i].arg);
	}
}

int loop_run(struct loop *l)
{
	while (!l->stopped) {
		int rc;

		sweep(l);
		rc = l->poll_fn(l->poll, l->n, next_wait(l));
		if (rc < 0)
			loop_stop(l, rc);
		else if (rc > 0)
			dispatch(l);
		/* After the descriptors: what arrived while we were stopped
		 * is read before its deadline ends it (TM-02). */
		fire_timers(l);
	}
	l->stopped = false;
	return l->rc;
}

void loop_stop(struct loop *l, int rc)
{
	if (l->stopped)
		return;
	l->stopped = true;
	l->rc = rc;
}
