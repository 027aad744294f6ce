/*
 * tcpstored.c - a store of weir's as a process, for clients that are real or
 * fakes: tcpstored HOST PORT MS KEY VALUE ("-": none).
 *
 * Prints its port; then a line for each change: how many have joined, and
 * what is waited for.  When KEY is, it is set.  Ends by
 * SIGTERM (0), or when the deadline passes (69).
 */
#include "common/err.h"
#include "common/log.h"
#include "pipes/tcpstore_io.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
	struct loop *loop;
	struct tcpstore_io *io;
	struct slice key, value;
	bool wanted;
	struct buf line, before;
} t;

static void add_missing(void *arg, struct slice key)
{
	(void)arg;
	buf_addf(&t.line, " %.*s", SLICE_ARG(key));
	t.wanted = t.wanted || slice_eq(key, t.key);
}

static void on_news(void *arg)
{
	(void)arg;
	buf_clear(&t.line);
	t.wanted = false;
	buf_addf(&t.line, "joined %" PRIu64 ", waiting for:",
		 tcpstore_joined(tcpstore_io_store(t.io)));
	tcpstore_each_missing(tcpstore_io_store(t.io), add_missing, NULL);
	if (!slice_eq(buf_slice(&t.line), buf_slice(&t.before))) {
		printf("%s\n", buf_cstr(&t.line));
		buf_clear(&t.before);
		buf_add(&t.before, t.line.p, t.line.n);
	}
	if (t.wanted && tcpstore_io_set(t.io, t.key, t.value) < 0)
		loop_stop(t.loop, -E_NOMEM);
}

static void on_over(void *arg)
{
	(void)arg;
	loop_stop(t.loop, log_error(E_TIMEOUT, "the deadline passed"));
}

static void on_signal(int signo, void *arg)
{
	(void)arg;
	if (signo == SIGTERM)
		loop_stop(t.loop, 0);
}

int main(int argc, char **argv)
{
	struct tcpstore_conf conf = { .news = on_news, .over = on_over };
	int rc;

	log_init("tcpstored", LOG_INFO);
	if (argc != 6)
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	conf.host = argv[1];
	conf.port = (uint16_t)atoi(argv[2]);
	conf.ms = atoi(argv[3]);
	t.key = slice_of(argv[4]);
	t.value = slice_of(argv[5]);
	t.loop = loop_new();
	rc = loop_signals(t.loop, on_signal, NULL);
	if (rc == 0)
		rc = tcpstore_io_open(&t.io, t.loop, &conf);
	if (rc == 0) {
		printf("%u\n", tcpstore_io_port(t.io));
		rc = loop_run(t.loop);
	}
	tcpstore_io_free(t.io);
	loop_free(t.loop);
	buf_release(&t.line);
	buf_release(&t.before);
	return err_exit_code(rc);
}
