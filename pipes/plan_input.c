/* What weir-plan is given, and whether it can be planned at all. */
#include "common/err.h"
#include "common/log.h"
#include "pipes/limits.h"
#include "pipes/plan_build.h"
#include "pipes/plan_cast.h"
#include "pipes/plan_take.h"
#include "pipes/trcaps.h"

#include <stdlib.h>
#include <string.h>

static const char *const built[] = { "host",  "mem",  "disk",
				     "delta", "nccl", "cuda-ipc" };
static const char *const not_built[] = { "tcp", "ucx" };

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
			  "auto, host, mem, disk, delta, nccl or cuda-ipc",
			  name);
	return NULL;
}

static int check_transport(const struct plan_conf *conf)
{
	const char *name = resolve_transport(conf->transport);
	bool has_dirs = name && transport_has(name, TR_WHOLE);

	if (!name)
		return -E_USAGE;
	if (!has_dirs && conf->disk_dir)
		return log_error(E_USAGE,
				 "--disk-dir: transport %s has no version "
				 "directories; give --transport disk or delta",
				 name);
	if (!has_dirs)
		return limits_check(&conf->limits, name);
	if (!conf->disk_dir)
		return log_error(E_USAGE,
				 "--transport %s: give --disk-dir DIR, where "
				 "version directories are to be",
				 name);
	if (plan_is_again(conf))
		return log_error(E_USAGE,
				 "--transport %s: a published version is "
				 "brought to engines by transport host",
				 name);
	if (conf->sources.n > 1)
		return log_error(E_USAGE,
				 "--transport %s: %zu sources; a version "
				 "directory is made of one --source",
				 name, conf->sources.n);
	return limits_check(&conf->limits, name);
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

/* A published version is moved in the buckets of its own plan. */
static int check_again(const struct plan_conf *conf)
{
	static const char *const fixed[] = { "bucket-size", "split-tensors",
					     "keep-together" };

	for (size_t i = 0; i < COUNT(fixed); i++)
		if (opt_is_given(&plan_spec, conf, fixed[i]))
			return log_error(E_USAGE,
					 "--%s: a published version keeps the "
					 "buckets that it was planned with",
					 fixed[i]);
	return 0;
}

/* It is read once, into a run, and gone with it. */
static int check_device_sources(const struct plan_conf *conf)
{
	const char *what = NULL;

	if (conf->out)
		what = "-o FILE";
	else if (conf->dry_run)
		what = "--dry-run";
	else if (plan_is_again(conf))
		what = "a version that is published already";
	if (!what || !plan_has_device(&conf->sources))
		return 0;
	return log_error(E_USAGE,
			 "--source gpu:FILE is copied for a run that publishes "
			 "it: not with %s",
			 what);
}

int plan_check_options(const struct plan_conf *conf)
{
	int rc;

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
	rc = check_device_sources(conf);
	if (rc == 0)
		rc = check_transport(conf);
	if (rc == 0 && plan_is_again(conf))
		rc = check_again(conf);
	return rc < 0 ? rc : check_groups(conf);
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

/* Rank r feeds worker r, and a receiver holds one version only. */
static int check_workers(const struct fleet_engine *e, size_t nranks)
{
	if (e->nworkers == 0)
		return log_error(E_CONFIG,
				 "engine %s: a url alone loads one directory, "
				 "there are %zu source ranks: give it workers",
				 e->name, nranks);
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

/* As it is without links: engines run elsewhere, in other directories (HT-13).
 * It must be there: made here, it might stand in for a mount that is not. */
static int find_disk_dir(struct plan_input *in, const char *dir)
{
	in->disk_dir = realpath(dir, NULL);
	return in->disk_dir ? 0 : log_errno(E_IO, "--disk-dir %s", dir);
}

static int open_source(struct plan_input *in, const struct plan_conf *conf,
		       struct stage *s)
{
	int rc;

	in->is_again = plan_is_again(conf);
	if (in->is_again)
		return plan_again_open(&in->again, &in->fleet, conf);
	rc = plan_take(s, &conf->sources, &in->sources);
	return rc < 0 ? rc
		      : ranks_open(&in->ranks, in->sources.v, in->sources.n);
}

/* No server maps memory of ours. */
static int check_none_alone(const struct fleet *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (f->engine[i].nworkers == 0)
			return log_error(E_CONFIG,
					 "engine %s: transport cuda-ipc to a "
					 "url alone is not built: give it "
					 "workers",
					 f->engine[i].name);
	return 0;
}

/* A server with a url alone loads whole directories, unless it pulls. */
static int check_alone(struct plan_input *in)
{
	const struct fleet *f = &in->fleet;

	for (uint32_t i = 0; i < f->n; i++)
		in->is_cast |= f->engine[i].nworkers == 0 &&
			       strcmp(in->transport, "nccl") == 0;
	if (strcmp(in->transport, "cuda-ipc") == 0)
		return check_none_alone(f);
	if (strcmp(in->transport, "delta") != 0)
		return 0;
	for (uint32_t i = 0; i < f->n; i++)
		if (f->engine[i].nworkers == 0 && !f->engine[i].pull)
			return log_error(E_CONFIG,
					 "engine %s: a url alone cannot load a "
					 "delta: give it workers, or pull, or "
					 "--transport disk",
					 f->engine[i].name);
	return 0;
}

/* Nothing is there any more once the run has ended. */
static int check_readers(const struct plan_input *in,
			 const struct plan_conf *conf)
{
	const struct fleet *f = &in->fleet;

	if (!plan_has_device(&conf->sources) || conf->disk_dir ||
	    strcmp(in->transport, "nccl") == 0)
		return 0;
	for (uint32_t i = 0; i < f->n; i++)
		if (f->engine[i].nworkers == 0)
			return log_error(E_CONFIG,
					 "engine %s: a url alone loads the "
					 "source's directory, and --source "
					 "gpu:FILE has none that stays: give "
					 "it workers, or --transport disk",
					 f->engine[i].name);
	return 0;
}

static int check_engines(struct plan_input *in, size_t nranks)
{
	const struct fleet *f = &in->fleet;
	int rc = check_alone(in);

	for (uint32_t i = 0; rc == 0 && nranks > 1 && i < f->n; i++)
		rc = check_workers(&f->engine[i], nranks);
	return rc;
}

/* Records say where the bytes are, and records are UTF-8. */
static int check_path(const char *what, const char *path)
{
	if (msg_is_text(slice_of(path)))
		return 0;
	return log_error(E_DATA,
			 "%s %s: expected a path of UTF-8 without control "
			 "characters",
			 what, path);
}

static int check_paths(const struct plan_input *in)
{
	uint32_t n = in->is_again ? in->again.old.nranks : in->ranks.n;
	int rc = in->disk_dir ? check_path("--disk-dir", in->disk_dir) : 0;

	for (uint32_t r = 0; rc == 0 && r < n; r++)
		rc = check_path("source",
				in->is_again ? in->again.source[r]
					     : in->ranks.source[r].dir.real);
	return rc;
}

int plan_input_open(struct plan_input *in, const struct plan_conf *conf,
		    struct stage *s)
{
	int rc = plan_check_options(conf);

	*in = (struct plan_input){ 0 };
	if (rc < 0)
		return rc;
	in->transport = resolve_transport(conf->transport);
	rc = conf->disk_dir ? find_disk_dir(in, conf->disk_dir) : 0;
	if (rc < 0)
		return rc;
	rc = together_init(&in->together, conf->keep_together.v,
			   conf->keep_together.n);
	if (rc == 0)
		rc = open_fleet(&in->fleet, conf);
	if (rc == 0)
		rc = check_engines(in, conf->sources.n);
	if (rc == 0)
		rc = check_readers(in, conf);
	if (rc == 0)
		rc = open_source(in, conf, s);
	if (rc == 0 && in->is_again)
		rc = check_engines(in, in->again.old.nranks);
	if (rc == 0 && in->is_again && in->is_cast)
		rc = plan_cast_check(&in->again, &in->together);
	if (rc == 0)
		rc = check_paths(in);
	if (rc < 0)
		plan_input_release(in);
	else
		fleet_sort(&in->fleet);
	return rc;
}

void plan_input_release(struct plan_input *in)
{
	fleet_release(&in->fleet);
	ranks_release(&in->ranks);
	opt_list_release(&in->sources);
	plan_again_release(&in->again);
	together_release(&in->together);
	free(in->disk_dir);
}
