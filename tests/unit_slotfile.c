#include "tests/files.h"
#include "tests/tap.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/slotfile.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define BYTES ((uint64_t)1 << 20)

static int dir;
static char path[4096];

static void open_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(path, sizeof path, "%s/weir-test-XXXXXX", tmp ? tmp : "/tmp");
	BUG_ON(!mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	BUG_ON(dir < 0);
}

static bool is_there(const char *name)
{
	return faccessat(dir, name, F_OK, 0) == 0;
}

static int64_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -1 : (int64_t)st.st_size;
}

static void test_create(void)
{
	struct slotfile f = SLOTFILE_INIT;

	slotfile_release(&f);
	eq_i64(slotfile_create(&f, dir, "a", BYTES), 0, "create");
	ok(f.map && size_of(f.fd) == (int64_t)BYTES, "mapped, of that size");
	f.map[BYTES - 1] = 'z';
	slotfile_release(&f);
	log_quiet_thread(1);
	ok(slotfile_create(&f, dir, "a", BYTES) < 0, "a name that exists");
	log_quiet_thread(0);
	eq_i64(slotfile_create(&f, dir, "empty", 0), 0, "an empty file");
	ok(!f.map, "has no map");
	slotfile_release(&f);
}

static void test_reuse(void)
{
	struct slotfile f = SLOTFILE_INIT;

	eq_i64(slotfile_reuse(&f, dir, "none", BYTES), -E_AGAIN, "no file");
	eq_i64(slotfile_reuse(&f, dir, "a", BYTES), 0, "reuse");
	ok(f.map[BYTES - 1] == 'z', "the same pages");
	ok(slotfile_is_ours(&f), "ours while kept open and mapped");
	slotfile_release(&f);
	eq_i64(slotfile_reuse(&f, dir, "a", 2 * BYTES), 0, "longer");
	eq_i64(size_of(f.fd), (int64_t)(2 * BYTES), "is longer");
	slotfile_release(&f);
	eq_i64(slotfile_reuse(&f, dir, "a", BYTES), 0, "shorter");
	eq_i64(size_of(f.fd), (int64_t)BYTES, "is shorter");
	slotfile_release(&f);
	eq_i64(slotfile_reuse(&f, dir, "empty", 0), 0, "an empty one");
	slotfile_release(&f);
}

static void refused(const char *why)
{
	struct slotfile f = SLOTFILE_INIT;

	eq_i64(slotfile_reuse(&f, dir, "a", BYTES), -E_AGAIN, why);
	ok(f.fd == -1, "nothing is opened");
}

static void test_seen_by_others(void)
{
	int fd = openat(dir, "a", O_RDONLY | O_CLOEXEC);
	struct slotfile f = SLOTFILE_INIT;
	void *p;

	refused("a reader has it open");
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	refused("a reader has it mapped only");
	munmap(p, 4096);
	BUG_ON(linkat(dir, "a", dir, "b", 0) < 0);
	refused("a second name");
	BUG_ON(unlinkat(dir, "b", 0) < 0);
	BUG_ON(symlinkat("a", dir, "link") < 0);
	eq_i64(slotfile_reuse(&f, dir, "link", BYTES), -E_AGAIN,
	       "a symbolic link");
	BUG_ON(unlinkat(dir, "link", 0) < 0);
	BUG_ON(mkfifoat(dir, "fifo", 0600) < 0);
	eq_i64(slotfile_reuse(&f, dir, "fifo", BYTES), -E_AGAIN, "a pipe");
	BUG_ON(unlinkat(dir, "fifo", 0) < 0);
	eq_i64(slotfile_reuse(&f, dir, "a", BYTES), 0, "then it is ours again");
	fd = openat(dir, "a", O_RDONLY | O_CLOEXEC);
	ok(!slotfile_is_ours(&f), "a kept one that a reader has opened");
	close(fd);
	ok(slotfile_is_ours(&f), "and left");
	slotfile_release(&f);
}

static int no_map(void)
{
	struct slotfile f = SLOTFILE_INIT;
	struct rlimit no = { 1 << 20, 1 << 20 };

	if (setrlimit(RLIMIT_AS, &no) < 0)
		return 1;
	return slotfile_reuse(&f, dir, "a", BYTES) == 0 && !f.map ? 0 : 1;
}

/* In a user's own mount name space: a file system that is too small. */
static int too_small(void)
{
	struct slotfile f = SLOTFILE_INIT;
	int ns = CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER);

	if (unshare(ns) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("weir", path, "tmpfs", 0, "size=8m") < 0)
		return 77;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	log_quiet_thread(1);
	if (slotfile_create(&f, dir, "big", (uint64_t)64 << 20) != -E_IO)
		return 1;
	if (strcmp(log_cause(), "no space for big: need 67108864 bytes, "
				"have 8388608") != 0) {
		printf("# cause: %s\n", log_cause());
		return 2;
	}
	if (is_there("big"))
		return 3;
	return slotfile_create(&f, dir, "small", 4 << 20) == 0 ? 0 : 4;
}

static int in_child(int (*f)(void))
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		status = f();
		fflush(stdout);
		_exit(status);
	}
	BUG_ON(waitpid(pid, &status, 0) != pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(void)
{
	int rc;

	open_dir();
	test_create();
	test_reuse();
	test_seen_by_others();
	eq_i64(in_child(no_map), 0, "ST-18 no room for a map: written instead");
	rc = in_child(too_small);
	if (rc == 77)
		ok(true, "# SKIP SH-01 no right to mount a tmpfs here");
	else
		eq_i64(rc, 0, "SH-01 FS-02 no space: need and have, no file");
	unlinkat(dir, "a", 0);
	unlinkat(dir, "empty", 0);
	ok(rmdir(path) == 0, "nothing is left behind");
	close(dir);
	return tap_done();
}
