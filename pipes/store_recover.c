#include "pipes/store_dir.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct numbers {
	uint64_t *v;
	uint32_t n;
};

static void add_number(struct numbers *l, uint64_t version)
{
	l->v = xreallocarray(l->v, l->n + 1, sizeof *l->v);
	l->v[l->n++] = version;
}

/* The versions that dir has; names of others are left alone. */
static int list(const struct store *s, const char *dir, struct numbers *out)
{
	int fd = io_open_dir(s->dirfd, dir);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (fd < 0)
		return fd;
	if (!d) {
		close(fd);
		return log_errno(E_IO, "read %s/%s", s->path, dir);
	}
	while ((errno = 0, e = readdir(d))) {
		uint64_t version = version_number(e->d_name);

		if (version > 0)
			add_number(out, version);
		else if (e->d_name[0] != '.')
			log_warn("%s/%s/%s is not ours: left alone", s->path,
				 dir, e->d_name);
	}
	closedir(d);
	return errno ? log_errno(E_IO, "read %s/%s", s->path, dir) : 0;
}

static int remove_version(const struct store *s, const char *dir,
			  uint64_t version, const char *why)
{
	char name[STORE_NAME_SIZE];

	log_info("%s/%s: %s, removed", s->path, store_name(name, dir, version),
		 why);
	return io_remove_tree(s->dirfd, name);
}

/* Is there a record?  1, 0, or -E_*: one that cannot be read now is no reason
 * to remove what it may speak of. */
static int is_sealed(const struct store *s, uint64_t version)
{
	struct store_slot slot = { 0 };
	int rc = store_slot_load(s, version, &slot);

	store_slot_release(&slot);
	if (rc == -E_NOINPUT)
		return 0;
	return rc < 0 ? rc : 1;
}

/* Sealed, and its run was not cancelled before it was served. */
static int may_be_served(const struct store *s, uint64_t version)
{
	struct store_slot slot = { 0 };
	int rc = store_slot_load(s, version, &slot);
	bool cancelled = rc == 0 && s->fence.closed &&
			 slot.epoch == s->fence.epoch &&
			 strcmp(slot.registry, s->fence.registry) == 0;

	store_slot_release(&slot);
	if (rc == -E_NOINPUT || rc == -E_DATA || cancelled)
		return 0;
	return rc < 0 ? rc : 1;
}

static int recover_version(struct store *s, uint64_t version)
{
	int rc = is_sealed(s, version);

	if (rc > 0)
		store_add_version(s, version);
	return rc != 0 ? rc
		       : remove_version(s, "versions", version,
					"has no record");
}

static int recover_versions(struct store *s)
{
	struct numbers l = { 0 };
	int rc = list(s, "versions", &l);

	for (uint32_t i = 0; i < l.n && rc >= 0; i++)
		rc = recover_version(s, l.v[i]);
	free(l.v);
	return rc;
}

static bool is_kept(const struct store *s, uint64_t version)
{
	for (uint32_t i = 0; i < s->nversions; i++)
		if (s->version[i] == version)
			return true;
	return false;
}

/* `current` decides: what is above it was not served yet.  Where it is lost
 * or points to nothing sealed, the highest version takes its place. */
static int recover_current(struct store *s)
{
	uint64_t top = s->nversions ? s->version[s->nversions - 1] : 0;
	int rc = 0;

	s->serving = store_pointed(s);
	if (s->serving == 0 || !is_kept(s, s->serving)) {
		s->serving = top;
		rc = store_point(s, top);
		if (rc >= 0 && top)
			log_warn("%s/current is lost: repaired to version %llu",
				 s->path, (unsigned long long)top);
	}
	while (rc >= 0 && top > s->serving) {
		log_info("version %llu was sealed and not served: staged",
			 (unsigned long long)top);
		rc = store_stage_again(s, top);
		top = s->version[s->nversions - 1];
	}
	s->staged = 0;
	return rc;
}

static int recover_staging(struct store *s)
{
	struct numbers l = { 0 };
	int rc = list(s, "staging", &l);

	for (uint32_t i = 0; i < l.n && rc >= 0; i++) {
		if (l.v[i] <= s->serving || l.v[i] <= s->staged)
			continue;
		rc = may_be_served(s, l.v[i]);
		if (rc > 0)
			s->staged = l.v[i];
	}
	for (uint32_t i = 0; i < l.n && rc >= 0; i++)
		if (l.v[i] != s->staged)
			rc = remove_version(s, "staging", l.v[i],
					    "was not sealed");
	free(l.v);
	return rc;
}

static int recover_slots(struct store *s)
{
	struct numbers l = { 0 };
	int rc = list(s, "slots", &l);

	for (uint32_t i = 0; i < l.n && rc >= 0; i++)
		if (l.v[i] != s->staged && !is_kept(s, l.v[i]))
			rc = remove_version(s, "slots", l.v[i],
					    "has no version");
	free(l.v);
	return rc;
}

static int sweep(struct store *s)
{
	int fd, rc = io_sweep_our_tmp(s->dirfd);

	if (rc < 0)
		return rc;
	fd = io_open_dir(s->dirfd, "slots");
	if (fd < 0)
		return fd;
	rc = io_sweep_our_tmp(fd);
	close(fd);
	return rc;
}

/* What a killed process moved and did not sync is believed once it is
 * durable: a power cut must not take back what is said to be served. */
static int sync_names(const struct store *s)
{
	int rc = store_sync_dir(s, "versions");

	if (rc >= 0)
		rc = store_sync_dir(s, "staging");
	return rc < 0 ? rc : io_fsync_dir(s->dirfd);
}

int store_recover(struct store *s)
{
	int rc = sweep(s);

	if (rc >= 0)
		rc = sync_names(s);
	if (rc >= 0)
		rc = recover_versions(s);
	if (rc >= 0)
		rc = recover_current(s);
	if (rc >= 0)
		rc = recover_staging(s);
	if (rc >= 0)
		rc = recover_slots(s);
	return rc < 0 ? rc : 0;
}
