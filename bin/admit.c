/* weir-admit - say when: waves and credit, see admit_io.h. */
#include "pipes/admit_io.h"

#include "common/err.h"
#include "pipes/stage.h"

int main(int argc, char **argv)
{
	struct admit_conf conf = { 0 };
	int rc = opt_parse(&admit_spec, &conf, argc, argv);
	int code;

	if (rc != 0)
		return rc < 0 ? stage_fail_early(rc) : err_exit_code(rc);
	code = admit_run(&conf);
	opt_release(&admit_spec, &conf);
	return code;
}
