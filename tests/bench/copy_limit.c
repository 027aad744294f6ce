/*
 * copy_limit.c - what this machine can do: the reference of `make bench`.
 *
 *	copy_limit [-f] [-r ROUNDS] [-t THREADS] [-a THREADS] SOURCE DEST...
 *
 * SOURCE is a directory of files, DEST... are directories of warm copies
 * (made if they are not there, and left).  Work is the same in every variant:
 * each source byte is hashed once and copied, with a hash in the same pass, to
 * every DEST.
 *
 *	prefaulted	one process, all threads share one map of each file,
 *			touched before the clock starts
 *	mapped		the same, but the sources are opened and mapped within
 *			the time, like a program that reads files must
 *	apart		one process for the hash and one for each DEST, by
 *			weir's own windows and slotfiles: its byte path
 *			without any control; -a threads in each
 *	fresh		(only this one, once, with -f) `mapped`, but DESTs are
 *			made within the time: what a first push cannot beat
 *
 * Rounds are interleaved; medians are printed: variant, DESTs, seconds,
 * delivered GB/s (1e9 bytes, all DESTs together), ratio to `mapped`.
 */
#include "common/buf.h"
#include "common/clock.h"
#include "common/copy.h"
#include "common/err.h"
#include "common/log.h"
#include "common/pieces.h"
#include "common/pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 256
#define DESTS_MAX 64
#define ROUNDS_MAX 101

struct source {
	char *name;
	int fd;
	uint64_t size;
	char *map;
};

struct dest {
	int dir;
	struct slotfile file[FILES_MAX];
};

static struct source source[FILES_MAX];
static struct dest dest[DESTS_MAX];
static int source_dir;
static size_t nfiles, ndests;
static unsigned threads, apart_threads, rounds = 7;
static uint64_t total;

/* One leaf, hashed or copied to one destination. */
struct work {
	struct job job; /* first */
	struct piece piece;
	const struct dest *to; /* NULL: hash */
	struct digest leaf;
};

static struct work *work;
static size_t nwork;

static void shared_job(struct job *job)
{
	struct work *w = (struct work *)job;
	const char *from = source[w->piece.file].map + w->piece.offset;
	struct digest_state s;

	if (!w->to) {
		digest_of(from, (size_t)w->piece.bytes, &w->leaf);
		return;
	}
	digest_begin(&s);
	copy_hash(w->to->file[w->piece.file].map + w->piece.offset, from,
		  (size_t)w->piece.bytes, &s);
	digest_end(&s, &w->leaf);
}

/* A thread keeps its windows, as weir's workers do, for one round. */
static _Thread_local struct window window[FILES_MAX];

static void apart_job(struct job *job)
{
	struct work *w = (struct work *)job;
	struct window *from = &window[w->piece.file];
	struct slotfile to;
	int rc;

	if (from->size == 0)
		window_init(from, source[w->piece.file].fd,
			    source[w->piece.file].size, WINDOW_AUTO);
	if (!w->to) {
		rc = piece_hash(from, &w->piece, &w->leaf, NULL);
	} else {
		to = w->to->file[w->piece.file];
		rc = piece_copy(from, &to, &w->piece, &w->leaf, NULL);
	}
	BUG_ON(rc < 0);
}

static void run_jobs(struct pool *p, void (*fn)(struct job *),
		     const struct dest *only, bool all)
{
	struct pollfd fd = { .fd = pool_fd(p), .events = POLLIN };
	size_t left = 0;

	for (size_t i = 0; i < nwork; i++) {
		if (!all && work[i].to != only)
			continue;
		work[i].job.fn = fn;
		BUG_ON(pool_submit_take(p, &work[i].job) < 0);
		left++;
	}
	while (left > 0) {
		poll(&fd, 1, -1);
		while (pool_next(p))
			left--;
	}
}

static void map_sources(int flags)
{
	for (size_t i = 0; i < nfiles; i++) {
		struct source *s = &source[i];

		s->map = mmap(NULL, s->size, PROT_READ, MAP_SHARED | flags,
			      s->fd, 0);
		BUG_ON(s->map == MAP_FAILED);
	}
}

static void unmap_sources(void)
{
	for (size_t i = 0; i < nfiles; i++)
		munmap(source[i].map, source[i].size);
}

static void open_sources(void)
{
	for (size_t i = 0; i < nfiles; i++) {
		source[i].fd = openat(source_dir, source[i].name,
				      O_RDONLY | O_CLOEXEC);
		BUG_ON(source[i].fd < 0);
	}
}

static void close_sources(void)
{
	for (size_t i = 0; i < nfiles; i++)
		close(source[i].fd);
}

static double since(int64_t start)
{
	return (double)(clock_mono_ns() - start) / 1e9;
}

static double run_prefaulted(void)
{
	struct pool *p = pool_new("limit", threads, nwork);
	int64_t start;
	double s;

	open_sources();
	map_sources(MAP_POPULATE);
	start = clock_mono_ns();
	run_jobs(p, shared_job, NULL, true);
	s = since(start);
	unmap_sources();
	close_sources();
	pool_free(p);
	return s;
}

static double run_mapped(void)
{
	struct pool *p = pool_new("limit", threads, nwork);
	int64_t start = clock_mono_ns();
	double s;

	open_sources();
	map_sources(0);
	run_jobs(p, shared_job, NULL, true);
	unmap_sources();
	close_sources();
	s = since(start);
	pool_free(p);
	return s;
}

/* Waits for one byte, works, says one byte: the parent's clock is the only
 * one. */
static void apart_process(const struct dest *to, int go, int done)
{
	struct pool *p;
	char c = 0;

	for (size_t i = 0; i < nfiles; i++)
		if (to && to->file[i].map)
			madvise(to->file[i].map, source[i].size,
				MADV_POPULATE_WRITE);
	p = pool_new("apart", apart_threads, nwork);
	BUG_ON(write(done, &c, 1) != 1 || read(go, &c, 1) != 1);
	open_sources();
	run_jobs(p, apart_job, to, false);
	BUG_ON(write(done, &c, 1) != 1);
	_exit(0);
}

static void await(int fd, size_t n)
{
	char c;

	while (n-- > 0)
		BUG_ON(read(fd, &c, 1) != 1);
}

static double run_apart(void)
{
	int go[2], done[2];
	int64_t start;
	double s;

	BUG_ON(pipe(go) < 0 || pipe(done) < 0);
	for (size_t i = 0; i <= ndests; i++)
		if (fork() == 0) {
			/* So that a death is seen as the end of the pipe. */
			close(done[0]);
			close(go[1]);
			apart_process(i < ndests ? &dest[i] : NULL, go[0],
				      done[1]);
		}
	close(done[1]);
	await(done[0], ndests + 1);
	start = clock_mono_ns();
	BUG_ON(write(go[1],
		     "0123456789012345678901234567890123456789"
		     "0123456789012345678901234567890123456789",
		     ndests + 1) != (ssize_t)ndests + 1);
	await(done[0], ndests + 1);
	s = since(start);
	while (wait(NULL) > 0)
		continue;
	close(go[0]);
	close(go[1]);
	close(done[0]);
	return s;
}

static struct {
	const char *name;
	double (*run)(void);
	double seconds[ROUNDS_MAX];
} variant[] = {
	{ "prefaulted", run_prefaulted, { 0 } },
	{ "mapped", run_mapped, { 0 } },
	{ "apart", run_apart, { 0 } },
};

#define MAPPED 1 /* the variant that others are compared with */

static void add_source(const char *name)
{
	struct stat st;

	if (fstatat(source_dir, name, &st, 0) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size == 0)
		return;
	BUG_ON(nfiles == FILES_MAX);
	source[nfiles].name = xstrdup(name);
	source[nfiles].size = (uint64_t)st.st_size;
	total += source[nfiles++].size;
}

static int read_source(const char *path)
{
	struct dirent *e;
	DIR *d = opendir(path);

	source_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!d || source_dir < 0)
		return log_errno(E_IO, "open %s", path);
	while ((e = readdir(d)))
		add_source(e->d_name);
	closedir(d);
	return nfiles > 0 ? 0 : log_error(E_NOINPUT, "no files in %s", path);
}

static int open_dest(struct dest *d, const char *path)
{
	d->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return d->dir < 0 ? log_errno(E_IO, "open %s", path) : 0;
}

static int open_files(struct dest *d)
{
	for (size_t i = 0; i < nfiles; i++) {
		struct slotfile *f = &d->file[i];
		int rc = slotfile_reuse(f, d->dir, source[i].name,
					source[i].size);

		if (rc == -E_AGAIN)
			rc = slotfile_create(f, d->dir, source[i].name,
					     source[i].size);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void touch_files(struct dest *d)
{
	for (size_t i = 0; i < nfiles; i++)
		madvise(d->file[i].map, source[i].size, MADV_POPULATE_WRITE);
}

/* Leaf by leaf, the hash and all copies of one beside each other: the
 * friendliest order for a shared cache. */
static void make_work(void)
{
	for (size_t i = 0; i < nfiles; i++)
		nwork += (source[i].size + DIGEST_LEAF - 1) / DIGEST_LEAF;
	nwork *= ndests + 1;
	work = xcalloc(nwork, sizeof *work);
	nwork = 0;
	for (uint32_t i = 0; i < nfiles; i++)
		for (uint64_t at = 0; at < source[i].size; at += DIGEST_LEAF)
			for (size_t d = 0; d <= ndests; d++) {
				struct work *w = &work[nwork++];

				w->piece.file = i;
				w->piece.offset = at;
				w->piece.bytes = source[i].size - at;
				if (w->piece.bytes > DIGEST_LEAF)
					w->piece.bytes = DIGEST_LEAF;
				w->to = d < ndests ? &dest[d] : NULL;
			}
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(size_t v)
{
	qsort(variant[v].seconds, rounds, sizeof(double), by_size);
	return variant[v].seconds[rounds / 2];
}

static void report(void)
{
	double base = median(MAPPED);

	for (size_t v = 0; v < COUNT(variant); v++)
		printf("%-12s %2zu %8.4f s %6.2f GB/s %5.2f\n", variant[v].name,
		       ndests, median(v),
		       (double)ndests * (double)total / median(v) / 1e9,
		       base / median(v));
}

/* Once: afterwards the pages are warm. */
static int run_fresh(void)
{
	int64_t start = clock_mono_ns();
	double s;

	for (size_t i = 0; i < ndests; i++)
		if (open_files(&dest[i]) < 0)
			return 74;
	s = since(start) + run_mapped();
	printf("%-12s %2zu %8.4f s %6.2f GB/s\n", "fresh", ndests, s,
	       (double)ndests * (double)total / s / 1e9);
	return 0;
}

static int run_all(void)
{
	for (size_t i = 0; i < ndests; i++) {
		if (open_files(&dest[i]) < 0)
			return 74;
		touch_files(&dest[i]);
	}
	for (unsigned r = 0; r < rounds; r++)
		for (size_t v = 0; v < COUNT(variant); v++)
			variant[v].seconds[r] = variant[v].run();
	report();
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: copy_limit [-f] [-r ROUNDS] [-t THREADS] "
			"[-a THREADS] "
			"SOURCE DEST...\n");
	return 64;
}

int main(int argc, char **argv)
{
	bool fresh = false;
	int c;

	log_init("copy_limit", LOG_WARN);
	threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	while ((c = getopt(argc, argv, "fr:t:a:")) != -1) {
		if (c == 'f')
			fresh = true;
		else if (c == 'r')
			rounds = (unsigned)atoi(optarg);
		else if (c == 't')
			threads = (unsigned)atoi(optarg);
		else if (c == 'a')
			apart_threads = (unsigned)atoi(optarg);
		else
			return usage();
	}
	if (apart_threads == 0)
		apart_threads = threads;
	if (argc - optind < 2 || argc - optind - 1 > DESTS_MAX ||
	    rounds - 1 >= ROUNDS_MAX || threads - 1 >= 256 ||
	    apart_threads > 256)
		return usage();
	if (read_source(argv[optind]) < 0)
		return 66;
	for (int i = optind + 1; i < argc; i++)
		if (open_dest(&dest[ndests++], argv[i]) < 0)
			return 74;
	make_work();
	return fresh ? run_fresh() : run_all();
}
