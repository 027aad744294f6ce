/* A version directory with what changed; see vdir_write.h. */
#include "common/err.h"
#include "common/log.h"
#include "pipes/delta.h"
#include "pipes/vdir_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

#define WHY_MAX 256 /* bytes of a reason */

struct diffing {
	const struct vdir_write *w;
	const struct vdir_diff *c;
	char *path;
	struct stat old; /* of what stands there, if has_old */
	bool has_old;
	char why[WHY_MAX]; /* it cannot be a delta, so far as was tried */
};

/* ---- may it be a delta? ---- */

/* By its mark, and under its own name: readers go by both. */
static bool is_version(const struct vdir *d, const struct vdir_write *w,
		       uint64_t version, const struct digest *content)
{
	return d->mark.version == version &&
	       digest_eq(&d->mark.id.content, content) &&
	       strcmp(d->mark.registry, w->registry) == 0;
}

/* Deltas from the base back to a full version; -1: they do not lead there. */
static int64_t chain_length(const struct diffing *k)
{
	struct digest content = *k->c->content;
	uint64_t version = k->c->base;
	int64_t n = 0;

	while (version) {
		char *path = vdir_path(k->w->disk_dir, version);
		struct vdir d;
		struct delta delta;
		int rc = vdir_open(&d, path);

		free(path);
		if (rc < 0 || !is_version(&d, k->w, version, &content))
			version = 0;
		else if (!vdir_is_diff(&d))
			return vdir_close(&d), n;
		else if (delta_open(&delta, d.path) < 0)
			version = 0;
		else {
			version = delta.base_version;
			content = delta.parent;
			delta_close(&delta);
			n++;
		}
		vdir_close(&d);
	}
	return -1;
}

static bool is_due(const struct diffing *k, uint64_t deltas)
{
	const struct vdir_diff *c = k->c;

	return (c->full_every && deltas + 1 >= c->full_every) ||
	       (c->max_chain && deltas >= c->max_chain);
}

/* By what is in the directory.  An empty reason: it may. */
static const char *reason(const struct diffing *k)
{
	int64_t deltas;
	int was;

	if (k->c->base == 0)
		return "nothing was published before";
	was = log_quiet_thread(1);
	deltas = chain_length(k);
	log_quiet_thread(was);
	if (deltas < 0)
		return "the last version is not in this directory";
	if (is_due(k, (uint64_t)deltas))
		return "enough deltas follow each other";
	return "";
}

/* ---- the base ---- */

/* A delta says nothing about the files beside the weights. */
static int has_same_rest(const struct diffing *k, const struct source *old,
			 const struct source *new)
{
	struct sums a = { 0 }, b = { 0 };
	uint64_t n;
	int rc;

	if (!digest_eq(&old->structure, &new->structure))
		return 0;
	sums_init(&a, old);
	sums_init(&b, new);
	rc = sums_read(&a, old->ntensors, k->w->threads);
	if (rc == 0)
		rc = sums_read(&b, new->ntensors, k->w->threads);
	n = a.first[a.n] - a.first[old->ntensors];
	if (rc == 0)
		rc = a.first[a.n] == b.first[b.n] &&
		     memcmp(sums_leaves(&a, old->ntensors),
			    sums_leaves(&b, new->ntensors),
			    n * sizeof(struct digest)) == 0;
	sums_release(&a);
	sums_release(&b);
	return rc;
}

/* 1: a delta may be made from there. */
static int fits(struct diffing *k, const char *place)
{
	struct source old = { 0 }, new = { 0 };
	int rc = source_open(&old, place);

	if (rc == 0)
		rc = source_open(&new, k->w->plan->rank[0].source);
	if (rc == 0)
		rc = has_same_rest(k, &old, &new);
	source_release(&old);
	source_release(&new);
	if (rc == 0)
		snprintf(k->why, sizeof k->why,
			 "layout or carried files have changed");
	return rc;
}

static int mark(void *ctx, int dirfd, const struct vmark *m)
{
	const struct diffing *k = ctx;

	return vmark_write(dirfd, m, NULL, k->w->from, vdir_untouched(k->w));
}

/* same: of both, if it is known; or NULL. */
static int diff(struct diffing *k, const char *place,
		const struct identity *same, struct vdir_made *out)
{
	struct delta_diff conf = {
		.old = place,
		.new = k->w->plan->rank[0].source,
		.out = k->path,
		.base_version = k->c->base,
		.version = k->w->version,
		.encoding = k->c->encoding,
		.checksum = k->c->checksum,
		.registry = k->w->registry,
		.threads = k->w->threads,
		.parent = k->c->content,
		.same = same,
		.mark = mark,
		.ctx = k,
		.replace = k->has_old ? &k->old : NULL,
	};
	struct delta_result r;
	int rc = delta_diff(&conf, &r);

	if (rc == 0)
		*out = (struct vdir_made){ NULL, r.id.content, r.stored };
	return rc;
}

/* Was it made?  Else k->why says why not from there. */
static bool from_place(struct diffing *k, const char *place,
		       struct vdir_made *out)
{
	int was = log_quiet_thread(1), rc = fits(k, place);

	if (rc > 0)
		rc = diff(k, place, NULL, out) < 0 ? -E_DATA : 1;
	log_quiet_thread(was);
	if (rc < 0)
		snprintf(k->why, sizeof k->why, "%s", log_cause());
	return rc > 0;
}

/* The base's own directory, unless that is a delta. */
static bool from_own(struct diffing *k, struct vdir_made *out)
{
	char *path = vdir_path(k->w->disk_dir, k->c->base);
	struct vdir d;
	int was = log_quiet_thread(1), rc = vdir_open(&d, path);
	bool made;

	log_quiet_thread(was);
	made = rc == 0 && !vdir_is_diff(&d) && from_place(k, path, out);
	if (rc == 0)
		vdir_close(&d);
	free(path);
	return made;
}

/* The base is what the source is. */
static bool from_source(struct diffing *k, struct vdir_made *out)
{
	int was = log_quiet_thread(1), rc = -E_DATA;

	if (k->c->same)
		rc = diff(k, k->w->plan->rank[0].source, k->c->same, out);
	log_quiet_thread(was);
	return rc == 0;
}

static bool from_somewhere(struct diffing *k, struct vdir_made *out)
{
	bool made = from_source(k, out) || from_own(k, out);

	for (uint32_t i = 0; !made && i < k->c->nplaces; i++) {
		if (atomic_load(k->w->cancel))
			return false;
		made = from_place(k, k->c->place[i], out);
	}
	return made;
}

/* ---- the whole ---- */

bool vdir_is_base(const struct vdir_write *w, const struct vdir_diff *c,
		  struct identity *same)
{
	char *path = vdir_path(w->disk_dir, c->base);
	int was = log_quiet_thread(1);
	struct vdir d;
	bool is = w->from && c->base && vdir_open(&d, path) == 0;

	log_quiet_thread(was);
	free(path);
	if (!is)
		return false;
	is = is_version(&d, w, c->base, c->content) &&
	     digest_eq(&d.mark.id.structure, &w->plan->structure) &&
	     vmark_is_from(d.fd, w->from, w->plan->nfiles);
	*same = d.mark.id;
	vdir_close(&d);
	return is;
}

static int whole(const struct diffing *k, const char *why,
		 struct vdir_made *out)
{
	log_info("version %llu is written whole: %s", (ull)k->w->version, why);
	return vdir_write_full(k->w, out);
}

static int run(struct diffing *k, struct vdir_made *out)
{
	const char *why = reason(k);
	struct vmark m;
	int rc = vdir_is_ours(k->w, k->path, &m, &k->old);

	if (rc < 0)
		return rc;
	k->has_old = rc > 0;
	if (*why)
		return whole(k, why, out);
	if (!from_somewhere(k, out))
		return whole(k, k->why, out);
	if (out->bytes >= k->w->plan->bytes)
		return whole(k, "the delta is as large", out);
	out->path = xstrdup(k->path);
	return 0;
}

int vdir_write_diff(const struct vdir_write *w, const struct vdir_diff *c,
		    struct vdir_made *out)
{
	struct diffing k = { .w = w, .c = c, .why = "the base is nowhere" };
	int rc;

	k.path = vdir_path(w->disk_dir, w->version);
	rc = run(&k, out);
	free(k.path);
	return rc;
}
