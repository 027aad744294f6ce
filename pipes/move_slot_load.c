#include "pipes/move_slot_part.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/pieces.h"
#include "common/watchdog.h"

#include <fcntl.h>
#include <unistd.h>

/* ---- chunks ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The chunk at *at, which is of one leaf; *at is the next one then.  An empty
 * extent has one. */
static size_t take_chunk(const struct load *l, struct cursor *at, size_t most)
{
	const struct extent *e = &l->extent[at->extent];
	uint64_t of_leaf = DIGEST_LEAF - (e->start + at->byte) % DIGEST_LEAF;
	uint64_t n = least(least(e->bytes - at->byte, of_leaf), most);

	at->byte += n;
	if (at->byte == e->bytes)
		*at = (struct cursor){ at->extent + 1, 0 };
	return (size_t)n;
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

/* Files are read one after the other. */
static int open_file(struct load *l, uint32_t file)
{
	if (l->fd >= 0 && l->fd_file == file)
		return 0;
	if (l->fd >= 0)
		close(l->fd);
	l->fd_file = file;
	l->fd = openat(l->dirfd, l->file[file].path,
		       O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return l->fd < 0 ? log_errno(E_IO, "open %s", l->file[file].path) : 0;
}

static int read_host(struct load *l, const struct extent *e, struct chunk *c)
{
	int rc = open_file(l, e->file);

	if (rc == 0)
		rc = io_pread_full(l->fd, c->p, c->n,
				   (off_t)(e->from + c->at.byte));
	if (rc < 0 || (size_t)rc == c->n)
		return rc < 0 ? rc : 0;
	return log_error(E_DATA, "%s is shorter than it was sealed",
			 l->file[e->file].path);
}

static char *on_device(const struct load *l, const struct extent *e,
		       uint64_t byte)
{
	return (char *)l->slot->memory + e->at + byte;
}

int load_copy(struct load *l, struct chunk chunk[2])
{
	struct chunk *c = &chunk[l->turn++ % 2];
	const struct extent *e;
	int rc = wait_for(c);

	if (rc == 0 && l->next.extent == l->nextents)
		rc = wait_for(&chunk[l->turn % 2]);
	if (rc < 0 || l->next.extent == l->nextents) {
		l->next = (struct cursor){ 0 };
		return rc;
	}
	e = &l->extent[l->next.extent];
	c->at = l->next;
	c->n = take_chunk(l, &l->next, MOVE_SLOT_CHUNK);
	if (!e->is_on_device || c->n == 0)
		return 1;
	rc = read_host(l, e, c);
	if (rc == 0)
		rc = copy(c, on_device(l, e, c->at.byte), c->p);
	return rc < 0 ? rc : 1;
}

/* ---- back again ---- */

/* The next leaf that the device has hashed, if it is the next one at all. */
static const struct digest *take_known(struct load *l)
{
	const struct digest *all = (struct digest *)l->known.p;

	if (l->nused == l->known.n / sizeof(*all) ||
	    hasher_leaf(l, &l->next) == 0)
		return NULL;
	return &all[l->nused++];
}

/* Asks for the next one: on its way then, unless it is there already. */
static int fetch(struct load *l, struct chunk *c)
{
	const struct extent *e = &l->extent[l->next.extent];

	c->at = l->next;
	c->known = take_known(l);
	c->n = take_chunk(l, &l->next,
			  c->known ? DIGEST_LEAF : MOVE_SLOT_CHUNK);
	l->on_the_way++;
	if (c->n == 0 || c->known)
		return 0;
	if (!e->is_on_device)
		return read_host(l, e, c);
	return copy(c, c->p, on_device(l, e, c->at.byte));
}

static int end_object(struct load *l, const struct extent *last)
{
	const struct object *o = &l->object[last->object];
	const struct digest *leaf = (struct digest *)l->leaves.p;
	uint32_t n = (uint32_t)(l->leaves.n / sizeof(*leaf));
	struct digest d;
	int rc = 0;

	if (l->is_made) {
		leaves_digest(leaf, n, &d);
		seal_tree_fold(&l->whole, l->file[last->file].path, o->bytes,
			       &d);
	} else {
		rc = content_add(&l->content, o->kind, o->name, o->bytes, 0,
				 leaf, n);
	}
	buf_clear(&l->leaves);
	return rc;
}

static void hash_bytes(struct load *l, const struct chunk *c, uint64_t start,
		       uint64_t bytes)
{
	uint64_t end = start + c->n;
	struct digest d;

	if (c->known) {
		buf_add(&l->leaves, c->known, sizeof(d));
		return;
	}
	if (start % DIGEST_LEAF == 0)
		digest_begin(&l->leaf);
	digest_add(&l->leaf, c->p, c->n);
	if (end % DIGEST_LEAF != 0 && end != bytes)
		return;
	digest_end(&l->leaf, &d);
	buf_add(&l->leaves, &d, sizeof(d));
}

/* The last chunk of an object, which may be of an empty extent. */
static bool ends_object(const struct load *l, const struct chunk *c)
{
	const struct extent *e = &l->extent[c->at.extent];

	return c->at.byte + c->n == e->bytes &&
	       (c->at.extent + 1 == l->nextents || e[1].object != e->object);
}

static int hash(struct load *l, const struct chunk *c)
{
	const struct extent *e = &l->extent[c->at.extent];
	int rc = wait_for(c);

	if (rc < 0)
		return rc;
	l->on_the_way--;
	if (c->n > 0)
		hash_bytes(l, c, e->start + c->at.byte,
			   l->object[e->object].bytes);
	return ends_object(l, c) ? end_object(l, e) : 0;
}

static int end_hash(struct load *l, struct digest *out)
{
	if (!l->is_made)
		return content_finish(&l->content, out);
	digest_end(&l->whole, out);
	return 0;
}

/* One is on its way while another is hashed. */
int load_hash(struct load *l, struct chunk chunk[2], struct digest *out)
{
	int rc = 0;

	while (l->on_the_way < 2 && l->next.extent < l->nextents && rc == 0)
		rc = fetch(l, &chunk[l->turn++ % 2]);
	if (rc == 0 && l->on_the_way > 0)
		rc = hash(l, &chunk[(l->turn - l->on_the_way) % 2]);
	if (rc < 0)
		return rc;
	if (l->on_the_way > 0 || l->next.extent < l->nextents)
		return 1;
	return end_hash(l, out);
}
