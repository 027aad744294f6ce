#include "pipes/quant.h"
#include "common/err.h"
#include "common/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char names[][32] = { QUANT_CONFIG, "model.safetensors",
			    "model.safetensors.index.json" };
static const struct store_file files[] = {
	{ .path = names[0], .kind = FILE_CARRIED },
	{ .path = names[1], .kind = FILE_SHARD },
	{ .path = names[2], .kind = FILE_CARRIED },
};

static int read_shard(struct st *st)
{
	int fd = openat(fuzz_dir(), names[1], O_RDONLY | O_CLOEXEC);
	struct stat file;
	int rc;

	BUG_ON(fd < 0 || fstat(fd, &file) < 0);
	rc = st_read_fd(st, names[1], fd, (uint64_t)file.st_size);
	close(fd);
	return rc;
}

/* It is a checkpoint, and is not quantised a second time. */
static void check(const struct quant *q)
{
	struct st st = { 0 };

	BUG_ON(read_shard(&st) < 0);
	st_release(&st);
	BUG_ON(quant_run(q) != -E_DATA);
}

/* config.json, index and shard, as a slot has them; of the shard, how many
 * zeros follow its header. */
void fuzz_quant(struct slice in)
{
	static struct buf shard;
	static atomic_bool cancel;
	struct slice config = fuzz_part(&in), index = fuzz_part(&in);
	size_t zeros = (size_t)fuzz_number(&in, 2);
	struct quant q = { .dirfd = fuzz_dir(),
			   .file = files,
			   .nfiles = COUNT(files),
			   .threads = 1,
			   .timeout_ms = 60000,
			   .cancel = &cancel };
	struct st st = { 0 };

	buf_clear(&shard);
	buf_add(&shard, in.p, in.n);
	memset(buf_reserve(&shard, zeros), 0, zeros);
	shard.n += zeros;
	fuzz_file(names[0], config);
	fuzz_file(names[1], buf_slice(&shard));
	fuzz_file(names[2], index);
	/* What a slot has was checked when it was planned. */
	if (read_shard(&st) == 0 && quant_run(&q) == 0)
		check(&q);
	st_release(&st);
}
