#include "ranks.h"
#include "err.h"
#include "log.h"
#include "names.h"

#include <stdio.h>
#include <stdlib.h>

static struct slice name_of(const void *ctx, uint32_t i)
{
	struct source_tensor t;

	source_get(ctx, i, &t);
	return t.name;
}

/* Of two orders of names, one at a time. */
struct join {
	struct ranks *r;
	uint32_t rank;
	struct names zero, own; /* rank 0's, rank's */
};

static int lacks(const struct join *j, uint32_t rank, uint32_t other,
		 struct slice name)
{
	const struct ranks *r = j->r;

	return log_error(E_DATA,
			 "source rank %u (%s) has no tensor \"%.*s\", rank %u "
			 "(%s) has; they have %u and %u tensors",
			 rank, r->source[rank].dir.path, SLICE_ARG(name), other,
			 r->source[other].dir.path, r->source[rank].ntensors,
			 r->source[other].ntensors);
}

static int cannot_be_shares(const struct join *j, struct slice name,
			    const char *what, const char *zero, const char *own)
{
	const struct ranks *r = j->r;

	return log_error(E_DATA,
			 "tensor \"%.*s\": %s %s in source rank 0 (%s), %s in "
			 "rank %u (%s)",
			 SLICE_ARG(name), what, zero, r->source[0].dir.path,
			 own, j->rank, r->source[j->rank].dir.path);
}

static int check_shares(const struct join *j, uint32_t zero, uint32_t own)
{
	struct source_tensor a, b;
	char na[16], nb[16];

	source_get(&j->r->source[0], zero, &a);
	source_get(&j->r->source[j->rank], own, &b);
	if (a.dtype != b.dtype)
		return cannot_be_shares(j, a.name, "dtype",
					st_dtype_name(a.dtype),
					st_dtype_name(b.dtype));
	if (a.ndims == b.ndims)
		return 0;
	snprintf(na, sizeof na, "%u", a.ndims);
	snprintf(nb, sizeof nb, "%u", b.ndims);
	return cannot_be_shares(j, a.name, "dimensions:", na, nb);
}

/* Both orders are stepped through together. */
static int join_names(struct join *j)
{
	uint32_t *twin = j->r->twin[j->rank], n = j->zero.n, k = 0;
	int rc = 0;

	for (; k < n && k < j->own.n && rc == 0; k++) {
		uint32_t zero = names_id(&j->zero, k);
		int d = names_cmp(&j->zero, k, &j->own, k);

		if (d < 0)
			return lacks(j, j->rank, 0, names_at(&j->zero, k));
		if (d > 0)
			return lacks(j, 0, j->rank, names_at(&j->own, k));
		twin[zero] = names_id(&j->own, k);
		rc = check_shares(j, zero, twin[zero]);
	}
	if (rc == 0 && k < n)
		return lacks(j, j->rank, 0, names_at(&j->zero, k));
	if (rc == 0 && k < j->own.n)
		return lacks(j, 0, j->rank, names_at(&j->own, k));
	return rc;
}

static int join_rank(struct join *j)
{
	const struct source *s = &j->r->source[j->rank];
	int rc;

	j->r->twin[j->rank] = xcalloc(j->zero.n, sizeof **j->r->twin);
	names_sort(&j->own, name_of, s, s->ntensors);
	rc = join_names(j);
	names_release(&j->own);
	return rc;
}

static int join_all(struct ranks *r)
{
	struct join j = { .r = r };
	int rc = 0;

	names_sort(&j.zero, name_of, &r->source[0], r->source[0].ntensors);
	for (j.rank = 1; j.rank < r->n && rc == 0; j.rank++)
		rc = join_rank(&j);
	names_release(&j.zero);
	return rc;
}

static void fold_structures(struct ranks *r)
{
	struct digest *all = xcalloc(r->n, sizeof *all);

	for (uint32_t i = 0; i < r->n; i++)
		all[i] = r->source[i].structure;
	digest_fold(all, r->n, &r->structure);
	free(all);
}

int ranks_open(struct ranks *r, char *const *path, size_t n)
{
	int rc = 0;

	*r = (struct ranks){ 0 };
	if (n > RANKS_MAX)
		return log_error(E_USAGE, "%zu sources; at most %u ranks", n,
				 RANKS_MAX);
	r->source = xcalloc(n, sizeof *r->source);
	r->twin = xcalloc(n, sizeof *r->twin);
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = source_open(&r->source[i], path[i]);
		r->n += rc == 0;
	}
	if (rc == 0 && n > 1)
		rc = join_all(r);
	if (rc < 0)
		ranks_release(r);
	else
		fold_structures(r);
	return rc;
}

void ranks_release(struct ranks *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		source_release(&r->source[i]);
		free(r->twin[i]);
	}
	free(r->source);
	free(r->twin);
	*r = (struct ranks){ 0 };
}

void ranks_get(const struct ranks *r, uint32_t rank, uint32_t i,
	       struct source_tensor *out)
{
	source_get(&r->source[rank], rank ? r->twin[rank][i] : i, out);
}
