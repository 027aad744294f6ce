/*
 * source.h - one directory, opened as a checkpoint and checked.
 *
 * What source_open() accepts is whole and unambiguous: every shard is there
 * and passes safetensors.h; index and headers agree both ways; there is at
 * least one tensor.
 *
 *	shards	 the files of model.safetensors.index.json, else the only
 *		 *.safetensors at top level.  Several and no index are refused
 *		 with their names: which belong together is not guessed.
 *	carried	 every other regular file at top level, as a loader may need
 *		 it: config, tokenizer, index, code, licence.  Not: weights in
 *		 other formats (source.c has the list), *.safetensors outside
 *		 the index, other indexes, dot files, directories.
 *
 * The rest is counted, and told in one line of warning.  Files are in bytewise
 * order of their paths; a shard's tensors in order of offset, empty ones by
 * name.  The same directory gives the same order, numbers and digest.
 *
 * The structure digest is XXH3-128 over, for each file in order,
 *
 *	path, NUL, kind byte ('s' or 'c'), and for a shard
 *	size (u64, little endian), header digest (16 bytes)
 *
 * so that it covers names, dtypes, shapes and layout, and no weight.
 *
 * Memory: about 32 bytes + name + 8 per dimension for each tensor, and
 * while opening 8 bytes + name more for the index and 8 for each order.
 */
#ifndef WEIR_SOURCE_H
#define WEIR_SOURCE_H

#include "safetensors.h"
#include "srcdir.h"

#define SOURCE_INDEX "model.safetensors.index.json"
#define SOURCE_ENTRIES_MAX 65536u     /* names in the directory */
#define SOURCE_TENSORS_MAX (1u << 26) /* over all shards */
#define SOURCE_CONFIG_MAX (16u << 20) /* bytes of config.json */

enum source_kind { SOURCE_SHARD = 's', SOURCE_CARRIED = 'c' };

/* How the language model's head relates to its embedding. */
enum source_head {
	SOURCE_HEAD_UNKNOWN, /* no such model, or not said */
	SOURCE_HEAD_SENT,    /* lm_head.weight is there */
	SOURCE_HEAD_TIED,    /* it is not, and need not be: "tied, not sent" */
};

struct source_file {
	char *path; /* below the directory */
	enum source_kind kind;
	struct srcdir_id id; /* size included */
	struct st st;	     /* of a shard; else empty */
	uint32_t first;	     /* number of its first tensor */
};

struct source {
	struct srcdir dir;
	struct source_file *file;
	uint32_t nfiles, nshards;
	uint32_t ntensors; /* over all files */
	uint32_t nignored; /* entries of the directory that stay behind */
	uint64_t bytes;	   /* of all tensors */
	enum source_head head;
	struct digest structure;
};

/* 0, or one line that names file, tensor, expected and found, and -E_DATA;
 * -E_NOINPUT if the directory or a shard is not there. */
int source_open(struct source *s, const char *path);
void source_release(struct source *s);

/* The planned file, to read; -E_DATA, logged, if it is not that any more. */
int source_open_file(const struct source *s, uint32_t file);

/* One tensor, as others want it.  Borrows from the source. */
struct source_tensor {
	struct slice name;
	const uint64_t *shape;
	uint64_t offset; /* bytes, from the start of the file */
	uint64_t bytes;
	uint32_t file;
	enum st_dtype dtype;
	unsigned ndims;
};

/* All tensors in order of file and offset:
 *
 *	struct source_iter it = { .s = &source };
 *	while (source_next(&it, &tensor)) ...
 */
struct source_iter {
	const struct source *s;
	uint32_t file, tensor;
};

bool source_next(struct source_iter *it, struct source_tensor *out);
/* The i-th of them, i < ntensors. */
void source_get(const struct source *s, uint32_t i, struct source_tensor *out);

#endif
