/*
 * loan.h - asking weir-keeper for a source's mover.
 *
 * Two descriptors come of it: the mover's socket, as if it had been started
 * here, and the connection, which is the loan.  Whichever end closes it ends
 * the loan, and the mover, unless `returned` was sent before.
 */
#ifndef WEIR_LOAN_H
#define WEIR_LOAN_H

#include "pipes/msg.h"

#define LOAN_MS 5000	/* it may be ending a mover; see --stage-timeout */

struct loan {
	int conn, sock;
	uint64_t keep_ms;	/* how long it keeps what comes back */
};

/* path: where weir-keeper listens.  Waits for at most LOAN_MS.  0; or
 * -E_UNAVAIL: nobody is there; -E_TIMEOUT: it says nothing; -E_AGAIN: it is
 * lent; -E_CONFIG: it has none for that rank; -E_PROTO: it is of another build;
 * logged.  The table is told for the caller. */
int loan_open(const char *path, const struct m_borrow *what, struct loan *out);
/* Would it be lent?  0, or as above. */
int loan_check(const char *path, const struct m_borrow *what);

#endif
