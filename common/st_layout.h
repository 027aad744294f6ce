/*
 * st_layout.h - do the tensors of a header tile the file?  Part of
 * safetensors.h, which calls it once a header has been read.
 */
#ifndef WEIR_ST_LAYOUT_H
#define WEIR_ST_LAYOUT_H

#include "safetensors.h"

/* Sorts st's tensors by begin, end, name; then no name is there twice, each
 * data byte belongs to one tensor, and the file of size bytes ends with the
 * last.  0, or -E_DATA and one line.  name: of the file. */
int st_layout_check(struct st *st, const char *name, uint64_t size);

#endif
