/*
 * vdir_write.h - a version directory is made; see vdir.h.
 *
 * Files are taken from descriptors, so that the source is what was opened;
 * the new directory is read again, whole, and the mark says what is there.
 * It appears by one rename.  What stands under its name already is put out of
 * the way if it is a version of the same registry with the same number: a
 * number that is not published may be tried again with any content.  Anything
 * else there is refused, and so is a directory that somebody reads or writes
 * right now.
 */
#ifndef WEIR_VDIR_WRITE_H
#define WEIR_VDIR_WRITE_H

#include "common/checksum.h"
#include "pipes/planfile.h"
#include "pipes/vdir.h"

#include <sys/stat.h>

struct vdir_write {
	const char *disk_dir;
	const struct plan *plan;	/* of one source rank */
	const int *fd;			/* per file of the plan */
	const char *registry;
	uint64_t version;
	unsigned threads;		/* 0: all cores */
	bool link;			/* the source is never written again */
	const struct vmark_from *from;	/* the files before anything was read,
					 * or NULL */
	const atomic_bool *cancel;
};

struct vdir_made {
	char *path;			/* owned */
	struct digest content;
	uint64_t bytes;			/* that a reader has to read */
};

/* Is what stands at path, if anything, a version of that registry with that
 * number?  1 and *old; 0: nothing is there; -E_DATA, logged: something else. */
int vdir_is_ours(const struct vdir_write *w, const char *path,
		 struct vmark *m, struct stat *old);

/* The source's files as they are, for the mark; owned.  NULL: of these cannot
 * be told whether somebody has written to them since (still.h). */
struct vmark_from *vdir_look(const struct vdir_write *w);
/* How many of w->from the mark may have: all, if they are untouched. */
uint32_t vdir_untouched(const struct vdir_write *w);

/* A whole checkpoint.  One that is there already with the source's content
 * stays as it is, so that readers are not disturbed by a publisher that was
 * started again.  Logged. */
int vdir_write_full(const struct vdir_write *w, struct vdir_made *out);

/* What changed since the last decided version. */
struct vdir_diff {
	uint64_t base;			/* its number; 0: there is none */
	const struct digest *content;	/* and what it holds */
	const char *const *place;	/* directories that may hold it whole */
	uint32_t nplaces;
	const struct identity *same;	/* the source is that; it need not be
					 * read.  NULL: nobody knows */
	unsigned encoding;		/* patch_kind or DELTA_AUTO */
	enum checksum_kind checksum;
	uint64_t full_every, max_chain;	/* deltas; 0: no bound */
};

/* Is the source what the base was made from, and untouched since?  Then *same
 * is what both are.  Quiet. */
bool vdir_is_base(const struct vdir_write *w, const struct vdir_diff *c,
		  struct identity *same);
/* The same as a delta, or whole where a delta will not do: it would be as
 * large; base, layout or carried files are not what they were; its turn has
 * come.  A delta's directory has a mark as well, that says what applying it
 * makes. */
int vdir_write_diff(const struct vdir_write *w, const struct vdir_diff *c,
		    struct vdir_made *out);

#endif
