#include "source.h"
#include "err.h"
#include "index.h"
#include "io.h"
#include "log.h"
#include "srcahead.h"
#include "srchead.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTED_MAX 8 /* names in one message */

/* While a source is opened: what is in its directory. */
struct opening {
	struct source *s;
	char **entry; /* bytewise order */
	uint32_t nentries;
	bool has_index;
	struct index index;
	struct buf ignored; /* names, for people */
};

/* Weights in other formats: they are not carried. */
static const char *const weights[] = {
	".safetensors", ".safetensors.index.json",
	".bin",		".bin.index.json",
	".pt",		".pth",
	".ckpt",	".gguf",
	".ggml",	".onnx",
	".onnx_data",	".h5",
	".msgpack",	".npz",
	".tflite",	".ot",
	".pdparams",
};

static bool ends_in(const char *name, const char *tail)
{
	size_t n = strlen(name), t = strlen(tail);

	return n >= t && strcmp(name + n - t, tail) == 0;
}

/* An index of other weights is theirs: it stays behind with them. */
static bool is_weights(const char *name)
{
	if (strcmp(name, SOURCE_INDEX) == 0)
		return false;
	for (size_t i = 0; i < COUNT(weights); i++)
		if (ends_in(name, weights[i]))
			return true;
	return false;
}

void source_release(struct source *s)
{
	for (uint32_t i = 0; i < s->nfiles; i++) {
		st_release(&s->file[i].st);
		free(s->file[i].path);
	}
	free(s->file);
	srcdir_release(&s->dir);
	*s = (struct source){ 0 };
}

static int cmp_entries(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_entry(struct opening *o, const char *name)
{
	if (o->nentries == SOURCE_ENTRIES_MAX)
		return log_error(E_DATA, "source %s: over %u entries",
				 o->s->dir.path, SOURCE_ENTRIES_MAX);
	if ((o->nentries & (o->nentries - 1)) == 0)
		o->entry = xreallocarray(o->entry,
					 o->nentries ? 2 * o->nentries : 1,
					 sizeof *o->entry);
	o->entry[o->nentries++] = xstrdup(name);
	return 0;
}

static int list_entries(struct opening *o)
{
	const char *path = o->s->dir.path;
	int fd = openat(o->s->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!dir) {
		rc = log_errno(E_IO, "list source %s", path);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (rc == 0 && (errno = 0, e = readdir(dir)))
		if (e->d_name[0] != '.')
			rc = add_entry(o, e->d_name);
	if (rc == 0 && errno)
		rc = log_errno(E_IO, "list source %s", path);
	closedir(dir);
	if (o->nentries)
		qsort(o->entry, o->nentries, sizeof *o->entry, cmp_entries);
	return rc;
}

static int read_index(struct opening *o)
{
	char *name = xasprintf("%s/%s", o->s->dir.path, SOURCE_INDEX);
	struct srcdir_id id;
	int fd = srcdir_open_file(&o->s->dir, SOURCE_INDEX, &id);
	int rc = fd < 0 ? fd : index_read_fd(&o->index, name, fd);

	if (fd >= 0)
		close(fd);
	free(name);
	o->has_index = rc == 0;
	return rc == -E_NOINPUT ? 0 : rc;
}

/* "a", "b" and 3 more */
static void list_name(struct buf *b, uint32_t i, const char *name)
{
	if (i < LISTED_MAX)
		buf_addf(b, "%s\"%s\"", i ? ", " : "", name);
}

static void list_rest(struct buf *b, uint32_t n)
{
	if (n > LISTED_MAX)
		buf_addf(b, " and %u more", n - LISTED_MAX);
}

static void add_file(struct source *s, const char *path, enum source_kind kind,
		     const struct srcdir_id *id)
{
	if ((s->nfiles & (s->nfiles - 1)) == 0)
		s->file = xreallocarray(s->file, s->nfiles ? 2 * s->nfiles : 1,
					sizeof *s->file);
	s->file[s->nfiles++] = (struct source_file){
		.path = xstrdup(path),
		.kind = kind,
		.id = *id,
	};
	s->nshards += kind == SOURCE_SHARD;
}

/* Takes st. */
static void add_read(struct source *s, const char *path,
		     const struct srcdir_id *id, const struct st *st)
{
	add_file(s, path, SOURCE_SHARD, id);
	s->file[s->nfiles - 1].st = *st;
	s->ntensors += st->n;
}

/* 0, -E_NOINPUT (quiet) or another failure (logged). */
static int add_shard(struct source *s, const char *path)
{
	char *name = xasprintf("%s/%s", s->dir.path, path);
	struct srcdir_id id;
	struct st st = { 0 };
	int fd = srcdir_open_file(&s->dir, path, &id);
	int rc = fd < 0 ? fd : st_read_fd(&st, name, fd, id.size);

	if (fd >= 0)
		close(fd);
	if (rc == 0 && st.n > SOURCE_TENSORS_MAX - s->ntensors) {
		rc = log_error(E_DATA, "%s: over %u tensors with this file",
			       name, SOURCE_TENSORS_MAX);
		st_release(&st);
	}
	free(name);
	if (rc == 0)
		add_read(s, path, &id, &st);
	return rc;
}

/* Some tensor of a file, to show what is missing with it. */
static struct slice tensor_in(const struct index *x, uint32_t file)
{
	uint32_t i = 0;

	while (x->entry[i].file != file)
		i++;
	return index_name(x, i);
}

/* 1, 0, or a negative E_* that is not about being there. */
static int is_there(const struct source *s, const char *path)
{
	struct srcdir_id id;
	int fd = srcdir_open_file(&s->dir, path, &id);

	if (fd < 0)
		return fd == -E_NOINPUT ? 0 : fd;
	close(fd);
	return 1;
}

/* All that are missing are named at once, before any header is read. */
static int check_shards_exist(const struct opening *o)
{
	const struct index *x = &o->index;
	struct buf list = { 0 };
	uint32_t missing = 0;
	int rc = 0;

	for (uint32_t i = 0; rc >= 0 && i < x->nfiles; i++) {
		rc = is_there(o->s, x->file[i]);
		if (rc != 0)
			continue;
		list_name(&list, missing, x->file[i]);
		if (missing++ < LISTED_MAX)
			buf_addf(&list, " (tensor \"%.*s\")",
				 SLICE_ARG(tensor_in(x, i)));
	}
	list_rest(&list, missing);
	if (rc >= 0)
		rc = 0;
	if (rc == 0 && missing)
		rc = log_error(
			E_NOINPUT, "source %s: %u of %u shards missing: %s",
			o->s->dir.path, missing, x->nfiles, buf_cstr(&list));
	buf_release(&list);
	return rc;
}

static int add_indexed_shard(struct source *s, const char *path,
			     struct srcahead *ahead)
{
	int rc;

	if (ahead->is_read && ahead->st.n <= SOURCE_TENSORS_MAX - s->ntensors) {
		add_read(s, path, &ahead->id, &ahead->st);
		ahead->st = (struct st){ 0 };
		return 0;
	}
	rc = add_shard(s, path);
	if (rc == -E_NOINPUT)
		rc = log_error(E_NOINPUT, "%s/%s went away", s->dir.path, path);
	return rc;
}

static int add_indexed(struct opening *o)
{
	uint32_t n = o->index.nfiles;
	struct srcahead *ahead;
	int rc = check_shards_exist(o);

	if (rc < 0)
		return rc;
	ahead = xcalloc(n, sizeof *ahead);
	if (n > 1)
		srcahead_read(&o->s->dir, o->index.file, n, ahead);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = add_indexed_shard(o->s, o->index.file[i], &ahead[i]);
	for (uint32_t i = 0; i < n; i++)
		st_release(&ahead[i].st);
	free(ahead);
	return rc;
}

/* models--OWNER--NAME of a Hugging Face cache holds its checkpoints deeper. */
static bool is_cache_root(const struct opening *o)
{
	struct stat st;

	return fstatat(o->s->dir.fd, "snapshots", &st, 0) == 0 &&
	       S_ISDIR(st.st_mode) &&
	       fstatat(o->s->dir.fd, "blobs", &st, 0) == 0;
}

static int no_weights(const struct opening *o)
{
	const char *path = o->s->dir.path;

	if (is_cache_root(o))
		return log_error(E_NOINPUT,
				 "source %s is a Hugging Face cache: give the "
				 "checkpoint in it, %s/snapshots/REVISION",
				 path, path);
	return log_error(E_NOINPUT, "source %s: no *.safetensors and no %s",
			 path, SOURCE_INDEX);
}

static int add_only_shard(struct opening *o)
{
	struct buf list = { 0 };
	const char *only = NULL;
	uint32_t n = 0;
	int rc;

	for (uint32_t i = 0; i < o->nentries; i++) {
		if (!ends_in(o->entry[i], ".safetensors"))
			continue;
		only = o->entry[i];
		list_name(&list, n++, only);
	}
	list_rest(&list, n);
	if (n == 1)
		rc = add_shard(o->s, only);
	else if (n == 0)
		rc = no_weights(o);
	else
		rc = log_error(E_DATA,
			       "source %s: expected %s or one *.safetensors, "
			       "found %u without an index: %s",
			       o->s->dir.path, SOURCE_INDEX, n,
			       buf_cstr(&list));
	buf_release(&list);
	return rc;
}

static int cmp_files(const void *a, const void *b)
{
	const struct source_file *fa = a, *fb = b;

	return strcmp(fa->path, fb->path);
}

/* Until the carried ones come, the files are the shards, in order. */
static bool is_shard(const struct source *s, uint32_t nshards, char *path)
{
	struct source_file key = { .path = path };

	return bsearch(&key, s->file, nshards, sizeof key, cmp_files);
}

static int add_carried(struct source *s, const char *name)
{
	const char *why = srcdir_bad_path(slice_of(name));
	struct srcdir_id id;
	int fd;

	if (why)
		return log_error(E_DATA,
				 "source %s: file \"%s\": %s is not allowed",
				 s->dir.path, name, why);
	fd = srcdir_open_file(&s->dir, name, &id);
	if (fd == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s/%s: dangling link", s->dir.path,
				 name);
	if (fd < 0)
		return fd;
	close(fd);
	add_file(s, name, SOURCE_CARRIED, &id);
	return 0;
}

/* Is name something other than a file (a directory, a socket, ...)? */
static bool is_no_file(const struct source *s, const char *name)
{
	struct stat st;

	return fstatat(s->dir.fd, name, &st, 0) == 0 && !S_ISREG(st.st_mode);
}

/* Are there shards below this directory? */
static bool holds_shards(const struct source *s, const char *name)
{
	size_t n = strlen(name);

	for (uint32_t i = 0; i < s->nfiles; i++)
		if (strncmp(s->file[i].path, name, n) == 0 &&
		    s->file[i].path[n] == '/')
			return true;
	return false;
}

static void ignore(struct opening *o, const char *name)
{
	if (!holds_shards(o->s, name))
		list_name(&o->ignored, o->s->nignored++, name);
}

static int add_entries(struct opening *o)
{
	struct source *s = o->s;
	uint32_t nshards = s->nshards;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < o->nentries; i++) {
		char *name = o->entry[i];

		if (is_shard(s, nshards, name))
			continue;
		if (is_weights(name) || is_no_file(s, name))
			ignore(o, name);
		else
			rc = add_carried(s, name);
	}
	return rc;
}

static void number_tensors(struct source *s)
{
	uint32_t first = 0;

	qsort(s->file, s->nfiles, sizeof *s->file, cmp_files);
	for (uint32_t i = 0; i < s->nfiles; i++) {
		s->file[i].first = first;
		first += s->file[i].st.n;
		s->bytes += s->file[i].st.data_bytes;
	}
}

/* The file that tensor i is in; empty ones share their number with the next. */
static uint32_t file_of(const struct source *s, uint32_t i)
{
	uint32_t lo = 0, hi = s->nfiles;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->file[mid].first <= i)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static void view(const struct source *s, uint32_t file, uint32_t i,
		 struct source_tensor *out)
{
	const struct st *st = &s->file[file].st;
	const struct st_tensor *t = &st->tensor[i];

	*out = (struct source_tensor){
		.name = st_name(st, t),
		.shape = st_shape(st, t),
		.offset = st->data_start + t->begin,
		.bytes = t->end - t->begin,
		.file = file,
		.dtype = t->dtype,
		.ndims = t->ndims,
	};
}

void source_get(const struct source *s, uint32_t i, struct source_tensor *out)
{
	uint32_t file = file_of(s, i);

	view(s, file, i - s->file[file].first, out);
}

bool source_next(struct source_iter *it, struct source_tensor *out)
{
	const struct source *s = it->s;

	while (it->file < s->nfiles && it->tensor == s->file[it->file].st.n) {
		it->file++;
		it->tensor = 0;
	}
	if (it->file == s->nfiles)
		return false;
	view(s, it->file, it->tensor++, out);
	return true;
}

static struct slice name_of(const void *ctx, uint32_t i)
{
	struct source_tensor t;

	source_get(ctx, i, &t);
	return t.name;
}

static const char *path_of(const struct source *s, uint32_t tensor)
{
	return s->file[file_of(s, tensor)].path;
}

static int not_in_index(const struct opening *o, uint32_t tensor)
{
	return log_error(E_DATA,
			 "source %s: tensor \"%.*s\" is in \"%s\" but not in "
			 "the index",
			 o->s->dir.path, SLICE_ARG(name_of(o->s, tensor)),
			 path_of(o->s, tensor));
}

static int not_in_header(const struct opening *o, uint32_t entry)
{
	const struct index *x = &o->index;

	return log_error(E_DATA,
			 "source %s: tensor \"%.*s\": the index maps it to "
			 "\"%s\", whose header does not have it",
			 o->s->dir.path, SLICE_ARG(index_name(x, entry)),
			 x->file[x->entry[entry].file]);
}

static int mapped_elsewhere(const struct opening *o, uint32_t tensor,
			    uint32_t entry)
{
	const struct index *x = &o->index;

	return log_error(E_DATA,
			 "source %s: tensor \"%.*s\" is in \"%s\", but the "
			 "index maps it to \"%s\"",
			 o->s->dir.path, SLICE_ARG(name_of(o->s, tensor)),
			 path_of(o->s, tensor), x->file[x->entry[entry].file]);
}

/* Each tensor has its entry, and it leads to its file: so one that is in two
 * headers is in the wrong one of them. */
static int check_tensors(const struct opening *o, const uint32_t *entry)
{
	const struct source *s = o->s;
	uint32_t shard = 0; /* shards are the index's files, in its order */

	for (uint32_t f = 0; f < s->nfiles; f++) {
		uint32_t i = s->file[f].first, end = i + s->file[f].st.n;

		for (; i < end; i++) {
			if (entry[i] == NAMES_NONE)
				return not_in_index(o, i);
			if (o->index.entry[entry[i]].file != shard)
				return mapped_elsewhere(o, i, entry[i]);
		}
		shard += s->file[f].kind == SOURCE_SHARD;
	}
	return 0;
}

/* Each tensor has an entry of its own: is one left over? */
static int check_entries(const struct opening *o, const uint32_t *entry)
{
	uint32_t n = o->index.n, i = 0;
	bool *met;

	if (o->s->ntensors == n)
		return 0;
	met = xcalloc(n, sizeof *met);
	for (uint32_t k = 0; k < o->s->ntensors; k++)
		met[entry[k]] = true;
	while (i < n && met[i])
		i++;
	free(met);
	return i < n ? not_in_header(o, i) : 0;
}

static int check_index(const struct opening *o)
{
	uint32_t *entry;
	struct names have;
	int rc;

	if (!o->has_index)
		return 0;
	entry = xreallocarray(NULL, o->s->ntensors, sizeof *entry);
	names_sort(&have, name_of, o->s, o->s->ntensors);
	names_join(&have, &o->index.order, entry);
	names_release(&have);
	rc = check_tensors(o, entry);
	if (rc == 0)
		rc = check_entries(o, entry);
	free(entry);
	return rc;
}

/* Carried files are in the digest by name only: their content belongs to the
 * content digest. */
static void digest_structure(struct source *s)
{
	struct digest_state d;

	digest_begin(&d);
	for (uint32_t i = 0; i < s->nfiles; i++) {
		const struct source_file *f = &s->file[i];
		unsigned char kind = (unsigned char)f->kind, size[8];

		digest_add(&d, f->path, strlen(f->path) + 1);
		digest_add(&d, &kind, 1);
		if (f->kind == SOURCE_CARRIED)
			continue;
		for (int k = 0; k < 8; k++)
			size[k] = (unsigned char)(f->id.size >> 8 * k);
		digest_add(&d, size, sizeof size);
		digest_add(&d, f->st.header.b, DIGEST_LEN);
	}
	digest_end(&d, &s->structure);
}

static void tell_ignored(struct opening *o)
{
	if (o->s->nignored == 0)
		return;
	list_rest(&o->ignored, o->s->nignored);
	log_warn("source %s: %u entr%s no part of the checkpoint and stay%s "
		 "behind: %s",
		 o->s->dir.path, o->s->nignored,
		 o->s->nignored == 1 ? "y is" : "ies are",
		 o->s->nignored == 1 ? "s" : "", buf_cstr(&o->ignored));
}

static int load(struct opening *o)
{
	struct source *s = o->s;
	int rc = list_entries(o);

	if (rc == 0)
		rc = read_index(o);
	if (rc == 0)
		rc = o->has_index ? add_indexed(o) : add_only_shard(o);
	if (rc == 0 && s->ntensors == 0)
		rc = log_error(E_DATA, "source %s: no tensors", s->dir.path);
	if (rc == 0)
		rc = add_entries(o);
	if (rc < 0)
		return rc;
	number_tensors(s);
	rc = check_index(o);
	if (rc == 0)
		rc = srchead_check(s);
	return rc;
}

int source_open(struct source *s, const char *path)
{
	struct opening o = { .s = s };
	int rc;

	*s = (struct source){ 0 };
	rc = srcdir_open(&s->dir, path);
	if (rc < 0)
		return rc;
	rc = load(&o);
	index_release(&o.index);
	for (uint32_t i = 0; i < o.nentries; i++)
		free(o.entry[i]);
	free(o.entry);
	if (rc == 0) {
		digest_structure(s);
		tell_ignored(&o);
	} else {
		source_release(s);
	}
	buf_release(&o.ignored);
	return rc;
}

int source_open_file(const struct source *s, uint32_t file)
{
	const struct source_file *f = &s->file[file];

	return srcdir_open_same(&s->dir, f->path, &f->id);
}
