/* weir-move-nccl - broadcast buckets between devices, see move.h.  Started by
 * weir-transfer and weir-engine, with the number of its socket; or to check
 * whether it could be. */
#include "pipes/move.h"

#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	log_init("weir-move-nccl", LOG_INFO);
	if (argc != 2)
		return err_exit_code(
			log_error(E_USAGE, "usage: weir-move-nccl FD|check; it "
					   "is started by other programs"));
	if (strcmp(argv[1], "check") == 0)
		return err_exit_code(move_check());
	return err_exit_code(move_run(atoi(argv[1])));
}
