#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/sock.h"
#include "pipes/events.h"
#include "pipes/run.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLED 20u /* SH-02: so many times in a row */

static char dir[] = "/tmp/unit_run.XXXXXX";

static char *at(const char *name)
{
	static char ring[4][256];
	static unsigned i;
	char *s = ring[i++ % 4];

	snprintf(s, sizeof ring[0], "%s/%s", dir, name);
	return s;
}

static bool is_there(const struct run *r, const char *name)
{
	return faccessat(r->dirfd, name, F_OK, 0) == 0;
}

static void test_open(void)
{
	struct run a, b;

	eq_i64(run_open(&a, at("none"), true), -E_NOINPUT, "must exist");
	eq_i64(run_open(&a, at("run a"), false), 0, "make one");
	eq_str(a.name, "run a", "its name");
	eq_i64(run_open(&b, at("run a"), true), 0, "open it again");
	run_close(&b);
	chmod(at("run a"), 0755);
	eq_i64(run_open(&b, at("run a"), true), -E_PERM, "open to others");
	chmod(at("run a"), 0700);
	mkdir(at("n\xc3\xa4me"), 0700);
	eq_i64(run_open(&b, at("n\xc3\xa4me"), true), -E_CONFIG, "no ASCII");
	mkdir(at("a\nb"), 0700);
	eq_i64(run_open(&b, at("a\nb"), true), -E_CONFIG,
	       "a line break would forge a hand-off");
	run_close(&a);
}

#define NOT_ENTERED "20000101T000000-00000000"

static void test_parent(void)
{
	static const struct timespec old[2] = { { 1, 0 }, { 1, 0 } };
	struct run r[RUN_KEEP + 3], live, late;
	char *parent;

	setenv("XDG_RUNTIME_DIR", dir, 1);
	eq_i64(run_default_parent(&parent), 0, "default parent");
	eq_str(parent, at("weir"), "below XDG_RUNTIME_DIR");
	mkdir(at("weir/" NOT_ENTERED), 0700);
	eq_i64(run_open(&live, NULL, false), 0, "a run");
	ok(run_enter(&live, STAGE_COMMIT) == 0, "that lives");
	for (size_t i = 0; i < COUNT(r); i++) {
		ok(run_open(&r[i], NULL, false) == 0 &&
			   run_enter(&r[i], STAGE_PLAN) == 0,
		   "run %zu: %s", i, r[i].name);
		run_leave(&r[i]);
	}
	ok(access(live.path, F_OK) == 0, "a live run is kept");
	ok(access(at("weir/" NOT_ENTERED), F_OK) == 0,
	   "so is a new one that nobody has entered yet");
	unsigned kept = 0;

	for (size_t i = 0; i < COUNT(r); i++)
		kept += access(r[i].path, F_OK) == 0;
	eq_u64(kept, RUN_KEEP + 1, "of the others the newest, and the last");
	utimensat(AT_FDCWD, at("weir/" NOT_ENTERED), old, 0);
	run_open(&late, NULL, false);
	ok(access(at("weir/" NOT_ENTERED), F_OK) < 0, "but not for ever");
	run_close(&late);
	for (size_t i = 0; i < COUNT(r); i++)
		run_close(&r[i]);
	run_leave(&live);
	run_close(&live);
	free(parent);
}

static void test_enter(void)
{
	struct run a, b, look;
	pid_t pid;

	run_open(&look, at("enter"), false);
	ok(!run_is_alive(&look, STAGE_ADMIT, &pid) && pid == 0, "none yet");
	run_open(&a, at("enter"), true);
	eq_i64(run_enter(&a, STAGE_ADMIT), 0, "enter");
	eq_u64(a.instance, 1, "the first instance");
	ok(run_is_alive(&look, STAGE_ADMIT, &pid), "it lives");
	eq_i64(pid, getpid(), "its pid");
	ok(!run_is_superseded(&a), "and is the newest");
	run_open(&b, at("enter"), true);
	eq_i64(run_enter(&b, STAGE_ADMIT), 0, "enter again");
	eq_u64(b.instance, 2, "the second instance");
	ok(run_is_superseded(&a), "I10 the first knows");
	run_announce(&b, "ipc:///new");
	run_leave(&a);
	ok(is_there(&look, "admit.endpoint"),
	   "an older instance leaves the newer one's endpoint alone");
	run_leave(&b);
	ok(!is_there(&look, "admit.endpoint"), "the newest removes it");
	ok(!run_is_alive(&look, STAGE_ADMIT, &pid), "nobody lives");
	run_close(&b);
	run_open(&b, at("enter"), true);
	run_enter(&b, STAGE_ADMIT);
	eq_u64(b.instance, 3, "numbers only go up");
	run_leave(&b);
	run_close(&a);
	run_close(&b);
	run_close(&look);
}

/* An instance that has left its run, and has not ended. */
static pid_t start_leaving(int *end)
{
	int ready[2], over[2];
	pid_t pid;
	char c;

	if (pipe(ready) < 0 || pipe(over) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0) {
		struct run r;

		close(over[1]);
		if (run_open(&r, at("older"), true) < 0 ||
		    run_enter(&r, STAGE_COMMIT) < 0)
			_exit(1);
		run_leave(&r);
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		_exit(read(over[0], &c, 1) != 0);
	}
	close(ready[1]);
	close(over[0]);
	*end = over[1];
	if (read(ready[0], &c, 1) != 1)
		pid = -1;
	close(ready[0]);
	return pid;
}

static void test_older(void)
{
	struct run r;
	int end = -1;
	pid_t pid;

	run_open(&r, at("older"), false);
	pid = start_leaving(&end);
	ok(pid > 0, "an instance leaves its run");
	run_enter(&r, STAGE_COMMIT);
	eq_u64(r.instance, 2, "the next one is there");
	ok(run_is_older(&r, pid), "TM-02 one that has not ended is waited for");
	ok(!run_is_older(&r, getpid()), "it is not that itself");
	ok(!run_is_older(&r, 0), "nor is nobody");
	close(end);
	waitpid(pid, NULL, 0);
	ok(!run_is_older(&r, pid), "one that has ended is not");
	run_leave(&r);
	run_close(&r);
}

/* A stage that listens and is killed. */
static pid_t killed_stage(void)
{
	int ready[2];
	pid_t pid;
	char c;

	if (pipe(ready) < 0 || (pid = fork()) < 0)
		return -1;
	if (pid == 0) {
		struct run r;
		struct sock s;
		char *ep;

		if (run_open(&r, at("killed"), true) < 0 ||
		    run_enter(&r, STAGE_PLAN) < 0 ||
		    run_endpoint(&r, &ep) < 0 ||
		    sock_listen(&s, ep, 4096) < 0 || run_announce(&r, ep) < 0)
			_exit(1);
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		c = 0;
	close(ready[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return c ? pid : -1;
}

static void test_killed(void)
{
	struct run r;
	char name[32];
	unsigned left = 0;

	run_open(&r, at("killed"), false);
	for (unsigned i = 0; i < KILLED; i++)
		if (killed_stage() < 0)
			ok(false, "start %u", i);
	ok(is_there(&r, "plan.20.sock"), "a killed stage leaves its socket");
	eq_i64(run_enter(&r, STAGE_ADMIT), 0, "another starts");
	for (unsigned i = 1; i <= KILLED; i++) {
		snprintf(name, sizeof name, "plan.%u.sock", i);
		left += is_there(&r, name);
	}
	eq_u64(left, 0, "SH-02 and removes all that are dead");
	run_leave(&r);
	run_close(&r);
}

static void test_long(void)
{
	char *deep = xasprintf("%s/%0100d", dir, 0), *ep, *longer;
	struct run r;
	struct sock s;
	struct stat st;

	mkdir(deep, 0700);
	longer = xasprintf("%s/run", deep);
	eq_i64(run_open(&r, longer, false), 0, "a long path");
	run_enter(&r, STAGE_PLAN);
	eq_i64(run_endpoint(&r, &ep), 0, "has an endpoint");
	ok(strlen(ep) - 6 <= SOCK_PATH_MAX, "that is short enough: %s", ep);
	eq_i64(sock_listen(&s, ep, 4096), 0, "and works");
	ok(stat(ep + 6, &st) == 0, "as a file");
	sock_close(&s);
	run_leave(&r);
	ok(stat(ep + 6, &st) < 0, "that goes with us");
	run_close(&r);
	sock_end();
	free(ep);
	free(deep);
	free(longer);
}

static void test_options(void)
{
	struct run r;
	struct buf b = { 0 };
	char *ep = NULL;

	run_open(&r, at("options"), false);
	run_enter(&r, STAGE_ADMIT);
	eq_i64(run_lookup(&r, STAGE_PLAN, &ep), -E_NOINPUT, "no endpoint yet");
	eq_i64(run_announce(&r, "ipc:///x"), 0, "announce");
	eq_i64(run_lookup(&r, STAGE_ADMIT, &ep), 0, "look up");
	eq_str(ep, "ipc:///x", "the same");
	free(ep);
	eq_i64(run_options_read(&r, STAGE_ADMIT, &b), -E_NOINPUT, "no options");
	eq_i64(run_options(&r, "a=1\nb=2\n"), 0, "first options");
	eq_i64(run_options(&r, "a=1\nb=2\n"), 0, "the same again");
	eq_i64(run_options(&r, "a=1\nb=3\n"), -E_CONFIG, "others");
	ok(strstr(log_cause(), "line 2") != NULL, "named: %s", log_cause());
	run_options_read(&r, STAGE_ADMIT, &b);
	eq_str(buf_cstr(&b), "a=1\nb=2\n", "the first stay");
	buf_release(&b);
	run_leave(&r);
	run_close(&r);
}

static void test_verdict(void)
{
	struct msg m = { .type = M_verdict }, got;
	struct msg_arena arena = { 0 };
	struct buf frame = { 0 };
	struct run r;

	run_open(&r, at("verdict"), false);
	eq_i64(run_verdict_read(&r, &got, &arena, &frame), 0, "none yet");
	m.verdict.exit = 3;
	m.verdict.cause = SLICE("engine b lags");
	eq_i64(run_verdict_write(&r, &m), 0, "write");
	m.verdict.exit = 0;
	eq_i64(run_verdict_write(&r, &m), -E_AGAIN, "the first one wins");
	eq_i64(run_verdict_read(&r, &got, &arena, &frame), 1, "read");
	eq_u64(got.verdict.exit, 3, "its code");
	ok(slice_eq(got.verdict.cause, SLICE("engine b lags")), "its cause");
	buf_release(&frame);
	msg_arena_release(&arena);
	run_close(&r);
}

static void test_events(void)
{
	struct events e;
	struct buf b = { 0 };
	struct run r;
	const char *s;

	run_open(&r, at("events"), false);
	eq_i64(events_open(&e, r.dirfd, STAGE_ADMIT, 2, false), 0, "events");
	events_tell(&e,
		    &HAPPENED("granted", .bucket = EV(7), .engine = "a\"b"));
	events_summary(&e, SLICE("\"bytes\":9"));
	events_summary(&e, (struct slice){ 0 });
	events_close(&e);
	io_read_file(r.dirfd, "events", 4096, &b);
	s = buf_cstr(&b);
	ok(strstr(s, "\"stage\":\"admit\",\"instance\":2,\"event\":\"granted\","
		     "\"bucket\":7,\"engine\":\"a\\\"b\"}\n"),
	   "an event's line: %s", s);
	ok(strstr(s, "\"event\":\"summary\",\"bytes\":9}\n{"),
	   "a summary's line");
	ok(strstr(s, "\"event\":\"summary\"}\n"), "an empty summary");
	buf_release(&b);
	e.fd = open("/dev/full", O_WRONLY);
	events_tell(&e, &HAPPENED("granted"));
	eq_i64(e.fd, -1, "a full disk costs the events, not the run");
	events_close(&e);
	run_close(&r);
}

int main(void)
{
	log_init("unit_run", LOG_ERROR);
	log_quiet_thread(1);
	if (!mkdtemp(dir))
		return 1;
	test_open();
	test_parent();
	test_enter();
	test_older();
	test_killed();
	test_long();
	test_options();
	test_verdict();
	test_events();
	eq_i64(io_remove_tree(AT_FDCWD, dir), 0, "remove all");
	return tap_done();
}
