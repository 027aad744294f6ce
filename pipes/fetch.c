#include "pipes/fetch.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/carry_many.h"
#include "pipes/delta.h"
#include "pipes/vdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long ull;

struct fetching {
	const struct fetch *f;
	struct vdir dir;
	struct carry_item *item; /* by file of the slot */
	uint32_t n;
};

/* ---- is it that version, and all of it? ---- */

static int check_mark(const struct fetch *f, const struct vdir *d)
{
	const struct store_slot *want = f->slot;

	if (strcmp(d->mark.registry, want->registry) != 0)
		return log_error(E_DATA, "%s belongs to registry %s, not to %s",
				 d->path, d->mark.registry, want->registry);
	if (d->mark.version != want->version)
		return log_error(E_DATA, "%s is version %llu, not %llu",
				 d->path, (ull)d->mark.version,
				 (ull)want->version);
	return 0;
}

/* A short one may be on its way; a long one is another. */
static int check_file(const struct vdir *d, const struct store_file *f)
{
	struct stat st;

	if (fstatat(d->fd, f->path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return log_errno(errno == ESTALE ? E_NOINPUT : E_IO, "%s/%s",
				 d->path, f->path);
	if (!S_ISREG(st.st_mode))
		return log_error(E_DATA, "%s/%s is no file", d->path, f->path);
	if ((uint64_t)st.st_size == f->bytes)
		return 0;
	return log_error((uint64_t)st.st_size < f->bytes ? E_NOINPUT : E_DATA,
			 "%s/%s has %llu bytes, %llu are planned", d->path,
			 f->path, (ull)st.st_size, (ull)f->bytes);
}

static int is_whole_delta(const struct vdir *d)
{
	struct delta delta;
	int rc = delta_open(&delta, d->path);

	if (rc == 0)
		delta_close(&delta);
	return rc < 0 ? -E_NOINPUT : 0;
}

static int is_whole(void *ctx, const struct vdir *d)
{
	const struct fetch *f = ctx;
	int rc = check_mark(f, d);

	if (rc == 0 && vdir_is_diff(d))
		return is_whole_delta(d);
	for (uint32_t i = 0; rc == 0 && i < f->slot->nfiles; i++)
		rc = check_file(d, &f->slot->file[i]);
	return rc;
}

/* ---- taking it ---- */

static int open_files(struct fetching *k)
{
	const struct store_slot *slot = k->f->slot;

	k->item = xcalloc(slot->nfiles, sizeof *k->item);
	for (k->n = 0; k->n < slot->nfiles; k->n++) {
		const struct store_file *f = &slot->file[k->n];
		struct carry_item *it = &k->item[k->n];

		*it = (struct carry_item){ .path = f->path, .bytes = f->bytes };
		it->from = openat(k->dir.fd, f->path,
				  O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (it->from < 0)
			return log_errno(E_IO, "open %s/%s", k->dir.path,
					 f->path);
	}
	return 0;
}

static int copy_files(const struct fetching *k)
{
	const struct fetch *f = k->f;
	char *name = store_slot_path(f->store, f->slot->version);
	struct carry_many many = {
		.to = store_open_dir(f->store, f->slot->version),
		.name = name,
		.item = k->item,
		.n = k->n,
		.threads = f->threads,
		.mode = 0644,
		.cancel = f->cancel,
	};
	int rc = many.to < 0 ? many.to : carry_many(&many);

	if (many.to >= 0)
		close(many.to);
	free(name);
	return rc;
}

static int fetch_full(const struct fetch *f, const struct vdir *d)
{
	struct fetching k = { .f = f, .dir = *d };
	int rc = open_files(&k);

	if (rc == 0)
		rc = copy_files(&k);
	for (uint32_t i = 0; i < k.n; i++)
		close(k.item[i].from);
	free(k.item);
	return rc;
}

int fetch_run(const struct fetch *f)
{
	struct vdir d = VDIR_INIT;
	struct vdir_wait wait = {
		.path = f->place,
		.wait_ms = f->wait_ms,
		.cancel = f->cancel,
		.looks = is_whole,
		.ctx = (void *)f,
	};
	int rc = vdir_await(&d, &wait);

	if (rc == 0)
		rc = vdir_is_diff(&d) ? fetch_diff(f) : fetch_full(f, &d);
	vdir_close(&d);
	return rc;
}

void fetch_release(struct fetch *f)
{
	free(f->place);
	free(f->has_path);
	*f = (struct fetch){ 0 };
}
