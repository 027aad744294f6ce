/* Applying a delta; see delta.h. */
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/beside.h"
#include "pipes/carry.h"
#include "pipes/delta_build.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct apply {
	const struct delta_apply *conf;
	struct delta delta;
	struct fit fit;
	struct build build;
	struct identity id; /* of what was made */
	struct beside to;
	struct delta_result *result;
};

static const char *base_path(const struct apply *a)
{
	return a->conf->dir;
}

/* Where the new version is to be. */
static const char *place(const struct apply *a)
{
	return a->conf->out ? a->conf->out : base_path(a);
}

static bool is_made(void *ctx, const char *path)
{
	const struct apply *a = ctx;

	return strcmp(path, VMARK_NAME) == 0 || build_has(&a->build, path);
}

static int check_base_unchanged(const struct apply *a)
{
	for (uint32_t f = 0; f < a->fit.base.nfiles; f++) {
		struct srcdir_id now;
		const struct source_file *file = &a->fit.base.file[f];
		int fd = srcdir_open_file(&a->fit.base.dir, file->path, &now);

		if (fd >= 0)
			close(fd);
		if (fd < 0 && fd != -E_NOINPUT)
			return fd;
		if (fd < 0 || now.ino != file->id.ino ||
		    now.size != file->id.size ||
		    now.mtime_ns != file->id.mtime_ns)
			return log_error(E_DATA,
					 "%s/%s was changed while the delta "
					 "was applied",
					 base_path(a), file->path);
	}
	return 0;
}

/* By what was read, and by what was written. */
static int check_digests(struct apply *a)
{
	char have[DIGEST_HEX], want[DIGEST_HEX];
	int rc = check_base_unchanged(a);

	if (rc == 0)
		rc = fit_check(&a->fit);
	if (rc == 0)
		rc = sums_identity(&a->build.after, &a->id);
	if (rc < 0 || !a->delta.is_weirs ||
	    digest_eq(&a->id.tensors, &a->delta.tensors))
		return rc;
	return log_error(E_DATA,
			 "%s: applied, the tensors' digest is %s; expected %s",
			 a->conf->delta, digest_hex(&a->id.tensors, have),
			 digest_hex(&a->delta.tensors, want));
}

static int write_mark(struct apply *a)
{
	struct vmark m = {
		.kind = "delta",
		.version = a->delta.version,
		.has_parent = true,
		.parent = a->fit.id.content,
		.id = a->id,
	};

	strcpy(m.registry,
	       a->delta.registry[0] ? a->delta.registry : a->fit.mark.registry);
	return vmark_write(a->to.fd, &m, &a->build.after, NULL, 0);
}

static int put(struct apply *a)
{
	struct stat old;
	int rc;

	if (a->conf->out) {
		rc = beside_put(&a->to);
		return rc == -E_AGAIN ? log_error(E_DATA, "%s is there already",
						  a->conf->out)
				      : rc;
	}
	if (fstat(a->fit.base.dir.fd, &old) < 0)
		return log_errno(E_IO, "stat %s", base_path(a));
	return beside_exchange(&a->to, &old);
}

static int build(struct apply *a)
{
	int rc = beside_open(&a->to, place(a));

	if (rc == 0 && !a->conf->out)
		rc = beside_can_exchange(&a->to);
	a->build.to = a->to.fd;
	if (rc == 0)
		rc = build_run(&a->build);
	if (rc == 0 && !a->conf->out)
		rc = carry_tree(a->fit.base.dir.fd, a->to.fd, base_path(a),
				is_made, a);
	if (rc == 0)
		rc = check_digests(a);
	if (rc == 0)
		rc = write_mark(a);
	beside_tell("mark written");
	return rc < 0 ? rc : put(a);
}

/* A wrong base shows first as whatever becomes of it. */
static int build_or_tell(struct apply *a)
{
	int was = log_quiet_thread(1), rc = build(a), better = 0;
	char *cause = xstrdup(log_cause());

	log_quiet_thread(was);
	if (rc == -E_DATA && !a->fit.is_read)
		better = fit_read(&a->fit);
	if (better < 0)
		rc = better;
	else if (rc < 0)
		log_error(-rc, "%s", cause);
	free(cause);
	return rc;
}

/* 1: nothing is to be done. */
static int check_place(struct apply *a)
{
	const char *out = a->conf->out;
	int rc, was;

	if (!out || beside_is_free(out))
		return 0;
	was = log_quiet_thread(1);
	rc = fit_is_target(&a->fit, out);
	log_quiet_thread(was);
	if (rc > 0)
		return rc;
	return log_error(E_DATA, "%s is there already, and not version %llu",
			 out, (unsigned long long)a->delta.version);
}

/* 1: nothing is to be done. */
static int look(struct apply *a)
{
	int rc = check_place(a);

	if (rc == 0)
		rc = fit_open(&a->fit);
	if (rc == 0 && !fit_is_likely(&a->fit))
		rc = fit_read(&a->fit);
	return rc;
}

static int run(struct apply *a)
{
	int rc = look(a);

	a->id = a->fit.id;
	a->result->was_there = rc > 0;
	if (rc > 0)
		beside_sweep(place(a));
	if (rc != 0)
		return rc < 0 ? rc : 0;
	return build_or_tell(a);
}

static void release(struct apply *a)
{
	build_release(&a->build);
	beside_close(&a->to);
	fit_release(&a->fit);
	delta_close(&a->delta);
}

/* Only the last look tells why. */
static int open_delta(struct apply *a)
{
	int64_t end = clock_mono_ms() + a->conf->wait_ms;

	while (clock_mono_ms() < end) {
		int was = log_quiet_thread(1);
		int rc = delta_open(&a->delta, a->conf->delta);

		log_quiet_thread(was);
		if (rc == 0)
			return 0;
		poll(NULL, 0, DELTA_LOOK_MS);
	}
	return delta_open(&a->delta, a->conf->delta);
}

int delta_apply(const struct delta_apply *c, struct delta_result *r)
{
	struct apply a = { .conf = c, .result = r, .to = BESIDE_INIT };
	int rc;

	a.fit = (struct fit){ .conf = c, .delta = &a.delta };
	a.build = (struct build){ .conf = c, .delta = &a.delta, .fit = &a.fit };
	*r = (struct delta_result){ 0 };
	rc = open_delta(&a);
	if (rc < 0)
		return rc;
	r->version = a.delta.version;
	r->base_version = a.delta.base_version;
	r->encoding = a.delta.encoding;
	r->changed = a.delta.n;
	r->stored = a.delta.stored;
	rc = run(&a);
	r->tensors = a.fit.base.ntensors;
	r->bytes = a.fit.bytes;
	r->id = a.id;
	release(&a);
	return rc;
}
