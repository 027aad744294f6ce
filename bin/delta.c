/* weir-delta - what changed between two versions, see pipes/delta_tool.h. */
#include "common/err.h"
#include "pipes/delta_tool.h"

int main(int argc, char **argv)
{
	struct delta_conf conf = { 0 };
	int rc = opt_parse(&delta_spec, &conf, argc, argv);

	if (rc != 0)
		return err_exit_code(rc);
	rc = delta_tool_run(&conf);
	opt_release(&delta_spec, &conf);
	return rc;
}
