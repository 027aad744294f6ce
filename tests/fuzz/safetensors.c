#include "common/safetensors.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static int read_at(void *ctx, void *p, size_t n, uint64_t offset)
{
	const struct slice *file = ctx;

	memset(p, 0, n);
	for (size_t i = 0; i < n && offset + i < file->n; i++)
		((char *)p)[i] = file->p[offset + i];
	return 0;
}

/* What is taken covers its data, each byte once. */
static void check(const struct st *st, uint64_t size)
{
	uint64_t end = 0;

	BUG_ON(st->data_start + st->data_bytes != size);
	for (uint32_t i = 0; i < st->n; i++) {
		const struct st_tensor *t = &st->tensor[i];
		uint64_t bytes;
		const char *why;

		BUG_ON(t->begin != end || t->end < t->begin);
		BUG_ON(st_bytes((enum st_dtype)t->dtype, st_shape(st, t),
				t->ndims, &bytes, &why) < 0);
		BUG_ON(bytes != t->end - t->begin);
		BUG_ON(st_name(st, t).n != t->name_len);
		end = t->end;
	}
	BUG_ON(end != st->data_bytes);
}

/* Three bytes say how many zeros follow the input: a header alone is enough
 * to be a file. */
void fuzz_safetensors(struct slice in)
{
	uint64_t data = fuzz_number(&in, 3);
	struct st_source src = {
		.name = "f", .size = in.n, .pread = read_at, .ctx = &in
	};
	struct st st = { 0 };

	src.size += data;
	if (st_read(&st, &src) == 0)
		check(&st, src.size);
	st_release(&st);
}
