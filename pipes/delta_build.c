#include "pipes/delta_build.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/pieces.h"
#include "pipes/beside.h"
#include "pipes/carry.h"
#include "pipes/crew.h"
#include "pipes/delta_dec.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPAN ((uint64_t)4 * DIGEST_LEAF) /* bytes of one job */
#define NO_OBJECT UINT32_MAX

struct build_file {
	bool is_made;  /* here, or as a link; else it is the caller's */
	bool is_clone; /* has the old bytes already */
	int from, to;  /* to: -1 if nothing is written */
};

/* What one thread does at a time. */
struct build_task {
	int64_t change;	 /* tensor of the delta, or -1 */
	uint32_t object; /* of the sums, or NO_OBJECT */
	uint32_t file;
	uint64_t start; /* in the object */
	uint64_t offset, bytes;
};

struct seat {
	struct dec dec;
	int packed; /* 1 + the open file of the delta */
	uint32_t packed_file;
	uint8_t *box;
};

static const char *path_of(const struct build *b, uint32_t file)
{
	return b->fit->base.file[file].path;
}

/* ---- what is to be done ---- */

static void add_task(struct build *b, struct build_task t)
{
	if ((b->ntasks & (b->ntasks - 1)) == 0)
		b->task = xreallocarray(b->task,
					b->ntasks ? 2 * (size_t)b->ntasks : 1,
					sizeof *b->task);
	b->task[b->ntasks++] = t;
}

static void add_spans(struct build *b, uint32_t object, uint32_t file,
		      uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at += SPAN)
		add_task(b, (struct build_task){
				    .change = -1,
				    .object = object,
				    .file = file,
				    .start = at - from,
				    .offset = at,
				    .bytes = to - at < SPAN ? to - at : SPAN });
}

/* What no digest is over: headers. */
static void add_gap(struct build *b, uint32_t file, uint64_t from, uint64_t to)
{
	const struct build_file *f = &b->file[file];

	if (f->to >= 0 && !f->is_clone)
		add_spans(b, NO_OBJECT, file, from, to);
}

static uint64_t add_object(struct build *b, uint32_t object, uint64_t done)
{
	struct sums_object o = sums_object(&b->after, object);
	uint64_t end = o.offset + o.bytes;
	int64_t change =
		object < b->fit->base.ntensors ? b->fit->change[object] : -1;

	add_gap(b, o.file, done, o.offset);
	if (change < 0)
		add_spans(b, object, o.file, o.offset, end);
	else
		add_task(b, (struct build_task){ .change = change,
						 .object = object,
						 .file = o.file,
						 .offset = o.offset,
						 .bytes = o.bytes });
	return end;
}

static void add_tasks(struct build *b, uint32_t file)
{
	const struct source_file *f = &b->fit->base.file[file];
	uint64_t done = 0;

	if (f->kind == SOURCE_CARRIED)
		done = add_object(b, b->fit->base.ntensors + file, 0);
	for (uint32_t k = 0; f->kind == SOURCE_SHARD && k < f->st.n; k++)
		done = add_object(b, f->first + k, done);
	add_gap(b, file, done, f->id.size);
}

static int cmp_tasks(const void *x, const void *y)
{
	const struct build_task *a = x, *b = y;

	if ((a->change < 0) != (b->change < 0))
		return a->change < 0 ? 1 : -1;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	/* Two that write to one file wait for each other. */
	if (a->offset != b->offset)
		return a->offset > b->offset ? 1 : -1;
	return (a->file > b->file) - (a->file < b->file);
}

/* ---- files ---- */

static bool has_changes(const struct build *b, uint32_t file)
{
	const struct source_file *f = &b->fit->base.file[file];

	for (uint32_t k = 0; f->kind == SOURCE_SHARD && k < f->st.n; k++)
		if (b->fit->change[f->first + k] >= 0)
			return true;
	return false;
}

static bool try_link(const struct build *b, uint32_t file)
{
	const char *path = path_of(b, file);

	return b->conf->link && carry_parents(b->to, path) == 0 &&
	       linkat(b->fit->base.dir.fd, path, b->to, path, 0) == 0;
}

static int make_file(struct build *b, uint32_t file)
{
	struct build_file *f = &b->file[file];
	int rc = carry_parents(b->to, path_of(b, file));

	if (rc == 0)
		f->to = carry_make(b->to, path_of(b, file), f->from,
				   &f->is_clone);
	return f->to < 0 ? (rc < 0 ? rc : f->to) : 0;
}

/* A directory of its own shares no file with the old one, unless neither is
 * ever written again. */
static int open_file(struct build *b, uint32_t file)
{
	struct build_file *f = &b->file[file];

	f->from = source_open_file(&b->fit->base, file);
	if (f->from < 0)
		return f->from;
	f->is_made = has_changes(b, file) || b->conf->out;
	if (!f->is_made || (!has_changes(b, file) && try_link(b, file)))
		return 0;
	return make_file(b, file);
}

static uint64_t bytes_to_write(const struct build *b)
{
	uint64_t n = 0;

	for (uint32_t f = 0; f < b->fit->base.nfiles; f++)
		if (b->conf->out || has_changes(b, f))
			n += b->fit->base.file[f].id.size;
	return n;
}

static int open_files(struct build *b)
{
	uint32_t n = b->fit->base.nfiles;
	int rc = carry_check_room(b->to,
				  b->conf->out ? b->conf->out : b->conf->dir,
				  bytes_to_write(b));

	b->file = xcalloc(n, sizeof *b->file);
	for (uint32_t f = 0; f < n; f++)
		b->file[f].from = b->file[f].to = -1;
	for (uint32_t f = 0; rc == 0 && f < n; f++)
		rc = open_file(b, f);
	return rc;
}

/* ---- doing it ---- */

static int open_packed(const struct build *b, struct seat *s, uint32_t file)
{
	const struct delta_file *f = &b->delta->file[file];
	int fd;

	if (s->packed && s->packed_file == file)
		return s->packed - 1;
	if (s->packed)
		close(s->packed - 1);
	s->packed = 0;
	fd = srcdir_open_same(&b->delta->dir, f->path, &f->id);
	if (fd < 0)
		return fd;
	s->packed = fd + 1;
	s->packed_file = file;
	return fd;
}

static int change(const struct build *b, const struct build_task *k,
		  struct seat *s)
{
	const struct delta_tensor *c = &b->delta->tensor[k->change];
	const struct build_file *f = &b->file[k->file];
	struct source_tensor have;
	struct dec_tensor t = {
		.delta = b->delta,
		.t = c,
		.packed = open_packed(b, s, c->file),
		.from = f->from,
		.to = f->to,
		.offset = k->offset,
		.bytes = k->bytes,
		.is_clone = f->is_clone,
		.leaf = { sums_leaves(&b->fit->before, k->object),
			  sums_leaves(&b->after, k->object) },
		.name = path_of(b, k->file),
	};

	if (t.packed < 0)
		return t.packed;
	source_get(&b->fit->base, k->object, &have);
	t.element = sparse_element(st_dtype_bits(have.dtype));
	return dec_run(&s->dec, &t);
}

/* Some of a run that stays as it is: *leaf, if there is one, goes over it.
 * How much. */
static int keep_piece(const struct build *b, const struct build_task *k,
		      struct seat *s, uint64_t at, struct digest_state *leaf)
{
	const struct build_file *f = &b->file[k->file];
	size_t n = dec_step(k->offset, k->bytes, at);
	off_t off = (off_t)(k->offset + at);
	uint8_t *box = s->box + (uint64_t)off % XPAGE;
	int got = io_pread_full(f->from, box, n, off);

	if (got < 0)
		return log_errno(E_IO, "read %s", path_of(b, k->file));
	if ((size_t)got < n)
		return log_error(E_DATA, "%s became shorter while it was read",
				 path_of(b, k->file));
	if (leaf)
		digest_add(leaf, box, n);
	if (f->to >= 0 && !f->is_clone &&
	    io_pwrite_full(f->to, box, n, off) < 0)
		return log_errno(E_IO, "write %s", path_of(b, k->file));
	return (int)n;
}

static int keep(struct build *b, const struct build_task *k, struct seat *s)
{
	bool counts = k->object != NO_OBJECT;
	struct digest_state leaf;
	int n = 0;

	if (!s->box)
		s->box = xpages(DELTA_PIECE + XPAGE);
	for (uint64_t at = 0, i; at < k->bytes; at += (uint64_t)n) {
		if (at % DIGEST_LEAF == 0)
			digest_begin(&leaf);
		n = keep_piece(b, k, s, at, counts ? &leaf : NULL);
		if (n < 0)
			return n;
		i = (k->start + at) / DIGEST_LEAF;
		if (!counts || ((at + (uint64_t)n) % DIGEST_LEAF &&
				at + (uint64_t)n < k->bytes))
			continue;
		digest_end(&leaf, &sums_leaves(&b->fit->before, k->object)[i]);
		sums_leaves(&b->after, k->object)[i] =
			sums_leaves(&b->fit->before, k->object)[i];
	}
	if (b->file[k->file].to >= 0)
		carry_begin_sync(b->file[k->file].to, k->offset, k->bytes);
	return 0;
}

static int do_task(void *ctx, uint32_t i, void *seat)
{
	struct build *b = ctx;
	const struct build_task *k = &b->task[i];
	int rc = k->change >= 0 ? change(b, k, seat) : keep(b, k, seat);

	beside_tell("piece written");
	return rc;
}

static void leave(void *seat)
{
	struct seat *s = seat;

	if (s->packed)
		close(s->packed - 1);
	free(s->box);
	dec_release(&s->dec);
}

static int sync_file(void *ctx, uint32_t file, void *seat)
{
	struct build *b = ctx;
	struct build_file *f = &b->file[file];

	(void)seat;
	if (f->to >= 0 && fsync(f->to) < 0)
		return log_errno(E_IO, "fsync %s", path_of(b, file));
	beside_tell("file synced");
	return 0;
}

int build_run(struct build *b)
{
	struct crew work = {
		.threads = b->conf->threads,
		.seat_size = sizeof(struct seat),
		.work = do_task,
		.leave = leave,
		.ctx = b,
	};
	struct crew sync = {
		.threads = b->conf->threads,
		.seat_size = 1,
		.work = sync_file,
		.ctx = b,
	};
	int rc;

	sums_init(&b->after, &b->fit->base);
	rc = open_files(b);
	for (uint32_t f = 0; rc == 0 && f < b->fit->base.nfiles; f++)
		add_tasks(b, f);
	/* The largest first: the last ones are small and end together. */
	if (b->ntasks)
		qsort(b->task, b->ntasks, sizeof *b->task, cmp_tasks);
	if (rc == 0)
		rc = crew_run(&work, b->ntasks);
	return rc < 0 ? rc : crew_run(&sync, b->fit->base.nfiles);
}

bool build_has(const struct build *b, const char *path)
{
	for (uint32_t f = 0; f < b->fit->base.nfiles; f++)
		if (b->file[f].is_made && strcmp(path, path_of(b, f)) == 0)
			return true;
	return false;
}

void build_release(struct build *b)
{
	for (uint32_t f = 0; b->file && f < b->fit->base.nfiles; f++) {
		if (b->file[f].from >= 0)
			close(b->file[f].from);
		if (b->file[f].to >= 0)
			close(b->file[f].to);
	}
	free(b->file);
	free(b->task);
	sums_release(&b->after);
}
