/*
 * delta_out.h - the files of a delta, as it is written; part of delta.h.
 *
 * Encoded tensors come in order and are held until DELTA_FILE_BYTES of them
 * fill a file, whose header must come first.  Then the manifest, and last
 * the index.  All of it is synced; the directory is the caller's.
 */
#ifndef WEIR_DELTA_OUT_H
#define WEIR_DELTA_OUT_H

#include "pipes/delta.h"

struct delta_encoded;
struct delta_written;

/* The caller sets what stands before the gap. */
struct delta_out {
	int dirfd;
	const char *path;		/* for messages */
	const struct sums *before;	/* of the old version */
	uint64_t base, version;
	unsigned encoding;
	enum checksum_kind checksum;
	const char *registry;		/* or "" */

	struct delta_encoded *enc;	/* in order */
	uint32_t n;
	uint32_t first;			/* of those not yet written */
	uint64_t held;			/* bytes of those */
	struct delta_written *file;
	uint32_t nfiles;
	uint64_t stored;		/* bytes of all files */
};

/* tensor: its number in the old version.  Keeps the payload. */
int delta_out_add_take(struct delta_out *o, uint32_t tensor,
		       enum patch_kind kind, const char *sum,
		       struct buf *payload);
/* The rest of the tensors; no more come. */
int delta_out_flush(struct delta_out *o);
/* Manifest and index.  id: of the old version and of the new one. */
int delta_out_finish(struct delta_out *o, const struct identity id[2],
		     struct digest *manifest);
void delta_out_release(struct delta_out *o);

#endif
