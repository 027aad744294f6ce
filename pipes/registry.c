#include "pipes/registry.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/numfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SMALL_FILE_MAX 256u	  /* bytes of id, lock */
#define ATTENTION_MAX (64u << 20) /* bytes */

void (*registry_step)(const char *what);

static void step(const char *what)
{
	if (registry_step)
		registry_step(what);
}

void reg_rec_release(struct reg_rec *r)
{
	rec_close(&r->rec);
	msg_arena_release(&r->arena);
	*r = (struct reg_rec){ 0 };
}

int registry_default_path(char **out)
{
	const char *state = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");

	if (state && state[0] == '/')
		*out = xasprintf("%s/weir", state);
	else if (home && home[0] == '/')
		*out = xasprintf("%s/.local/state/weir", home);
	else
		return log_error(E_CONFIG, "no place for the registry: give "
					   "--registry, or set HOME or "
					   "XDG_STATE_HOME");
	return 0;
}

/* File systems on which a lock may be forgotten while its holder lives. */
static const struct {
	unsigned long type;
	const char *name;
} unsafe_fs[] = {
	{ 0x6969, "NFS" },	{ 0x517b, "SMB" },    { 0xff534d42, "CIFS" },
	{ 0xfe534d42, "SMB2" }, { 0x564c, "NCP" },    { 0x65735546, "FUSE" },
	{ 0x5346414f, "AFS" },	{ 0x01021997, "9P" },
};

const char *registry_fs_unsafe(long type)
{
	for (size_t i = 0; i < COUNT(unsafe_fs); i++)
		if ((unsigned long)type == unsafe_fs[i].type)
			return unsafe_fs[i].name;
	return NULL;
}

static int check_dir(struct registry *r)
{
	const char *fs;
	struct statfs sf;
	struct stat st;

	if (fstat(r->dirfd, &st) < 0 || fstatfs(r->dirfd, &sf) < 0)
		return log_errno(E_IO, "look at registry %s", r->path);
	if (st.st_uid != geteuid())
		return log_error(E_PERM,
				 "registry %s belongs to user %lu, not to %lu",
				 r->path, (unsigned long)st.st_uid,
				 (unsigned long)geteuid());
	if (st.st_mode & 077)
		return log_error(E_PERM,
				 "registry %s has mode %04o, expected 0700",
				 r->path, (unsigned)(st.st_mode & 07777));
	fs = registry_fs_unsafe((long)sf.f_type);
	if (fs)
		return log_error(E_CONFIG,
				 "registry %s is on %s, which can lose locks; "
				 "put it on a local file system",
				 r->path, fs);
	return 0;
}

static int read_id(struct registry *r)
{
	struct buf b = { 0 };
	int rc = io_read_file(r->dirfd, "id", SMALL_FILE_MAX, &b);

	if (rc < 0)
		goto out;
	if (b.n != REG_ID_LEN + 1 || b.p[REG_ID_LEN] != '\n' ||
	    strspn(buf_cstr(&b), "0123456789abcdef") != REG_ID_LEN) {
		rc = log_error(E_DATA, "registry %s: id is not %d hex digits",
			       r->path, REG_ID_LEN);
		goto out;
	}
	memcpy(r->id, b.p, REG_ID_LEN);
	r->id[REG_ID_LEN] = '\0';
out:
	buf_release(&b);
	return rc;
}

/* Two makers: io_create_once lets one win, both read its id. */
static int make_id(struct registry *r)
{
	char text[REG_ID_LEN + 2];
	unsigned char raw[REG_ID_LEN / 2];
	bool linked = false;
	int rc;

	if (getrandom(raw, sizeof raw, 0) != sizeof raw)
		return log_errno(E_IO, "get random bytes");
	for (size_t i = 0; i < sizeof raw; i++)
		snprintf(text + 2 * i, 3, "%02x", raw[i]);
	text[REG_ID_LEN] = '\n';
	step("id");
	rc = io_create_once(r->dirfd, "id", text, REG_ID_LEN + 1, &linked);
	return rc == -E_AGAIN ? 0 : rc;
}

static int read_epoch(struct registry *r)
{
	uint64_t n;
	int rc = numfile_read(r->dirfd, r->path, "epoch", &n);

	if (rc == 0)
		r->epoch = r->kept_epoch = n;
	return rc;
}

static void init(struct registry *r, const char *path)
{
	*r = (struct registry){ .dirfd = -1, .versions_fd = -1, .lock_fd = -1 };
	r->path = xstrdup(path);
}

/* The parts that must be there already. */
static int attach(struct registry *r)
{
	int rc = read_id(r);

	if (rc < 0)
		return rc;
	rc = io_open_dir(r->dirfd, "versions");
	if (rc < 0)
		return rc;
	r->versions_fd = rc;
	return read_epoch(r);
}

/* The id is there before any run: where only what runs leave is, it was lost,
 * and a new one would be a stranger to all engines. */
static int ensure_id(struct registry *r)
{
	bool was_used = faccessat(r->dirfd, "epoch", F_OK, 0) == 0 ||
			faccessat(r->dirfd, "open", F_OK, 0) == 0;

	if (faccessat(r->dirfd, "id", F_OK, 0) == 0)
		return 0;
	if (was_used)
		return log_error(E_DATA,
				 "registry %s was in use, and its id is gone: "
				 "restore that, or give a fresh directory and "
				 "start its engines with --adopt",
				 r->path);
	return make_id(r);
}

/* A directory that has an id was synced into its parent before it got it. */
static int make_dir(struct registry *r)
{
	int rc;

	r->dirfd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dirfd >= 0 && faccessat(r->dirfd, "id", F_OK, 0) == 0)
		return 0;
	if (r->dirfd >= 0)
		close(r->dirfd);
	r->dirfd = -1;
	rc = io_make_path(r->path, 0700);
	if (rc == 0)
		r->dirfd = rc = io_open_dir(AT_FDCWD, r->path);
	return rc < 0 ? rc : 0;
}

int registry_make(struct registry *r, const char *path)
{
	int rc;

	init(r, path);
	rc = make_dir(r);
	if (rc < 0)
		goto fail;
	rc = check_dir(r);
	if (rc < 0)
		goto fail;
	rc = io_mkdir(r->dirfd, "versions", 0700);
	if (rc < 0)
		goto fail;
	step("versions");
	rc = ensure_id(r);
	if (rc == 0)
		rc = attach(r);
	if (rc == 0)
		return 0;
fail:
	registry_close(r);
	return rc;
}

int registry_look(struct registry *r, const char *path)
{
	int rc = -E_NOINPUT;

	init(r, path);
	r->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* E_NOINPUT would be told again, as of a registry that is not made. */
	if (r->dirfd < 0 && errno != ENOENT)
		rc = log_errno(errno == EACCES ? E_PERM : E_CONFIG,
			       "open registry %s", path);
	if (r->dirfd < 0)
		goto fail;
	rc = check_dir(r);
	if (rc == 0)
		rc = attach(r);
	if (rc == 0)
		return 0;
fail:
	registry_close(r);
	return rc;
}

void registry_close(struct registry *r)
{
	registry_unlock(r);
	if (r->versions_fd >= 0)
		close(r->versions_fd);
	if (r->dirfd >= 0)
		close(r->dirfd);
	free(r->path);
	*r = (struct registry){ .dirfd = -1, .versions_fd = -1, .lock_fd = -1 };
}

static int lock_take(const struct registry *r, int fd)
{
	if (fd < 0)
		return log_errno(E_IO, "open the lock of registry %s", r->path);
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK || errno == EINTR)
		return -E_AGAIN;
	return log_errno(E_IO, "lock registry %s", r->path);
}

static int lock_open(struct registry *r, int *out)
{
	int fd = openat(r->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int rc = lock_take(r, fd);

	if (rc == 0)
		*out = fd;
	else if (fd >= 0)
		close(fd);
	return rc;
}

/* For people and for the message of who comes second; not for decisions. */
static int lock_sign(int fd, const char *run)
{
	char text[SMALL_FILE_MAX], start[32] = "";
	time_t now = time(NULL);
	struct tm tm;
	int n;

	if (gmtime_r(&now, &tm))
		strftime(start, sizeof start, "%Y-%m-%dT%H:%M:%SZ", &tm);
	n = snprintf(text, sizeof text, "pid %ld\nstart %s\nrun %.64s\n",
		     (long)getpid(), start, run);
	if (ftruncate(fd, 0) < 0)
		return log_errno(E_IO, "write the lock's text");
	n = io_pwrite_full(fd, text, (size_t)n, 0);
	return n < 0 ? n : 0;
}

/* The size of the ledger up to its last newline. */
static int ledger_whole(int fd, off_t *whole, off_t *size)
{
	char tail[REG_LINE_MAX];
	off_t from;
	int n;

	*size = lseek(fd, 0, SEEK_END);
	if (*size < 0)
		return log_errno(E_IO, "seek in the ledger");
	from = *size > (off_t)sizeof tail ? *size - (off_t)sizeof tail : 0;
	n = io_pread_full(fd, tail, (size_t)(*size - from), from);
	if (n < 0)
		return n;
	while (n > 0 && tail[n - 1] != '\n')
		n--;
	*whole = from + n;
	return 0;
}

static int ledger_open(struct registry *r)
{
	int fd = openat(r->dirfd, "ledger",
			O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return log_errno(E_IO, "open the ledger of %s", r->path);
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return log_error(E_DATA, "%s/ledger is not a regular file", r->path);
}

/* A line that was being written when its writer died is no event. */
static void ledger_sync(struct registry *r)
{
	int fd = r->has_told ? ledger_open(r) : -1;

	r->has_told = false;
	if (fd < 0)
		return;
	if (fsync(fd) < 0)
		log_warn("fsync the ledger of %s: %s", r->path,
			 strerror(errno));
	close(fd);
}

static int ledger_repair(struct registry *r)
{
	int fd = ledger_open(r), rc;
	off_t whole, size;

	if (fd < 0)
		return fd;
	rc = ledger_whole(fd, &whole, &size);
	if (rc == 0 && whole < size) {
		log_warn("registry %s: torn last line of the ledger cut",
			 r->path);
		if (ftruncate(fd, whole) < 0 || fsync(fd) < 0)
			rc = log_errno(E_IO, "repair the ledger");
	}
	close(fd);
	return rc;
}

/* Of a commit that was killed while it wrote receipts or decision; its epoch
 * is not kept elsewhere yet. */
static int take_open(struct registry *r)
{
	struct reg_rec o = { 0 };
	int rc = registry_open_read(r, &o);

	if (rc > 0 && o.m.open.epoch > r->epoch)
		r->epoch = o.m.open.epoch;
	if (rc > 0)
		rc = registry_version_sweep(r, o.m.open.version);
	reg_rec_release(&o);
	return rc;
}

int registry_lock(struct registry *r, const char *run)
{
	int rc = lock_open(r, &r->lock_fd);

	if (rc < 0)
		return rc;
	rc = lock_sign(r->lock_fd, run);
	if (rc == 0)
		rc = io_sweep_tmp(r->dirfd);
	if (rc >= 0)
		rc = read_epoch(r);
	if (rc == 0)
		rc = take_open(r);
	if (rc >= 0)
		rc = ledger_repair(r);
	if (rc == 0)
		rc = registry_repair_current(r);
	if (rc < 0)
		registry_unlock(r);
	return rc;
}

void registry_unlock(struct registry *r)
{
	if (r->lock_fd < 0)
		return;
	ledger_sync(r);
	/* The text is only read while somebody holds the lock. */
	close(r->lock_fd);
	r->lock_fd = -1;
	r->knows_highest = false;
}

int registry_is_free(const struct registry *r)
{
	int fd = openat(r->dirfd, "lock", O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0 && errno == ENOENT)
		return 1;
	rc = lock_take(r, fd);
	if (fd >= 0)
		close(fd);
	return rc == 0 ? 1 : rc == -E_AGAIN ? 0 : rc;
}

void registry_holder(struct registry *r, struct reg_holder *h)
{
	struct buf b = { 0 };

	*h = (struct reg_holder){ 0 };
	if (io_read_file(r->dirfd, "lock", SMALL_FILE_MAX, &b) == 0)
		sscanf(buf_cstr(&b), "pid %ld\nstart %31s\nrun %64s", &h->pid,
		       h->start, h->run);
	buf_release(&b);
}

/* 1 and the record, 0 if there is no such file. */
static int read_one(int dirfd, const char *name, enum msg_type type,
		    struct reg_rec *out)
{
	struct reg_rec r = { 0 };
	int rc;

	/* Not looked for first: another run may end, and remove it, now. */
	rc = rec_read_one(&r.rec, dirfd, name, type, &r.m, &r.arena);
	if (rc < 0) {
		msg_arena_release(&r.arena);
		return rc == -E_NOINPUT ? 0 : rc;
	}
	*out = r;
	return 1;
}

int registry_open_read(struct registry *r, struct reg_rec *out)
{
	return read_one(r->dirfd, "open", M_open, out);
}

static int keep_epoch(struct registry *r)
{
	int rc;

	if (r->epoch <= r->kept_epoch)
		return 0;
	rc = numfile_write(r->dirfd, "epoch", r->epoch);
	if (rc == 0)
		r->kept_epoch = r->epoch;
	return rc;
}

static int put_record(int dirfd, const char *name, const struct msg *m)
{
	struct buf b = { 0 };
	int rc = rec_append(&b, m);

	if (rc == 0)
		rc = io_replace(dirfd, name, b.p, b.n);
	buf_release(&b);
	return rc;
}

int registry_open_write(struct registry *r, const struct msg *open)
{
	int rc;

	BUG_ON(r->lock_fd < 0);
	rc = put_record(r->dirfd, "open", open);
	step("open");
	if (rc == 0 && open->open.epoch > r->epoch)
		r->epoch = open->open.epoch;
	return rc;
}

static int remove_durably(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) < 0) {
		if (errno == ENOENT)
			return 0;
		return log_errno(E_IO, "remove %s", name);
	}
	return io_fsync_dir(dirfd);
}

int registry_open_remove(struct registry *r)
{
	int rc;

	ledger_sync(r);
	rc = keep_epoch(r);
	step("epoch");
	if (rc < 0)
		return rc;
	step("close");
	return remove_durably(r->dirfd, "open");
}

int registry_attention_read(struct registry *r, struct reg_rec *out)
{
	struct reg_rec a = { 0 };
	int rc = rec_open(&a.rec, r->dirfd, "attention", ATTENTION_MAX);

	if (rc < 0)
		return rc == -E_NOINPUT ? 0 : rc;
	*out = a;
	return 1;
}

int registry_attention_write(struct registry *r, struct slice all)
{
	BUG_ON(r->lock_fd < 0);
	step("attention");
	if (all.n == 0)
		return remove_durably(r->dirfd, "attention");
	return io_replace(r->dirfd, "attention", all.p, all.n);
}

static int ledger_line(struct buf *b, const struct reg_event *e)
{
	struct jsonw j;

	jsonw_begin(&j, b, REG_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_i64(&j, "wall_ms", clock_wall_ms());
	jsonw_str(&j, "event", e->event);
	if (e->version)
		jsonw_u64(&j, "version", e->version);
	if (e->content)
		jsonw_hex(&j, "content", e->content->b, DIGEST_LEN);
	if (e->engine)
		jsonw_str(&j, "engine", e->engine);
	if (e->run)
		jsonw_str(&j, "run", e->run);
	if (e->epoch)
		jsonw_u64(&j, "epoch", e->epoch);
	if (e->cause)
		jsonw_str(&j, "cause", e->cause);
	jsonw_end(&j);
	return jsonw_finish(&j);
}

/* All of it, or nothing that a later line would be joined to. */
static int ledger_append(struct registry *r, struct slice line)
{
	int fd = ledger_open(r), rc;
	off_t before;

	if (fd < 0)
		return fd;
	before = lseek(fd, 0, SEEK_END);
	rc = io_write_full(fd, line.p, line.n);
	if (rc < 0 && ftruncate(fd, before) < 0)
		log_debug("cut the ledger: %s", strerror(errno));
	close(fd);
	return rc;
}

void registry_ledger(struct registry *r, const struct reg_event *e)
{
	struct buf b = { 0 };
	int was = log_quiet_thread(1), rc = ledger_line(&b, e);

	if (rc == 0)
		rc = ledger_append(r, buf_slice(&b));
	log_quiet_thread(was);
	buf_release(&b);
	if (rc < 0 && !r->has_missed)
		log_warn("%s/ledger lacks \"%s\", and may lack what follows: "
			 "%s",
			 r->path, e->event, log_cause());
	r->has_missed = r->has_missed || rc < 0;
	r->has_told = true;
	step("ledger");
}

int registry_ledger_tail(struct registry *r, size_t max, struct buf *out)
{
	int fd = openat(r->dirfd, "ledger", O_RDONLY | O_CLOEXEC), n = 0;
	off_t whole, size, from;
	char *text, *first;
	int rc;

	if (fd < 0)
		return 0;
	rc = ledger_whole(fd, &whole, &size);
	from = rc == 0 && whole > (off_t)max ? whole - (off_t)max : 0;
	text = xmalloc(max);
	if (rc == 0)
		rc = n = io_pread_full(fd, text, (size_t)(whole - from), from);
	close(fd);
	/* Cut in the middle of a line, it begins with the next one. */
	first = rc > 0 && from ? memchr(text, '\n', (size_t)n) : text;
	if (first && rc > 0) {
		first += from > 0;
		buf_add(out, first, (size_t)(n - (first - text)));
	}
	free(text);
	return rc < 0 ? rc : 0;
}

int registry_ledger_last(struct registry *r, struct buf *out)
{
	struct buf tail = { 0 };
	int rc = registry_ledger_tail(r, REG_LINE_MAX + 1, &tail);
	size_t n = tail.n, from;

	if (n > 0) {
		from = --n; /* without the newline */
		while (from > 0 && tail.p[from - 1] != '\n')
			from--;
		buf_add(out, tail.p + from, n - from);
	}
	buf_release(&tail);
	return rc < 0 ? rc : n > 0;
}
