#include "pipes/run.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/numfile.h"
#include "common/sock.h"
#include "pipes/recfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_PATTERN "00000000T000000-00000000"
#define NAME_TRIES 16
#define INSTANCE_MAX 1000000u
#define OPTIONS_MAX (1u << 20) /* bytes of STAGE.options */
#define ENDPOINT_FILE_MAX 512
#define FILE_NAME_MAX 64
#define NEW_S 60 /* a run that nobody has entered yet is kept this long */
#define SCHEME "ipc://"

/* ---- the directory ---- */

static int check_dir(int fd, const char *path, mode_t others)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return log_errno(E_IO, "stat %s", path);
	if (st.st_uid != geteuid())
		return log_error(E_PERM, "%s belongs to user %u, not to %u",
				 path, st.st_uid, geteuid());
	if (st.st_mode & others)
		return log_error(E_PERM, "%s has mode %03o, expected %03o",
				 path, st.st_mode & 0777, 0777 & ~others);
	return 0;
}

/* Made if needed, ours, and written by nobody else. */
static int make_dir(const char *path, mode_t mode, mode_t others)
{
	int fd, rc = io_mkdir(AT_FDCWD, path, mode);

	if (rc < 0)
		return rc;
	fd = io_open_dir(AT_FDCWD, path);
	if (fd < 0)
		return fd;
	rc = check_dir(fd, path, others);
	close(fd);
	return rc;
}

static const char *tmp_dir(void)
{
	const char *s = getenv("TMPDIR");

	return s && s[0] == '/' ? s : "/tmp";
}

int run_default_parent(char **out)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	char *path;
	int rc;

	if (xdg && xdg[0] == '/' && access(xdg, W_OK) == 0)
		path = xasprintf("%s/weir", xdg);
	else if (geteuid() == 0 && access("/run", W_OK) == 0)
		path = xstrdup("/run/weir");
	else
		path = xasprintf("%s/weir-%u", tmp_dir(), geteuid());
	/* Group and others may look: engines' sockets can be there as well. */
	rc = make_dir(path, 0700, 022);
	if (rc < 0) {
		free(path);
		return rc;
	}
	*out = path;
	return 0;
}

static int fresh_name(char *out, size_t size)
{
	time_t now = time(NULL);
	uint32_t noise;
	struct tm tm;
	size_t n;

	if (getrandom(&noise, sizeof noise, 0) != sizeof noise)
		return log_errno(E_IO, "random number");
	gmtime_r(&now, &tm);
	n = strftime(out, size, "%Y%m%dT%H%M%S", &tm);
	snprintf(out + n, size - n, "-%08x", noise);
	return 0;
}

static bool is_fresh_name(const char *s)
{
	static const char pattern[] = NAME_PATTERN;

	for (size_t i = 0; i < sizeof pattern; i++) {
		bool digit = pattern[i] == '0';

		if (digit ? !strchr("0123456789abcdef", s[i]) || !s[i]
			  : s[i] != pattern[i])
			return false;
	}
	return true;
}

/* Newest last. */
static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Just made: its first stage may be about to enter it. */
static bool is_new(int dirfd)
{
	struct stat st;

	return fstat(dirfd, &st) == 0 && time(NULL) - st.st_mtime < NEW_S;
}

/* Finished or abandoned: no stage of it lives. */
static bool is_over(int parent, const char *name)
{
	bool alive = false, entered = false;
	struct run r = { .lock_fd = -1 };
	pid_t pid;

	r.dirfd = openat(parent, name,
			 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r.dirfd < 0)
		return false;
	for (unsigned id = STAGE_PLAN; id < STAGE_N && !alive; id++) {
		alive = run_is_alive(&r, id, &pid);
		entered = entered || pid != 0;
	}
	alive = alive || (!entered && is_new(r.dirfd));
	close(r.dirfd);
	return !alive;
}

/* Names of runs in parent, sorted; a list of owned strings. */
static size_t list_runs(int parent, char ***out)
{
	DIR *d = fdopendir(io_open_dir(parent, "."));
	char **name = NULL;
	size_t n = 0, cap = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (!is_fresh_name(e->d_name))
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 16;
			name = xreallocarray(name, cap, sizeof(char *));
		}
		name[n++] = xstrdup(e->d_name);
	}
	if (d)
		closedir(d);
	if (n)
		qsort(name, n, sizeof(char *), by_name);
	*out = name;
	return n;
}

static void sweep(const struct run *r, bool is_over);

/* Nobody of a run that was killed whole could tidy up after it. */
static void lay_out(int parent, const char *path, const char *name)
{
	struct run r = { .lock_fd = -1 };

	r.dirfd = io_open_dir(parent, name);
	if (r.dirfd < 0)
		return;
	r.path = xasprintf("%s/%s", path, name);
	sweep(&r, true);
	free(r.path);
	close(r.dirfd);
}

/* Old runs go, but for the newest RUN_KEEP.  Best effort. */
static void retire(int parent, const char *path)
{
	size_t over = 0;
	char **name;

	for (size_t n = list_runs(parent, &name); n > 0; n--) {
		if (!is_over(parent, name[n - 1]))
			;
		else if (++over > RUN_KEEP)
			io_remove_tree(parent, name[n - 1]);
		else
			lay_out(parent, path, name[n - 1]);
		free(name[n - 1]);
	}
	free(name);
}

static int make_in(int fd, const char *parent, char **path)
{
	char name[RUN_NAME_MAX + 1];

	for (int i = 0; i < NAME_TRIES; i++) {
		int rc = fresh_name(name, sizeof name);

		if (rc < 0)
			return rc;
		if (mkdirat(fd, name, 0700) == 0) {
			*path = xasprintf("%s/%s", parent, name);
			return 0;
		}
		if (errno != EEXIST)
			break;
	}
	return log_errno(E_IO, "create %s/%s", parent, name);
}

static int make_fresh(char **path)
{
	char *parent;
	int fd, rc = run_default_parent(&parent);

	if (rc < 0)
		return rc;
	fd = rc = io_open_dir(AT_FDCWD, parent);
	if (fd >= 0) {
		retire(fd, parent);
		rc = make_in(fd, parent, path);
		close(fd);
	}
	free(parent);
	return rc;
}

/* The name travels in messages, the path in one line. */
static int take_path(struct run *r, char *path)
{
	const char *base = strrchr(path, '/') + 1;

	r->path = path;
	for (const char *s = path; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return log_error(E_CONFIG,
					 "run directory %s: control "
					 "characters in its name",
					 path);
	for (const char *s = base; *s; s++)
		if ((unsigned char)*s > 0x7e)
			return log_error(E_CONFIG,
					 "run directory %s: its name is not "
					 "ASCII",
					 path);
	if (!*base || strlen(base) > RUN_NAME_MAX)
		return log_error(E_CONFIG,
				 "run directory %s: its name must have 1 to %d "
				 "characters",
				 path, RUN_NAME_MAX);
	snprintf(r->name, sizeof r->name, "%s", base);
	return 0;
}

static int open_path(struct run *r, const char *path)
{
	char *real = realpath(path, NULL);
	int rc;

	if (!real)
		return log_errno(E_IO, "run directory %s", path);
	rc = take_path(r, real);
	if (rc == 0)
		rc = r->dirfd = io_open_dir(AT_FDCWD, real);
	return rc < 0 ? rc : check_dir(r->dirfd, real, 077);
}

int run_open(struct run *r, const char *path, bool must_exist)
{
	bool is_new = path && !must_exist && access(path, F_OK) < 0;
	char *fresh = NULL;
	int rc = 0;

	*r = (struct run){ .dirfd = -1, .lock_fd = -1 };
	if (!path)
		rc = make_fresh(&fresh);
	else if (!must_exist)
		rc = io_mkdir(AT_FDCWD, path, 0700);
	if (rc == 0)
		rc = open_path(r, path ? path : fresh);
	free(fresh);
	if (rc < 0) {
		run_close(r);
		if (is_new)
			rmdir(path);
	}
	return rc;
}

void run_close(struct run *r)
{
	if (r->lock_fd >= 0)
		close(r->lock_fd);
	if (r->dirfd >= 0)
		close(r->dirfd);
	free(r->path);
	*r = (struct run){ .dirfd = -1, .lock_fd = -1 };
}

/* ---- instances ---- */

static void file_name(char *out, enum stage_id stage, const char *suffix)
{
	snprintf(out, FILE_NAME_MAX, "%s.%s", stage_name(stage), suffix);
}

static void instance_name(char *out, enum stage_id stage, uint32_t n)
{
	snprintf(out, FILE_NAME_MAX, "%s.%u", stage_name(stage), n);
}

/* 0: there never was one.  Numbers have no gaps. */
static uint32_t newest(const struct run *r, enum stage_id stage)
{
	char name[FILE_NAME_MAX];
	uint32_t n = 0;

	do
		instance_name(name, stage, ++n);
	while (n < INSTANCE_MAX && faccessat(r->dirfd, name, F_OK, 0) == 0);
	return n - 1;
}

/* Locked by somebody: its process lives. */
static bool is_locked(const struct run *r, enum stage_id stage, uint32_t n,
		      pid_t *pid)
{
	char name[FILE_NAME_MAX], text[16] = "";
	bool locked;
	int fd;

	instance_name(name, stage, n);
	fd = openat(r->dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	locked = flock(fd, LOCK_SH | LOCK_NB) < 0;
	if (read(fd, text, sizeof text - 1) > 0)
		*pid = (pid_t)atol(text);
	close(fd);
	return locked;
}

bool run_is_alive(const struct run *r, enum stage_id stage, pid_t *pid)
{
	uint32_t n = newest(r, stage);

	*pid = 0;
	return n > 0 && is_locked(r, stage, n, pid);
}

/* What else it has locked it holds until its process ends, which is later than
 * it leaves the run. */
bool run_is_older(const struct run *r, pid_t pid)
{
	for (uint32_t n = r->instance; n > 1; n--) {
		pid_t is = 0;
		bool locked = is_locked(r, r->stage, n - 1, &is);

		if (pid > 0 && is == pid && (locked || kill(pid, 0) == 0))
			return true;
	}
	return false;
}

bool run_is_superseded(const struct run *r)
{
	char name[FILE_NAME_MAX];

	instance_name(name, r->stage, r->instance + 1);
	return faccessat(r->dirfd, name, F_OK, 0) == 0;
}

/* Where instance n listens.  Always the same for the same run: a later
 * instance knows what a killed one has left. */
static char *socket_path(const struct run *r, enum stage_id stage, uint32_t n)
{
	char hex[DIGEST_HEX], *path;
	struct digest d;

	path = xasprintf("%s/%s.%u.sock", r->path, stage_name(stage), n);
	if (strlen(path) <= SOCK_PATH_MAX)
		return path;
	digest_of(path, strlen(path), &d);
	free(path);
	path = xasprintf("%s/weir-%u/%.16s.sock", tmp_dir(), geteuid(),
			 digest_hex(&d, hex));
	if (strlen(path) <= SOCK_PATH_MAX)
		return path;
	free(path);
	return xasprintf("/tmp/weir-%u/%.16s.sock", geteuid(), hex);
}

bool run_has_ended(const struct run *r)
{
	return faccessat(r->dirfd, "verdict", F_OK, 0) == 0;
}

/* Of a stage; true if none of its instances lives. */
static bool sweep_sockets(const struct run *r, enum stage_id id)
{
	bool dead = true;

	for (uint32_t n = newest(r, id); n > 0; n--) {
		pid_t pid = 0;
		char *path;

		if (is_locked(r, id, n, &pid)) {
			dead = false;
			continue;
		}
		path = socket_path(r, id, n);
		if (unlink(path) == 0)
			log_info("removed %s, left by pid %ld, which has ended",
				 path, (long)pid);
		free(path);
	}
	return dead;
}

/* What killed instances left behind.  Endpoints go only when the run is over:
 * before that a new instance may be announcing itself.  Sources go with the
 * verdict: a run that was killed whole may be started again, and reads. */
static void sweep(const struct run *r, bool is_over)
{
	char name[FILE_NAME_MAX];

	io_sweep_tmp(r->dirfd);
	if (run_has_ended(r))
		io_remove_tree(r->dirfd, RUN_SOURCES);
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		if (!sweep_sockets(r, id) || !is_over)
			continue;
		file_name(name, id, "endpoint");
		unlinkat(r->dirfd, name, 0);
	}
}

void run_tidy(const struct run *r)
{
	sweep(r, run_has_ended(r));
}

/* Our pid in a file that is locked before it has its name: nobody ever sees
 * it unlocked while we live. */
static int locked_file(const struct run *r, char *tmp)
{
	char text[16];
	int fd, n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	int rc;

	snprintf(tmp, FILE_NAME_MAX, ".tmp.%s.%ld.0", stage_name(r->stage),
		 (long)getpid());
	unlinkat(r->dirfd, tmp, 0);
	fd = openat(r->dirfd, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return log_errno(E_IO, "create %s/%s", r->path, tmp);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		rc = log_errno(E_IO, "lock %s/%s", r->path, tmp);
	else
		rc = io_write_full(fd, text, (size_t)n);
	if (rc < 0) {
		unlinkat(r->dirfd, tmp, 0);
		close(fd);
		return rc;
	}
	return fd;
}

/* The next number that nobody has; link never replaces. */
static int take_number(struct run *r, const char *tmp)
{
	char name[FILE_NAME_MAX];

	for (uint32_t n = newest(r, r->stage) + 1; n < INSTANCE_MAX; n++) {
		instance_name(name, r->stage, n);
		if (linkat(r->dirfd, tmp, r->dirfd, name, 0) == 0) {
			r->instance = n;
			return 0;
		}
		if (errno != EEXIST)
			return log_errno(E_IO, "create %s/%s", r->path, name);
	}
	return log_error(E_AGAIN, "%s: %u starts of %s", r->path, INSTANCE_MAX,
			 stage_name(r->stage));
}

int run_enter(struct run *r, enum stage_id stage)
{
	char tmp[FILE_NAME_MAX];
	int fd, rc;

	r->stage = stage;
	run_tidy(r);
	fd = locked_file(r, tmp);
	if (fd < 0)
		return fd;
	rc = take_number(r, tmp);
	unlinkat(r->dirfd, tmp, 0);
	if (rc < 0)
		close(fd);
	else
		r->lock_fd = fd;
	return rc;
}

void run_leave(struct run *r)
{
	char name[FILE_NAME_MAX], *path;

	if (r->lock_fd < 0)
		return;
	file_name(name, r->stage, "endpoint");
	/* A newer instance's endpoint is not ours to remove. */
	if (!run_is_superseded(r))
		unlinkat(r->dirfd, name, 0);
	path = socket_path(r, r->stage, r->instance);
	unlink(path);
	free(path);
	close(r->lock_fd);
	r->lock_fd = -1;
	/* A killed neighbour may have nobody else to tidy up after it. */
	run_tidy(r);
}

/* ---- options ---- */

static int compare_options(const char *name, const char *is, const char *want)
{
	size_t line = 1;

	while (*is == *want) {
		if (!*is)
			return 0;
		line += *is == '\n';
		is++, want++;
	}
	return log_error(E_CONFIG,
			 "%s: line %zu differs: this run was started with "
			 "other options",
			 name, line);
}

int run_options(struct run *r, const char *text)
{
	char name[FILE_NAME_MAX];
	struct buf was = { 0 };
	bool linked;
	int rc;

	file_name(name, r->stage, "options");
	rc = io_create_once(r->dirfd, name, text, strlen(text), &linked);
	if (rc != -E_AGAIN)
		return rc;
	rc = run_options_read(r, r->stage, &was);
	if (rc == 0)
		rc = compare_options(name, buf_cstr(&was), text);
	buf_release(&was);
	return rc;
}

int run_options_read(struct run *r, enum stage_id stage, struct buf *out)
{
	char name[FILE_NAME_MAX];

	file_name(name, stage, "options");
	return io_read_file(r->dirfd, name, OPTIONS_MAX, out);
}

/* ---- endpoints ---- */

int run_endpoint(struct run *r, char **out)
{
	char *path = socket_path(r, r->stage, r->instance);
	size_t own = strlen(r->path);
	int rc = 0;

	if (strncmp(path, r->path, own) != 0 || path[own] != '/') {
		char *dir = xstrndup(path, (size_t)(strrchr(path, '/') - path));

		rc = make_dir(dir, 0700, 022);
		free(dir);
	}
	if (rc == 0)
		*out = xasprintf(SCHEME "%s", path);
	free(path);
	return rc;
}

int run_announce(struct run *r, const char *endpoint)
{
	char name[FILE_NAME_MAX];

	file_name(name, r->stage, "endpoint");
	return io_replace(r->dirfd, name, endpoint, strlen(endpoint));
}

int run_lookup(struct run *r, enum stage_id stage, char **out)
{
	char name[FILE_NAME_MAX];
	struct buf text = { 0 };
	int rc;

	file_name(name, stage, "endpoint");
	rc = io_read_file(r->dirfd, name, ENDPOINT_FILE_MAX, &text);
	if (rc == 0)
		*out = xstrdup(buf_cstr(&text));
	buf_release(&text);
	return rc;
}

/* ---- the epoch that its commit took ---- */

int run_epoch_write(struct run *r, uint64_t epoch)
{
	return numfile_write(r->dirfd, "epoch", epoch);
}

int run_epoch_read(const struct run *r, uint64_t *epoch)
{
	return numfile_read(r->dirfd, r->path, "epoch", epoch);
}

/* ---- the verdict ---- */

int run_verdict_write(struct run *r, const struct msg *m)
{
	struct buf b = { 0 };
	bool linked;
	int rc;

	BUG_ON(m->type != M_verdict);
	rc = rec_append(&b, m);
	if (rc == 0)
		rc = io_create_once(r->dirfd, "verdict", b.p, b.n, &linked);
	buf_release(&b);
	return rc;
}

int run_verdict_read(struct run *r, struct msg *m, struct msg_arena *a,
		     struct buf *frame)
{
	struct rec_reader rec = { 0 };
	int rc = rec_read_one(&rec, r->dirfd, "verdict", M_verdict, m, a);

	if (rc < 0)
		return rc == -E_NOINPUT ? 0 : rc;
	/* m's slices point into what the reader owned: now the caller's. */
	buf_release(frame);
	*frame = rec.own;
	rec.own = (struct buf){ 0 };
	rec_close(&rec);
	return 1;
}
