/*
 * status.h - what is published, and who serves it.  Reads; changes nothing.
 *
 * The registry says what is published, open, and in need of attention; the
 * engines (of the fleet given, else of the decision) say what they serve.
 * Exit: 0 all of them serve the published version, or nothing is published
 * yet; 2 the registry's attention is not empty; 3 an engine lags or does not
 * answer; 66 there is no registry.
 */
#ifndef WEIR_STATUS_H
#define WEIR_STATUS_H

#include "common/opt.h"

struct status_conf {
	struct opt_common common;
	char *fleet;
	struct opt_list engines;
	char *api_key_file;
	int64_t timeout_ms;		/* for all answers together */
};

extern const struct opt_spec status_spec;

/* Prints to stdout; returns the exit code. */
int status_run(const struct status_conf *conf);

#endif
