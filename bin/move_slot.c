/* weir-move-slot - keep versions in a device's memory, see move_slot.h.
 * Started by weir-engine --device, with the number of its socket; or to check
 * whether it could be. */
#include "pipes/move_slot.h"

#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	log_init("weir-move-slot", LOG_INFO);
	if (argc != 2)
		return err_exit_code(
			log_error(E_USAGE, "usage: weir-move-slot FD|check; it "
					   "is started by weir-engine"));
	if (strcmp(argv[1], "check") == 0)
		return err_exit_code(move_slot_check());
	return err_exit_code(move_slot_run(atoi(argv[1])));
}
