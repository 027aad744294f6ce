#include "common/err.h"
#include "common/io.h"
#include "pipes/delta_dec.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#define FILE_NAME "model-00000-of-00001.safetensors"
#define TENSOR_MAX 4096u /* bytes of the tensor that a payload is for */

/* Index, manifest (if any) and one file, each with two bytes of length. */
void fuzz_delta(struct slice in)
{
	struct slice index = fuzz_part(&in), manifest = fuzz_part(&in);
	struct delta d;

	fuzz_drop(DELTA_MANIFEST);
	fuzz_file(SOURCE_INDEX, index);
	if (manifest.n > 0)
		fuzz_file(DELTA_MANIFEST, manifest);
	fuzz_file(FILE_NAME, in);
	if (delta_open(&d, fuzz_path()) == 0) {
		BUG_ON(d.version <= d.base_version);
		for (uint32_t i = 0; i < d.n; i++) {
			const struct delta_tensor *t = &d.tensor[i];

			BUG_ON(delta_find(&d, t->name) != i);
			BUG_ON(t->kind >= PATCH_NKINDS);
			BUG_ON(d.is_weirs != (t->dtype < ST_NDTYPES));
			BUG_ON(t->offset + t->bytes > d.file[t->file].id.size);
		}
		delta_close(&d);
	}
	fuzz_drop(SOURCE_INDEX);
	fuzz_drop(DELTA_MANIFEST);
	fuzz_drop(FILE_NAME);
}

/* Kind, element size (its logarithm) and bytes of a tensor; a payload. */
void fuzz_deltapayload(struct slice in)
{
	static struct dec dec;
	enum patch_kind kind =
		(enum patch_kind)(fuzz_number(&in, 1) % PATCH_NKINDS);
	unsigned element = 1u << fuzz_number(&in, 1) % 4;
	uint64_t bytes = fuzz_number(&in, 2) % TENSOR_MAX / 8 * 8;
	struct delta_file file = { .path = "packed" };
	struct delta d = { .file = &file, .nfiles = 1 };
	struct delta_tensor t = { .name = SLICE("t"),
				  .bytes = in.n,
				  .kind = kind };
	struct digest leaf[2];
	struct dec_tensor job = { .delta = &d,
				  .t = &t,
				  .bytes = bytes,
				  .element = element,
				  .leaf = { &leaf[0], &leaf[1] },
				  .name = "old" };
	static const char zeros[TENSOR_MAX];

	fuzz_file("packed", in);
	fuzz_file("old", (struct slice){ zeros, bytes });
	job.packed = openat(fuzz_dir(), "packed", O_RDONLY);
	job.from = openat(fuzz_dir(), "old", O_RDWR);
	job.to = job.from;
	/* No checksum fits: what is accepted gets as far as that. */
	BUG_ON(dec_run(&dec, &job) == 0);
	dec_check(&dec, &job);
	close(job.packed);
	close(job.from);
}
