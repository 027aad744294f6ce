/*
 * mutant.h - small faults, one at a time, that the invariants must find.
 *
 * A mutant is a call of the product's that is answered wrongly (ld --wrap),
 * so that the product's own code stays as it is.  The number of the one that
 * is on is sim.mutant; 0: none.
 */
#ifndef WEIR_SIM_MUTANT_H
#define WEIR_SIM_MUTANT_H

#include <stdbool.h>

int mutant_count(void);
const char *mutant_name(int i); /* 1 .. count */
const char *mutant_text(int i);
/* Takes thousands of seeds to find: not for each check. */
bool mutant_is_rare(int i);
int mutant_number(const char *name); /* 0: none of that name */

/* For files.c: this fsync does nothing; every lease is granted. */
struct node;
bool mutant_skips_sync(const struct node *n);
bool mutant_grants_leases(void);

#endif
