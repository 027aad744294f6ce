/*
 * delta_tool.h - weir-delta: delta.h from the command line.
 *
 *	diff OLD NEW -o DIR	what changed, as a delta
 *	apply DELTA DIR		DIR becomes the delta's version, in one step;
 *				or -o NEWDIR does, and DIR stays
 *	verify DIR		every byte of a delta or a marked version
 *	inspect DIR		what it says it is
 */
#ifndef WEIR_DELTA_TOOL_H
#define WEIR_DELTA_TOOL_H

#include "common/opt.h"

struct delta_conf {
	struct opt_common common;	/* args: the verb and its directories */
	uint64_t base_version, weight_version, threads;
	int64_t wait_ms;
	unsigned encoding, checksum;
	char *out;
};

extern const struct opt_spec delta_spec;

/* Returns the exit code. */
int delta_tool_run(const struct delta_conf *conf);

#endif
