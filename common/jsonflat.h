/*
 * jsonflat.h - one JSON object of strings, numbers and nothing else.
 *
 * What weir's own small files are made of: one such object a line (jsonw.h
 * writes them).  Strict; a value's kind is not told, since who expects a
 * number reads its digits.  Keys that come twice are the caller's to find,
 * who knows which it has seen.
 */
#ifndef WEIR_JSONFLAT_H
#define WEIR_JSONFLAT_H

#include "jsonsax.h"

/* 0; -E_DATA, not logged, with *why saying what is wrong with the text; or
 * what fn returned, and NULL: it knows why. */
int jsonflat_read(struct slice text, json_pair_fn *fn, void *ctx,
		  const char **why);

#endif
