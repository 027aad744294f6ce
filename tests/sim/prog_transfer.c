/* weir-transfer, as a function. */
#define main transfer_main
int transfer_main(int argc, char **argv);
#include "bin/transfer.c"
