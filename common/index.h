/*
 * index.h - model.safetensors.index.json: which tensor is in which file.
 *
 *	{"metadata": {anything}, "weight_map": {tensor: file, ...}}
 *
 * metadata is advisory and ignored, whatever it holds (total_size too: the
 * headers say it exactly), unless somebody asks for its texts.  Strict is the
 * rest: no other key, no name twice, each file a path that srcdir_bad_path()
 * passes; shards may be in sub-directories.  Nothing is opened here; see
 * source.h.
 *
 * Memory: 8 bytes + name for each tensor; files are kept once.
 */
#ifndef WEIR_INDEX_H
#define WEIR_INDEX_H

#include "jsonsax.h"
#include "names.h"

#define INDEX_BYTES_MAX	(256u << 20)	/* of the document */
#define INDEX_FILES_MAX	16384u		/* shards */
#define INDEX_CHUNK	(1u << 20)	/* bytes read at a time */

struct index_entry {
	uint32_t name;		/* into index.names */
	uint16_t name_len;
	uint16_t file;		/* into index.file */
};

/* {0} is an empty one. */
struct index {
	struct index_entry *entry;	/* as they come */
	uint32_t n, cap;
	struct buf names;
	char **file;			/* bytewise order */
	uint32_t nfiles;
	struct names order;		/* of the entries */
};

/* 0, or a negative E_* and one line that names where and what.  name: of the
 * document, for messages. */
int index_read_fd(struct index *x, const char *name, int fd);
/* The same of a text, and with meta of a delta's index, which may map no tensor
 * at all; meta gets each
 * member of metadata that is a text, before it is known whether the document
 * is accepted. */
int index_read_meta(struct index *x, const char *name, struct slice text,
		    json_pair_fn *meta, void *meta_ctx);
void index_release(struct index *x);

struct slice index_name(const struct index *x, uint32_t i);

#endif
