/*
 * A file system in memory that knows what is durable.  A file's content is
 * durable as of its last fsync, a directory's entries as of its own.  What
 * was changed since may be there after a power cut or not: of content each
 * SECTOR for itself (torn writes), of names any prefix in the order of the
 * changes (a journal), or, for half of the seeds, of each directory a prefix
 * of its own (no order between directories).  A rename is whole.
 */
#include "sim.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECTOR 64 /* bytes; files are small here */
#define LINKS_MAX 8
#define MIN_CAP 256

struct change { /* of a directory, not yet durable */
	struct node *dir, *node;
	char *name;
	uint64_t group; /* a rename is one change of two directories */
	bool add, safe;
};

static struct node *root, *all;
static uint32_t last_ino;
static struct change *changes;
static size_t nchanges, changes_cap;
static uint64_t last_group;

static char *copy_text(const char *s)
{
	return strcpy(sim_alloc(strlen(s) + 1), s);
}

/* ---- entries ---- */

static size_t place(const struct entries *e, const char *name)
{
	for (size_t i = 0; i < e->n; i++)
		if (e->v[i].name[0] == name[0] &&
		    strcmp(e->v[i].name, name) == 0)
			return i;
	return e->n;
}

static void entries_put(struct entries *e, const char *name, struct node *n)
{
	size_t i = place(e, name);

	if (i < e->n) {
		e->v[i].node = n;
		return;
	}
	if (e->n == e->cap) {
		e->cap = e->cap ? 2 * e->cap : 8;
		e->v = sim_grow(e->v, e->cap * sizeof *e->v);
	}
	e->v[e->n++] = (struct entry){ copy_text(name), n };
}

static void entries_take(struct entries *e, const char *name)
{
	size_t i = place(e, name);

	if (i == e->n)
		return;
	sim_free(e->v[i].name);
	memmove(e->v + i, e->v + i + 1, (e->n - i - 1) * sizeof *e->v);
	e->n--;
}

static void entries_release(struct entries *e)
{
	for (size_t i = 0; i < e->n; i++)
		sim_free(e->v[i].name);
	sim_free(e->v);
	*e = (struct entries){ 0 };
}

static void note(struct node *dir, const char *name, struct node *n, bool add)
{
	if (nchanges == changes_cap) {
		changes_cap = changes_cap ? 2 * changes_cap : 64;
		changes = sim_grow(changes, changes_cap * sizeof *changes);
	}
	changes[nchanges++] = (struct change){ .dir = dir,
					       .node = n,
					       .name = copy_text(name),
					       .group = last_group,
					       .add = add };
}

/* ---- nodes ---- */

struct node *disk_make(enum node_kind kind, mode_t mode)
{
	struct node *n = sim_alloc(sizeof *n);

	n->kind = kind;
	n->mode = mode;
	n->ino = ++last_ino;
	n->mtime = sim.now;
	n->all = all;
	all = n;
	return n;
}

struct node *disk_root(void)
{
	return root;
}

struct node *disk_lookup(const struct node *dir, const char *name)
{
	size_t i = place(&dir->in, name);

	return i < dir->in.n ? dir->in.v[i].node : NULL;
}

static void poke_watchers(struct node *dir)
{
	for (size_t i = 0; i < COUNT(dir->watch); i++) {
		struct file *f = dir->watch[i];

		if (!f)
			continue;
		f->ready = true;
		if (f->owner)
			proc_poke(f->owner);
	}
}

static void put_name(struct node *dir, const char *name, struct node *n)
{
	struct node *old = disk_lookup(dir, name);

	if (old)
		old->nlink--;
	entries_put(&dir->in, name, n);
	n->nlink++;
	n->parent = dir;
	sim_free(n->name);
	n->name = copy_text(name);
	dir->mtime = sim.now;
	note(dir, name, n, true);
	poke_watchers(dir);
}

static void take_name(struct node *dir, const char *name)
{
	struct node *n = disk_lookup(dir, name);

	note(dir, name, n, false);
	entries_take(&dir->in, name);
	n->nlink--;
	dir->mtime = sim.now;
}

void disk_link(struct node *dir, const char *name, struct node *n)
{
	last_group++;
	put_name(dir, name, n);
	watch_named(dir, name);
}

void disk_unlink(struct node *dir, const char *name)
{
	last_group++;
	take_name(dir, name);
	watch_named(dir, name);
}

void disk_rename(struct node *from, const char *a, struct node *to,
		 const char *b)
{
	struct node *n = disk_lookup(from, a);

	if (disk_lookup(to, b) == n)
		return;
	last_group++;
	put_name(to, b, n);
	take_name(from, a);
	watch_named(to, b);
	watch_named(from, a);
}

void disk_resize(struct node *n, size_t size)
{
	if (size > n->cap) {
		size_t cap = size > MIN_CAP ? 2 * size : MIN_CAP;

		if (n->mapped)
			abort(); /* who maps a file knows its size */
		n->data = sim_grow(n->data, cap);
		n->cap = cap;
	}
	if (size > n->size)
		memset(n->data + n->size, 0, size - n->size);
	n->size = size;
	n->mtime = sim.now;
}

void disk_write(struct node *n, size_t off, const void *p, size_t size)
{
	if (off + size > n->size)
		disk_resize(n, off + size);
	if (size)
		memcpy(n->data + off, p, size);
	n->mtime = sim.now;
}

/* ---- paths ---- */

struct walk {
	struct node *at;
	int links;
};

static struct node *walk(struct walk *w, const char *path, bool follow);

static struct node *follow_link(struct walk *w, struct node *dir,
				struct node *link)
{
	char target[PATH_MAX];

	if (++w->links > LINKS_MAX) {
		errno = ELOOP;
		return NULL;
	}
	snprintf(target, sizeof target, "%.*s", (int)link->size, link->data);
	w->at = dir;
	return walk(w, target, true);
}

static struct node *child(struct walk *w, const char *name, bool follow)
{
	struct node *dir = w->at, *n;

	if (dir->kind != N_DIR) {
		errno = ENOTDIR;
		return NULL;
	}
	if (strcmp(name, ".") == 0)
		return dir;
	if (strcmp(name, "..") == 0)
		return dir->parent ? dir->parent : root;
	n = disk_lookup(dir, name);
	if (!n) {
		errno = ENOENT;
		return NULL;
	}
	if (n->kind == N_LINK && follow)
		return follow_link(w, dir, n);
	return n;
}

static const char *next_part(const char *path, char *name)
{
	size_t n;

	while (*path == '/')
		path++;
	n = strcspn(path, "/");
	if (n > NAME_MAX)
		n = NAME_MAX;
	memcpy(name, path, n);
	name[n] = '\0';
	path += n;
	while (*path == '/')
		path++;
	return path;
}

static struct node *walk(struct walk *w, const char *path, bool follow)
{
	char name[NAME_MAX + 1];

	if (*path == '/')
		w->at = root;
	while (*path) {
		path = next_part(path, name);
		if (!*name)
			break;
		w->at = child(w, name, *path || follow);
		if (!w->at)
			return NULL;
	}
	return w->at;
}

struct node *disk_find(struct node *dir, const char *path, bool follow)
{
	struct walk w = { .at = dir };

	if (!*path) {
		errno = ENOENT;
		return NULL;
	}
	return walk(&w, path, follow);
}

struct node *disk_parent(struct node *dir, const char *path, char *name)
{
	struct walk w = { .at = *path == '/' ? root : dir };
	const char *rest = path;

	for (;;) {
		rest = next_part(rest, name);
		if (!*rest)
			break;
		w.at = child(&w, name, true);
		if (!w.at)
			return NULL;
	}
	if (w.at->kind == N_DIR)
		return w.at;
	errno = ENOTDIR;
	return NULL;
}

void disk_path(const struct node *n, char *out, size_t size)
{
	char rest[PATH_MAX];

	out[0] = '\0';
	for (; n && n != root; n = n->parent) {
		snprintf(rest, sizeof rest, "%s", out);
		snprintf(out, size, "/%s%s", n->name ? n->name : "?", rest);
	}
	if (!*out)
		snprintf(out, size, "/");
}

/* ---- what is durable ---- */

static void forget_changes(bool (*done)(const struct change *))
{
	size_t kept = 0;

	for (size_t i = 0; i < nchanges; i++) {
		if (done(&changes[i]))
			sim_free(changes[i].name);
		else
			changes[kept++] = changes[i];
	}
	nchanges = kept;
}

static bool is_safe(const struct change *c)
{
	return c->safe;
}

static void make_safe(size_t i);

static void make_all_safe(size_t from, size_t end, const struct change *like,
			  bool (*is_bound)(const struct change *,
					   const struct change *))
{
	for (size_t i = from; i < end; i++)
		if (!changes[i].safe && is_bound(&changes[i], like))
			make_safe(i);
}

static bool is_same_name(const struct change *a, const struct change *b)
{
	return a->dir == b->dir && strcmp(a->name, b->name) == 0;
}

static bool is_same_group(const struct change *a, const struct change *b)
{
	return a->group == b->group;
}

/* After those of the same name that came before; a rename is whole, in both
 * directories. */
static void make_safe(size_t i)
{
	struct change *c = &changes[i];

	make_all_safe(0, i, c, is_same_name);
	c->safe = true;
	if (c->add)
		entries_put(&c->dir->in_safe, c->name, c->node);
	else
		entries_take(&c->dir->in_safe, c->name);
	make_all_safe(0, nchanges, c, is_same_group);
}

static bool is_same_dir(const struct change *a, const struct change *b)
{
	return a->dir == b->dir;
}

static void sync_dir(struct node *dir)
{
	const struct change like = { .dir = dir };

	make_all_safe(0, nchanges, &like, is_same_dir);
	forget_changes(is_safe);
}

static void sync_file(struct node *n)
{
	n->safe = sim_grow(n->safe, n->size + 1);
	if (n->size)
		memcpy(n->safe, n->data, n->size);
	n->nsafe = n->size;
}

void disk_sync(struct node *n)
{
	if (n->kind == N_DIR)
		sync_dir(n);
	else
		sync_file(n);
}

/* Each sector is old or new, and so is the length. */
static void tear(struct node *n)
{
	size_t size = rng_one_in(&sim.rng, 2) ? n->nsafe : n->size;
	char *mix = sim_alloc(size + 1);

	for (size_t at = 0; at < size; at += SECTOR) {
		bool old = rng_one_in(&sim.rng, 2);
		const char *from = old ? n->safe : n->data;
		size_t have = old ? n->nsafe : n->size;
		size_t end = at + SECTOR < size ? at + SECTOR : size;

		if (end > have)
			end = have;
		if (end > at)
			memcpy(mix + at, from + at, end - at);
	}
	n->size = 0;
	n->mapped = 0;
	disk_write(n, 0, mix, size);
	sync_file(n);
	sim_free(mix);
}

static void settle_content(struct node *n)
{
	n->opens = n->writers = n->mapped = n->shared = 0;
	n->lock = NULL;
	n->listener = NULL;
	memset(n->watch, 0, sizeof n->watch);
	if (n->kind != N_FILE)
		return;
	if (n->size == n->nsafe &&
	    (n->size == 0 || memcmp(n->data, n->safe, n->size) == 0))
		return;
	tear(n);
}

static void settle_names(struct node *n)
{
	entries_release(&n->in);
	for (size_t i = 0; i < n->in_safe.n; i++) {
		struct entry *e = &n->in_safe.v[i];

		entries_put(&n->in, e->name, e->node);
		e->node->nlink++;
		e->node->parent = n;
		sim_free(e->node->name);
		e->node->name = copy_text(e->name);
	}
}

/* How many of the groups, counted from the oldest, reached the disk. */
static void settle_journal(void)
{
	uint64_t first = nchanges ? changes[0].group : 0, cut;

	cut = first + rng_below(&sim.rng, last_group + 2 - first);
	for (size_t i = 0; i < nchanges; i++)
		if (changes[i].group < cut && !changes[i].safe)
			make_safe(i);
}

static void settle_apart(void)
{
	uint64_t salt = rng_next(&sim.rng);

	for (size_t i = 0; i < nchanges; i++) {
		struct rng r = { salt ^ changes[i].dir->ino };
		uint64_t span = last_group + 2 - changes[0].group;

		if (changes[i].group < changes[0].group + rng_below(&r, span) &&
		    !changes[i].safe)
			make_safe(i);
	}
}

void disk_power_cut(void)
{
	if (nchanges && rng_one_in(&sim.rng, 2))
		settle_journal();
	else if (nchanges)
		settle_apart();
	for (size_t i = 0; i < nchanges; i++)
		sim_free(changes[i].name);
	nchanges = 0;
	for (struct node *n = all; n; n = n->all)
		n->nlink = 0;
	for (struct node *n = all; n; n = n->all)
		if (n->kind == N_DIR)
			settle_names(n);
	for (struct node *n = all; n; n = n->all)
		settle_content(n);
}

/* ---- for worlds ---- */

struct node *disk_mkdirs(const char *path)
{
	char name[NAME_MAX + 1];
	struct node *dir = root;

	while (*path) {
		struct node *n;

		path = next_part(path, name);
		n = disk_lookup(dir, name);
		if (!n) {
			n = disk_make(N_DIR, 0700);
			put_name(dir, name, n);
			sync_dir(dir);
		}
		dir = n;
	}
	return dir;
}

void disk_put(const char *path, const void *p, size_t size)
{
	char name[NAME_MAX + 1];
	struct node *dir = disk_parent(root, path, name);
	struct node *n = disk_make(N_FILE, 0644);

	disk_write(n, 0, p, size);
	sync_file(n);
	last_group++;
	put_name(dir, name, n);
	sync_dir(dir);
}

void disk_begin(void)
{
	last_ino = 1;
	last_group = 0;
	root = disk_make(N_DIR, 0755);
	root->nlink = 1;
}

/* Its memory goes with the seed's. */
void disk_end(void)
{
	root = all = NULL;
	changes = NULL;
	nchanges = changes_cap = 0;
}
