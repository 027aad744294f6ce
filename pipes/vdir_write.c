#include "pipes/vdir_write.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/beside.h"
#include "pipes/carry_many.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long ull;

struct writing {
	const struct vdir_write *w;
	char *path;
	struct beside to;
	struct stat old; /* of what is to be replaced */
	bool replaces;
};

/* ---- what it is made from ---- */

struct vmark_from *vdir_look(const struct vdir_write *w)
{
	uint32_t n = w->plan->nfiles;
	struct vmark_from *v = xcalloc(n, sizeof *v);

	for (uint32_t i = 0; i < n; i++) {
		v[i].path = w->plan->file[i].path;
		if (still_look(w->fd[i], &v[i].still))
			continue;
		free(v);
		return NULL;
	}
	return v;
}

uint32_t vdir_untouched(const struct vdir_write *w)
{
	uint32_t n = w->from ? w->plan->nfiles : 0;

	for (uint32_t i = 0; i < n; i++) {
		struct still now;

		if (!still_look(w->fd[i], &now) || !still_is_past(&now) ||
		    !still_same(&now, &w->from[i].still))
			return 0;
	}
	return n;
}

/* ---- what is there ---- */

/* Both are the caller's to release. */
static int identify(const struct writing *k, const char *path,
		    struct identity *id, struct source *s, struct sums *sums)
{
	int rc = source_open(s, path);

	if (rc < 0)
		return rc;
	sums_init(sums, s);
	rc = sums_read(sums, 0, k->w->threads);
	return rc < 0 ? rc : sums_identity(sums, id);
}

static int content_of(const struct writing *k, const char *path,
		      struct digest *out)
{
	struct source s = { 0 };
	struct sums sums = { 0 };
	struct identity id;
	int rc = identify(k, path, &id, &s, &sums);

	if (rc == 0)
		*out = id.content;
	sums_release(&sums);
	source_release(&s);
	return rc;
}

static int check_ours(const struct vdir_write *w, int fd, const char *path,
		      struct vmark *m)
{
	int rc = vmark_read(fd, path, m);

	if (rc == 0)
		return log_error(E_DATA,
				 "%s is there already and has no mark %s: "
				 "remove it, or give another --disk-dir",
				 path, VMARK_NAME);
	if (rc < 0)
		return rc;
	if (strcmp(m->registry, w->registry) == 0 && m->version == w->version)
		return 0;
	return log_error(E_DATA,
			 "%s is there already: version %llu of registry %s, "
			 "not version %llu of registry %s",
			 path, (ull)m->version, m->registry, (ull)w->version,
			 w->registry);
}

int vdir_is_ours(const struct vdir_write *w, const char *path, struct vmark *m,
		 struct stat *old)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : log_errno(E_IO, "open %s", path);
	rc = check_ours(w, fd, path, m);
	if (rc == 0 && fstat(fd, old) < 0)
		rc = log_errno(E_IO, "stat %s", path);
	close(fd);
	return rc < 0 ? rc : 1;
}

/* Of one with another content only the place is of interest. */
static int is_same(const struct writing *k, const struct vmark *m)
{
	struct digest want, have;
	int rc;

	if (strcmp(m->kind, VMARK_FULL) != 0 ||
	    !digest_eq(&m->id.structure, &k->w->plan->structure))
		return 0;
	rc = content_of(k, k->w->plan->rank[0].source, &want);
	if (rc < 0 || !digest_eq(&want, &m->id.content))
		return rc < 0 ? rc : 0;
	rc = content_of(k, k->path, &have);
	return rc < 0 ? 0 : digest_eq(&have, &want);
}

/* 1: it is there already, and *content is what it has. */
static int look(struct writing *k, struct digest *content)
{
	struct vmark m;
	int rc = vdir_is_ours(k->w, k->path, &m, &k->old);

	if (rc <= 0)
		return rc;
	k->replaces = true;
	*content = m.id.content;
	return is_same(k, &m);
}

/* ---- what is made ---- */

static int carry(struct writing *k)
{
	const struct plan *p = k->w->plan;
	struct carry_item *item = xcalloc(p->nfiles, sizeof *item);
	struct carry_many many = {
		.to = k->to.fd,
		.name = k->path,
		.item = item,
		.n = p->nfiles,
		.threads = k->w->threads,
		.link = k->w->link,
		.cancel = k->w->cancel,
	};
	int rc;

	for (uint32_t i = 0; i < p->nfiles; i++)
		item[i] = (struct carry_item){ p->file[i].path, k->w->fd[i],
					       p->file[i].bytes };
	rc = carry_many(&many);
	free(item);
	return rc;
}

/* What the mark says is what was read, not what was meant. */
static int mark(struct writing *k, struct digest *content)
{
	char *stage = xasprintf("%s/%s", k->w->disk_dir, k->to.stage);
	struct vmark m = { .kind = VMARK_FULL, .version = k->w->version };
	struct source s = { 0 };
	struct sums sums = { 0 };
	int rc = identify(k, stage, &m.id, &s, &sums);

	if (rc == 0)
		rc = vmark_registry(slice_of(k->w->registry), m.registry);
	if (rc == 0 && !digest_eq(&m.id.structure, &k->w->plan->structure))
		rc = log_error(E_DATA,
			       "%s: written, it has another structure than was "
			       "planned",
			       k->path);
	if (rc == 0)
		rc = vmark_write(k->to.fd, &m, &sums, k->w->from,
				 vdir_untouched(k->w));
	beside_tell("mark written");
	*content = m.id.content;
	sums_release(&sums);
	source_release(&s);
	free(stage);
	return rc;
}

static int put(struct writing *k)
{
	int rc;

	if (k->replaces)
		return beside_exchange(&k->to, &k->old);
	rc = beside_put(&k->to);
	return rc == -E_AGAIN ? log_error(E_AGAIN,
					  "%s: somebody else has put a "
					  "directory there meanwhile",
					  k->path)
			      : rc;
}

static int build(struct writing *k, struct digest *content)
{
	int rc = beside_open(&k->to, k->path);

	if (rc == 0)
		rc = carry(k);
	if (rc == 0)
		rc = mark(k, content);
	return rc < 0 ? rc : put(k);
}

int vdir_write_full(const struct vdir_write *w, struct vdir_made *out)
{
	struct writing k = { .w = w, .to = BESIDE_INIT };
	struct digest content;
	int rc;

	k.path = vdir_path(w->disk_dir, w->version);
	rc = look(&k, &content);
	if (rc > 0)
		beside_sweep(k.path);
	else if (rc == 0)
		rc = build(&k, &content);
	beside_close(&k.to);
	if (rc < 0) {
		free(k.path);
		return rc;
	}
	*out = (struct vdir_made){ k.path, content, w->plan->bytes };
	return 0;
}
