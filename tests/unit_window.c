#include "tests/files.h"
#include "tests/tap.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/window.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define BYTES (((size_t)33 << 20) + 12345) /* more than one map */

static char *want;

struct cmp {
	const char *p;
	size_t n;
	uint64_t off;
	bool same;
};

static void cmp(void *arg)
{
	struct cmp *c = arg;

	c->same = memcmp(c->p, want + c->off, c->n) == 0;
}

/* Reads [off, off + n) in steps; bytes that agreed, or -E. */
static int64_t read_all(struct window *w, uint64_t off, uint64_t n, size_t step)
{
	uint64_t end = off + n;

	while (off < end) {
		struct cmp c = { .off = off };
		size_t ask = end - off < step ? (size_t)(end - off) : step;
		struct guard_range r;
		int rc = window_get(w, off, ask, &c.p, &c.n);

		if (rc < 0)
			return rc;
		r = window_range(w);
		if (guard_run(&r, 1, cmp, &c) != 0)
			return -E_DATA;
		if (!c.same || c.n == 0 || c.n > ask)
			return -E_BUG;
		off += c.n;
	}
	return (int64_t)n;
}

static void test_how(int fd, enum window_how how, const char *name)
{
	struct window w;
	const char *p;
	size_t n;

	window_init(&w, fd, BYTES, how);
	eq_i64(read_all(&w, 0, BYTES, 1 << 20), (int64_t)BYTES, name);
	eq_i64(read_all(&w, 77, 5000, 4096), 5000, "back to the start");
	eq_i64(read_all(&w, BYTES - 1, 1, 1), 1, "the last byte");
	eq_i64(window_get(&w, BYTES, 1, &p, &n), -E_DATA, "behind the end");
	eq_i64(window_get(&w, BYTES - 1, 2, &p, &n), -E_DATA, "across the end");
	eq_i64(window_get(&w, UINT64_MAX, 2, &p, &n), -E_DATA, "far behind");
	window_release(&w);
}

static void test_auto(int disk, int memory)
{
	struct window w;

	window_init(&w, memory, BYTES, WINDOW_AUTO);
	ok(!w.is_mapped, "tmpfs is read");
	window_release(&w);
	window_init(&w, disk, BYTES, WINDOW_MAPPED);
	ok(w.is_mapped, "a map where it is asked for");
	window_release(&w);
}

/* ST-01, SH-01: cut under the window, in both ways of reading. */
static void test_truncated(enum window_how how, const char *name)
{
	int fd = disk_file(want, BYTES);
	struct window w;

	window_init(&w, fd, BYTES, how);
	eq_i64(read_all(&w, 0, 4096, 4096), 4096, "before the cut");
	BUG_ON(ftruncate(fd, 1 << 20) < 0);
	eq_i64(read_all(&w, 0, BYTES, 1 << 20), -E_DATA, name);
	eq_i64(read_all(&w, 0, 4096, 4096), 4096, "and what is left is read");
	window_release(&w);
	close(fd);
}

static void *cut(void *arg)
{
	BUG_ON(ftruncate(*(int *)arg, 4096) < 0);
	return NULL;
}

/* Another thread cuts while this one reads on and on. */
static void test_truncated_meanwhile(void)
{
	int fd = disk_file(want, BYTES);
	struct window w;
	pthread_t t;
	int64_t rc;

	window_init(&w, fd, BYTES, WINDOW_MAPPED);
	BUG_ON(pthread_create(&t, NULL, cut, &fd));
	do
		rc = read_all(&w, 0, BYTES, 1 << 20);
	while (rc == (int64_t)BYTES);
	/* A page that is being cut may show zeros before it goes. */
	ok(rc == -E_DATA || rc == -E_BUG, "cut while it is read");
	pthread_join(t, NULL);
	eq_i64(read_all(&w, 0, BYTES, 1 << 20), -E_DATA, "and afterwards");
	window_release(&w);
	close(fd);
}

static void touch(void *arg)
{
	*(volatile char *)arg;
}

static void touch_in_vain(void *arg)
{
	struct guard_range none = { NULL, 0 };

	guard_run(&none, 1, touch, arg);
}

/* In a child: a fault outside the range ends it as if we were not there. */
static int fate(void (*f)(char *), char *p)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		f(p);
		_exit(0);
	}
	BUG_ON(waitpid(pid, &status, 0) != pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void outside(char *p)
{
	signal(SIGBUS, SIG_DFL); /* the sanitizers have one of their own */
	touch_in_vain(p);
}

static void sent(char *p)
{
	struct guard_range r = { p, 4096 };
	char mine = 0;

	signal(SIGBUS, SIG_DFL);
	guard_run(&r, 1, touch, &mine);
	raise(SIGBUS);
}

static void on_bus(int sig)
{
	(void)sig;
	_exit(42);
}

static void chained(char *p)
{
	signal(SIGBUS, on_bus);
	touch_in_vain(p);
}

/* These come first: the handler is installed once per process. */
static void test_guard_chain(void)
{
	int fd = memory_file("x", 1);
	char *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

	eq_i64(fate(outside, p + 4096), SIGBUS, "not ours: the default");
	eq_i64(fate(sent, p + 4096), SIGBUS, "sent, no fault: the default");
	eq_i64(fate(chained, p + 4096), -42, "not ours: whoever was before");
	munmap(p, 8192);
	close(fd);
}

static void test_guard(void)
{
	int fd = memory_file("x", 1);
	char *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	struct guard_range r[] = { { p, 4096 }, { p + 4096, 4096 } };

	eq_i64(guard_run(r, 2, touch, p), 0, "no fault");
	eq_i64(guard_run(r, 2, touch, p + 4096), 2, "fault in the second");
	eq_i64(guard_run(r + 1, 1, touch, p + 8191), 1, "its last byte");
	eq_i64(guard_run(r + 1, 1, touch_in_vain, p + 4096), 1,
	       "the outer run's range, from an inner run");
	eq_i64(guard_run(r + 1, 1, touch, p + 4096), 1, "and again");
	munmap(p, 8192);
	close(fd);
}

static rlim_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	BUG_ON(!f || fscanf(f, "%lu", &pages) != 1);
	fclose(f);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Room for a buffer, not for a map. */
static int under_limit(int fd)
{
	rlim_t now = address_space();
	struct rlimit no = { now + WINDOW_MAP / 2, now + WINDOW_MAP / 2 };
	struct window w;
	int64_t rc;

	window_init(&w, fd, BYTES, WINDOW_MAPPED);
	BUG_ON(setrlimit(RLIMIT_AS, &no) < 0);
	rc = read_all(&w, 0, BYTES, 1 << 20);
	return rc == (int64_t)BYTES && !w.is_mapped ? 0 : 1;
}

/* ST-18 */
static void test_refused(int fd)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(under_limit(fd));
	BUG_ON(waitpid(pid, &status, 0) != pid);
	eq_i64(status, 0, "ST-18 mmap refused by RLIMIT_AS: read instead");
}

int main(void)
{
	int disk, memory;

	want = xmalloc(BYTES);
	fill(want, BYTES, 7);
	disk = disk_file(want, BYTES);
	memory = memory_file(want, BYTES);
	test_guard_chain();
	test_guard();
	test_how(disk, WINDOW_MAPPED, "mapped");
	test_how(memory, WINDOW_MAPPED, "mapped, of tmpfs");
	test_how(disk, WINDOW_BUFFERED, "buffered");
	test_how(disk, WINDOW_FROM_DISK, "in large reads");
	test_auto(disk, memory);
	test_truncated(WINDOW_MAPPED, "ST-01 cut under a map");
	test_truncated(WINDOW_BUFFERED, "ST-01 cut under a buffer");
	test_truncated_meanwhile();
	test_refused(disk);
	close(disk);
	close(memory);
	free(want);
	return tap_done();
}
