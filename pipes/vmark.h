/*
 * vmark.h - the mark of a version directory: what it says it is.
 *
 *	DIR/.weir-version	lines as in markline.h: one with kind ("full":
 *				written whole, "delta": made by applying one,
 *				"diff": no checkpoint, but a delta, and what
 *				applying it makes), registry, version, parent,
 *				content, tensors, structure; then one for each
 *				file, with its size and digest (sums.h); and one for
 *				each file that it was made from, with what tells
 *				whether somebody has written to that since (still.h)
 *
 * A dot file, so that no loader and no copy of a checkpoint takes it along.
 * It is the last file that is written before a directory appears under its
 * name: without it a directory has no number.  What it says about the
 * weights is believed only once their digest was compared.
 */
#ifndef WEIR_VMARK_H
#define WEIR_VMARK_H

#include "common/still.h"
#include "pipes/sums.h"

#define VMARK_NAME	".weir-version"
#define VMARK_FULL	"full"		/* kinds */
#define VMARK_DELTA	"delta"
#define VMARK_DIFF	"diff"
#define VMARK_TEXT_MAX	33	/* bytes of kind and registry, NUL included */

struct vmark {
	char kind[VMARK_TEXT_MAX];
	char registry[VMARK_TEXT_MAX];	/* its id; "": none */
	uint64_t version;
	bool has_parent;
	struct digest parent;		/* content digest of the version before */
	struct identity id;
};

/* A file that it was made from, as that was then. */
struct vmark_from {
	const char *path;
	struct still still;
};

/* 1 and the mark, 0 if there is none, or a negative E_*, logged.  path: of
 * the directory, for messages. */
int vmark_read(int dirfd, const char *path, struct vmark *out);
/* Durable.  files: of the directory, and what is in them; NULL: none.  from:
 * n of them. */
int vmark_write(int dirfd, const struct vmark *m, const struct sums *files,
		const struct vmark_from *from, uint32_t n);
/* Was it made from these n files, in this order and as they are?  Quiet. */
bool vmark_is_from(int dirfd, const struct vmark_from *from, uint32_t n);
/* The first file that is not as the mark says; owned.  NULL: all are, or
 * nobody knows. */
char *vmark_changed_file(int dirfd, const char *path, const struct sums *have);
/* Copies a registry's id: -E_DATA, logged, if it is none. */
int vmark_registry(struct slice id, char out[VMARK_TEXT_MAX]);

#endif
