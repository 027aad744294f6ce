#include "pipes/quant_part.h"
#include "common/cached.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TMP_NAME ".weir-fp8"	 /* the new file, until it is whole */
#define OLD_NAME ".weir-fp8.old" /* a received one that is used again */
#define PAGE 4096u		 /* or a part of one */
#define ALIGN 8			 /* of the data's start */
#define CAUSE_MAX 256

typedef unsigned long long ull;

enum what { KEEP, CODES, SCALES };

/* One tensor of the new file. */
struct out {
	const struct st_tensor *t;
	enum what what;
	enum fp8_from from;
	uint64_t begin, end; /* in its data */
	uint64_t scales;     /* of CODES: where they begin */
};

struct shard {
	struct quant_all *a;
	const struct store_file *file;
	struct slotfile in, to; /* map NULL: by pread, by pwrite */
	struct st st;
	struct out *out;
	uint32_t n;
	uint64_t data_start; /* of the new file */
	uint64_t data_bytes;
	bool is_long;  /* it has pages of a longer one, to be given back */
	bool is_eaten; /* the received one's pages go as they are read */

	pthread_mutex_t lock; /* guards all below */
	uint32_t next;	      /* in out */
	uint64_t row, col;    /* there; of KEEP, col is the byte */
	int rc;		      /* the first failure */
	char cause[CAUSE_MAX];
};

/* A piece of a tensor, for one thread: of CODES, rows of blocks in which it
 * does one part after the other. */
struct piece_of {
	const struct out *o;
	uint64_t row, col;
	size_t rows, cols;
};

/* fp8_convert(), under a guard. */
struct conversion {
	struct fp8_part part;
	float *scale;
	int rc;
};

struct helper {
	struct job job; /* first */
	struct shard *s;
	bool trims; /* before it helps */
};

/* ---- what is where ---- */

static unsigned bits_of(const struct out *o)
{
	if (o->what == KEEP)
		return st_dtype_bits(o->t->dtype);
	return o->what == CODES ? 8 : 32;
}

static int cmp_out(const void *pa, const void *pb)
{
	const struct out *a = pa, *b = pb;

	if (bits_of(a) != bits_of(b))
		return bits_of(a) > bits_of(b) ? -1 : 1;
	if (a->t != b->t)
		return a->t < b->t ? -1 : 1;
	return (int)a->what - (int)b->what;
}

static uint64_t bytes_of(const struct shard *s, const struct out *o)
{
	const uint64_t *d = st_shape(&s->st, o->t);

	if (o->what == KEEP)
		return o->t->end - o->t->begin;
	if (o->what == CODES)
		return d[0] * d[1];
	return fp8_blocks(d[0]) * fp8_blocks(d[1]) * sizeof(float);
}

static void list(struct shard *s)
{
	s->out = xcalloc(2 * (size_t)s->st.n, sizeof *s->out);
	for (uint32_t i = 0; i < s->st.n; i++) {
		const struct st_tensor *t = &s->st.tensor[i];
		struct out *o = &s->out[s->n++];

		o->t = t;
		if (!quant_wants(st_name(&s->st, t), &s->st, t, &o->from))
			continue;
		o->what = CODES;
		s->out[s->n] = *o;
		s->out[s->n++].what = SCALES;
	}
}

/* Largest elements first, so that each tensor is aligned without holes. */
static void place(struct shard *s)
{
	uint64_t *scales = xcalloc(s->st.n, sizeof *scales), at = 0;

	if (s->n > 0)
		qsort(s->out, s->n, sizeof *s->out, cmp_out);
	for (uint32_t i = 0; i < s->n; i++) {
		struct out *o = &s->out[i];
		size_t t = (size_t)(o->t - s->st.tensor);

		o->begin = at;
		o->end = at += bytes_of(s, o);
		if (o->what == SCALES)
			scales[t] = o->begin;
		o->scales = scales[t]; /* they stand before the codes */
	}
	s->data_bytes = at;
	free(scales);
}

static void tell(struct shard *s, uint32_t file)
{
	struct quant_all *a = s->a;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct out *o = &s->out[i];
		struct slice name = st_name(&s->st, o->t), kept = { NULL, 0 };

		quant_name_add(&a->tensors, name,
			       o->what == SCALES ? QUANT_SCALE : "", file);
		if (o->what == KEEP)
			kept = quant_kept_module(name, o->t);
		if (kept.p)
			quant_name_add(&a->kept, kept, "", file);
		a->quantised += o->what == CODES;
	}
	a->before += s->st.data_bytes;
	a->bytes += s->data_bytes;
}

/* ---- the header ---- */

static void add_shape(struct buf *b, const struct shard *s, const struct out *o)
{
	const uint64_t *d = st_shape(&s->st, o->t);

	for (unsigned i = 0; i < o->t->ndims; i++)
		buf_addf(b, "%s%llu", i ? "," : "",
			 (ull)(o->what == SCALES ? fp8_blocks(d[i]) : d[i]));
}

static void add_tensor(struct buf *b, const struct shard *s,
		       const struct out *o)
{
	static const enum st_dtype made[] = {
		[CODES] = ST_F8_E4M3, [SCALES] = ST_F32
	};
	struct buf name = { 0 };
	struct slice n = st_name(&s->st, o->t);

	buf_add(&name, n.p, n.n);
	if (o->what == SCALES)
		buf_add(&name, QUANT_SCALE, strlen(QUANT_SCALE));
	buf_add(b, ",", 1);
	jsonw_quote(b, buf_slice(&name));
	buf_addf(b, ":{\"dtype\":\"%s\",\"shape\":[",
		 st_dtype_name(o->what == KEEP ? o->t->dtype : made[o->what]));
	add_shape(b, s, o);
	buf_addf(b, "],\"data_offsets\":[%llu,%llu]}", (ull)o->begin,
		 (ull)o->end);
	buf_release(&name);
}

/* With its length before it. */
static int make_header(struct shard *s, struct buf *b)
{
	uint64_t n = 0;

	buf_add(b, &n, sizeof n);
	buf_addf(b, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (uint32_t i = 0; i < s->n; i++)
		add_tensor(b, s, &s->out[i]);
	buf_addf(b, "}");
	while (b->n % ALIGN != 0)
		buf_add(b, " ", 1);
	s->data_start = b->n;
	n = b->n - sizeof n;
	for (unsigned i = 0; i < sizeof n; i++)
		b->p[i] = (char)(n >> (8 * i));
	if (n > ST_HEADER_MAX)
		return log_error(E_DATA,
				 "post-load fp8: %s: a header of %llu bytes, "
				 "at most %u can be read",
				 s->file->path, (ull)n, ST_HEADER_MAX);
	return 0;
}

/* ---- pieces ---- */

/* Columns that a piece of FP8_BLOCK rows may have. */
static size_t piece_cols(const struct out *o)
{
	return QUANT_READ / FP8_BLOCK / fp8_size(o->from);
}

static size_t at_most(uint64_t n, size_t max)
{
	return n < max ? (size_t)n : max;
}

/* Locked.  The next piece of the tensor at the cursor; false: none is left. */
static bool cut(struct shard *s, const struct out *o, struct piece_of *p)
{
	const uint64_t *d = st_shape(&s->st, o->t);
	uint64_t rows = o->what == CODES ? d[0] : 1;
	uint64_t cols = o->what == CODES ? d[1] : o->end - o->begin;

	if (o->what == SCALES || s->row >= rows || cols == 0)
		return false;
	*p = (struct piece_of){ .o = o, .row = s->row, .col = s->col };
	p->rows = at_most(rows - s->row, FP8_BLOCK);
	p->cols = o->what == CODES ? (size_t)cols
				   : at_most(cols - s->col, QUANT_READ);
	s->col += p->cols;
	if (s->col == cols) {
		s->row += p->rows;
		s->col = 0;
	}
	return true;
}

static bool take(struct shard *s, struct piece_of *p)
{
	bool found = false;

	pthread_mutex_lock(&s->lock);
	if (s->rc == 0)
		s->rc = quant_must_end(s->a);
	while (s->rc == 0 && s->next < s->n &&
	       !(found = cut(s, &s->out[s->next], p))) {
		s->next++;
		s->row = s->col = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

static void fail(struct shard *s, int rc)
{
	pthread_mutex_lock(&s->lock);
	if (s->rc == 0) {
		s->rc = rc;
		snprintf(s->cause, sizeof s->cause, "%s", log_cause());
	}
	pthread_mutex_unlock(&s->lock);
}

static int get(const struct shard *s, char *p, size_t n, uint64_t at)
{
	int got = io_pread_full(s->in.fd, p, n, (off_t)at);

	if (got < 0)
		return got;
	return (size_t)got == n
		       ? 0
		       : log_error(E_IO, "it is shorter than it was received");
}

static int put(const struct shard *s, const void *p, size_t n, uint64_t at)
{
	return io_pwrite_full(s->to.fd, p, n, (off_t)(s->data_start + at));
}

static int keep(const struct shard *s, const struct piece_of *p, char *box)
{
	uint64_t at = s->st.data_start + p->o->t->begin + p->col;
	int rc;

	if (s->in.map)
		return put(s, s->in.map + at, p->cols, p->o->begin + p->col);
	rc = get(s, box, p->cols, at);
	return rc < 0 ? rc : put(s, box, p->cols, p->o->begin + p->col);
}

/* Rows that stand one behind the other are one run. */
static void runs_of(const struct piece_of *p, uint64_t width, size_t *runs,
		    size_t *len)
{
	bool is_whole = p->cols == width;

	*runs = is_whole ? 1 : p->rows;
	*len = is_whole ? p->rows * p->cols : p->cols;
}

/* Where the piece is: in the file's map, or read into the box. */
static int find_numbers(const struct shard *s, const struct piece_of *p,
			char *box, struct fp8_part *part)
{
	uint64_t width = st_shape(&s->st, p->o->t)[1];
	size_t size = fp8_size(p->o->from), runs, len;
	uint64_t at = s->st.data_start + p->o->t->begin +
		      (p->row * width + p->col) * size;
	int rc = 0;

	part->src = s->in.map ? s->in.map + at : box;
	part->src_step = (s->in.map ? width : p->cols) * size;
	if (s->in.map)
		return 0;
	runs_of(p, width, &runs, &len);
	for (size_t i = 0; i < runs && rc >= 0; i++)
		rc = get(s, box + i * len * size, len * size,
			 at + i * width * size);
	return rc;
}

static void find_place(const struct shard *s, const struct piece_of *p,
		       char *box, struct fp8_part *part)
{
	uint64_t width = st_shape(&s->st, p->o->t)[1];
	uint64_t at = s->data_start + p->o->begin + p->row * width + p->col;

	part->dst = (uint8_t *)(s->to.map ? s->to.map + at : box + QUANT_READ);
	part->dst_step = s->to.map ? width : p->cols;
}

static int write_codes(const struct shard *s, const struct piece_of *p,
		       const uint8_t *codes)
{
	uint64_t width = st_shape(&s->st, p->o->t)[1];
	size_t runs, len;
	int rc = 0;

	runs_of(p, width, &runs, &len);
	for (size_t i = 0; i < runs && rc >= 0; i++)
		rc = put(s, codes + i * len, len,
			 p->o->begin + (p->row + i) * width + p->col);
	return rc;
}

static int not_finite(const struct shard *s, const struct piece_of *p,
		      const struct fp8_part *part)
{
	size_t row = 0, col = 0;

	fp8_find_bad(part, &row, &col);
	return log_error(E_DATA,
			 "tensor \"%.*s\": NaN or infinity at row %llu, "
			 "column %llu",
			 SLICE_ARG(st_name(&s->st, p->o->t)),
			 (ull)(p->row + row), (ull)(p->col + col));
}

static void convert(void *arg)
{
	struct conversion *c = arg;

	c->rc = fp8_convert(&c->part, c->scale);
}

static int guarded(const struct shard *s, const struct piece_of *p,
		   struct conversion *c)
{
	const struct guard_range maps[] = { slotfile_range(&s->in),
					    slotfile_range(&s->to) };

	if (guard_run(maps, COUNT(maps), convert, c) != 0)
		return log_error(E_IO, "it cannot be read or written");
	return c->rc < 0 ? not_finite(s, p, &c->part) : 0;
}

static int quantise_part(const struct shard *s, const struct piece_of *p,
			 char *box)
{
	float scale[QUANT_READ / FP8_BLOCK / FP8_BLOCK / sizeof(uint16_t)];
	uint64_t width = fp8_blocks(st_shape(&s->st, p->o->t)[1]);
	uint64_t block = p->row / FP8_BLOCK * width + p->col / FP8_BLOCK;
	struct conversion c = {
		.part = { .from = p->o->from,
			  .rows = p->rows,
			  .cols = p->cols },
		.scale = scale,
	};
	int rc = find_numbers(s, p, box, &c.part);

	find_place(s, p, box, &c.part);
	if (rc >= 0)
		rc = guarded(s, p, &c);
	if (rc >= 0 && !s->to.map)
		rc = write_codes(s, p, c.part.dst);
	if (rc < 0)
		return rc;
	return put(s, scale, fp8_blocks(p->cols) * sizeof scale[0],
		   p->o->scales + block * sizeof scale[0]);
}

static int quantise(const struct shard *s, const struct piece_of *p, char *box)
{
	struct piece_of part = *p;
	int rc = 0;

	for (; part.col < p->cols && rc >= 0; part.col += part.cols) {
		part.cols = at_most(p->cols - part.col, piece_cols(p->o));
		rc = quantise_part(s, &part, box);
	}
	return rc;
}

/* Nobody reads it again.  What fails is given back with the file. */
static void give_back(const struct shard *s, const struct piece_of *p)
{
	size_t size = p->o->what == CODES ? fp8_size(p->o->from) : 1;
	uint64_t width = p->o->what == CODES ? p->cols : 0;
	uint64_t at = s->st.data_start + p->o->t->begin +
		      (p->row * width + p->col) * size;
	uint64_t from = (at + PAGE - 1) / PAGE * PAGE;
	uint64_t end = (at + p->rows * p->cols * size) / PAGE * PAGE;

	if (end > from)
		fallocate(s->in.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)from, (off_t)(end - from));
}

/* In each thread, until nothing is left or one of them failed. */
static void work(struct shard *s)
{
	char *box = xmalloc(QUANT_BYTES);
	int quiet = log_quiet_thread(1);
	struct piece_of p;

	while (take(s, &p)) {
		int rc = p.o->what == CODES ? quantise(s, &p, box)
					    : keep(s, &p, box);

		if (rc < 0)
			fail(s, rc);
		else if (s->is_eaten)
			give_back(s, &p);
	}
	log_quiet_thread(quiet);
	free(box);
}

static int set_size(const struct shard *s)
{
	return ftruncate(s->to.fd, (off_t)(s->data_start + s->data_bytes));
}

/* Beyond its end nobody writes: what is there is given back meanwhile, which
 * takes as long as a good part of the numbers. */
static void trim(struct shard *s)
{
	int quiet = log_quiet_thread(1);

	if (set_size(s) < 0)
		fail(s, log_errno(E_IO, "its size"));
	log_quiet_thread(quiet);
	s->is_long = false;
}

static void help(struct job *job)
{
	struct helper *h = (struct helper *)job;

	if (h->trims)
		trim(h->s);
	work(h->s);
}

static unsigned count_threads(const struct quant *q)
{
	cpu_set_t mine;
	unsigned n = q->threads;

	if (n == 0)
		n = sched_getaffinity(0, sizeof mine, &mine) == 0
			    ? (unsigned)CPU_COUNT(&mine)
			    : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	return n < 1 ? 1 : n > QUANT_THREADS_MAX ? QUANT_THREADS_MAX : n;
}

/* This thread works as well; who comes when all is done has nothing to do. */
static int work_all(struct shard *s)
{
	struct helper helper[QUANT_THREADS_MAX];
	unsigned n = count_threads(s->a->q) - 1;
	struct pool *pool = pool_new("fp8", n, QUANT_THREADS_MAX);

	if (!pool)
		return -E_IO;
	for (unsigned i = 0; i < n; i++) {
		helper[i] = (struct helper){ .job.fn = help,
					     .s = s,
					     .trims = i == 0 && s->is_long };
		BUG_ON(pool_submit_take(pool, &helper[i].job) < 0);
	}
	work(s);
	pool_stop(pool);
	if (s->is_long) /* nobody came to it */
		trim(s);
	pool_free(pool);
	if (s->rc < 0 && s->cause[0])
		return log_error(-s->rc, "post-load fp8: %s: %s", s->file->path,
				 s->cause);
	return s->rc;
}

/* ---- the file ---- */

static int check_space(const struct shard *s, int fd)
{
	struct statvfs v;
	ull have;

	if (fstatvfs(fd, &v) < 0)
		return log_errno(E_IO, "free space for %s", s->file->path);
	have = (ull)v.f_bavail * v.f_frsize;
	if (have >= s->data_bytes)
		return 0;
	return log_error(E_IO,
			 "post-load fp8: no space beside %s: need %llu bytes, "
			 "have %llu",
			 s->file->path, (ull)s->data_bytes, have);
}

static int name_it(const struct shard *s, const char *from, const char *to)
{
	int dirfd = s->a->q->dirfd;

	if (renameat(dirfd, from, dirfd, to) < 0)
		return log_errno(E_IO, "post-load fp8: rename %s to %s", from,
				 to);
	return 0;
}

/* The last shard's received file: its pages are warm, mapped and nobody
 * else's.  Fresh ones would cost more than the numbers. */
static int use_again(struct shard *s)
{
	s->to = s->a->old;
	s->a->old = (struct slotfile)SLOTFILE_INIT;
	return name_it(s, OLD_NAME, TMP_NAME);
}

static int make_new(struct shard *s)
{
	int dirfd = s->a->q->dirfd;

	quant_drop_old(s->a);
	s->to.fd = openat(dirfd, TMP_NAME,
			  O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
			  0600);
	if (s->to.fd < 0)
		return log_errno(E_IO, "create %s", TMP_NAME);
	if (check_space(s, s->to.fd) < 0)
		return -E_IO;
	if (set_size(s) < 0)
		return log_errno(E_IO, "post-load fp8: %s", s->file->path);
	return 0;
}

static int open_new(struct shard *s)
{
	uint64_t size = s->data_start + s->data_bytes;

	s->is_long = s->a->old.map && s->a->old.size >= size;
	return s->is_long ? use_again(s) : make_new(s);
}

/* Nobody else has these names: staging is ours, and dropped if we die. */
static int put_in_place(struct shard *s, struct slotfile *received)
{
	int rc = name_it(s, s->file->path, OLD_NAME);

	if (rc >= 0)
		rc = name_it(s, TMP_NAME, s->file->path);
	if (rc < 0)
		return rc;
	s->a->old = s->in;
	s->in = (struct slotfile)SLOTFILE_INIT;
	if (received)
		*received = s->in;
	return 0;
}

static int rewrite(struct shard *s, struct slotfile *received)
{
	struct buf head = { 0 };
	int rc = make_header(s, &head);

	if (rc >= 0)
		rc = open_new(s);
	if (rc >= 0)
		rc = io_pwrite_full(s->to.fd, head.p, head.n, 0);
	buf_release(&head);
	if (rc >= 0)
		rc = work_all(s);
	if (rc >= 0)
		rc = put_in_place(s, received);
	if (rc < 0)
		unlinkat(s->a->q->dirfd, TMP_NAME, 0);
	return rc;
}

/* No shard comes that could use its pages.  To free all of them at the end
 * would take one core as long as a third of the numbers.  On a disk a hole is
 * a change to the file system. */
static bool is_last_in_memory(const struct shard *s)
{
	const struct quant *q = s->a->q;

	for (const struct store_file *f = s->file + 1; f < q->file + q->nfiles;
	     f++)
		if (f->kind == FILE_SHARD)
			return false;
	return s->in.map && cached_is_tmpfs(s->in.fd);
}

/* The slot's own descriptor and map, if it still has them. */
static int open_received(struct shard *s, const struct slotfile *received)
{
	struct stat st;

	if (received && received->fd >= 0) {
		s->in = *received;
		return 0;
	}
	s->in.fd = openat(s->a->q->dirfd, s->file->path,
			  O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (s->in.fd < 0 || fstat(s->in.fd, &st) < 0)
		return log_errno(E_IO, "open %s", s->file->path);
	s->in.size = (uint64_t)st.st_size;
	return 0;
}

int quant_shard(struct quant_all *a, uint32_t i)
{
	struct store_files *files = a->q->files;
	struct slotfile *received = files ? &files->file[i] : NULL;
	struct shard s = {
		.a = a,
		.file = &a->q->file[i],
		.in = SLOTFILE_INIT,
		.to = SLOTFILE_INIT,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	int rc = open_received(&s, received);

	if (rc >= 0)
		rc = st_read_fd(&s.st, s.file->path, s.in.fd, s.in.size);
	if (rc >= 0) {
		list(&s);
		place(&s);
		tell(&s, i);
		s.is_eaten = is_last_in_memory(&s);
		rc = rewrite(&s, received);
	}
	st_release(&s.st);
	free(s.out);
	slotfile_release(&s.to);
	if (!received || received->fd < 0)
		slotfile_release(&s.in);
	return rc;
}

void quant_drop_old(struct quant_all *a)
{
	if (a->old.fd < 0)
		return;
	unlinkat(a->q->dirfd, OLD_NAME, 0);
	slotfile_release(&a->old);
}
