#include "common/index.h"
#include "common/srcdir.h"
#include "tests/fuzz/fuzz.h"

void fuzz_index(struct slice in)
{
	struct index x = { 0 };

	if (index_read_meta(&x, "index", in, NULL, NULL) == 0) {
		for (uint32_t i = 0; i < x.n; i++) {
			BUG_ON(x.entry[i].file >= x.nfiles);
			BUG_ON(index_name(&x, i).n > in.n);
		}
		for (uint32_t i = 0; i < x.nfiles; i++)
			BUG_ON(srcdir_bad_path(slice_of(x.file[i])));
	}
	index_release(&x);
}
