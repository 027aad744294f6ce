/*
 * plan_take.h - sources in a trainer's device memory, brought into the run.
 *
 * `--source gpu:FILE` (common/devsource.h) is a source rank as any other: its
 * tensors are copied into RUN/sources/R/model.safetensors, by weir-move-source,
 * before anything else becomes of the run, and that directory is the source
 * from then on.  So everything that holds for files holds for it: every
 * transport, a stage that is started again, the digests.
 *
 * The file appears whole or not at all, and once: a plan that is started again
 * takes the one that is there, for the trainer may have been told that its
 * memory is its own again.  It is told so by the event `staged` of stage plan
 * (worker: the rank), after the file is there: nothing reads the device then.
 * RUN/sources goes with the verdict (run.h).
 *
 * That nobody writes the tensors before `staged` is the trainer's affair: no
 * digest can show it.
 */
#ifndef WEIR_PLAN_TAKE_H
#define WEIR_PLAN_TAKE_H

#include "common/opt.h"
#include "pipes/stage.h"

bool plan_is_device(const char *source);
bool plan_has_device(const struct opt_list *sources);
/* Out are as many directories (opt_list_release()): of the device sources
 * those in the run of s, of the others they themselves.  The mover's failures,
 * -E_AGAIN among them: it could not be started, or the stage is interrupted. */
int plan_take(struct stage *s, const struct opt_list *sources,
	      struct opt_list *out);

#endif
