#include "common/devsource.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

static int pread_header(void *ctx, void *p, size_t n, uint64_t offset)
{
	const struct buf *b = ctx;

	BUG_ON(offset > b->n || n > b->n - offset);
	memcpy(p, b->p + offset, n);
	return 0;
}

/* The file that it becomes is one that is accepted. */
void fuzz_devsource(struct slice in)
{
	struct buf header = { 0 };
	struct devsource d;
	struct st st = { 0 };

	if (devsource_parse(&d, "file", in) < 0)
		return;
	for (uint32_t i = 0; i < d.n; i++)
		BUG_ON(d.tensor[i].base >= d.nbases);
	BUG_ON(devsource_header(&d, &header) < 0);
	BUG_ON(st_read(&st, &(struct st_source){ .name = "file",
						 .size = header.n + d.bytes,
						 .pread = pread_header,
						 .ctx = &header }) < 0);
	BUG_ON(st.n != d.n);
	st_release(&st);
	buf_release(&header);
	devsource_release(&d);
}
