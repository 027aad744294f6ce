#include "tests/files.h"
#include "tests/tap.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/pieces.h"

#include <pthread.h>

#define BYTES ((2 * (size_t)DIGEST_LEAF) + 5000001)
#define LEAVES 3

static char *data;

static const enum window_how how[] = { WINDOW_MAPPED, WINDOW_BUFFERED };

/* A destination without a name, mapped or not. */
static struct slotfile slot(size_t size, bool mapped)
{
	struct slotfile f = { .fd = memory_file(NULL, 0), .size = size };

	BUG_ON(ftruncate(f.fd, (off_t)size) < 0);
	if (mapped)
		f.map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
			     f.fd, 0);
	BUG_ON(mapped && f.map == MAP_FAILED);
	return f;
}

static bool holds(const struct slotfile *f, uint64_t off, size_t n)
{
	char *got = xmalloc(n);
	bool same = pread(f->fd, got, n, (off_t)off) == (ssize_t)n &&
		    memcmp(got, data + off, n) == 0;

	free(got);
	return same;
}

/* leaf[] must be the digests of the piece's own 16 MiB steps. */
static bool leaves_right(const struct piece *p, const struct digest *leaf)
{
	for (uint64_t done = 0; done < p->bytes; done += DIGEST_LEAF, leaf++) {
		uint64_t n = p->bytes - done;
		struct digest want;

		digest_of(data + p->offset + done,
			  (size_t)(n < DIGEST_LEAF ? n : DIGEST_LEAF), &want);
		if (!digest_eq(&want, leaf))
			return false;
	}
	return true;
}

static bool one(int fd, enum window_how h, bool mapped, const struct piece *p)
{
	struct slotfile dst = slot(BYTES, mapped);
	struct digest copied[LEAVES] = { 0 }, hashed[LEAVES] = { 0 };
	struct window w;
	bool good;

	window_init(&w, fd, BYTES, h);
	good = piece_copy(&w, &dst, p, copied, NULL) == 0 &&
	       piece_hash(&w, p, hashed, NULL) == 0 &&
	       holds(&dst, p->offset, (size_t)p->bytes) &&
	       leaves_right(p, copied) &&
	       memcmp(copied, hashed, sizeof copied) == 0;
	window_release(&w);
	slotfile_release(&dst);
	return good;
}

static void test_edges(int fd)
{
	static const struct piece edge[] = {
		{ 0, 0, 0 },
		{ 0, 0, 1 },
		{ 0, 5, 4096 },
		{ 0, 3, DIGEST_LEAF - 1 },
		{ 0, 3, DIGEST_LEAF },
		{ 0, 3, DIGEST_LEAF + 1 },
		{ 0, 4999999, 2 * DIGEST_LEAF },
		{ 0, 0, BYTES },
		{ 0, BYTES - 1, 1 },
		{ 0, BYTES, 0 },
	};

	for (size_t i = 0; i < COUNT(edge); i++)
		for (size_t k = 0; k < 2 * COUNT(how); k++)
			ok(one(fd, how[k / 2], k & 1, &edge[i]),
			   "%llu bytes at %llu, %s to %s",
			   (unsigned long long)edge[i].bytes,
			   (unsigned long long)edge[i].offset,
			   k / 2 ? "buffer" : "map", k & 1 ? "map" : "pwrite");
}

static void test_count(void)
{
	struct piece p = { 0, 0, 0 };

	eq_u64(piece_leaves(&p), 0, "no bytes, no leaves");
	p.bytes = DIGEST_LEAF;
	eq_u64(piece_leaves(&p), 1, "one leaf");
	p.bytes++;
	eq_u64(piece_leaves(&p), 2, "and one byte");
	p.bytes = UINT64_MAX;
	eq_u64(piece_leaves(&p), (uint64_t)1 << 40, "no overflow");
}

static void test_small(int fd)
{
	struct slotfile dst = slot(BYTES, true);
	struct digest leaf;
	struct window w;
	bool good = true;

	window_init(&w, fd, BYTES, WINDOW_AUTO);
	for (uint32_t i = 0; i < 5000; i++) {
		struct piece p = { 0, i * 4096u, 4096 };

		good = good && piece_copy(&w, &dst, &p, &leaf, NULL) == 0 &&
		       leaves_right(&p, &leaf);
	}
	ok(good && holds(&dst, 0, 5000 * 4096), "thousands of small pieces");
	window_release(&w);
	slotfile_release(&dst);
}

static void test_bucket(void)
{
	struct digest leaf[2], got, want;

	digest_of("a", 1, &leaf[0]);
	digest_of("b", 1, &leaf[1]);
	leaves_digest(leaf, 2, &got);
	digest_of(leaf, 32, &want);
	ok(digest_eq(&got, &want), "a bucket is its leaves in order");
	leaves_digest(leaf, 0, &got);
	digest_of("", 0, &want);
	ok(digest_eq(&got, &want), "an empty bucket");
}

static void test_cancel(int fd)
{
	struct slotfile dst = slot(BYTES, true);
	struct piece p = { 0, 0, BYTES };
	struct digest leaf[LEAVES];
	atomic_bool stop = true;
	struct window w;

	window_init(&w, fd, BYTES, WINDOW_AUTO);
	eq_i64(piece_copy(&w, &dst, &p, leaf, &stop), -E_AGAIN, "cancelled");
	eq_i64(piece_hash(&w, &p, leaf, &stop), -E_AGAIN, "hash cancelled");
	ok(!holds(&dst, 0, PIECE_STEP), "before the first step");
	stop = false;
	eq_i64(piece_hash(&w, &p, leaf, &stop), 0, "not cancelled");
	window_release(&w);
	slotfile_release(&dst);
}

static void test_out_of_range(int fd)
{
	struct slotfile dst = slot(4096, true);
	struct piece p = { 0, 4000, 97 };
	struct digest leaf;
	struct window w;

	window_init(&w, fd, BYTES, WINDOW_AUTO);
	eq_i64(piece_copy(&w, &dst, &p, &leaf, NULL), -E_IO,
	       "beyond the destination");
	p = (struct piece){ 0, BYTES - 5, 6 };
	eq_i64(piece_hash(&w, &p, &leaf, NULL), -E_DATA, "beyond the source");
	window_release(&w);
	slotfile_release(&dst);
}

/* A source or a destination that has been cut: an error, never a signal. */
static void test_cut(enum window_how h, bool mapped)
{
	int fd = disk_file(data, BYTES);
	struct slotfile dst = slot(BYTES, mapped);
	struct piece p = { 0, 1 << 20, 8 << 20 };
	struct digest leaf;
	struct window w;

	window_init(&w, fd, BYTES, h);
	BUG_ON(ftruncate(fd, 4 << 20) < 0);
	eq_i64(piece_copy(&w, &dst, &p, &leaf, NULL), -E_DATA,
	       "ST-01 the source was cut");
	eq_i64(piece_hash(&w, &p, &leaf, NULL), -E_DATA, "ST-01 and hashed");
	p.bytes = 1 << 20;
	eq_i64(piece_copy(&w, &dst, &p, &leaf, NULL), 0, "what is left works");
	if (mapped) {
		BUG_ON(ftruncate(dst.fd, 4096) < 0);
		eq_i64(piece_copy(&w, &dst, &p, &leaf, NULL), -E_IO,
		       "SH-01 a store that cannot be made");
	}
	window_release(&w);
	slotfile_release(&dst);
	close(fd);
}

static void *cut_it(void *arg)
{
	BUG_ON(ftruncate(*(int *)arg, 100) < 0);
	return NULL;
}

static void test_cut_meanwhile(void)
{
	int fd = disk_file(data, BYTES);
	struct slotfile dst = slot(BYTES, true);
	struct piece p = { 0, 0, BYTES };
	struct digest leaf[LEAVES];
	struct window w;
	pthread_t t;
	int rc;

	window_init(&w, fd, BYTES, WINDOW_MAPPED);
	BUG_ON(pthread_create(&t, NULL, cut_it, &fd));
	do
		rc = piece_copy(&w, &dst, &p, leaf, NULL);
	while (rc == 0);
	eq_i64(rc, -E_DATA, "ST-01 cut while it is copied");
	pthread_join(t, NULL);
	window_release(&w);
	slotfile_release(&dst);
	close(fd);
}

int main(void)
{
	int fd;

	data = xmalloc(BYTES);
	fill(data, BYTES, 3);
	fd = disk_file(data, BYTES);
	test_count();
	test_edges(fd);
	test_small(fd);
	test_bucket();
	test_cancel(fd);
	test_out_of_range(fd);
	for (size_t k = 0; k < 2 * COUNT(how); k++)
		test_cut(how[k / 2], k & 1);
	test_cut_meanwhile();
	close(fd);
	free(data);
	return tap_done();
}
