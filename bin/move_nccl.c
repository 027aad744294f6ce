/* weir-move-nccl - broadcast buckets between devices, see move.h.  Started by
 * weir-transfer and weir-engine, with the number of its socket; or to check
 * whether it could be. */
#include "pipes/move.h"

int main(int argc, char **argv)
{
	return move_main("weir-move-nccl", &move_wire_nccl, argc, argv);
}
