#include "pipes/vdir_keep.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define NAME_SIZE 64

struct one {
	uint64_t version;
	char name[NAME_SIZE];
	bool is_diff, stays;
	struct digest content, parent;
};

struct pruning {
	const struct vdir_keep *k;
	int dirfd;
	struct one *v; /* descending */
	size_t n;
};

/* ---- what is there ---- */

static void add(struct pruning *p, const char *name)
{
	char *path = xasprintf("%s/%s", p->k->disk_dir, name);
	size_t len = strlen(name);
	struct vdir d;

	if (len < NAME_SIZE && vdir_open(&d, path) == 0) {
		if (strcmp(d.mark.registry, p->k->registry) == 0 &&
		    d.mark.version == vdir_number(name)) {
			struct one *o;

			p->v = xreallocarray(p->v, p->n + 1, sizeof *p->v);
			o = &p->v[p->n++];
			*o = (struct one){ .version = d.mark.version,
					   .is_diff = vdir_is_diff(&d),
					   .content = d.mark.id.content,
					   .parent = d.mark.parent };
			memcpy(o->name, name, len + 1);
		}
		vdir_close(&d);
	}
	free(path);
}

/* What a dead writer left is known by the place that it was for. */
static void sweep(const struct pruning *p, const char *name)
{
	const char *end = strstr(name, ".weir-new");
	char *path;

	if (name[0] != '.' || !end || end[strlen(".weir-new")])
		return;
	path = xasprintf("%s/%.*s", p->k->disk_dir, (int)(end - name - 1),
			 name + 1);
	if (vdir_number(strrchr(path, '/') + 1))
		beside_sweep(path);
	free(path);
}

static int descending(const void *x, const void *y)
{
	const struct one *a = x, *b = y;

	return (a->version < b->version) - (a->version > b->version);
}

static int list(struct pruning *p)
{
	int fd = io_open_dir(p->dirfd, ".");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : log_errno(E_IO, "list %s", p->k->disk_dir);
	}
	while ((e = readdir(d))) {
		if (vdir_number(e->d_name) && strlen(e->d_name) < NAME_SIZE)
			add(p, e->d_name);
		sweep(p, e->d_name);
	}
	closedir(d);
	if (p->n)
		qsort(p->v, p->n, sizeof *p->v, descending);
	return 0;
}

/* ---- what stays ---- */

static bool is_used(const struct vdir_keep *k, uint64_t version)
{
	for (size_t i = 0; i < k->nused; i++)
		if (k->used[i] == version)
			return true;
	return false;
}

/* The base of a delta is older, and so behind it. */
static void keep_base(struct pruning *p, size_t i)
{
	for (size_t k = i + 1; k < p->n; k++)
		if (digest_eq(&p->v[k].content, &p->v[i].parent)) {
			p->v[k].stays = true;
			return;
		}
}

static void choose(struct pruning *p)
{
	uint64_t left = p->k->keep;

	for (size_t i = 0; i < p->n; i++) {
		struct one *o = &p->v[i];
		bool published =
			p->k->is_published(p->k->ctx, o->version, &o->content);

		if (published && left > 0) {
			left--;
			o->stays = true;
		}
		o->stays |= published && is_used(p->k, o->version);
		if (o->stays && o->is_diff)
			keep_base(p, i);
	}
}

/* ---- what goes ---- */

/* Under a name that nobody looks for, which the next writer of that place
 * would empty: killed here, nothing is left half removed. */
static void drop(const struct pruning *p, const struct one *o)
{
	int fd = openat(p->dirfd, o->name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char *gone = xasprintf(".%s.weir-new", o->name);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (fd >= 0)
			log_info("%s/%s stays: somebody reads it",
				 p->k->disk_dir, o->name);
	} else if (renameat(p->dirfd, o->name, p->dirfd, gone) < 0) {
		log_warn("%s/%s cannot be removed: %s", p->k->disk_dir, o->name,
			 strerror(errno));
	} else {
		log_info("%s/%s is removed", p->k->disk_dir, o->name);
		io_remove_tree(p->dirfd, gone);
	}
	if (fd >= 0)
		close(fd);
	free(gone);
}

void vdir_prune(const struct vdir_keep *k)
{
	struct pruning p = { .k = k };
	int was = log_quiet_thread(1), rc;

	p.dirfd = io_open_dir(AT_FDCWD, k->disk_dir);
	rc = p.dirfd < 0 ? p.dirfd : list(&p);
	log_quiet_thread(was);
	if (rc < 0)
		log_warn("old versions stay: %s", log_cause());
	else
		choose(&p);
	for (size_t i = 0; rc == 0 && i < p.n; i++)
		if (!p.v[i].stays)
			drop(&p, &p.v[i]);
	if (p.dirfd >= 0)
		close(p.dirfd);
	free(p.v);
}
