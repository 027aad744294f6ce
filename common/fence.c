#include "fence.h"
#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

__attribute__((format(printf, 2, 3))) static int refuse(char *why,
							const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, FENCE_WHY_MAX, fmt, ap);
	va_end(ap);
	return -E_FENCED;
}

static bool same(const char *mine, struct slice theirs)
{
	return slice_eq(slice_of(mine), theirs);
}

static int check_registry(const struct fence *f,
			  const struct fence_speaker *who, enum fence_use use,
			  char *why)
{
	if (who->registry.n == 0 || who->registry.n > FENCE_ID_MAX ||
	    who->run.n == 0 || who->run.n > FENCE_ID_MAX || who->epoch == 0 ||
	    who->stage >= FENCE_STAGES)
		return refuse(why, "no registry, run, epoch or stage given");
	if (same(f->registry, who->registry) || use == FENCE_ADOPT)
		return 0;
	if (!f->registry[0])
		return use == FENCE_WORK ? refuse(why, "no run has begun here")
					 : 0;
	return refuse(why,
		      "the store belongs to registry %s, not to %.*s; see "
		      "--adopt",
		      f->registry, SLICE_ARG(who->registry));
}

static int check_epoch(const struct fence *f, const struct fence_speaker *who,
		       enum fence_use use, char *why)
{
	if (who->epoch < f->epoch)
		return refuse(why,
			      "epoch %llu of run %.*s is over: epoch %llu of "
			      "run %s came after it",
			      (ull)who->epoch, SLICE_ARG(who->run),
			      (ull)f->epoch, f->run);
	if (who->epoch > f->epoch)
		return use == FENCE_WORK ? refuse(why,
						  "epoch %llu has not begun "
						  "here",
						  (ull)who->epoch)
					 : 1;
	if (!same(f->run, who->run))
		return refuse(why, "epoch %llu belongs to run %s, not to %.*s",
			      (ull)f->epoch, f->run, SLICE_ARG(who->run));
	if (f->closed && use != FENCE_CANCEL)
		return refuse(why, "epoch %llu was cancelled", (ull)f->epoch);
	return 0;
}

int fence_check(const struct fence *f, const struct fence_speaker *who,
		enum fence_use use, char *why)
{
	int rc = check_registry(f, who, use, why);

	if (rc < 0)
		return rc;
	/* Epochs of different registries cannot be compared. */
	if (!same(f->registry, who->registry))
		return 1;
	rc = check_epoch(f, who, use, why);
	if (rc != 0)
		return rc;
	if (who->instance < f->instance[who->stage])
		return refuse(why, "instance %u was replaced by instance %u",
			      who->instance, f->instance[who->stage]);
	return who->instance > f->instance[who->stage] ||
	       (use == FENCE_CANCEL && !f->closed);
}

static void keep(char *out, struct slice s)
{
	memcpy(out, s.p, s.n);
	out[s.n] = '\0';
}

void fence_move(struct fence *f, const struct fence_speaker *who,
		enum fence_use use)
{
	bool mine = same(f->registry, who->registry);

	if (!mine && f->registry[0]) {
		memcpy(f->former, f->registry, sizeof f->former);
		f->spent = true;
	}
	if (!mine || who->epoch > f->epoch) {
		f->epoch = who->epoch;
		f->closed = false;
		memset(f->instance, 0, sizeof f->instance);
		keep(f->registry, who->registry);
		keep(f->run, who->run);
	}
	f->instance[who->stage] = who->instance;
	if (use == FENCE_CANCEL)
		f->closed = true;
}
