/*
 * What a store is after a crash or a failure at every single step: the
 * system calls that change a directory are wrapped (see Makefile.am), and
 * the k-th of them ends the process, or the machine, or fails.
 */
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/store.h"
#include "tests/powercut.h"
#include "tests/tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS_MAX 400 /* more than any sequence here has */
#define AGAIN 8	      /* the version that is version 1 again */

static int countdown; /* > 0: so many calls until the fault */
static bool fault_kills, names_too;

/* True: this call is to fail. */
static bool fault(void)
{
	if (countdown == 0 || --countdown > 0)
		return false;
	if (power.on)
		power_cut(names_too);
	if (fault_kills)
		_exit(42);
	errno = EIO;
	return true;
}

#define WRAP(name, power_name, params, args)                            \
	int __real_##name params;                                       \
	int __wrap_##name params;                                       \
	int __wrap_##name params                                        \
	{                                                               \
		if (fault())                                            \
			return -1;                                      \
		return power.on ? power_name args : __real_##name args; \
	}
WRAP(renameat, power_rename, (int a, const char *b, int c, const char *d),
     (a, b, c, d))
WRAP(unlinkat, power_unlink, (int a, const char *b, int c), (a, b, c))
WRAP(symlinkat, power_symlink, (const char *a, int b, const char *c), (a, b, c))
WRAP(mkdirat, power_mkdir, (int a, const char *b, mode_t c), (a, b, c))
WRAP(fsync, power_fsync, (int a), (a))
WRAP(ftruncate, __real_ftruncate, (int a, off_t b), (a, b))

/* On tmpfs an fsync costs nothing, and there are thousands. */
static char dir[64], grave[80];

static struct store_slot slot_of(uint64_t version)
{
	static char one[] = "a/one", two[] = "two";
	static struct store_file files[] = {
		{ .path = one, .bytes = 5000, .kind = FILE_CARRIED },
		{ .path = two, .bytes = 100, .kind = FILE_CARRIED },
	};
	static char registry[] = "A", run[] = "r", none[] = "";
	struct store_slot s = { .registry = registry,
				.run = run,
				.post_load = none,
				.epoch = version,
				.version = version,
				.bytes = 5100,
				.file = files,
				.nfiles = 2 };

	s.received.b[0] = version == AGAIN ? 1 : (uint8_t)version;
	return s;
}

static int fill(struct store_files *f, uint64_t version)
{
	char text[5000];

	memset(text, (int)('0' + version), sizeof text);
	if (io_pwrite_full(f->file[0].fd, text, 5000, 0) < 0)
		return -E_IO;
	return io_pwrite_full(f->file[1].fd, text, 100, 0) < 0 ? -E_IO : 0;
}

static int make(struct store *s, const struct store_slot *slot,
		struct store_files *out)
{
	static const atomic_bool never;
	struct store_making k;
	int rc = store_make_names(s, slot, &k);

	return rc < 0 ? rc : store_make_space(&k, &never, out);
}

/* What is kept of that content is linked. */
static int again(struct store *s, const struct store_slot *slot)
{
	struct store_want want = { .content = slot->received, .post_load = "" };
	struct store_slot kept = { 0 };
	int rc = store_find(s, &want, &kept);

	rc = rc > 0 ? store_link(s, kept.version, slot->version) : -E_NOINPUT;
	store_slot_release(&kept);
	return rc;
}

static int make_and_fill(struct store *s, const struct store_slot *slot,
			 struct store_files *f)
{
	int rc = make(s, slot, f);

	return rc < 0 ? rc : fill(f, slot->version);
}

/* begin, fill, seal, swap: as the engine does it. */
static int push(struct store *s, uint64_t version)
{
	struct store_slot slot = slot_of(version);
	struct store_files f = { 0 };
	struct fence fence = { .registry = "A", .run = "r", .epoch = version };
	int rc = store_set_fence(s, &fence, version);

	if (rc >= 0)
		rc = version == AGAIN ? again(s, &slot)
				      : make_and_fill(s, &slot, &f);
	if (rc >= 0)
		rc = store_sync(s, version);
	if (rc >= 0)
		rc = store_seal(s, &slot);
	if (rc >= 0)
		rc = store_publish(s);
	if (rc >= 0 && f.n)
		store_keep_take(s, &f);
	store_files_release(&f);
	return rc;
}

/* Every byte of the version's files is its number. */
static bool is_whole(const struct store *s, uint64_t version)
{
	int d = store_open_dir(s, version);
	struct buf b = { 0 };
	bool good = d >= 0 && io_read_file(d, "a/one", 9999, &b) == 0 &&
		    io_read_file(d, "two", 9999, &b) == 0 && b.n == 5100;

	for (size_t i = 0; good && i < b.n; i++)
		good = b.p[i] == (char)('0' + (version == AGAIN ? 1 : version));
	if (d >= 0)
		close(d);
	buf_release(&b);
	return good;
}

static unsigned entries(const struct store *s, const char *name)
{
	char *path = xasprintf("%s/%s", s->path, name);
	DIR *d = opendir(path);
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	free(path);
	return n - 2; /* "." and ".." */
}

/* Facts that hold whenever a store was opened. */
static void check_facts(struct store *s, const char *when, int k)
{
	struct store_slot rec = { 0 };
	char *cur = xasprintf("%s/current", s->path);
	char target[64] = "";
	bool good = true;

	if (s->serving)
		good = readlink(cur, target, sizeof target - 1) > 0 &&
		       strtoull(target + 9, NULL, 10) == s->serving &&
		       store_slot_load(s, s->serving, &rec) == 0 &&
		       is_whole(s, s->serving);
	ok(good, "%s %d: version %llu is served, sealed and whole", when, k,
	   (unsigned long long)s->serving);
	store_slot_release(&rec);
	if (s->staged)
		ok(s->staged > s->serving && is_whole(s, s->staged),
		   "%s %d: version %llu is staged and whole", when, k,
		   (unsigned long long)s->staged);
	good = entries(s, "staging") == (s->staged != 0) &&
	       entries(s, "versions") == s->nversions &&
	       entries(s, "slots") == s->nversions + (s->staged != 0);
	ok(good, "%s %d: nothing else is left", when, k);
	free(cur);
}

static void fresh_dir(uint64_t upto, unsigned keep)
{
	struct store s;

	io_remove_tree(AT_FDCWD, dir);
	if (store_open(&s, dir, keep) < 0)
		return;
	for (uint64_t v = 1; v <= upto; v++)
		if (push(&s, v) < 0)
			break;
	store_close(&s);
}

enum cut { KILL, POWER_DATA, POWER_ALL };

/* Killed at step k of pushing `version` over version - 1; or the machine's
 * power is cut: with what was not synced of content, or of names as well. */
static bool kill_at(int k, uint64_t version, unsigned keep, enum cut cut)
{
	struct store s;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (store_open(&s, dir, keep) < 0)
			_exit(1);
		if (cut != KILL)
			power_begin(dir, grave);
		names_too = cut == POWER_ALL;
		fault_kills = true;
		countdown = k;
		if (push(&s, version) < 0)
			_exit(2);
		if (power.on)
			power_cut(names_too);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	io_remove_tree(AT_FDCWD, grave);
	return WIFEXITED(status) && WEXITSTATUS(status) == 42;
}

/* I2, FS-01, SH-02: at every step, old or new, whole; and the next push
 * works. */
static void test_killed(uint64_t version, unsigned keep, enum cut cut)
{
	int k = 0;
	bool killed = true;

	while (killed && ++k < STEPS_MAX) {
		struct store s;

		fresh_dir(version - 1, keep);
		killed = kill_at(k, version, keep, cut);
		if (!ok(store_open(&s, dir, keep) == 0, "opens after %d", k))
			return;
		ok(s.serving == version || s.serving == version - 1,
		   "old or new");
		ok(killed || s.serving == version, "new at the end");
		check_facts(&s, cut == KILL ? "killed at" : "power cut at", k);
		ok(push(&s, version + 1) == 0, "the next push works");
		check_facts(&s, "pushed after", k);
		ok(s.nversions <= keep + 1, "at most keep + 1 versions");
		store_close(&s);
	}
	ok(k > 10 && k < STEPS_MAX, "%d steps of version %d at keep %u", k,
	   (int)version, keep);
}

/* FS-02: an error at any step: the old version is served, and a new start
 * finds the same facts. */
static void test_fails(uint64_t version, unsigned keep)
{
	int rc = -1;

	for (int k = 1; rc < 0 && k < STEPS_MAX; k++) {
		struct store s;

		fresh_dir(version - 1, keep);
		if (store_open(&s, dir, keep) < 0)
			break;
		fault_kills = false;
		countdown = k;
		rc = push(&s, version);
		countdown = 0;
		ok(s.serving == (rc < 0 ? version - 1 : version),
		   "failing step %d: %s is served", k, rc < 0 ? "old" : "new");
		store_close(&s);
		ok(store_open(&s, dir, keep) == 0, "opens again");
		ok(s.serving == version || s.serving == version - 1,
		   "old or new");
		check_facts(&s, "failed at", k);
		store_close(&s);
	}
	eq_i64(rc, 0, "no step left to fail");
}

static ino_t inode(const struct store *s, uint64_t version)
{
	int d = store_open_dir(s, version);
	struct stat st = { 0 };

	fstatat(d, "a/one", &st, 0);
	close(d);
	return st.st_ino;
}

/* A retired version's files are written again, unless somebody has them. */
static void test_reuse(void)
{
	struct store s;
	char *p;
	ino_t first;
	int d, fd;

	fresh_dir(0, 1);
	store_open(&s, dir, 1);
	push(&s, 1);
	first = inode(&s, 1);
	push(&s, 2);
	push(&s, 3);
	ok(inode(&s, 3) == first, "1 was reused for 3");
	eq_u64(s.nversions, 2, "serving and retired");
	d = store_open_dir(&s, 2);
	fd = openat(d, "a/one", O_RDONLY);
	p = mmap(NULL, 5000, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	first = inode(&s, 2);
	ok(push(&s, 4) == 0, "pushed beside a reader of 2");
	ok(inode(&s, 4) != first, "its file was not taken");
	ok(p[0] == '2' && p[4999] == '2', "the reader is not disturbed");
	munmap(p, 5000);
	close(d);
	store_close(&s);
}

/* A version under a second number: one file, never written again. */
static void test_link(void)
{
	struct store s;

	fresh_dir(0, 2);
	store_open(&s, dir, 2);
	push(&s, 1);
	push(&s, 2);
	eq_i64(push(&s, AGAIN), 0, "1 again");
	check_facts(&s, "linked", 0);
	ok(inode(&s, AGAIN) == inode(&s, 1), "the same file");
	push(&s, 9);
	eq_i64(push(&s, 10), 0, "1 is retired");
	ok(is_whole(&s, AGAIN) && is_whole(&s, 9), "its other name is whole");
	store_close(&s);
}

static void test_killed_linking(void)
{
	int k = 0;
	bool killed = true;

	while (killed && ++k < STEPS_MAX) {
		struct store s;

		fresh_dir(3, 2);
		killed = kill_at(k, AGAIN, 2, KILL);
		if (!ok(store_open(&s, dir, 2) == 0, "opens after %d", k))
			return;
		ok(s.serving == 3 || s.serving == AGAIN, "old or new");
		ok(killed || s.serving == AGAIN, "new at the end");
		check_facts(&s, "killed linking at", k);
		ok(push(&s, 9) == 0, "the next push works");
		check_facts(&s, "pushed after", k);
		ok(s.nversions <= 3, "at most keep + 1 versions");
		store_close(&s);
	}
	ok(k > 10 && k < STEPS_MAX, "%d steps of linking", k);
}

static void test_unpublish(void)
{
	struct store s;

	fresh_dir(1, 2);
	store_open(&s, dir, 2);
	push(&s, 2);
	eq_i64(store_unpublish(&s, 1), 0, "back to 1");
	check_facts(&s, "unpublished", 0);
	eq_u64(s.staged, 2, "2 is staged again");
	eq_i64(store_publish(&s), 0, "and served again");
	check_facts(&s, "published", 0);
	store_close(&s);
}

static void test_repair(void)
{
	struct store s;
	char *cur = xasprintf("%s/current", dir);
	char *slot = xasprintf("%s/slots/000002", dir);
	char *served = xasprintf("%s/versions/000002/two", dir);

	fresh_dir(2, 2);
	unlink(cur);
	ok(store_open(&s, dir, 2) == 0 && s.serving == 2, "current lost");
	check_facts(&s, "repaired", 1);
	store_close(&s);
	unlink(cur);
	ok(symlink("versions/000009", cur) == 0, "current points nowhere");
	ok(store_open(&s, dir, 2) == 0 && s.serving == 2, "repaired");
	store_close(&s);
	ok(truncate(slot, 20) == 0, "a record that cannot be read");
	eq_i64(store_open(&s, dir, 2), -E_DATA, "refused");
	ok(access(served, F_OK) == 0, "and what it speaks of is still there");
	unlink(slot);
	ok(store_open(&s, dir, 2) == 0 && s.serving == 1,
	   "never an unsealed version");
	check_facts(&s, "repaired", 2);
	store_close(&s);
	free(cur);
	free(slot);
	free(served);
}

static void test_lock(void)
{
	struct store a, b;
	char want[32];

	fresh_dir(0, 1);
	store_open(&a, dir, 1);
	eq_i64(store_open(&b, dir, 1), -E_AGAIN, "a second engine");
	snprintf(want, sizeof want, "pid %d", (int)getpid());
	ok(strstr(log_cause(), want), "names the pid: %s", log_cause());
	store_close(&a);
	ok(store_open(&a, dir, 1) == 0, "after the first is gone");
	store_close(&a);
}

int main(void)
{
	log_init("unit_store", LOG_ERROR);
	log_quiet_thread(1);
	log_set_level(LOG_ERROR);
	signal(SIGIO, SIG_IGN);
	snprintf(dir, sizeof dir, "%s/unit_store.XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(dir))
		return 1;
	test_lock();
	test_repair();
	test_unpublish();
	test_reuse();
	test_link();
	test_killed_linking();
	snprintf(grave, sizeof grave, "%s.grave", dir);
	for (enum cut cut = KILL; cut <= POWER_ALL; cut++) {
		test_killed(1, 2, cut);
		test_killed(3, 1, cut);
	}
	test_fails(1, 1);
	test_fails(3, 1);
	io_remove_tree(AT_FDCWD, dir);
	return tap_done();
}
