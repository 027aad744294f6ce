#include "common/err.h"
#include "common/log.h"
#include "common/safetensors.h"
#include "tests/tap.h"

#include <stdlib.h>
#include <string.h>

/* A file in memory: prefix and header are bytes, the data only a size. */
struct image {
	struct buf head;
	uint64_t size;
};

static int pread_image(void *ctx, void *p, size_t n, uint64_t offset)
{
	const struct image *f = ctx;

	size_t have = offset < f->head.n ? f->head.n - offset : 0;

	if (offset > f->size || n > f->size - offset)
		return log_error(E_BUG, "read past the end");
	memset(p, 0, n);
	if (have)
		memcpy(p, f->head.p + offset, have < n ? have : n);
	return 0;
}

static void put_length(struct image *f, uint64_t n)
{
	for (int i = 0; i < 8; i++, n >>= 8)
		buf_add(&f->head, &(char){ (char)(n & 0xff) }, 1);
}

static struct image image_of(const char *json, size_t n, uint64_t data)
{
	struct image f = { { 0 }, 8 + n + data };

	put_length(&f, n);
	buf_add(&f.head, json, n);
	return f;
}

static int read_image(struct image *f, struct st *st)
{
	struct st_source src = {
		.name = "f",
		.size = f->size,
		.pread = pread_image,
		.ctx = f,
	};
	int rc = st_read(st, &src);

	buf_release(&f->head);
	return rc;
}

static bool refused(struct image f, const char *want)
{
	struct st st;
	int rc = read_image(&f, &st);
	bool good = rc == -E_DATA && strstr(log_cause(), want);

	if (!good)
		printf("# rc %d, cause: %s\n", rc, log_cause());
	if (rc == 0)
		st_release(&st);
	return good;
}

#define REFUSED(json, data, want)                                 \
	ok(refused(image_of(json, sizeof(json) - 1, data), want), \
	   "refuses %s", #want)

#define T(name, dtype, shape, offsets)                           \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
	",\"data_offsets\":" offsets "}"

static void takes(const char *json, uint64_t data, uint32_t n, const char *what)
{
	struct image f = image_of(json, strlen(json), data);
	struct st st;
	int rc = read_image(&f, &st);

	ok(rc == 0 && st.n == n, "takes %s", what);
	if (rc == 0)
		st_release(&st);
	else
		printf("# %s\n", log_cause());
}

static void test_result(void)
{
	static const char json[] =
		"{ " T("w", "F32", "[2,3]",
		       "[2,26]") ","
				 "\"__metadata__\":{\"format\":\"pt\"}," T(
					 "v", "BF16", "[]", "[0,2]") "}  \n";
	struct image f = image_of(json, sizeof json - 1, 26);
	struct digest want;
	struct st st;

	digest_of(f.head.p, f.head.n, &want);
	ok(read_image(&f, &st) == 0, "a small file");
	eq_u64(st.n, 2, "tensors");
	eq_u64(st.data_start, 8 + sizeof json - 1, "data start");
	eq_u64(st.data_bytes, 26, "data bytes");
	ok(digest_eq(&want, &st.header), "header digest");
	ok(slice_eq(st_name(&st, &st.tensor[0]), SLICE("v")) &&
		   st.tensor[0].ndims == 0 && st.tensor[0].dtype == ST_BF16,
	   "data order, not header order");
	ok(slice_eq(st_name(&st, &st.tensor[1]), SLICE("w")) &&
		   st.tensor[1].ndims == 2 &&
		   st_shape(&st, &st.tensor[1])[1] == 3 &&
		   st.tensor[1].begin == 2 && st.tensor[1].end == 26,
	   "the second tensor");
	st_release(&st);
}

static struct image of_length(uint64_t n, uint64_t size)
{
	struct image f = { { 0 }, size };

	put_length(&f, n);
	buf_add(&f.head,
		"{                                               "
		"        ",
		56);
	return f;
}

static struct image raw(const char *text)
{
	struct image f = { { 0 }, strlen(text) };

	buf_add(&f.head, text, strlen(text));
	return f;
}

static void test_st_01(void)
{
	REFUSED("{" T("a", "U8", "[9]", "[0,9]") "}", 8,
		"f: truncated: expected 70 bytes, found 69 (tensor \"a\"");
	REFUSED("{" T("a", "U8", "[9]", "[0,9]") "}", 0,
		"f: truncated: expected 70 bytes, found 61");
}

static void test_st_02(void)
{
	REFUSED("{" T("a", "U8", "[9]", "[0,9]") "}", 10,
		"f: not fully covered: expected 70 bytes, found 71");
	REFUSED("{}", 1, "not fully covered");
}

static void test_st_03(void)
{
	ok(refused(raw("version https://git-lfs.github.com/spec/v1\n"
		       "oid sha256:0000\nsize 12345\n                  "),
		   "f: looks like a Git-LFS pointer"),
	   "ST-03 a Git-LFS pointer is named");
	ok(refused(raw("<!DOCTYPE html><html></html>"),
		   "f: looks like an HTML or error page"),
	   "ST-03 a page is named");
	ok(refused(raw("<a/>"), "HTML"), "ST-03 a short page too");
	takes("{" T("abcd", "U8", "[]", "[0,1]") "}    ", 1, 1,
	      "a header of 0x3c bytes: '<' is no page then");
}

static void test_st_04(void)
{
	static const uint64_t big[] = {
		100000001,
		UINT64_C(1) << 63,
		UINT64_MAX,
	};

	for (size_t i = 0; i < COUNT(big); i++)
		ok(refused(of_length(big[i], 1u << 30),
			   "f: header too large: at most 100000000 bytes"),
		   "ST-04 %llu", (unsigned long long)big[i]);
	ok(refused(of_length(100000000, 1000),
		   "header goes past the end of the file: expected 100000008 "
		   "bytes, the file has 1000"),
	   "ST-04 the largest header in a small file");
	ok(refused(of_length(0, 64), "header too short"), "ST-04 N = 0");
	ok(refused(of_length(1, 64), "header too short"), "ST-04 N = 1");
	for (size_t n = 0; n < 8; n++) {
		struct image f = { { 0 }, n };

		buf_add(&f.head, "\2\0\0\0\0\0\0", n);
		ok(refused(f, "too short: expected at least 8"),
		   "ST-04 %zu bytes", n);
	}
}

static void test_st_04_largest(void)
{
	struct image f = { { 0 }, 8 + 100000000 };
	struct st st;

	put_length(&f, 100000000);
	memset(buf_reserve(&f.head, 100000000), ' ', 100000000);
	f.head.p[8] = '{';
	f.head.p[9] = '}';
	f.head.n += 100000000;
	ok(read_image(&f, &st) == 0, "ST-04 a header of exactly the cap");
	st_release(&st);
}

static void test_st_08(void)
{
	REFUSED("{" T("k", "U8", "[9]", "[0,9]") "," T("v", "U8", "[9]",
						       "[0,9]") "}",
		9, "tensor \"v\": [0, 9) overlaps \"k\" [0, 9)");
	REFUSED("{" T("k", "U8", "[4]", "[0,4]") "," T("v", "U8", "[4]",
						       "[5,9]") "}",
		9, "tensor \"v\": hole before it: 1 bytes at data offset 4");
	REFUSED("{" T("k", "U8", "[4]", "[1,5]") "}", 5,
		"hole before it: 1 bytes at data offset 0");
	REFUSED("{" T("k", "U8", "[4]", "[5,1]") "}", 5, "run backwards");
	REFUSED("{" T("k", "U8", "[9]", "[0,9]") "}", 5, "truncated");
	REFUSED("{" T("k", "U8", "[1]", "[-1,0]") "}", 5, "found -1");
	REFUSED("{" T("k", "U8", "[4]", "[0,4]") "," T("e", "U8", "[0]",
						       "[2,2]") "}",
		4, "tensor \"e\": [2, 2) overlaps \"k\"");
	REFUSED("{" T("k", "U8", "[4]", "[0,5]") "}", 5,
		"dtype U8, shape [4]: expected 4 bytes, found 5");
	takes("{" T("z", "U8", "[4]", "[3,7]") "," T("a", "U8", "[3]",
						     "[0,3]") "}",
	      7, 2, "ST-08 any order, any alignment");
}

static void test_st_10(void)
{
	takes("{" T("a", "F4", "[3,2]", "[0,3]") "}", 3, 1, "ST-10 F4 [3,2]");
	takes("{" T("a", "F6_E2M3", "[4]", "[0,3]") "," T("b", "F6_E3M2", "[4]",
							  "[3,6]") "}",
	      6, 2, "ST-10 F6 [4]");
	REFUSED("{" T("a", "F4", "[3]", "[0,2]") "}", 2,
		"tensor \"a\": dtype F4, shape [3]: not whole bytes");
	REFUSED("{" T("a", "F4", "[]", "[0,1]") "}", 1, "not whole bytes");
}

static void test_st_11(void)
{
	static const unsigned bytes_of_8[] = {
		8,  8,	8,  8,	8,  8,	8,  8,	16, 16, 16,
		16, 32, 32, 32, 64, 64, 64, 64, 4,  6,	6,
	};

	for (unsigned d = 0; d < ST_NDTYPES; d++) {
		struct buf j = { 0 };

		buf_addf(&j,
			 "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],"
			 "\"data_offsets\":[0,%u]}}",
			 st_dtype_name(d), bytes_of_8[d]);
		takes(buf_cstr(&j), bytes_of_8[d], 1, st_dtype_name(d));
		buf_release(&j);
	}
	REFUSED("{" T("a", "F9_X", "[]", "[0,1]") "}", 1,
		"tensor \"a\": unknown dtype \"F9_X\"");
	REFUSED("{" T("a", "f32", "[]", "[0,4]") "}", 4, "dtype \"f32\"");
	REFUSED("{" T("a", "", "[]", "[0,4]") "}", 4, "dtype \"\"");
}

static void test_st_12(void)
{
	takes("{" T("a", "F32", "[]", "[0,4]") "}", 4, 1, "ST-12 []");
	takes("{" T("a", "F32", "[0]", "[0,0]") "}", 0, 1,
	      "ST-12 only an empty tensor");
	takes("{" T("d", "U8", "[0,0]", "[0,0]") "," T("a", "U8", "[2]", "[0,2]") "," T(
		      "c", "U8", "[2,0]",
		      "[2,2]") "," T("b", "U8", "[0]",
				     "[2,2]") "," T("e", "U8", "[2]",
						    "[2,4]") "," T("f", "U8",
								   "[0]",
								   "[4,4]") "}",
	      4, 6, "ST-12 empty ones at start, middle and end");
	takes("{}", 0, 0, "no tensor at all");
}

static void test_overflow(void)
{
	REFUSED("{" T("a", "U8", "[4294967296,4294967296]", "[0,1]") "}", 1,
		"overflows");
	REFUSED("{" T("a", "U8", "[4611686018427387904]", "[0,1]") "}", 1,
		"overflows");
	REFUSED("{" T("a", "U8", "[4611686018427387905]", "[0,1]") "}", 1,
		"up to 2^62");
	REFUSED("{" T("a", "U8", "[2.0]", "[0,2]") "}", 2, "found 2.0");
	REFUSED("{" T("a", "U8", "[2]", "[0,2e0]") "}", 2, "found 2e0");
}

static void test_names(void)
{
	REFUSED("{" T("a", "U8", "[]", "[0,1]") "," T("a", "U8", "[]",
						      "[1,2]") "}",
		2, "tensor \"a\" twice");
	REFUSED("{" T("a", "U8", "[]", "[0,1]") "," T("\\u0061", "U8", "[]",
						      "[1,2]") "}",
		2, "tensor \"a\" twice");
	REFUSED("{" T("", "U8", "[]", "[0,1]") "}", 1, "without a name");
	REFUSED("{" T("a\\u0000", "U8", "[]", "[0,1]") "}", 1,
		"control character");
	REFUSED("{" T("\\n", "U8", "[]", "[0,1]") "}", 1, "control character");
}

static void test_long_name(void)
{
	char json[2 * ST_NAME_MAX];

	for (unsigned n = ST_NAME_MAX; n <= ST_NAME_MAX + 1; n++) {
		struct image f;
		struct st st;

		snprintf(json, sizeof json,
			 "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[0],"
			 "\"data_offsets\":[0,0]}}",
			 (int)n, 7);
		f = image_of(json, strlen(json), 0);
		if (n > ST_NAME_MAX) {
			ok(refused(f, "too long"), "a name too long");
			continue;
		}
		ok(read_image(&f, &st) == 0, "the longest name");
		st_release(&st);
	}
}

static void test_fields(void)
{
	REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1,
		"tensor \"a\": no data_offsets");
	REFUSED("{\"a\":{}}", 1, "tensor \"a\": no dtype");
	REFUSED("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 1,
		"dtype twice");
	REFUSED("{\"a\":{\"strides\":[1]}}", 1, "unknown field \"strides\"");
	REFUSED("{\"a\":[]}", 1, "expected an object, found an array");
	REFUSED("{\"a\":{\"dtype\":8}}", 1, "expected a string");
	REFUSED("{\"a\":{\"shape\":\"x\"}}", 1, "expected an array");
	REFUSED("{\"a\":{\"shape\":[[1]]}}", 1, "found an array");
	REFUSED("{\"a\":{\"data_offsets\":[1]}}", 1, "found fewer");
	REFUSED("{\"a\":{\"data_offsets\":[1,2,3]}}", 1, "found more");
}

static void test_metadata(void)
{
	REFUSED("{\"__metadata__\":{\"a\":1}}", 0, "expected a string");
	REFUSED("{\"__metadata__\":null}", 0, "expected an object");
	REFUSED("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "key twice");
	REFUSED("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
	takes("{\"__metadata__\":{\"b\":\"\",\"a\":\"x\"}}", 0, 0, "metadata");
}

static void test_padding(void)
{
	REFUSED("{}\0\0", 0, "f: header byte 2: NUL byte");
	REFUSED(" {}", 0, "expected '{'");
	REFUSED("[]", 0, "expected '{'");
	REFUSED("{}x", 0, "something follows");
	REFUSED("{\"a\":", 0, "ends too early");
	takes("{}      ", 0, 0, "a header padded by spaces");
}

/* A million tensors, written backwards, so that they must be sorted. */
static void test_million(void)
{
	const unsigned n = 1000000;
	struct buf j = { 0 };
	struct image f;
	struct st st;

	for (unsigned i = n; i-- > 0;)
		buf_addf(&j,
			 "%c\"model.layers.%u.e.%06u\":{\"dtype\":\"U8\","
			 "\"shape\":[],\"data_offsets\":[%u,%u]}",
			 i == n - 1 ? '{' : ',', i % 64, i, i, i + 1);
	buf_add(&j, "}", 1);
	f = image_of(j.p, j.n, n);
	ok(read_image(&f, &st) == 0 && st.n == n && st.tensor[7].begin == 7,
	   "a million tensors");
	st_release(&st);
	buf_release(&j);
}

int main(void)
{
	log_quiet_thread(1);
	test_result();
	test_st_01();
	test_st_02();
	test_st_03();
	test_st_04();
	test_st_04_largest();
	test_st_08();
	test_st_10();
	test_st_11();
	test_st_12();
	test_overflow();
	test_names();
	test_long_name();
	test_fields();
	test_metadata();
	test_padding();
	test_million();
	return tap_done();
}
