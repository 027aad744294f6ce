/*
 * Whether the engines can load what is planned: an engine expects the tensors
 * of the version that it serves.  By the structure digest, or, as that covers
 * the layout of files too, tensor by tensor beside the plan of that version,
 * which the registry has.
 */
#include "pipes/commit_io.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/expect.h"

#include <stdio.h>

typedef unsigned long long ull;

#define HINT "; --expect any publishes another model"

static int refuse(const struct commit_io *c, const struct engine *e,
		  uint64_t served, struct expect_diff *d)
{
	const char *tensor = buf_cstr(&d->tensor);
	char rank[32] = "";

	if (c->plan.nranks > 1)
		snprintf(rank, sizeof rank, " of rank %u", d->rank);
	if (!d->now.n)
		return log_error(E_DATA,
				 "tensor \"%s\"%s of version %llu, which "
				 "engine %s serves, is missing" HINT,
				 tensor, rank, (ull)served, e->name);
	if (!d->then.n)
		return log_error(E_DATA,
				 "tensor \"%s\"%s is not in version %llu, "
				 "which engine %s serves" HINT,
				 tensor, rank, (ull)served, e->name);
	return log_error(E_DATA,
			 "tensor \"%s\"%s is %s, but %s in version %llu, "
			 "which engine %s serves" HINT,
			 tensor, rank, buf_cstr(&d->now), buf_cstr(&d->then),
			 (ull)served, e->name);
}

/* Its plan is not here: no tensor can be named. */
static int refuse_unseen(const struct engine *e, uint64_t served)
{
	return log_error(E_DATA,
			 "the structure is not that of version %llu, which "
			 "engine %s serves" HINT,
			 (ull)served, e->name);
}

/* 1, or 0: it is not there, of another build, or of another structure. */
static int plan_served(struct commit_io *c, const struct engine_facts *f,
		       struct plan *then)
{
	int quiet = log_quiet_thread(1);
	int rc = registry_plan(&c->reg, f->serving, then);

	log_quiet_thread(quiet);
	if (rc > 0 && !digest_eq(&then->structure, &f->structure)) {
		plan_close(then);
		return 0;
	}
	return rc == -E_DATA ? 0 : rc;
}

static int compare(struct commit_io *c, const struct engine *e,
		   const struct engine_facts *f)
{
	struct expect_diff d = { 0 };
	struct plan then;
	int rc = plan_served(c, f, &then);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return refuse_unseen(e, f->serving);
	rc = expect_same(&then, &c->plan, &d);
	plan_close(&then);
	if (rc == 0)
		rc = refuse(c, e, f->serving, &d);
	expect_diff_release(&d);
	return rc < 0 ? rc : 0;
}

/* What lags behind the published version is no measure. */
static bool is_measure(const struct engine_facts *f, uint64_t decided)
{
	return f->serving && f->serving >= decided &&
	       !digest_is_zero(&f->structure);
}

/* fine: the last structure that had the same tensors. */
static int check_engine(struct commit_io *c, const struct engine *e,
			uint64_t decided, struct digest *fine)
{
	for (uint32_t k = 0; k < e->nparts; k++) {
		const struct engine_facts *f = &e->part[k].facts;
		int rc;

		if (!is_measure(f, decided) ||
		    digest_eq(&f->structure, &c->plan.structure) ||
		    digest_eq(&f->structure, fine))
			continue;
		rc = compare(c, e, f);
		if (rc < 0)
			return rc;
		*fine = f->structure;
	}
	return 0;
}

int commit_expect(struct commit_io *c, uint64_t decided)
{
	struct digest fine = c->plan.structure;
	int rc = 0;

	/* A version to go back to was loaded once, whatever model it is. */
	if (c->conf->expect == EXPECT_ANY || c->plan.kind != RUN_PUBLISH)
		return 0;
	for (uint32_t i = 0; rc == 0 && i < c->m.nengines; i++)
		if (!c->m.engine[i].out)
			rc = check_engine(c, c->engine[i], decided, &fine);
	return rc;
}
