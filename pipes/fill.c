#include "pipes/fill.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

/* Bytes claimed of a file: ordered, apart from each other.  Buckets are runs
 * of neighbours, so there are few of them. */
struct fill_runs {
	struct run_of {
		uint64_t begin, end;
	} * v;
	uint32_t n, cap;
};

void fill_init(struct fill *f, const struct store_slot *slot, uint32_t nbuckets)
{
	*f = (struct fill){ .slot = slot, .nbuckets = nbuckets };
	f->bucket = xcalloc(nbuckets, sizeof *f->bucket);
	f->runs = xcalloc(slot->nfiles, sizeof *f->runs);
}

void fill_release(struct fill *f)
{
	for (uint32_t i = 0; f->runs && i < f->slot->nfiles; i++)
		free(f->runs[i].v);
	free(f->runs);
	free(f->bucket);
	free(f->piece);
	buf_release(&f->leaves);
	*f = (struct fill){ 0 };
}

/* The first run that ends after off. */
static uint32_t find_run(const struct fill_runs *r, uint64_t off)
{
	uint32_t lo = 0, hi = r->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (r->v[mid].end > off)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static bool is_free(const struct fill_runs *r, uint64_t begin, uint64_t end)
{
	uint32_t i = find_run(r, begin);

	return i == r->n || r->v[i].begin >= end;
}

static void add_run(struct fill_runs *r, uint64_t begin, uint64_t end)
{
	uint32_t i = find_run(r, begin);
	bool left = i > 0 && r->v[i - 1].end == begin;
	bool right = i < r->n && r->v[i].begin == end;

	if (left && right) {
		r->v[i - 1].end = r->v[i].end;
		memmove(&r->v[i], &r->v[i + 1], (--r->n - i) * sizeof *r->v);
	} else if (left) {
		r->v[i - 1].end = end;
	} else if (right) {
		r->v[i].begin = begin;
	} else {
		if (r->n == r->cap) {
			r->cap = r->cap ? 2 * r->cap : 4;
			r->v = xreallocarray(r->v, r->cap, sizeof *r->v);
		}
		memmove(&r->v[i + 1], &r->v[i], (r->n++ - i) * sizeof *r->v);
		r->v[i] = (struct run_of){ begin, end };
	}
}

static int bad(const struct m_offer *o, uint32_t i, const char *what)
{
	const struct m_piece *p = &o->pieces.v[i];

	return log_error(
		E_PROTO, "bucket %u: piece %u (file %u, %llu bytes at %llu) %s",
		o->bucket, i, p->file, (ull)p->bytes, (ull)p->offset, what);
}

static int check_piece(const struct fill *f, const struct m_offer *o,
		       uint32_t i)
{
	const struct m_piece *p = &o->pieces.v[i], *prev = p - 1;
	uint64_t end;

	if (p->file >= f->slot->nfiles)
		return bad(o, i, "is of an unknown file");
	if (p->bytes == 0 ||
	    __builtin_add_overflow(p->offset, p->bytes, &end) ||
	    end > f->slot->file[p->file].bytes)
		return bad(o, i, "is not within the file");
	if (i > 0 &&
	    (prev->file > p->file ||
	     (prev->file == p->file && prev->offset + prev->bytes > p->offset)))
		return bad(o, i, "overlaps the one before or is out of order");
	return 0;
}

static int check_offer(const struct fill *f, const struct m_offer *o)
{
	uint64_t sum = 0;

	if (o->bucket >= f->nbuckets)
		return log_error(E_PROTO, "bucket %u: only %u have begun",
				 o->bucket, f->nbuckets);
	for (uint32_t i = 0; i < o->pieces.n; i++) {
		int rc = check_piece(f, o, i);

		if (rc < 0)
			return rc;
		sum += o->pieces.v[i].bytes; /* at most the files' sizes */
	}
	if (sum != o->bytes)
		return log_error(E_PROTO,
				 "bucket %u: its pieces have %llu bytes, it is "
				 "said to have %llu",
				 o->bucket, (ull)sum, (ull)o->bytes);
	return 0;
}

static int check_again(const struct fill *f, const struct m_offer *o)
{
	const struct fill_bucket *b = &f->bucket[o->bucket];
	bool same = b->n == o->pieces.n;

	for (uint32_t i = 0; same && i < b->n; i++) {
		const struct piece *mine = &f->piece[b->first + i].p;
		const struct m_piece *p = &o->pieces.v[i];

		same = mine->file == p->file && mine->offset == p->offset &&
		       mine->bytes == p->bytes;
	}
	if (same)
		return 0;
	return log_error(E_PROTO, "bucket %u: offered with other pieces before",
			 o->bucket);
}

static void add_piece(struct fill *f, const struct m_piece *m)
{
	struct fill_piece *p;
	size_t leaves;

	if (f->npieces == f->cap) {
		f->cap = f->cap ? f->cap + f->cap / 2 : 64;
		f->piece = xreallocarray(f->piece, f->cap, sizeof *f->piece);
	}
	p = &f->piece[f->npieces++];
	*p = (struct fill_piece){
		.p = { m->file, m->offset, m->bytes },
		.leaf = (uint32_t)(f->leaves.n / sizeof(struct digest)),
	};
	leaves = piece_leaves(&p->p) * sizeof(struct digest);
	memset(buf_reserve(&f->leaves, leaves), 0, leaves);
	f->leaves.n += leaves;
	add_run(&f->runs[m->file], m->offset, m->offset + m->bytes);
}

int fill_claim(struct fill *f, const struct m_offer *o)
{
	int rc = check_offer(f, o);

	if (rc < 0)
		return rc;
	if (f->bucket[o->bucket].state != FILL_UNKNOWN)
		return check_again(f, o);
	if (o->pieces.n > FILL_PIECES_MAX - f->npieces)
		return log_error(E_PROTO, "bucket %u: more than %u pieces",
				 o->bucket, FILL_PIECES_MAX);
	for (uint32_t i = 0; i < o->pieces.n; i++) {
		const struct m_piece *p = &o->pieces.v[i];

		if (!is_free(&f->runs[p->file], p->offset,
			     p->offset + p->bytes))
			return bad(o, i, "overlaps what another bucket has");
	}
	f->bucket[o->bucket] = (struct fill_bucket){
		.bytes = o->bytes,
		.first = f->npieces,
		.n = o->pieces.n,
		.state = FILL_CLAIMED,
	};
	for (uint32_t i = 0; i < o->pieces.n; i++)
		add_piece(f, &o->pieces.v[i]);
	return 0;
}

uint32_t fill_bucket_leaves(const struct fill *f, uint32_t bucket)
{
	const struct fill_bucket *b = &f->bucket[bucket];
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n; i++)
		n += (uint32_t)piece_leaves(&f->piece[b->first + i].p);
	return n;
}

void fill_hold(struct fill *f, uint32_t bucket, const struct digest *leaf)
{
	struct fill_bucket *b = &f->bucket[bucket];
	uint32_t n = fill_bucket_leaves(f, bucket);

	BUG_ON(b->state != FILL_CLAIMED);
	if (n > 0)
		memcpy(f->leaves.p + f->piece[b->first].leaf * sizeof *leaf,
		       leaf, n * sizeof *leaf);
	leaves_digest(leaf, n, &b->digest);
	b->state = FILL_HELD;
	f->held++;
}

void fill_bitmap(const struct fill *f, struct buf *out)
{
	size_t n = (f->nbuckets + 7) / 8;
	char *p = buf_reserve(out, n);

	memset(p, 0, n);
	for (uint32_t b = 0; b < f->nbuckets; b++)
		if (f->bucket[b].state == FILL_HELD)
			p[b / 8] |= (char)(1 << b % 8);
	out->n += n;
}

int fill_check(const struct fill *f)
{
	for (uint32_t i = 0; i < f->slot->nfiles; i++) {
		const struct fill_runs *r = &f->runs[i];
		uint64_t size = f->slot->file[i].bytes;
		uint64_t begin = 0;

		if (size == 0 ||
		    (r->n == 1 && r->v[0].begin == 0 && r->v[0].end == size))
			continue;
		if (r->n > 0 && r->v[0].begin == 0)
			begin = r->v[0].end;
		return log_error(E_DATA,
				 "%s: nothing arrived for the bytes from %llu "
				 "on",
				 f->slot->file[i].path, (ull)begin);
	}
	return 0;
}

static int cmp_place(const void *a, const void *b, void *arg)
{
	const struct fill *f = arg;
	const struct piece *x = &f->piece[*(const uint32_t *)a].p;
	const struct piece *y = &f->piece[*(const uint32_t *)b].p;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

uint32_t *fill_order(const struct fill *f)
{
	uint32_t *order = xreallocarray(NULL, f->npieces + 1, sizeof *order);

	for (uint32_t i = 0; i < f->npieces; i++)
		order[i] = i;
	qsort_r(order, f->npieces, sizeof *order, cmp_place,
		(void *)(uintptr_t)f);
	return order;
}

const struct digest *fill_leaf(const struct fill *f, const struct fill_piece *p)
{
	return (const struct digest *)f->leaves.p + p->leaf;
}
