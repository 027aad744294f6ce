/* weir-dump - print what weir wrote as JSON lines, see dump.h. */
#include "pipes/dump.h"

#include "common/err.h"

int main(int argc, char **argv)
{
	struct dump_conf conf = { 0 };
	int rc = opt_parse(&dump_spec, &conf, argc, argv);
	int code;

	if (rc != 0)
		return err_exit_code(rc);
	code = dump_run(&conf);
	opt_release(&dump_spec, &conf);
	return code;
}
