/*
 * nccl_wire.h - what SGLang and vLLM expect of rank 0 of their own
 * weight-update groups: the store's keys, the calls, the broadcasts.
 *
 * share/doc/interop.md says where each fact was read.  Rank 0 is ours; the
 * workers of the engines of one group follow in the engines' order.  A group
 * has engines of one kind, and NCCL_RANKS_MAX ranks at most: torch forms
 * larger ones from several ids, by keys of their own.  Pure.
 */
#ifndef WEIR_NCCL_WIRE_H
#define WEIR_NCCL_WIRE_H

#include "common/doc.h"
#include "common/jsonw.h"
#include "common/safetensors.h"
#include "pipes/msg.h"

#define NCCL_ID_SIZE 128	/* bytes */
#define NCCL_RANKS_MAX 128

/* ---- the store ---- */

/* Does who waits for this key want the group's id? */
bool nccl_is_id_key(enum engine_kind kind, const char *group,
		    struct slice key);
/* Appends what is to be its value. */
void nccl_id_value(enum engine_kind kind, const unsigned char id[NCCL_ID_SIZE],
		   struct buf *out);

/* ---- broadcasts ---- */

struct nccl_tensor {
	struct slice name;
	enum st_dtype dtype;
	const uint64_t *dims;
	size_t ndims;
	uint64_t bytes;
};

enum nccl_form {
	NF_EACH,	/* one broadcast for each tensor */
	NF_FLAT,	/* SGLang: one for all, of one dtype */
	NF_PACKED	/* vLLM: one for each chunk, see below */
};

/* The best that this engine can take of these tensors.  packs: it was told to
 * when it joined. */
enum nccl_form nccl_form_of(enum engine_kind kind, bool packs,
			    const struct nccl_tensor *t, size_t n);
/* The end of the broadcast that begins with t[from].  A packed chunk ends
 * *after* the tensor that makes it larger than chunk bytes. */
size_t nccl_cast_end(enum nccl_form form, const struct nccl_tensor *t,
		     size_t n, size_t from, uint64_t chunk);
/* Does each tensor, of a dtype that torch has, lie in its packed chunk where
 * torch can look at it in its place? */
bool nccl_can_pack(const struct nccl_tensor *t, size_t n, uint64_t chunk);
/* As torch names it, or NULL: it has none. */
const char *nccl_dtype_name(enum st_dtype d);

/* ---- calls ---- */

/* Each is a POST to every engine of the group. */
enum nccl_call { NC_JOIN, NC_BEGIN, NC_LOAD, NC_END, NC_LEAVE, NC_N };

/* vLLM: where it is told how it is packed; which is new (0.32) or old. */
enum nccl_packing { NP_NONE, NP_AT_JOIN, NP_AT_LOAD };

struct nccl_ask {
	const char *group;		/* its name */
	const char *host;		/* of the store */
	uint16_t port;
	uint32_t offset, ranks;		/* the engine's first; all */
	enum nccl_packing packing;
	uint64_t chunk;			/* bytes */
	uint32_t buffers;
	const struct nccl_tensor *tensor; /* NC_LOAD */
	size_t ntensors;
};

/* All ranks of a group sum a float before the first broadcast. */
bool nccl_sums_first(enum engine_kind kind);
/* Older engines lack it. */
bool nccl_may_lack(enum nccl_call c);
/* Does the body of an answer of status 200 say that it is done? */
bool nccl_says_done(enum engine_kind kind, enum nccl_call c,
		    const struct doc *body);
const char *nccl_call_path(enum engine_kind kind, enum nccl_call c);
/* Writes the members of the body: inside of an object. */
void nccl_call_body(enum engine_kind kind, enum nccl_call c,
		    const struct nccl_ask *a, struct jsonw *j);

#endif
