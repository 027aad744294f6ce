/*
 * sums.h - the digests of a whole checkpoint, leaf by leaf.
 *
 * Objects are its tensors, numbered as in source.h, and behind them its
 * files, of which only the carried ones have leaves.  Anybody may fill the
 * leaves of an object; different objects from different threads.
 *
 * Memory: 16 bytes for each leaf (digest.h) and 8 for each object.
 */
#ifndef WEIR_SUMS_H
#define WEIR_SUMS_H

#include "common/source.h"

/* {0} is an empty one. */
struct sums {
	const struct source *source;	/* lent */
	struct digest *leaf;
	uint64_t *first;		/* of each object, and one more */
	uint32_t n;			/* objects */
};

/* What identifies a checkpoint. */
struct identity {
	struct digest tensors;	/* the content digest without carried files */
	struct digest content;
	struct digest structure;
};

void sums_init(struct sums *s, const struct source *source);
void sums_release(struct sums *s);

/* Where an object is. */
struct sums_object {
	uint32_t file;
	uint64_t offset, bytes;
};
struct sums_object sums_object(const struct sums *s, uint32_t i);
struct digest *sums_leaves(const struct sums *s, uint32_t i);
/* The digest of an object, over its leaves. */
void sums_digest(const struct sums *s, uint32_t i, struct digest *out);

/* Of a file: over the digests of its tensors, in the order of their places; of
 * a carried one its own. */
void sums_file_digest(const struct sums *s, uint32_t file, struct digest *out);

/* Reads and hashes the objects from first on, over so many threads (0: all
 * cores).  -E_DATA, logged, if a file is not what it was. */
int sums_read(struct sums *s, uint32_t first, unsigned threads);
/* One object, in this thread. */
int sums_read_one(struct sums *s, uint32_t i);
/* Of what the leaves say. */
int sums_identity(const struct sums *s, struct identity *out);

/* A file of a source that stays open while it is asked for. */
struct sums_file {
	const struct source *source;
	int fd;			/* valid if source is set */
	uint32_t file;
};
int sums_file_open(struct sums_file *f, const struct source *s, uint32_t file);
void sums_file_close(struct sums_file *f);	/* fine on a zeroed one */

#endif
