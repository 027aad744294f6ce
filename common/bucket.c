#include "bucket.h"
#include "log.h"

void bucket_begin(struct bucket_packer *b, const struct bucket_limits *l)
{
	BUG_ON(l->size == 0 || l->edge == 0 || l->pieces == 0);
	*b = (struct bucket_packer){ .limits = *l };
}

/* The largest piece that falls on edges and is not above the size. */
static uint64_t step_of(const struct bucket_limits *l)
{
	uint64_t edges = l->size / l->edge;

	return (edges ? edges : 1) * l->edge;
}

void bucket_object(struct bucket_packer *b, uint64_t bytes, uint64_t cost,
		   bool may_split)
{
	BUG_ON(b->more || cost > b->limits.cost);
	b->left = bytes;
	b->start = 0;
	b->step = bytes;
	if (may_split && bytes > b->limits.size)
		b->step = step_of(&b->limits);
	b->piece_cost = cost;
	b->more = true;
}

static bool is_full(const struct bucket_packer *b, uint64_t bytes)
{
	const struct bucket_limits *l = &b->limits;

	if (b->broken || b->pieces == l->pieces ||
	    b->cost + b->piece_cost > l->cost)
		return true;
	if (bytes == 0 || b->bytes == 0)
		return false;
	/* b->bytes may be above the size: one large object. */
	return b->bytes >= l->size || bytes > l->size - b->bytes;
}

bool bucket_next(struct bucket_packer *b, struct bucket_piece *out)
{
	uint64_t bytes = b->left < b->step ? b->left : b->step;

	if (!b->more)
		return false;
	*out = (struct bucket_piece){
		.start = b->start,
		.bytes = bytes,
		.opens = is_full(b, bytes),
	};
	if (out->opens)
		b->bytes = b->cost = b->pieces = 0;
	b->broken = false;
	b->bytes += bytes;
	b->cost += b->piece_cost;
	b->pieces++;
	b->start += bytes;
	b->left -= bytes;
	b->more = b->left > 0;
	return true;
}

bool bucket_can_hold(const struct bucket_limits *l,
		     const struct bucket_load *load)
{
	return load->bytes <= l->size && load->cost <= l->cost &&
	       load->pieces <= l->pieces;
}

bool bucket_has_room(const struct bucket_packer *b,
		     const struct bucket_load *load)
{
	const struct bucket_limits *l = &b->limits;
	struct bucket_limits left = {
		.size = b->bytes < l->size ? l->size - b->bytes : 0,
		.pieces = l->pieces - b->pieces,
		.cost = l->cost - b->cost,
	};

	return !b->broken && bucket_can_hold(&left, load);
}

void bucket_break(struct bucket_packer *b)
{
	BUG_ON(b->more);
	b->broken = b->pieces > 0;
}
