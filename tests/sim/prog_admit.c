/* weir-admit, as a function. */
#define main admit_main
int admit_main(int argc, char **argv);
#include "bin/admit.c"
