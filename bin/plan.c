/* weir-plan - say what is to be moved, see plan.h. */
#include "pipes/plan.h"

#include "common/err.h"
#include "pipes/stage.h"

int main(int argc, char **argv)
{
	struct plan_conf conf = { 0 };
	int rc = opt_parse(&plan_spec, &conf, argc, argv);
	int code;

	if (rc != 0)
		return rc < 0 ? stage_fail_early(rc) : err_exit_code(rc);
	code = plan_run(&conf);
	opt_release(&plan_spec, &conf);
	return code;
}
