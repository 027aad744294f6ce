/* What weir-plan is given, and whether it can be planned at all. */
#include "common/err.h"
#include "common/log.h"
#include "pipes/plan_build.h"

#include <string.h>

static const char *const built[] = { "host", "mem" };
static const char *const not_built[] = { "tcp",	 "ucx",	 "cuda-ipc",
					 "nccl", "disk", "delta" };

static const char *find(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return names[i];
	return NULL;
}

/* The name to be used, or NULL (logged). */
static const char *resolve_transport(const char *name)
{
	const char *found;

	if (!name || strcmp(name, "auto") == 0)
		return built[0];
	found = find(built, COUNT(built), name);
	if (found)
		return found;
	if (find(not_built, COUNT(not_built), name))
		log_error(E_USAGE, "transport %s: not built yet", name);
	else
		log_error(E_USAGE,
			  "--transport \"%s\": no such transport; expected "
			  "auto, host or mem",
			  name);
	return NULL;
}

static int check_groups(const struct plan_conf *conf)
{
	struct together t;
	int rc =
		together_init(&t, conf->keep_together.v, conf->keep_together.n);

	if (rc == 0)
		together_release(&t);
	return rc;
}

int plan_check_options(const struct plan_conf *conf)
{
	if (conf->out && conf->dry_run)
		return log_error(E_USAGE, "-o FILE and --dry-run exclude "
					  "each other");
	if (conf->only.n && conf->to)
		return log_error(E_USAGE, "--only and --to exclude each "
					  "other");
	if (conf->sources.n == 0 && !plan_is_again(conf))
		return log_error(E_USAGE, "no source: give --source DIR");
	if (conf->fleet && conf->engines.n)
		return log_error(E_USAGE, "--fleet and --engine exclude each "
					  "other");
	if (!conf->fleet && conf->engines.n == 0 && !plan_is_again(conf))
		return log_error(E_USAGE, "no engines: give --fleet FILE or "
					  "--engine ENDPOINT");
	if (!resolve_transport(conf->transport))
		return -E_USAGE;
	return check_groups(conf);
}

static int fleet_from_options(struct fleet *f, const struct opt_list *engines)
{
	for (size_t i = 0; i < engines->n; i++) {
		int rc = fleet_add_endpoint(f, engines->v[i]);

		if (rc < 0)
			return rc;
	}
	return fleet_check(f, "--engine");
}

/* Servers load from a store beside them. */
static int check_kinds(const struct fleet *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct fleet_engine *e = &f->engine[i];

		if (e->kind != FLEET_NATIVE && e->nworkers == 0)
			return log_error(
				E_CONFIG,
				"engine %s: kind %s needs workers, its "
				"weir-engine on the same host: a url "
				"alone (disk, nccl) is not built yet",
				e->name, fleet_kind_name(e->kind));
	}
	return 0;
}

/* Rank r feeds worker r, and a receiver holds one version only. */
static int check_workers(const struct fleet_engine *e, size_t nranks)
{
	if (e->nworkers != nranks)
		return log_error(E_CONFIG,
				 "engine %s: %u worker%s, but %zu source "
				 "ranks: rank r feeds worker r, so give as "
				 "many workers as --source",
				 e->name, e->nworkers, plural(e->nworkers),
				 nranks);
	for (uint32_t w = 1; w < e->nworkers; w++)
		for (uint32_t k = 0; k < w; k++)
			if (strcmp(e->endpoint[k], e->endpoint[w]) == 0)
				return log_error(
					E_CONFIG,
					"engine %s: workers %u and %u share "
					"%s: with several source ranks each "
					"worker needs a weir-engine of its "
					"own",
					e->name, k, w, e->endpoint[w]);
	return 0;
}

static int open_fleet(struct fleet *f, const struct plan_conf *conf)
{
	if (conf->fleet)
		return fleet_read(f, conf->fleet);
	if (conf->engines.n == 0)
		return 0; /* a published version's */
	return fleet_from_options(f, &conf->engines);
}

static int open_source(struct plan_input *in, const struct plan_conf *conf)
{
	in->is_again = plan_is_again(conf);
	if (in->is_again)
		return plan_again_open(&in->again, &in->fleet, conf);
	return ranks_open(&in->ranks, conf->sources.v, conf->sources.n);
}

static int check_engines(const struct plan_input *in, size_t nranks)
{
	const struct fleet *f = &in->fleet;
	int rc = check_kinds(f);

	for (uint32_t i = 0; rc == 0 && nranks > 1 && i < f->n; i++)
		rc = check_workers(&f->engine[i], nranks);
	return rc;
}

int plan_input_open(struct plan_input *in, const struct plan_conf *conf)
{
	int rc = plan_check_options(conf);

	*in = (struct plan_input){ 0 };
	if (rc < 0)
		return rc;
	in->transport = resolve_transport(conf->transport);
	rc = together_init(&in->together, conf->keep_together.v,
			   conf->keep_together.n);
	if (rc < 0)
		return rc;
	rc = open_fleet(&in->fleet, conf);
	if (rc == 0)
		rc = check_engines(in, conf->sources.n);
	if (rc == 0)
		rc = open_source(in, conf);
	if (rc == 0 && in->is_again)
		rc = check_engines(in, in->again.old.nranks);
	if (rc < 0) {
		fleet_release(&in->fleet);
		plan_again_release(&in->again);
		together_release(&in->together);
	}
	return rc;
}

void plan_input_release(struct plan_input *in)
{
	fleet_release(&in->fleet);
	ranks_release(&in->ranks);
	plan_again_release(&in->again);
	together_release(&in->together);
}
