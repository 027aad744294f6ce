/*
 * toystage - a stage that does nothing: it hands `end` down and `opened` up,
 * and ends when told.  For tests/stage.bats.
 *
 *	toystage plan|admit|transfer|commit [--run DIR] [--timeout MS]
 *
 *	TOY_HOLD=FILE	commit gives its verdict when FILE is there
 *	TOY_EXIT=N	with this code
 *	TOY_HASH=N	the message table's hash, as another build has it
 *	TOY_FAIL=STAGE	that stage's prepare fails with 65
 *	TOY_EARLY=STAGE	that stage fails before its run, with 78
 *	TOY_STORM=1	a signal every millisecond (ZQ-09)
 *	TOY_CHATTER=1	prints to stdout, as a library would
 *	TOY_BUCKETS=N	N sealed messages from plan to commit, and back
 */
#include "common/err.h"
#include "common/log.h"
#include "pipes/stage.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define POLL_MS 10

struct toy {
	struct stage stage;
	struct loop_timer timer;
	bool ended; /* `end` has come by */
	bool opened, aborted;
	struct m_failed failed;
	uint32_t sent, seen; /* of TOY_BUCKETS */
};

uint64_t __real_msg_table_hash(void);
uint64_t __wrap_msg_table_hash(void);

uint64_t __wrap_msg_table_hash(void)
{
	const char *s = getenv("TOY_HASH");

	return s ? strtoull(s, NULL, 10) : __real_msg_table_hash();
}

static unsigned long number(const char *name)
{
	const char *s = getenv(name);

	return s ? strtoul(s, NULL, 10) : 0;
}

static bool is_me(const struct stage *s, const char *name)
{
	const char *v = getenv(name);

	return v && !strcmp(v, stage_name(s->ops->id));
}

static int toy_prepare(struct stage *s)
{
	if (is_me(s, "TOY_FAIL"))
		return log_error(E_DATA, "the source is rotten");
	return 0;
}

static void verdict(struct toy *t, unsigned code, unsigned signo)
{
	struct msg m = { .type = M_verdict };

	m.verdict.exit = (uint8_t)code;
	m.verdict.signal = (uint8_t)signo;
	m.verdict.cause = SLICE("as told");
	dprintf(stage_stdout(), "result %u\n", code);
	stage_verdict(&t->stage, &m);
}

/* Commit, when it has all buckets. */
static void on_timer(void *arg)
{
	struct toy *t = arg;
	const char *hold = getenv("TOY_HOLD");

	if (t->ended && t->seen == number("TOY_BUCKETS") &&
	    (!hold || access(hold, F_OK) == 0))
		verdict(t, (unsigned)number("TOY_EXIT"), 0);
	else
		loop_arm(t->stage.loop, &t->timer, POLL_MS);
}

static int toy_start(struct stage *s)
{
	struct toy *t = s->self;

	if (getenv("TOY_CHATTER")) {
		printf("chatter on stdout\n");
		fflush(stdout);
	}
	t->timer.fn = on_timer;
	t->timer.arg = t;
	if (s->ops->id == STAGE_COMMIT)
		loop_arm(s->loop, &t->timer, POLL_MS);
	return 0;
}

static int send_end(struct stage *s)
{
	struct msg m = { .type = M_end };

	m.end.buckets = 1;
	return stage_send(s, DOWN, &m);
}

static int toy_sealed(struct stage *s, enum dir d, uint32_t n)
{
	struct msg m = { .type = M_sealed };

	m.sealed.engine = n;
	return stage_send(s, d, &m);
}

static int toy_peer_up(struct stage *s, enum dir d)
{
	struct toy *t = s->self;
	struct msg m = { .type = M_opened };

	if (d == DOWN && s->ops->id == STAGE_PLAN)
		return send_end(s);
	if (d == UP && s->ops->id == STAGE_COMMIT) {
		/* Says what it has: the sender goes on from there. */
		m.opened.epoch = 1;
		m.opened.version = t->seen;
		return stage_send(s, UP, &m);
	}
	return 0;
}

static int commit_msg(struct toy *t, const struct msg *m)
{
	if (m->type == M_end)
		t->ended = true;
	if (m->type == M_sealed && m->sealed.engine == t->seen)
		t->seen++; /* in order; doubles and gaps are not counted */
	if (m->type == M_failed && !t->aborted) {
		t->aborted = true;
		verdict(t, m->failed.signal ? 128u + m->failed.signal : 1u,
			m->failed.signal);
	}
	return 0;
}

static int toy_msg(struct stage *s, enum dir d, const struct msg *m)
{
	struct toy *t = s->self;
	unsigned long n = number("TOY_BUCKETS");
	int rc = 0;

	if (s->ops->id == STAGE_COMMIT)
		return commit_msg(t, m);
	if (m->type == M_opened && s->ops->id == STAGE_PLAN)
		for (uint64_t i = m->opened.version; i < n && rc == 0; i++)
			rc = toy_sealed(s, DOWN, (uint32_t)i);
	if (d == UP)
		rc = stage_send(s, DOWN, m);
	return rc == -E_AGAIN ? 0 : rc;
}

static bool toy_done(const struct stage *s)
{
	return ((const struct toy *)s->self)->seen == UINT32_MAX;
}

static void toy_stop(struct stage *s)
{
	struct toy *t = s->self;

	loop_disarm(s->loop, &t->timer);
	fprintf(stderr, "%s stopped\n", stage_name(s->ops->id));
}

static void on_alarm(int signo)
{
	(void)signo;
}

static void storm(void)
{
	struct itimerval t = { { 0, 1000 }, { 0, 1000 } };
	struct sigaction sa = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

static unsigned stage_of(const char *name)
{
	unsigned id = STAGE_PLAN;

	while (id < STAGE_N && strcmp(stage_name(id), name) != 0)
		id++;
	return id;
}

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.prepare = toy_prepare,
		.start = toy_start,
		.peer_up = toy_peer_up,
		.msg = toy_msg,
		.done_with_up = toy_done,
		.stop = toy_stop,
	};
	struct stage_conf conf = { .stage_timeout_ms = 2000 };
	struct toy toy = { 0 };
	char name[32];

	if (argc < 2 || stage_of(argv[1]) == STAGE_N)
		return 64;
	for (int i = 2; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--run"))
			conf.run = argv[i + 1];
		else if (!strcmp(argv[i], "--timeout"))
			conf.stage_timeout_ms = strtoul(argv[i + 1], NULL, 10);
	}
	snprintf(name, sizeof name, "toy-%s", argv[1]);
	log_init(name, LOG_INFO);
	ops.id = stage_of(argv[1]);
	if (is_me(&(struct stage){ .ops = &ops }, "TOY_EARLY"))
		return stage_fail_early(log_error(E_CONFIG, "not today"));
	if (getenv("TOY_STORM"))
		storm();
	return stage_run(&toy.stage, &ops, &conf, &toy);
}
