#include "st_layout.h"
#include "err.h"
#include "log.h"
#include "names.h"

#include <stdlib.h>

struct layout {
	struct st *st;
	const char *name;
	uint64_t size;
};

static struct slice name_of(const void *ctx, uint32_t i)
{
	const struct st *st = ctx;

	return st_name(st, &st->tensor[i]);
}

static int check_names(const struct layout *l)
{
	struct names order;
	uint32_t a, b;
	int rc = 0;

	names_sort(&order, name_of, l->st, l->st->n);
	if (names_find_twice(&order, &a, &b))
		rc = log_error(E_DATA,
			       "%s: tensor \"%.*s\" twice in the header",
			       l->name, SLICE_ARG(name_of(l->st, a)));
	names_release(&order);
	return rc;
}

static int cmp_tensors(const void *pa, const void *pb, void *ctx)
{
	const struct st_tensor *a = pa, *b = pb;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	return slice_cmp(st_name(ctx, a), st_name(ctx, b));
}

/* Most writers lay tensors out in header order. */
static void sort_tensors(struct st *st)
{
	for (uint32_t i = 1; i < st->n; i++) {
		if (cmp_tensors(&st->tensor[i - 1], &st->tensor[i], st) < 0)
			continue;
		qsort_r(st->tensor, st->n, sizeof *st->tensor, cmp_tensors, st);
		return;
	}
}

static int check_tiles(const struct layout *l)
{
	const struct st *st = l->st;
	const struct st_tensor *prev = NULL;
	uint64_t end = 0;

	for (uint32_t i = 0; i < st->n; i++) {
		const struct st_tensor *t = &st->tensor[i];

		if (t->begin > end)
			return log_error(E_DATA,
					 "%s: tensor \"%.*s\": hole before it: "
					 "%llu bytes at data "
					 "offset %llu belong to no tensor",
					 l->name, SLICE_ARG(st_name(st, t)),
					 (unsigned long long)(t->begin - end),
					 (unsigned long long)end);
		if (t->begin < end)
			return log_error(E_DATA,
					 "%s: tensor \"%.*s\": [%llu, %llu) "
					 "overlaps \"%.*s\" "
					 "[%llu, %llu)",
					 l->name, SLICE_ARG(st_name(st, t)),
					 (unsigned long long)t->begin,
					 (unsigned long long)t->end,
					 SLICE_ARG(st_name(st, prev)),
					 (unsigned long long)prev->begin,
					 (unsigned long long)prev->end);
		end = t->end;
		prev = t;
	}
	return 0;
}

static int check_size_of_file(const struct layout *l)
{
	const struct st *st = l->st;
	uint64_t end = st->n ? st->tensor[st->n - 1].end : 0;
	unsigned long long want = st->data_start + end, have = l->size;

	if (want > have)
		return log_error(E_DATA,
				 "%s: truncated: expected %llu bytes, found "
				 "%llu (tensor \"%.*s\" is the last)",
				 l->name, want, have,
				 SLICE_ARG(name_of(st, st->n - 1)));
	if (want < have)
		return log_error(E_DATA,
				 "%s: not fully covered: expected %llu bytes, "
				 "found %llu: the last %llu belong to no "
				 "tensor",
				 l->name, want, have, have - want);
	return 0;
}

int st_layout_check(struct st *st, const char *name, uint64_t size)
{
	struct layout l = { st, name, size };
	int rc = check_names(&l);

	if (rc < 0)
		return rc;
	sort_tensors(st);
	rc = check_tiles(&l);
	return rc < 0 ? rc : check_size_of_file(&l);
}
