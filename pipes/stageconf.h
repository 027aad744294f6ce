/*
 * stageconf.h - from a stage's own options to those that the shell wants.
 *
 * A stage that is started again gets --run and nothing else: what the run's
 * first instance was told is in RUN/STAGE.options.
 */
#ifndef WEIR_STAGECONF_H
#define WEIR_STAGECONF_H

#include "common/opt.h"
#include "pipes/stage.h"

/* Takes over what the first instance was told, if conf names a run; a
 * different option is refused (-E_USAGE, logged).  Then fills *sc, whose
 * options text lives in dump.  timeout_ms: of conf, after the call. */
int stageconf_make(const struct opt_spec *spec, void *conf,
		   enum stage_id stage, const int64_t *timeout_ms,
		   struct buf *dump, struct stage_conf *sc);

#endif
