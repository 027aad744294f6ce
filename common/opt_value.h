/*
 * opt_value.h - one option's value: from text into its field, and back.
 *
 * The part of opt.h that knows kinds and fields but neither specs nor
 * command lines.  Quiet: opt.c knows what the user typed, and says it.
 */
#ifndef WEIR_OPT_VALUE_H
#define WEIR_OPT_VALUE_H

#include "opt.h"

bool opt_takes_value(const struct opt *o);
/* As typed.  False, and the field untouched, if s is no value of o.  Flags
 * and counts ignore s. */
bool opt_value_set(const struct opt *o, void *field, const char *s);
/* Frees what the field owns; zero after that. */
void opt_value_clear(const struct opt *o, void *field);
/* "name=value" lines as opt_dump() prints them; nothing if unset. */
void opt_value_dump(const struct opt *o, const void *field, struct buf *out);
/* One such value, without name; the field must be clear, except that a list
 * grows.  False if it is none. */
bool opt_value_load(const struct opt *o, void *field, struct slice value);
/* "a whole number from 1 to 9" */
void opt_value_expected(const struct opt *o, struct buf *out);

#endif
