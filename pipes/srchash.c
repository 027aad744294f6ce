#include "pipes/srchash.h"

#include "common/cached.h"
#include "common/content.h"
#include "common/err.h"
#include "common/log.h"
#include "common/pieces.h"
#include "common/pool.h"

#include <stdlib.h>
#include <string.h>

#define WATCH_MS 200 /* a writer waits for a lease at most so long */
#define COLD_MIN ((uint64_t)1 << 20) /* smaller reads are not asked for */

enum { UNKNOWN, WANTED, HASHED };

/* What one thread hashes of a bucket. */
struct hash_part {
	struct job job; /* first: the pool's */
	struct hash_job *of;
	uint32_t first, n; /* into its pieces */
	uint64_t leaf;	   /* into its leaves */
	int rc;		   /* the worker's answer */
	uint32_t bad_file; /* of a failure */
};

/* A bucket that is hashed. */
struct hash_job {
	struct srchash *h;
	uint32_t bucket;
	struct hash_part *part; /* one for each thread */
	uint32_t nparts, left;
	int rc;
	uint32_t bad_file;
	struct buf leaves; /* struct digest each */
	struct buf pieces; /* struct piece each */
	bool is_cold;
};

struct srchash {
	struct loop *loop;
	struct srcfiles *files;
	const struct plan *plan;
	const struct srchash_ops *ops;
	void *arg;
	struct pool *pool;
	struct hash_job *job;
	uint32_t njobs;
	unsigned threads;
	uint8_t *state;	       /* per bucket */
	struct digest *digest; /* nranks of them per bucket */
	uint32_t *queue;       /* wanted, in order; a ring */
	uint32_t head, queued;
	uint32_t left; /* buckets not hashed in this pass */
	bool rest, second, failed;
	atomic_bool cancel;
	struct content *content; /* of each rank */
	struct digest *share;	 /* of each rank: of a bucket, of all */
	struct msg_arena arena;
	struct loop_timer watch, turn;
};

/* ---- worker ---- */

static void hash_part(struct job *job)
{
	struct hash_part *p = (struct hash_part *)job;
	const struct hash_job *j = p->of;
	const struct srcfiles *s = j->h->files;
	const struct piece *v =
		(const struct piece *)(const void *)j->pieces.p + p->first;
	struct digest *leaf = (struct digest *)(void *)j->leaves.p + p->leaf;
	struct window w = { 0 };

	p->rc = 0;
	for (uint32_t i = 0; p->rc == 0 && i < p->n; i++) {
		if (i == 0 || v[i].file != v[i - 1].file) {
			window_release(&w);
			window_init(&w, s->fd[v[i].file],
				    s->plan->file[v[i].file].bytes,
				    j->is_cold ? WINDOW_FROM_DISK
					       : WINDOW_AUTO);
		}
		p->bad_file = v[i].file;
		p->rc = piece_hash(&w, &v[i], leaf, &j->h->cancel);
		leaf += piece_leaves(&v[i]);
	}
	window_release(&w);
}

/* ---- owner ---- */

static void fail(struct srchash *h, uint32_t bucket, int code,
		 const char *cause)
{
	if (h->failed)
		return;
	h->failed = true;
	h->ops->failed(h->arg, bucket, code, cause);
}

/* A bucket's bytes on their way into parts. */
struct spread {
	struct hash_job *j;
	uint64_t share, room; /* bytes: of a part, of what is left of it */
	uint64_t leaves;
};

static void begin_part(struct spread *s)
{
	struct hash_job *j = s->j;
	struct hash_part *p = &j->part[j->nparts++];

	BUG_ON(j->nparts > j->h->threads);
	p->first = (uint32_t)(j->pieces.n / sizeof(struct piece));
	p->n = 0;
	p->leaf = s->leaves;
	s->room = s->share;
}

static void add_piece(struct spread *s, struct piece rest)
{
	struct hash_job *j = s->j;

	while (rest.bytes > 0) {
		struct piece head;

		if (s->room == 0)
			begin_part(s);
		head = piece_cut(&rest, s->room);
		buf_add(&j->pieces, &head, sizeof head);
		j->part[j->nparts - 1].n++;
		s->leaves += piece_leaves(&head);
		s->room -= head.bytes < s->room ? head.bytes : s->room;
	}
}

/* Evenly over the threads, in whole leaves; at least one part.  How many
 * leaves there are. */
static uint64_t spread(struct hash_job *j, const struct m_bucket *b)
{
	struct spread s = { .j = j };
	uint64_t bytes = 0; /* of all ranks */

	for (uint32_t i = 0; i < b->parts.n; i++)
		bytes += b->parts.v[i].bytes;
	s.share = bytes / j->h->threads + 1;
	if (s.share < DIGEST_LEAF)
		s.share = DIGEST_LEAF;
	begin_part(&s);
	for (uint32_t i = 0; i < b->parts.n; i++) {
		const struct m_part *p = &b->parts.v[i];

		add_piece(&s, (struct piece){ .file = p->file,
					      .offset = p->offset,
					      .bytes = p->bytes });
	}
	return s.leaves;
}

static int prepare(struct hash_job *j)
{
	struct srchash *h = j->h;
	uint64_t leaves;
	struct msg m;
	int rc = plan_bucket(h->plan, j->bucket, &m, &h->arena);

	if (rc < 0)
		return rc;
	buf_clear(&j->pieces);
	buf_clear(&j->leaves);
	j->nparts = 0;
	j->rc = 0;
	leaves = spread(j, &m.bucket);
	buf_reserve(&j->leaves, leaves * sizeof(struct digest));
	j->leaves.n = leaves * sizeof(struct digest);
	return 0;
}

static struct hash_job *free_job(struct srchash *h)
{
	for (uint32_t i = 0; i < h->njobs; i++)
		if (h->job[i].left == 0)
			return &h->job[i];
	return NULL;
}

static void submit(struct hash_job *j)
{
	j->left = j->nparts;
	for (uint32_t i = 0; i < j->nparts; i++)
		BUG_ON(pool_submit_take(j->h->pool, &j->part[i].job) < 0);
}

static void feed(struct srchash *h)
{
	struct hash_job *j;

	while (h->queued && !h->failed && (j = free_job(h))) {
		j->bucket = h->queue[h->head];
		h->head = (h->head + 1) % h->plan->nbuckets;
		h->queued--;
		if (prepare(j) < 0) {
			fail(h, j->bucket, E_DATA, log_cause());
			return;
		}
		j->is_cold = srchash_is_cold(h, j->bucket);
		submit(j);
	}
}

/* What a part is of; false: of a header, which is no content. */
static bool object_of(const struct srchash *h, const struct m_part *p,
		      enum content_kind *kind, struct slice *name)
{
	*kind = p->kind == PART_TENSOR ? CONTENT_TENSOR : CONTENT_CARRIED;
	*name = p->kind == PART_TENSOR ? p->name
				       : slice_of(h->plan->file[p->file].path);
	return p->kind != PART_HEADER;
}

static int fold(struct srchash *h, const struct hash_job *j)
{
	const struct digest *leaf = (const struct digest *)j->leaves.p;
	struct msg m;
	int rc = plan_bucket(h->plan, j->bucket, &m, &h->arena);

	for (uint32_t i = 0; rc == 0 && i < m.bucket.parts.n; i++) {
		const struct m_part *p = &m.bucket.parts.v[i];
		struct content *to = &h->content[h->plan->file[p->file].rank];
		uint32_t n = (uint32_t)content_leaves(p->bytes);
		enum content_kind kind;
		struct slice name;

		if (object_of(h, p, &kind, &name))
			rc = content_add(to, kind, name, p->total, p->start,
					 leaf, n);
		leaf += n;
	}
	return rc;
}

/* The first part of a bucket that is not what it was. */
static const struct m_part *find_changed(struct srchash *h,
					 const struct hash_job *j,
					 const struct m_bucket *b)
{
	const struct digest *leaf = (const struct digest *)j->leaves.p;

	for (uint32_t i = 0; i < b->parts.n; i++) {
		const struct m_part *p = &b->parts.v[i];
		struct content *c = &h->content[h->plan->file[p->file].rank];
		enum content_kind kind;
		struct slice name;

		if (object_of(h, p, &kind, &name) &&
		    content_differs(c, kind, name, p->start, leaf))
			return p;
		leaf += content_leaves(p->bytes);
	}
	return NULL;
}

static int finish_contents(struct srchash *h)
{
	int rc = 0;

	for (uint32_t r = 0; rc == 0 && r < h->plan->nranks; r++)
		rc = content_finish(&h->content[r], &h->share[r]);
	return rc;
}

static void end(struct srchash *h)
{
	/* Who hears of the failure says so. */
	int was = log_quiet_thread(1);
	int rc = srcfiles_check(h->files);

	if (rc == 0)
		rc = finish_contents(h);
	log_quiet_thread(was);
	if (rc < 0) {
		fail(h, ID_NONE, -rc, log_cause());
		return;
	}
	loop_disarm(h->loop, &h->watch);
	h->rest = false;
	h->ops->verified(h->arg, h->share,
			 h->second ? SOURCE_REREAD : SOURCE_LEASE);
}

/* A lease that was ever missing cannot vouch for what was read. */
static void second_pass(struct srchash *h)
{
	h->second = true;
	h->left = h->plan->nbuckets;
	for (uint32_t b = 0; b < h->plan->nbuckets; b++)
		h->queue[b] = b;
	h->head = 0;
	h->queued = h->plan->nbuckets;
	feed(h);
}

static void pass_is_over(struct srchash *h)
{
	if (!h->rest || h->left || h->failed)
		return;
	srcfiles_watch(h->files);
	if (!h->second && !srcfiles_are_leased(h->files))
		second_pass(h);
	else
		end(h);
}

static void fail_read(struct srchash *h, const struct hash_job *j)
{
	const struct plan_file *f = &h->plan->file[j->bad_file];
	char *cause = xasprintf(
		"%s/%s: bucket %u: %s", h->files->dir[f->rank].path, f->path,
		j->bucket,
		j->rc == -E_DATA ? "the file was truncated while it was sent"
				 : "cannot be read");

	fail(h, j->bucket, -j->rc, cause);
	free(cause);
}

/* If it is no part of the content, it is a header. */
static void changed(struct srchash *h, const struct hash_job *j, uint32_t rank)
{
	const struct m_part *p = NULL;
	const char *dir;
	struct buf cause = { 0 };
	struct msg m;

	if (plan_bucket(h->plan, j->bucket, &m, &h->arena) == 0)
		p = find_changed(h, j, &m.bucket);
	dir = h->files->dir[p ? h->plan->file[p->file].rank : rank].path;
	if (p)
		buf_addf(&cause, "%s/%s: ", dir, h->plan->file[p->file].path);
	else
		buf_addf(&cause, "%s: a header in ", dir);
	if (p && p->kind == PART_TENSOR)
		buf_addf(&cause, "tensor \"%.*s\" of ", SLICE_ARG(p->name));
	buf_addf(&cause, "bucket %u changed while it was sent", j->bucket);
	fail(h, j->bucket, E_DATA, buf_cstr(&cause));
	buf_release(&cause);
}

/* Pieces are in file order, and so in rank order. */
static void digest_shares(const struct srchash *h, const struct hash_job *j,
			  struct digest *out)
{
	const struct piece *p = (const void *)j->pieces.p;
	const struct piece *end = p + j->pieces.n / sizeof *p;
	const struct digest *leaf = (const struct digest *)j->leaves.p;

	for (uint32_t r = 0; r < h->plan->nranks; r++) {
		size_t n = 0;

		for (; p < end && h->plan->file[p->file].rank == r; p++)
			n += piece_leaves(p);
		leaves_digest(leaf, n, &out[r]);
		leaf += n;
	}
}

static void take_digest(struct srchash *h, const struct hash_job *j)
{
	uint32_t nranks = h->plan->nranks;
	struct digest *own = h->digest + (size_t)j->bucket * nranks;

	digest_shares(h, j, h->share);
	h->left--;
	for (uint32_t r = 0; h->second && r < nranks; r++)
		if (!digest_eq(&h->share[r], &own[r]))
			changed(h, j, r);
	if (h->second)
		return;
	memcpy(own, h->share, nranks * sizeof *own);
	h->state[j->bucket] = HASHED;
	if (fold(h, j) < 0) {
		fail(h, j->bucket, E_DATA, log_cause());
		return;
	}
	h->ops->hashed(h->arg, j->bucket, own);
}

static void end_part(struct srchash *h, const struct hash_part *p)
{
	struct hash_job *j = p->of;

	if (p->rc < 0 && j->rc == 0) {
		j->rc = p->rc;
		j->bad_file = p->bad_file;
	}
	if (--j->left > 0 || h->failed)
		return;
	if (j->rc < 0)
		fail_read(h, j);
	else
		take_digest(h, j);
}

static void pool_ready(void *arg)
{
	struct srchash *h = arg;
	struct job *job;

	while ((job = pool_next(h->pool)))
		end_part(h, (struct hash_part *)job);
	feed(h);
	pass_is_over(h);
}

static void on_watch(void *arg)
{
	struct srchash *h = arg;

	srcfiles_watch(h->files);
	loop_arm(h->loop, &h->watch, WATCH_MS);
}

static void on_turn(void *arg)
{
	feed(arg);
	pass_is_over(arg);
}

static void turn(struct srchash *h)
{
	loop_arm(h->loop, &h->turn, 0);
}

static void make_job(struct srchash *h, struct hash_job *j)
{
	j->h = h;
	j->part = xcalloc(h->threads, sizeof *j->part);
	for (unsigned i = 0; i < h->threads; i++)
		j->part[i] = (struct hash_part){ .job.fn = hash_part, .of = j };
}

struct srchash *srchash_new(struct loop *l, struct srcfiles *files,
			    unsigned threads, const struct srchash_ops *ops,
			    void *arg)
{
	struct srchash *h = xcalloc(1, sizeof(*h));
	uint32_t n = files->plan->nbuckets;

	*h = (struct srchash){ .loop = l,
			       .files = files,
			       .plan = files->plan,
			       .ops = ops,
			       .arg = arg,
			       .njobs = 2 * threads,
			       .threads = threads,
			       .left = n };
	h->pool = pool_new("weir-hash", threads, (size_t)h->njobs * threads);
	if (!h->pool) {
		free(h);
		return NULL;
	}
	h->job = xcalloc(h->njobs, sizeof(*h->job));
	for (uint32_t i = 0; i < h->njobs; i++)
		make_job(h, &h->job[i]);
	h->state = xcalloc(n, 1);
	h->digest =
		xcalloc((size_t)n * files->plan->nranks, sizeof(*h->digest));
	h->content = xcalloc(files->plan->nranks, sizeof(*h->content));
	h->share = xcalloc(files->plan->nranks, sizeof(*h->share));
	h->queue = xcalloc(n, sizeof(*h->queue));
	h->watch = (struct loop_timer){ .fn = on_watch, .arg = h };
	h->turn = (struct loop_timer){ .fn = on_turn, .arg = h };
	loop_add_fd(l, pool_fd(h->pool), pool_ready, h);
	loop_arm(l, &h->watch, WATCH_MS);
	return h;
}

void srchash_want(struct srchash *h, uint32_t bucket)
{
	if (h->state[bucket] != UNKNOWN)
		return;
	h->state[bucket] = WANTED;
	h->queue[(h->head + h->queued++) % h->plan->nbuckets] = bucket;
	turn(h);
}

bool srchash_is_hashed(const struct srchash *h, uint32_t bucket)
{
	return h->state[bucket] == HASHED;
}

/* Parts are in order of file and offset: one range for each file. */
bool srchash_is_cold(struct srchash *h, uint32_t bucket)
{
	struct msg m;
	const struct m_part *v, *first;

	if (h->plan->bucket[bucket].bytes < COLD_MIN ||
	    plan_bucket(h->plan, bucket, &m, &h->arena) < 0)
		return false;
	v = first = m.bucket.parts.v;
	for (uint32_t i = 0; i < m.bucket.parts.n; i++) {
		bool is_last =
			i + 1 == m.bucket.parts.n || v[i + 1].file != v[i].file;

		if (!is_last)
			continue;
		if (!cached_is_warm(h->files->fd[v[i].file], first->offset,
				    v[i].offset + v[i].bytes - first->offset))
			return true;
		first = &v[i + 1];
	}
	return false;
}

void srchash_rest(struct srchash *h)
{
	h->rest = true;
	for (uint32_t b = 0; b < h->plan->nbuckets; b++)
		srchash_want(h, b);
	turn(h);
}

void srchash_free(struct srchash *h)
{
	if (!h)
		return;
	atomic_store(&h->cancel, true);
	loop_disarm(h->loop, &h->watch);
	loop_disarm(h->loop, &h->turn);
	loop_del_fd(h->loop, pool_fd(h->pool));
	pool_free(h->pool);
	for (uint32_t i = 0; i < h->njobs; i++) {
		buf_release(&h->job[i].leaves);
		buf_release(&h->job[i].pieces);
		free(h->job[i].part);
	}
	free(h->job);
	free(h->state);
	free(h->digest);
	free(h->queue);
	for (uint32_t r = 0; r < h->plan->nranks; r++)
		content_release(&h->content[r]);
	free(h->content);
	free(h->share);
	msg_arena_release(&h->arena);
	free(h);
}
