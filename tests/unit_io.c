#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "tests/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG 200000u /* bytes; several pages and writes */

static int dir;

/* Entries of the test's directory, "." and ".." left out. */
static unsigned entries(void)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY);
	DIR *d = fdopendir(fd);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static bool holds(const char *name, const char *want)
{
	struct buf b = { 0 };
	int rc = io_read_file(dir, name, 1 << 20, &b);
	bool same = rc == 0 && slice_eq(buf_slice(&b), slice_of(want));

	buf_release(&b);
	return same;
}

static bool is_there(const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void touch(const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT, 0644);

	if (fd >= 0)
		close(fd);
}

static void test_full(void)
{
	char out[8] = "";
	int fd = openat(dir, "full", O_RDWR | O_CREAT, 0644);

	eq_i64(io_write_full(fd, "abcdef", 6), 6, "write_full: all");
	eq_i64(io_pwrite_full(fd, "XY", 2, 1), 2, "pwrite_full: all");
	eq_i64(io_pread_full(fd, out, 7, 0), 6, "pread_full: short at the end");
	eq_str(out, "aXYdef", "pread_full: what was written");
	lseek(fd, 4, SEEK_SET);
	eq_i64(io_read_full(fd, out, 7), 2, "read_full: short at the end");
	close(fd);
	eq_i64(io_read_full(fd, out, 1), -E_IO, "read_full: bad descriptor");
	unlinkat(dir, "full", 0);
}

static void test_read_file(void)
{
	struct buf b = { 0 };

	buf_add(&b, "pre", 3);
	eq_i64(io_read_file(dir, "none", 9, &b), -E_NOINPUT, "no file");
	ok(io_replace(dir, "f", "123456", 6) == 0, "replace makes a file");
	eq_i64(io_read_file(dir, "f", 5, &b), -E_DATA, "one byte too large");
	eq_u64(b.n, 3, "a failed read leaves the buffer");
	eq_i64(io_read_file(dir, "f", 6, &b), 0, "exactly the bound");
	eq_str(buf_cstr(&b), "pre123456", "the content is appended");
	eq_i64(io_read_file(dir, ".", 6, &b), -E_IO, "a directory");
	unlinkat(dir, "f", 0);
	buf_release(&b);
}

static void test_names(void)
{
	bool linked = false;

	eq_i64(io_create_once(dir, "d", "one", 3, &linked), 0, "create once");
	ok(linked, "link was called");
	eq_i64(io_create_once(dir, "d", "two", 3, &linked), -E_AGAIN,
	       "create twice");
	ok(holds("d", "one"), "the first content stays");
	eq_i64(io_replace(dir, "d", "three", 5), 0, "replace");
	ok(holds("d", "three"), "the new content");
	eq_u64(entries(), 1, "no temporary names");
	linked = false;
	eq_i64(io_create_once(dir, "no/d", "x", 1, &linked), -E_NOINPUT,
	       "create below a missing directory");
	ok(!linked, "link was not called");
	eq_i64(io_mkdir(dir, "sub", 0700), 0, "mkdir");
	eq_i64(io_mkdir(dir, "sub", 0700), 0, "mkdir again");
	eq_i64(io_mkdir(dir, "d", 0700), -E_IO, "mkdir over a file");
	eq_i64(io_replace(dir, "sub/x", "x", 1), 0, "replace in a subdir");
	ok(holds("sub/x", "x"), "content in a subdir");
	eq_i64(io_open_dir(dir, "d"), -E_NOINPUT, "open_dir of a file");
	unlinkat(dir, "d", 0);
}

static void test_remove_tree(void)
{
	touch("victim");
	ok(symlinkat("../victim", dir, "sub/link") == 0, "a link in the tree");
	eq_i64(io_mkdir(dir, "sub/deeper", 0700), 0, "a directory in it");
	eq_i64(io_replace(dir, "sub/deeper/f", "", 0), 0, "a file in that");
	eq_i64(io_remove_tree(dir, "sub"), 0, "remove_tree");
	ok(!is_there("sub"), "the tree is gone");
	ok(is_there("victim"), "links are not followed");
	eq_i64(io_remove_tree(dir, "sub"), 0, "remove_tree of nothing");
	ok(symlinkat(".", dir, "self") == 0, "a link to a directory");
	eq_i64(io_remove_tree(dir, "self"), 0, "remove_tree of a link");
	ok(is_there("victim"), "its target stays");
	unlinkat(dir, "victim", 0);
}

static pid_t dead_pid(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

static void test_sweep(void)
{
	char dead[64], other[64], live[64], zombie[64];
	pid_t unreaped = fork();
	siginfo_t ended;
	const char *const foreign[] = { ".tmp.x", ".tmp..1", ".tmp.1.2",
					".tmp.x.1.y", "tmp.x.999999.1" };

	snprintf(dead, sizeof dead, ".tmp.a.b.%ld.0", (long)dead_pid());
	snprintf(other, sizeof other, ".tmp.c.%ld.12", (long)dead_pid());
	snprintf(live, sizeof live, ".tmp.a.b.%ld.0", (long)getpid());
	if (unreaped == 0)
		_exit(0);
	waitid(P_PID, (id_t)unreaped, &ended, WEXITED | WNOWAIT);
	snprintf(zombie, sizeof zombie, ".tmp.a.b.%ld.0", (long)unreaped);
	touch(dead);
	touch(live);
	touch(zombie);
	for (size_t i = 0; i < COUNT(foreign); i++)
		touch(foreign[i]);
	eq_i64(io_sweep_tmp_of(dir, "b"), 0, "none is that file's");
	eq_i64(io_sweep_tmp_of(dir, "./a"), 0, "nor is it of a longer name");
	touch(other);
	eq_i64(io_sweep_tmp_of(dir, "./c"), 1, "of one file only");
	ok(!is_there(other), "that of a dead process");
	eq_i64(io_sweep_tmp(dir), 2, "sweep removes two");
	ok(!is_there(dead), "that of a dead process");
	ok(!is_there(zombie), "that of one that nobody has reaped");
	waitpid(unreaped, NULL, 0);
	ok(is_there(live), "not that of a live one");
	eq_i64(io_sweep_our_tmp(dir), 1, "of our own directory that too");
	for (size_t i = 0; i < COUNT(foreign); i++) {
		ok(is_there(foreign[i]), "not %s", foreign[i]);
		unlinkat(dir, foreign[i], 0);
	}
	unlinkat(dir, live, 0);
}

/* FS: a write that fails half-way (here: file size limit, as a full disk
 * would) leaves the old content and no temporary name. */
static void test_write_fails(void)
{
	struct rlimit old, small = { 4096, RLIM_INFINITY };
	char *big = xcalloc(BIG, 1);
	bool linked = false;

	getrlimit(RLIMIT_FSIZE, &old);
	small.rlim_max = old.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	io_replace(dir, "f", "old", 3);
	setrlimit(RLIMIT_FSIZE, &small);
	eq_i64(io_replace(dir, "f", big, BIG), -E_IO, "replace fails");
	eq_i64(io_create_once(dir, "g", big, BIG, &linked), -E_IO,
	       "create fails");
	setrlimit(RLIMIT_FSIZE, &old);
	ok(!linked, "before the link");
	ok(holds("f", "old"), "the old content is whole");
	eq_u64(entries(), 1, "nothing else is left");
	unlinkat(dir, "f", 0);
	free(big);
}

static void replace_forever(int ready)
{
	char *p = xmalloc(BIG);

	for (unsigned i = 0;; i++) {
		memset(p, 'a' + (int)(i % 26), BIG);
		if (io_replace(dir, "f", p, BIG) < 0)
			_exit(1);
		if (write(ready, p, 1) != 1)
			_exit(1);
	}
}

static bool whole(void)
{
	struct buf b = { 0 };
	bool good = io_read_file(dir, "f", BIG, &b) == 0 && b.n == BIG;

	for (size_t i = 1; good && i < b.n; i++)
		good = b.p[i] == b.p[0];
	buf_release(&b);
	return good;
}

/* Killed anywhere: old or new content, whole; the sweep takes the rest. */
static void test_killed(unsigned replaced)
{
	int pipefd[2];
	char c;
	pid_t pid;

	if (pipe(pipefd) < 0 || (pid = fork()) < 0) {
		ok(false, "fork: %s", strerror(errno));
		return;
	}
	if (pid == 0)
		replace_forever(pipefd[1]);
	close(pipefd[1]);
	for (unsigned i = 0; i < replaced; i++)
		if (read(pipefd[0], &c, 1) != 1)
			break;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(pipefd[0]);
	ok(whole(), "killed after %u: the content is whole", replaced);
	ok(io_sweep_tmp(dir) >= 0 && entries() == 1,
	   "killed after %u: nothing left after the sweep", replaced);
	unlinkat(dir, "f", 0);
}

static void test_clock(void)
{
	char a[CLOCK_BOOT_ID_LEN + 1], b[CLOCK_BOOT_ID_LEN + 1];
	int64_t t = clock_mono_ns();

	ok(clock_mono_ns() >= t, "monotonic");
	ok(clock_mono_ms() >= t / 1000000, "milliseconds of the same clock");
	ok(clock_boot_ms() > 0, "boot time");
	ok(clock_wall_ms() > 1500000000000, "wall time after 2017");
	ok(clock_boot_id(a) == 0 && clock_boot_id(b) == 0, "boot id");
	ok(strlen(a) == CLOCK_BOOT_ID_LEN, "boot id is whole: %s", a);
	eq_str(a, b, "boot id is the same twice");
}

/* For io.bats, which kills it at a system call: "create DIR" and "replace
 * DIR" make DIR/f, "sweep DIR" is the start after the crash. */
static int one_call(const char *verb, const char *path)
{
	bool linked = false;

	dir = io_open_dir(AT_FDCWD, path);
	if (dir < 0)
		return err_exit_code(dir);
	if (strcmp(verb, "create") == 0)
		return err_exit_code(
			io_create_once(dir, "f", "new", 3, &linked));
	if (strcmp(verb, "replace") == 0)
		return err_exit_code(io_replace(dir, "f", "new", 3));
	return err_exit_code(io_sweep_tmp(dir));
}

int main(int argc, char **argv)
{
	char path[] = "/tmp/unit_io.XXXXXX";

	log_init("unit_io", LOG_ERROR);
	if (argc == 3)
		return one_call(argv[1], argv[2]);
	log_quiet_thread(1);
	if (!mkdtemp(path) || (dir = io_open_dir(AT_FDCWD, path)) < 0)
		return 1;
	test_full();
	test_read_file();
	test_names();
	test_remove_tree();
	test_sweep();
	test_write_fails();
	for (unsigned i = 1; i < 12; i++)
		test_killed(i);
	test_clock();
	eq_i64(io_remove_tree(AT_FDCWD, path), 0, "remove the directory");
	close(dir);
	return tap_done();
}
