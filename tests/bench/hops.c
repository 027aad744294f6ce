/*
 * hops.c - the smallest control plane: the reference of `make bench` control.
 *
 *	hops [-n COUNT] DIR
 *
 * Two processes and one ZeroMQ ipc link between them, by weir's own sock.h.
 * Prints medians, in microseconds:
 *
 *	hop	one way of a frame of a message's size, nothing else under way
 *	stream	the same with a window of frames under way
 *	append	such a record appended to a file in DIR, and fdatasync()
 */
#include "common/buf.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/sock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME_BYTES 200 /* of an offer of one tensor */
#define FRAME_LIMIT 4096
#define WINDOW 64 /* frames under way in a stream */
#define COUNT_MAX 1000000
#define WAIT_MS 10000 /* for any frame */

static char payload[FRAME_BYTES];

static void receive(struct sock *s, struct sock_peer *from, struct buf *frame)
{
	while (sock_recv(s, from, frame) == 0) {
		struct sock_poll p = { .s = s, .fd = -1 };

		BUG_ON(sock_poll(&p, 1, WAIT_MS) == 0);
	}
}

static void echo(const char *endpoint)
{
	struct sock s = { 0 };
	struct sock_peer from;
	struct buf frame = { 0 };

	BUG_ON(sock_listen(&s, endpoint, FRAME_LIMIT) < 0);
	for (;;) {
		receive(&s, &from, &frame);
		if (frame.n == 1)
			break;
		BUG_ON(sock_send(&s, &from, buf_slice(&frame)) < 0);
	}
	sock_close(&s);
	sock_end();
	exit(0);
}

static void await_peer(struct sock *s)
{
	char endpoint[256];
	int64_t end = clock_mono_ms() + WAIT_MS;

	while (sock_news(s, endpoint, sizeof endpoint) != SOCK_UP) {
		struct sock_poll p = { .s = s, .fd = -1 };

		BUG_ON(clock_mono_ms() > end);
		sock_poll(&p, 1, 100);
	}
}

static void send_one(struct sock *s)
{
	BUG_ON(sock_send(s, NULL, (struct slice){ payload, FRAME_BYTES }) < 0);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
	qsort(v, n, sizeof *v, by_value);
	return v[n / 2];
}

static double hop(struct sock *s, double *v, size_t n)
{
	struct buf frame = { 0 };

	for (size_t i = 0; i < n; i++) {
		int64_t start = clock_mono_ns();

		send_one(s);
		receive(s, NULL, &frame);
		v[i] = (double)(clock_mono_ns() - start) / 2e3;
	}
	buf_release(&frame);
	return median(v, n);
}

static double stream(struct sock *s, size_t n)
{
	struct buf frame = { 0 };
	int64_t start = clock_mono_ns();
	size_t sent = 0;

	for (size_t got = 0; got < n; got++) {
		for (; sent < n && sent < got + WINDOW; sent++)
			send_one(s);
		receive(s, NULL, &frame);
	}
	buf_release(&frame);
	return (double)(clock_mono_ns() - start) / 2e3 / (double)n;
}

static double append(const char *dir, double *v, size_t n)
{
	char *path = xasprintf("%s/hops.journal", dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	BUG_ON(fd < 0);
	for (size_t i = 0; i < n; i++) {
		int64_t start = clock_mono_ns();

		BUG_ON(io_write_full(fd, payload, FRAME_BYTES) < 0 ||
		       fdatasync(fd) < 0);
		v[i] = (double)(clock_mono_ns() - start) / 1e3;
	}
	close(fd);
	unlink(path);
	free(path);
	return median(v, n);
}

static void measure(const char *dir, const char *endpoint, size_t n)
{
	struct sock s = { 0 };
	double *v = xcalloc(n, sizeof *v);

	BUG_ON(sock_dial(&s, endpoint, FRAME_LIMIT) < 0);
	await_peer(&s);
	printf("hop %.2f\n", hop(&s, v, n));
	printf("stream %.2f\n", stream(&s, n));
	printf("append %.2f\n", append(dir, v, n / 10 + 1));
	BUG_ON(sock_send(&s, NULL, SLICE("x")) < 0);
	wait(NULL);
	sock_close(&s);
	sock_end();
	free(v);
}

int main(int argc, char **argv)
{
	size_t n = 2000;
	char *endpoint;
	int c;

	log_init("hops", LOG_WARN);
	while ((c = getopt(argc, argv, "n:")) != -1) {
		if (c != 'n')
			return 64;
		n = (size_t)atol(optarg);
	}
	if (argc - optind != 1 || n == 0 || n > COUNT_MAX) {
		fprintf(stderr, "usage: hops [-n COUNT] DIR\n");
		return 64;
	}
	endpoint = xasprintf("ipc://%s/hops.sock", argv[optind]);
	if (fork() == 0)
		echo(endpoint);
	measure(argv[optind], endpoint, n);
	free(endpoint);
	return 0;
}
