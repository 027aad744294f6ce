#include "tests/files.h"
#include "tests/tap.h"

#include "common/cached.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/lease.h"
#include "common/still.h"

#include <errno.h>
#include <signal.h>

#define BYTES ((size_t)4 << 20)

static char path[64];

static int again(int fd, int flags)
{
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static void test_lease(int rw)
{
	int ro = again(rw, O_RDONLY), w;

	eq_i64(lease_take(ro), -E_AGAIN, "open for writing elsewhere");
	ok(!lease_is_held(ro), "not held");
	close(rw);
	eq_i64(lease_take(ro), 0, "taken");
	ok(lease_is_held(ro), "held");
	w = again(ro, O_RDONLY);
	ok(w >= 0 && lease_is_held(ro), "a reader does not break it");
	close(w);
	w = again(ro, O_WRONLY | O_NONBLOCK);
	ok(w < 0 && errno == EWOULDBLOCK, "a writer must wait");
	ok(!lease_is_held(ro), "and it is broken, by asking alone");
	lease_release(ro);
	w = again(ro, O_WRONLY | O_NONBLOCK);
	ok(w >= 0, "then the writer may");
	close(w);
	eq_i64(lease_take(ro), 0, "taken again");
	lease_release(ro);
	ok(!lease_is_held(ro), "released");
	close(ro);
}

/* A break must not end a process that has not thought of SIGIO. */
static void test_signal(void)
{
	int rw = memory_file("x", 1), ro = again(rw, O_RDONLY), w;
	struct sigaction sa;

	close(rw);
	eq_i64(lease_take(ro), 0, "taken on tmpfs");
	w = again(ro, O_WRONLY | O_NONBLOCK);
	ok(w < 0, "broken, and we are alive");
	sigaction(SIGIO, NULL, &sa);
	ok(sa.sa_handler == SIG_IGN, "SIGIO is ignored");
	close(ro);
}

/* The kernel keeps what a processor has just put into a list of its own. */
static bool get_cold(int fd, int64_t offset, int64_t n)
{
	BUG_ON(fsync(fd) < 0);
	for (int i = 0; i < 1000 && cached_is_warm(fd, offset, n); i++) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		usleep(1000);
	}
	return !cached_is_warm(fd, offset, n);
}

static void test_cached(void)
{
	char *p = calloc(1, BYTES);
	int fd = disk_file(p, BYTES), mem = memory_file(p, BYTES);

	ok(cached_is_warm(fd, 0, BYTES), "just written: warm");
	ok(cached_is_warm(mem, 0, BYTES), "tmpfs: warm");
	ok(cached_is_warm(fd, 0, 0), "nothing: warm");
	ok(cached_is_warm(fd, BYTES, 100), "behind the end: warm");
	if (get_cold(fd, BYTES / 2, 4096))
		ok(!cached_is_warm(fd, 0, BYTES), "a cold part: cold");
	else
		ok(true, "# SKIP this file system keeps its pages");
	close(fd);
	close(mem);
	free(p);
}

static void test_still_in_memory(void)
{
	int rw = memory_file("x", 1), ro = again(rw, O_RDONLY);
	struct still s;

	close(rw);
	eq_i64(lease_take(ro), 0, "leased");
	ok(!still_look(ro, &s), "in memory no time tells");
	close(ro);
}

static void test_still_times(void)
{
	int64_t now = clock_wall_ms() * 1000000;
	struct still s = { 1, 2, 3, 4, 5 }, other = s;

	ok(still_is_past(&s), "long ago");
	s.ctime_ns = now + 5 * INT64_C(1000000000);
	ok(!still_is_past(&s), "a clock that was set back");
	s = other;
	s.mtime_ns = now + 1000000;
	ok(!still_is_past(&s), "just now");
	s = other;
	ok(still_same(&s, &other), "the same");
	other.ctime_ns++;
	ok(!still_same(&s, &other), "another time of change");
	other = s;
	other.ino++;
	ok(!still_same(&s, &other), "another file");
}

static void test_still(int rw)
{
	int ro = again(rw, O_RDONLY);
	struct still before, after;

	close(rw);
	ok(!still_look(ro, &before), "without a lease nothing is told");
	eq_i64(lease_take(ro), 0, "leased");
	if (!still_look(ro, &before)) {
		ok(true, "# SKIP the times of this file system do not tell");
		close(ro);
		return;
	}
	ok(still_look(ro, &after) && still_same(&before, &after), "untouched");
	lease_release(ro);
	ok(!still_look(ro, &after), "the lease is gone");
	close(ro);
}

int main(void)
{
	test_signal();
	test_lease(disk_file("weights", 7));
	test_cached();
	test_still_in_memory();
	test_still_times();
	test_still(disk_file("weights", 7));
	return tap_done();
}
