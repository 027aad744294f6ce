/* weir-watch - tell each published version once, see pipes/watch.h. */
#include "common/err.h"
#include "pipes/watch.h"

int main(int argc, char **argv)
{
	struct watch_conf conf = { 0 };
	int rc = opt_parse(&watch_spec, &conf, argc, argv);

	if (rc != 0)
		return err_exit_code(rc);
	rc = watch_run(&conf);
	opt_release(&watch_spec, &conf);
	return rc;
}
