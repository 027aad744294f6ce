/*
 * rows.h - rows of the machines' tables that the simulator does not cross, and
 * why: no legal run gets there, or what would is not simulated.
 */
#ifndef WEIR_SIM_ROWS_H
#define WEIR_SIM_ROWS_H

#include "common/buf.h"

struct fsm_table;

/* "open lost -> open: its engine is excluded" */
void row_text(struct buf *out, const struct fsm_table *t, size_t row);
/* Why it is never crossed; NULL: it may be. */
const char *row_never(const struct fsm_table *t, size_t row);

#endif
