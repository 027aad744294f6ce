#include "pipes/vmark.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/markline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD                                                           \
	(MARK_BIT(weir_version) | MARK_BIT(kind) | MARK_BIT(version) | \
	 MARK_BIT(content) | MARK_BIT(tensors) | MARK_BIT(structure))
#define HEAD_MAY (MARK_BIT(registry) | MARK_BIT(parent))
#define LINE (MARK_BIT(file) | MARK_BIT(bytes) | MARK_BIT(digest))
#define FROM                                                   \
	(MARK_BIT(from) | MARK_BIT(device) | MARK_BIT(inode) | \
	 MARK_BIT(bytes) | MARK_BIT(modified) | MARK_BIT(changed))

struct reading {
	const char *name;
	struct vmark *out;
	bool has_head;
	/* Files that are looked for, or NULL: */
	const struct sums *have;
	char *changed; /* the first that is not as is said */
	/* What it may be made from, or NULL: */
	const struct vmark_from *from;
	uint32_t nfrom, met;
	bool is_other;
};

int vmark_registry(struct slice id, char out[VMARK_TEXT_MAX])
{
	if (id.n >= VMARK_TEXT_MAX || strspn(id.p, "0123456789abcdef") < id.n)
		return log_error(E_DATA, "\"%.*s\" is no id of a registry",
				 (int)(id.n > 64 ? 64 : id.n), id.p);
	memcpy(out, id.p, id.n);
	out[id.n] = '\0';
	return 0;
}

static int take_head(struct reading *r, const struct markline *m)
{
	struct vmark *v = r->out;

	if ((m->has & ~HEAD_MAY) != HEAD || m->kind.n >= VMARK_TEXT_MAX)
		return log_error(E_DATA, "%s: its first line is no mark",
				 r->name);
	if (m->weir_version != MARK_FORMAT)
		return log_error(E_DATA, "%s: format %llu, this weir knows %u",
				 r->name, (unsigned long long)m->weir_version,
				 MARK_FORMAT);
	*v = (struct vmark){
		.version = m->version,
		.has_parent = m->has & MARK_BIT(parent),
		.parent = m->parent,
		.id = { m->tensors, m->content, m->structure },
	};
	memcpy(v->kind, m->kind.p, m->kind.n);
	r->has_head = true;
	return m->has & MARK_BIT(registry)
		       ? vmark_registry(m->registry, v->registry)
		       : 0;
}

static bool is_as_said(const struct sums *have, const struct markline *m)
{
	const struct source *s = have->source;
	struct digest is;

	for (uint32_t i = 0; i < s->nfiles; i++) {
		if (!slice_eq(m->file, slice_of(s->file[i].path)))
			continue;
		sums_file_digest(have, i, &is);
		return s->file[i].id.size == m->bytes &&
		       digest_eq(&is, &m->digest);
	}
	return false;
}

static bool is_same_from(const struct vmark_from *f, const struct markline *m)
{
	const struct still was = { .dev = m->device,
				   .ino = m->inode,
				   .size = m->bytes,
				   .mtime_ns = (int64_t)m->modified,
				   .ctime_ns = (int64_t)m->changed };

	return slice_eq(m->from, slice_of(f->path)) &&
	       still_same(&f->still, &was);
}

static void take_from(struct reading *r, const struct markline *m)
{
	if (r->met >= r->nfrom || !is_same_from(&r->from[r->met], m))
		r->is_other = true;
	r->met++;
}

static int take_line(void *ctx, const struct markline *m)
{
	struct reading *r = ctx;

	if (!r->has_head)
		return take_head(r, m);
	if (m->has == FROM) {
		take_from(r, m);
		return 0;
	}
	if (m->has != LINE)
		return log_error(E_DATA, "%s: a line that is no file's",
				 r->name);
	if (r->have && !r->changed && !is_as_said(r->have, m))
		r->changed = xstrndup(m->file.p, m->file.n);
	return 0;
}

/* 1, 0: there is none, or a negative E_*. */
static int read_all(int dirfd, const char *path, struct reading *r)
{
	char *name = xasprintf("%s/%s", path, VMARK_NAME);
	struct buf b = { 0 };
	int rc = io_read_file(dirfd, VMARK_NAME, MARK_BYTES_MAX, &b);
	bool is_there = rc != -E_NOINPUT;

	r->name = name;
	if (rc == 0)
		rc = markline_read(name, buf_slice(&b), take_line, r);
	if (rc == 0 && !r->has_head)
		rc = log_error(E_DATA, "%s: empty", name);
	buf_release(&b);
	free(name);
	return !is_there ? 0 : rc < 0 ? rc : 1;
}

int vmark_read(int dirfd, const char *path, struct vmark *out)
{
	struct vmark made = { 0 };
	struct reading r = { .out = &made };
	int rc = read_all(dirfd, path, &r);

	if (rc > 0)
		*out = made;
	return rc;
}

char *vmark_changed_file(int dirfd, const char *path, const struct sums *have)
{
	struct vmark made;
	struct reading r = { .out = &made, .have = have };
	int was = log_quiet_thread(1);

	read_all(dirfd, path, &r);
	log_quiet_thread(was);
	return r.changed;
}

bool vmark_is_from(int dirfd, const struct vmark_from *from, uint32_t n)
{
	struct vmark made;
	struct reading r = { .out = &made, .from = from, .nfrom = n };
	int was = log_quiet_thread(1), rc = read_all(dirfd, "", &r);

	log_quiet_thread(was);
	return rc > 0 && n > 0 && r.met == n && !r.is_other;
}

static void add_files(struct buf *b, const struct sums *files)
{
	const struct source *s = files->source;

	for (uint32_t i = 0; i < s->nfiles; i++) {
		struct markline m = {
			.has = LINE,
			.file = slice_of(s->file[i].path),
			.bytes = s->file[i].id.size,
		};

		sums_file_digest(files, i, &m.digest);
		markline_add(b, &m);
	}
}

static void add_from(struct buf *b, const struct vmark_from *f)
{
	struct markline m = {
		.has = FROM,
		.from = slice_of(f->path),
		.device = f->still.dev,
		.inode = f->still.ino,
		.bytes = f->still.size,
		.modified = (uint64_t)f->still.mtime_ns,
		.changed = (uint64_t)f->still.ctime_ns,
	};

	markline_add(b, &m);
}

int vmark_write(int dirfd, const struct vmark *v, const struct sums *files,
		const struct vmark_from *from, uint32_t n)
{
	struct markline m = {
		.has = HEAD,
		.weir_version = MARK_FORMAT,
		.kind = slice_of(v->kind),
		.registry = slice_of(v->registry),
		.version = v->version,
		.parent = v->parent,
		.content = v->id.content,
		.tensors = v->id.tensors,
		.structure = v->id.structure,
	};
	struct buf b = { 0 };
	int rc;

	if (v->registry[0])
		m.has |= MARK_BIT(registry);
	if (v->has_parent)
		m.has |= MARK_BIT(parent);
	markline_add(&b, &m);
	if (files)
		add_files(&b, files);
	for (uint32_t i = 0; i < n; i++)
		add_from(&b, &from[i]);
	markline_end(&b, UINT64_C(1) + (files ? files->source->nfiles : 0) + n);
	rc = io_replace(dirfd, VMARK_NAME, b.p, b.n);
	buf_release(&b);
	return rc;
}
