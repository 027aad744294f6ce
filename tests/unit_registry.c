/*
 * The registry: what is true after a crash at every step of a publication,
 * and what it refuses.
 */
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/registry.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CRASHED 99
#define STEPS_MAX 64
#define GLANCES 5000

static char top[] = "/tmp/weir-registry.XXXXXX";
static char *reg_path, *run_path;

static void rebuild(void)
{
	int fd = io_open_dir(AT_FDCWD, top);

	io_remove_tree(fd, "r");
	io_remove_tree(fd, "run");
	io_mkdir(fd, "run", 0700);
	close(fd);
	fd = io_open_dir(AT_FDCWD, run_path);
	io_replace(fd, "plan.weir", "plan bytes", 10);
	close(fd);
}

static struct msg an_open(struct registry *r, const char *run, uint64_t v)
{
	struct msg m = { .type = M_open };

	m.open.registry = slice_of(r->id);
	m.open.run = slice_of(run);
	m.open.epoch = r->epoch + 1;
	m.open.instance = 1;
	m.open.version = v;
	return m;
}

static struct msg a_decision(struct registry *r, const char *run, uint64_t v)
{
	struct msg m = { .type = M_decision };

	m.decision.registry = slice_of(r->id);
	m.decision.run = slice_of(run);
	m.decision.epoch = r->epoch;
	m.decision.version = v;
	memset(m.decision.content.b, (int)v, DIGEST_LEN);
	return m;
}

/* Everything a run writes, in its order.  Returns the first failure. */
static int publish(struct registry *r, const char *run, uint64_t v)
{
	struct msg open = an_open(r, run, v), decision;
	int rundir = io_open_dir(AT_FDCWD, run_path), rc;
	struct reg_event ev = { .event = "decided", .version = v, .run = run };
	struct msg head = { .type = M_receipts };
	struct buf b = { 0 };
	bool linked = false;

	rc = registry_version_make(r, v, rundir);
	close(rundir);
	rc = rc ? rc : registry_open_write(r, &open);
	head.receipts.registry = slice_of(r->id);
	head.receipts.run = slice_of(run);
	rec_append(&b, &head);
	rc = rc ? rc : registry_receipts_write(r, v, buf_slice(&b));
	buf_release(&b);
	decision = a_decision(r, run, v);
	rc = rc ? rc : registry_decide(r, &decision, &linked);
	rc = rc ? rc : registry_repair_current(r);
	if (rc == 0)
		registry_ledger(r, &ev);
	return rc ? rc : registry_open_remove(r);
}

static int countdown;
static const char *died_at;

static void die_at_step(const char *what)
{
	died_at = what;
	if (--countdown == 0)
		_exit(CRASHED);
}

/* In a child that dies at its n-th step: did it get that far? */
static bool crash_at(int n)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct registry r;

		countdown = n;
		registry_step = die_at_step;
		if (registry_make(&r, reg_path) < 0 ||
		    registry_lock(&r, "run-a") < 0 ||
		    publish(&r, "run-a", 1) < 0)
			_exit(1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	ok(WIFEXITED(status) &&
		   (WEXITSTATUS(status) == CRASHED || WEXITSTATUS(status) == 0),
	   "step %d: the child died there or was done", n);
	return WEXITSTATUS(status) == CRASHED;
}

/* A published version is complete; one that is not leaves no trace that
 * could be taken for one; and the next run goes on with a larger epoch. */
static void check_after(int n)
{
	struct reg_rec d = { 0 }, o = { 0 };
	struct registry r;
	uint64_t high = 77, before;
	char link[64] = "";

	ok(registry_make(&r, reg_path) == 0, "step %d: opens again", n);
	ok(registry_lock(&r, "run-b") == 0, "step %d: the lock is free", n);
	ok(registry_highest(&r, &high) == 0 && high <= 1,
	   "step %d: highest is %llu", n, (unsigned long long)high);
	ok(registry_decision(&r, 1, &d) == (int)high,
	   "step %d: a decision if and only if it is the highest", n);
	if (high) {
		ok(slice_eq(d.m.decision.run, SLICE("run-a")),
		   "step %d: it is run-a's", n);
		reg_rec_release(&d);
		ok(faccessat(r.versions_fd, "000001/receipts", F_OK, 0) == 0 &&
			   faccessat(r.versions_fd, "000001/plan", F_OK, 0) ==
				   0,
		   "step %d: plan and receipts were there before it", n);
		ok(readlinkat(r.dirfd, "current", link, sizeof link - 1) > 0 &&
			   strcmp(link, "versions/000001") == 0,
		   "step %d: current is repaired", n);
	}
	if (registry_open_read(&r, &o) > 0) {
		ok(o.m.open.epoch <= r.epoch,
		   "step %d: the epoch of `open` counts", n);
		reg_rec_release(&o);
	}
	before = r.epoch;
	ok(publish(&r, "run-b", 2) == 0, "step %d: the next run publishes", n);
	ok(r.epoch > before, "step %d: with a larger epoch", n);
	ok(registry_highest(&r, &high) == 0 && high == 2, "step %d: 2", n);
	registry_close(&r);
}

static void test_crashes(void)
{
	int n;

	for (n = 1; n < STEPS_MAX; n++) {
		rebuild();
		if (!crash_at(n))
			break;
		check_after(n);
	}
	ok(n > 10 && n < STEPS_MAX, "FS-01 FS-09: died at each of %d steps",
	   n - 1);
}

static void test_refusals(void)
{
	struct registry r;

	rebuild();
	log_quiet_thread(1);
	ok(registry_look(&r, reg_path) == -E_NOINPUT, "no registry yet");
	ok(registry_make(&r, reg_path) == 0, "made");
	registry_close(&r);
	chmod(reg_path, 0750);
	ok(registry_make(&r, reg_path) == -E_PERM, "mode 0750 is refused");
	ok(strstr(log_cause(), "0750") != NULL, "naming it: %s", log_cause());
	chmod(reg_path, 0700);
	if (geteuid() == 0) {
		chown(reg_path, 1, 1);
		ok(registry_make(&r, reg_path) == -E_PERM,
		   "another owner is refused");
	}
	log_quiet_thread(0);
	eq_str(registry_fs_unsafe(0x6969), "NFS", "NFS is named");
	eq_str(registry_fs_unsafe(0x65735546), "FUSE", "FUSE is named");
	eq_str(registry_fs_unsafe((long)0xfe534d42), "SMB2", "SMB is named");
	ok(registry_fs_unsafe(0xef53) == NULL, "ext4 is fine");
	ok(registry_fs_unsafe(0x01021994) == NULL, "tmpfs is fine");
}

static void test_lock(void)
{
	struct registry a, b;
	struct reg_holder h;
	char id[REG_ID_LEN + 1];
	pid_t pid;

	rebuild();
	ok(registry_make(&a, reg_path) == 0, "made");
	memcpy(id, a.id, sizeof id);
	ok(registry_make(&b, reg_path) == 0, "opened twice");
	eq_str(b.id, id, "the id is made once");
	ok(registry_lock(&a, "run-1") == 0, "locked");
	ok(registry_lock(&b, "run-2") == -E_AGAIN, "FS-09: the second waits");
	ok(!registry_is_free(&b), "it is not free");
	registry_holder(&b, &h);
	eq_i64(h.pid, getpid(), "the holder's pid");
	eq_str(h.run, "run-1", "the holder's run");
	ok(strlen(h.start) == 20, "the holder's start: %s", h.start);
	registry_unlock(&a);
	ok(registry_is_free(&b), "free again");
	registry_close(&a);

	pid = fork();
	if (pid == 0) {
		struct registry c;

		_exit(registry_make(&c, reg_path) < 0 ||
		      registry_lock(&c, "run-3") < 0);
	}
	waitpid(pid, NULL, 0);
	ok(registry_lock(&b, "run-4") == 0,
	   "FS-09: a dead holder's lock is released");
	registry_close(&b);
}

static void test_ledger(void)
{
	struct reg_event ev = { .event = "decided",
				.version = 1,
				.engine = "a\"b\nc" };
	struct buf line = { 0 };
	struct registry r;
	int fd;

	rebuild();
	ok(registry_make(&r, reg_path) == 0 && registry_lock(&r, "x") == 0,
	   "made");
	ok(registry_ledger_last(&r, &line) == 0, "an empty ledger");
	registry_ledger(&r, &ev);
	fd = openat(r.dirfd, "ledger", O_WRONLY | O_APPEND);
	ok(write(fd, "{\"wall_ms\":1,\"ev", 16) == 16, "a torn one");
	close(fd);
	ok(registry_ledger_last(&r, &line) == 1, "the last whole line");
	ok(strstr(buf_cstr(&line), "a\\\"b\\nc") != NULL, "escaped: %s",
	   buf_cstr(&line));
	registry_unlock(&r);
	log_set_level(LOG_ERROR);
	ok(registry_lock(&r, "y") == 0, "locked again");
	ev.version = 2;
	registry_ledger(&r, &ev);
	buf_clear(&line);
	ok(registry_ledger_last(&r, &line) == 1 &&
		   strncmp(buf_cstr(&line), "{\"wall_ms\":", 11) == 0 &&
		   strstr(buf_cstr(&line), "\"version\":2") != NULL,
	   "the torn line was cut: %s", buf_cstr(&line));
	buf_release(&line);
	registry_close(&r);
}

/* FS-02: half of a line fits; the next one must not be joined to it. */
static void test_ledger_full(void)
{
	struct reg_event ev = { .event = "decided", .version = 1 };
	struct rlimit no, all = { 0 };
	struct buf text = { 0 };
	struct registry r;

	rebuild();
	ok(registry_make(&r, reg_path) == 0 && registry_lock(&r, "x") == 0,
	   "made");
	registry_ledger(&r, &ev);
	io_read_file(r.dirfd, "ledger", 9999, &text);
	getrlimit(RLIMIT_FSIZE, &all);
	no = all;
	no.rlim_cur = text.n + 10;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &no);
	registry_ledger(&r, &ev);
	setrlimit(RLIMIT_FSIZE, &all);
	ok(r.has_missed, "a line did not fit");
	ev.version = 3;
	registry_ledger(&r, &ev);
	buf_clear(&text);
	io_read_file(r.dirfd, "ledger", 9999, &text);
	ok(strstr(buf_cstr(&text), "\"version\":1}\n{\"wall_ms\"") != NULL,
	   "the next one begins a line");
	buf_release(&text);
	registry_close(&r);
}

/* Only this run's plan and receipts count; a decision is for ever. */
static void test_versions(void)
{
	struct buf b = { 0 };
	struct registry r;
	struct stat st;
	struct msg d;
	bool linked = false;
	int rundir;

	rebuild();
	rundir = io_open_dir(AT_FDCWD, run_path);
	ok(registry_make(&r, reg_path) == 0 && registry_lock(&r, "x") == 0,
	   "made");
	ok(registry_version_make(&r, 7, rundir) == 0, "undecided 7");
	ok(registry_receipts_write(&r, 7, SLICE("old")) == 0, "its receipts");
	ok(registry_version_make(&r, 7, rundir) == 0, "7 tried again");
	ok(faccessat(r.versions_fd, "000007/receipts", F_OK, 0) < 0,
	   "older receipts do not count");
	ok(io_read_file(r.versions_fd, "000007/plan", 100, &b) == 0 &&
		   slice_eq(buf_slice(&b), SLICE("plan bytes")),
	   "the plan is kept");
	ok(fstatat(r.versions_fd, "000007/plan", &st, 0) == 0 &&
		   st.st_nlink == 2,
	   "by a hard link");
	d = a_decision(&r, "x", 7);
	ok(registry_decide(&r, &d, &linked) == 0 && linked, "decided");
	ok(registry_decide(&r, &d, &linked) == -E_AGAIN, "only once");
	ok(registry_version_make(&r, 7, rundir) == -E_AGAIN,
	   "a decided number is not made again");
	buf_release(&b);
	close(rundir);
	registry_close(&r);
}

static void decide(struct registry *r, int rundir, uint64_t version)
{
	struct msg d = a_decision(r, "x", version);
	bool linked;

	ok(registry_version_make(r, version, rundir) == 0 &&
		   registry_decide(r, &d, &linked) == 0,
	   "%llu is decided", (unsigned long long)version);
}

static void is_highest(struct registry *r, uint64_t want, const char *what)
{
	uint64_t high = 0;

	r->knows_highest = false;
	ok(registry_highest(r, &high) == 0 && high == want, "%s", what);
}

/* `current` saves work, and says nothing that a decision does not. */
static void test_current(void)
{
	struct registry r;
	int rundir;

	rebuild();
	rundir = io_open_dir(AT_FDCWD, run_path);
	ok(registry_make(&r, reg_path) == 0 && registry_lock(&r, "x") == 0,
	   "made");
	is_highest(&r, 0, "nothing is decided");
	decide(&r, rundir, 1);
	ok(registry_repair_current(&r) == 0, "current is 1");
	is_highest(&r, 1, "what current names");
	decide(&r, rundir, 2);
	is_highest(&r, 2, "a decision beyond current");
	ok(registry_version_make(&r, 3, rundir) == 0, "undecided 3");
	is_highest(&r, 2, "not what is undecided");
	ok(io_replace_link(r.dirfd, "current", "versions/000003") == 0,
	   "current is set to it by hand");
	is_highest(&r, 2, "current is not believed over a decision");
	ok(io_replace_link(r.dirfd, "current", "versions/000009") == 0,
	   "current dangles");
	is_highest(&r, 2, "and is not believed");
	close(rundir);
	registry_close(&r);
}

/* Makes `open` come and go until it is killed. */
static pid_t flicker(int dirfd)
{
	pid_t pid = fork();

	while (pid == 0) {
		linkat(dirfd, "kept", dirfd, "open", 0);
		unlinkat(dirfd, "open", 0);
	}
	return pid;
}

/* Another run ends while ours looks: `open` is there, or it is not. */
static void test_vanishing(void)
{
	struct reg_rec o = { 0 };
	struct registry r;
	struct msg m;
	int bad = 0, rc;
	pid_t pid;

	rebuild();
	ok(registry_make(&r, reg_path) == 0 && registry_lock(&r, "x") == 0,
	   "made");
	m = an_open(&r, "x", 1);
	ok(registry_open_write(&r, &m) == 0 &&
		   renameat(r.dirfd, "open", r.dirfd, "kept") == 0,
	   "an open to show");
	pid = flicker(r.dirfd);
	for (int i = 0; i < GLANCES; i++) {
		rc = registry_open_read(&r, &o);
		bad += rc < 0;
		if (rc > 0)
			reg_rec_release(&o);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ok(bad == 0, "an open that vanishes is none: %d failures", bad);
	registry_close(&r);
}

int main(void)
{
	if (!mkdtemp(top))
		return 1;
	reg_path = xasprintf("%s/r", top);
	run_path = xasprintf("%s/run", top);
	test_crashes();
	test_refusals();
	test_lock();
	test_ledger();
	test_ledger_full();
	test_versions();
	test_current();
	test_vanishing();
	io_remove_tree(AT_FDCWD, top);
	free(reg_path);
	free(run_path);
	return tap_done();
}
