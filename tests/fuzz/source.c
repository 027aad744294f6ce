#include "common/source.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

static const char *const shard[] = { "a.safetensors", "b.safetensors" };

/* A shard and how many zeros follow it, or none. */
static void put_shard(const char *name, struct slice *in)
{
	static struct buf file;
	struct slice bytes = fuzz_part(in);
	size_t zeros = (size_t)fuzz_number(in, 1);

	buf_clear(&file);
	buf_add(&file, bytes.p, bytes.n);
	memset(buf_reserve(&file, zeros), 0, zeros);
	file.n += zeros;
	if (file.n > 0)
		fuzz_file(name, buf_slice(&file));
}

static void put(const char *name, struct slice bytes)
{
	if (bytes.n > 0)
		fuzz_file(name, bytes);
}

/* Tensors in order, each in its file, each byte of data once. */
static void check(const struct source *s)
{
	struct source_iter it = { .s = s };
	struct source_tensor t, again;
	uint64_t bytes = 0;
	uint32_t n = 0;

	BUG_ON(s->ntensors == 0 || s->nshards == 0);
	while (source_next(&it, &t)) {
		const struct source_file *f = &s->file[t.file];

		BUG_ON(f->kind != SOURCE_SHARD);
		BUG_ON(t.bytes > f->id.size - t.offset);
		source_get(s, n++, &again);
		BUG_ON(!slice_eq(t.name, again.name) || t.file != again.file);
		bytes += t.bytes;
	}
	BUG_ON(n != s->ntensors || bytes != s->bytes);
	for (uint32_t i = 1; i < s->nfiles; i++)
		BUG_ON(strcmp(s->file[i - 1].path, s->file[i].path) >= 0);
}

/* A checkpoint: index, config and two shards, of which any may lack. */
void fuzz_source(struct slice in)
{
	struct source s = { 0 };

	put(SOURCE_INDEX, fuzz_part(&in));
	put("config.json", fuzz_part(&in));
	for (size_t i = 0; i < COUNT(shard); i++)
		put_shard(shard[i], &in);
	if (source_open(&s, fuzz_path()) == 0)
		check(&s);
	source_release(&s);
	fuzz_drop(SOURCE_INDEX);
	fuzz_drop("config.json");
	for (size_t i = 0; i < COUNT(shard); i++)
		fuzz_drop(shard[i]);
}
