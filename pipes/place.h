/*
 * place.h - a directory that others load from: is it still what was planned?
 *
 * Whoever loads by a path reads what is there then.  So a directory is
 * remembered by which files it held, as stat says, before it was read and
 * digested, and must hold the same ones after the last load.
 */
#ifndef WEIR_PLACE_H
#define WEIR_PLACE_H

#include "common/srcdir.h"
#include "pipes/planfile.h"
#include "pipes/registry.h"

struct place {
	char *path;			/* absolute, no links; NULL: none */
	struct srcdir_id *id;		/* of the plan's files */
};

/* dir NULL: the plan's own source, whose files must be those that were
 * planned; else a directory whose files have their sizes and headers.  Of one
 * source rank.  -E_DATA, -E_NOINPUT: logged. */
int place_note(struct place *p, const struct plan *plan, const char *dir);
/* 0, or -E_DATA, logged: other files are there by now. */
int place_check(const struct place *p, const struct plan *plan);
void place_release(struct place *p);		/* fine on a zeroed one */

/* Where a published version was read from, if that is there still, untouched;
 * else NULL.  Owned by the caller.  Quiet. */
char *place_of_version(struct registry *reg, uint64_t version);

/* The directory of version directories that it was published in, or NULL: it
 * was not.  Owned by the caller.  Quiet. */
char *place_disk_dir(struct registry *reg, uint64_t version);

#endif
