#include "pipes/delta_enc.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

#define ROOM (DELTA_PIECE + XPAGE) /* of a piece from anywhere in a page on */
#define WORK (5 * DELTA_PIECE)	   /* positions and values of a piece */

_Static_assert(DIGEST_LEAF % DELTA_PIECE == 0, "a piece is in one leaf");

/* The first pass over a tensor. */
struct pass {
	struct enc *e;
	const struct enc_tensor *t;
	struct digest_state leaf[2];
	bool split; /* the two differ in this leaf: leaf[0] counts */
	struct checksum sum;
	bool is_one_leaf; /* whose digest is the checksum */
	bool gave_up;	  /* sparse does not pay; too many points to keep */
	uint64_t count;	  /* of overwrite: bytes that differ */
};

/* Of the n bytes from off on, which have been read. */
typedef void piece_fn(struct pass *p, uint64_t off, size_t n);

static const uint8_t zeros[DELTA_PIECE];

static uint8_t *old_piece(struct enc *e)
{
	return e->piece[0];
}

static uint8_t *new_piece(struct enc *e)
{
	return e->piece[1];
}

static uint8_t *work(struct enc *e)
{
	return e->box + 2 * ROOM;
}

static int read_one(struct enc *e, const struct enc_tensor *t, int which,
		    uint64_t off, size_t n)
{
	uint64_t at = t->offset[which] + off;
	uint8_t *p = e->box + (size_t)which * ROOM + at % XPAGE;
	int got = io_pread_full(t->fd[which], p, n, (off_t)at);

	e->piece[which] = p;
	if (got < 0)
		return log_errno(E_IO, "read %s", t->name[which]);
	if ((size_t)got < n)
		return log_error(E_DATA, "%s became shorter while it was read",
				 t->name[which]);
	return 0;
}

static int read_piece(struct enc *e, const struct enc_tensor *t, uint64_t off,
		      size_t n)
{
	int rc = read_one(e, t, 0, off, n);

	return rc < 0 ? rc : read_one(e, t, 1, off, n);
}

static size_t piece_at(const struct enc_tensor *t, uint64_t off)
{
	return t->bytes - off < DELTA_PIECE ? (size_t)(t->bytes - off)
					    : DELTA_PIECE;
}

/* Another pass, over what is cached by now. */
static int each_piece(struct pass *p, piece_fn *fn)
{
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && off < p->t->bytes;
	     off += DELTA_PIECE) {
		size_t n = piece_at(p->t, off);

		rc = read_piece(p->e, p->t, off, n);
		if (rc == 0)
			fn(p, off, n);
	}
	return rc;
}

/* ---- digests ---- */

/* One hash serves both until they differ. */
static void hash_piece(struct pass *p, uint64_t off, size_t n, bool same)
{
	struct enc *e = p->e;
	uint64_t end = off + n;

	if (off % DIGEST_LEAF == 0) {
		digest_begin(&p->leaf[1]);
		p->split = false;
	}
	if (!same && !p->split) {
		p->leaf[0] = p->leaf[1];
		p->split = true;
	}
	digest_add(&p->leaf[1], new_piece(e), n);
	if (p->split)
		digest_add(&p->leaf[0], old_piece(e), n);
	if (!p->is_one_leaf)
		checksum_add(&p->sum, new_piece(e), n);
	if (end % DIGEST_LEAF && end != p->t->bytes)
		return;
	digest_end(&p->leaf[1], &p->t->leaf[1][off / DIGEST_LEAF]);
	digest_end(&p->leaf[p->split ? 0 : 1],
		   &p->t->leaf[0][off / DIGEST_LEAF]);
}

static void end_sum(struct pass *p)
{
	if (p->is_one_leaf)
		digest_hex(&p->t->leaf[1][0], p->e->sum);
	else
		checksum_end(&p->sum, p->e->sum);
}

/* ---- encodings ---- */

static void pack_zeros(struct zpack *z, uint64_t n)
{
	while (n > 0) {
		size_t k = n < DELTA_PIECE ? (size_t)n : DELTA_PIECE;

		zpack_add(z, zeros, k);
		n -= k;
	}
}

static void xor_piece(struct pass *p, uint64_t off, size_t n)
{
	(void)off;
	patch_xor(work(p->e), old_piece(p->e), new_piece(p->e), n);
	zpack_add(&p->e->z, work(p->e), n);
}

static void sparse_piece(struct pass *p, const uint8_t *a, const uint8_t *b,
			 size_t n)
{
	uint64_t elements = p->t->bytes / p->t->element;
	uint64_t most =
		SPARSE_HEAD + elements / SPARSE_ONE_IN * (p->t->element + 1);

	sparse_add(&p->e->sparse, a, b, n);
	p->gave_up = p->t->encoding == DELTA_AUTO && p->e->out.n > most;
}

static size_t find_points(struct pass *p, uint64_t off, size_t n)
{
	struct enc *e = p->e;
	uint8_t *w = work(e);

	return patch_points(old_piece(e), new_piece(e), n, (uint32_t)off, w,
			    w + 4 * n);
}

static void overwrite_piece(struct pass *p, uint64_t off, size_t n)
{
	struct enc *e = p->e;
	size_t count = find_points(p, off, n);

	p->count += count;
	if (5 * p->count > ENC_POINTS_MAX && 5 * p->count > p->t->bytes / 2)
		p->gave_up = true;
	if (p->gave_up)
		return;
	buf_add(&e->at, work(e), 4 * count);
	buf_add(&e->value, work(e) + 4 * n, count);
}

/* At the first difference: what came before it is all the same. */
static void start(struct pass *p, uint64_t off)
{
	struct enc *e = p->e;

	e->changed = true;
	if (p->t->encoding == PATCH_XOR) {
		zpack_begin(&e->z, DELTA_LEVEL, p->t->bytes, &e->out);
		pack_zeros(&e->z, off);
	} else if (p->t->encoding != PATCH_OVERWRITE) {
		sparse_begin(&e->sparse, p->t->element, &e->out);
		sparse_skip(&e->sparse, off);
	}
}

static void encode_piece(struct pass *p, uint64_t off, size_t n, bool same)
{
	struct enc *e = p->e;

	if (p->t->encoding == PATCH_XOR && same)
		pack_zeros(&e->z, n);
	else if (p->t->encoding == PATCH_XOR)
		xor_piece(p, off, n);
	else if (p->t->encoding == PATCH_OVERWRITE)
		overwrite_piece(p, off, n);
	else if (same)
		sparse_skip(&e->sparse, n);
	else if (!p->gave_up)
		sparse_piece(p, old_piece(e), new_piece(e), n);
}

static int first_pass(struct pass *p)
{
	struct enc *e = p->e;
	int rc = 0;

	for (uint64_t off = 0; rc == 0 && off < p->t->bytes;
	     off += DELTA_PIECE) {
		size_t n = piece_at(p->t, off);
		bool same;

		rc = read_piece(e, p->t, off, n);
		if (rc < 0)
			break;
		same = patch_is_same(old_piece(e), new_piece(e), n);
		hash_piece(p, off, n, same);
		if (!same && !e->changed)
			start(p, off);
		if (e->changed)
			encode_piece(p, off, n, same);
	}
	return rc;
}

/* What is read twice must be the same both times. */
static int end_frame(struct pass *p)
{
	if (zpack_end(&p->e->z) == 0)
		return 0;
	return log_error(E_DATA, "%s or %s changed while it was read",
			 p->t->name[0], p->t->name[1]);
}

static int xor_again(struct pass *p)
{
	int rc;

	buf_clear(&p->e->out);
	p->e->kind = PATCH_XOR;
	zpack_begin(&p->e->z, DELTA_LEVEL, p->t->bytes, &p->e->out);
	rc = each_piece(p, xor_piece);
	return rc < 0 ? rc : end_frame(p);
}

static void positions_piece(struct pass *p, uint64_t off, size_t n)
{
	zpack_add(&p->e->z, work(p->e), 4 * find_points(p, off, n));
}

static void values_piece(struct pass *p, uint64_t off, size_t n)
{
	zpack_add(&p->e->z, work(p->e) + 4 * n, find_points(p, off, n));
}

static int overwrite(struct pass *p)
{
	uint64_t count = p->count;
	uint8_t head[4];
	int rc;

	for (int i = 0; i < 4; i++)
		head[i] = (uint8_t)(count >> 8 * i);
	zpack_begin(&p->e->z, DELTA_LEVEL, sizeof head + 5 * count, &p->e->out);
	zpack_add(&p->e->z, head, sizeof head);
	if (!p->gave_up) {
		zpack_add(&p->e->z, p->e->at.p, p->e->at.n);
		zpack_add(&p->e->z, p->e->value.p, p->e->value.n);
		return end_frame(p);
	}
	rc = each_piece(p, positions_piece);
	if (rc == 0)
		rc = each_piece(p, values_piece);
	return rc < 0 ? rc : end_frame(p);
}

static int finish(struct pass *p)
{
	struct enc *e = p->e;

	switch (e->kind) {
	case PATCH_XOR:
		return end_frame(p);
	case PATCH_OVERWRITE:
		return overwrite(p);
	default:
		if (p->gave_up)
			return xor_again(p);
		sparse_finish(&e->sparse);
		return 0;
	}
}

/* What a large tensor took is not kept for small ones. */
static void clear_points(struct enc *e)
{
	if (e->at.n + e->value.n > ENC_POINTS_MAX) {
		buf_release(&e->at);
		buf_release(&e->value);
	}
	buf_clear(&e->at);
	buf_clear(&e->value);
}

int enc_run(struct enc *e, const struct enc_tensor *t)
{
	struct pass p = { .e = e, .t = t };
	int rc;

	if (!e->box)
		e->box = xpages(2 * ROOM + WORK);
	e->changed = false;
	e->kind = t->encoding == DELTA_AUTO ? PATCH_SPARSE : t->encoding;
	buf_clear(&e->out);
	p.is_one_leaf = t->checksum == CHECKSUM_XXH3 && t->bytes > 0 &&
			t->bytes <= DIGEST_LEAF;
	checksum_begin(&p.sum, t->checksum);
	rc = first_pass(&p);
	if (rc == 0 && e->changed)
		rc = finish(&p);
	clear_points(e);
	if (rc == 0)
		end_sum(&p);
	return rc;
}

void enc_release(struct enc *e)
{
	free(e->box);
	zpack_release(&e->z);
	buf_release(&e->out);
	buf_release(&e->at);
	buf_release(&e->value);
	*e = (struct enc){ 0 };
}
