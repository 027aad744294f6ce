#include "pipes/move_slot_part.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/safetensors.h"
#include "common/watchdog.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull;

static_assert(DIGEST_LEAF % MOVE_SLOT_CHUNK == 0, "chunks end where leaves do");

/* ---- what there is to load ---- */

static struct object *add_object(struct load *l, enum content_kind kind,
				 uint32_t file, struct slice name)
{
	struct object *o;

	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 256;
		l->object =
			xreallocarray(l->object, l->cap, sizeof(*l->object));
	}
	o = &l->object[l->n++];
	*o = (struct object){ .kind = kind,
			      .file = file,
			      .name = { NULL, name.n },
			      .name_at = l->names.n };
	buf_add(&l->names, name.p, name.n);
	return o;
}

static void describe(struct load *l, const struct object *o,
		     const struct st *st, const struct st_tensor *t)
{
	const uint64_t *shape = st_shape(st, t);
	struct slice name = st_name(st, t);

	buf_addf(&l->text, "%llu %llu %s ", (ull)o->at, (ull)o->bytes,
		 st_dtype_name((enum st_dtype)t->dtype));
	for (uint32_t i = 0; i < t->ndims; i++)
		buf_addf(&l->text, "%s%llu", i ? "," : "", (ull)shape[i]);
	buf_addf(&l->text, "%s %.*s", t->ndims ? "" : "-", SLICE_ARG(name));
	buf_add(&l->text, "", 1);
	l->ntensors++;
}

static int add_tensor(struct load *l, uint32_t file, const struct st *st,
		      const struct st_tensor *t)
{
	struct slice name = st_name(st, t);
	struct object *o;

	if (memchr(name.p, '\0', name.n))
		return log_error(
			E_DATA,
			"%s: the name of a tensor has a NUL: it cannot "
			"be offered on a device",
			l->record.file[file].path);
	o = add_object(l, CONTENT_TENSOR, file, name);
	o->from = st->data_start + t->begin;
	o->bytes = t->end - t->begin;
	o->at = l->bytes;
	describe(l, o, st, t);
	l->bytes +=
		(o->bytes + DEVPAGE_ALIGN - 1) / DEVPAGE_ALIGN * DEVPAGE_ALIGN;
	return 0;
}

static int add_shard(struct load *l, uint32_t file)
{
	const struct store_file *f = &l->record.file[file];
	struct st st = { 0 };
	int rc = st_read_fd(&st, f->path, l->fd[file], f->bytes);

	for (uint32_t i = 0; i < st.n && rc == 0; i++)
		rc = add_tensor(l, file, &st, &st.tensor[i]);
	st_release(&st);
	return rc;
}

static int add_file(struct load *l, int dirfd, uint32_t file)
{
	const struct store_file *f = &l->record.file[file];

	l->fd[file] = openat(dirfd, f->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (l->fd[file] < 0)
		return log_errno(E_IO, "open %s", f->path);
	if (f->kind == FILE_SHARD)
		return add_shard(l, file);
	add_object(l, CONTENT_CARRIED, file, slice_of(f->path))->bytes =
		f->bytes;
	return 0;
}

int load_open(struct load *l, const struct store *s, int dirfd,
	      uint64_t version)
{
	int rc = store_slot_load(s, version, &l->record);

	if (rc == 0 && l->record.post_load[0])
		return log_error(E_CONFIG,
				 "version %llu was made by post-load, which is "
				 "not built for devices",
				 (ull)version);
	l->fd = xcalloc(l->record.nfiles, sizeof(*l->fd));
	for (uint32_t i = 0; i < l->record.nfiles; i++)
		l->fd[i] = -1;
	for (uint32_t i = 0; i < l->record.nfiles && rc == 0; i++)
		rc = add_file(l, dirfd, i);
	for (uint32_t i = 0; i < l->n; i++)
		l->object[i].name.p = l->names.p + l->object[i].name_at;
	return rc;
}

void load_release(struct load *l)
{
	for (uint32_t i = 0; i < l->record.nfiles && l->fd; i++)
		if (l->fd[i] >= 0)
			close(l->fd[i]);
	free(l->fd);
	free(l->object);
	store_slot_release(&l->record);
	buf_release(&l->names);
	buf_release(&l->text);
	buf_release(&l->leaves);
	content_release(&l->content);
	*l = (struct load){ 0 };
}

/* ---- chunks ---- */

static bool is_on_device(const struct object *o)
{
	return o->kind == CONTENT_TENSOR;
}

/* The chunk at *at; *at is the next one then.  An empty object has one. */
static size_t take_chunk(const struct load *l, struct cursor *at)
{
	const struct object *o = &l->object[at->object];
	uint64_t left = o->bytes - at->byte;
	size_t n = left < MOVE_SLOT_CHUNK ? (size_t)left : MOVE_SLOT_CHUNK;

	at->byte += n;
	if (at->byte == o->bytes)
		*at = (struct cursor){ at->object + 1, 0 };
	return n;
}

/* Ordinary memory is copied before this returns. */
static int copy(const struct chunk *c, void *to, const void *from)
{
	int rc;

	watchdog_set("the beginning of a copy", MOVE_SLOT_CALL_MS);
	rc = gpu_copy(c->stream, to, from, c->n);
	watchdog_clear();
	return rc;
}

static int wait_for(const struct chunk *c)
{
	int rc;

	watchdog_set("the end of a copy", MOVE_SLOT_CALL_MS);
	rc = gpu_stream_wait(c->stream);
	watchdog_clear();
	return rc;
}

static int read_host(const struct load *l, const struct object *o,
		     uint64_t byte, struct chunk *c)
{
	int got = io_pread_full(l->fd[o->file], c->p, c->n,
				(off_t)(o->from + byte));

	if (got < 0 || (size_t)got == c->n)
		return got < 0 ? got : 0;
	return log_error(E_DATA, "%s is shorter than it was sealed",
			 l->record.file[o->file].path);
}

static char *on_device(const struct load *l, const struct object *o,
		       uint64_t byte)
{
	return (char *)l->slot->memory + o->at + byte;
}

int load_copy(struct load *l, struct chunk chunk[2])
{
	struct chunk *c = &chunk[l->turn++ % 2];
	const struct object *o;
	int rc = wait_for(c);

	if (rc == 0 && l->next.object == l->n)
		rc = wait_for(&chunk[l->turn % 2]);
	if (rc < 0 || l->next.object == l->n) {
		l->next = (struct cursor){ 0 };
		return rc;
	}
	o = &l->object[l->next.object];
	c->at = l->next;
	c->n = take_chunk(l, &l->next);
	if (!is_on_device(o) || c->n == 0)
		return 1;
	rc = read_host(l, o, c->at.byte, c);
	if (rc == 0)
		rc = copy(c, on_device(l, o, c->at.byte), c->p);
	return rc < 0 ? rc : 1;
}

/* ---- back again ---- */

/* Asks for the next one: on its way then, unless it is there already. */
static int fetch(struct load *l, struct chunk *c)
{
	const struct object *o = &l->object[l->next.object];

	c->at = l->next;
	c->n = take_chunk(l, &l->next);
	l->on_the_way++;
	if (c->n == 0)
		return 0;
	if (!is_on_device(o))
		return read_host(l, o, c->at.byte, c);
	return copy(c, c->p, on_device(l, o, c->at.byte));
}

static int end_object(struct load *l, const struct object *o)
{
	uint32_t n = (uint32_t)(l->leaves.n / sizeof(struct digest));
	int rc = content_add(&l->content, o->kind, o->name, o->bytes, 0,
			     (struct digest *)l->leaves.p, n);

	buf_clear(&l->leaves);
	return rc;
}

static int hash(struct load *l, const struct chunk *c)
{
	const struct object *o = &l->object[c->at.object];
	uint64_t end = c->at.byte + c->n;
	struct digest d;
	int rc = wait_for(c);

	if (rc < 0)
		return rc;
	l->on_the_way--;
	if (c->n > 0 && c->at.byte % DIGEST_LEAF == 0)
		digest_begin(&l->leaf);
	if (c->n > 0)
		digest_add(&l->leaf, c->p, c->n);
	if (c->n > 0 && (end % DIGEST_LEAF == 0 || end == o->bytes)) {
		digest_end(&l->leaf, &d);
		buf_add(&l->leaves, &d, sizeof(d));
	}
	return end == o->bytes ? end_object(l, o) : 0;
}

/* One is on its way while another is hashed. */
int load_hash(struct load *l, struct chunk chunk[2], struct digest *out)
{
	int rc = 0;

	while (l->on_the_way < 2 && l->next.object < l->n && rc == 0)
		rc = fetch(l, &chunk[l->turn++ % 2]);
	if (rc == 0 && l->on_the_way > 0)
		rc = hash(l, &chunk[(l->turn - l->on_the_way) % 2]);
	if (rc < 0)
		return rc;
	if (l->on_the_way > 0 || l->next.object < l->n)
		return 1;
	return content_finish(&l->content, out);
}
