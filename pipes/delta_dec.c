#include "pipes/delta_dec.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/beside.h"
#include "pipes/carry.h"

#include <stdlib.h>
#include <string.h>

#define ELEMENT_MAX 8u		   /* bytes; a piece ends between two */
#define ROOM (DELTA_PIECE + XPAGE) /* of a piece from anywhere in a page on */

_Static_assert(DEC_POINTS * 5 <= DELTA_PIECE, "they fit in work");

struct pass {
	struct dec *d;
	const struct dec_tensor *t;
	struct digest_state leaf[2]; /* old, new */
	struct checksum sum;
	bool is_one_leaf; /* whose digest is the checksum */
};

static uint8_t *piece(struct dec *d)
{
	return d->piece;
}

static uint8_t *work(struct dec *d)
{
	return d->box + ROOM;
}

static int more(void *arg, const void **p, size_t *n)
{
	struct dec_feed *f = arg;
	uint64_t left = f->end - f->at;
	uint8_t *box = f->box + f->at % XPAGE;
	int got = io_pread_full(f->fd, box, left < DEC_FEED ? left : DEC_FEED,
				(off_t)f->at);

	if (got < 0)
		return got;
	*p = box;
	*n = (size_t)got;
	f->at += (uint64_t)got;
	return 0;
}

static int damaged(const struct dec_tensor *t, const char *what)
{
	return log_error(E_DATA, "%s/%s: tensor \"%.*s\": %s",
			 t->delta->dir.path, t->delta->file[t->t->file].path,
			 SLICE_ARG(t->t->name), what);
}

static int begin_frame(struct dec *d, const struct dec_tensor *t, int which)
{
	struct dec_feed *f = &d->feed[which];
	int rc;

	if (!f->box)
		f->box = xpages(DEC_FEED_BOX);
	f->fd = t->packed;
	f->at = t->t->offset;
	f->end = t->t->offset + t->t->bytes;
	rc = zread_begin(&d->z[which], more, f);
	return rc == -E_DATA ? damaged(t, "its payload is no zstd frame") : rc;
}

static bool has_other_size(const struct zread *z, uint64_t want)
{
	return z->total != ZFRAME_UNKNOWN && z->total != want;
}

/* If it could not be read, that has been said. */
static int broken(const struct dec_tensor *t, int rc)
{
	if (rc != -E_DATA)
		return rc;
	return damaged(t, "its payload is damaged, or not a patch of such a "
			  "tensor");
}

/* ---- xor ---- */

static int begin_xor(struct dec *d, const struct dec_tensor *t)
{
	int rc = begin_frame(d, t, 0);

	if (rc == 0 && has_other_size(&d->z[0], t->bytes))
		rc = log_error(E_DATA,
			       "%s/%s: tensor \"%.*s\": its payload unpacks to "
			       "%llu bytes, the tensor has %llu",
			       t->delta->dir.path,
			       t->delta->file[t->t->file].path,
			       SLICE_ARG(t->t->name),
			       (unsigned long long)d->z[0].total,
			       (unsigned long long)t->bytes);
	return rc;
}

static int xor_piece(struct dec *d, uint64_t off, size_t n)
{
	int rc = zread_get(&d->z[0], work(d), n);

	(void)off;
	return rc < 0 ? rc : patch_xor_into(piece(d), work(d), n);
}

static int end_xor(struct dec *d)
{
	return zread_end(&d->z[0]);
}

/* ---- overwrite ---- */

static uint32_t le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	       (uint32_t)p[3] << 24;
}

/* One reader at the positions, one at the values. */
static int begin_overwrite(struct dec *d, const struct dec_tensor *t)
{
	uint8_t head[4];
	int rc = begin_frame(d, t, 0);

	if (rc == 0)
		rc = begin_frame(d, t, 1);
	if (rc < 0)
		return rc;
	rc = zread_get(&d->z[0], head, sizeof head);
	if (rc < 0)
		return broken(t, rc);
	d->left = le32(head);
	d->n = 0;
	d->at = 0;
	if (d->left > t->bytes ||
	    has_other_size(&d->z[0], sizeof head + UINT64_C(5) * d->left))
		return broken(t, -E_DATA);
	rc = zread_skip(&d->z[1], sizeof head + UINT64_C(4) * d->left);
	return broken(t, rc);
}

static int get_points(struct dec *d)
{
	uint32_t n = d->left < DEC_POINTS ? d->left : DEC_POINTS;
	int rc = zread_get(&d->z[0], work(d), 4 * (size_t)n);

	if (rc == 0)
		rc = zread_get(&d->z[1], work(d) + 4 * DEC_POINTS, n);
	d->left -= n;
	d->n = n;
	d->at = 0;
	return rc;
}

/* Positions only rise: one that does not is before the piece, or falls upon
 * the one before it. */
static int overwrite_piece(struct dec *d, uint64_t off, size_t n)
{
	uint64_t next = off, end = off + n;

	for (;;) {
		int rc = d->at == d->n && d->left > 0 ? get_points(d) : 0;
		uint32_t at;

		if (rc < 0)
			return rc;
		if (d->at == d->n)
			break;
		at = le32(work(d) + 4 * (size_t)d->at);
		if (at < next)
			return -E_DATA;
		if (at >= end)
			break;
		piece(d)[at - off] = work(d)[4 * DEC_POINTS + d->at++];
		next = (uint64_t)at + 1;
	}
	return next > off;
}

static int end_overwrite(struct dec *d)
{
	return d->left > 0 || d->at < d->n ? -E_DATA : zread_end(&d->z[1]);
}

/* ---- sparse ---- */

/* A call reads less than some of them have. */
static int read_payload(struct dec *d, const struct dec_tensor *t)
{
	uint64_t n = t->t->bytes;
	int got = 1;

	buf_clear(&d->payload);
	buf_reserve(&d->payload, n);
	while (got > 0 && d->payload.n < n) {
		uint64_t left = n - d->payload.n;

		got = io_pread_full(t->packed, d->payload.p + d->payload.n,
				    left < DEC_FEED ? left : DEC_FEED,
				    (off_t)(t->t->offset + d->payload.n));
		d->payload.n += got > 0 ? (size_t)got : 0;
	}
	return got < 0 ? got : 0;
}

static int begin_sparse(struct dec *d, const struct dec_tensor *t)
{
	uint64_t n = t->t->bytes;
	int rc;

	if (n > sparse_bound(t->element, t->bytes))
		return broken(t, -E_DATA);
	rc = read_payload(d, t);
	if (rc < 0)
		return rc;
	if (d->payload.n < n || sparse_open(&d->sparse, buf_slice(&d->payload),
					    t->element, t->bytes) < 0)
		return broken(t, -E_DATA);
	return 0;
}

static int sparse_piece(struct dec *d, uint64_t off, size_t n)
{
	return sparse_apply(&d->sparse, piece(d), off, n);
}

static int end_sparse(struct dec *d)
{
	return sparse_close(&d->sparse);
}

static const struct {
	int (*begin)(struct dec *d, const struct dec_tensor *t); /* logs */
	/* 1: something changed, 0: not; the rest is not logged. */
	int (*piece)(struct dec *d, uint64_t off, size_t n);
	int (*end)(struct dec *d);
} kinds[] = {
	[PATCH_XOR] = { begin_xor, xor_piece, end_xor },
	[PATCH_OVERWRITE] = { begin_overwrite, overwrite_piece, end_overwrite },
	[PATCH_SPARSE] = { begin_sparse, sparse_piece, end_sparse },
};
_Static_assert(COUNT(kinds) == PATCH_NKINDS, "all kinds");

/* ---- the whole ---- */

size_t dec_step(uint64_t offset, uint64_t bytes, uint64_t off)
{
	uint64_t n = DELTA_PIECE - (offset + off) % XPAGE;
	uint64_t leaf = DIGEST_LEAF - off % DIGEST_LEAF;

	n -= n % ELEMENT_MAX;
	n = n < leaf ? n : leaf;
	return n < bytes - off ? n : bytes - off;
}

static int read_old(const struct pass *p, uint64_t off, size_t n)
{
	uint64_t at = p->t->offset + off;
	int got;

	p->d->piece = p->d->box + at % XPAGE;
	got = io_pread_full(p->t->from, piece(p->d), n, (off_t)at);

	if (got < 0)
		return got;
	if ((size_t)got < n)
		return log_error(E_DATA, "%s became shorter while it was read",
				 p->t->name);
	return 0;
}

static int write_new(const struct pass *p, uint64_t off, size_t n)
{
	int rc = io_pwrite_full(p->t->to, piece(p->d), n,
				(off_t)(p->t->offset + off));

	if (rc < 0)
		return rc;
	if ((off + n) % DIGEST_LEAF == 0)
		carry_begin_sync(p->t->to, p->t->offset + off + n - DIGEST_LEAF,
				 DIGEST_LEAF);
	beside_tell("piece written");
	return 0;
}

static void hash(struct pass *p, int which, uint64_t off, size_t n)
{
	uint64_t end = off + n;

	if (off % DIGEST_LEAF == 0)
		digest_begin(&p->leaf[which]);
	digest_add(&p->leaf[which], piece(p->d), n);
	if (end % DIGEST_LEAF == 0 || end == p->t->bytes)
		digest_end(&p->leaf[which],
			   &p->t->leaf[which][off / DIGEST_LEAF]);
}

static int one_piece(struct pass *p, uint64_t off, size_t n)
{
	int rc = read_old(p, off, n), changed;

	if (rc < 0)
		return rc;
	hash(p, 0, off, n);
	changed = kinds[p->t->t->kind].piece(p->d, off, n);
	if (changed < 0)
		return broken(p->t, changed);
	hash(p, 1, off, n);
	if (!p->is_one_leaf)
		checksum_add(&p->sum, piece(p->d), n);
	return changed || !p->t->is_clone ? write_new(p, off, n) : 0;
}

static int check_sum(const struct pass *p)
{
	const struct dec_tensor *t = p->t;
	char have[CHECKSUM_HEX];

	if (p->is_one_leaf)
		digest_hex(&t->leaf[1][0], have);
	else
		checksum_end(&p->sum, have);
	if (strcmp(have, t->t->sum) == 0)
		return 0;
	return log_error(E_DATA,
			 "%s: tensor \"%.*s\": applied, its %s is %s; expected "
			 "%s: the base is another one, or the delta is damaged",
			 t->delta->dir.path, SLICE_ARG(t->t->name),
			 checksum_name(t->delta->checksum), have, t->t->sum);
}

static void make_boxes(struct dec *d)
{
	if (!d->box)
		d->box = xpages(ROOM + DELTA_PIECE);
}

int dec_run(struct dec *d, const struct dec_tensor *t)
{
	struct pass p = { .d = d, .t = t };
	size_t n;
	int rc;

	make_boxes(d);
	p.is_one_leaf = t->delta->checksum == CHECKSUM_XXH3 && t->bytes > 0 &&
			t->bytes <= DIGEST_LEAF;
	checksum_begin(&p.sum, t->delta->checksum);
	rc = kinds[t->t->kind].begin(d, t);
	for (uint64_t off = 0; rc == 0 && off < t->bytes; off += n) {
		n = dec_step(t->offset, t->bytes, off);
		rc = one_piece(&p, off, n);
	}
	if (rc == 0)
		rc = broken(t, kinds[t->t->kind].end(d));
	return rc < 0 ? rc : check_sum(&p);
}

/* Without the tensor: all that a frame can say by itself. */
int dec_check(struct dec *d, const struct dec_tensor *t)
{
	int rc;

	make_boxes(d);
	if (t->t->kind == PATCH_SPARSE)
		return begin_sparse(d, t);
	rc = begin_frame(d, t, 0);
	if (rc < 0)
		return rc;
	if (d->z[0].total == ZFRAME_UNKNOWN)
		return damaged(t, "its frame does not say its size");
	rc = zread_skip(&d->z[0], d->z[0].total);
	if (rc == 0)
		rc = zread_end(&d->z[0]);
	return broken(t, rc);
}

void dec_release(struct dec *d)
{
	free(d->box);
	for (int i = 0; i < 2; i++) {
		zread_release(&d->z[i]);
		free(d->feed[i].box);
	}
	buf_release(&d->payload);
	*d = (struct dec){ 0 };
}
