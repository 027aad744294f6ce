/* weir-status - what is published and who serves it, see pipes/status.h. */
#include "common/err.h"
#include "pipes/status.h"

int main(int argc, char **argv)
{
	struct status_conf conf = { 0 };
	int rc = opt_parse(&status_spec, &conf, argc, argv);

	if (rc != 0)
		return err_exit_code(rc);
	rc = status_run(&conf);
	opt_release(&status_spec, &conf);
	return rc;
}
