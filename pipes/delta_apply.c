/* Applying a delta; see delta.h. */
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/beside.h"
#include "pipes/carry.h"
#include "pipes/crew.h"
#include "pipes/delta_dec.h"
#include "pipes/delta_fit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_SPAN ((uint64_t)64 << 20) /* bytes of one job */

/* A file of the new version. */
struct shard {
	bool is_new; /* has tensors that change: made, not linked */
	bool is_clone;
	int from, to;
};

/* What one thread does at a time. */
struct task {
	int64_t change; /* tensor of the delta, or -1: bytes are copied */
	uint32_t tensor;
	uint32_t file; /* of the base */
	uint64_t offset, bytes;
};

struct apply {
	const struct delta_apply *conf;
	struct delta delta;
	struct fit fit;
	struct sums after;
	struct identity id; /* of what was made */
	struct shard *shard;
	struct task *task;
	uint32_t ntasks;
	struct beside to;
	struct delta_result *result;
};

struct seat {
	struct dec dec;
	int packed; /* 1 + the open file of the delta */
	uint32_t packed_file;
};

static const char *base_path(const struct apply *a)
{
	return a->conf->dir;
}

/* Where the new version is to be. */
static const char *place(const struct apply *a)
{
	return a->conf->out ? a->conf->out : base_path(a);
}

/* ---- what is to be done ---- */

static void add_task(struct apply *a, struct task t)
{
	if ((a->ntasks & (a->ntasks - 1)) == 0)
		a->task = xreallocarray(a->task,
					a->ntasks ? 2 * (size_t)a->ntasks : 1,
					sizeof *a->task);
	a->task[a->ntasks++] = t;
}

static void add_copies(struct apply *a, uint32_t file, uint64_t from,
		       uint64_t to)
{
	for (; from < to && !a->shard[file].is_clone; from += COPY_SPAN)
		add_task(a, (struct task){ .change = -1,
					   .file = file,
					   .offset = from,
					   .bytes = to - from < COPY_SPAN
							    ? to - from
							    : COPY_SPAN });
}

static void mark_shards(struct apply *a)
{
	struct source_tensor t;

	a->shard = xcalloc(a->fit.base.nfiles, sizeof *a->shard);
	for (uint32_t f = 0; f < a->fit.base.nfiles; f++)
		a->shard[f].from = a->shard[f].to = -1;
	for (uint32_t i = 0; i < a->fit.base.ntensors; i++) {
		if (a->fit.change[i] < 0)
			continue;
		source_get(&a->fit.base, i, &t);
		a->shard[t.file].is_new = true;
	}
}

/* The runs between the tensors that change. */
static void add_shard_tasks(struct apply *a, uint32_t file)
{
	const struct source_file *f = &a->fit.base.file[file];
	uint64_t done = 0;

	for (uint32_t k = 0; k < f->st.n; k++) {
		uint32_t i = f->first + k;
		struct source_tensor t;

		if (a->fit.change[i] < 0)
			continue;
		source_get(&a->fit.base, i, &t);
		add_copies(a, file, done, t.offset);
		add_task(a, (struct task){ a->fit.change[i], i, file, t.offset,
					   t.bytes });
		done = t.offset + t.bytes;
	}
	add_copies(a, file, done, f->id.size);
}

static int cmp_tasks(const void *x, const void *y)
{
	const struct task *a = x, *b = y;

	if ((a->change < 0) != (b->change < 0))
		return a->change < 0 ? 1 : -1;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* ---- doing it ---- */

static int open_packed(const struct apply *a, struct seat *s, uint32_t file)
{
	const struct delta_file *f = &a->delta.file[file];
	int fd;

	if (s->packed && s->packed_file == file)
		return s->packed - 1;
	if (s->packed)
		close(s->packed - 1);
	s->packed = 0;
	fd = srcdir_open_same(&a->delta.dir, f->path, &f->id);
	if (fd < 0)
		return fd;
	s->packed = fd + 1;
	s->packed_file = file;
	return fd;
}

static int change(const struct apply *a, const struct task *k, struct seat *s)
{
	const struct delta_tensor *c = &a->delta.tensor[k->change];
	const struct shard *sh = &a->shard[k->file];
	struct source_tensor have;
	struct dec_tensor t = {
		.delta = &a->delta,
		.t = c,
		.packed = open_packed(a, s, c->file),
		.from = sh->from,
		.to = sh->to,
		.offset = k->offset,
		.bytes = k->bytes,
		.is_clone = sh->is_clone,
		.leaf = sums_leaves(&a->after, k->tensor),
		.name = a->fit.base.file[k->file].path,
	};

	if (t.packed < 0)
		return t.packed;
	source_get(&a->fit.base, k->tensor, &have);
	t.element = sparse_element(st_dtype_bits(have.dtype));
	return dec_run(&s->dec, &t);
}

static int do_task(void *ctx, uint32_t i, void *seat)
{
	struct apply *a = ctx;
	const struct task *k = &a->task[i];
	const struct shard *sh = &a->shard[k->file];
	int rc;

	if (k->change >= 0)
		rc = change(a, k, seat);
	else
		rc = carry_range(sh->from, sh->to, k->offset, k->bytes,
				 a->fit.base.file[k->file].path);
	beside_tell("piece written");
	return rc;
}

static void leave(void *seat)
{
	struct seat *s = seat;

	if (s->packed)
		close(s->packed - 1);
	dec_release(&s->dec);
}

static int make_shard(struct apply *a, uint32_t file)
{
	const struct source_file *f = &a->fit.base.file[file];
	struct shard *s = &a->shard[file];
	int rc;

	s->from = source_open_file(&a->fit.base, file);
	if (s->from < 0)
		return s->from;
	rc = carry_parents(a->to.fd, f->path);
	if (rc < 0)
		return rc;
	s->to = carry_make(a->to.fd, f->path, s->from, &s->is_clone);
	return s->to < 0 ? s->to : 0;
}

static int sync_shard(void *ctx, uint32_t file, void *seat)
{
	struct apply *a = ctx;
	struct shard *s = &a->shard[file];

	(void)seat;
	if (s->to >= 0 && fsync(s->to) < 0)
		return log_errno(E_IO, "fsync %s", a->fit.base.file[file].path);
	beside_tell("file synced");
	return 0;
}

static uint64_t bytes_to_write(const struct apply *a)
{
	uint64_t n = 0;

	for (uint32_t f = 0; f < a->fit.base.nfiles; f++)
		if (a->shard[f].is_new || a->conf->out)
			n += a->fit.base.file[f].id.size;
	return n;
}

static int write_shards(struct apply *a)
{
	struct crew work = {
		.threads = a->conf->threads,
		.seat_size = sizeof(struct seat),
		.work = do_task,
		.leave = leave,
		.ctx = a,
	};
	struct crew sync = {
		.threads = a->conf->threads,
		.seat_size = 1,
		.work = sync_shard,
		.ctx = a,
	};
	int rc = carry_check_room(a->to.fd, place(a), bytes_to_write(a));

	for (uint32_t f = 0; rc == 0 && f < a->fit.base.nfiles; f++) {
		if (!a->shard[f].is_new)
			continue;
		rc = make_shard(a, f);
		if (rc == 0)
			add_shard_tasks(a, f);
	}
	/* The largest first: the last ones are small and end together. */
	if (a->ntasks)
		qsort(a->task, a->ntasks, sizeof *a->task, cmp_tasks);
	if (rc == 0)
		rc = crew_run(&work, a->ntasks);
	return rc < 0 ? rc : crew_run(&sync, a->fit.base.nfiles);
}

static bool is_made(void *ctx, const char *path)
{
	const struct apply *a = ctx;

	if (strcmp(path, VMARK_NAME) == 0)
		return true;
	for (uint32_t f = 0; f < a->fit.base.nfiles; f++)
		if (a->shard[f].is_new &&
		    !strcmp(path, a->fit.base.file[f].path))
			return true;
	return false;
}

static bool try_link(const struct apply *a, uint32_t file)
{
	const char *path = a->fit.base.file[file].path;

	return a->conf->link && carry_parents(a->to.fd, path) == 0 &&
	       linkat(a->fit.base.dir.fd, path, a->to.fd, path, 0) == 0;
}

/* A new directory shares no file with the old one: either may be edited. */
static int copy_rest(struct apply *a)
{
	int rc = 0;

	for (uint32_t f = 0; rc == 0 && f < a->fit.base.nfiles; f++) {
		int fd;

		if (a->shard[f].is_new || try_link(a, f))
			continue;
		fd = source_open_file(&a->fit.base, f);
		rc = fd < 0 ? fd
			    : carry_parents(a->to.fd, a->fit.base.file[f].path);
		if (rc == 0)
			rc = carry_file(fd, a->to.fd, a->fit.base.file[f].path);
		if (fd >= 0)
			close(fd);
	}
	return rc;
}

static int carry_rest(struct apply *a)
{
	if (a->conf->out)
		return copy_rest(a);
	return carry_tree(a->fit.base.dir.fd, a->to.fd, base_path(a), is_made,
			  a);
}

static int check_base_unchanged(const struct apply *a)
{
	for (uint32_t f = 0; f < a->fit.base.nfiles; f++) {
		struct srcdir_id now;
		const struct source_file *file = &a->fit.base.file[f];
		int fd = srcdir_open_file(&a->fit.base.dir, file->path, &now);

		if (fd >= 0)
			close(fd);
		if (fd < 0 && fd != -E_NOINPUT)
			return fd;
		if (fd < 0 || now.ino != file->id.ino ||
		    now.size != file->id.size ||
		    now.mtime_ns != file->id.mtime_ns)
			return log_error(E_DATA,
					 "%s/%s was changed while the delta "
					 "was applied",
					 base_path(a), file->path);
	}
	return 0;
}

/* What was written is hashed as it was; the rest is the base's. */
static int check_after(struct apply *a)
{
	char have[DIGEST_HEX], want[DIGEST_HEX];
	int rc = check_base_unchanged(a);

	if (rc == 0)
		rc = sums_identity(&a->after, &a->id);
	if (rc < 0 || !a->delta.is_weirs ||
	    digest_eq(&a->id.tensors, &a->delta.tensors))
		return rc;
	return log_error(E_DATA,
			 "%s: applied, the tensors' digest is %s; expected %s",
			 a->conf->delta, digest_hex(&a->id.tensors, have),
			 digest_hex(&a->delta.tensors, want));
}

static int write_mark(struct apply *a)
{
	struct vmark m = {
		.kind = "delta",
		.version = a->delta.version,
		.has_parent = true,
		.parent = a->fit.id.content,
		.id = a->id,
	};

	strcpy(m.registry,
	       a->delta.registry[0] ? a->delta.registry : a->fit.mark.registry);
	return vmark_write(a->to.fd, &m, &a->fit.base);
}

static int put(struct apply *a)
{
	struct stat old;
	int rc;

	if (a->conf->out) {
		rc = beside_put(&a->to);
		return rc == -E_AGAIN ? log_error(E_DATA, "%s is there already",
						  a->conf->out)
				      : rc;
	}
	if (fstat(a->fit.base.dir.fd, &old) < 0)
		return log_errno(E_IO, "stat %s", base_path(a));
	return beside_exchange(&a->to, &old);
}

static int build(struct apply *a)
{
	int rc = beside_open(&a->to, place(a));

	if (rc == 0 && !a->conf->out)
		rc = beside_can_exchange(&a->to);
	if (rc == 0)
		rc = write_shards(a);
	if (rc == 0)
		rc = carry_rest(a);
	if (rc == 0)
		rc = check_after(a);
	if (rc == 0)
		rc = write_mark(a);
	beside_tell("mark written");
	return rc < 0 ? rc : put(a);
}

/* 1: nothing is to be done. */
static int check_place(struct apply *a)
{
	const char *out = a->conf->out;
	int rc, was;

	if (!out || beside_is_free(out))
		return 0;
	was = log_quiet_thread(1);
	rc = fit_is_target(&a->fit, out);
	log_quiet_thread(was);
	if (rc > 0)
		return rc;
	return log_error(E_DATA, "%s is there already, and not version %llu",
			 out, (unsigned long long)a->delta.version);
}

static int run(struct apply *a)
{
	int rc = check_place(a);

	if (rc == 0)
		rc = fit_look(&a->fit);
	a->id = a->fit.id;
	a->result->was_there = rc > 0;
	if (rc > 0)
		beside_sweep(place(a));
	if (rc != 0)
		return rc < 0 ? rc : 0;
	mark_shards(a);
	sums_copy(&a->after, &a->fit.before);
	return build(a);
}

static void release(struct apply *a)
{
	for (uint32_t f = 0; a->shard && f < a->fit.base.nfiles; f++) {
		if (a->shard[f].from >= 0)
			close(a->shard[f].from);
		if (a->shard[f].to >= 0)
			close(a->shard[f].to);
	}
	free(a->shard);
	free(a->task);
	sums_release(&a->after);
	beside_close(&a->to);
	fit_release(&a->fit);
	delta_close(&a->delta);
}

/* Only the last look tells why. */
static int open_delta(struct apply *a)
{
	int64_t end = clock_mono_ms() + a->conf->wait_ms;

	while (clock_mono_ms() < end) {
		int was = log_quiet_thread(1);
		int rc = delta_open(&a->delta, a->conf->delta);

		log_quiet_thread(was);
		if (rc == 0)
			return 0;
		poll(NULL, 0, DELTA_LOOK_MS);
	}
	return delta_open(&a->delta, a->conf->delta);
}

int delta_apply(const struct delta_apply *c, struct delta_result *r)
{
	struct apply a = { .conf = c, .result = r, .to = BESIDE_INIT };
	int rc;

	a.fit = (struct fit){ .conf = c, .delta = &a.delta };
	*r = (struct delta_result){ 0 };
	rc = open_delta(&a);
	if (rc < 0)
		return rc;
	r->version = a.delta.version;
	r->base_version = a.delta.base_version;
	r->encoding = a.delta.encoding;
	r->changed = a.delta.n;
	r->stored = a.delta.stored;
	rc = run(&a);
	r->tensors = a.fit.base.ntensors;
	r->bytes = a.fit.bytes;
	r->id = a.id;
	release(&a);
	return rc;
}
