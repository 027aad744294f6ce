#include "pipes/seal.h"
#include "common/err.h"
#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_FILES_MAX 65536u /* that post-load may leave */

static int add_path(struct seal_tree *t, char *path_take)
{
	if (t->n == TREE_FILES_MAX) {
		free(path_take);
		return log_error(E_DATA, "more than %u files in a slot",
				 TREE_FILES_MAX);
	}
	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 64;
		t->path = xreallocarray(t->path, t->cap, sizeof *t->path);
	}
	t->path[t->n++] = path_take;
	return 0;
}

static int collect(struct seal_tree *t, const char *dir, unsigned depth);

static int collect_entry(struct seal_tree *t, const char *dir, const char *name,
			 unsigned depth)
{
	char *path = dir[0] ? xasprintf("%s/%s", dir, name) : xstrdup(name);
	struct stat st;
	int rc;

	if (fstatat(t->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		rc = log_errno(E_IO, "stat %s", path);
	else if (S_ISREG(st.st_mode))
		return add_path(t, path);
	else if (S_ISDIR(st.st_mode))
		rc = collect(t, path, depth + 1);
	else
		rc = log_error(E_DATA,
			       "%s: post-load left what is neither "
			       "file nor directory",
			       path);
	free(path);
	return rc;
}

static int collect(struct seal_tree *t, const char *dir, unsigned depth)
{
	int fd = openat(t->dirfd, dir[0] ? dir : ".",
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (!d) {
		rc = log_errno(E_IO, "open %s", dir);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	if (depth > STORE_DEPTH_MAX)
		rc = log_error(E_DATA, "%s: too deep", dir);
	while (rc >= 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = collect_entry(t, dir, e->d_name, depth);
	closedir(d);
	return rc;
}

static int hash_file(int fd, const char *path, uint64_t size,
		     const atomic_bool *cancel, struct digest *out)
{
	struct piece p = { 0, 0, size };
	size_t n = piece_leaves(&p);
	struct digest *leaf = xcalloc(n, sizeof *leaf);
	struct window w;
	int rc;

	window_init(&w, fd, size, WINDOW_AUTO);
	rc = size ? piece_hash(&w, &p, leaf, cancel) : 0;
	window_release(&w);
	leaves_digest(leaf, n, out);
	free(leaf);
	if (rc < 0 && rc != -E_AGAIN)
		log_error(-rc, "%s: cannot be read", path);
	return rc;
}

void seal_tree_fold(struct digest_state *s, const char *path, uint64_t bytes,
		    const struct digest *file)
{
	uint8_t size[8];

	for (unsigned i = 0; i < sizeof size; i++)
		size[i] = (uint8_t)(bytes >> (8 * i));
	digest_add(s, path, strlen(path) + 1);
	digest_add(s, size, sizeof size);
	digest_add(s, file, sizeof *file);
}

static int add_file(const struct seal_tree *t, const char *path,
		    const atomic_bool *cancel, struct digest_state *s)
{
	int fd = openat(t->dirfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct digest d;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = log_errno(E_IO, "open %s", path);
		goto close_file;
	}
	rc = hash_file(fd, path, (uint64_t)st.st_size, cancel, &d);
	if (rc >= 0)
		seal_tree_fold(s, path, (uint64_t)st.st_size, &d);
close_file:
	if (fd >= 0)
		close(fd);
	return rc;
}

static int cmp_path(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int seal_tree_list(struct seal_tree *t, int dirfd)
{
	int rc;

	*t = (struct seal_tree){ .dirfd = dirfd };
	rc = collect(t, "", 0);
	if (t->n > 0)
		qsort(t->path, t->n, sizeof *t->path, cmp_path);
	return rc;
}

void seal_tree_release(struct seal_tree *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		free(t->path[i]);
	free(t->path);
	*t = (struct seal_tree){ 0 };
}

int seal_tree_digest(int dirfd, const atomic_bool *cancel, struct digest *out)
{
	struct seal_tree t;
	struct digest_state s;
	int rc = seal_tree_list(&t, dirfd);

	digest_begin(&s);
	for (uint32_t i = 0; i < t.n && rc >= 0; i++)
		rc = add_file(&t, t.path[i], cancel, &s);
	if (rc >= 0)
		digest_end(&s, out);
	seal_tree_release(&t);
	return rc;
}
