#include "pipes/expect.h"
#include "common/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tensor, by hashes: what it is called, what it is. */
struct mark {
	uint64_t name, what;
	uint64_t place; /* among the tensors of its plan */
};

struct marks {
	const struct plan *plan;
	struct mark *v;
	uint64_t n;
};

/* Their first tensors that the other plan has not, or has otherwise. */
struct differing {
	const struct mark *now, *was; /* was: of the same name as now */
	const struct mark *gone;
};

static bool begins_tensor(const struct m_part *p)
{
	return p->kind == PART_TENSOR && p->start == 0;
}

static uint64_t hash(const void *p, size_t n)
{
	struct digest d;
	uint64_t h;

	digest_of(p, n, &d);
	memcpy(&h, d.b, sizeof h);
	return h;
}

static uint32_t rank_of(const struct plan *plan, const struct m_part *p)
{
	return plan->file[p->file].rank;
}

static struct mark mark_of(const struct plan *plan, const struct m_part *p,
			   uint64_t place)
{
	uint64_t name[2] = { hash(p->name.p, p->name.n), rank_of(plan, p) };
	uint64_t part[2] = { hash(p->dtype.p, p->dtype.n),
			     hash(p->shape.v, p->shape.n * sizeof(uint64_t)) };

	return (struct mark){ hash(name, sizeof name), hash(part, sizeof part),
			      place };
}

static int cmp_names(const struct mark *a, const struct mark *b)
{
	return a->name < b->name ? -1 : a->name > b->name;
}

static int cmp_marks(const void *x, const void *y)
{
	const struct mark *a = x, *b = y;
	int c = cmp_names(a, b);

	return c ? c : a->what < b->what ? -1 : a->what > b->what;
}

static int read_marks(struct marks *m, const struct plan *p)
{
	struct msg_arena a = { 0 };
	struct msg bucket;
	int rc = 0;

	m->plan = p;
	/* Every name is in every rank. */
	m->v = xcalloc(p->tensors * p->nranks, sizeof *m->v);
	for (uint32_t b = 0; rc == 0 && b < p->nbuckets; b++) {
		rc = plan_bucket(p, b, &bucket, &a);
		for (uint32_t i = 0; rc == 0 && i < bucket.bucket.parts.n;
		     i++) {
			const struct m_part *t = &bucket.bucket.parts.v[i];

			if (!begins_tensor(t))
				continue;
			m->v[m->n] = mark_of(p, t, m->n);
			m->n++;
		}
	}
	msg_arena_release(&a);
	if (m->n)
		qsort(m->v, m->n, sizeof *m->v, cmp_marks);
	return rc;
}

static bool is_earlier(const struct mark *m, const struct mark *than)
{
	return !than || m->place < than->place;
}

/* One walk along both orders. */
static void compare(const struct marks *then, const struct marks *now,
		    struct differing *d)
{
	const struct mark *t = then->v, *n = now->v;
	const struct mark *tend = t + then->n, *nend = n + now->n;

	while (t < tend || n < nend) {
		int c = t == tend ? 1 : n == nend ? -1 : cmp_names(t, n);

		if (c == 0 && t->what == n->what) {
			t++;
			n++;
			continue;
		}
		if (c >= 0 && is_earlier(n, d->now)) {
			d->now = n;
			d->was = c == 0 ? t : NULL;
		}
		if (c < 0 && is_earlier(t, d->gone))
			d->gone = t;
		t += c <= 0;
		n += c >= 0;
	}
}

static void add_type(struct buf *out, const struct m_part *p)
{
	buf_addf(out, "%.*s [", SLICE_ARG(p->dtype));
	for (uint32_t i = 0; i < p->shape.n; i++)
		buf_addf(out, "%s%" PRIu64, i ? "," : "", p->shape.v[i]);
	buf_addf(out, "]");
}

/* Finds it again by its place. */
static int describe(const struct marks *m, const struct mark *which,
		    struct expect_diff *out, struct buf *type)
{
	struct msg_arena a = { 0 };
	uint64_t place = 0;
	struct msg bucket;
	int rc = 0;

	for (uint32_t b = 0; rc == 0 && b < m->plan->nbuckets; b++) {
		rc = plan_bucket(m->plan, b, &bucket, &a);
		for (uint32_t i = 0; rc == 0 && i < bucket.bucket.parts.n;
		     i++) {
			const struct m_part *p = &bucket.bucket.parts.v[i];

			if (!begins_tensor(p) || place++ != which->place)
				continue;
			out->rank = rank_of(m->plan, p);
			buf_clear(&out->tensor);
			buf_add(&out->tensor, p->name.p, p->name.n);
			add_type(type, p);
		}
	}
	msg_arena_release(&a);
	return rc;
}

static int tell(const struct marks *then, const struct marks *now,
		const struct differing *d, struct expect_diff *out)
{
	const struct mark *was = d->now ? d->was : d->gone;
	int rc = 0;

	if (was)
		rc = describe(then, was, out, &out->then);
	if (rc == 0 && d->now)
		rc = describe(now, d->now, out, &out->now);
	return rc;
}

void expect_diff_release(struct expect_diff *d)
{
	buf_release(&d->tensor);
	buf_release(&d->now);
	buf_release(&d->then);
}

int expect_same(const struct plan *then, const struct plan *now,
		struct expect_diff *out)
{
	struct marks a = { 0 }, b = { 0 };
	struct differing d = { 0 };
	int rc = read_marks(&a, then);

	if (rc == 0)
		rc = read_marks(&b, now);
	if (rc == 0) {
		compare(&a, &b, &d);
		if (d.now || d.gone)
			rc = tell(&a, &b, &d, out);
		else
			rc = 1;
	}
	free(a.v);
	free(b.v);
	return rc;
}
