#include "bucket.h"
#include "log.h"

#include <string.h>

void bucket_begin(struct bucket_packer *b, const struct bucket_limits *l,
		  uint64_t *used)
{
	BUG_ON(l->size == 0 || l->edge == 0 || l->pieces == 0 || l->lanes == 0);
	*b = (struct bucket_packer){ .limits = *l, .used = used };
	memset(used, 0, l->lanes * sizeof *used);
}

uint64_t bucket_longest(const uint64_t *bytes, uint32_t lanes)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < lanes; i++)
		if (bytes[i] > longest)
			longest = bytes[i];
	return longest;
}

uint64_t bucket_in_lane(const struct bucket_piece *p, uint64_t bytes)
{
	uint64_t left = bytes > p->start ? bytes - p->start : 0;

	return left < p->bytes ? left : p->bytes;
}

/* The largest piece that falls on edges and is not above the size. */
static uint64_t step_of(const struct bucket_limits *l)
{
	uint64_t edges = l->size / l->edge;

	return (edges ? edges : 1) * l->edge;
}

void bucket_object(struct bucket_packer *b, const struct bucket_load *object,
		   bool may_split)
{
	uint64_t bytes = bucket_longest(object->bytes, b->limits.lanes);

	BUG_ON(b->more || object->cost > b->limits.cost ||
	       object->pieces > b->limits.pieces);
	b->object = *object;
	b->left = bytes;
	b->start = 0;
	b->step = bytes;
	if (may_split && bytes > b->limits.size)
		b->step = step_of(&b->limits);
	b->more = true;
}

uint64_t bucket_pieces(const struct bucket_packer *b)
{
	if (!b->more)
		return 0;
	return b->left == 0 ? 1 : (b->left - 1) / b->step + 1;
}

/* A lane may be above the size: one large object. */
static bool lane_is_full(uint64_t size, uint64_t used, uint64_t bytes)
{
	return bytes > 0 && (used >= size || bytes > size - used);
}

static bool is_full(const struct bucket_packer *b, const struct bucket_piece *p)
{
	const struct bucket_limits *l = &b->limits;

	if (b->broken || b->object.pieces > l->pieces - b->pieces ||
	    b->cost + b->object.cost > l->cost)
		return true;
	if (bucket_longest(b->used, l->lanes) == 0)
		return false;
	for (uint32_t i = 0; i < l->lanes; i++)
		if (lane_is_full(l->size, b->used[i],
				 bucket_in_lane(p, b->object.bytes[i])))
			return true;
	return false;
}

static void open_bucket(struct bucket_packer *b)
{
	memset(b->used, 0, b->limits.lanes * sizeof *b->used);
	b->cost = b->pieces = 0;
}

bool bucket_next(struct bucket_packer *b, struct bucket_piece *out)
{
	if (!b->more)
		return false;
	*out = (struct bucket_piece){
		.start = b->start,
		.bytes = b->left < b->step ? b->left : b->step,
	};
	out->opens = is_full(b, out);
	if (out->opens)
		open_bucket(b);
	b->broken = false;
	for (uint32_t i = 0; i < b->limits.lanes; i++)
		b->used[i] += bucket_in_lane(out, b->object.bytes[i]);
	b->cost += b->object.cost;
	b->pieces += b->object.pieces;
	b->start += out->bytes;
	b->left -= out->bytes;
	b->more = b->left > 0;
	return true;
}

bool bucket_can_hold(const struct bucket_limits *l,
		     const struct bucket_load *load)
{
	return bucket_longest(load->bytes, l->lanes) <= l->size &&
	       load->cost <= l->cost && load->pieces <= l->pieces;
}

bool bucket_has_room(const struct bucket_packer *b,
		     const struct bucket_load *load)
{
	const struct bucket_limits *l = &b->limits;

	if (b->broken || load->cost > l->cost - b->cost ||
	    load->pieces > l->pieces - b->pieces)
		return false;
	for (uint32_t i = 0; i < l->lanes; i++)
		if (lane_is_full(l->size, b->used[i], load->bytes[i]))
			return false;
	return true;
}

void bucket_break(struct bucket_packer *b)
{
	BUG_ON(b->more);
	b->broken = b->pieces > 0;
}
