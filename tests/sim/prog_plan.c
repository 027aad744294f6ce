/* weir-plan, as a function. */
#define main plan_main
int plan_main(int argc, char **argv);
#include "bin/plan.c"
