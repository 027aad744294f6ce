#include "pipes/expect.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

static struct msg_arena arena;
static struct digest_state sum;

/* The end's digest is made right: else nothing behind it is ever met. */
static void add_frame(struct buf *file, struct slice frame)
{
	static struct buf packed;
	struct digest_state now = sum;
	struct msg m;

	buf_clear(&packed);
	if (msg_unpack(&m, &arena, frame) >= 0 && m.type == M_end) {
		digest_end(&now, &m.end.digest);
		BUG_ON(msg_pack(&packed, &m) < 0);
		frame = buf_slice(&packed);
	}
	rec_append_frame(file, frame);
	digest_add(&sum, frame.p, frame.n);
}

static void check(const struct plan *p)
{
	uint64_t bytes = 0, tensors = 0, largest;
	struct expect_diff diff = { 0 };
	struct msg m;
	char name[64];

	for (uint32_t b = 0; b < p->nbuckets; b++) {
		BUG_ON(plan_bucket(p, b, &m, &arena) < 0);
		BUG_ON(m.bucket.bytes != p->bucket[b].bytes);
		for (uint32_t i = 0; i < m.bucket.parts.n; i++) {
			const struct m_part *part = &m.bucket.parts.v[i];

			BUG_ON(part->file >= p->nfiles);
			tensors +=
				part->kind == PART_TENSOR && part->start == 0;
		}
		plan_largest_tensor(p, b, name, sizeof name, &largest);
		bytes += plan_bucket_bytes(p, b);
		for (uint32_t r = 0; r < p->nranks; r++)
			BUG_ON(plan_share(p, b, r) > p->bucket[b].bytes);
	}
	BUG_ON(bytes != p->bytes);
	BUG_ON(tensors != p->tensors * p->nranks);
	BUG_ON(expect_same(p, p, &diff) != 1);
	for (uint32_t i = 0; i < p->nengines; i++)
		BUG_ON(p->engine[i].first_receiver + p->engine[i].receivers >
		       p->nreceivers);
}

/* Frames, each with its length before it; their digests are made here. */
void fuzz_planfile(struct slice in)
{
	static struct buf file;
	struct plan p = { 0 };

	buf_clear(&file);
	buf_add(&file, RECFILE_MAGIC, sizeof RECFILE_MAGIC - 1);
	digest_begin(&sum);
	while (in.n > 0)
		add_frame(&file, fuzz_part(&in));
	fuzz_file("plan.weir", buf_slice(&file));
	if (plan_open(&p, fuzz_dir(), "plan.weir") < 0)
		return;
	check(&p);
	plan_close(&p);
}
