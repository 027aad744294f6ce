/* weir-transfer - let the engines copy, see transfer_io.h. */
#include "pipes/transfer_io.h"

#include "common/err.h"
#include "pipes/stage.h"

int main(int argc, char **argv)
{
	struct transfer_conf conf = { 0 };
	int rc = opt_parse(&transfer_spec, &conf, argc, argv);
	int code;

	if (rc != 0)
		return rc < 0 ? stage_fail_early(rc) : err_exit_code(rc);
	code = transfer_run(&conf);
	opt_release(&transfer_spec, &conf);
	return code;
}
