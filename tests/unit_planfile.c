#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/planfile.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static int dir;

static struct slice workers[4], scattered[3], sources[2];

static void make_endpoints(void)
{
	workers[0] = workers[1] = SLICE("ipc:///a");
	workers[2] = workers[3] = SLICE("ipc:///b");
	scattered[0] = scattered[2] = workers[0];
	scattered[1] = workers[2];
	sources[0] = SLICE("/src");
	sources[1] = SLICE("/src.1");
}

enum { HEAD, FILE_0, FILE_1, ENGINE_0, BUCKET_0, BUCKET_1, END, NRECORDS };

/* A small right plan: a carried file, a shard, an engine of two receivers. */
struct small {
	struct msg m[NRECORDS];
	struct m_part first[5], second[2];
};

static void make(struct small *s)
{
	*s = (struct small){
		.m = { { .type = M_version,
			 .version.format = 1,
			 .version.model = SLICE("m"),
			 .version.sources = { sources, 1 },
			 .version.transport = SLICE("host") },
		       { .type = M_file,
			 .file.kind = FILE_CARRIED,
			 .file.path = SLICE("config.json"),
			 .file.bytes = 20 },
		       { .type = M_file,
			 .file.id = 1,
			 .file.path = SLICE("m.safetensors"),
			 .file.bytes = 100 + 40 * MIB,
			 .file.header = 100 },
		       { .type = M_engine,
			 .engine.name = SLICE("e"),
			 .engine.workers = { workers, 4 } },
		       { .type = M_bucket, .bucket.bytes = 120 + 16 * MIB },
		       { .type = M_bucket,
			 .bucket.id = 1,
			 .bucket.bytes = 24 * MIB },
		       { .type = M_end } },
		.first = { { .kind = PART_CARRIED, .bytes = 20, .total = 20 },
			   { .kind = PART_HEADER,
			     .file = 1,
			     .bytes = 100,
			     .total = 100 },
			   { .kind = PART_TENSOR,
			     .file = 1,
			     .offset = 100,
			     .name = SLICE("w"),
			     .bytes = 16 * MIB,
			     .total = 40 * MIB } },
		.second = { { .kind = PART_TENSOR,
			      .file = 1,
			      .offset = 100 + 16 * MIB,
			      .name = SLICE("w"),
			      .bytes = 24 * MIB,
			      .start = 16 * MIB,
			      .total = 40 * MIB },
			    { .kind = PART_TENSOR,
			      .file = 1,
			      .offset = 100 + 40 * MIB,
			      .name = SLICE("empty") } },
	};
	s->m[BUCKET_0].bucket.parts.v = s->first;
	s->m[BUCKET_0].bucket.parts.n = 3;
	s->m[BUCKET_1].bucket.parts.v = s->second;
	s->m[BUCKET_1].bucket.parts.n = 2;
	s->m[END].end = (struct m_end){ .records = 6,
					.files = 2,
					.engines = 1,
					.buckets = 2,
					.tensors = 2,
					.bytes = 120 + 40 * MIB };
}

/* Writes them in this order; the end's digest is always right. */
static void put(struct small *s, const int *order, size_t n)
{
	struct digest_state d;
	struct buf file = { 0 }, frame = { 0 };
	int fd = openat(dir, "plan.weir", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	digest_begin(&d);
	for (size_t i = 0; i < n; i++) {
		struct msg *m = &s->m[order[i]];

		if (m->type == M_end)
			digest_end(&d, &m->end.digest);
		buf_clear(&frame);
		msg_pack(&frame, m);
		digest_add(&d, frame.p, frame.n);
		rec_append(&file, m);
	}
	io_write_full(fd, file.p, file.n);
	close(fd);
	buf_release(&file);
	buf_release(&frame);
}

static const int in_turn[NRECORDS] = { HEAD,	 FILE_0,   FILE_1, ENGINE_0,
				       BUCKET_0, BUCKET_1, END };

static int try(void)
{
	struct plan p;
	int rc = plan_open(&p, dir, "plan.weir");

	if (rc == 0)
		plan_close(&p);
	return rc;
}

static void test_right(void)
{
	struct msg_arena a = { 0 };
	struct small s;
	struct plan p;
	struct msg m;
	char name[64];
	uint64_t bytes;

	make(&s);
	put(&s, in_turn, NRECORDS);
	if (!ok(plan_open(&p, dir, "plan.weir") == 0, "a right plan opens"))
		return;
	eq_u64(p.nfiles, 2, "files");
	eq_str(p.file[1].path, "m.safetensors", "path");
	eq_u64(p.nreceivers, 2, "workers that share an endpoint: a receiver");
	eq_u64(p.receiver[1].worker, 2, "its first worker");
	eq_u64(p.receiver[1].workers, 2, "and how many");
	eq_u64(p.nbuckets, 2, "buckets");
	ok(plan_bucket(&p, 1, &m, &a) == 0 && m.bucket.id == 1 &&
		   m.bucket.parts.n == 2,
	   "a bucket is read again");
	ok(plan_largest_tensor(&p, 0, name, sizeof name, &bytes) == 0 &&
		   strcmp(name, "w") == 0 && bytes == 16 * MIB,
	   "its largest tensor");
	plan_close(&p);
	msg_arena_release(&a);
}

static void test_order(void)
{
	static const struct {
		const char *name;
		int order[NRECORDS + 1];
		size_t n;
	} t[] = {
		{ "nothing", { 0 }, 0 },
		{ "no end", { 0, 1, 2, 3, 4, 5 }, 6 },
		{ "no version", { 1, 2, 3, 4, 5, 6 }, 6 },
		{ "two versions", { 0, 0, 1, 2, 3, 4, 5, 6 }, 8 },
		{ "files swapped", { 0, 2, 1, 3, 4, 5, 6 }, 7 },
		{ "engine before file", { 0, 3, 1, 2, 4, 5, 6 }, 7 },
		{ "bucket missing", { 0, 1, 2, 3, 4, 6 }, 6 },
		{ "bucket twice", { 0, 1, 2, 3, 4, 4, 5, 6 }, 8 },
		{ "bucket after end", { 0, 1, 2, 3, 4, 6, 5 }, 7 },
		{ "no engine", { 0, 1, 2, 4, 5, 6 }, 6 },
		{ "no bucket", { 0, 1, 2, 3, 6 }, 5 },
		{ "end twice", { 0, 1, 2, 3, 4, 5, 6, 6 }, 8 },
	};
	struct small s;

	for (size_t i = 0; i < COUNT(t); i++) {
		make(&s);
		put(&s, t[i].order, t[i].n);
		ok(try() == -E_DATA && strstr(log_cause(), "plan.weir"),
		   "%s: %s", t[i].name, log_cause());
	}
}

#define WRONG(name, change)                                              \
	do {                                                             \
		make(&s);                                                \
		change;                                                  \
		put(&s, in_turn, NRECORDS);                              \
		ok(try() == -E_DATA && strstr(log_cause(), "plan.weir"), \
		   "%s: %s", name, log_cause());                         \
	} while (0)

static void test_wrong(void)
{
	struct small s;

	WRONG("format", s.m[HEAD].version.format = 2);
	WRONG("path up", s.m[FILE_0].file.path = SLICE("a/../../x"));
	WRONG("path absolute", s.m[FILE_0].file.path = SLICE("/etc/x"));
	WRONG("path empty", s.m[FILE_0].file.path = SLICE(""));
	WRONG("file kind", s.m[FILE_0].file.kind = FILE_N);
	WRONG("engine kind", s.m[ENGINE_0].engine.kind = ENGINE_N);
	WRONG("no workers", s.m[ENGINE_0].engine.workers.n = 0);
	WRONG("scattered", s.m[ENGINE_0].engine.workers.v = scattered;
	      s.m[ENGINE_0].engine.workers.n = 3);
	WRONG("bucket bytes", s.m[BUCKET_0].bucket.bytes++);
	WRONG("part kind", s.first[0].kind = PART_N);
	WRONG("part file", s.first[0].file = 2);
	WRONG("part past its file", s.first[2].offset += 24 * MIB + 1);
	WRONG("offset overflows", s.first[2].offset = UINT64_MAX);
	WRONG("start no leaf edge", s.second[0].start++);
	WRONG("part past its object", s.second[0].start += 16 * MIB);
	WRONG("parts overlap", s.first[2].offset = 99);
	WRONG("parts swapped", s.first[0].file = 1);
	WRONG("records", s.m[END].end.records++);
	WRONG("files", s.m[END].end.files++);
	WRONG("engines", s.m[END].end.engines++);
	WRONG("buckets", s.m[END].end.buckets++);
	WRONG("tensors", s.m[END].end.tensors++);
	WRONG("bytes", s.m[END].end.bytes++);
}

/* Each rank has a shard with both tensors, rank 0's of no bytes; each worker
 * has a receiver of its own. */
static void make_ranked(struct small *s)
{
	make(s);
	s->m[HEAD].version.sources.n = 2;
	s->m[FILE_0].file.kind = FILE_SHARD;
	s->m[FILE_0].file.header = 20;
	s->m[FILE_1].file.rank = 1;
	s->m[ENGINE_0].engine.workers.v = workers + 1;
	s->m[ENGINE_0].engine.workers.n = 2;
	s->first[3] = s->first[1];
	s->first[4] = s->first[2];
	s->first[0].kind = PART_HEADER;
	s->first[1] = (struct m_part){ .kind = PART_TENSOR,
				       .offset = 20,
				       .name = SLICE("empty") };
	s->first[2] = s->first[1];
	s->first[2].name = SLICE("w");
	s->m[BUCKET_0].bucket.parts.n = 5;
	s->m[BUCKET_0].bucket.bytes = 100 + 16 * MIB;
}

#define WRONG_RANKS(name, change, why)                                     \
	do {                                                               \
		make_ranked(&s);                                           \
		change;                                                    \
		put(&s, in_turn, NRECORDS);                                \
		ok(try() == -E_DATA && strstr(log_cause(), why), "%s: %s", \
		   name, log_cause());                                     \
	} while (0)

static void test_ranks(void)
{
	struct small s;
	struct plan p;

	make_ranked(&s);
	put(&s, in_turn, NRECORDS);
	if (!ok(plan_open(&p, dir, "plan.weir") == 0, "a plan of two ranks"))
		return;
	ok(p.nranks == 2 && strcmp(p.rank[1].source, "/src.1") == 0,
	   "where they are");
	ok(p.rank[1].first == 1 && p.rank[1].files == 1 &&
		   p.rank[1].bytes == 100 + 40 * MIB,
	   "what a rank has");
	ok(p.receiver[0].rank == 0 && p.receiver[1].rank == 1,
	   "worker r receives rank r");
	eq_u64(p.bucket[0].bytes, 100 + 16 * MIB,
	       "credit is for the largest rank's share");
	eq_u64(plan_share(&p, 0, 0), 20, "rank 0's share");
	eq_u64(plan_share(&p, 1, 0), 0, "none");
	eq_u64(plan_bucket_bytes(&p, 0), 120 + 16 * MIB, "all of them");
	eq_u64(p.bytes, 120 + 40 * MIB, "what an engine receives");
	plan_close(&p);

	WRONG_RANKS("no source", s.m[HEAD].version.sources.n = 0, "no source");
	WRONG_RANKS("a rank too high", s.m[FILE_1].file.rank = 2, "rank 2");
	WRONG_RANKS("ranks mixed", s.m[FILE_0].file.rank = 1;
		    s.m[FILE_1].file.rank = 0, "out of order");
	WRONG_RANKS("a rank without files", s.m[FILE_1].file.rank = 0;
		    s.m[BUCKET_0].bucket.bytes = 120 + 16 * MIB;
		    s.m[END].end.tensors = 4, "rank 1 has no files");
	WRONG_RANKS("tensors that rank 0 lacks",
		    s.first[1].kind = s.first[2].kind = PART_HEADER;
		    s.m[END].end.tensors = 0, "rank 1 has 2 tensors, rank 0 0");
	WRONG_RANKS("too few workers", s.m[ENGINE_0].engine.workers.n = 1,
		    "1 workers");
	WRONG_RANKS("workers that share a receiver",
		    s.m[ENGINE_0].engine.workers.v = workers, "1 receivers");
	WRONG_RANKS("the sum of all ranks", s.m[BUCKET_0].bucket.bytes += 20,
		    "its parts have");
}

static void test_digest(void)
{
	struct buf b = { 0 };
	struct small s;
	int fd;

	make(&s);
	put(&s, in_turn, NRECORDS);
	/* Now the end belongs to another plan: all but the digest agrees. */
	s.m[HEAD].version.bucket_size = 7;
	for (size_t i = 0; i < NRECORDS; i++)
		rec_append(&b, &s.m[i]);
	fd = openat(dir, "plan.weir", O_WRONLY | O_TRUNC);
	io_write_full(fd, b.p, b.n);
	close(fd);
	buf_release(&b);
	ok(try() == -E_DATA && strstr(log_cause(), "digest"), "digest: %s",
	   log_cause());
	unlinkat(dir, "plan.weir", 0);
	eq_i64(try(), -E_NOINPUT, "no plan");
}

int main(void)
{
	char path[] = "/tmp/weir-unit.XXXXXX";

	log_quiet_thread(1);
	if (!mkdtemp(path) || (dir = io_open_dir(AT_FDCWD, path)) < 0)
		return 1;
	make_endpoints();
	test_right();
	test_order();
	test_wrong();
	test_ranks();
	test_digest();
	close(dir);
	io_remove_tree(AT_FDCWD, path);
	return tap_done();
}
