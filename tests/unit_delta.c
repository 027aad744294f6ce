/*
 * Killed at every step of making and of applying a delta, in each encoding:
 * exactly the old or exactly the new version is there, trying again succeeds,
 * and nothing is left behind.  And: nothing appears under its name before all
 * of it is synced, the directories in it too.  The threads are the crew's, by
 * pthread.h.
 */
#include "common/err.h"
#include "common/io.h"
#include "pipes/beside.h"
#include "pipes/delta.h"
#include "tests/files.h"
#include "tests/synced.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CRASHED 9
#define STEPS_MAX 200
/* Encodings in which runs are killed.  The thread sanitizer is after what
 * threads do to each other, in whole runs; either takes two minutes for the
 * hundreds of killed ones of all four. */
#if defined __SANITIZE_THREAD__
static const size_t killed = 0;
#elif defined __SANITIZE_ADDRESS__
static const size_t killed = 1;
#else
static const size_t killed = 4;
#endif
#define TWO "deep/er/two.safetensors"
#define BIG (DELTA_PIECE * 2 + 4096) /* bytes: several pieces */

static char root[64];

static char *in_root(const char *name)
{
	return xasprintf("%s/%s", root, name);
}

/* ---- checkpoints of three tensors in two shards, one of them deeper ---- */

static void add_header(struct buf *b, const char *json)
{
	uint64_t n = strlen(json);

	for (int i = 0; i < 8; i++)
		buf_add(b, (char[]){ (char)(n >> 8 * i) }, 1);
	buf_add(b, json, n);
}

static void add_noise(struct buf *b, size_t n, unsigned seed, unsigned change)
{
	char *p = buf_reserve(b, n);

	for (size_t i = 0; i < n; i++) {
		p[i] = (char)(uint8_t)(i * 2654435761u >> 7 ^ seed);
		if (change && i % 1000 == 10)
			p[i] = (char)(uint8_t)((unsigned)p[i] + change);
	}
	b->n += n;
}

static void put_file(const char *dir, const char *name, const struct buf *b)
{
	char *path = xasprintf("%s/%s/%s", root, dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	BUG_ON(fd < 0 || io_write_full(fd, b->p, b->n) < 0);
	close(fd);
	free(path);
}

static void make_dirs(const char *path)
{
	static const char *const name[] = { "", "/deep", "/deep/er" };

	for (size_t i = 0; i < COUNT(name); i++) {
		char *p = xasprintf("%s%s", path, name[i]);

		mkdir(p, 0755);
		free(p);
	}
}

static void make_checkpoint(const char *dir, unsigned change)
{
	static const char index[] =
		"{\"metadata\":{},\"weight_map\":{\"a\":\"one.safetensors\","
		"\"b\":\"one.safetensors\",\"c\":\"" TWO "\"}}";
	char *path = in_root(dir), *json;
	struct buf b = { 0 };

	make_dirs(path);
	json = xasprintf("{\"a\":{\"dtype\":\"BF16\",\"shape\":[%zu],"
			 "\"data_offsets\":[0,%zu]},\"b\":{\"dtype\":\"U8\","
			 "\"shape\":[9],\"data_offsets\":[%zu,%zu]}}",
			 (size_t)BIG / 2, (size_t)BIG, (size_t)BIG,
			 (size_t)BIG + 9);
	add_header(&b, json);
	add_noise(&b, BIG, 1, change);
	add_noise(&b, 9, 2, 0);
	put_file(dir, "one.safetensors", &b);
	buf_clear(&b);
	add_header(&b, "{\"c\":{\"dtype\":\"F32\",\"shape\":[250],"
		       "\"data_offsets\":[0,1000]}}");
	add_noise(&b, 1000, 3, 0);
	put_file(dir, TWO, &b);
	buf_clear(&b);
	buf_add(&b, index, sizeof index - 1);
	put_file(dir, "model.safetensors.index.json", &b);
	buf_release(&b);
	free(json);
	free(path);
}

static bool same_file(const char *a, const char *b, const char *name)
{
	char *pa = xasprintf("%s/%s/%s", root, a, name);
	char *pb = xasprintf("%s/%s/%s", root, b, name);
	struct buf x = { 0 }, y = { 0 };
	bool same = io_read_file(AT_FDCWD, pa, 1u << 30, &x) == 0 &&
		    io_read_file(AT_FDCWD, pb, 1u << 30, &y) == 0 &&
		    x.n == y.n && memcmp(x.p, y.p, x.n) == 0;

	buf_release(&x);
	buf_release(&y);
	free(pa);
	free(pb);
	return same;
}

static bool same_weights(const char *a, const char *b)
{
	return same_file(a, b, "one.safetensors") && same_file(a, b, TWO) &&
	       same_file(a, b, "model.safetensors.index.json");
}

static bool is_there(const char *name)
{
	char *path = in_root(name);
	bool is = access(path, F_OK) == 0;

	free(path);
	return is;
}

static void drop(const char *name)
{
	char *path = in_root(name);

	io_remove_tree(AT_FDCWD, path);
	free(path);
}

/* ---- runs ---- */

static _Atomic int countdown;

static void die_at_step(const char *what)
{
	(void)what;
	if (atomic_fetch_sub(&countdown, 1) == 1)
		_exit(CRASHED);
}

static int run_diff(unsigned encoding)
{
	struct delta_result r;
	struct delta_diff c = { .old = in_root("v1"),
				.new = in_root("v2"),
				.out = in_root("delta"),
				.base_version = 1,
				.version = 2,
				.encoding = encoding,
				.registry = "",
				.threads = 2 };
	int rc = delta_diff(&c, &r);

	free((char *)(uintptr_t)c.old);
	free((char *)(uintptr_t)c.new);
	free((char *)(uintptr_t)c.out);
	return rc;
}

static int run_apply(unsigned out)
{
	struct delta_result r;
	struct delta_apply c = { .delta = in_root("delta"),
				 .dir = in_root("dir"),
				 .out = out ? in_root("new") : NULL,
				 .base_version = 0,
				 .registry = "",
				 .threads = 2 };
	int rc = delta_apply(&c, &r);

	free((char *)(uintptr_t)c.delta);
	free((char *)(uintptr_t)c.dir);
	free((char *)(uintptr_t)c.out);
	return rc;
}

/* In a child that dies at its n-th step: did it? */
static bool crash_at(int n, int (*fn)(unsigned), unsigned arg)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		countdown = n;
		beside_step = die_at_step;
		_exit(fn(arg) < 0 ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CRASHED)
		return true;
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "step %d: done, as no step is left", n);
	return false;
}

static void test_diff_crashes(unsigned encoding)
{
	bool good = true;
	int n;

	for (n = 1; n < STEPS_MAX; n++) {
		drop("delta");
		if (!crash_at(n, run_diff, encoding))
			break;
		/* Absent, or whole: an index, and all it names. */
		if (is_there("delta"))
			good = good && run_diff(encoding) == 0;
		good = good && run_diff(encoding) == 0 &&
		       !is_there(".delta.weir-new");
	}
	ok(good && n > 4 && n < STEPS_MAX,
	   "%s: diff died at each of %d steps, and went on",
	   delta_encoding_name(encoding), n - 1);
}

static void test_apply_crashes(unsigned encoding)
{
	bool good = true;
	int n, old = 0;

	for (n = 1; n < STEPS_MAX; n++) {
		bool is_old;

		drop("dir");
		make_checkpoint("dir", 0);
		if (!crash_at(n, run_apply, 0))
			break;
		is_old = same_weights("dir", "v1");
		old += is_old;
		good = good && (is_old || same_weights("dir", "v2"));
		good = good && run_apply(0) == 0 && same_weights("dir", "v2");
		/* And once more: it is the target. */
		good = good && run_apply(0) == 0 && same_weights("dir", "v2");
		good = good && !is_there(".dir.weir-new");
	}
	ok(good && old > 5 && n - 1 > old && n < STEPS_MAX,
	   "DK-01 %s: apply died at each of %d steps, %d before the exchange: "
	   "old or new, and the next try makes it new",
	   delta_encoding_name(encoding), n - 1, old);
}

static void test_apply_out_crashes(unsigned encoding)
{
	bool good = true;
	int n;

	drop("dir");
	make_checkpoint("dir", 0);
	for (n = 1; n < STEPS_MAX; n++) {
		drop("new");
		if (!crash_at(n, run_apply, 1))
			break;
		good = good && same_weights("dir", "v1") &&
		       (!is_there("new") || same_weights("new", "v2"));
		good = good && run_apply(1) == 0 && same_weights("new", "v2") &&
		       !is_there(".new.weir-new");
	}
	ok(good && n > 5 && n < STEPS_MAX,
	   "%s: apply -o died at each of %d steps: absent or whole",
	   delta_encoding_name(encoding), n - 1);
}

static void test_crashes(unsigned encoding)
{
	test_diff_crashes(encoding);
	test_apply_crashes(encoding);
	test_apply_out_crashes(encoding);
}

static void test_synced(unsigned encoding)
{
	synced_begin();
	drop("delta");
	drop("dir");
	drop("new");
	make_checkpoint("dir", 0);
	eq_i64(run_diff(encoding), 0, "a delta");
	eq_i64(run_apply(1), 0, "applied, to a new directory");
	eq_i64(run_apply(0), 0, "applied, in place");
	synced_end();
	eq_u64(synced.appeared, 3, "three directories got their names");
	eq_u64(synced.unsynced, 0,
	       "FS-01 with nothing in them that was not synced");
}

int main(void)
{
	static const unsigned encodings[] = { PATCH_XOR, PATCH_OVERWRITE,
					      PATCH_SPARSE, DELTA_AUTO };

	new_root(root, sizeof root, "weir-unit-delta");
	make_checkpoint("v1", 0);
	make_checkpoint("v2", 5);
	for (size_t i = 0; i < COUNT(encodings); i++) {
		test_synced(encodings[i]);
		if (i < killed)
			test_crashes(encodings[i]);
	}
	io_remove_tree(AT_FDCWD, root);
	return tap_done();
}
