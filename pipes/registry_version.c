#include "pipes/registry.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECEIPTS_MAX (64u << 20) /* bytes of them */

static void step(const char *what)
{
	if (registry_step)
		registry_step(what);
}

/* The version's directory; -E_NOINPUT, not logged, if there is no such
 * directory. */
static int version_open(struct registry *r, uint64_t version)
{
	char name[VERSION_NAME_SIZE];
	int fd;

	version_name(name, version);
	fd = openat(r->versions_fd, name,
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return -E_NOINPUT;
	if (fd < 0)
		return log_errno(E_IO, "open version %s of %s", name, r->path);
	return fd;
}

int registry_version_sweep(struct registry *r, uint64_t version)
{
	int vfd = version_open(r, version), rc;

	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = io_sweep_our_tmp(vfd);
	close(vfd);
	return rc;
}

/* A name that a power cut may still take away is no fact yet; nor is its
 * absence before the directory is what the disk says. */
static int decision_is_there(int vfd)
{
	int rc = io_fsync_dir(vfd);

	if (rc < 0)
		return rc;
	if (faccessat(vfd, "decision", F_OK, 0) == 0)
		return 1;
	if (errno == ENOENT)
		return 0;
	return log_errno(E_IO, "look for a decision");
}

static int numbers_descend(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

static int list_versions(struct registry *r, uint64_t **out, size_t *n)
{
	int fd = io_open_dir(r->versions_fd, ".");
	struct dirent *e;
	size_t cap = 0;
	DIR *d;

	*out = NULL;
	*n = 0;
	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return log_errno(E_IO, "list versions of %s", r->path);
	}
	while ((e = readdir(d))) {
		uint64_t v = version_number(e->d_name);

		if (v == 0)
			continue;
		if (*n == cap) {
			cap = cap ? 2 * cap : 64;
			*out = xreallocarray(*out, cap, sizeof **out);
		}
		(*out)[(*n)++] = v;
	}
	closedir(d);
	if (*n)
		qsort(*out, *n, sizeof **out, numbers_descend);
	return 0;
}

static int is_decided(struct registry *r, uint64_t version)
{
	int vfd = version_open(r, version), rc;

	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = decision_is_there(vfd);
	close(vfd);
	return rc;
}

int registry_last(struct registry *r, uint64_t *v, size_t n)
{
	uint64_t *all;
	size_t count, got = 0;
	int rc = io_fsync_dir(r->versions_fd);

	if (rc == 0)
		rc = list_versions(r, &all, &count);
	if (rc < 0)
		return rc;
	for (size_t i = 0; rc >= 0 && i < count && got < n; i++) {
		rc = is_decided(r, all[i]);
		if (rc > 0)
			v[got++] = all[i];
	}
	free(all);
	return rc < 0 ? rc : (int)got;
}

#define CURRENT_SIZE (sizeof "versions/" - 1 + VERSION_NAME_SIZE)

static void current_text(char out[CURRENT_SIZE], uint64_t version)
{
	char name[VERSION_NAME_SIZE];

	version_name(name, version);
	snprintf(out, CURRENT_SIZE, "versions/%s", name);
}

/* A symbolic link that says "versions/000042", or nothing. */
static bool current_is(const struct registry *r, uint64_t version)
{
	char want[CURRENT_SIZE], now[CURRENT_SIZE];
	ssize_t n = readlinkat(r->dirfd, "current", now, sizeof now);

	current_text(want, version);
	return n >= 0 && (size_t)n == strlen(want) &&
	       memcmp(now, want, (size_t)n) == 0;
}

/* `current` is switched when the decision and its names are on the disk: where
 * it names the newest version that there is, nothing is left to sync. */
static int is_current_last(struct registry *r, uint64_t *version)
{
	uint64_t tried;
	int vfd, rc = registry_tried(r, &tried);

	if (rc < 0 || tried == 0 || !current_is(r, tried))
		return rc;
	vfd = version_open(r, tried);
	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = faccessat(vfd, "decision", F_OK, 0) == 0;
	close(vfd);
	*version = tried;
	return rc;
}

static int find_highest(struct registry *r)
{
	int rc = is_current_last(r, &r->highest);

	if (rc != 0)
		return rc;
	rc = registry_last(r, &r->highest, 1);
	if (rc == 0)
		r->highest = 0;
	return rc;
}

/* Looked for once: only the holder of the lock decides. */
int registry_highest(struct registry *r, uint64_t *version)
{
	int rc;

	if (!r->knows_highest) {
		rc = find_highest(r);
		if (rc < 0)
			return rc;
		r->knows_highest = r->lock_fd >= 0;
	}
	*version = r->highest;
	return 0;
}

int registry_tried(struct registry *r, uint64_t *version)
{
	uint64_t *all;
	size_t n;
	int rc = list_versions(r, &all, &n);

	if (rc < 0)
		return rc;
	*version = n > 0 ? all[0] : 0;
	free(all);
	return 0;
}

int registry_next(struct registry *r, uint64_t after, uint64_t *version)
{
	uint64_t *all;
	size_t n;
	int rc = io_fsync_dir(r->versions_fd);

	if (rc == 0)
		rc = list_versions(r, &all, &n);
	if (rc < 0)
		return rc;
	while (n > 0 && all[n - 1] <= after)
		n--;
	while (n-- > 0) {
		rc = is_decided(r, all[n]);
		if (rc == 0)
			continue;
		if (rc > 0)
			*version = all[n];
		break;
	}
	free(all);
	return rc;
}

int registry_decision(struct registry *r, uint64_t version, struct reg_rec *out)
{
	int vfd = version_open(r, version), rc;
	struct reg_rec d = { 0 };

	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = decision_is_there(vfd);
	if (rc <= 0)
		goto out;
	rc = rec_read_one(&d.rec, vfd, "decision", M_decision, &d.m, &d.arena);
	if (rc < 0) {
		msg_arena_release(&d.arena);
		goto out;
	}
	if (d.m.decision.version != version ||
	    !slice_eq(d.m.decision.registry, slice_of(r->id))) {
		rc = log_error(E_DATA,
			       "decision %llu of %s is of version %llu, "
			       "registry %.*s",
			       (unsigned long long)version, r->path,
			       (unsigned long long)d.m.decision.version,
			       SLICE_ARG(d.m.decision.registry));
		reg_rec_release(&d);
		goto out;
	}
	*out = d;
	rc = 1;
out:
	close(vfd);
	return rc;
}

/* Only a search: what is found is not believed before it is synced. */
static int is_decided_by(struct registry *r, uint64_t version, const char *run,
			 uint64_t epoch)
{
	int vfd = version_open(r, version), rc;
	struct reg_rec d = { 0 };

	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = rec_read_one(&d.rec, vfd, "decision", M_decision, &d.m, &d.arena);
	close(vfd);
	if (rc == 0)
		rc = d.m.decision.epoch == epoch &&
		     slice_eq(d.m.decision.run, slice_of(run));
	else if (rc == -E_NOINPUT)
		rc = 0;
	reg_rec_release(&d);
	return rc;
}

int registry_decision_of(struct registry *r, const char *run, uint64_t epoch,
			 struct reg_rec *out)
{
	uint64_t *all;
	size_t n;
	int rc = list_versions(r, &all, &n);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = is_decided_by(r, all[i], run, epoch);
		if (rc > 0)
			rc = registry_decision(r, all[i], out);
	}
	free(all);
	return rc;
}

/* Has it another content?  1, 0, -E_*. */
static int differs(struct registry *r, uint64_t version,
		   const struct digest *content)
{
	struct reg_rec d = { 0 };
	int rc = registry_decision(r, version, &d);

	if (rc > 0)
		rc = !digest_eq(&d.m.decision.content, content);
	reg_rec_release(&d);
	return rc;
}

int registry_previous(struct registry *r, uint64_t before,
		      const struct digest *content, uint64_t *version)
{
	uint64_t *all;
	size_t n;
	int rc = list_versions(r, &all, &n);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		if (all[i] >= before)
			continue;
		rc = differs(r, all[i], content);
		if (rc > 0)
			*version = all[i];
	}
	free(all);
	return rc;
}

int registry_plan(struct registry *r, uint64_t version, struct plan *out)
{
	int vfd = version_open(r, version), rc;

	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = decision_is_there(vfd);
	if (rc > 0) {
		rc = plan_open(out, vfd, "plan");
		if (rc == 0 || rc == -E_NOINPUT)
			rc = rc == 0;
	}
	close(vfd);
	return rc;
}

int registry_receipts_read(struct registry *r, uint64_t version,
			   struct reg_rec *out)
{
	int vfd = version_open(r, version), rc;
	struct reg_rec all = { 0 };

	if (vfd < 0)
		return vfd == -E_NOINPUT ? 0 : vfd;
	rc = rec_open(&all.rec, vfd, "receipts", RECEIPTS_MAX);
	close(vfd);
	if (rc < 0)
		return rc == -E_NOINPUT ? 0 : rc;
	*out = all;
	return 1;
}

/* From another file system. */
static int plan_copy(int run_dirfd, int vfd)
{
	int from = openat(run_dirfd, PLAN_FILE, O_RDONLY | O_CLOEXEC), to, rc;

	if (from < 0)
		return log_errno(E_IO, "open " PLAN_FILE);
	to = openat(vfd, "plan", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0)
		rc = log_errno(E_IO, "create a version's plan");
	else
		rc = io_copy(from, to);
	if (to >= 0)
		close(to);
	close(from);
	return rc;
}

/* Nobody asks for the plan of a version that is not decided: it is synced by
 * plan_sync(), before that, and so no engine waits for it. */
static int plan_put(int run_dirfd, int vfd)
{
	if (unlinkat(vfd, "plan", 0) < 0 && errno != ENOENT)
		return log_errno(E_IO, "remove an older plan");
	if (linkat(run_dirfd, PLAN_FILE, vfd, "plan", 0) == 0)
		return 0;
	return plan_copy(run_dirfd, vfd);
}

/* Its bytes; its name is synced with the one of the receipts. */
static int plan_sync(int vfd)
{
	int fd = openat(vfd, "plan", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	int rc = 0;

	if (fd < 0)
		return log_errno(E_IO, "open a version's plan");
	if (fsync(fd) < 0)
		rc = log_errno(E_IO, "fsync a version's plan");
	close(fd);
	return rc;
}

int registry_version_make(struct registry *r, uint64_t version, int run_dirfd)
{
	char name[VERSION_NAME_SIZE];
	bool is_new;
	int vfd, rc;

	BUG_ON(r->lock_fd < 0);
	version_name(name, version);
	is_new = mkdirat(r->versions_fd, name, 0700) == 0;
	rc = is_new ? 0 : io_mkdir(r->versions_fd, name, 0700);
	if (rc < 0)
		return rc;
	step("version");
	vfd = version_open(r, version);
	if (vfd < 0)
		return vfd;
	/* A new directory holds no decision, and needs no sync to say so. */
	rc = is_new ? 0 : decision_is_there(vfd);
	if (rc != 0) {
		rc = rc < 0 ? rc : -E_AGAIN;
		goto out;
	}
	/* Of an undecided attempt: only this run's count. */
	if (unlinkat(vfd, "receipts", 0) < 0 && errno != ENOENT)
		rc = log_errno(E_IO, "remove older receipts");
	if (rc == 0)
		rc = io_sweep_our_tmp(vfd);
	if (rc >= 0)
		rc = plan_put(run_dirfd, vfd);
	step("plan");
	if (rc == 0)
		rc = io_fsync_dir(r->versions_fd);
out:
	close(vfd);
	return rc;
}

int registry_receipts_write(struct registry *r, uint64_t version,
			    struct slice all)
{
	int vfd = version_open(r, version), rc;

	if (vfd < 0)
		return vfd;
	rc = plan_sync(vfd);
	if (rc == 0)
		rc = io_replace(vfd, "receipts", all.p, all.n);
	close(vfd);
	step("receipts");
	return rc;
}

int registry_decide(struct registry *r, const struct msg *decision,
		    bool *linked)
{
	uint64_t version = decision->decision.version;
	struct buf b = { 0 };
	int vfd, rc;

	BUG_ON(r->lock_fd < 0);
	vfd = version_open(r, version);
	if (vfd < 0)
		return vfd;
	rc = rec_append(&b, decision);
	r->knows_highest = false;
	step("decide");
	if (rc == 0)
		rc = io_create_once(vfd, "decision", b.p, b.n, linked);
	step("decided");
	buf_release(&b);
	close(vfd);
	return rc;
}

/* What else has the name is replaced; a directory cannot be. */
static int check_current(struct registry *r, const char *want)
{
	struct stat st;

	if (fstatat(r->dirfd, "current", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(st.st_mode))
		return 0;
	return log_error(E_DATA,
			 "registry %s: current is a directory, expected a "
			 "link to %s: move it away",
			 r->path, want);
}

int registry_repair_current(struct registry *r)
{
	char want[CURRENT_SIZE];
	uint64_t version;
	int rc = registry_highest(r, &version);

	if (rc < 0)
		return rc;
	if (version == 0 || current_is(r, version))
		return 0;
	current_text(want, version);
	rc = check_current(r, want);
	if (rc < 0)
		return rc;
	step("current");
	return io_replace_link(r->dirfd, "current", want);
}
