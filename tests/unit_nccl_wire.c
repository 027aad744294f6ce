#include "pipes/nccl_wire.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the store ---- */

static void test_keys(void)
{
	ok(nccl_is_id_key(ENGINE_SGLANG, "g", SLICE("/g/g//cuda//0")),
	   "torch 2: prefixes of its own");
	ok(nccl_is_id_key(ENGINE_SGLANG, "g", SLICE("/g/g/0")), "torch 1.13");
	ok(nccl_is_id_key(ENGINE_SGLANG, "g",
			  SLICE("/g/g//cuda//nccl_storekey_0")),
	   "the current backend");
	ok(!nccl_is_id_key(ENGINE_SGLANG, "g", SLICE("/h/h//cuda//0")),
	   "another group's");
	ok(!nccl_is_id_key(ENGINE_SGLANG, "g", SLICE("/g/g//cuda//10")),
	   "another communicator's");
	ok(!nccl_is_id_key(ENGINE_SGLANG, "g", SLICE("/0")), "no group's");
	ok(nccl_is_id_key(ENGINE_VLLM, "g", SLICE("/broadcast_from/0/0")),
	   "vLLM's first object");
	ok(!nccl_is_id_key(ENGINE_VLLM, "g", SLICE("/broadcast_from/0/1")),
	   "not its second");
}

static void test_value(void)
{
	const char *src = getenv("SRC");
	unsigned char id[NCCL_ID_SIZE];
	char want[1024];
	struct buf b = { 0 };
	char path[512];
	ssize_t n;
	int fd;

	for (unsigned i = 0; i < NCCL_ID_SIZE; i++)
		id[i] = (unsigned char)(255 - i);
	nccl_id_value(ENGINE_SGLANG, id, &b);
	ok(b.n == sizeof id && memcmp(b.p, id, b.n) == 0, "SGLang: as it is");
	buf_clear(&b);
	nccl_id_value(ENGINE_VLLM, id, &b);
	snprintf(path, sizeof path, "%s/tests/golden/tcpstore/vllm-id",
		 src ? src : "..");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, want, sizeof want);
	close(fd);
	ok(n == (ssize_t)b.n && memcmp(b.p, want, b.n) == 0,
	   "vLLM: as Python pickles it");
	buf_release(&b);
}

/* ---- broadcasts ---- */

static struct nccl_tensor tensor(enum st_dtype d, uint64_t bytes)
{
	return (struct nccl_tensor){ .name = SLICE("w"),
				     .dtype = d,
				     .bytes = bytes };
}

/* The ends of all broadcasts, as a list. */
static void check_casts(enum nccl_form f, const struct nccl_tensor *t, size_t n,
			uint64_t chunk, const char *want)
{
	struct buf b = { 0 };

	for (size_t from = 0; from < n;) {
		from = nccl_cast_end(f, t, n, from, chunk);
		buf_addf(&b, "%zu ", from);
	}
	eq_str(buf_cstr(&b), want, "where broadcasts end");
	buf_release(&b);
}

static void test_casts(void)
{
	const struct nccl_tensor t[] = {
		tensor(ST_BF16, 10), tensor(ST_BF16, 10), tensor(ST_BF16, 0),
		tensor(ST_BF16, 1),  tensor(ST_BF16, 99), tensor(ST_BF16, 20),
		tensor(ST_BF16, 0),
	};

	check_casts(NF_EACH, t, COUNT(t), 20, "1 2 3 4 5 6 7 ");
	check_casts(NF_FLAT, t, COUNT(t), 20, "7 ");
	/* Full is not over: the next one ends it. */
	check_casts(NF_PACKED, t, COUNT(t), 20, "4 5 7 ");
	check_casts(NF_PACKED, t, COUNT(t), 19, "2 5 6 7 ");
	check_casts(NF_PACKED, t, COUNT(t), 1, "1 2 5 6 7 ");
	check_casts(NF_PACKED, t, COUNT(t), UINT64_MAX, "7 ");
}

static void test_forms(void)
{
	const struct nccl_tensor t[] = { tensor(ST_BF16, 2), tensor(ST_BF16, 2),
					 tensor(ST_F32, 4) };

	eq_u64(nccl_form_of(ENGINE_SGLANG, false, t, 2), NF_FLAT, "one dtype");
	eq_u64(nccl_form_of(ENGINE_SGLANG, false, t, 3), NF_EACH, "two");
	eq_u64(nccl_form_of(ENGINE_VLLM, true, t, 3), NF_PACKED, "vLLM packs");
	eq_u64(nccl_form_of(ENGINE_VLLM, false, t, 3), NF_EACH, "or not");
	eq_str(nccl_dtype_name(ST_F8_E4M3), "float8_e4m3fn", "torch's name");
	ok(!nccl_dtype_name(ST_F4), "none");
	ok(!nccl_dtype_name(st_dtype_of(SLICE("F9_X"))), "of no dtype");
}

/* In a chunk of 16 bytes. */
static void check_packs(const struct nccl_tensor *t, size_t n, bool want)
{
	ok(nccl_can_pack(t, n, 16) == want, "%zu tensors %s", n,
	   want ? "lie in their chunks as they may" : "lie askew");
}

static void test_alignment(void)
{
	const struct nccl_tensor askew[] = { tensor(ST_U8, 3),
					     tensor(ST_F32, 4) };
	const struct nccl_tensor straight[] = {
		tensor(ST_BF16, 2),
		tensor(ST_BF16, 6),
		tensor(ST_F64, 16),
		/* The next chunk: */
		tensor(ST_U8, 17),
		tensor(ST_F64, 8),
	};

	check_packs(askew, 1, true);
	check_packs(askew, 2, false);
	check_packs(straight, COUNT(straight), true);
	check_packs(straight, 0, true);
}

/* ---- calls ---- */

static void check_answer(enum engine_kind kind, enum nccl_call c,
			 const char *body, bool want)
{
	struct doc *d = doc_parse(slice_of(body));

	ok(nccl_says_done(kind, c, d) == want, "%s", body);
	doc_free(d);
}

static void test_answers(void)
{
	check_answer(ENGINE_SGLANG, NC_LOAD, "{\"success\":true}", true);
	check_answer(ENGINE_SGLANG, NC_LOAD, "{\"success\":false}", false);
	check_answer(ENGINE_SGLANG, NC_LOAD, "{\"message\":\"all is well\"}",
		     false);
	check_answer(ENGINE_VLLM, NC_LOAD, "{\"message\":\"Weights updated\"}",
		     true);
	check_answer(ENGINE_VLLM, NC_LOAD, "{\"message\":\"no\",\"error\":{}}",
		     false);
	check_answer(ENGINE_VLLM, NC_LOAD, "{}", false);
	check_answer(ENGINE_VLLM, NC_LOAD, "<html>", false);
	check_answer(ENGINE_SGLANG, NC_BEGIN, "", true);
	check_answer(ENGINE_SGLANG, NC_END, "{\"message\":\"ended\"}", true);
	check_answer(ENGINE_SGLANG, NC_END, "{\"success\":false}", false);
	check_answer(ENGINE_SGLANG, NC_END, "{\"error\":{}}", false);
	check_answer(ENGINE_VLLM, NC_END, "{}", false);
	ok(nccl_sums_first(ENGINE_VLLM) && !nccl_sums_first(ENGINE_SGLANG),
	   "vLLM warms up");
	ok(!nccl_may_lack(NC_JOIN) && !nccl_may_lack(NC_LOAD) &&
		   nccl_may_lack(NC_BEGIN) && nccl_may_lack(NC_LEAVE),
	   "what has to be there");
}

static void check_body(enum engine_kind kind, enum nccl_call c,
		       const struct nccl_ask *a, const char *want)
{
	struct buf b = { 0 };
	struct jsonw j;

	jsonw_begin(&j, &b, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	nccl_call_body(kind, c, a, &j);
	jsonw_end(&j);
	eq_i64(jsonw_finish(&j), 0, nccl_call_path(kind, c));
	eq_str(buf_cstr(&b), want, "its body");
	buf_release(&b);
}

static void test_bodies(void)
{
	static const uint64_t dims[] = { 2, 3 };
	const struct nccl_tensor t[] = {
		{ SLICE("a.b"), ST_BF16, dims, 2, 12 },
		{ SLICE("s"), ST_F32, NULL, 0, 4 },
	};
	struct nccl_ask a = {
		.group = "weir-1",
		.host = "10.0.0.1",
		.port = 4000,
		.offset = 9,
		.ranks = 17,
		.packing = NP_AT_JOIN,
		.chunk = 1 << 30,
		.buffers = 2,
		.tensor = t,
		.ntensors = 2,
	};

	check_body(ENGINE_SGLANG, NC_JOIN, &a,
		   "{\"master_address\":\"10.0.0.1\",\"master_port\":4000,"
		   "\"rank_offset\":9,\"world_size\":17,"
		   "\"group_name\":\"weir-1\",\"backend\":\"nccl\"}\n");
	check_body(ENGINE_SGLANG, NC_BEGIN, &a, "{\"selector\":\"all\"}\n");
	check_body(ENGINE_SGLANG, NC_LOAD, &a,
		   "{\"names\":[\"a.b\",\"s\"],"
		   "\"dtypes\":[\"bfloat16\",\"float32\"],"
		   "\"shapes\":[[2,3],[]],\"group_name\":\"weir-1\","
		   "\"flush_cache\":false,\"abort_all_requests\":false,"
		   "\"torch_empty_cache\":false}\n");
	a.ntensors = 1;
	check_body(ENGINE_SGLANG, NC_LOAD, &a,
		   "{\"names\":[\"a.b\"],\"dtypes\":[\"bfloat16\"],"
		   "\"shapes\":[[2,3]],\"group_name\":\"weir-1\","
		   "\"flush_cache\":false,\"abort_all_requests\":false,"
		   "\"torch_empty_cache\":false,"
		   "\"load_format\":\"flattened_bucket\"}\n");
	check_body(ENGINE_SGLANG, NC_END, &a, "{}\n");
	check_body(ENGINE_SGLANG, NC_LEAVE, &a,
		   "{\"group_name\":\"weir-1\"}\n");
	check_body(ENGINE_VLLM, NC_JOIN, &a,
		   "{\"init_info\":{\"master_address\":\"10.0.0.1\","
		   "\"master_port\":4000,\"rank_offset\":9,\"world_size\":17,"
		   "\"packed\":true,\"packed_buffer_size_bytes\":1073741824,"
		   "\"packed_num_buffers\":2}}\n");
	check_body(ENGINE_VLLM, NC_LOAD, &a,
		   "{\"update_info\":{\"names\":[\"a.b\"],"
		   "\"dtype_names\":[\"bfloat16\"],\"shapes\":[[2,3]]}}\n");
	a.packing = NP_AT_LOAD;
	check_body(ENGINE_VLLM, NC_LOAD, &a,
		   "{\"update_info\":{\"names\":[\"a.b\"],"
		   "\"dtype_names\":[\"bfloat16\"],\"shapes\":[[2,3]],"
		   "\"packed\":true,\"packed_buffer_size_bytes\":1073741824,"
		   "\"packed_num_buffers\":2}}\n");
	check_body(ENGINE_VLLM, NC_BEGIN, &a, "{}\n");
	check_body(ENGINE_VLLM, NC_END, &a, "{}\n");
	check_body(ENGINE_VLLM, NC_LEAVE, &a, "{}\n");
}

int main(void)
{
	test_keys();
	test_value();
	test_casts();
	test_forms();
	test_alignment();
	test_answers();
	test_bodies();
	return tap_done();
}
