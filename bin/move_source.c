/* weir-move-source - copy tensors from a trainer's device memory into a file,
 * see move_source.h.  Started by weir-plan, with the number of a descriptor. */
#include "pipes/move_source.h"

#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	log_init("weir-move-source", LOG_INFO);
	if (argc != 3)
		return err_exit_code(
			log_error(E_USAGE, "usage: weir-move-source FD FILE; "
					   "it is started by weir-plan"));
	return err_exit_code(move_source_run(atoi(argv[1]), argv[2]));
}
