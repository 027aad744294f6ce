/* weir-commit - the version fence, see pipes/commit_io.h. */
#include "common/err.h"
#include "pipes/commit_io.h"

int main(int argc, char **argv)
{
	struct commit_conf conf = { 0 };
	int rc = opt_parse(&commit_spec, &conf, argc, argv);

	if (rc != 0)
		return err_exit_code(rc);
	rc = commit_run(&conf);
	opt_release(&commit_spec, &conf);
	return rc;
}
