/*
 * plan.h - weir-plan: what is to be moved.
 *
 * As a stage it prepares RUN/plan.weir, once and whole, before it hands off;
 * then it only tells its neighbour the plan's `end` record and waits for the
 * verdict.  Started again in a run that has
 * its plan, it reads that and not the source.
 *
 * With -o FILE or --dry-run it is no stage: no run directory, no link.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include "pipes/options.h"

/* Runs to the end; returns the exit code. */
int plan_run(struct plan_conf *conf);
/* --dry-run: what each wave would move, on stdout.  -E_DATA for a bucket
 * above --max-inflight-bytes (I8), with both numbers and the tensor. */
int plan_show(const struct plan_conf *conf);

#endif
