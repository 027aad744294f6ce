/* A delta, and what it is applied to; see fetch.h. */
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"
#include "pipes/carry.h"
#include "pipes/delta.h"
#include "pipes/fetch.h"
#include "pipes/vdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAIN_MAX 256u /* deltas applied one after the other */
#define STEP_MAX 40    /* bytes of the name of one's result */

typedef unsigned long long ull;

/* One delta, and what it needs. */
struct link {
	struct vdir dir;
	uint64_t base;
	struct digest parent;
	bool is_empty; /* it changes nothing */
};

/* From the wanted version back to something that is there whole. */
struct chain {
	const struct fetch *f;
	struct link *v;
	uint32_t n;
	struct vdir full; /* the end of it, or: */
	bool is_own;	  /* what is served */
};

static void release(struct chain *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		vdir_close(&c->v[i].dir);
	free(c->v);
	vdir_close(&c->full);
}

/* ---- finding it ---- */

/* has / needs / target */
static int refuse(const struct chain *c, uint64_t needs, const char *why)
{
	const struct fetch *f = c->f;
	char has[48] = "no version that a delta can be applied to";

	if (f->has_path)
		snprintf(has, sizeof has, "version %llu", (ull)f->has);
	return log_error(E_DATA,
			 "has %s, needs version %llu, to make version %llu: "
			 "%s; publish a full version",
			 has, (ull)needs, (ull)f->slot->version, why);
}

/* Takes d. */
static int add(struct chain *c, struct vdir *d)
{
	struct link *l;
	struct delta delta;
	int rc = delta_open(&delta, d->path);

	if (rc < 0)
		return rc;
	if ((c->n & (c->n - 1)) == 0)
		c->v = xreallocarray(c->v, c->n ? 2 * (size_t)c->n : 1,
				     sizeof *c->v);
	l = &c->v[c->n++];
	*l = (struct link){ *d, delta.base_version, delta.parent,
			    delta.n == 0 &&
				    digest_eq(&delta.content, &delta.parent) };
	*d = (struct vdir)VDIR_INIT;
	delta_close(&delta);
	return 0;
}

/* Is that directory what the last link needs? */
static const char *misfit(const struct chain *c, const struct vdir *d)
{
	const struct link *l = &c->v[c->n - 1];

	if (strcmp(d->mark.registry, c->f->slot->registry) != 0)
		return "what has its name is another registry's";
	if (d->mark.version != l->base ||
	    !digest_eq(&d->mark.id.content, &l->parent))
		return "what has its name has another content";
	return NULL;
}

static int open_next(struct chain *c, const char *disk_dir, struct vdir *d)
{
	uint64_t needs = c->v[c->n - 1].base;
	char *path = vdir_path(disk_dir, needs);
	const char *why;
	int was = log_quiet_thread(1), rc = vdir_open(d, path);

	log_quiet_thread(was);
	free(path);
	if (rc < 0) {
		char *cause = xstrdup(log_cause());

		rc = refuse(c, needs, cause);
		free(cause);
		return rc;
	}
	why = misfit(c, d);
	if (!why)
		return 0;
	vdir_close(d);
	return refuse(c, needs, why);
}

static bool is_own_base(const struct chain *c)
{
	const struct fetch *f = c->f;
	const struct link *l = &c->v[c->n - 1];

	return f->has_path && l->base == f->has &&
	       digest_eq(&l->parent, &f->has_content);
}

static int follow(struct chain *c, const char *disk_dir, bool may_be_own)
{
	struct vdir d;
	int rc = vdir_open(&d, c->f->place);

	while (rc == 0) {
		if (!vdir_is_diff(&d)) {
			c->full = d;
			return 0;
		}
		rc = add(c, &d);
		if (rc < 0)
			vdir_close(&d);
		else if (may_be_own && is_own_base(c))
			return c->is_own = true, 0;
		else if (c->n == CHAIN_MAX)
			rc = refuse(c, c->v[c->n - 1].base, "too many deltas");
		else
			rc = open_next(c, disk_dir, &d);
	}
	return rc;
}

static int find(struct chain *c, bool may_be_own)
{
	const char *place = c->f->place;
	char *disk_dir = xstrndup(place, (size_t)(strrchr(place, '/') - place));
	int rc = follow(c, disk_dir, may_be_own);

	free(disk_dir);
	return rc;
}

/* ---- applying it ---- */

/* Below staging/N, so that whatever is left of it goes with that. */
static char *step_path(const struct chain *c, uint32_t i)
{
	char *slot = store_slot_path(c->f->store, c->f->slot->version);
	char name[VERSION_NAME_SIZE];
	char *path = xasprintf("%s/.from-%s", slot,
			       version_name(name, c->v[i].dir.mark.version));

	free(slot);
	return path;
}

static int apply(const struct chain *c, uint32_t i, const char *base,
		 const char *out)
{
	struct delta_apply conf = {
		.delta = c->v[i].dir.path,
		.dir = base,
		.out = out,
		.link = i + 1 < c->n || c->is_own,
		.base_version = c->v[i].base,
		.registry = c->f->slot->registry,
		.threads = c->f->threads,
	};
	struct delta_result r;

	if (atomic_load(c->f->cancel))
		return log_error(E_AGAIN, "cancelled");
	return delta_apply(&conf, &r);
}

/* The result's files become the slot's; the mark does not. */
static int move_up(const struct fetch *f, int to, const char *step)
{
	const char *name = strrchr(step, '/') + 1;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < f->slot->nfiles; i++) {
		const char *path = f->slot->file[i].path;
		char *from = xasprintf("%s/%s", name, path);

		rc = carry_parents(to, path);
		if (rc == 0 && renameat(to, from, to, path) < 0)
			rc = log_errno(E_IO, "move %s", from);
		free(from);
	}
	return rc < 0 ? rc : io_remove_tree(to, name);
}

static int apply_all(const struct chain *c, int to)
{
	char *base = xstrdup(c->is_own ? c->f->has_path : c->full.path);
	int rc = 0;

	for (uint32_t i = c->n; rc == 0 && i-- > 0;) {
		char *out = step_path(c, i);

		rc = apply(c, i, base, out);
		if (rc == 0 && i + 1 < c->n)
			rc = io_remove_tree(to, strrchr(base, '/') + 1);
		free(base);
		base = out;
	}
	if (rc == 0)
		rc = move_up(c->f, to, base);
	free(base);
	return rc;
}

/* ---- nothing to apply ---- */

static bool link_files(const struct fetch *f, int from, int to)
{
	bool is = from >= 0;

	for (uint32_t i = 0; is && i < f->slot->nfiles; i++) {
		const char *path = f->slot->file[i].path;

		is = carry_parents(to, path) == 0 &&
		     linkat(from, path, to, path, 0) == 0;
	}
	return is;
}

/* Under leases: what is linked is what was looked at. */
static bool link_own(const struct chain *c, int to)
{
	const struct fetch *f = c->f;
	struct slotstill now;
	int from;
	bool is;

	if (!c->is_own || c->n != 1 || !c->v[0].is_empty || !f->still ||
	    f->still->version != f->has ||
	    !slotstill_begin(&now, f->store, f->has, f->slot))
		return false;
	from = store_open_dir(f->store, f->has);
	is = slotstill_same(&now, f->still) && link_files(f, from, to) &&
	     slotstill_end(&now);
	slotstill_release(&now);
	if (from >= 0)
		close(from);
	if (is)
		f->still->version = f->slot->version;
	else
		io_remove_below(to);
	return is;
}

/* Whatever keeps it from being linked, the long way works or says why not. */
static int link_or_apply(const struct chain *c, int to)
{
	int was = log_quiet_thread(1);
	bool is_linked = link_own(c, to);

	log_quiet_thread(was);
	return is_linked ? 1 : apply_all(c, to);
}

static int take(const struct fetch *f, int to, bool may_be_own)
{
	struct chain c = { .f = f, .full = VDIR_INIT };
	int rc = find(&c, may_be_own);

	if (rc == 0 && !c.is_own)
		log_info("version %llu is made from the full version %llu and "
			 "%u delta%s",
			 (ull)f->slot->version, (ull)c.full.mark.version, c.n,
			 plural(c.n));
	if (rc == 0)
		rc = link_or_apply(&c, to);
	release(&c);
	return rc;
}

/* What is served may have been edited by hand (DK-12). */
int fetch_diff(const struct fetch *f)
{
	int to = store_open_dir(f->store, f->slot->version), rc;

	if (to < 0)
		return to;
	rc = take(f, to, true);
	if (rc == -E_DATA && f->has_path) {
		char *cause = xstrdup(log_cause());
		int was = log_quiet_thread(1);

		rc = io_remove_below(to);
		if (rc == 0)
			rc = take(f, to, false);
		log_quiet_thread(was);
		if (rc == -E_DATA)
			rc = log_error(E_DATA, "%s", cause);
		free(cause);
	}
	close(to);
	return rc;
}
