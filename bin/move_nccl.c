/* weir-move-nccl - broadcast buckets between devices, see move.h.  Started by
 * weir-transfer and weir-engine, with the number of its socket. */
#include "pipes/move.h"

#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	log_init("weir-move-nccl", LOG_INFO);
	if (argc != 2)
		return err_exit_code(
			log_error(E_USAGE, "usage: weir-move-nccl FD; it is "
					   "started by other programs"));
	return err_exit_code(move_run(atoi(argv[1])));
}
