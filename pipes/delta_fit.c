#include "pipes/delta_fit.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

static const char *base_path(const struct fit *f)
{
	return f->conf->dir;
}

/* has / needs / makes, as far as numbers go. */
static int wrong_version(const struct fit *f, uint64_t has)
{
	const struct delta *d = f->delta;

	return log_error(E_DATA,
			 "%s is version %llu; %s needs version %llu, to make "
			 "version %llu of it",
			 base_path(f), (ull)has, f->conf->delta,
			 (ull)d->base_version, (ull)d->version);
}

static int wrong_digest(const struct fit *f, const struct digest *has)
{
	const struct delta *d = f->delta;
	char have[DIGEST_HEX], need[DIGEST_HEX];

	return log_error(E_DATA,
			 "%s: local base differs: its tensors have digest %s; "
			 "%s needs %s (version %llu), to make version %llu: "
			 "take a full version",
			 base_path(f), digest_hex(has, have), f->conf->delta,
			 digest_hex(&d->parent_tensors, need),
			 (ull)d->base_version, (ull)d->version);
}

static int wrong_registry(const struct fit *f, const char *id, const char *want)
{
	return log_error(E_DATA, "%s belongs to registry %s, %s to registry %s",
			 f->conf->delta, want, base_path(f), id);
}

static int check_registry(const struct fit *f)
{
	const char *of_delta = f->delta->registry;
	const char *given = f->conf->registry;

	if (f->has_mark && f->mark.registry[0] && of_delta[0] &&
	    strcmp(f->mark.registry, of_delta) != 0)
		return wrong_registry(f, f->mark.registry, of_delta);
	if (given[0] && of_delta[0] && strcmp(given, of_delta) != 0)
		return log_error(E_DATA, "%s belongs to registry %s, not to %s",
				 f->conf->delta, of_delta, given);
	return 0;
}

/* The number that the base has, or is said to have; 0: nobody knows. */
static int find_base_version(const struct fit *f, uint64_t *out)
{
	uint64_t given = f->conf->base_version;

	if (f->has_mark && given && given != f->mark.version)
		return log_error(E_DATA,
				 "--base-version %llu, but %s says that it is "
				 "version %llu",
				 (ull)given, base_path(f),
				 (ull)f->mark.version);
	*out = f->has_mark ? f->mark.version : given;
	return 0;
}

static int check_version(const struct fit *f)
{
	uint64_t has = 0;
	int rc = find_base_version(f, &has);

	if (rc < 0)
		return rc;
	if (has == 0 && !f->delta->is_weirs)
		return log_error(E_DATA,
				 "%s does not say which version it is, and %s "
				 "cannot tell: give --base-version",
				 base_path(f), f->conf->delta);
	if (has == 0 || has == f->delta->base_version ||
	    (f->has_mark && has == f->delta->version))
		return 0;
	return wrong_version(f, has);
}

static int unlike(const struct fit *f, const struct delta_tensor *t,
		  const struct source_tensor *have)
{
	struct buf shape = { 0 };

	log_error(E_DATA, "%s: tensor \"%.*s\" is %s [%s]; %s is for %s [%s]",
		  base_path(f), SLICE_ARG(t->name), st_dtype_name(have->dtype),
		  delta_shape(have->shape, have->ndims, &shape), f->conf->delta,
		  st_dtype_name(t->dtype), t->shape);
	buf_release(&shape);
	return -E_DATA;
}

static bool is_like(const struct delta_tensor *t,
		    const struct source_tensor *have)
{
	struct buf shape = { 0 };
	bool is = t->dtype == ST_NDTYPES ||
		  (t->dtype == have->dtype &&
		   strcmp(t->shape,
			  delta_shape(have->shape, have->ndims, &shape)) == 0);

	buf_release(&shape);
	return is;
}

/* Whose tensors are left over after all of the base's have been met? */
static int missing(const struct fit *f, const uint8_t *met)
{
	uint32_t i = 0;

	while (met[i])
		i++;
	return log_error(E_DATA,
			 "%s has no tensor \"%.*s\"; %s needs it (version "
			 "%llu), to make version %llu",
			 base_path(f), SLICE_ARG(f->delta->tensor[i].name),
			 f->conf->delta, (ull)f->delta->base_version,
			 (ull)f->delta->version);
}

static int match_tensors(struct fit *f)
{
	uint8_t *met = xcalloc(f->delta->n ? f->delta->n : 1, 1);
	uint32_t left = f->delta->n;
	int rc = 0;

	f->change = xcalloc(f->base.ntensors, sizeof *f->change);
	for (uint32_t i = 0; rc == 0 && i < f->base.ntensors; i++) {
		struct source_tensor t;
		int64_t c;

		source_get(&f->base, i, &t);
		c = delta_find(f->delta, t.name);
		f->change[i] = c;
		if (c < 0)
			continue;
		met[c] = 1;
		left--;
		f->bytes += t.bytes;
		if (!is_like(&f->delta->tensor[c], &t))
			rc = unlike(f, &f->delta->tensor[c], &t);
	}
	if (rc == 0 && left > 0)
		rc = missing(f, met);
	free(met);
	return rc;
}

/* The first tensor that is not what the delta was made from. */
static int name_difference(const struct fit *f)
{
	for (uint32_t i = 0; i < f->base.ntensors; i++) {
		struct source_tensor t;
		struct digest have;

		if (f->change[i] < 0)
			continue;
		sums_digest(&f->before, i, &have);
		if (digest_eq(&have, &f->delta->tensor[f->change[i]].before))
			continue;
		source_get(&f->base, i, &t);
		log_warn("%s: tensor \"%.*s\" is not the one that %s was made "
			 "from",
			 base_path(f), SLICE_ARG(t.name), f->conf->delta);
		break;
	}
	return wrong_digest(f, &f->id.tensors);
}

/* Its bytes are not what its mark says. */
static int edited(const struct fit *f)
{
	char have[DIGEST_HEX], said[DIGEST_HEX];

	return log_error(E_DATA,
			 "%s: local base differs: it says that it is version "
			 "%llu with digest %s, but has %s; %s makes version "
			 "%llu of version %llu: take a full version",
			 base_path(f), (ull)f->mark.version,
			 digest_hex(&f->mark.id.tensors, said),
			 digest_hex(&f->id.tensors, have), f->conf->delta,
			 (ull)f->delta->version, (ull)f->delta->base_version);
}

static int other_content(const struct fit *f)
{
	char have[DIGEST_HEX], want[DIGEST_HEX];

	return log_error(E_DATA,
			 "%s is version %llu with digest %s; %s makes a "
			 "version %llu with digest %s",
			 base_path(f), (ull)f->mark.version,
			 digest_hex(&f->id.tensors, have), f->conf->delta,
			 (ull)f->delta->version,
			 digest_hex(&f->delta->tensors, want));
}

/* By the base's bytes; nothing has been written yet.  1: it is the version
 * that the delta makes. */
static int check_digest(const struct fit *f)
{
	const struct delta *d = f->delta;
	const struct digest *has = &f->id.tensors;
	bool is_target = d->is_weirs && digest_eq(has, &d->tensors);
	bool is_base = d->is_weirs && digest_eq(has, &d->parent_tensors);

	if (f->has_mark && !digest_eq(&f->mark.id.tensors, has))
		return edited(f);
	if (f->has_mark && f->mark.version == d->version)
		return is_target || !d->is_weirs ? 1 : other_content(f);
	if (!f->has_mark && is_target && !is_base)
		return 1;
	return is_base || !d->is_weirs ? 0 : name_difference(f);
}

int fit_open(struct fit *f)
{
	int rc = source_open(&f->base, base_path(f));

	if (rc < 0)
		return rc;
	rc = vmark_read(f->base.dir.fd, base_path(f), &f->mark);
	f->has_mark = rc > 0;
	if (rc >= 0)
		rc = check_registry(f);
	if (rc == 0)
		rc = check_version(f);
	if (rc == 0)
		rc = match_tensors(f);
	if (rc == 0)
		sums_init(&f->before, &f->base);
	return rc;
}

/* The smallest tensor that changes; ntensors: none does. */
static uint32_t smallest_change(const struct fit *f)
{
	uint32_t best = f->base.ntensors;

	for (uint32_t i = 0; i < f->base.ntensors; i++)
		if (f->change[i] >= 0 &&
		    (best == f->base.ntensors ||
		     sums_object(&f->before, i).bytes <
			     sums_object(&f->before, best).bytes))
			best = i;
	return best;
}

/* Old and new differ there.  If it cannot be read, who reads all says so. */
static bool has_old_tensor(struct fit *f)
{
	uint32_t i = smallest_change(f);
	struct digest have;
	int was, rc;

	if (i == f->base.ntensors)
		return true;
	was = log_quiet_thread(1);
	rc = sums_read_one(&f->before, i);
	log_quiet_thread(was);
	if (rc < 0)
		return false;
	sums_digest(&f->before, i, &have);
	return digest_eq(&have, &f->delta->tensor[f->change[i]].before);
}

bool fit_is_likely(struct fit *f)
{
	const struct delta *d = f->delta;

	if (f->has_mark)
		return f->mark.version == d->base_version &&
		       (!d->is_weirs ||
			digest_eq(&f->mark.id.tensors, &d->parent_tensors));
	return !d->is_weirs || has_old_tensor(f);
}

int fit_read(struct fit *f)
{
	int rc = sums_read(&f->before, 0, f->conf->threads);

	f->is_read = true;
	if (rc == 0)
		rc = sums_identity(&f->before, &f->id);
	return rc < 0 ? rc : check_digest(f);
}

int fit_check(struct fit *f)
{
	int rc = sums_identity(&f->before, &f->id);

	if (rc == 0)
		rc = check_digest(f);
	return rc > 0 ? log_error(E_DATA, "%s was version %llu already",
				  base_path(f), (ull)f->delta->version)
		      : rc;
}

int fit_is_target(struct fit *f, const char *path)
{
	struct source s;
	struct sums sums = { 0 };
	struct identity id;
	struct vmark m;
	int rc = source_open(&s, path), is = 0;

	if (rc < 0)
		return rc;
	rc = vmark_read(s.dir.fd, path, &m);
	if (rc > 0 && m.version == f->delta->version) {
		sums_init(&sums, &s);
		rc = sums_read(&sums, 0, f->conf->threads);
		if (rc == 0)
			rc = sums_identity(&sums, &id);
		is = rc == 0 && digest_eq(&id.tensors, &m.id.tensors) &&
		     (!f->delta->is_weirs ||
		      digest_eq(&id.tensors, &f->delta->tensors));
	}
	if (is)
		f->id = id;
	sums_release(&sums);
	source_release(&s);
	return rc < 0 ? rc : is;
}

void fit_release(struct fit *f)
{
	free(f->change);
	sums_release(&f->before);
	source_release(&f->base);
}
