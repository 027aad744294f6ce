#include "pipes/store.h"
#include "pipes/recfile.h"
#include "pipes/store_dir.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_MAX 32    /* bytes of a lock file */
#define LINK_MAX_ 64  /* bytes of current's target */
#define RESERVE 65536 /* bytes: any file system's least for a small file */

static int read_pid(int fd)
{
	char text[PID_MAX] = "";

	if (pread(fd, text, sizeof text - 1, 0) <= 0)
		return 0;
	return atoi(text);
}

static int lock(struct store *s)
{
	char text[PID_MAX];
	int n;

	s->lock_fd =
		openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock_fd < 0)
		return log_errno(E_IO, "open %s/lock", s->path);
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return log_errno(E_IO, "lock %s/lock", s->path);
		return log_error(E_AGAIN,
				 "store %s is in use by a weir-engine with "
				 "pid %d",
				 s->path, read_pid(s->lock_fd));
	}
	n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	if (ftruncate(s->lock_fd, 0) < 0 || pwrite(s->lock_fd, text, n, 0) != n)
		return log_errno(E_IO, "write %s/lock", s->path);
	return 0;
}

static int make_boot_id(struct store *s)
{
	unsigned char r[STORE_BOOT_LEN / 2];

	if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
		return log_errno(E_IO, "random numbers for a boot id");
	for (size_t i = 0; i < sizeof r; i++)
		snprintf(s->boot + 2 * i, 3, "%02x", r[i]);
	return 0;
}

static void keep_text(char *out, struct slice in)
{
	memcpy(out, in.p, in.n);
	out[in.n] = '\0';
}

static int read_fence(struct store *s)
{
	struct rec_reader r = { 0 };
	struct msg_arena arena = { 0 };
	struct msg m;
	int rc = rec_read_one(&r, s->dirfd, "fence", M_fence_file, &m, &arena);

	if (rc >= 0) {
		const struct m_fence_file *f = &m.fence_file;

		keep_text(s->fence.registry, f->registry);
		keep_text(s->fence.run, f->run);
		s->fence.epoch = f->epoch;
		s->fence.closed = f->closed;
		keep_text(s->fence.former, f->former);
		s->fence.spent = f->spent;
		for (uint32_t i = 0; i < f->instances.n; i++)
			s->fence.instance[i] = (uint32_t)f->instances.v[i];
		s->highest = f->highest;
	}
	msg_arena_release(&arena);
	rec_close(&r);
	return rc == -E_NOINPUT ? 0 : rc < 0 ? rc : 0;
}

/* Best effort: where there is no room, there is none to keep. */
static void keep_reserve(struct store *s)
{
	int fd;

	if (s->has_reserve)
		return;
	fd = openat(s->dirfd, "reserve", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	s->has_reserve = fd >= 0 && posix_fallocate(fd, 0, RESERVE) == 0;
	if (fd >= 0)
		close(fd);
	if (!s->has_reserve)
		unlinkat(s->dirfd, "reserve", 0);
}

/* Room is needed for a moment: the old fence's is free when this returns. */
static int put_fence(struct store *s, const struct buf *b)
{
	int was = log_quiet_thread(1), rc;

	if (!s->has_reserve)
		log_quiet_thread(was);
	rc = io_replace(s->dirfd, "fence", b->p, b->n);
	log_quiet_thread(was);
	if (rc < 0 && s->has_reserve) {
		unlinkat(s->dirfd, "reserve", 0);
		s->has_reserve = false;
		rc = io_replace(s->dirfd, "fence", b->p, b->n);
	}
	keep_reserve(s);
	return rc;
}

int store_set_fence(struct store *s, const struct fence *f, uint64_t highest)
{
	uint64_t instance[FENCE_STAGES];
	struct msg m = { .type = M_fence_file };
	struct buf b = { 0 };
	int rc;

	for (size_t i = 0; i < FENCE_STAGES; i++)
		instance[i] = f->instance[i];
	m.fence_file = (struct m_fence_file){
		.registry = slice_of(f->registry),
		.epoch = f->epoch,
		.run = slice_of(f->run),
		.closed = f->closed,
		.instances = { instance, FENCE_STAGES },
		.highest = highest,
		.former = slice_of(f->former),
		.spent = f->spent,
	};
	rc = rec_append(&b, &m);
	if (rc >= 0)
		rc = put_fence(s, &b);
	buf_release(&b);
	if (rc < 0)
		return rc;
	s->fence = *f;
	s->highest = highest;
	return 0;
}

int store_set_paused(struct store *s)
{
	int rc = s->paused ? 0 : io_replace(s->dirfd, "paused", "", 0);

	s->paused |= rc == 0;
	return rc;
}

/* Not synced: a mark too many costs one --on-resume too many. */
void store_unset_paused(struct store *s)
{
	if (s->paused && unlinkat(s->dirfd, "paused", 0) < 0 && errno != ENOENT)
		log_errno(E_IO, "remove %s/paused", s->path);
	s->paused = false;
}

static int make_dirs(struct store *s)
{
	static const char *const dir[] = { "versions", "staging", "slots" };
	int rc = 0;

	for (size_t i = 0; i < COUNT(dir) && rc >= 0; i++)
		rc = io_mkdir(s->dirfd, dir[i], 0755);
	if (rc >= 0)
		rc = io_fsync_dir(s->dirfd);
	if (rc >= 0)
		rc = s->versions_fd = io_open_dir(s->dirfd, "versions");
	if (rc >= 0)
		rc = s->staging_fd = io_open_dir(s->dirfd, "staging");
	return rc;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

int store_open(struct store *s, const char *dir, unsigned keep)
{
	int rc;

	BUG_ON(keep == 0);
	*s = STORE_CLOSED;
	s->keep = keep;
	rc = io_mkdir(AT_FDCWD, dir, 0755);
	if (rc >= 0)
		rc = io_sync_parent(dir);
	if (rc < 0)
		return rc;
	s->path = realpath(dir, NULL);
	if (!s->path)
		return log_errno(E_IO, "find %s", dir);
	rc = s->dirfd = io_open_dir(AT_FDCWD, s->path);
	if (rc >= 0)
		rc = lock(s);
	if (rc >= 0)
		rc = make_boot_id(s);
	if (rc >= 0)
		rc = make_dirs(s);
	if (rc >= 0)
		rc = read_fence(s);
	if (rc >= 0)
		rc = store_recover(s);
	if (rc >= 0)
		keep_reserve(s);
	s->paused = faccessat(s->dirfd, "paused", F_OK, 0) == 0;
	if (rc < 0)
		store_close(s);
	return rc < 0 ? rc : 0;
}

void store_close(struct store *s)
{
	close_fd(s->lock_fd);
	close_fd(s->versions_fd);
	close_fd(s->staging_fd);
	close_fd(s->dirfd);
	for (uint32_t i = 0; i < s->nkept; i++)
		store_files_release(&s->kept[i]);
	free(s->kept);
	free(s->path);
	free(s->version);
	*s = STORE_CLOSED;
}

char *store_name(char out[STORE_NAME_SIZE], const char *dir, uint64_t version)
{
	char name[VERSION_NAME_SIZE];

	snprintf(out, STORE_NAME_SIZE, "%s/%s", dir,
		 version_name(name, version));
	return out;
}

static const char *where(const struct store *s, uint64_t version)
{
	for (uint32_t i = 0; i < s->nversions; i++)
		if (s->version[i] == version)
			return "versions";
	return "staging";
}

int store_open_dir(const struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];

	return io_open_dir(s->dirfd,
			   store_name(name, where(s, version), version));
}

char *store_slot_path(const struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];

	return xasprintf("%s/%s", s->path,
			 store_name(name, where(s, version), version));
}

char *store_version_path(const struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];

	return xasprintf("%s/%s", s->path,
			 store_name(name, "versions", version));
}

int store_point(const struct store *s, uint64_t version)
{
	char target[STORE_NAME_SIZE];

	if (version == 0)
		return unlinkat(s->dirfd, "current", 0) == 0 || errno == ENOENT
			       ? io_fsync_dir(s->dirfd)
			       : log_errno(E_IO, "remove %s/current", s->path);
	store_name(target, "versions", version);
	return io_replace_link(s->dirfd, "current", target);
}

uint64_t store_pointed(const struct store *s)
{
	char target[LINK_MAX_] = "";
	ssize_t n = readlinkat(s->dirfd, "current", target, sizeof target - 1);

	if (n < 0 || strncmp(target, "versions/", 9) != 0)
		return 0;
	return version_number(target + 9);
}

int store_sync_dir(const struct store *s, const char *name)
{
	int fd = io_open_dir(s->dirfd, name), rc;

	if (fd < 0)
		return fd;
	rc = io_fsync_dir(fd);
	close(fd);
	return rc;
}

static int sync_place(const struct store *s, const char *dir)
{
	return io_fsync_dir(strcmp(dir, "versions") == 0 ? s->versions_fd
							 : s->staging_fd);
}

/* Moves a version between versions/ and staging/; both names durable. */
static int move_version(const struct store *s, const char *from, const char *to,
			uint64_t version)
{
	char a[STORE_NAME_SIZE], b[STORE_NAME_SIZE];
	int rc;

	store_name(a, from, version);
	store_name(b, to, version);
	if (renameat(s->dirfd, a, s->dirfd, b) < 0)
		return log_errno(E_IO, "rename %s/%s to %s", s->path, a, b);
	rc = sync_place(s, to);
	return rc < 0 ? rc : sync_place(s, from);
}

void store_add_version(struct store *s, uint64_t version)
{
	uint32_t i = s->nversions++;

	s->version =
		xreallocarray(s->version, s->nversions, sizeof *s->version);
	for (; i > 0 && s->version[i - 1] > version; i--)
		s->version[i] = s->version[i - 1];
	s->version[i] = version;
}

void store_forget_version(struct store *s, uint64_t version)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nversions; i++)
		if (s->version[i] != version)
			s->version[n++] = s->version[i];
	s->nversions = n;
}

int store_stage_again(struct store *s, uint64_t version)
{
	int rc = move_version(s, "versions", "staging", version);

	if (rc < 0)
		return rc;
	store_forget_version(s, version);
	s->staged = version;
	return 0;
}

static int take_back(const struct store *s, uint64_t version)
{
	char name[STORE_NAME_SIZE];

	/* What is in its place in versions/ may be somebody else's. */
	if (faccessat(s->dirfd, store_name(name, "staging", version), F_OK,
		      0) == 0)
		return 0; /* it was not moved */
	return move_version(s, "versions", "staging", version);
}

/* Until `current` moves, the old version is served and the new one, wherever
 * its directory is, goes back to staging. */
int store_publish(struct store *s)
{
	uint64_t version = s->staged;
	int rc = move_version(s, "staging", "versions", version);

	if (rc >= 0)
		rc = store_point(s, version);
	if (rc < 0) {
		s->unsure = store_pointed(s) != s->serving ||
			    take_back(s, version) < 0;
		return rc;
	}
	store_add_version(s, version);
	s->serving = version;
	s->staged = 0;
	return 0;
}

int store_unpublish(struct store *s, uint64_t old)
{
	uint64_t version = s->serving;
	int rc = store_point(s, old);

	if (rc < 0)
		return rc;
	s->serving = old;
	return store_stage_again(s, version);
}
