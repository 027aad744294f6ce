#include "common/err.h"
#include "common/jsonsax.h"
#include "tests/fuzz/fuzz.h"

#define STRING_MAX 64

static struct buf told[2];

static int tell(void *ctx, enum json_event ev, struct slice text)
{
	buf_addf(ctx, "%d %zu ", (int)ev, text.n);
	buf_add(ctx, text.p, text.n);
	return 0;
}

/* In pieces of step bytes. */
static int read_all(struct slice in, size_t step, bool is_python,
		    struct buf *out)
{
	struct json j = { 0 };
	int rc = 0;

	buf_clear(out);
	json_begin(&j, STRING_MAX, tell, out);
	if (is_python)
		json_allow_python(&j);
	while (rc == 0 && in.n > 0) {
		struct slice s = fuzz_take(&in, step);

		rc = json_feed(&j, s.p, s.n);
	}
	if (rc == 0)
		rc = json_end(&j);
	BUG_ON((rc < 0) != (json_error(&j) != NULL));
	json_release(&j);
	return rc;
}

/* Where the text is cut makes no difference. */
void fuzz_json(struct slice in)
{
	size_t how = (size_t)fuzz_number(&in, 1);
	size_t step = 1 + how % 16;
	bool is_python = how & 16;
	int whole = read_all(in, in.n + 1, is_python, &told[0]);

	BUG_ON(read_all(in, step, is_python, &told[1]) != whole);
	BUG_ON(!slice_eq(buf_slice(&told[0]), buf_slice(&told[1])));
}
