/*
 * fp8_limit.c - what --post-load fp8 costs, beside bare loops that convert.
 *
 *	fp8_limit [-r ROUNDS] [-t THREADS] SOURCE SCRATCH
 *
 * SOURCE is a checkpoint of fixtures/mkckpt.py, SCRATCH a directory on the
 * file system to be measured.  All variants start like an engine's seal, with
 * the received shards mapped and in memory, do the same to each tensor, with
 * the same kernel and all cores, and have the result in memory at the end:
 *
 *	weir	quant_run(): new shards, headers, index, config.json, and the
 *		received ones are gone
 *	mapped	a bare loop into maps of new files
 *	written	a bare loop into a buffer for one band, and pwrite() of it
 *	warm	a bare loop into touched pages of nobody's: what it would cost
 *		if nothing had to be stored
 *
 * The bare loops make no header, write no name and leave the received files;
 * their single pass is one band of 128 rows after the other, all columns.
 * Rounds are interleaved; medians are printed: variant, seconds, GB/s (1e9
 * bytes that were read).
 */
#include "common/buf.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fp8.h"
#include "common/io.h"
#include "common/log.h"
#include "common/safetensors.h"
#include "pipes/quant.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 64
#define ROUNDS_MAX 101
#define COPY ((size_t)2 << 20)
#define SUFFIX "_proj.weight"

struct shard {
	char *path;
	uint64_t bytes, to_bytes;
	int in, out;
	char *from, *to; /* maps */
};

/* A band, or, without rows, bytes to copy. */
struct item {
	struct shard *shard;
	uint64_t from, to, scales;
	size_t rows, cols;
};

static struct shard shard[FILES_MAX];
static struct store_file file[FILES_MAX];
static struct slotfile slotfile[FILES_MAX];
static uint32_t nshards, nfiles;
static struct item *item;
static size_t nitems, items_cap;
static atomic_size_t next;
static unsigned threads, rounds = 5;
static uint64_t total;
static size_t box_bytes = COPY;
static const char *source, *scratch;
static char *slot;

static struct item *add_item(void)
{
	if (nitems == items_cap) {
		items_cap = items_cap ? 2 * items_cap : 1024;
		item = xreallocarray(item, items_cap, sizeof *item);
	}
	return &item[nitems++];
}

static void add_bands(struct shard *s, uint64_t from, const uint64_t *shape)
{
	uint64_t over = fp8_blocks(shape[1]) * sizeof(float);
	uint64_t scales = s->to_bytes;

	s->to_bytes += fp8_blocks(shape[0]) * over;
	for (uint64_t r = 0; r < shape[0]; r += FP8_BLOCK) {
		struct item *w = add_item();

		*w = (struct item){ s,
				    from + r * shape[1] * 2,
				    s->to_bytes + r * shape[1],
				    scales + r / FP8_BLOCK * over,
				    FP8_BLOCK,
				    (size_t)shape[1] };
		if (shape[0] - r < FP8_BLOCK)
			w->rows = (size_t)(shape[0] - r);
		if (w->rows * w->cols > box_bytes)
			box_bytes = w->rows * w->cols;
	}
	s->to_bytes += shape[0] * shape[1];
}

static void add_copies(struct shard *s, uint64_t from, uint64_t end)
{
	for (; from < end; from += COPY) {
		size_t n = end - from < COPY ? (size_t)(end - from) : COPY;

		*add_item() = (struct item){ s, from, s->to_bytes, 0, 0, n };
		s->to_bytes += n;
	}
}

static bool is_converted(struct slice name)
{
	size_t n = sizeof SUFFIX - 1;

	return name.n > n && memcmp(name.p + name.n - n, SUFFIX, n) == 0;
}

static int list_shard(struct shard *s)
{
	struct st st = { 0 };
	int rc = st_read_fd(&st, s->path, s->in, s->bytes);

	for (uint32_t i = 0; i < st.n && rc >= 0; i++) {
		const struct st_tensor *t = &st.tensor[i];

		if (is_converted(st_name(&st, t)))
			add_bands(s, st.data_start + t->begin,
				  st_shape(&st, t));
		else
			add_copies(s, st.data_start + t->begin,
				   st.data_start + t->end);
	}
	st_release(&st);
	return rc;
}

/* ---- the loops ---- */

static void convert(const struct item *w, const void *from, void *to,
		    float *scale)
{
	const struct fp8_part p = { FP8_FROM_BF16, from,    to,	    w->cols * 2,
				    w->cols,	   w->rows, w->cols };

	BUG_ON(fp8_convert(&p, scale) < 0);
}

static void *by_map(void *arg)
{
	size_t i;

	while ((i = next++) < nitems) {
		const struct item *w = &item[i];
		const char *from = w->shard->from + w->from;
		char *to = w->shard->to + w->to;
		float scale[1024];

		if (w->rows == 0) {
			memcpy(to, from, w->cols);
			continue;
		}
		convert(w, from, to, scale);
		memcpy(w->shard->to + w->scales, scale,
		       fp8_blocks(w->cols) * sizeof scale[0]);
	}
	return arg;
}

static void put(int fd, const void *p, size_t n, uint64_t at)
{
	BUG_ON(io_pwrite_full(fd, p, n, (off_t)at) < 0);
}

static void *by_write(void *arg)
{
	char *box = xmalloc(box_bytes);
	size_t i;

	while ((i = next++) < nitems) {
		const struct item *w = &item[i];
		const struct shard *s = w->shard;
		float scale[1024];

		if (w->rows == 0) {
			put(s->out, s->from + w->from, w->cols, w->to);
			continue;
		}
		convert(w, s->from + w->from, box, scale);
		put(s->out, box, w->rows * w->cols, w->to);
		put(s->out, scale, fp8_blocks(w->cols) * sizeof scale[0],
		    w->scales);
	}
	free(box);
	return arg;
}

static void all_cores(void *(*fn)(void *))
{
	pthread_t thread[QUANT_THREADS_MAX];

	next = 0;
	for (unsigned i = 1; i < threads; i++)
		BUG_ON(pthread_create(&thread[i], NULL, fn, NULL) != 0);
	fn(NULL);
	for (unsigned i = 1; i < threads; i++)
		pthread_join(thread[i], NULL);
}

static double since(int64_t start)
{
	return (double)(clock_mono_ns() - start) / 1e9;
}

static char *map(int fd, uint64_t n, int flags)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, fd, 0);

	BUG_ON(p == MAP_FAILED);
	return p;
}

static void open_new(struct shard *s)
{
	char *path = xasprintf("%s/new.%td", scratch, s - shard);

	s->out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	BUG_ON(s->out < 0 || unlink(path) < 0);
	free(path);
}

static double run_mapped(void)
{
	int64_t start = clock_mono_ns();
	double s;

	for (struct shard *f = shard; f < shard + nshards; f++) {
		open_new(f);
		BUG_ON(ftruncate(f->out, (off_t)f->to_bytes) < 0);
		f->to = map(f->out, f->to_bytes, MAP_SHARED);
	}
	all_cores(by_map);
	s = since(start);
	for (struct shard *f = shard; f < shard + nshards; f++) {
		munmap(f->to, f->to_bytes);
		close(f->out);
	}
	return s;
}

static double run_written(void)
{
	int64_t start = clock_mono_ns();
	double s;

	for (struct shard *f = shard; f < shard + nshards; f++)
		open_new(f);
	all_cores(by_write);
	s = since(start);
	for (struct shard *f = shard; f < shard + nshards; f++)
		close(f->out);
	return s;
}

static double run_warm(void)
{
	int64_t start;
	double s;

	for (struct shard *f = shard; f < shard + nshards; f++)
		f->to = map(-1, f->to_bytes,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
	start = clock_mono_ns();
	all_cores(by_map);
	s = since(start);
	for (struct shard *f = shard; f < shard + nshards; f++)
		munmap(f->to, f->to_bytes);
	return s;
}

static void read_all(const char *dir, const char *name, struct buf *out)
{
	char *path = xasprintf("%s/%s", dir, name);

	BUG_ON(io_read_file(AT_FDCWD, path, SIZE_MAX, out) < 0);
	free(path);
}

/* The slot as it was received: every file through a map of it. */
static void fill_slot(int dirfd)
{
	for (uint32_t i = 0; i < nfiles; i++) {
		struct buf b = { 0 };

		read_all(source, file[i].path, &b);
		BUG_ON(slotfile_create(&slotfile[i], dirfd, file[i].path, b.n) <
		       0);
		memcpy(slotfile[i].map, b.p, b.n);
		buf_release(&b);
	}
}

static double run_weir(void)
{
	static atomic_bool cancel;
	struct store_files files = { .file = slotfile, .n = nfiles };
	struct quant q = { .file = file,
			   .nfiles = nfiles,
			   .files = &files,
			   .threads = threads,
			   .timeout_ms = 600000,
			   .cancel = &cancel };
	int64_t start;
	double s;

	BUG_ON(io_remove_tree(AT_FDCWD, slot) < 0 || mkdir(slot, 0700) < 0);
	q.dirfd = open(slot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fill_slot(q.dirfd);
	start = clock_mono_ns();
	BUG_ON(quant_run(&q) < 0);
	s = since(start);
	for (uint32_t i = 0; i < nfiles; i++)
		slotfile_release(&slotfile[i]);
	close(q.dirfd);
	return s;
}

static struct {
	const char *name;
	double (*run)(void);
	double seconds[ROUNDS_MAX];
} variant[] = {
	{ "weir", run_weir, { 0 } },
	{ "mapped", run_mapped, { 0 } },
	{ "written", run_written, { 0 } },
	{ "warm", run_warm, { 0 } },
};

/* ---- files ---- */

static int add_file(const char *name)
{
	char *path = xasprintf("%s/received/%s", scratch, name);
	size_t n = strlen(name);
	struct shard *s = &shard[nshards];
	struct stat st;

	BUG_ON(nfiles == FILES_MAX);
	file[nfiles].path = xstrdup(name);
	file[nfiles].kind = FILE_CARRIED;
	if (n < 12 || strcmp(name + n - 12, ".safetensors") != 0) {
		nfiles++;
		free(path);
		return 0;
	}
	file[nfiles++].kind = FILE_SHARD;
	s->path = path;
	s->in = open(path, O_RDWR | O_CLOEXEC);
	if (s->in < 0 || fstat(s->in, &st) < 0)
		return log_errno(E_IO, "open %s", path);
	s->bytes = (uint64_t)st.st_size;
	total += s->bytes;
	s->from = map(s->in, s->bytes, MAP_SHARED | MAP_POPULATE);
	nshards++;
	return list_shard(s);
}

static int read_source(void)
{
	char *command = xasprintf("cp -r '%s' '%s/received'", source, scratch);
	DIR *d = opendir(source);
	struct dirent *e;
	int rc = 0;

	if (!d || system(command) != 0)
		rc = log_errno(E_IO, "open %s", source);
	while (rc >= 0 && (e = readdir(d)))
		if (e->d_name[0] != '.')
			rc = add_file(e->d_name);
	if (d)
		closedir(d);
	free(command);
	if (rc >= 0 && nshards == 0)
		rc = log_error(E_NOINPUT, "no shards in %s", source);
	return rc;
}

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(void)
{
	for (unsigned r = 0; r < rounds; r++)
		for (size_t v = 0; v < COUNT(variant); v++)
			variant[v].seconds[r] = variant[v].run();
	for (size_t v = 0; v < COUNT(variant); v++) {
		double *s = variant[v].seconds;

		qsort(s, rounds, sizeof *s, cmp_double);
		printf("%-8s %.4f s %6.2f GB/s\n", variant[v].name,
		       s[rounds / 2], (double)total / s[rounds / 2] / 1e9);
	}
}

int main(int argc, char **argv)
{
	int c;

	log_init("fp8_limit", LOG_WARN);
	threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	while ((c = getopt(argc, argv, "r:t:")) != -1)
		if (c == 'r')
			rounds = (unsigned)atoi(optarg);
		else
			threads = (unsigned)atoi(optarg);
	if (argc - optind != 2 || rounds < 1 || rounds > ROUNDS_MAX ||
	    threads < 1 || threads > QUANT_THREADS_MAX) {
		fprintf(stderr, "usage: fp8_limit [-r ROUNDS] [-t THREADS] "
				"SOURCE SCRATCH\n");
		return 64;
	}
	source = argv[optind];
	scratch = argv[optind + 1];
	slot = xasprintf("%s/slot", scratch);
	if (read_source() < 0)
		return 74;
	measure();
	return 0;
}
