#include "pipes/store_dir.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK 512u    /* bytes that st_blocks counts in */
#define READABLE 0644 /* a sealed slot's files; while filled they are 0600 */
#define TREE_MAX (STORE_DEPTH_MAX + 2)

typedef int file_fn(void *arg, int dirfd, const char *name,
		    const struct stat *st);

static int walk_take(int fd, int depth, file_fn *fn, void *arg);

static int walk_entry(int dirfd, const char *name, int depth, file_fn *fn,
		      void *arg)
{
	struct stat st;
	int fd;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : log_errno(E_IO, "stat %s", name);
	if (!S_ISDIR(st.st_mode))
		return fn(arg, dirfd, name, &st);
	if (depth == 0)
		return log_error(E_IO, "%s: too deep", name);
	fd = openat(dirfd, name,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) /* space is asked for while a version is made or dropped */
		return errno == ENOENT ? 0 : log_errno(E_IO, "open %s", name);
	return walk_take(fd, depth - 1, fn, arg);
}

/* fn for each file below the directory fd; then for the directory itself,
 * with name NULL.  Closes fd. */
static int walk_take(int fd, int depth, file_fn *fn, void *arg)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!d) {
		rc = log_errno(E_IO, "read a directory");
		close(fd);
		return rc;
	}
	while (rc >= 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = walk_entry(fd, e->d_name, depth, fn, arg);
	if (rc >= 0)
		rc = fn(arg, fd, NULL, NULL);
	closedir(d);
	return rc;
}

static int walk(const struct store *s, const char *dir, file_fn *fn, void *arg)
{
	int fd = openat(s->dirfd, dir,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT
			       ? 0
			       : log_errno(E_IO, "open %s/%s", s->path, dir);
	return walk_take(fd, TREE_MAX, fn, arg);
}

static int add_blocks(void *arg, int dirfd, const char *name,
		      const struct stat *st)
{
	(void)dirfd;
	/* Of a file with several links nothing would come back. */
	if (name && S_ISREG(st->st_mode) && st->st_nlink == 1)
		*(uint64_t *)arg += (uint64_t)st->st_blocks * BLOCK;
	return 0;
}

static int sync_file(void *arg, int dirfd, const char *name,
		     const struct stat *st)
{
	int fd, rc;

	(void)arg;
	if (!name)
		return io_fsync_dir(dirfd);
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) /* a link that post-load made has nothing to sync */
		return errno == ELOOP ? 0 : log_errno(E_IO, "open %s", name);
	if (S_ISREG(st->st_mode) && !(st->st_mode & S_IRGRP) &&
	    fchmod(fd, READABLE) < 0) {
		rc = log_errno(E_IO, "make %s readable", name);
		goto close_file;
	}
	do
		rc = fsync(fd);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		rc = log_errno(E_IO, "fsync %s", name);
close_file:
	close(fd);
	return rc;
}

int store_sync(const struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];
	int rc = walk(s, store_name(name, "staging", version), sync_file, NULL);

	return rc < 0 ? rc : store_sync_dir(s, "staging");
}

/* The oldest version that need not be kept: never the one that is served. */
static uint64_t oldest_retired(const struct store *s)
{
	if (s->nversions <= s->keep || s->version[0] == s->serving)
		return 0;
	return s->version[0];
}

uint64_t store_room(const struct store *s)
{
	char name[STORE_NAME_SIZE];
	struct statvfs v;
	uint64_t room = 0;

	if (fstatvfs(s->dirfd, &v) < 0) {
		log_errno(E_IO, "free space of %s", s->path);
		return 0;
	}
	for (uint32_t i = 0; i + s->keep < s->nversions; i++)
		if (s->version[i] != s->serving)
			walk(s, store_name(name, "versions", s->version[i]),
			     add_blocks, &room);
	walk(s, "staging", add_blocks, &room);
	return room + (uint64_t)v.f_bavail * v.f_frsize;
}

static int store_unseal(const struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];

	store_name(name, "slots", version);
	if (unlinkat(s->dirfd, name, 0) < 0)
		return errno == ENOENT
			       ? 0
			       : log_errno(E_IO, "remove %s/%s", s->path, name);
	return store_sync_dir(s, "slots");
}

/* Drops a version of versions/: its record first, so that a crash leaves an
 * unsealed one, which the next start removes. */
static int store_retire(struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];
	int rc = store_unseal(s, version);

	if (rc < 0)
		return rc;
	store_forget_version(s, version);
	return io_remove_tree(s->dirfd, store_name(name, "versions", version));
}

static int drop_entry(const struct store *s, const char *name)
{
	char *path = xasprintf("staging/%s", name);
	int rc = io_remove_tree(s->dirfd, path);

	free(path);
	return rc;
}

int store_drop_staging(struct store *s)
{
	int fd = io_open_dir(s->dirfd, "staging");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : log_errno(E_IO, "read a directory");
	}
	while (rc >= 0 && (e = readdir(d))) {
		uint64_t version = version_number(e->d_name);

		if (version == 0)
			continue;
		rc = store_unseal(s, version);
		if (rc >= 0)
			rc = drop_entry(s, e->d_name);
	}
	closedir(d);
	s->staged = 0;
	return rc;
}

/* ---- the slot's own files, reached from its directory ---- */

static int make_parents(const struct store_making *k, const char *path)
{
	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		char *dir = xstrndup(path, (size_t)(p - path));
		int rc = io_mkdir(k->dirfd, dir, 0755);

		free(dir);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* A name that the old version has as well moves here; its file may be used
 * if it turns out to be nobody else's. */
static int move_old(const struct store_making *k, const char *path)
{
	char *old;
	int rc = 0;

	if (!k->from[0])
		return 0;
	old = xasprintf("%s/%s", k->from, path);
	if (renameat(k->s->dirfd, old, k->dirfd, path) < 0 && errno != ENOENT &&
	    errno != ENOTDIR && errno != EISDIR)
		rc = log_errno(E_IO, "move %s/%s", k->s->path, old);
	free(old);
	return rc;
}

/* How many are made here. */
static uint32_t files_of(const struct store_making *k)
{
	return k->slot->whole ? 0 : k->slot->nfiles;
}

static int take_names(const struct store_making *k)
{
	int rc = 0;

	for (uint32_t i = 0; i < files_of(k) && rc >= 0; i++) {
		rc = make_parents(k, k->slot->file[i].path);
		if (rc >= 0)
			rc = move_old(k, k->slot->file[i].path);
	}
	/* What is left over gives its space back before more is taken. */
	if (rc >= 0 && k->from[0])
		rc = io_remove_tree(k->s->dirfd, k->from);
	return rc;
}

static bool is_same_file(int fd, int dirfd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 &&
	       fstatat(dirfd, path, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The file of that name, if it was kept open and nobody else has it. */
static bool take_kept(struct store_making *k, const struct store_file *f,
		      struct slotfile *out)
{
	for (uint32_t i = 0; i < k->old.n; i++) {
		struct slotfile *o = &k->old.file[i];

		if (strcmp(k->old.path[i], f->path) != 0)
			continue;
		if (o->size != f->bytes || !slotfile_is_ours(o) ||
		    !is_same_file(o->fd, k->dirfd, f->path))
			return false;
		*out = *o;
		*o = (struct slotfile)SLOTFILE_INIT;
		return true;
	}
	return false;
}

static int open_file(struct store_making *k, const struct store_file *f,
		     struct slotfile *out)
{
	int rc = slotfile_reuse(out, k->dirfd, f->path, f->bytes);

	if (rc != -E_AGAIN)
		return rc;
	rc = io_remove_tree(k->dirfd, f->path);
	return rc < 0 ? rc : slotfile_create(out, k->dirfd, f->path, f->bytes);
}

static int list_files(struct store_making *k)
{
	uint32_t n = files_of(k);
	struct store_files *m = &k->made;
	int rc = take_names(k);

	m->version = k->slot->version;
	m->path = xcalloc(n, sizeof *m->path);
	m->file = xcalloc(n, sizeof *m->file);
	for (m->n = 0; m->n < n && rc >= 0; m->n++) {
		const struct store_file *f = &k->slot->file[m->n];

		m->path[m->n] = xstrdup(f->path);
		m->file[m->n] = (struct slotfile)SLOTFILE_INIT;
		take_kept(k, f, &m->file[m->n]);
	}
	/* A file that is still open here would refuse its own lease. */
	store_files_release(&k->old);
	return rc;
}

void store_files_release(struct store_files *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		slotfile_release(&f->file[i]);
		free(f->path[i]);
	}
	free(f->file);
	free(f->path);
	*f = (struct store_files){ 0 };
}

void store_keep_take(struct store *s, struct store_files *f)
{
	s->kept = xreallocarray(s->kept, s->nkept + 1, sizeof *s->kept);
	s->kept[s->nkept++] = *f;
	*f = (struct store_files){ 0 };
}

static void unkeep(struct store *s, uint64_t version, struct store_files *out)
{
	for (uint32_t i = 0; i < s->nkept; i++)
		if (s->kept[i].version == version) {
			*out = s->kept[i];
			s->kept[i] = s->kept[--s->nkept];
			return;
		}
}

int store_retire_old(struct store *s)
{
	uint64_t old;
	int rc = 0;

	while (rc >= 0 && (old = oldest_retired(s)) != 0) {
		struct store_files gone = { 0 };

		unkeep(s, old, &gone);
		store_files_release(&gone);
		rc = store_retire(s, old);
	}
	return rc;
}

/* Frees all versions beyond keep but the one to be reused. */
static int retire(struct store *s, struct store_making *k)
{
	uint64_t reused = oldest_retired(s);
	int rc;

	if (reused == 0 || k->slot->whole)
		return store_retire_old(s);
	rc = store_unseal(s, reused);
	if (rc < 0)
		return rc;
	store_forget_version(s, reused);
	unkeep(s, reused, &k->old);
	store_name(k->from, "versions", reused);
	return rc < 0 ? rc : store_retire_old(s);
}

static int check_room(const struct store *s, const struct store_slot *slot)
{
	uint64_t have = store_room(s), need = slot->bytes + slot->spare;

	if (have >= need)
		return 0;
	return log_error(E_IO,
			 "no space in %s for version %llu: need %llu bytes, "
			 "have %llu",
			 s->path, (unsigned long long)slot->version,
			 (unsigned long long)need, (unsigned long long)have);
}

static int make_dir(struct store_making *k)
{
	char name[STORE_NAME_SIZE];
	int rc;

	store_name(name, "staging", k->slot->version);
	rc = io_mkdir(k->s->dirfd, name, 0755);
	if (rc < 0)
		return rc;
	rc = k->dirfd = io_open_dir(k->s->dirfd, name);
	return rc < 0 ? rc : list_files(k);
}

void store_make_undo(struct store_making *k)
{
	char name[STORE_NAME_SIZE];

	if (!k->s)
		return;
	store_files_release(&k->old);
	store_files_release(&k->made);
	io_remove_tree(k->s->dirfd,
		       store_name(name, "staging", k->slot->version));
	if (k->dirfd >= 0)
		close(k->dirfd);
	*k = (struct store_making){ 0 };
}

int store_make_names(struct store *s, const struct store_slot *slot,
		     struct store_making *k)
{
	int rc = check_room(s, slot);

	*k = (struct store_making){ .s = s, .slot = slot, .dirfd = -1 };
	if (rc >= 0)
		rc = store_drop_staging(s);
	if (rc >= 0)
		rc = retire(s, k);
	if (rc >= 0)
		rc = make_dir(k);
	if (rc < 0)
		store_make_undo(k);
	return rc < 0 ? rc : 0;
}

int store_make_space(struct store_making *k, const atomic_bool *cancel,
		     struct store_files *out)
{
	struct store_files *m = &k->made;
	int rc = 0;

	for (uint32_t i = 0; i < m->n && rc >= 0; i++) {
		if (atomic_load(cancel))
			rc = -E_AGAIN;
		else if (m->file[i].fd < 0)
			rc = open_file(k, &k->slot->file[i], &m->file[i]);
	}
	if (rc < 0) {
		store_make_undo(k);
		return rc;
	}
	*out = *m;
	close(k->dirfd);
	*k = (struct store_making){ 0 };
	return 0;
}
