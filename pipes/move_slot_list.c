#include "pipes/move_slot_part.h"

#include "common/err.h"
#include "common/log.h"
#include "common/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long ull;

/* ---- objects and their extents ---- */

static void add_object(struct load *l, enum content_kind kind,
		       struct slice name)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 256;
		l->object =
			xreallocarray(l->object, l->cap, sizeof(*l->object));
	}
	l->object[l->n++] = (struct object){ .kind = kind,
					     .name = { NULL, name.n },
					     .name_at = l->names.n };
	buf_add(&l->names, name.p, name.n);
}

/* The next bytes of the last object, from the last file. */
static struct extent *add_extent(struct load *l, uint64_t from, uint64_t bytes)
{
	struct object *o = &l->object[l->n - 1];
	struct extent *e;

	if (l->nextents == l->extents_cap) {
		l->extents_cap = l->extents_cap ? 2 * l->extents_cap : 256;
		l->extent = xreallocarray(l->extent, l->extents_cap,
					  sizeof(*l->extent));
	}
	e = &l->extent[l->nextents++];
	*e = (struct extent){ .object = l->n - 1,
			      .file = l->nfiles - 1,
			      .from = from,
			      .bytes = bytes,
			      .start = o->bytes };
	o->bytes += bytes;
	return e;
}

static void describe(struct load *l, const struct st *st,
		     const struct st_tensor *t)
{
	const uint64_t *shape = st_shape(st, t);
	struct slice name = st_name(st, t);

	buf_addf(&l->text, "%llu %llu %s ", (ull)l->bytes,
		 (ull)(t->end - t->begin),
		 st_dtype_name((enum st_dtype)t->dtype));
	for (uint32_t i = 0; i < t->ndims; i++)
		buf_addf(&l->text, "%s%llu", i ? "," : "", (ull)shape[i]);
	buf_addf(&l->text, "%s %.*s", t->ndims ? "" : "-", SLICE_ARG(name));
	buf_add(&l->text, "", 1);
	l->ntensors++;
}

static int add_tensor(struct load *l, const struct st *st,
		      const struct st_tensor *t)
{
	struct slice name = st_name(st, t);
	uint64_t bytes = t->end - t->begin;
	struct extent *e;

	if (memchr(name.p, '\0', name.n))
		return log_error(
			E_DATA,
			"%s: the name of a tensor has a NUL: it cannot "
			"be offered on a device",
			l->file[l->nfiles - 1].path);
	describe(l, st, t);
	if (!l->is_made)
		add_object(l, CONTENT_TENSOR, name);
	e = add_extent(l, st->data_start + t->begin, bytes);
	e->is_on_device = true;
	e->at = l->bytes;
	l->bytes += (bytes + DEVPAGE_ALIGN - 1) / DEVPAGE_ALIGN * DEVPAGE_ALIGN;
	return 0;
}

static void add_file(struct load *l, const char *path, uint64_t bytes)
{
	l->file = xreallocarray(l->file, l->nfiles + 1, sizeof(*l->file));
	l->file[l->nfiles++] = (struct load_file){ path, bytes };
}

static void add_carried(struct load *l)
{
	const struct load_file *f = &l->file[l->nfiles - 1];

	add_object(l, CONTENT_CARRIED, slice_of(f->path));
	add_extent(l, 0, f->bytes);
}

static int add_shard(struct load *l, const struct st *st)
{
	int rc = 0;

	if (l->is_made) {
		add_object(l, CONTENT_CARRIED,
			   slice_of(l->file[l->nfiles - 1].path));
		add_extent(l, 0, st->data_start);
	}
	for (uint32_t i = 0; i < st->n && rc == 0; i++)
		rc = add_tensor(l, st, &st->tensor[i]);
	return rc;
}

/* ---- as it was received ---- */

static int add_received_shard(struct load *l, const struct store_file *f)
{
	int fd = openat(l->dirfd, f->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct st st = { 0 };
	int rc;

	if (fd < 0)
		return log_errno(E_IO, "open %s", f->path);
	rc = st_read_fd(&st, f->path, fd, f->bytes);
	if (rc == 0)
		rc = add_shard(l, &st);
	st_release(&st);
	close(fd);
	return rc;
}

static int list_received(struct load *l)
{
	int rc = 0;

	for (uint32_t i = 0; i < l->record.nfiles && rc == 0; i++) {
		const struct store_file *f = &l->record.file[i];

		add_file(l, f->path, f->bytes);
		if (f->kind == FILE_SHARD)
			rc = add_received_shard(l, f);
		else
			add_carried(l);
	}
	return rc;
}

/* ---- as post-load has made it ---- */

static const struct st *shard_of(const struct source *s, const char *path)
{
	for (uint32_t i = 0; i < s->nfiles; i++)
		if (s->file[i].kind == SOURCE_SHARD &&
		    strcmp(s->file[i].path, path) == 0)
			return &s->file[i].st;
	return NULL;
}

static int add_made_file(struct load *l, const struct source *s,
			 const char *path)
{
	const struct st *shard = shard_of(s, path);
	struct stat st;

	if (fstatat(l->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return log_errno(E_IO, "stat %s", path);
	add_file(l, path, (uint64_t)st.st_size);
	if (shard)
		return add_shard(l, shard);
	add_carried(l);
	return 0;
}

static int open_made(const struct load *l, struct source *s)
{
	char link[64], *path;
	int rc;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", l->dirfd);
	path = realpath(link, NULL);
	if (!path)
		return log_errno(E_IO, "the version's directory");
	rc = source_open(s, path);
	free(path);
	return rc;
}

/* Which of its files are shards is what a loader of the directory finds. */
static int list_made(struct load *l)
{
	struct source s = { 0 };
	int rc = open_made(l, &s);

	if (rc == 0)
		rc = seal_tree_list(&l->tree, l->dirfd);
	for (uint32_t i = 0; i < l->tree.n && rc == 0; i++)
		rc = add_made_file(l, &s, l->tree.path[i]);
	source_release(&s);
	return rc;
}

/* ---- all of it ---- */

int load_open(struct load *l, const struct store *s, int dirfd,
	      uint64_t version)
{
	int rc = store_slot_load(s, version, &l->record);

	l->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	if (rc == 0 && l->dirfd < 0)
		rc = log_errno(E_IO, "the version's directory");
	if (rc < 0)
		return rc;
	l->is_made = l->record.post_load[0] != '\0';
	rc = l->is_made ? list_made(l) : list_received(l);
	for (uint32_t i = 0; i < l->n; i++)
		l->object[i].name.p = l->names.p + l->object[i].name_at;
	digest_begin(&l->whole);
	return rc;
}

void load_release(struct load *l)
{
	if (l->dirfd >= 0)
		close(l->dirfd);
	if (l->fd >= 0)
		close(l->fd);
	free(l->file);
	free(l->object);
	free(l->extent);
	seal_tree_release(&l->tree);
	store_slot_release(&l->record);
	buf_release(&l->names);
	buf_release(&l->text);
	buf_release(&l->leaves);
	buf_release(&l->known);
	content_release(&l->content);
	*l = (struct load)LOAD_NONE;
}
