#include "tests/tap.h"

#include "common/content.h"
#include "pipes/srchash.h"
#include "tests/planmake.h"

#define BUCKETS 5
#define TENSOR ((size_t)17 << 20) /* more than a leaf */
#define PATIENCE_MS 60000

static struct made made;
static struct loop *loop;
static struct srcfiles files;
static struct srchash *hash;
static struct digest got[BUCKETS], content;
static struct digest half[BUCKETS], half_content; /* of rank 1 */
static unsigned hashed_count, failed_count, verified_count;
static enum source_proof proof;
static char cause[512];
static uint32_t failed_bucket;

static void hashed(void *arg, uint32_t bucket, const struct digest *d)
{
	(void)arg;
	got[bucket] = *d;
	if (made.plan.nranks > 1)
		half[bucket] = d[1];
	if (++hashed_count == *(unsigned *)arg)
		loop_stop(loop, 0);
}

static void failed(void *arg, uint32_t bucket, int code, const char *why)
{
	(void)arg;
	(void)code;
	failed_count++;
	failed_bucket = bucket;
	snprintf(cause, sizeof cause, "%s", why);
	loop_stop(loop, 0);
}

static void verified(void *arg, const struct digest *d, enum source_proof p)
{
	(void)arg;
	verified_count++;
	content = *d;
	if (made.plan.nranks > 1)
		half_content = d[1];
	proof = p;
	loop_stop(loop, 0);
}

static const struct srchash_ops ops = { hashed, failed, verified };
static unsigned stop_after;

static void too_long(void *arg)
{
	(void)arg;
	loop_stop(loop, -1);
}

static int run(void)
{
	struct loop_timer t = { .fn = too_long };
	int rc;

	loop_arm(loop, &t, PATIENCE_MS);
	rc = loop_run(loop);
	loop_disarm(loop, &t);
	return rc;
}

static void start(void)
{
	hashed_count = failed_count = verified_count = 0;
	stop_after = 0;
	cause[0] = '\0';
	BUG_ON(srcfiles_open(&files, &made.plan) < 0);
	loop = loop_new();
	hash = srchash_new(loop, &files, 2, &ops, &stop_after);
	BUG_ON(!hash);
}

static void finish(void)
{
	srchash_free(hash);
	srcfiles_close(&files);
	loop_free(loop);
}

/* The leaves of so many bytes; how many. */
static uint32_t leaves_of(const char *p, size_t n, struct digest *leaf)
{
	uint32_t k = 0;

	for (size_t at = 0; at < n; at += DIGEST_LEAF)
		digest_of(p + at, n - at < DIGEST_LEAF ? n - at : DIGEST_LEAF,
			  &leaf[k++]);
	return k;
}

/* What comes of the first `tensor` bytes of each. */
static void expect(size_t tensor, struct digest *bucket, struct digest *all)
{
	struct content c = { 0 };
	struct digest leaf[3];

	for (uint32_t b = 0; b < BUCKETS; b++) {
		const char *p = made.bytes + MADE_HEADER + b * TENSOR;
		uint32_t n = leaves_of(p, tensor, leaf + 1);
		char name[8];

		digest_of(made.bytes, MADE_HEADER, &leaf[0]);
		digest_of(leaf + (b != 0), (n + (b == 0)) * DIGEST_LEN,
			  &bucket[b]);
		snprintf(name, sizeof name, "t%03u", b);
		BUG_ON(content_add(&c, CONTENT_TENSOR, slice_of(name), tensor,
				   0, leaf + 1, n) < 0);
	}
	BUG_ON(content_finish(&c, all) < 0);
	content_release(&c);
}

static void test_digests(void)
{
	struct digest want[BUCKETS], all;
	bool same = true;

	expect(TENSOR, want, &all);
	start();
	srchash_want(hash, 3);
	srchash_want(hash, 3);
	stop_after = 1;
	ok(run() == 0 && hashed_count == 1 && srchash_is_hashed(hash, 3),
	   "a bucket is hashed when it is wanted, once");
	stop_after = 0;
	srchash_rest(hash);
	ok(run() == 0 && verified_count == 1, "then the rest");
	eq_u64(hashed_count, BUCKETS, "each bucket is told once");
	for (uint32_t b = 0; b < BUCKETS; b++)
		same &= digest_eq(&want[b], &got[b]);
	ok(same, "digests are those over the leaves of its pieces");
	ok(digest_eq(&content, &all), "and fold to the content digest");
	ok((proof == SOURCE_LEASE) == srcfiles_are_leased(&files),
	   "by lease, where the file system has them");
	finish();
}

static void test_ranks(void)
{
	static const struct made_engine engine = { { "ipc:///a", "ipc:///b" } };
	struct digest want[2][BUCKETS], all[2];
	bool same = true;

	make_ranked_plan(&made, &engine, 1, BUCKETS, TENSOR, 2);
	expect(TENSOR, want[0], &all[0]);
	expect(TENSOR / 2, want[1], &all[1]);
	start();
	srchash_rest(hash);
	ok(run() == 0 && verified_count == 1, "two ranks are hashed");
	for (uint32_t b = 0; b < BUCKETS; b++)
		same &= digest_eq(&want[0][b], &got[b]) &&
			digest_eq(&want[1][b], &half[b]);
	ok(same, "each rank's share of a bucket has a digest");
	ok(digest_eq(&content, &all[0]) && digest_eq(&half_content, &all[1]),
	   "and each rank a content digest");
	finish();
	unmake_plan(&made);
}

static int writable(void)
{
	char *path = xasprintf("%s/" MADE_FILE, made.dir);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	free(path);
	return fd;
}

static void restore(int fd)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT } };
	const struct plan_file *f = &made.plan.file[0];

	file_with(fd, made.bytes, made.nbytes);
	t[1].tv_sec = f->mtime_ns / 1000000000;
	t[1].tv_nsec = f->mtime_ns % 1000000000;
	futimens(fd, t);
}

static void test_reread(void)
{
	int fd = writable();

	start();
	srchash_rest(hash);
	ok(run() == 0 && verified_count == 1 && proof == SOURCE_REREAD,
	   "open for writing: no lease, everything is read twice");
	finish();
	start();
	for (uint32_t b = 0; b < BUCKETS; b++)
		srchash_want(hash, b);
	stop_after = BUCKETS;
	run();
	BUG_ON(pwrite(fd, "changed", 7, MADE_HEADER + 2 * (off_t)TENSOR) != 7);
	srchash_rest(hash);
	ok(run() == 0 && failed_count == 1 && verified_count == 0,
	   "BK-12 rewritten after it was hashed: found");
	eq_u64(failed_bucket, 2, "BK-12 naming the bucket");
	ok(strstr(cause, "/" MADE_FILE ": tensor \"t002\" of bucket 2 changed"),
	   "BK-12 and what it is of: %s", cause);
	finish();
	restore(fd);
	close(fd);
}

static void test_truncated(void)
{
	int fd = writable();

	start();
	BUG_ON(ftruncate(fd, MADE_HEADER + 3 * (off_t)TENSOR + 5) < 0);
	srchash_rest(hash);
	ok(run() == 0 && failed_count == 1, "truncated: the bucket fails");
	ok(failed_bucket == 3 || failed_bucket == 4, "one that is cut");
	ok(strstr(cause, MADE_FILE), "naming the file: %s", cause);
	finish();
	restore(fd);
	close(fd);
}

static void test_other_source(void)
{
	int fd = writable();

	BUG_ON(pwrite(fd, "x", 1, 3) != 1);
	ok(srcfiles_open(&files, &made.plan) == -E_DATA &&
		   strstr(log_cause(), MADE_FILE),
	   "IX-13 written since the plan: %s", log_cause());
	made.plan.file[0].mtime_ns = INT64_MIN;
	restore(fd);
	struct stat st;

	BUG_ON(pwrite(fd, "x", 1, 3) != 1 || fstat(fd, &st) < 0);
	made.plan.file[0].mtime_ns =
		(int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	ok(srcfiles_open(&files, &made.plan) == -E_DATA &&
		   strstr(log_cause(), "header") &&
		   strstr(log_cause(), MADE_FILE),
	   "IX-13 the same time but another header: %s", log_cause());
	close(fd);
}

int main(void)
{
	static const struct made_engine engine = { { "ipc:///nowhere" } };

	log_quiet_thread(1);
	make_plan(&made, &engine, 1, BUCKETS, TENSOR);
	test_digests();
	test_reread();
	test_truncated();
	test_other_source();
	unmake_plan(&made);
	test_ranks();
	return tap_done();
}
