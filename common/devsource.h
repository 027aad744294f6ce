/*
 * devsource.h - tensors in a device's memory, as the trainer that owns them
 * describes them in a file of its own:
 *
 *	{"format": 1, "tensors": [
 *	  {"name": "lm_head.weight", "dtype": "BF16", "shape": [1024, 64],
 *	   "strides": [64, 1], "bytes": 131072,
 *	   "device": "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
 *	   "handle": "<128 hexadecimal digits>", "offset": 512}]}
 *
 *	dtype	 as safetensors calls it
 *	strides	 of each dimension, in elements
 *	bytes	 of the tensor: those of dtype and shape
 *	device	 by UUID; one for all tensors
 *	handle	 cudaIpcGetMemHandle() of the *allocation* that it is part of
 *	offset	 of its first byte there
 *
 * Strict: all of these keys, once, and no other; names that differ; row-major
 * tensors without gaps (dimensions of 1 and empty tensors have no stride to
 * speak of).  Others are refused by name, with their strides: a run of bytes
 * from the first element on would be another tensor.  Two tensors may be the
 * same bytes (tied), which are in the file twice then; that they overlap
 * otherwise is refused.
 *
 * Order: wider elements first, so that tensors that follow each other without
 * gaps are aligned; else the file's.  Needs no device.
 */
#ifndef WEIR_DEVSOURCE_H
#define WEIR_DEVSOURCE_H

#include "doc.h"
#include "gputext.h"
#include "safetensors.h"

#define DEVSOURCE_MAX	  (64u << 20) /* bytes of the file */
#define DEVSOURCE_TENSORS (1u << 18)
#define DEVSOURCE_BASES	  4096u /* allocations */

struct devsource_tensor {
	const char *name;
	enum st_dtype dtype;
	unsigned ndims;
	uint32_t base; /* number of its allocation */
	uint32_t number; /* in the file */
	uint64_t *shape;
	uint64_t bytes, offset;
};

struct devsource {
	struct doc *doc; /* names are lent from it */
	struct devsource_tensor *tensor;
	uint32_t n;
	unsigned char (*handle)[GPU_HANDLE_LEN]; /* by number */
	uint32_t nbases;
	unsigned char device[GPU_UUID_LEN];
	uint64_t bytes; /* of all tensors */
};

/* -E_DATA and one line that names file, tensor, expected and found.  name: of
 * the file. */
int devsource_parse(struct devsource *d, const char *name, struct slice text);
/* The same of a file; -E_NOINPUT, too. */
int devsource_read(struct devsource *d, const char *path);
void devsource_release(struct devsource *d);	/* fine on a zeroed one */
/* Appended: the head of a safetensors file with these tensors one after the
 * other in their order, its eight bytes of length included. */
int devsource_header(const struct devsource *d, struct buf *out);

#endif
