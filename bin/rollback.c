/* weir-rollback - a published version under a new number, see push.h. */
#include "pipes/push.h"

#include "common/err.h"

int main(int argc, char **argv)
{
	struct push_conf conf = { 0 };
	int rc = opt_parse(rollback_spec(), &conf, argc, argv);
	int code;

	if (rc != 0)
		return err_exit_code(rc);
	code = push_run(rollback_spec(), &conf);
	opt_release(rollback_spec(), &conf);
	return code;
}
