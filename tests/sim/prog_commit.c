/* weir-commit, as a function. */
#define main commit_main
int commit_main(int argc, char **argv);
#include "bin/commit.c"
