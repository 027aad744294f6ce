/*
 * keeper.h - weir-keeper: beside a trainer, the source's movers of transport
 * nccl, lent to one push after the other.
 *
 * A mover outlives the pushes that use it, and so do the groups that it has
 * formed (move.h).  One mover for each source rank, on the device of that
 * number, is started when it is first wanted and lent by its socket
 * (loan.h) to one weir-transfer at a time; a later instance of the same
 * run's takes it from an earlier one.  It comes back by `returned`, when its
 * run has published and nothing is on its way, and then waits for the next
 * run, --idle at the longest.  However else a loan ends, the mover ends: what
 * was on its way is not known.
 *
 * All movers end with the keeper, be it by SIGKILL.  It knows no engine, no
 * registry and no bytes.  Who may borrow is the same user, and root.
 */
#ifndef WEIR_KEEPER_H
#define WEIR_KEEPER_H

#include "common/opt.h"

#define KEEPER_RANKS_MAX 64
/* A loan each, as many that take them over, and others that ask. */
#define KEEPER_CONNS_MAX (2 * KEEPER_RANKS_MAX + 32)

struct keeper_conf {
	struct opt_common common;
	char *listen;		/* path */
	uint64_t ranks, ready_fd;
	int64_t idle_ms;
};

extern const struct opt_spec keeper_spec;

/* Until a signal. */
int keeper_run(const struct keeper_conf *conf);

#endif
