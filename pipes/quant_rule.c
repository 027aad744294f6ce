#include "pipes/quant_part.h"

#include <string.h>

#define WEIGHT ".weight"

/* A part of a name, between dots, that is or has one of these. */
static const struct {
	const char *text;
	bool is_whole;
} left_out[] = {
	{ "audio", false },  /* towers: their widths are no ... */
	{ "vision", false }, /* ... multiples of 128 */
	{ "visual", true },
	{ "mm_projector", true },
	{ "multi_modal_projector", true },
	{ "embed", false }, /* embeddings and output heads */
	{ "wte", true },
	{ "wpe", true },
	{ "lm_head", true },
	{ "output", true },
	{ "shared_head", true },
	{ "score", true },
	{ "norm", false },
	{ "gate", true }, /* routers, and what is as narrow */
	{ "router", false },
	{ "shared_expert_gate", true },
	{ "eh_proj", true },	  /* of DeepSeek's MTP layers */
	{ "weights_proj", true }, /* of its indexer */
	{ "conv1d", true },	  /* state of linear attention */
	{ "in_proj_a", true },
	{ "in_proj_b", true },
	{ "in_proj_ba", true },
};

static const uint8_t from_of[ST_NDTYPES] = {
	[ST_BF16] = 1 + FP8_FROM_BF16,
	[ST_F16] = 1 + FP8_FROM_F16,
	[ST_F32] = 1 + FP8_FROM_F32,
};

static bool part_is_left_out(struct slice part)
{
	for (size_t i = 0; i < COUNT(left_out); i++) {
		struct slice text = slice_of(left_out[i].text);

		if (left_out[i].is_whole
			    ? slice_eq(part, text)
			    : memmem(part.p, part.n, text.p, text.n) != NULL)
			return true;
	}
	return false;
}

static bool is_left_out(struct slice name)
{
	size_t start = 0;

	for (size_t i = 0; i <= name.n; i++) {
		if (i < name.n && name.p[i] != '.')
			continue;
		if (part_is_left_out(
			    (struct slice){ name.p + start, i - start }))
			return true;
		start = i + 1;
	}
	return false;
}

static bool is_weight(struct slice name)
{
	size_t n = sizeof WEIGHT - 1;

	return name.n > n && memcmp(name.p + name.n - n, WEIGHT, n) == 0;
}

bool quant_wants(struct slice name, const struct st *st,
		 const struct st_tensor *t, enum fp8_from *from)
{
	const uint64_t *shape = st_shape(st, t);

	if (!from_of[t->dtype] || t->ndims != 2 || !is_weight(name) ||
	    shape[0] == 0 || shape[1] == 0 || is_left_out(name))
		return false;
	*from = (enum fp8_from)(from_of[t->dtype] - 1);
	return true;
}

struct slice quant_kept_module(struct slice name, const struct st_tensor *t)
{
	const char *dot = memrchr(name.p, '.', name.n);

	if (!from_of[t->dtype] || t->ndims < 2 || !dot)
		return (struct slice){ NULL, 0 };
	return (struct slice){ name.p, (size_t)(dot - name.p) };
}
