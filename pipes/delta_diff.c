/* Making a delta; see delta.h. */
#include "pipes/delta.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/beside.h"
#include "pipes/crew.h"
#include "pipes/delta_enc.h"
#include "pipes/delta_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct diff {
	const struct delta_diff *conf;
	struct source old, new;
	struct sums sums[2];
	uint32_t *new_of; /* of a tensor of old: its number in new */
	struct beside to;
	struct delta_out out;
	struct encoded **early; /* of each tensor, until its turn comes */
	uint32_t turn;
	uint64_t early_bytes;
	struct identity id[2];
	struct delta_result *result;
};

/* A tensor's result. */
struct encoded {
	bool changed;
	enum patch_kind kind;
	char sum[CHECKSUM_HEX];
	struct buf payload;
};

struct seat {
	struct sums_file file[2];
	struct enc enc;
};

/* ---- what is compared ---- */

static struct slice tensor_name(const void *ctx, uint32_t i)
{
	struct source_tensor t;

	source_get(ctx, i, &t);
	return t.name;
}

static int other_tensors(const struct diff *d, struct slice name, bool in_old)
{
	const struct delta_diff *c = d->conf;

	return log_error(E_DATA,
			 "tensor \"%.*s\" is in %s and not in %s: a delta "
			 "cannot say that; make it a full version",
			 SLICE_ARG(name), in_old ? c->old : c->new,
			 in_old ? c->new : c->old);
}

static int check_alike(const struct diff *d, uint32_t a, uint32_t b)
{
	struct buf shape[2] = { { 0 }, { 0 } };
	struct source_tensor t[2];
	const char *text[2];
	int rc = 0;

	source_get(&d->old, a, &t[0]);
	source_get(&d->new, b, &t[1]);
	for (int i = 0; i < 2; i++)
		text[i] = delta_shape(t[i].shape, t[i].ndims, &shape[i]);
	if (t[0].dtype != t[1].dtype || strcmp(text[0], text[1]) != 0)
		rc = log_error(E_DATA,
			       "tensor \"%.*s\" is %s [%s] in %s and %s [%s] "
			       "in %s: a delta cannot say that; make it a full "
			       "version",
			       SLICE_ARG(t[0].name), st_dtype_name(t[0].dtype),
			       text[0], d->conf->old, st_dtype_name(t[1].dtype),
			       text[1], d->conf->new);
	buf_release(&shape[0]);
	buf_release(&shape[1]);
	return rc;
}

static int join(struct diff *d, const struct names *old,
		const struct names *new)
{
	int rc = 0;

	for (uint32_t k = 0; rc == 0 && (k < old->n || k < new->n); k++) {
		int c = k >= new->n   ? -1
			: k >= old->n ? 1
				      : names_cmp(old, k, new, k);

		if (c != 0)
			return other_tensors(
				d, c < 0 ? names_at(old, k) : names_at(new, k),
				c < 0);
		d->new_of[names_id(old, k)] = names_id(new, k);
		rc = check_alike(d, names_id(old, k), names_id(new, k));
	}
	return rc;
}

static int join_tensors(struct diff *d)
{
	struct names old, new;
	int rc;

	d->new_of = xcalloc(d->old.ntensors, sizeof *d->new_of);
	names_sort(&old, tensor_name, &d->old, d->old.ntensors);
	names_sort(&new, tensor_name, &d->new, d->new.ntensors);
	rc = join(d, &old, &new);
	names_release(&old);
	names_release(&new);
	return rc;
}

/*
 * A position has 32 bits, and so has their count, which 4 GiB that all differ
 * would wrap: all of the version then goes by xor.
 */
static void choose_encoding(struct diff *d)
{
	struct source_iter it = { .s = &d->old };
	struct source_tensor t;

	d->out.encoding = d->conf->encoding;
	while (d->out.encoding == PATCH_OVERWRITE && source_next(&it, &t)) {
		if (t.bytes < PATCH_OVERWRITE_MAX)
			continue;
		d->out.encoding = PATCH_XOR;
		log_warn("tensor \"%.*s\" has %llu bytes, beyond what "
			 "overwrite can point at: xor is used",
			 SLICE_ARG(t.name), (unsigned long long)t.bytes);
	}
}

/* What a directory's mark says must agree with what the user says. */
static int find_version(const struct source *s, uint64_t given,
			const char *option, uint64_t *out)
{
	struct vmark m;
	int rc = vmark_read(s->dir.fd, s->dir.path, &m);

	if (rc < 0)
		return rc;
	if (rc == 0 && given == 0)
		return log_error(E_USAGE,
				 "%s does not say which version it is: give %s",
				 s->dir.path, option);
	if (rc > 0 && given && given != m.version)
		return log_error(E_DATA,
				 "%s %llu, but %s says that it is version %llu",
				 option, (unsigned long long)given, s->dir.path,
				 (unsigned long long)m.version);
	*out = rc > 0 ? m.version : given;
	return 0;
}

static int find_versions(struct diff *d)
{
	const struct delta_diff *c = d->conf;
	int rc = find_version(&d->old, c->base_version, "--base-version",
			      &d->out.base);

	if (rc == 0)
		rc = find_version(&d->new, c->version, "--weight-version",
				  &d->out.version);
	if (rc == 0 && d->out.version <= d->out.base)
		rc = log_error(E_USAGE,
			       "--weight-version %llu must be above "
			       "--base-version %llu",
			       (unsigned long long)d->out.version,
			       (unsigned long long)d->out.base);
	return rc;
}

/* ---- encoding ---- */

static int encode(void *ctx, uint32_t i, void *seat)
{
	struct diff *d = ctx;
	struct seat *s = seat;
	struct source_tensor old, new;
	struct enc_tensor t = { .encoding = d->out.encoding,
				.checksum = d->conf->checksum };

	source_get(&d->old, i, &old);
	source_get(&d->new, d->new_of[i], &new);
	t.fd[0] = sums_file_open(&s->file[0], &d->old, old.file);
	if (t.fd[0] < 0)
		return t.fd[0];
	t.fd[1] = sums_file_open(&s->file[1], &d->new, new.file);
	if (t.fd[1] < 0)
		return t.fd[1];
	t.offset[0] = old.offset;
	t.offset[1] = new.offset;
	t.bytes = old.bytes;
	t.element = sparse_element(st_dtype_bits(old.dtype));
	t.leaf[0] = sums_leaves(&d->sums[0], i);
	t.leaf[1] = sums_leaves(&d->sums[1], i);
	t.name[0] = d->old.file[old.file].path;
	t.name[1] = d->new.file[new.file].path;
	return enc_run(&s->enc, &t);
}

static void leave(void *seat)
{
	struct seat *s = seat;

	sums_file_close(&s->file[0]);
	sums_file_close(&s->file[1]);
	enc_release(&s->enc);
}

static void drop(struct encoded *e)
{
	if (e)
		buf_release(&e->payload);
	free(e);
}

static int take_turn(struct diff *d)
{
	uint32_t i = d->turn++;
	struct encoded *e = d->early[i];
	int rc = 0;

	d->early[i] = NULL;
	d->early_bytes -= e->payload.n;
	if (e->changed) {
		d->result->changed++;
		d->result->bytes += sums_object(&d->sums[0], i).bytes;
		rc = delta_out_add_take(&d->out, i, e->kind, e->sum,
					&e->payload);
	}
	drop(e);
	return rc;
}

/* Results come as they come, for a large tensor takes as long as many, and go
 * on in the tensors' order, so that the same input makes the same delta. */
static int take(void *ctx, uint32_t i, void *seat)
{
	struct diff *d = ctx;
	struct enc *enc = &((struct seat *)seat)->enc;
	struct encoded *e = xcalloc(1, sizeof *e);
	int rc = 0;

	e->changed = enc->changed;
	e->kind = enc->kind;
	memcpy(e->sum, enc->sum, sizeof e->sum);
	if (enc->changed) {
		e->payload = enc->out;
		enc->out = (struct buf){ 0 };
	}
	d->early[i] = e;
	d->early_bytes += e->payload.n;
	while (rc == 0 && d->turn < d->old.ntensors && d->early[d->turn])
		rc = take_turn(d);
	return rc;
}

/* No more is kept than fills a file. */
static bool is_full(const void *ctx)
{
	const struct diff *d = ctx;

	return d->early_bytes + d->out.held >= DELTA_FILE_BYTES;
}

/* ---- the whole ---- */

static int identify(struct diff *d)
{
	int rc = sums_read(&d->sums[0], d->old.ntensors, d->conf->threads);
	uint32_t n = d->old.ntensors;

	if (rc < 0)
		return rc;
	/* Applied, a delta leaves the files beside the weights alone. */
	memcpy(sums_leaves(&d->sums[1], n), sums_leaves(&d->sums[0], n),
	       (d->sums[0].first[d->sums[0].n] - d->sums[0].first[n]) *
		       sizeof(struct digest));
	for (int i = 0; rc == 0 && i < 2; i++)
		rc = sums_identity(&d->sums[i], &d->id[i]);
	if (rc == 0 && d->conf->parent &&
	    !digest_eq(d->conf->parent, &d->id[0].content))
		rc = log_error(E_DATA, "%s does not hold version %llu any more",
			       d->conf->old, (unsigned long long)d->out.base);
	return rc;
}

static int check_unchanged(const struct source *s)
{
	for (uint32_t i = 0; i < s->nfiles; i++) {
		int fd = source_open_file(s, i);

		if (fd < 0)
			return fd;
		close(fd);
	}
	return 0;
}

/* What was in the place before is this delta, or in the way. */
static int is_there(const struct diff *d, const struct digest *manifest)
{
	struct delta there;
	int rc = delta_open(&there, d->conf->out);
	bool same;

	if (rc < 0)
		return rc;
	same = there.is_weirs && digest_eq(&there.manifest, manifest);
	delta_close(&there);
	if (!same)
		return log_error(E_DATA,
				 "%s is there already, and another delta",
				 d->conf->out);
	d->result->was_there = true;
	return 0;
}

static int write_files(struct diff *d, struct digest *manifest)
{
	struct crew crew = {
		.threads = d->conf->threads,
		.seat_size = sizeof(struct seat),
		.work = encode,
		.done = take,
		.is_full = is_full,
		.leave = leave,
		.ctx = d,
	};
	const struct identity *same = d->conf->same;
	int rc;

	d->early = xcalloc(d->old.ntensors, sizeof *d->early);
	rc = same ? 0 : crew_run(&crew, d->old.ntensors);
	if (rc == 0)
		rc = delta_out_flush(&d->out);
	if (same)
		d->id[0] = d->id[1] = *same;
	else if (rc == 0)
		rc = identify(d);
	if (rc == 0)
		rc = check_unchanged(&d->old);
	if (rc == 0)
		rc = check_unchanged(&d->new);
	return rc < 0 ? rc : delta_out_finish(&d->out, d->id, manifest);
}

/* The manifest lists its files. */
static int mark(const struct diff *d)
{
	struct vmark m = {
		.kind = VMARK_DIFF,
		.version = d->out.version,
		.has_parent = true,
		.parent = d->id[0].content,
		.id = d->id[1],
	};
	int rc = vmark_registry(slice_of(d->conf->registry), m.registry);

	return rc < 0 ? rc : d->conf->mark(d->conf->ctx, d->to.fd, &m);
}

static int make(struct diff *d)
{
	struct digest manifest;
	int rc = write_files(d, &manifest), was;

	if (rc == 0 && d->conf->mark)
		rc = mark(d);
	if (rc < 0)
		return rc;
	rc = beside_put(&d->to);
	if (rc != -E_AGAIN)
		return rc;
	was = log_quiet_thread(d->conf->replace != NULL);
	rc = is_there(d, &manifest);
	log_quiet_thread(was);
	if (rc < 0 && d->conf->replace)
		rc = beside_exchange(&d->to, d->conf->replace);
	return rc;
}

/* What is no delta will not become one: said before the work. */
static int check_out(const char *out)
{
	struct delta there;
	int was, rc;

	if (beside_is_free(out))
		return 0;
	was = log_quiet_thread(1);
	rc = delta_open(&there, out);
	log_quiet_thread(was);
	delta_close(&there);
	if (rc < 0)
		return log_error(E_DATA,
				 "%s is there already, and no delta: give "
				 "another place",
				 out);
	return 0;
}

static int prepare(struct diff *d)
{
	int rc = find_versions(d);

	if (rc == 0)
		rc = join_tensors(d);
	if (rc == 0 && !d->conf->replace)
		rc = check_out(d->conf->out);
	if (rc == 0)
		rc = beside_open(&d->to, d->conf->out);
	if (rc < 0)
		return rc;
	choose_encoding(d);
	sums_init(&d->sums[0], &d->old);
	sums_init(&d->sums[1], &d->old);
	d->out.dirfd = d->to.fd;
	d->out.path = d->conf->out;
	d->out.before = &d->sums[0];
	d->out.checksum = d->conf->checksum;
	d->out.registry = d->conf->registry;
	return 0;
}

static void tell(struct diff *d)
{
	d->result->version = d->out.version;
	d->result->base_version = d->out.base;
	d->result->tensors = d->old.ntensors;
	d->result->encoding = d->out.encoding;
	d->result->stored = d->out.stored;
	d->result->id = d->id[1];
}

static void release(struct diff *d)
{
	delta_out_release(&d->out);
	for (uint32_t i = 0; d->early && i < d->old.ntensors; i++)
		drop(d->early[i]);
	free(d->early);
	free(d->new_of);
	sums_release(&d->sums[0]);
	sums_release(&d->sums[1]);
	beside_close(&d->to);
	source_release(&d->old);
	source_release(&d->new);
}

int delta_diff(const struct delta_diff *c, struct delta_result *r)
{
	struct diff d = { .conf = c, .result = r, .to = BESIDE_INIT };
	int rc;

	*r = (struct delta_result){ 0 };
	if (!checksum_is_built(c->checksum))
		return log_error(E_USAGE,
				 "checksum %s: this weir is built without it",
				 checksum_name(c->checksum));
	rc = source_open(&d.old, c->old);
	if (rc == 0)
		rc = source_open(&d.new, c->new);
	if (rc == 0)
		rc = prepare(&d);
	if (rc == 0)
		rc = make(&d);
	if (rc == 0)
		tell(&d);
	release(&d);
	return rc;
}
