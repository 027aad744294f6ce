#include "pipes/planfile.h"
#include "common/err.h"
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_FORMAT 1

/* A plan being read: how far, and the sums that its end must confirm. */
struct reading {
	struct plan *p;
	struct digest_state digest;
	enum msg_type last;
	uint64_t records, bytes;
	size_t file_cap, engine_cap, receiver_cap, bucket_cap, share_cap;
	size_t off; /* of this record */
	bool ended;
};

__attribute__((format(printf, 2, 3))) static int bad(const struct reading *r,
						     const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return log_error(E_DATA, "plan %s: record %llu at byte %zu: %s",
			 r->p->rec.name, (unsigned long long)r->records, r->off,
			 text);
}

static char *dup_slice(struct slice s)
{
	return xstrndup(s.n ? s.p : "", s.n);
}

/* Room for one more of n things of this size. */
static void *grown(void *v, uint32_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return v;
	*cap = *cap ? *cap + *cap / 2 : 16;
	return xreallocarray(v, *cap, size);
}

/* Of a published version: what it must be, and where it may be. */
static int read_again(struct reading *r, const struct m_version *m)
{
	struct plan *p = r->p;

	if (m->kind >= RUN_N || (m->kind == RUN_PUBLISH) != (m->base == 0) ||
	    m->shares.n != (p->nranks > 1 && m->base ? p->nranks : 0) ||
	    m->places.n % p->nranks)
		return bad(r, "kind %u, of version %llu, %u shares, %u places",
			   m->kind, (unsigned long long)m->base, m->shares.n,
			   m->places.n);
	p->kind = m->kind;
	p->base = m->base;
	p->content = m->content;
	p->shares = xcalloc(m->shares.n + 1, sizeof *p->shares);
	for (; p->nshares < m->shares.n; p->nshares++)
		p->shares[p->nshares] = m->shares.v[p->nshares];
	p->place = xcalloc(m->places.n + 1, sizeof *p->place);
	for (; p->nplaces < m->places.n; p->nplaces++)
		p->place[p->nplaces] = dup_slice(m->places.v[p->nplaces]);
	return 0;
}

static int read_version(struct reading *r, const struct m_version *m)
{
	struct plan *p = r->p;

	if (m->format != PLAN_FORMAT)
		return bad(r, "format %u, this program reads %d", m->format,
			   PLAN_FORMAT);
	p->model = dup_slice(m->model);
	p->transport = dup_slice(m->transport);
	p->disk_dir = dup_slice(m->disk_dir);
	p->structure = m->structure;
	p->rank = xcalloc(m->sources.n, sizeof *p->rank);
	for (; p->nranks < m->sources.n; p->nranks++)
		p->rank[p->nranks].source = dup_slice(m->sources.v[p->nranks]);
	return p->nranks ? read_again(r, m) : bad(r, "no source");
}

/* Relative, and every part of it goes down. */
static bool path_stays_below(struct slice path)
{
	size_t part = 0;

	for (size_t i = 0; i <= path.n; i++) {
		if (i < path.n && path.p[i] != '/')
			continue;
		if (i == part || (i - part == 1 && path.p[part] == '.') ||
		    (i - part == 2 && memcmp(path.p + part, "..", 2) == 0))
			return false;
		part = i + 1;
	}
	return true;
}

/* Files come rank after rank. */
static int add_to_rank(struct reading *r, const struct m_file *m)
{
	struct plan *p = r->p;
	struct plan_rank *k;

	if (m->rank >= p->nranks ||
	    (m->id && p->file[m->id - 1].rank > m->rank))
		return bad(r, "file %u of rank %u is out of order", m->id,
			   m->rank);
	k = &p->rank[m->rank];
	if (k->files++ == 0)
		k->first = m->id;
	if (__builtin_add_overflow(k->bytes, m->bytes, &k->bytes))
		return bad(r, "the sum of bytes overflows");
	return 0;
}

static int read_file(struct reading *r, const struct m_file *m)
{
	struct plan *p = r->p;
	int rc;

	if (m->id != p->nfiles)
		return bad(r, "file %u, should be %u", m->id, p->nfiles);
	if (!path_stays_below(m->path))
		return bad(r, "path \"%.*s\" leaves the source",
			   SLICE_ARG(m->path));
	if (m->kind >= FILE_N || m->header > m->bytes)
		return bad(r, "file %u: kind %u, header %llu of %llu bytes",
			   m->id, m->kind, (unsigned long long)m->header,
			   (unsigned long long)m->bytes);
	rc = add_to_rank(r, m);
	if (rc < 0)
		return rc;
	p->file = grown(p->file, p->nfiles, &r->file_cap, sizeof *p->file);
	p->file[p->nfiles++] = (struct plan_file){
		.path = dup_slice(m->path),
		.rank = m->rank,
		.bytes = m->bytes,
		.header = m->header,
		.dev = m->dev,
		.ino = m->ino,
		.mtime_ns = m->mtime_ns,
		.digest = m->digest,
		.kind = m->kind,
	};
	return 0;
}

static void add_receiver(struct reading *r, struct slice endpoint,
			 uint32_t worker)
{
	struct plan *p = r->p;

	p->receiver = grown(p->receiver, p->nreceivers, &r->receiver_cap,
			    sizeof *p->receiver);
	p->receiver[p->nreceivers++] = (struct plan_receiver){
		.endpoint = dup_slice(endpoint),
		.engine = p->nengines,
		.rank = p->nranks > 1 ? worker : 0,
		.worker = worker,
	};
}

static bool is_at(const struct plan_receiver *rx, struct slice endpoint)
{
	return slice_eq(slice_of(rx->endpoint), endpoint);
}

/* Workers of one receiver stand together: a receiver has one range. */
static int add_receivers(struct reading *r, const struct m_engine *m,
			 uint32_t first)
{
	struct plan *p = r->p;

	for (uint32_t w = 0; w < m->workers.n; w++) {
		struct slice at = m->workers.v[w];

		if (w == 0 || !is_at(&p->receiver[p->nreceivers - 1], at)) {
			for (uint32_t i = first; i < p->nreceivers; i++)
				if (is_at(&p->receiver[i], at))
					return bad(r,
						   "engine %u: workers of "
						   "%.*s are not adjacent",
						   m->id, SLICE_ARG(at));
			add_receiver(r, at, w);
		}
		p->receiver[p->nreceivers - 1].workers++;
	}
	return 0;
}

static int read_engine(struct reading *r, const struct m_engine *m)
{
	struct plan *p = r->p;
	uint32_t first = p->nreceivers;
	int rc;

	if (m->id != p->nengines)
		return bad(r, "engine %u, should be %u", m->id, p->nengines);
	if (m->kind >= ENGINE_N)
		return bad(r, "engine %u: kind %u", m->id, m->kind);
	if (m->workers.n == 0 && (m->kind == ENGINE_NATIVE || p->nranks > 1))
		return bad(r, "engine %u has no workers", m->id);
	rc = add_receivers(r, m, first);
	if (rc < 0)
		return rc;
	if (p->nranks > 1 &&
	    (m->workers.n != p->nranks || p->nreceivers - first != p->nranks))
		return bad(r,
			   "engine %u: %u workers at %u receivers, there "
			   "are %u source ranks",
			   m->id, m->workers.n, p->nreceivers - first,
			   p->nranks);
	p->engine = grown(p->engine, p->nengines, &r->engine_cap,
			  sizeof *p->engine);
	p->engine[p->nengines++] = (struct plan_engine){
		.name = dup_slice(m->name),
		.url = dup_slice(m->url),
		.pull = dup_slice(m->pull),
		.kind = m->kind,
		.workers = m->workers.n,
		.first_receiver = first,
		.receivers = p->nreceivers - first,
	};
	return 0;
}

/* Every part lies in its file and its object, after the one before it. */
static int check_part(struct reading *r, const struct m_part *part,
		      const struct m_part *before)
{
	const struct plan *p = r->p;
	uint64_t end, done;

	if (part->kind >= PART_N || part->file >= p->nfiles)
		return bad(r, "part of kind %u, file %u", part->kind,
			   part->file);
	if (__builtin_add_overflow(part->offset, part->bytes, &end) ||
	    end > p->file[part->file].bytes)
		return bad(r, "part \"%.*s\" leaves its file",
			   SLICE_ARG(part->name));
	if (__builtin_add_overflow(part->start, part->bytes, &done) ||
	    done > part->total || part->start % DIGEST_LEAF)
		return bad(r, "part \"%.*s\" leaves its object",
			   SLICE_ARG(part->name));
	if (before && (before->file > part->file ||
		       (before->file == part->file &&
			before->offset + before->bytes > part->offset)))
		return bad(r, "part \"%.*s\" is out of order",
			   SLICE_ARG(part->name));
	return 0;
}

/* sum: of each rank. */
static int check_parts(struct reading *r, const struct m_bucket *m,
		       uint64_t *sum)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < m->parts.n; i++) {
		const struct m_part *part = &m->parts.v[i];
		int rc = check_part(r, part, i ? part - 1 : NULL);
		uint32_t rank;

		if (rc < 0)
			return rc;
		rank = r->p->file[part->file].rank;
		if (__builtin_add_overflow(sum[rank], part->bytes, &sum[rank]))
			return bad(r, "bucket %u: its size overflows", m->id);
		if (sum[rank] > largest)
			largest = sum[rank];
		r->p->rank[rank].tensors +=
			part->kind == PART_TENSOR && part->start == 0;
	}
	if (largest != m->bytes)
		return bad(r, "bucket %u: %llu bytes, its parts have %llu",
			   m->id, (unsigned long long)m->bytes,
			   (unsigned long long)largest);
	return 0;
}

/* Where the sums of this bucket's ranks go. */
static uint64_t *next_share(struct reading *r)
{
	struct plan *p = r->p;
	uint64_t *v;

	p->share = grown(p->share, p->nbuckets, &r->share_cap,
			 p->nranks * sizeof *p->share);
	v = p->share + (size_t)p->nbuckets * p->nranks;
	memset(v, 0, p->nranks * sizeof *v);
	return v;
}

static int read_bucket(struct reading *r, const struct m_bucket *m)
{
	struct plan *p = r->p;
	uint64_t sum = 0, *share = p->nranks > 1 ? next_share(r) : &sum;
	int rc;

	if (m->id != p->nbuckets)
		return bad(r, "bucket %u, should be %u", m->id, p->nbuckets);
	if (p->nbuckets == (ID_NONE - 1) / p->nranks)
		return bad(r, "too many buckets");
	rc = check_parts(r, m, share);
	if (rc < 0)
		return rc;
	for (uint32_t k = 0; k < p->nranks; k++)
		if (__builtin_add_overflow(r->bytes, share[k], &r->bytes))
			return bad(r, "the sum of bytes overflows");
	p->bucket = grown(p->bucket, p->nbuckets, &r->bucket_cap,
			  sizeof *p->bucket);
	p->bucket[p->nbuckets++] = (struct plan_bucket){
		.off = r->off,
		.bytes = m->bytes,
		.exclusive = m->exclusive,
	};
	return 0;
}

/* Every name is in every rank: expect.c makes room for so many. */
static int check_ranks(struct reading *r)
{
	const struct plan_rank *rank = r->p->rank;

	for (uint32_t k = 0; k < r->p->nranks; k++) {
		if (rank[k].files == 0)
			return bad(r, "rank %u has no files", k);
		if (rank[k].tensors != rank[0].tensors)
			return bad(r, "rank %u has %llu tensors, rank 0 %llu",
				   k, (unsigned long long)rank[k].tensors,
				   (unsigned long long)rank[0].tensors);
	}
	return 0;
}

static int read_end(struct reading *r, const struct m_end *m)
{
	struct plan *p = r->p;
	struct digest d;
	int rc;

	digest_end(&r->digest, &d);
	if (m->records != r->records || m->files != p->nfiles ||
	    m->engines != p->nengines || m->buckets != p->nbuckets ||
	    m->tensors != p->rank[0].tensors || m->bytes != r->bytes)
		return bad(r, "the sums of the end record differ");
	if (!digest_eq(&d, &m->digest))
		return bad(r, "the digest of the end record differs");
	if (p->nengines == 0 || p->nbuckets == 0)
		return bad(r, "the plan is empty");
	rc = check_ranks(r);
	if (rc < 0)
		return rc;
	p->tensors = m->tensors;
	p->bytes = m->bytes;
	p->end = *m;
	r->ended = true;
	return 0;
}

static int read_record(struct reading *r, const struct msg *m)
{
	/* Numbers of the plan's records rise in the order of the file. */
	bool first = r->last == MSG_NONE;

	if (r->ended || m->type < r->last || first != (m->type == M_version))
		return bad(r, "\"%s\" is out of order", msg_name(m->type));
	r->last = m->type;
	switch (m->type) {
	case M_version:
		return read_version(r, &m->version);
	case M_file:
		return read_file(r, &m->file);
	case M_engine:
		return read_engine(r, &m->engine);
	case M_bucket:
		return read_bucket(r, &m->bucket);
	case M_end:
		return read_end(r, &m->end);
	default:
		return bad(r, "\"%s\" is no record of a plan",
			   msg_name(m->type));
	}
}

static int read_all(struct reading *r)
{
	struct rec_reader *rec = &r->p->rec;
	struct msg_arena a = { 0 };
	struct slice frame;
	struct msg m;
	int rc;

	for (;;) {
		r->off = rec->off;
		rc = rec_next(rec, &m, &a);
		if (rc <= 0)
			break;
		rc = read_record(r, &m);
		if (rc < 0)
			break;
		rec->off = r->off;
		rec_next_frame(rec, &frame);
		digest_add(&r->digest, frame.p, frame.n);
		r->records++;
	}
	msg_arena_release(&a);
	if (rc == 0 && !r->ended)
		return bad(r, "the plan stops without an end record");
	return rc;
}

int plan_open(struct plan *p, int dirfd, const char *name)
{
	struct reading r = { .p = p };
	int rc;

	*p = (struct plan){ 0 };
	rc = rec_open_map(&p->rec, dirfd, name);
	if (rc < 0)
		return rc;
	digest_begin(&r.digest);
	rc = read_all(&r);
	if (rc < 0)
		plan_close(p);
	return rc;
}

void plan_close(struct plan *p)
{
	for (uint32_t i = 0; i < p->nfiles; i++)
		free(p->file[i].path);
	for (uint32_t i = 0; i < p->nengines; i++) {
		free(p->engine[i].name);
		free(p->engine[i].url);
		free(p->engine[i].pull);
	}
	for (uint32_t i = 0; i < p->nreceivers; i++)
		free(p->receiver[i].endpoint);
	for (uint32_t i = 0; i < p->nranks; i++)
		free(p->rank[i].source);
	for (uint32_t i = 0; i < p->nplaces; i++)
		free(p->place[i]);
	free(p->rank);
	free(p->share);
	free(p->place);
	free(p->shares);
	free(p->file);
	free(p->engine);
	free(p->receiver);
	free(p->bucket);
	free(p->model);
	free(p->transport);
	free(p->disk_dir);
	rec_close(&p->rec);
	*p = (struct plan){ 0 };
}

uint32_t plan_staged(const struct plan *p)
{
	uint32_t n = 0;

	while (n < p->nengines && p->engine[n].kind == ENGINE_NATIVE)
		n++;
	return n;
}

uint64_t plan_share(const struct plan *p, uint32_t b, uint32_t rank)
{
	return p->nranks > 1 ? p->share[(size_t)b * p->nranks + rank]
			     : p->bucket[b].bytes;
}

uint64_t plan_bucket_bytes(const struct plan *p, uint32_t b)
{
	uint64_t sum = 0;

	for (uint32_t k = 0; k < p->nranks; k++)
		sum += plan_share(p, b, k);
	return sum;
}

int plan_bucket(const struct plan *p, uint32_t b, struct msg *m,
		struct msg_arena *a)
{
	struct rec_reader at = p->rec;
	int rc;

	BUG_ON(b >= p->nbuckets);
	at.off = p->bucket[b].off;
	rc = rec_next(&at, m, a);
	return rc < 0 ? rc : 0;
}

int plan_largest_tensor(const struct plan *p, uint32_t b, char *out,
			size_t size, uint64_t *bytes)
{
	const struct m_part *largest = NULL;
	struct msg_arena a = { 0 };
	struct msg m;
	int rc = plan_bucket(p, b, &m, &a);

	for (uint32_t i = 0; rc == 0 && i < m.bucket.parts.n; i++) {
		const struct m_part *part = &m.bucket.parts.v[i];

		if (part->kind == PART_TENSOR &&
		    (!largest || part->bytes > largest->bytes))
			largest = part;
	}
	if (rc == 0) {
		snprintf(out, size, "%.*s", largest ? (int)largest->name.n : 0,
			 largest ? largest->name.p : "");
		*bytes = largest ? largest->bytes : 0;
	}
	msg_arena_release(&a);
	return rc;
}

static void add_part(const struct plan *p, const struct m_part *part,
		     struct buf *out)
{
	if (part->kind == PART_TENSOR)
		buf_addf(out, "tensor \"%.*s\"", SLICE_ARG(part->name));
	else
		buf_addf(out, "%s %s",
			 part->kind == PART_HEADER ? "header of" : "file",
			 p->file[part->file].path);
}

int plan_bucket_text(const struct plan *p, uint32_t b, struct buf *out)
{
	struct msg_arena a = { 0 };
	struct msg m;
	int rc = plan_bucket(p, b, &m, &a);

	if (rc == 0 && m.bucket.parts.n > 0) {
		add_part(p, &m.bucket.parts.v[0], out);
		if (m.bucket.parts.n > 1) {
			buf_addf(out, " to ");
			add_part(p, &m.bucket.parts.v[m.bucket.parts.n - 1],
				 out);
		}
	}
	msg_arena_release(&a);
	return rc;
}
