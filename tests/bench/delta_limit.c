/*
 * delta_limit.c - what making and applying a delta cannot beat here.
 *
 *	delta_limit OLD NEW DELTA OUT THREADS
 *
 * OLD and NEW are checkpoints in the page cache, DELTA is a delta between
 * them.  Every part of the work is timed alone, in all threads at once, over
 * the same bytes:
 *
 *	read	both versions		unpack	zstd, the delta's frames
 *	old	the old one		hash	XXH3-128, the new version
 *	pack	zstd as it comes, level 1, what is in the frames
 *	write	the new version to OUT, synced
 *	copy	the same, of what is read from the old one at the same time
 *
 * Prints seconds: the threads' time divided by their number; of write and
 * copy, the time that it took.
 */
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/crew.h"
#include "pipes/delta_dec.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum { READ, OLD, PACK, UNPACK, HASH, NPARTS };

static const char *const part_name[NPARTS] = { "read", "old", "pack", "unpack",
					       "hash" };
static _Atomic int64_t spent[NPARTS];

struct seat {
	struct sums_file old, new;
	ZSTD_CCtx *pack;
	struct zread unpack;
	char *out; /* of the packer; nobody looks */
	struct dec_feed feed;
	uint8_t *box; /* old, new */
};

struct bench {
	struct source old, new;
	struct delta delta;
	uint32_t *new_of;
	int out;
};

static int64_t lap(int part, int64_t since)
{
	int64_t now = clock_mono_ns();

	if (part >= 0)
		atomic_fetch_add(&spent[part], now - since);
	return now;
}

static int more(void *arg, const void **p, size_t *n)
{
	struct dec_feed *f = arg;
	uint64_t left = f->end - f->at;
	uint8_t *box = f->box + f->at % XPAGE;
	int got = io_pread_full(f->fd, box, left < DEC_FEED ? left : DEC_FEED,
				(off_t)f->at);

	*p = box;
	*n = got < 0 ? 0 : (size_t)got;
	f->at += *n;
	return got < 0 ? got : 0;
}

static void pack(struct seat *s, size_t n, ZSTD_EndDirective how)
{
	ZSTD_inBuffer in = { s->box, n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer o = { s->out, ZSTD_CStreamOutSize(), 0 };

		left = ZSTD_compressStream2(s->pack, &o, &in, how);
	} while (!ZSTD_isError(left) &&
		 (in.pos < n || (how == ZSTD_e_end && left)));
}

static void unpack(const struct bench *b, struct seat *s, struct slice name)
{
	int64_t i = delta_find(&b->delta, name), t = clock_mono_ns();
	const struct delta_tensor *d;

	if (i < 0)
		return;
	d = &b->delta.tensor[i];
	if (d->kind == PATCH_SPARSE)
		return;
	s->feed.fd =
		openat(b->delta.dir.fd, b->delta.file[d->file].path, O_RDONLY);
	s->feed.at = d->offset;
	s->feed.end = d->offset + d->bytes;
	ZSTD_CCtx_reset(s->pack, ZSTD_reset_session_only);
	t = lap(-1, t);
	ZSTD_CCtx_setParameter(s->pack, ZSTD_c_compressionLevel, DELTA_LEVEL);
	if (zread_begin(&s->unpack, more, &s->feed) == 0)
		for (uint64_t at = 0, n; at < s->unpack.total; at += n) {
			n = s->unpack.total - at;
			n = n < DELTA_PIECE ? n : DELTA_PIECE;
			zread_get(&s->unpack, s->box, n);
			t = lap(UNPACK, t);
			pack(s, n, ZSTD_e_continue);
			t = lap(PACK, t);
		}
	pack(s, 0, ZSTD_e_end);
	lap(PACK, t);
	close(s->feed.fd);
}

static void piece(struct seat *s, const int fd[2], const uint64_t at[2],
		  size_t n)
{
	uint8_t *a = s->box + at[0] % XPAGE;
	uint8_t *b = s->box + DELTA_PIECE + XPAGE + at[1] % XPAGE;
	struct digest_state d;
	struct digest out;
	int64_t t = clock_mono_ns(), t0 = t;

	io_pread_full(fd[0], a, n, (off_t)at[0]);
	t = lap(OLD, t);
	io_pread_full(fd[1], b, n, (off_t)at[1]);
	t = lap(READ, t0);
	digest_begin(&d);
	digest_add(&d, b, n);
	digest_end(&d, &out);
	lap(HASH, t);
}

static int work(void *ctx, uint32_t i, void *seat)
{
	struct bench *b = ctx;
	struct seat *s = seat;
	struct source_tensor o, n;
	int fd[2];

	source_get(&b->old, i, &o);
	source_get(&b->new, b->new_of[i], &n);
	if (!s->box) {
		s->box = xpages(2 * (DELTA_PIECE + XPAGE));
		s->out = xmalloc(ZSTD_CStreamOutSize());
		s->pack = ZSTD_createCCtx();
		BUG_ON(!s->pack);
		s->feed.box = xpages(DEC_FEED_BOX);
	}
	fd[0] = sums_file_open(&s->old, &b->old, o.file);
	fd[1] = sums_file_open(&s->new, &b->new, n.file);
	if (fd[0] < 0 || fd[1] < 0)
		return -E_IO;
	for (uint64_t at = 0; at < o.bytes; at += DELTA_PIECE) {
		uint64_t left = o.bytes - at;

		piece(s, fd, (uint64_t[]){ o.offset + at, n.offset + at },
		      left < DELTA_PIECE ? left : DELTA_PIECE);
	}
	unpack(b, s, o.name);
	return 0;
}

static void leave(void *seat)
{
	struct seat *s = seat;

	sums_file_close(&s->old);
	sums_file_close(&s->new);
	ZSTD_freeCCtx(s->pack);
	zread_release(&s->unpack);
	free(s->out);
	free(s->feed.box);
	free(s->box);
}

/* A fresh file; from: what is in it, or -1: one piece of memory. */
static int make_file(const struct bench *b, const struct source_file *f,
		     int from)
{
	uint64_t left = f->id.size;
	uint8_t *box = xpages(DELTA_PIECE);
	int fd = openat(b->out, f->path, O_WRONLY | O_CREAT | O_EXCL, 0666);

	memset(box, 7, DELTA_PIECE);
	for (size_t n; left > 0; left -= n) {
		n = left < DELTA_PIECE ? left : DELTA_PIECE;
		if (from >= 0)
			io_read_full(from, box, n);
		io_write_full(fd, box, n);
	}
	free(box);
	if (fd < 0 || fsync(fd) < 0)
		return log_errno(E_IO, "write");
	close(fd);
	return 0;
}

static int write_file(void *ctx, uint32_t i, void *seat)
{
	struct bench *b = ctx;

	(void)seat;
	return make_file(b, &b->new.file[i], -1);
}

static int copy_file(void *ctx, uint32_t i, void *seat)
{
	struct bench *b = ctx;
	int from = source_open_file(&b->old, i);
	int rc = from < 0 ? from : make_file(b, &b->old.file[i], from);

	(void)seat;
	if (from >= 0)
		close(from);
	return rc;
}

/* Of all files; those made before are removed first. */
static int time_files(struct bench *b, unsigned threads, const char *name,
		      crew_fn *each)
{
	struct crew crew = {
		.threads = threads, .seat_size = 1, .work = each, .ctx = b
	};
	int rc = io_remove_below(b->out);
	int64_t t = clock_mono_ns();

	if (rc == 0)
		rc = crew_run(&crew, b->old.nfiles);
	printf("%s %.6f\n", name, (double)(clock_mono_ns() - t) / 1e9);
	return rc;
}

static void match(struct bench *b)
{
	b->new_of = xcalloc(b->old.ntensors, sizeof *b->new_of);
	/* Both were made alike. */
	for (uint32_t i = 0; i < b->old.ntensors; i++)
		b->new_of[i] = i;
}

int main(int argc, char **argv)
{
	struct bench b;
	unsigned threads = argc == 6 ? (unsigned)atoi(argv[5]) : 0;
	struct crew all = {
		.threads = threads,
		.seat_size = sizeof(struct seat),
		.work = work,
		.leave = leave,
		.ctx = &b,
	};

	log_init("delta_limit", LOG_ERROR);
	if (!threads || source_open(&b.old, argv[1]) < 0 ||
	    source_open(&b.new, argv[2]) < 0 ||
	    delta_open(&b.delta, argv[3]) < 0)
		return 64;
	b.out = io_open_dir(AT_FDCWD, argv[4]);
	match(&b);
	if (crew_run(&all, b.old.ntensors) < 0)
		return 74;
	for (int i = 0; i < NPARTS; i++)
		printf("%s %.6f\n", part_name[i],
		       (double)spent[i] / 1e9 / threads);
	if (time_files(&b, threads, "write", write_file) < 0 ||
	    time_files(&b, threads, "copy", copy_file) < 0)
		return 74;
	free(b.new_of);
	delta_close(&b.delta);
	source_release(&b.old);
	source_release(&b.new);
	return 0;
}
