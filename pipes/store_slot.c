#include "pipes/store_dir.h"
#include "pipes/recfile.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *own(struct slice s)
{
	return xstrndup(s.p ? s.p : "", s.n);
}

/* One component after the other; nothing that leaves the directory. */
static bool is_path_good(struct slice p)
{
	size_t len = 0, depth = 1;

	if (p.n == 0 || p.n > STORE_PATH_MAX || memchr(p.p, '\0', p.n))
		return false;
	for (size_t i = 0; i <= p.n; i++) {
		const char *start = p.p + i - len;

		if (i < p.n && p.p[i] != '/') {
			len++;
			continue;
		}
		if (len == 0 || (len == 1 && start[0] == '.') ||
		    (len == 2 && start[0] == '.' && start[1] == '.'))
			return false;
		depth += i < p.n;
		len = 0;
	}
	return depth <= STORE_DEPTH_MAX;
}

static int check_file(const struct m_slotfile *f, const struct m_slotfile *prev)
{
	if (!is_path_good(f->path))
		return log_error(E_DATA,
				 "file \"%.*s\": not a path inside a "
				 "version",
				 SLICE_ARG(f->path));
	if (prev && slice_cmp(prev->path, f->path) >= 0)
		return log_error(E_DATA,
				 "file \"%.*s\" comes after \"%.*s\": not in "
				 "path order",
				 SLICE_ARG(f->path), SLICE_ARG(prev->path));
	if (f->kind >= FILE_N || f->bytes > INT64_MAX || f->header > f->bytes ||
	    (f->kind == FILE_SHARD) != (f->header > 0))
		return log_error(E_DATA,
				 "file \"%.*s\": kind %u, %llu bytes, header "
				 "of %llu bytes cannot be",
				 SLICE_ARG(f->path), f->kind,
				 (unsigned long long)f->bytes,
				 (unsigned long long)f->header);
	return 0;
}

static int add_files(struct store_slot *slot, const struct m_slotfile *v,
		     uint32_t n)
{
	uint64_t sum = 0;

	slot->file = xcalloc(n, sizeof *slot->file);
	for (uint32_t i = 0; i < n; i++) {
		int rc = check_file(&v[i], i ? &v[i - 1] : NULL);

		if (rc < 0)
			return rc;
		if (__builtin_add_overflow(sum, v[i].bytes, &sum))
			break;
		slot->file[slot->nfiles++] = (struct store_file){
			.path = own(v[i].path),
			.bytes = v[i].bytes,
			.header = v[i].header,
			.digest = v[i].digest,
			.kind = v[i].kind,
		};
	}
	if (slot->nfiles < n || sum != slot->bytes)
		return log_error(E_DATA,
				 "the files' sizes sum up to %llu bytes, the "
				 "version is said to have %llu",
				 (unsigned long long)sum,
				 (unsigned long long)slot->bytes);
	return 0;
}

int store_slot_init(struct store_slot *slot, const struct m_begin *b)
{
	struct store_slot made = {
		.registry = own(b->fence.registry),
		.run = own(b->fence.run),
		.post_load = own(SLICE("")),
		.epoch = b->fence.epoch,
		.version = b->version,
		.bytes = b->bytes,
		.structure = b->structure,
		.worker = b->worker,
		.workers = b->workers,
		.whole = b->whole,
	};
	int rc = add_files(&made, b->files.v, b->files.n);

	if (rc < 0) {
		store_slot_release(&made);
		return rc;
	}
	*slot = made;
	return 0;
}

void store_slot_release(struct store_slot *slot)
{
	for (uint32_t i = 0; i < slot->nfiles; i++)
		free(slot->file[i].path);
	free(slot->file);
	free(slot->registry);
	free(slot->run);
	free(slot->post_load);
	*slot = (struct store_slot){ 0 };
}

int store_seal(struct store *s, const struct store_slot *slot)
{
	struct m_slotfile *v = xcalloc(slot->nfiles, sizeof *v);
	struct msg m = { .type = M_slot };
	struct buf b = { 0 };
	char name[STORE_NAME_SIZE];
	int rc;

	for (uint32_t i = 0; i < slot->nfiles; i++)
		v[i] = (struct m_slotfile){
			.path = slice_of(slot->file[i].path),
			.kind = (uint8_t)slot->file[i].kind,
			.bytes = slot->file[i].bytes,
			.header = slot->file[i].header,
			.digest = slot->file[i].digest,
		};
	m.slot = (struct m_slot){
		.registry = slice_of(slot->registry),
		.epoch = slot->epoch,
		.run = slice_of(slot->run),
		.version = slot->version,
		.bytes = slot->bytes,
		.structure = slot->structure,
		.received = slot->received,
		.installed = slot->installed,
		.proof = (uint8_t)slot->proof,
		.post_load = slice_of(slot->post_load),
		.varies = slot->varies,
		.worker = slot->worker,
		.workers = slot->workers,
		.files = { v, slot->nfiles },
	};
	rc = rec_append(&b, &m);
	if (rc >= 0)
		rc = io_replace(s->dirfd,
				store_name(name, "slots", slot->version), b.p,
				b.n);
	if (rc >= 0)
		s->staged = slot->version;
	buf_release(&b);
	free(v);
	return rc < 0 ? rc : 0;
}

static int take_record(struct store_slot *out, const struct m_slot *m)
{
	struct store_slot made = {
		.registry = own(m->registry),
		.run = own(m->run),
		.post_load = own(m->post_load),
		.epoch = m->epoch,
		.version = m->version,
		.bytes = m->bytes,
		.structure = m->structure,
		.received = m->received,
		.installed = m->installed,
		.proof = m->proof,
		.varies = m->varies,
		.worker = m->worker,
		.workers = m->workers,
	};
	int rc = add_files(&made, m->files.v, m->files.n);

	if (rc < 0) {
		store_slot_release(&made);
		return rc;
	}
	*out = made;
	return 0;
}

int store_slot_load(const struct store *s, uint64_t version,
		    struct store_slot *out)
{
	struct rec_reader r = { 0 };
	struct msg_arena arena = { 0 };
	struct msg m;
	char name[STORE_NAME_SIZE];
	int rc;

	store_name(name, "slots", version);
	rc = rec_read_one(&r, s->dirfd, name, M_slot, &m, &arena);
	if (rc >= 0 && m.slot.version != version)
		rc = log_error(E_DATA, "%s/%s is the record of version %llu",
			       s->path, name,
			       (unsigned long long)m.slot.version);
	if (rc >= 0)
		rc = take_record(out, &m.slot);
	msg_arena_release(&arena);
	rec_close(&r);
	return rc < 0 ? rc : 0;
}
