/* weir-keeper - keep the source's groups of devices, see pipes/keeper.h. */
#include "common/err.h"
#include "pipes/keeper.h"

int main(int argc, char **argv)
{
	struct keeper_conf conf = { 0 };
	int rc = opt_parse(&keeper_spec, &conf, argc, argv);

	if (rc != 0)
		return err_exit_code(rc);
	rc = keeper_run(&conf);
	opt_release(&keeper_spec, &conf);
	return err_exit_code(rc);
}
