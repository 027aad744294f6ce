#include "pipes/nccl_wire.h"

#include <stdio.h>
#include <string.h>

/* ---- the store ---- */

static bool starts_with(struct slice s, struct slice head)
{
	return s.n >= head.n && memcmp(s.p, head.p, head.n) == 0;
}

static struct slice last_part(struct slice key)
{
	size_t at = key.n;

	while (at > 0 && key.p[at - 1] != '/')
		at--;
	return (struct slice){ key.p + at, key.n - at };
}

/* torch puts prefixes of its own between the group's name and the last part,
 * which is "0" for the first communicator of a group, and is longer in the
 * current backend. */
bool nccl_is_id_key(enum engine_kind kind, const char *group, struct slice key)
{
	struct slice last = last_part(key);
	char head[256];
	int n = snprintf(head, sizeof head, "/%s/", group);

	if (kind == ENGINE_VLLM)
		return slice_eq(key, SLICE("/broadcast_from/0/0"));
	if (n < 0 || (size_t)n >= sizeof head ||
	    !starts_with(key, (struct slice){ head, (size_t)n }))
		return false;
	return slice_eq(last, SLICE("0")) ||
	       starts_with(last, SLICE("nccl_storekey_"));
}

/* A Python pickle of the structure that vLLM keeps an id in: _unpickle of
 * _ctypes, called with the class and ({}, the bytes). */
#define PICKLE_HEAD                                                \
	"\x80\x04\x95\xec\0\0\0\0\0\0\0"                           \
	"\x8c\x07_ctypes\x94\x8c\x09_unpickle\x94\x93\x94"         \
	"\x8c\x34vllm.distributed.device_communicators"            \
	".pynccl_wrapper\x94\x8c\x0cncclUniqueId\x94\x93\x94}\x94" \
	"C\x80"
#define PICKLE_TAIL "\x94\x86\x94\x86\x94R\x94."

void nccl_id_value(enum engine_kind kind, const unsigned char id[NCCL_ID_SIZE],
		   struct buf *out)
{
	if (kind == ENGINE_VLLM)
		buf_add(out, PICKLE_HEAD, sizeof PICKLE_HEAD - 1);
	buf_add(out, id, NCCL_ID_SIZE);
	if (kind == ENGINE_VLLM)
		buf_add(out, PICKLE_TAIL, sizeof PICKLE_TAIL - 1);
}

/* ---- broadcasts ---- */

static const char *const dtype_name[ST_NDTYPES] = {
	[ST_BOOL] = "bool",
	[ST_U8] = "uint8",
	[ST_I8] = "int8",
	[ST_F8_E5M2] = "float8_e5m2",
	[ST_F8_E4M3] = "float8_e4m3fn",
	[ST_F8_E8M0] = "float8_e8m0fnu",
	[ST_F8_E4M3FNUZ] = "float8_e4m3fnuz",
	[ST_F8_E5M2FNUZ] = "float8_e5m2fnuz",
	[ST_I16] = "int16",
	[ST_U16] = "uint16",
	[ST_F16] = "float16",
	[ST_BF16] = "bfloat16",
	[ST_I32] = "int32",
	[ST_U32] = "uint32",
	[ST_F32] = "float32",
	[ST_F64] = "float64",
	[ST_I64] = "int64",
	[ST_U64] = "uint64",
	[ST_C64] = "complex64",
};

const char *nccl_dtype_name(enum st_dtype d)
{
	return d < ST_NDTYPES ? dtype_name[d] : NULL;
}

/* Older ones join the tensors as they are: then all must be of one dtype. */
static bool is_of_one_dtype(const struct nccl_tensor *t, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (t[i].dtype != t[0].dtype)
			return false;
	return n > 0;
}

enum nccl_form nccl_form_of(enum engine_kind kind, bool packs,
			    const struct nccl_tensor *t, size_t n)
{
	if (kind == ENGINE_VLLM)
		return packs ? NF_PACKED : NF_EACH;
	return is_of_one_dtype(t, n) ? NF_FLAT : NF_EACH;
}

size_t nccl_cast_end(enum nccl_form form, const struct nccl_tensor *t, size_t n,
		     size_t from, uint64_t chunk)
{
	uint64_t left = chunk;

	if (form == NF_EACH)
		return from + 1;
	if (form == NF_FLAT)
		return n;
	while (from < n && t[from].bytes <= left)
		left -= t[from++].bytes;
	return from < n ? from + 1 : n;
}

static bool is_aligned(const struct nccl_tensor *t, size_t from, size_t to)
{
	uint64_t at = 0;

	for (; from < to; from++) {
		if (at % (st_dtype_bits(t[from].dtype) / 8) != 0)
			return false;
		at += t[from].bytes;
	}
	return true;
}

bool nccl_can_pack(const struct nccl_tensor *t, size_t n, uint64_t chunk)
{
	for (size_t from = 0, to; from < n; from = to) {
		to = nccl_cast_end(NF_PACKED, t, n, from, chunk);
		if (!is_aligned(t, from, to))
			return false;
	}
	return true;
}

/* ---- calls ---- */

bool nccl_sums_first(enum engine_kind kind)
{
	return kind == ENGINE_VLLM;
}

bool nccl_may_lack(enum nccl_call c)
{
	return c != NC_JOIN && c != NC_LOAD;
}

/* SGLang's answers around an update were not seen: it has done what it does not
 * say that it has failed to do. */
static bool says_no_failure(const struct doc *body)
{
	const struct doc *success = doc_at(body, "success");

	return (!success || doc_is_true(success)) && !doc_at(body, "error");
}

bool nccl_says_done(enum engine_kind kind, enum nccl_call c,
		    const struct doc *body)
{
	if (kind == ENGINE_SGLANG && (c == NC_BEGIN || c == NC_END))
		return says_no_failure(body);
	if (kind == ENGINE_SGLANG)
		return doc_is_true(doc_at(body, "success"));
	return doc_text(doc_at(body, "message")) && !doc_at(body, "error");
}

static const char *const path[][NC_N] = {
	[ENGINE_SGLANG] = {
		[NC_JOIN] = "/init_weights_update_group",
		[NC_BEGIN] = "/begin_weight_update",
		[NC_LOAD] = "/update_weights_from_distributed",
		[NC_END] = "/end_weight_update",
		[NC_LEAVE] = "/destroy_weights_update_group",
	},
	[ENGINE_VLLM] = {
		[NC_JOIN] = "/init_weight_transfer_engine",
		[NC_BEGIN] = "/start_weight_update",
		[NC_LOAD] = "/update_weights",
		[NC_END] = "/finish_weight_update",
		[NC_LEAVE] = "/shutdown_weight_transfer_engine",
	},
};

const char *nccl_call_path(enum engine_kind kind, enum nccl_call c)
{
	return path[kind][c];
}

static void write_rendezvous(const struct nccl_ask *a, struct jsonw *j)
{
	jsonw_str(j, "master_address", a->host);
	jsonw_u64(j, "master_port", a->port);
	jsonw_u64(j, "rank_offset", a->offset);
	jsonw_u64(j, "world_size", a->ranks);
}

static void write_packing(const struct nccl_ask *a, enum nccl_packing at,
			  struct jsonw *j)
{
	if (a->packing != at)
		return;
	jsonw_bool(j, "packed", true);
	jsonw_u64(j, "packed_buffer_size_bytes", a->chunk);
	jsonw_u64(j, "packed_num_buffers", a->buffers);
}

static void write_shape(const struct nccl_tensor *t, struct jsonw *j)
{
	jsonw_array(j, NULL);
	for (size_t i = 0; i < t->ndims; i++)
		jsonw_u64(j, NULL, t->dims[i]);
	jsonw_end(j);
}

static void write_tensors(const struct nccl_ask *a, const char *dtypes,
			  struct jsonw *j)
{
	jsonw_array(j, "names");
	for (size_t i = 0; i < a->ntensors; i++)
		jsonw_slice(j, NULL, a->tensor[i].name);
	jsonw_end(j);
	jsonw_array(j, dtypes);
	for (size_t i = 0; i < a->ntensors; i++)
		jsonw_str(j, NULL, nccl_dtype_name(a->tensor[i].dtype));
	jsonw_end(j);
	jsonw_array(j, "shapes");
	for (size_t i = 0; i < a->ntensors; i++)
		write_shape(&a->tensor[i], j);
	jsonw_end(j);
}

/* No label: the version is no engine's before the decision. */
static void write_sglang_load(const struct nccl_ask *a, struct jsonw *j)
{
	write_tensors(a, "dtypes", j);
	jsonw_str(j, "group_name", a->group);
	jsonw_bool(j, "flush_cache", false);
	jsonw_bool(j, "abort_all_requests", false);
	jsonw_bool(j, "torch_empty_cache", false);
	if (nccl_form_of(ENGINE_SGLANG, false, a->tensor, a->ntensors) ==
	    NF_FLAT)
		jsonw_str(j, "load_format", "flattened_bucket");
}

static void write_sglang(enum nccl_call c, const struct nccl_ask *a,
			 struct jsonw *j)
{
	switch (c) {
	case NC_JOIN:
		write_rendezvous(a, j);
		jsonw_str(j, "group_name", a->group);
		jsonw_str(j, "backend", "nccl");
		return;
	case NC_BEGIN:
		jsonw_str(j, "selector", "all");
		return;
	case NC_LOAD:
		write_sglang_load(a, j);
		return;
	case NC_LEAVE:
		jsonw_str(j, "group_name", a->group);
		return;
	default:
		return;
	}
}

static void write_vllm(enum nccl_call c, const struct nccl_ask *a,
		       struct jsonw *j)
{
	if (c == NC_JOIN) {
		jsonw_object(j, "init_info");
		write_rendezvous(a, j);
		write_packing(a, NP_AT_JOIN, j);
		jsonw_end(j);
	} else if (c == NC_LOAD) {
		jsonw_object(j, "update_info");
		write_tensors(a, "dtype_names", j);
		write_packing(a, NP_AT_LOAD, j);
		jsonw_end(j);
	}
}

void nccl_call_body(enum engine_kind kind, enum nccl_call c,
		    const struct nccl_ask *a, struct jsonw *j)
{
	if (kind == ENGINE_SGLANG)
		write_sglang(c, a, j);
	else
		write_vllm(c, a, j);
}
