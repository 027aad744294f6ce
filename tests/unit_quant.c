/* Pieces, threads (its own, of pthread.h) and refusals of quant.h; whole
 * pushes are fp8.bats's. */
#include "tests/files.h"
#include "tests/tap.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/fp8.h"
#include "common/io.h"
#include "pipes/quant.h"

#include <sys/stat.h>

#define ROWS 260
#define COLS 9000 /* more than a piece of F32 has */
#define W "l.w.weight"

static char dir[64];
static int dirfd_;
static float *number;
static atomic_bool cancel;

static void put_file(const char *name, const void *p, size_t n)
{
	int fd = openat(dirfd_, name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	close(file_with(fd, p, n));
}

/* One shard of these tensors; data of n bytes. */
static void put_shard(const char *name, const char *tensors, const void *data,
		      size_t n)
{
	struct buf b = { 0 };
	uint64_t size = strlen(tensors);

	buf_add(&b, &size, sizeof size);
	buf_add(&b, tensors, strlen(tensors));
	buf_add(&b, data, n);
	put_file(name, b.p, b.n);
	buf_release(&b);
}

static void put_weight(void)
{
	char head[200];
	size_t n = sizeof *number * ROWS * COLS;

	snprintf(head, sizeof head,
		 "{\"" W "\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
		 "\"data_offsets\":[0,%zu]}}",
		 ROWS, COLS, n);
	put_shard("w.safetensors", head, number, n);
}

static int run(unsigned threads, int64_t ms)
{
	static char path[] = "w.safetensors";
	const struct store_file file = { .path = path, .kind = FILE_SHARD };
	const struct quant q = {
		.dirfd = dirfd_,
		.file = &file,
		.nfiles = 1,
		.threads = threads,
		.timeout_ms = ms,
		.cancel = &cancel,
	};
	int rc;

	log_quiet_thread(1);
	rc = quant_run(&q);
	log_quiet_thread(0);
	return rc;
}

static bool has_cause(const char *part)
{
	return strstr(log_cause(), part) != NULL;
}

/* The new shard, of a fresh copy, by so many threads. */
static void result(struct buf *out, unsigned threads)
{
	buf_clear(out);
	put_weight();
	put_file("config.json", "{}", 2);
	eq_i64(run(threads, 60000), 0, "quantised");
	ok(io_read_file(dirfd_, "w.safetensors", 1 << 28, out) == 0, "read");
}

/* By whole rows of blocks, not by pieces. */
static bool is_right(const char *codes, const char *scales)
{
	uint64_t over = fp8_blocks(COLS);
	uint8_t *code = xmalloc(FP8_BLOCK * COLS);
	float *scale = xcalloc(over, sizeof *scale);
	bool good = true;

	for (size_t r = 0; r < ROWS && good; r += FP8_BLOCK) {
		size_t rows = ROWS - r < FP8_BLOCK ? ROWS - r : FP8_BLOCK;
		const struct fp8_part p = { FP8_FROM_F32, number + r * COLS,
					    code,	  sizeof *number * COLS,
					    COLS,	  rows,
					    COLS };

		good = fp8_convert(&p, scale) == 0 &&
		       memcmp(code, codes + r * COLS, rows * COLS) == 0 &&
		       memcmp(scale,
			      scales + r / FP8_BLOCK * over * sizeof *scale,
			      over * sizeof *scale) == 0;
	}
	free(scale);
	free(code);
	return good;
}

static void test_pieces(void)
{
	struct buf one = { 0 }, many = { 0 };
	size_t scales = fp8_blocks(ROWS) * fp8_blocks(COLS) * sizeof(float);
	size_t data = scales + ROWS * COLS;

	result(&one, 1);
	ok(one.n > data && (one.n - data) % 8 == 0, "its size");
	ok(is_right(one.p + one.n - ROWS * COLS, one.p + one.n - data),
	   "as if it were one piece");
	for (unsigned threads = 2; threads <= 8; threads *= 2) {
		result(&many, threads);
		ok(many.n == one.n && memcmp(many.p, one.p, one.n) == 0,
		   "the same by %u threads", threads);
	}
	buf_release(&one);
	buf_release(&many);
}

#define SHARDS 4

/* Rows of the matrix, in so many shards: the second file can take the third,
 * the third cannot take the fourth. */
static const int shard_rows[SHARDS] = { 128, 200, 100, 260 };
static char shard_name[SHARDS][16];
static struct store_file shard_file[SHARDS];

static void put_shards(void)
{
	for (int i = 0; i < SHARDS; i++) {
		char head[200];
		size_t n = sizeof *number * (size_t)shard_rows[i] * COLS;

		snprintf(shard_name[i], sizeof shard_name[i], "s%d", i);
		snprintf(head, sizeof head,
			 "{\"l%d.w.weight\":{\"dtype\":\"F32\",\"shape\":"
			 "[%d,%d],\"data_offsets\":[0,%zu]}}",
			 i, shard_rows[i], COLS, n);
		put_shard(shard_name[i], head, number, n);
		shard_file[i] = (struct store_file){ .path = shard_name[i],
						     .kind = FILE_SHARD };
	}
	put_file("config.json", "{}", 2);
}

static void quantise_shards(struct store_files *files)
{
	const struct quant q = { .dirfd = dirfd_,
				 .file = shard_file,
				 .nfiles = SHARDS,
				 .files = files,
				 .threads = 3,
				 .timeout_ms = 60000,
				 .cancel = &cancel };

	eq_i64(quant_run(&q), 0, "shards quantised");
	ok(faccessat(dirfd_, ".weir-fp8", F_OK, 0) < 0 &&
		   faccessat(dirfd_, ".weir-fp8.old", F_OK, 0) < 0,
	   "nothing left behind");
}

/* From the maps of a slot that was filled, and by name: the same. */
static void test_slot(void)
{
	struct buf want[SHARDS] = { { 0 } }, got = { 0 };
	struct slotfile f[SHARDS];
	struct store_files files = { .file = f, .n = SHARDS };

	put_shards();
	quantise_shards(NULL);
	for (int i = 0; i < SHARDS; i++)
		io_read_file(dirfd_, shard_name[i], 1 << 28, &want[i]);
	put_shards();
	for (int i = 0; i < SHARDS; i++) {
		struct stat st;

		fstatat(dirfd_, shard_name[i], &st, 0);
		ok(slotfile_reuse(&f[i], dirfd_, shard_name[i],
				  (uint64_t)st.st_size) == 0,
		   "slot file %d", i);
	}
	quantise_shards(&files);
	for (int i = 0; i < SHARDS; i++) {
		buf_clear(&got);
		io_read_file(dirfd_, shard_name[i], 1 << 28, &got);
		ok(got.n == want[i].n && memcmp(got.p, want[i].p, got.n) == 0,
		   "shard %d is the same", i);
		ok(f[i].fd < 0, "and let go of");
		buf_release(&want[i]);
	}
	buf_release(&got);
}

static void test_ends(void)
{
	put_weight();
	put_file("config.json", "{}", 2);
	atomic_store(&cancel, true);
	eq_i64(run(2, 60000), -E_AGAIN, "cancelled");
	atomic_store(&cancel, false);
	eq_i64(run(2, -1000), -E_TIMEOUT, "too late");
	ok(has_cause("did not end within"), "%s", log_cause());
}

static void test_bad_number(void)
{
	float was = number[200 * COLS + 8999];

	number[200 * COLS + 8999] = -1.0f / 0.0f;
	put_weight();
	eq_i64(run(3, 60000), -E_DATA, "infinity");
	ok(has_cause("w.safetensors") && has_cause(W) &&
		   has_cause("row 200, column 8999"),
	   "%s", log_cause());
	number[200 * COLS + 8999] = was;
}

#define TENSOR(name, dtype, shape, offsets)                       \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape \
	"],\"data_offsets\":[" offsets "]}"

static void test_names(void)
{
	static const float two[2];

	put_shard("w.safetensors",
		  "{" TENSOR(W, "F32", "1,1", "0,4") "," TENSOR(
			  W "_scale_inv", "F32", "1,1", "4,8") "}",
		  two, 8);
	eq_i64(run(1, 60000), -E_DATA, "a scale is there");
	ok(has_cause("\"" W "_scale_inv\" is there already"), "%s",
	   log_cause());
	put_shard("w.safetensors",
		  "{" TENSOR("l.norm.weight", "F32", "1,2", "0,8") "}", two, 8);
	eq_i64(run(1, 60000), -E_DATA, "nothing to do");
	ok(has_cause("nothing to quantise"), "%s", log_cause());
}

static void bad_config(const char *text, const char *part)
{
	put_weight();
	put_file("config.json", text, strlen(text));
	eq_i64(run(1, 60000), -E_DATA, text);
	ok(has_cause(part), "%s", log_cause());
}

static void test_config(void)
{
	bad_config("{\"quantization_config\":[]}", "quantization_config");
	bad_config("{\"x\":{\"text_config\":{\"compression_config\":{}}}}",
		   "compression_config");
	bad_config("{\"compression_config\":{}}", "compression_config");
	bad_config("{\"a\":1,}", "config.json: byte 7");
	bad_config("[]", "expected an object, found an array");
	bad_config("{\"a\":inf}", "config.json: byte 5");
	bad_config("", "config.json: byte 0");
}

static void test_small(void)
{
	static const struct {
		const char *text;
		bool is_built_in;
	} post_load[] = { { "fp8", true },   { "./fp8", false },
			  { "fp8 ", false }, { "fp8 -x", false },
			  { "FP8", false },  { NULL, false } };
	struct store_file files[] = { { .bytes = 100, .kind = FILE_SHARD },
				      { .bytes = 900, .kind = FILE_CARRIED },
				      { .bytes = 301, .kind = FILE_SHARD } };
	const struct store_slot slot = { .file = files, .nfiles = 3 };

	for (size_t i = 0; i < COUNT(post_load); i++)
		ok(quant_is_name(post_load[i].text) == post_load[i].is_built_in,
		   "\"%s\"", post_load[i].text ? post_load[i].text : "none");
	eq_u64(quant_spare(&slot), 150, "half of the largest shard");
}

int main(void)
{
	new_root(dir, sizeof dir, "weir-unit-quant");
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	number = xcalloc((size_t)ROWS * COLS, sizeof *number);
	for (size_t i = 0; i < (size_t)ROWS * COLS; i++)
		number[i] = (float)((i * 2654435761u >> 7) % 20011) / 10005 - 1;
	test_pieces();
	test_slot();
	test_ends();
	test_bad_number();
	test_names();
	test_config();
	test_small();
	free(number);
	close(dirfd_);
	io_remove_tree(AT_FDCWD, dir);
	return tap_done();
}
