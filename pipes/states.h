/*
 * states.h - all machines of weir, for people: the one list of edge tables.
 */
#ifndef WEIR_STATES_H
#define WEIR_STATES_H

#include "common/buf.h"

/* Appends a line per edge: machine, state, event -> state.  "?" marks an edge
 * that is taken only under a condition, text in brackets says why an event
 * is dropped. */
void states_text(struct buf *out);

#endif
