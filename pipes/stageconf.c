#include "pipes/stageconf.h"

#include "common/err.h"

#include <errno.h>
#include <unistd.h>

static int take_over(const struct opt_spec *spec, void *conf, const char *path,
		     enum stage_id stage)
{
	struct buf text = { 0 };
	struct run r;
	int rc;

	/* Not yet: the first stage of a run makes it. */
	if (access(path, F_OK) < 0 && errno == ENOENT)
		return 0;
	rc = run_open(&r, path, true);
	if (rc < 0)
		return rc;
	rc = run_options_read(&r, stage, &text);
	if (rc == -E_NOINPUT)
		rc = 0;
	else if (rc >= 0)
		rc = opt_load(spec, conf, buf_slice(&text));
	buf_release(&text);
	run_close(&r);
	return rc;
}

int stageconf_make(const struct opt_spec *spec, void *conf, enum stage_id stage,
		   const int64_t *timeout_ms, struct buf *dump,
		   struct stage_conf *sc)
{
	const struct opt_common *common =
		(const void *)((const char *)conf + spec->common);
	int rc = 0;

	if (common->run)
		rc = take_over(spec, conf, common->run, stage);
	if (rc < 0)
		return rc;
	opt_dump(spec, conf, dump);
	*sc = (struct stage_conf){
		.run = common->run,
		.stage_timeout_ms = (uint64_t)*timeout_ms,
		.json = common->json,
		.verbose = (int)common->verbose,
		.options = buf_cstr(dump),
	};
	return 0;
}
