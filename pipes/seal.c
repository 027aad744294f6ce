#include "pipes/seal.h"
#include "pipes/quant.h"
#include "common/child.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long ull;

/* The fold's walk through the pieces, or, without any, a hash of the file. */
struct folding {
	const struct seal *s;
	struct content content;
	const uint32_t *order; /* of pieces, by place */
	uint32_t next;	       /* in order */
	uint32_t file;
	struct window window; /* of the file, when hashing */
	struct buf leaves;
};

static const struct store_file *file_of(const struct folding *k)
{
	return &k->s->slot->file[k->file];
}

/* NULL: none of this file is left; one that reached beyond its object was
 * taken before. */
static const struct fill_piece *next_piece(struct folding *k)
{
	const struct fill *f = k->s->fill;
	const struct fill_piece *p;

	if (k->next == f->npieces)
		return NULL;
	p = &f->piece[k->order[k->next++]];
	return p->p.file == k->file ? p : NULL;
}

/* An object's bytes are these pieces: from its start, one after the other,
 * none reaching beyond it. */
static int fold_pieces(struct folding *k, enum content_kind kind,
		       struct slice name, uint64_t begin, uint64_t end)
{
	const struct fill *f = k->s->fill;
	uint64_t at = begin;

	while (at < end) {
		const struct fill_piece *p = next_piece(k);
		int rc;

		if (!p || p->p.offset != at || p->p.bytes > end - at)
			return log_error(E_PROTO,
					 "%s: \"%.*s\" at %llu did not come in "
					 "pieces of its own",
					 file_of(k)->path, SLICE_ARG(name),
					 (ull)at);
		rc = content_add(&k->content, kind, name, end - begin,
				 at - begin, fill_leaf(f, p),
				 (uint32_t)piece_leaves(&p->p));
		if (rc < 0)
			return rc;
		at += p->p.bytes;
	}
	return 0;
}

static int hash_failed(const struct folding *k, uint64_t at, int rc)
{
	if (rc == -E_AGAIN)
		return rc;
	return log_error(-rc, "%s: cannot be read again at %llu",
			 file_of(k)->path, (ull)at);
}

static int fold_bytes(struct folding *k, enum content_kind kind,
		      struct slice name, uint64_t begin, uint64_t end)
{
	struct piece p = { k->file, begin, end - begin };
	size_t n = piece_leaves(&p);
	int rc;

	buf_clear(&k->leaves);
	buf_reserve(&k->leaves, n * sizeof(struct digest));
	rc = piece_hash(&k->window, &p, (struct digest *)k->leaves.p,
			k->s->cancel);
	if (rc < 0)
		return hash_failed(k, begin, rc);
	return content_add(&k->content, kind, name, end - begin, 0,
			   (struct digest *)k->leaves.p, (uint32_t)n);
}

static int fold_object(struct folding *k, enum content_kind kind,
		       struct slice name, uint64_t begin, uint64_t end)
{
	if (begin == end)
		return content_add(&k->content, kind, name, 0, 0, NULL, 0);
	return k->s->fill ? fold_pieces(k, kind, name, begin, end)
			  : fold_bytes(k, kind, name, begin, end);
}

static int check_header(const struct folding *k, const struct st *st)
{
	const struct store_file *f = file_of(k);
	char want[DIGEST_HEX], got[DIGEST_HEX];

	if (st->data_start != f->header)
		return log_error(E_DATA,
				 "%s: header of %llu bytes, %llu were begun",
				 f->path, (ull)st->data_start, (ull)f->header);
	if (!digest_eq(&st->header, &f->digest))
		return log_error(E_DATA, "%s: header digest %s, %s was begun",
				 f->path, digest_hex(&st->header, got),
				 digest_hex(&f->digest, want));
	return 0;
}

/* The header came in pieces like all else; its digest was just checked. */
static void skip_header(struct folding *k)
{
	const struct fill *f = k->s->fill;

	while (f && k->next < f->npieces &&
	       f->piece[k->order[k->next]].p.file == k->file &&
	       f->piece[k->order[k->next]].p.offset < file_of(k)->header)
		k->next++;
}

static int fold_shard(struct folding *k, int fd)
{
	const struct store_file *f = file_of(k);
	struct st st = { 0 };
	int rc = st_read_fd(&st, f->path, fd, f->bytes);

	if (rc >= 0)
		rc = check_header(k, &st);
	skip_header(k);
	for (uint32_t i = 0; i < st.n && rc >= 0; i++) {
		const struct st_tensor *t = &st.tensor[i];

		rc = fold_object(k, CONTENT_TENSOR, st_name(&st, t),
				 st.data_start + t->begin,
				 st.data_start + t->end);
	}
	st_release(&st);
	return rc;
}

static int fold_file(struct folding *k, int dirfd)
{
	const struct store_file *f = file_of(k);
	int fd = openat(dirfd, f->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), rc;

	if (fd < 0)
		return log_errno(E_IO, "open %s", f->path);
	window_init(&k->window, fd, f->bytes, WINDOW_AUTO);
	rc = f->kind == FILE_SHARD
		     ? fold_shard(k, fd)
		     : fold_object(k, CONTENT_CARRIED, slice_of(f->path), 0,
				   f->bytes);
	window_release(&k->window);
	close(fd);
	if (rc >= 0 && atomic_load(k->s->cancel))
		rc = -E_AGAIN;
	return rc;
}

static int fold(const struct seal *s, struct digest *out)
{
	uint32_t *order = s->fill ? fill_order(s->fill) : NULL;
	struct folding k = { .s = s, .order = order };
	int dirfd = store_open_dir(s->store, s->slot->version), rc = dirfd;

	for (k.file = 0; k.file < s->slot->nfiles && rc >= 0; k.file++)
		rc = fold_file(&k, dirfd);
	if (rc >= 0)
		rc = content_finish(&k.content, out);
	content_release(&k.content);
	buf_release(&k.leaves);
	free(order);
	if (dirfd >= 0)
		close(dirfd);
	return rc < 0 ? rc : 0;
}

/* Hashes the slot again and compares leaf by leaf: what was copied and what
 * is there can differ if memory or a disk is bad. */
static int reread_piece(const struct seal *s, struct window *w,
			const struct fill_piece *p, struct buf *leaves)
{
	size_t n = piece_leaves(&p->p) * sizeof(struct digest);
	const char *path = s->slot->file[p->p.file].path;
	int rc;

	buf_clear(leaves);
	buf_reserve(leaves, n);
	rc = piece_hash(w, &p->p, (struct digest *)leaves->p, s->cancel);
	if (rc == -E_AGAIN)
		return rc;
	if (rc < 0)
		return log_error(-rc, "%s: cannot be read again at %llu", path,
				 (ull)p->p.offset);
	if (memcmp(leaves->p, fill_leaf(s->fill, p), n) != 0)
		return log_error(E_DATA,
				 "%s: %llu bytes at %llu are not what was "
				 "copied there",
				 path, (ull)p->p.bytes, (ull)p->p.offset);
	return 0;
}

static int reread(const struct seal *s)
{
	uint32_t *order = fill_order(s->fill), file = ID_NONE;
	struct window w = { 0 };
	struct buf leaves = { 0 };
	int rc = 0;

	for (uint32_t i = 0; i < s->fill->npieces && rc >= 0; i++) {
		const struct fill_piece *p = &s->fill->piece[order[i]];

		if (p->p.file != file) {
			file = p->p.file;
			window_release(&w);
			window_init(&w, s->files->file[file].fd,
				    s->files->file[file].size, WINDOW_AUTO);
		}
		rc = reread_piece(s, &w, p, &leaves);
	}
	window_release(&w);
	buf_release(&leaves);
	free(order);
	return rc;
}

static int built_in(const struct seal *s)
{
	struct quant q = {
		.dirfd = store_open_dir(s->store, s->slot->version),
		.file = s->slot->file,
		.nfiles = s->slot->nfiles,
		.files = s->files->n ? s->files : NULL,
		.timeout_ms = s->post_load_ms,
		.cancel = s->cancel,
	};
	int rc;

	if (q.dirfd < 0)
		return q.dirfd;
	rc = quant_run(&q);
	close(q.dirfd);
	return rc;
}

static int command(const struct seal *s)
{
	char *dir = store_slot_path(s->store, s->slot->version);
	char *slot = xasprintf("WEIR_SLOT=%s", dir);
	char *version = xasprintf("WEIR_VERSION=%llu", (ull)s->slot->version);
	char *engine = xasprintf("WEIR_ENGINE=%s", s->engine);
	const char *const env[] = { slot, version, engine, NULL };
	int rc = child_run("post-load", s->post_load, env, s->post_load_ms,
			   s->cancel);

	free(engine);
	free(version);
	free(slot);
	free(dir);
	return rc;
}

static int post_load(const struct seal *s)
{
	int rc;

	if (!quant_is_name(s->post_load)) {
		store_files_release(s->files);
		return command(s);
	}
	rc = built_in(s);
	store_files_release(s->files);
	return rc;
}

static int tree_digest(const struct seal *s, struct digest *out)
{
	int fd = store_open_dir(s->store, s->slot->version), rc;

	if (fd < 0)
		return fd;
	rc = seal_tree_digest(fd, s->cancel, out);
	close(fd);
	return rc;
}

int seal_run(const struct seal *s)
{
	struct store_slot *slot = s->slot;
	int rc = s->fill ? fill_check(s->fill) : 0;

	if (rc >= 0)
		rc = fold(s, &slot->received);
	if (rc >= 0 && s->fill && s->reread)
		rc = reread(s);
	if (rc < 0)
		return rc;
	slot->proof = s->fill && !s->reread ? PROOF_COPIED : PROOF_REREAD;
	slot->installed = slot->received;
	if (s->post_load) {
		rc = post_load(s);
		if (rc >= 0)
			rc = tree_digest(s, &slot->installed);
	}
	return rc < 0 ? rc : store_sync(s->store, slot->version);
}

int seal_check(const struct seal *s)
{
	bool processed = s->slot->post_load[0] != '\0';
	struct digest d;
	const struct digest *want =
		processed ? &s->slot->installed : &s->slot->received;
	int rc = processed ? tree_digest(s, &d) : fold(s, &d);

	if (rc < 0)
		return rc;
	if (!digest_eq(&d, want))
		return log_error(E_DATA,
				 "version %llu is not what was sealed before "
				 "the restart",
				 (ull)s->slot->version);
	if (!processed)
		s->slot->proof = PROOF_REREAD;
	return 0;
}
