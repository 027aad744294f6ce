/*
 * admit_io.h - weir-admit: the machine of admit.h between two links.
 *
 * The plan is refused here if a bucket exceeds the credit, before the
 * hand-off line goes out: no engine has been touched then (I8).
 */
#ifndef WEIR_ADMIT_IO_H
#define WEIR_ADMIT_IO_H

#include "pipes/options.h"

/* Runs to the end; returns the exit code. */
int admit_run(struct admit_conf *conf);

#endif
