/*
 * srcdir.h - one directory of input, and what may be opened below it.
 *
 * A file counts as below the directory by where it *is*, asked of the open
 * descriptor, not by its name: links are followed and their target checked
 * afterwards, so that nothing can be exchanged in between.  Allowed are
 * targets below the directory itself and, in the layout of the Hugging Face
 * cache (DIR = MODEL/snapshots/REV, with MODEL/blobs beside snapshots),
 * below MODEL.  Nothing but regular files is ever opened for reading.
 */
#ifndef WEIR_SRCDIR_H
#define WEIR_SRCDIR_H

#include "buf.h"

#define SRCDIR_PATH_MAX	1024u	/* bytes of a path below the directory */

struct srcdir {
	int fd;
	char *path;		/* as the user gave it, for messages */
	char *real;		/* where it is */
	char *model;		/* MODEL of a cache, or NULL */
};

/* Which file, unchanged: what stat says. */
struct srcdir_id {
	uint64_t dev, ino, size;
	int64_t mtime_ns;
};

/* -E_NOINPUT, -E_PERM ...: logged. */
int srcdir_open(struct srcdir *d, const char *path);
void srcdir_release(struct srcdir *d);

/* Why that cannot be the path of a file below a directory, or NULL: it is
 * relative, without "..", ".", empty parts, backslashes, control characters.
 * Sub-directories are fine. */
const char *srcdir_bad_path(struct slice path);

/* An O_RDONLY descriptor and, by id, which file it is.  -E_NOINPUT, quietly,
 * if there is none; -E_DATA, logged, if it leads out of the directory or is
 * no regular file.  name: one that srcdir_bad_path() has passed. */
int srcdir_open_file(const struct srcdir *d, const char *name,
		     struct srcdir_id *id);
/* The same file as planned: -E_DATA, logged, "changed since the plan", if it
 * is another one now, or is gone. */
int srcdir_open_same(const struct srcdir *d, const char *name,
		     const struct srcdir_id *planned);
/* Is fd still what id says?  0, or as srcdir_open_same(). */
int srcdir_check_same(const struct srcdir *d, const char *name, int fd,
		      const struct srcdir_id *planned);

#endif
