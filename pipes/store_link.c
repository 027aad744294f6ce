/* A kept version under a new number: the same files, by hard links. */
#include "pipes/store_dir.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_like(const struct store_slot *s, const struct store_want *w)
{
	return digest_eq(&s->received, &w->content) &&
	       digest_eq(&s->structure, &w->structure) &&
	       strcmp(s->post_load, w->post_load) == 0;
}

int store_find(const struct store *s, const struct store_want *w,
	       struct store_slot *out)
{
	for (uint32_t i = s->nversions; i-- > 0;) {
		if (store_slot_load(s, s->version[i], out) < 0)
			continue;
		if (is_like(out, w))
			return 1;
		store_slot_release(out);
	}
	return 0;
}

static int link_take(int from, int to, int depth);

static int link_dir(int from, int to, const char *name, int depth)
{
	int rc = io_mkdir(to, name, 0755), a, b;

	if (rc < 0)
		return rc;
	a = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (a < 0)
		return log_errno(E_IO, "open %s", name);
	b = io_open_dir(to, name);
	if (b < 0) {
		close(a);
		return b;
	}
	rc = depth ? link_take(a, b, depth - 1)
		   : log_error(E_IO, "%s: too deep", name);
	if (!depth)
		close(a);
	close(b);
	return rc;
}

static int link_entry(int from, int to, const char *name, int depth)
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return log_errno(E_IO, "stat %s", name);
	if (S_ISDIR(st.st_mode))
		return link_dir(from, to, name, depth);
	if (linkat(from, name, to, name, 0) < 0)
		return log_errno(E_IO, "link %s", name);
	return 0;
}

/* All that is below from, below to.  Closes from. */
static int link_take(int from, int to, int depth)
{
	DIR *d = fdopendir(from);
	struct dirent *e;
	int rc = 0;

	if (!d) {
		rc = log_errno(E_IO, "read a directory");
		close(from);
		return rc;
	}
	while (rc >= 0 && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = link_entry(from, to, e->d_name, depth);
	closedir(d);
	return rc < 0 ? rc : 0;
}

static int link_version(const struct store *s, const char *name, uint64_t kept)
{
	char from[STORE_NAME_SIZE];
	int to = io_open_dir(s->dirfd, name), fd, rc;

	if (to < 0)
		return to;
	fd = io_open_dir(s->dirfd, store_name(from, "versions", kept));
	rc = fd < 0 ? fd : link_take(fd, to, STORE_DEPTH_MAX + 2);
	close(to);
	return rc;
}

int store_link(struct store *s, uint64_t kept, uint64_t version)
{
	char name[STORE_NAME_SIZE];
	int rc = store_drop_staging(s);

	store_name(name, "staging", version);
	if (rc >= 0)
		rc = io_mkdir(s->dirfd, name, 0755);
	if (rc >= 0)
		rc = link_version(s, name, kept);
	/* Not before its files have their second name. */
	if (rc >= 0)
		rc = store_retire_old(s);
	if (rc < 0)
		io_remove_tree(s->dirfd, name);
	return rc < 0 ? rc : 0;
}
