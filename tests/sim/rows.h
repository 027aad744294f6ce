/*
 * rows.h - rows of the machines' tables that the simulator does not cross, or
 * seldom, and why.
 */
#ifndef WEIR_SIM_ROWS_H
#define WEIR_SIM_ROWS_H

#include "common/buf.h"

struct fsm_table;

/* "open lost -> open: its engine is excluded" */
void row_text(struct buf *out, const struct fsm_table *t, size_t row);
/* Why it is never crossed: no legal run gets there, or what would is not
 * simulated; NULL: it may be. */
const char *row_never(const struct fsm_table *t, size_t row);
/* Why it is crossed less often than others; NULL: it is not. */
const char *row_seldom(const struct fsm_table *t, size_t row);

/* The unit program that takes every row of the table, and fails if not. */
const char *row_unit(const struct fsm_table *t);

/* Why a durable move is made less often than others; see count.h. */
const char *move_seldom(const char *name);

#endif
