/*
 * safetensors.h - the header of one safetensors file, read strictly.
 *
 *	u64 N, little endian | N bytes of JSON | the tensors' bytes
 *
 * What st_read() accepts is a file of which every data byte belongs to
 * exactly one tensor, and which ends where the last one does; in detail:
 * N of 2..ST_HEADER_MAX and inside the file; JSON that starts with '{', may
 * be padded by white space, and has no key twice; per tensor exactly dtype,
 * shape and data_offsets; a known dtype; a size that does not overflow, is
 * whole bytes and equals the offsets' distance; no overlap, no hole.  Order
 * in the header, alignment and values are free; 0-d and empty tensors are
 * tensors.  __metadata__ is checked (strings to strings) and, unless somebody
 * asks for its members, forgotten.
 *
 * The header is read in ST_CHUNK pieces and never held: memory is about
 * 32 bytes + name + 8 per dimension for each tensor.  The file is only
 * reached through st_source, so that memory and fuzzers can be files.
 */
#ifndef WEIR_SAFETENSORS_H
#define WEIR_SAFETENSORS_H

#include "buf.h"
#include "digest.h"
#include "jsonsax.h"

#define ST_HEADER_MAX	100000000u	/* bytes; the reference's cap */
#define ST_CHUNK	(1u << 20)	/* bytes read at a time */
#define ST_NAME_MAX	512u		/* bytes of a tensor's name */
#define ST_STRING_MAX	(16u << 20)	/* bytes of one metadata value */
#define ST_METADATA_MAX	65536u		/* keys of __metadata__ */
#define ST_DIMS_MAX	64u		/* dimensions of a tensor */
#define ST_BYTES_MAX	(UINT64_C(1) << 62)	/* of data */

/*	name		bits of one element */
#define ST_DTYPE_LIST(X)	\
	X(BOOL,		8)	\
	X(U8,		8)	\
	X(I8,		8)	\
	X(F8_E5M2,	8)	\
	X(F8_E4M3,	8)	\
	X(F8_E8M0,	8)	\
	X(F8_E4M3FNUZ,	8)	\
	X(F8_E5M2FNUZ,	8)	\
	X(I16,		16)	\
	X(U16,		16)	\
	X(F16,		16)	\
	X(BF16,		16)	\
	X(I32,		32)	\
	X(U32,		32)	\
	X(F32,		32)	\
	X(I64,		64)	\
	X(U64,		64)	\
	X(F64,		64)	\
	X(C64,		64)	\
	X(F4,		4)	\
	X(F6_E2M3,	6)	\
	X(F6_E3M2,	6)

enum st_dtype {
#define X(name, bits) ST_##name,
	ST_DTYPE_LIST(X)
#undef X
	ST_NDTYPES
};

struct st_tensor {
	uint64_t begin, end;	/* bytes, from the start of the data */
	uint32_t name;		/* into st.names */
	uint32_t dims;		/* into st.dims */
	uint16_t name_len;
	uint8_t dtype;		/* enum st_dtype */
	uint8_t ndims;
};

/* {0} is an empty one. */
struct st {
	struct st_tensor *tensor;	/* by begin, end, name */
	uint32_t n, cap;
	struct buf names;		/* one after the other */
	uint64_t *dims;
	uint32_t ndims, dims_cap;
	uint64_t data_start;		/* 8 + N */
	uint64_t data_bytes;
	struct digest header;		/* XXH3-128 of the first 8 + N bytes */
};

/* Exactly n bytes from offset into p.  0, or a negative E_*, logged. */
typedef int st_pread_fn(void *ctx, void *p, size_t n, uint64_t offset);

struct st_source {
	const char *name;		/* for messages */
	uint64_t size;			/* bytes of the whole file */
	st_pread_fn *pread;
	void *ctx;
	json_pair_fn *meta;		/* gets __metadata__; or NULL */
	void *meta_ctx;
};

/* 0, or -E_DATA and one line that names file, tensor, expected and found. */
int st_read(struct st *st, const struct st_source *src);
/* The same of an open file of size bytes. */
int st_read_fd(struct st *st, const char *name, int fd, uint64_t size);
/* The same, and meta gets what is in __metadata__, member by member, before
 * it is known whether the file is accepted. */
int st_read_fd_meta(struct st *st, const char *name, int fd, uint64_t size,
		    json_pair_fn *meta, void *meta_ctx);
void st_release(struct st *st);

struct slice st_name(const struct st *st, const struct st_tensor *t);
const uint64_t *st_shape(const struct st *st, const struct st_tensor *t);

/* A tensor may have it: of 1 to ST_NAME_MAX bytes, no control character. */
bool st_is_name(struct slice name);
const char *st_dtype_name(enum st_dtype d);
unsigned st_dtype_bits(enum st_dtype d);
/* The dtype of that name, or ST_NDTYPES. */
enum st_dtype st_dtype_of(struct slice name);
/* -E_DATA, unlogged, if the product overflows or is no whole number of
 * bytes; *why says which. */
int st_bytes(enum st_dtype d, const uint64_t *dims, size_t n, uint64_t *out,
	     const char **why);

#endif
