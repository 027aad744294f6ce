/*
 * dump.h - weir-dump: what weir wrote, one JSON object a line on stdout.
 *
 *	FILE	a plan or any other file of records (recfile.h); lines of
 *		JSON (events, ledger): checked, and passed as they are
 *	RUN	a run directory: its events.  With -f until the run has its
 *		verdict and no stage is alive
 *
 * It needs no running stage and changes nothing.  A reader that goes away is
 * no failure.
 */
#ifndef WEIR_DUMP_H
#define WEIR_DUMP_H

#include "common/opt.h"

struct dump_conf {
	struct opt_common common;	/* args: FILE ... */
	bool follow, schema, states, reference;
};

extern const struct opt_spec dump_spec;

/* Returns the exit code. */
int dump_run(const struct dump_conf *conf);

#endif
