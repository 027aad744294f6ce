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
#include "pipes/msg.h"

struct dump_conf {
	struct opt_common common;	/* args: FILE ... */
	bool follow, parts, schema, states, reference;
};

extern const struct opt_spec dump_spec;

/* --parts: a plan that two of can be compared.  Files are told by rank, path
 * and content of their header, buckets by size, their parts line by line; numbers,
 * offsets, inodes and times, which shift for no reason of their own, are left
 * out.  Other records are as without. */
struct dump_parts {
	struct buf files;	/* struct dump_file, by id */
};
int dump_parts_add(struct dump_parts *d, const struct msg *m, struct buf *out);
void dump_parts_release(struct dump_parts *d);

/* Returns the exit code. */
int dump_run(const struct dump_conf *conf);

#endif
