/* What a trainer says of its tensors on a device: read, and refused. */
#include "common/devsource.h"
#include "common/err.h"
#include "common/log.h"
#include "tests/tap.h"

#include <stdlib.h>

#define UUID "GPU-77656972-2d73-7461-6e64-696e2d677003"
#define OTHER_UUID "GPU-77656972-2d73-7461-6e64-696e2d677001"
#define HEX16 "0123456789abcdef"
#define HEX64 HEX16 HEX16 HEX16 HEX16
#define TENSOR(name, dtype, shape, strides, bytes, end, offset)        \
	"{\"name\": \"" name "\", \"dtype\": \"" dtype "\", "          \
	"\"shape\": [" shape "], \"strides\": [" strides "], "         \
	"\"bytes\": " bytes ", \"device\": \"" UUID "\", "             \
	"\"handle\": \"" HEX64 HEX16 HEX16 HEX16 "0123456789abcde" end \
	"\", \"offset\": " offset "}"

/* clang-format off */
static const char text[] =
	"{\"format\": 1, \"tensors\": ["
	TENSOR("narrow", "U8", "3", "1", "3", "0", "512") ","
	TENSOR("wide", "F32", "2, 3", "3, 1", "24", "1", "0") ","
	TENSOR("same", "BF16", "1, 4", "77, 1", "8", "0", "1024") ","
	TENSOR("empty", "F32", "0, 9", "1, 1", "0", "0", "0") ","
	TENSOR("scalar", "F32", "", "", "4", "0", "2048") ","
	TENSOR("tied", "F32", "", "", "4", "0", "2048") "]}";
/* clang-format on */

static int parse(struct devsource *d, const char *s)
{
	int was = log_quiet_thread(1);
	int rc = devsource_parse(d, "FILE", slice_of(s));

	log_quiet_thread(was);
	return rc;
}

struct file {
	struct slice bytes;
};

static int pread_file(void *ctx, void *p, size_t n, uint64_t offset)
{
	const struct file *f = ctx;

	if (offset + n > f->bytes.n)
		return -E_DATA;
	memcpy(p, f->bytes.p + offset, n);
	return 0;
}

/* As safetensors.h reads it. */
static void test_header(const struct devsource *d)
{
	struct buf out = { 0 };
	int rc = devsource_header(d, &out);
	struct file f = { buf_slice(&out) };
	struct st_source src = { .name = "header",
				 .size = out.n + d->bytes,
				 .pread = pread_file,
				 .ctx = &f };
	struct st st = { 0 };

	ok(rc == 0 && out.n % 8 == 0, "a header, and what follows is aligned");
	rc = rc < 0 ? rc : st_read(&st, &src);
	ok(rc == 0 && st.n == d->n, "a file with it is one of these tensors");
	for (uint32_t i = 0; i < st.n; i++)
		ok(st.tensor[i].begin %
				   (st_dtype_bits(st.tensor[i].dtype) / 8) ==
			   0,
		   "%.*s is aligned", SLICE_ARG(st_name(&st, &st.tensor[i])));
	st_release(&st);
	buf_release(&out);
}

static void test_good(void)
{
	static const char *const order[] = { "wide", "empty", "scalar",
					     "tied", "same",  "narrow" };
	struct devsource d;
	int rc = parse(&d, text);

	ok(rc == 0, "it is read: %s", rc < 0 ? log_cause() : "");
	if (rc < 0)
		return;
	eq_u64(d.n, COUNT(order), "tensors");
	eq_u64(d.bytes, 43, "MD-03 bytes, those of two names twice");
	eq_u64(d.nbases, 2, "allocations");
	eq_u64(d.device[15], 3, "device");
	for (uint32_t i = 0; i < d.n; i++)
		eq_str(d.tensor[i].name, order[i], "order: wider ones first");
	eq_u64(d.tensor[5].offset, 512, "offset");
	ok(d.tensor[5].base == d.tensor[4].base, "one allocation of both");
	ok(d.tensor[5].base != d.tensor[0].base, "another one");
	test_header(&d);
	devsource_release(&d);
}

static const struct {
	const char *what, *from, *to, *cause;
} bad[] = {
	{ "BK-13 a transposed tensor", "\"strides\": [3, 1]",
	  "\"strides\": [1, 2]",
	  "tensor \"wide\": it is not contiguous: strides [1,2] of shape "
	  "[2,3]" },
	{ "BK-13 a slice of a wider one", "\"strides\": [3, 1]",
	  "\"strides\": [8, 1]", "strides [8,1] of shape [2,3]" },
	{ "BK-13 a broadcast one", "\"strides\": [3, 1]", "\"strides\": [0, 1]",
	  "strides [0,1] of shape [2,3]" },
	{ "a negative stride", "\"strides\": [3, 1]", "\"strides\": [-3, 1]",
	  "tensor \"wide\": its strides are no whole numbers" },
	{ "a stride too few", "\"strides\": [3, 1]", "\"strides\": [3]",
	  "one for each dimension" },
	{ "MD-03 bytes that are another's too", "\"offset\": 1024",
	  "\"offset\": 514",
	  "tensor \"same\": its bytes overlap those of \"narrow\"" },
	{ "bytes that are not the shape's", "\"bytes\": 24", "\"bytes\": 23",
	  "tensor \"wide\": expected 24 bytes for its dtype and shape, found "
	  "23" },
	{ "a size that overflows", "[2, 3]", "[4611686018427387904, 8]",
	  "tensor \"wide\"" },
	{ "a number that is none", "[2, 3]", "[2.5, 3]",
	  "its shape is not of whole numbers" },
	{ "a dtype that is not known", "\"F32\"", "\"FLOAT\"",
	  "tensor \"wide\": dtype \"FLOAT\" is not known" },
	{ "a name twice", "\"name\": \"wide\"", "\"name\": \"narrow\"",
	  "tensor \"narrow\": is there twice" },
	{ "safetensors' own name", "\"name\": \"wide\"",
	  "\"name\": \"__metadata__\"", "has this name for itself" },
	{ "no name", "\"name\": \"wide\"", "\"name\": 7",
	  "tensor number 1: its name is no text" },
	{ "a control character in a name", "\"name\": \"wide\"",
	  "\"name\": \"w\\u0007de\"", "tensor number 1: its name is no text" },
	{ "a key too many", "\"name\": \"wide\"",
	  "\"size\": 1, \"name\": \"wide\"", "a key \"size\"" },
	{ "a key too few", "\"offset\": 512", "\"offsets\": 512",
	  "tensor \"narrow\": has no \"offset\"" },
	{ "an offset that is none", "\"offset\": 512", "\"offset\": -512",
	  "its offset is no whole number of bytes" },
	{ "a handle too short", HEX64, HEX16,
	  "tensor \"narrow\": its handle is not 128 hexadecimal digits" },
	{ "IP-03 another device", "24, \"device\": \"" UUID,
	  "24, \"device\": \"" OTHER_UUID,
	  "tensor \"wide\": it is on " OTHER_UUID ", the first one on " UUID },
	{ "no UUID", "24, \"device\": \"" UUID, "24, \"device\": \"cuda:0",
	  "tensor \"wide\": its device is no UUID" },
	{ "no tensors", "\"tensors\": [", "\"tensors\": [], \"more\": [",
	  "a key \"more\" is not known" },
	{ "another format", "\"format\": 1", "\"format\": 2",
	  "expected \"format\": 1" },
	{ "no JSON", "\"format\": 1,", "\"format\": 1", "FILE: no JSON text" },
	{ "a key twice", "\"format\": 1,", "\"format\": 1, \"format\": 1,",
	  "a key twice" },
};

/* The text with the first `from` of it replaced. */
static char *changed(const char *from, const char *to)
{
	const char *at = strstr(text, from);

	if (!at)
		BUG("%s is not there", from);
	return xasprintf("%.*s%s%s", (int)(at - text), text, to,
			 at + strlen(from));
}

static void test_bad(void)
{
	struct devsource d;

	for (size_t i = 0; i < COUNT(bad); i++) {
		char *s = changed(bad[i].from, bad[i].to);
		int rc = parse(&d, s);

		ok(rc == -E_DATA && strstr(log_cause(), bad[i].cause), "%s: %s",
		   bad[i].what, rc < 0 ? log_cause() : "accepted");
		if (rc == 0)
			devsource_release(&d);
		free(s);
	}
	ok(parse(&d, "{\"format\": 1, \"tensors\": []}") == -E_DATA,
	   "no tensors: %s", log_cause());
	ok(parse(&d, "{\"format\": 1, \"tensors\": [7]}") == -E_DATA,
	   "no object: %s", log_cause());
	ok(parse(&d, "") == -E_DATA, "nothing: %s", log_cause());
}

int main(void)
{
	log_init("unit_devsource", LOG_ERROR);
	test_good();
	test_bad();
	return tap_done();
}
