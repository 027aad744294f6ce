/*
 * delta.h - what changed between two versions of a checkpoint, as files.
 *
 * The layout is slime's, and its readers take what stands in it:
 *
 *	DELTA/model-00000-of-00002.safetensors
 *		one tensor for each that changed: U8, one-dimensional, the
 *		payload (patch.h; xor and overwrite as one zstd frame);
 *		__metadata__ has the checksum of the whole new tensor
 *	DELTA/model.safetensors.index.json
 *		metadata: version, base_version (six digits or more),
 *		delta_encoding, compression_format "zstd", checksum_format;
 *		weight_map; written last: a directory without it is no delta
 *
 * Of weir's own, where its readers do not look:
 *
 *	metadata.weir_manifest	digest of the next file
 *	DELTA/weir-delta.jsonl	lines as in markline.h: registry, versions,
 *		digests of the base (parent) and of what applying makes; for
 *		each tensor encoding, dtype, shape and digest of the old one;
 *		for each file size and digest
 *
 * delta_encoding is xor or overwrite for all tensors, or weir's own: sparse,
 * or auto, where each tensor has the one that suits it.  Tensors that are in
 * no delta stay as they are; a delta neither adds nor removes any, nor does
 * it touch the files beside the weights.
 *
 * Everything is checked before anything is written, and a result is looked
 * at before it is put in its place: see beside.h for what a crash leaves,
 * and share/doc/internals.md.
 */
#ifndef WEIR_DELTA_H
#define WEIR_DELTA_H

#include "common/checksum.h"
#include "common/names.h"
#include "common/patch.h"
#include "pipes/vmark.h"

#include <sys/stat.h>

#define DELTA_MANIFEST	"weir-delta.jsonl"
#define DELTA_LEVEL	1	/* of zstd */
#define DELTA_TENSORS_MAX 65536u	/* in one file */
#define DELTA_FILE_BYTES ((uint64_t)256 << 20)	/* then it is closed */
/* Bytes looked at at a time, by each thread; divides a leaf. */
#define DELTA_PIECE	((size_t)64 << 10)

/* Of a whole delta: a patch_kind for all tensors, or this. */
#define DELTA_AUTO	PATCH_NKINDS

struct delta_tensor {
	struct slice name;	/* lent by the file's header */
	uint32_t file;
	uint64_t offset, bytes;	/* of the payload, in the file */
	enum patch_kind kind;
	char sum[CHECKSUM_HEX];	/* of the new tensor */
	/* From the manifest, else dtype is ST_NDTYPES: */
	enum st_dtype dtype;
	char *shape;		/* "2x3", "" */
	struct digest before;	/* tree digest of the old tensor */
};

struct delta_file {
	char *path;
	struct srcdir_id id;
	struct st st;
	struct digest digest;	/* of all its bytes, if there is a manifest */
};

/* An opened one.  {0} is an empty one. */
struct delta {
	struct srcdir dir;
	uint64_t version, base_version;
	unsigned encoding;	/* enum patch_kind, or DELTA_AUTO */
	enum checksum_kind checksum;
	struct delta_file *file;	/* by path */
	uint32_t nfiles;
	struct delta_tensor *tensor;
	uint32_t n;
	struct names order;	/* of the tensors */
	uint64_t stored;	/* bytes of the files */
	bool is_weirs;		/* has a manifest; else, all below is not set */
	struct digest manifest;
	char registry[VMARK_TEXT_MAX];
	struct digest parent, parent_tensors;
	struct digest content, tensors;
};

const char *delta_encoding_name(unsigned encoding);

/* Reads index, headers and manifest, no payload.  -E_NOINPUT or -E_DATA,
 * logged: none is there, files are missing, cut, foreign, disagree. */
int delta_open(struct delta *d, const char *path);
void delta_close(struct delta *d);
/* Does that directory's index say that it is a delta?  1, 0 (whatever else it
 * is, quietly), or -E_IO if it cannot be read, logged. */
int delta_is_one(const char *path);
/* A tensor by its name: the number, or -1. */
int64_t delta_find(const struct delta *d, struct slice name);

/* "2x3" into out, terminated there. */
const char *delta_shape(const uint64_t *dims, unsigned n, struct buf *out);

/* What came of it. */
struct delta_result {
	uint64_t version, base_version;
	uint32_t tensors, changed;	/* all; those in the delta */
	uint64_t bytes;			/* of the changed ones, as they are */
	uint64_t stored;		/* bytes of the delta's files */
	unsigned encoding;
	bool was_there;			/* nothing had to be done */
	struct identity id;		/* of the new version */
};

struct delta_diff {
	const char *old, *new, *out;	/* directories */
	uint64_t base_version, version;	/* 0: as the directory's mark says */
	unsigned encoding;
	enum checksum_kind checksum;
	const char *registry;		/* its id, or "" */
	unsigned threads;		/* 0: all cores */
	/* Of a publisher: */
	const struct digest *parent;	/* content that old must have; or NULL */
	const struct identity *same;	/* what both are: nothing is read.  Or
					 * NULL */
	/* Writes the mark of a version directory; or NULL.  ctx is its. */
	int (*mark)(void *ctx, int dirfd, const struct vmark *m);
	void *ctx;
	const struct stat *replace;	/* what out is now and need not stay;
					 * or NULL */
};

/* Makes out of what changed.  An out that is this delta already is success;
 * any other is refused (-E_DATA), or replaced. */
int delta_diff(const struct delta_diff *c, struct delta_result *r);

struct delta_apply {
	const char *delta, *dir;
	const char *out;		/* NULL: take dir's place */
	bool link;			/* neither is ever written again: they
					 * may share files */
	uint64_t base_version;		/* 0: as dir's mark says */
	const char *registry;		/* that dir must be of; or "" */
	unsigned threads;
	int64_t wait_ms;	/* for a delta that is not whole yet: on a shared
				 * file system it may come in any order */
};
#define DELTA_LOOK_MS	200	/* between two looks at it */

/* dir, or out, is the delta's version afterwards, or is what it was.  -E_DATA,
 * logged with what there is, what is needed and what would come of it. */
int delta_apply(const struct delta_apply *c, struct delta_result *r);

/* Reads every byte of a delta, or of a version directory, and compares. */
int delta_verify(const char *path, unsigned threads, struct delta_result *r);

#endif
