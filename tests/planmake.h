/*
 * planmake.h - a small source and its plan, without weir-plan.
 *
 * One shard: a header of MADE_HEADER bytes, then one tensor of pseudo-random
 * bytes for each bucket.  The directory is the test's to remove.
 *
 * Of two ranks the second has the same directory, and of each tensor the
 * first half.
 */
#ifndef WEIR_TESTS_PLANMAKE_H
#define WEIR_TESTS_PLANMAKE_H

#include "common/err.h"
#include "common/io.h"
#include "pipes/planfile.h"
#include "tests/files.h"

#include <sys/stat.h>

#define MADE_HEADER 1024u
#define MADE_FILE "model.safetensors"
#define MADE_RANKS_MAX 2u

struct made {
	char *dir;			/* the source; the plan lies beside */
	struct plan plan;
	char *bytes;			/* of the file */
	size_t nbytes;
};

struct made_engine {
	const char *endpoint[4];	/* of each worker, NULL at the end */
};

struct made_records {
	struct buf file, frame;
	struct digest_state sum;
	struct m_end end;
};

static inline void made_record(struct made_records *r, struct msg *m)
{
	if (m->type == M_end)
		digest_end(&r->sum, &m->end.digest);
	buf_clear(&r->frame);
	BUG_ON(msg_pack(&r->frame, m) < 0);
	digest_add(&r->sum, r->frame.p, r->frame.n);
	BUG_ON(rec_append(&r->file, m) < 0);
	r->end.records++;
}

/* As safetensors files have it, with spaces at the end. */
static inline void made_header(char *out, uint32_t nbuckets, size_t tensor)
{
	struct buf b = { 0 };
	uint64_t n = MADE_HEADER - 8;

	for (uint32_t i = 0; i < nbuckets; i++)
		buf_addf(&b,
			 "%c\"t%03u\":{\"dtype\":\"U8\",\"shape\":[%zu],"
			 "\"data_offsets\":[%zu,%zu]}",
			 i ? ',' : '{', i, tensor, i * tensor,
			 (i + 1) * tensor);
	buf_addf(&b, "}");
	BUG_ON(b.n > n);
	while (b.n < n)
		buf_add(&b, " ", 1);
	memcpy(out, &n, 8);
	memcpy(out + 8, b.p, n);
	buf_release(&b);
}

static inline void made_file(struct made *d, uint32_t nbuckets, size_t tensor)
{
	char *path = xasprintf("%s/" MADE_FILE, d->dir);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	d->nbytes = MADE_HEADER + nbuckets * tensor;
	d->bytes = xmalloc(d->nbytes);
	fill(d->bytes, d->nbytes, 7);
	made_header(d->bytes, nbuckets, tensor);
	file_with(fd, d->bytes, d->nbytes);
	close(fd);
	free(path);
}

static inline void made_head(struct made *d, struct made_records *r,
			     uint32_t ranks)
{
	char *path = xasprintf("%s/" MADE_FILE, d->dir);
	struct slice source[MADE_RANKS_MAX] = { slice_of(d->dir),
						slice_of(d->dir) };
	struct msg m = { .type = M_version };
	struct stat st;

	BUG_ON(stat(path, &st) < 0);
	free(path);
	m.version = (struct m_version){ .format = 1, .model = SLICE("m"),
					.sources = { source, ranks },
					.transport = SLICE("host"),
					.bucket_size = 1 };
	made_record(r, &m);
	m = (struct msg){ .type = M_file };
	m.file = (struct m_file){
		.path = SLICE(MADE_FILE),
		.bytes = d->nbytes,
		.header = MADE_HEADER,
		.dev = st.st_dev,
		.ino = st.st_ino,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 +
			    st.st_mtim.tv_nsec,
	};
	digest_of(d->bytes, MADE_HEADER, &m.file.digest);
	for (; m.file.rank < ranks; m.file.rank++, m.file.id++)
		made_record(r, &m);
}

static inline void made_engines(struct made_records *r,
				const struct made_engine *e, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct msg m = { .type = M_engine };
		struct slice workers[4];
		char name[16];

		snprintf(name, sizeof name, "e%u", i);
		m.engine.id = i;
		m.engine.name = slice_of(name);
		m.engine.workers.v = workers;
		while (m.engine.workers.n < 4 &&
		       e[i].endpoint[m.engine.workers.n]) {
			workers[m.engine.workers.n] = slice_of(
				e[i].endpoint[m.engine.workers.n]);
			m.engine.workers.n++;
		}
		made_record(r, &m);
	}
}

static inline void made_share(struct m_bucket *b, uint32_t rank,
			      struct slice name, uint64_t *size)
{
	if (b->id == 0)
		b->parts.v[b->parts.n++] =
			(struct m_part){ .kind = PART_HEADER, .file = rank,
					 .bytes = MADE_HEADER,
					 .total = MADE_HEADER };
	b->parts.v[b->parts.n++] =
		(struct m_part){ .kind = PART_TENSOR, .name = name,
				 .dtype = SLICE("U8"), .shape = { size, 1 },
				 .file = rank,
				 .offset = MADE_HEADER + b->id * size[0],
				 .bytes = size[rank], .total = size[rank] };
}

static inline void made_buckets(struct made_records *r, uint32_t n,
				size_t tensor, uint32_t ranks)
{
	uint64_t size[MADE_RANKS_MAX] = { tensor, tensor / 2 };

	for (uint32_t b = 0; b < n; b++) {
		struct m_part part[2 * MADE_RANKS_MAX];
		struct msg m = { .type = M_bucket, .bucket.id = b };
		char name[16];

		snprintf(name, sizeof name, "t%03u", b);
		m.bucket.parts.v = part;
		for (uint32_t k = 0; k < ranks; k++)
			made_share(&m.bucket, k, slice_of(name), size);
		m.bucket.bytes = tensor + (b ? 0 : MADE_HEADER);
		r->end.bytes += m.bucket.bytes;
		if (ranks > 1)
			r->end.bytes += tensor / 2 + (b ? 0 : MADE_HEADER);
		made_record(r, &m);
	}
}

static inline void make_ranked_plan(struct made *d, const struct made_engine *e,
				    uint32_t engines, uint32_t nbuckets,
				    size_t tensor, uint32_t ranks)
{
	struct made_records r = { 0 };
	struct msg end = { .type = M_end };
	char name[] = "/tmp/weir-plan-XXXXXX";
	int dirfd;

	BUG_ON(!mkdtemp(name));
	*d = (struct made){ .dir = xstrdup(name) };
	made_file(d, nbuckets, tensor);
	digest_begin(&r.sum);
	made_head(d, &r, ranks);
	made_engines(&r, e, engines);
	made_buckets(&r, nbuckets, tensor, ranks);
	end.end = (struct m_end){ .records = r.end.records, .files = ranks,
				  .engines = engines, .buckets = nbuckets,
				  .tensors = nbuckets, .bytes = r.end.bytes };
	made_record(&r, &end);
	dirfd = io_open_dir(AT_FDCWD, d->dir);
	BUG_ON(io_replace(dirfd, "plan.weir", r.file.p, r.file.n) < 0);
	BUG_ON(plan_open(&d->plan, dirfd, "plan.weir") < 0);
	close(dirfd);
	buf_release(&r.file);
	buf_release(&r.frame);
}

static inline void make_plan(struct made *d, const struct made_engine *e,
			     uint32_t engines, uint32_t nbuckets,
			     size_t tensor)
{
	make_ranked_plan(d, e, engines, nbuckets, tensor, 1);
}

static inline void unmake_plan(struct made *d)
{
	plan_close(&d->plan);
	BUG_ON(io_remove_tree(AT_FDCWD, d->dir) < 0);
	free(d->dir);
	free(d->bytes);
}

#endif
