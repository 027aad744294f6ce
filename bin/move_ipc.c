/* weir-move-ipc - buckets in a device's memory that others map, see move.h.
 * Started by weir-transfer and weir-engine, with the number of its socket; or
 * to check whether it could be. */
#include "pipes/move.h"

int main(int argc, char **argv)
{
	return move_main("weir-move-ipc", &move_wire_ipc, argc, argv);
}
