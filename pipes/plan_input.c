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
	if (conf->sources.n == 0)
		return log_error(E_USAGE, "no source: give --source DIR");
	if (conf->sources.n > 1)
		return log_error(E_USAGE,
				 "--source %s: several ranks need a "
				 "transport that is not built yet",
				 conf->sources.v[1]);
	if (conf->fleet && conf->engines.n)
		return log_error(E_USAGE, "--fleet and --engine exclude each "
					  "other");
	if (!conf->fleet && conf->engines.n == 0)
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

/* Only kinds that have an adapter. */
static int check_kinds(const struct fleet *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct fleet_engine *e = &f->engine[i];

		if (e->kind != FLEET_NATIVE)
			return log_error(E_CONFIG,
					 "engine %s: kind %s: not built yet",
					 e->name, fleet_kind_name(e->kind));
	}
	return 0;
}

static int open_fleet(struct fleet *f, const struct plan_conf *conf)
{
	int rc = conf->fleet ? fleet_read(f, conf->fleet)
			     : fleet_from_options(f, &conf->engines);

	return rc < 0 ? rc : check_kinds(f);
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
		rc = source_open(&in->source, conf->sources.v[0]);
	if (rc < 0) {
		fleet_release(&in->fleet);
		together_release(&in->together);
	}
	return rc;
}

void plan_input_release(struct plan_input *in)
{
	fleet_release(&in->fleet);
	source_release(&in->source);
	together_release(&in->together);
}
