#include "content.h"
#include "err.h"
#include "log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct content_part {
	struct digest digest; /* of the object, when it came whole */
	uint64_t name;	      /* into names */
	uint64_t total;
	uint32_t first, leaves; /* leaf numbers in the object */
	uint32_t at;		/* into leaves, when it did not */
	uint16_t name_len;
	uint8_t kind;
};
static_assert(sizeof(struct content_part) <= 48, "paid for every tensor");

static const char *const kind_name[] = {
	[CONTENT_TENSOR] = "tensor",
	[CONTENT_CARRIED] = "file",
};

static struct slice part_name(const struct content *c,
			      const struct content_part *p)
{
	return (struct slice){ c->names.p + p->name, p->name_len };
}

static bool is_whole(const struct content_part *p)
{
	return p->first == 0 && p->leaves == content_leaves(p->total);
}

uint64_t content_leaves(uint64_t bytes)
{
	return bytes / DIGEST_LEAF + (bytes % DIGEST_LEAF != 0);
}

int content_add(struct content *c, enum content_kind kind, struct slice name,
		uint64_t total, uint64_t start, const struct digest *leaf,
		uint32_t n)
{
	uint64_t all = content_leaves(total), first = start / DIGEST_LEAF;
	struct content_part *p;

	if (name.n > CONTENT_NAME_MAX || all > UINT32_MAX ||
	    start % DIGEST_LEAF || first > all || n > all - first ||
	    (n == 0) != (all == 0))
		return log_error(E_DATA,
				 "%s \"%.*s\" of %llu bytes has no %u leaves "
				 "at %llu",
				 kind_name[kind], SLICE_ARG(name),
				 (unsigned long long)total, n,
				 (unsigned long long)start);
	if (c->n == c->cap) {
		c->cap = c->cap ? c->cap + c->cap / 2 : 64;
		c->part = xreallocarray(c->part, c->cap, sizeof *c->part);
	}
	p = &c->part[c->n++];
	*p = (struct content_part){ .name = c->names.n,
				    .name_len = (uint16_t)name.n,
				    .kind = (uint8_t)kind,
				    .total = total,
				    .first = (uint32_t)first,
				    .leaves = n };
	buf_add(&c->names, name.p, name.n);
	if (is_whole(p)) {
		digest_of(leaf, n * sizeof *leaf, &p->digest);
	} else {
		p->at = (uint32_t)(c->leaves.n / sizeof *leaf);
		buf_add(&c->leaves, leaf, n * sizeof *leaf);
	}
	return 0;
}

static int cmp_part(const void *a, const void *b, void *arg)
{
	const struct content *c = arg;
	const struct content_part *x = &c->part[*(const uint32_t *)a];
	const struct content_part *y = &c->part[*(const uint32_t *)b];
	int d;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	d = slice_cmp(part_name(c, x), part_name(c, y));
	if (d)
		return d;
	return (x->first > y->first) - (x->first < y->first);
}

static int bad_leaf(const struct content *c, const struct content_part *p,
		    uint32_t leaf, const char *what)
{
	return log_error(E_DATA, "%s \"%.*s\": leaf %u of %llu is %s",
			 kind_name[p->kind], SLICE_ARG(part_name(c, p)), leaf,
			 (unsigned long long)content_leaves(p->total), what);
}

/* Adds the digest of the object whose first part is order[i]; returns how
 * many parts it has. */
static int fold_object(const struct content *c, const uint32_t *order,
		       uint32_t i, struct digest_state *out)
{
	const struct content_part *head = &c->part[order[i]], *p = head;
	const struct digest *leaf = (const struct digest *)c->leaves.p;
	uint64_t all = content_leaves(head->total);
	struct digest_state s;
	struct digest d = head->digest;
	uint32_t next = 0, n = 0;

	digest_begin(&s);
	do {
		if (p->first != next || p->total != head->total)
			return bad_leaf(c, p, p->first > next ? next : p->first,
					p->first > next ? "missing"
							: "there twice");
		if (!is_whole(p))
			digest_add(&s, leaf + p->at, p->leaves * sizeof *leaf);
		next += p->leaves;
		n++;
		if (i + n == c->n)
			break;
		p = &c->part[order[i + n]];
	} while (p->kind == head->kind &&
		 slice_eq(part_name(c, p), part_name(c, head)));
	if (next != all)
		return bad_leaf(c, head, next, "missing");
	if (all == 0 && n > 1)
		return bad_leaf(c, head, 0, "there twice");
	if (!is_whole(head))
		digest_end(&s, &d);
	digest_add(out, &d, sizeof d);
	return (int)n;
}

int content_finish(const struct content *c, struct digest *out)
{
	uint32_t *order = xreallocarray(NULL, c->n ? c->n : 1, sizeof *order);
	struct digest_state s;
	int rc = 0;

	for (uint32_t i = 0; i < c->n; i++)
		order[i] = i;
	qsort_r(order, c->n, sizeof *order, cmp_part, (void *)(uintptr_t)c);
	digest_begin(&s);
	for (uint32_t i = 0; i < c->n && rc >= 0; i += (uint32_t)rc)
		rc = fold_object(c, order, i, &s);
	free(order);
	if (rc < 0)
		return rc;
	digest_end(&s, out);
	return 0;
}

static bool is_of(const struct content *c, const struct content_part *p,
		  const struct digest *leaf)
{
	const struct digest *own = (const struct digest *)c->leaves.p;
	size_t n = p->leaves * sizeof *leaf;
	struct digest d;

	if (!is_whole(p))
		return memcmp(own + p->at, leaf, n) == 0;
	digest_of(leaf, n, &d);
	return digest_eq(&d, &p->digest);
}

bool content_differs(const struct content *c, enum content_kind kind,
		     struct slice name, uint64_t start,
		     const struct digest *leaf)
{
	for (uint32_t i = 0; i < c->n; i++) {
		const struct content_part *p = &c->part[i];

		if (p->kind == kind && p->first == start / DIGEST_LEAF &&
		    slice_eq(part_name(c, p), name))
			return !is_of(c, p, leaf);
	}
	return false;
}

void content_release(struct content *c)
{
	free(c->part);
	buf_release(&c->names);
	buf_release(&c->leaves);
	*c = (struct content){ 0 };
}
