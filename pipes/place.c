#include "pipes/place.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/srcfiles.h"
#include "pipes/vdir.h"

#include <stdlib.h>
#include <string.h>

static int open_files(struct srcfiles *s, const struct plan *plan,
		      const char *dir)
{
	return dir ? srcfiles_open_at(s, plan, &dir) : srcfiles_open(s, plan);
}

int place_note(struct place *p, const struct plan *plan, const char *dir)
{
	struct srcfiles s;
	int rc;

	BUG_ON(plan->nranks != 1);
	place_release(p);
	rc = open_files(&s, plan, dir);
	if (rc < 0)
		return rc;
	p->path = xstrdup(s.dir[0].real);
	p->id = xcalloc(plan->nfiles, sizeof *p->id);
	memcpy(p->id, s.id, plan->nfiles * sizeof *p->id);
	srcfiles_close(&s);
	return 0;
}

static bool is_same(const struct srcdir_id *a, const struct srcdir_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns;
}

int place_check(const struct place *p, const struct plan *plan)
{
	struct srcfiles s;
	int rc = open_files(&s, plan, p->path);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < plan->nfiles; i++)
		if (!is_same(&p->id[i], &s.id[i]))
			rc = log_error(E_DATA,
				       "%s/%s was changed while engines loaded "
				       "from there",
				       p->path, plan->file[i].path);
	srcfiles_close(&s);
	return rc;
}

void place_release(struct place *p)
{
	free(p->path);
	free(p->id);
	*p = (struct place){ 0 };
}

/* By transport disk it is a directory that nobody writes to again. */
static void note_version(struct place *p, const struct plan *plan,
			 uint64_t version)
{
	bool has_own = plan->disk_dir && *plan->disk_dir;
	char *dir = has_own ? vdir_path(plan->disk_dir, version) : NULL;

	place_note(p, plan, dir);
	free(dir);
}

char *place_of_version(struct registry *reg, uint64_t version)
{
	int quiet = log_quiet_thread(1);
	struct place p = { 0 };
	struct plan plan;

	if (registry_plan(reg, version, &plan) > 0) {
		if (plan.nranks == 1)
			note_version(&p, &plan, version);
		plan_close(&plan);
	}
	log_quiet_thread(quiet);
	free(p.id);
	return p.path;
}

char *place_disk_dir(struct registry *reg, uint64_t version)
{
	int quiet = log_quiet_thread(1);
	struct plan plan;
	char *dir = NULL;

	if (registry_plan(reg, version, &plan) > 0) {
		if (plan.disk_dir && *plan.disk_dir)
			dir = xstrdup(plan.disk_dir);
		plan_close(&plan);
	}
	log_quiet_thread(quiet);
	return dir;
}
