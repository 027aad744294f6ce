/* weir-engine, as a function. */
#define main engine_main
int engine_main(int argc, char **argv);
#include "bin/engine.c"
