/* Reading all of a delta, or of a version directory; see delta.h. */
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/crew.h"
#include "pipes/delta_dec.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20) /* bytes hashed at a time */

struct check {
	const struct delta *d;
	const char *path;
};

struct seat {
	struct dec dec;
	uint8_t *box;
};

static void leave(void *seat)
{
	struct seat *s = seat;

	dec_release(&s->dec);
	free(s->box);
}

static int hash_file(const struct check *c, const struct delta_file *f, int fd,
		     uint8_t *box)
{
	struct digest_state s;
	struct digest have;
	int rc = 1;

	digest_begin(&s);
	for (uint64_t at = 0; rc > 0 && at < f->id.size; at += (uint64_t)rc) {
		rc = io_pread_full(fd, box, CHUNK, (off_t)at);
		if (rc > 0)
			digest_add(&s, box, (size_t)rc);
	}
	digest_end(&s, &have);
	if (rc < 0)
		return rc;
	if (!digest_eq(&have, &f->digest))
		return log_error(E_DATA,
				 "%s/%s: its bytes are not those that were "
				 "written",
				 c->path, f->path);
	return 0;
}

static int check_payloads(const struct check *c, uint32_t file, int fd,
			  struct dec *dec)
{
	struct dec_tensor t = { .delta = c->d, .packed = fd };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < c->d->n; i++) {
		t.t = &c->d->tensor[i];
		if (t.t->file == file && t.t->kind != PATCH_SPARSE)
			rc = dec_check(dec, &t);
	}
	return rc;
}

static int check_file(void *ctx, uint32_t i, void *seat)
{
	const struct check *c = ctx;
	const struct delta_file *f = &c->d->file[i];
	struct seat *s = seat;
	int fd = srcdir_open_same(&c->d->dir, f->path, &f->id), rc = 0;

	if (fd < 0)
		return fd;
	if (!s->box)
		s->box = xpages(CHUNK);
	if (c->d->is_weirs)
		rc = hash_file(c, f, fd, s->box);
	if (rc == 0)
		rc = check_payloads(c, i, fd, &s->dec);
	close(fd);
	return rc;
}

static int verify_delta(const struct delta *d, const char *path,
			unsigned threads, struct delta_result *r)
{
	struct check c = { d, path };
	struct crew crew = {
		.threads = threads,
		.seat_size = sizeof(struct seat),
		.work = check_file,
		.leave = leave,
		.ctx = &c,
	};

	r->version = d->version;
	r->base_version = d->base_version;
	r->changed = d->n;
	r->stored = d->stored;
	r->encoding = d->encoding;
	r->id.tensors = d->tensors;
	r->id.content = d->content;
	return crew_run(&crew, d->nfiles);
}

static int compare(const struct vmark *m, const struct identity *have,
		   const struct sums *sums, const char *path)
{
	char said[DIGEST_HEX], is[DIGEST_HEX], *file;
	bool tensors = digest_eq(&m->id.tensors, &have->tensors);

	if (tensors && digest_eq(&m->id.content, &have->content))
		return 0;
	file = vmark_changed_file(sums->source->dir.fd, path, sums);
	log_error(E_DATA,
		  "%s: version %llu has digest %s; it was written with "
		  "%s: %s changed (%s)",
		  path, (unsigned long long)m->version,
		  digest_hex(tensors ? &have->content : &have->tensors, is),
		  digest_hex(tensors ? &m->id.content : &m->id.tensors, said),
		  tensors ? "a file beside the weights" : "weights",
		  file ? file : "their layout");
	free(file);
	return -E_DATA;
}

static int verify_source(const struct source *s, const char *path,
			 unsigned threads, struct delta_result *r)
{
	struct sums sums;
	struct vmark m;
	int rc = vmark_read(s->dir.fd, path, &m);

	if (rc == 0)
		return log_error(E_DATA,
				 "%s has no %s: nothing says what it should be",
				 path, VMARK_NAME);
	if (rc < 0)
		return rc;
	r->version = m.version;
	r->tensors = s->ntensors;
	r->bytes = s->bytes;
	sums_init(&sums, s);
	rc = sums_read(&sums, 0, threads);
	if (rc == 0)
		rc = sums_identity(&sums, &r->id);
	if (rc == 0)
		rc = compare(&m, &r->id, &sums, path);
	sums_release(&sums);
	return rc;
}

int delta_verify(const char *path, unsigned threads, struct delta_result *r)
{
	struct delta d;
	struct source s;
	int rc = delta_is_one(path);

	*r = (struct delta_result){ 0 };
	if (rc < 0)
		return rc;
	if (rc > 0) {
		rc = delta_open(&d, path);
		if (rc < 0)
			return rc;
		rc = verify_delta(&d, path, threads, r);
		delta_close(&d);
		return rc;
	}
	rc = source_open(&s, path);
	if (rc < 0)
		return rc;
	rc = verify_source(&s, path, threads, r);
	source_release(&s);
	return rc;
}
