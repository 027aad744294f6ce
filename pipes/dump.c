#include "pipes/dump.h"
#include "common/err.h"
#include "common/jsonsax.h"
#include "common/log.h"
#include "pipes/msg.h"
#include "pipes/recfile.h"
#include "pipes/run.h"
#include "pipes/states.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define READER_GONE 1 /* not negative: no failure */
#define LINE_MAX_BYTES (1u << 20)
#define CHUNK 65536u /* bytes read, and written, at once */
#define STDIN "standard input"
#define STDIN_MAX (1u << 30) /* bytes of records: all are held */
/* A stage may end without touching the directory. */
#define FOLLOW_WAKE_MS 500

static const struct opt dump_rows[] = {
	{ .name = "follow",
	  .letter = 'f',
	  OPT_TO_FLAG(struct dump_conf, follow),
	  .help = "of a run directory: go on until the run has ended" },
	{ .name = "parts",
	  OPT_TO_FLAG(struct dump_conf, parts),
	  .help = "of a plan: a line for each tensor, without what shifts, to "
		  "compare two" },
	{ .name = "schema",
	  OPT_TO_FLAG(struct dump_conf, schema),
	  .help = "print the JSON Schema of records" },
	{ .name = "states",
	  OPT_TO_FLAG(struct dump_conf, states),
	  .help = "print the edge tables of all machines" },
	{ .name = "reference",
	  OPT_TO_FLAG(struct dump_conf, reference),
	  .help = "print the reference page of messages and records" },
};

const struct opt_spec dump_spec = {
	.program = "weir-dump",
	.summary = "print plans, runs and records as JSON lines",
	.args = "[FILE|-]...",
	.max_args = UINT32_MAX,
	.opts = dump_rows,
	.nopts = COUNT(dump_rows),
	.common = offsetof(struct dump_conf, common),
};

/* Empties b to stdout. */
static int put(struct buf *b)
{
	size_t done = 0;

	while (done < b->n) {
		ssize_t n = write(STDOUT_FILENO, b->p + done, b->n - done);

		if (n < 0 && errno == EPIPE)
			return READER_GONE;
		if (n < 0 && errno != EINTR)
			return log_errno(E_IO, "write");
		done += n > 0 ? (size_t)n : 0;
	}
	buf_clear(b);
	return 0;
}

/* ---- files of records ---- */

static int put_records(const struct dump_conf *conf, struct rec_reader *r)
{
	struct dump_parts parts = { 0 };
	struct msg_arena a = { 0 };
	struct buf out = { 0 };
	struct msg m;
	int rc, end;

	while ((rc = rec_next(r, &m, &a)) == 1) {
		rc = 0;
		if (conf->parts) {
			rc = dump_parts_add(&parts, &m, &out);
		} else {
			msg_json(&out, &m);
			buf_add(&out, "\n", 1);
		}
		if (rc == 0 && out.n >= CHUNK)
			rc = put(&out);
		if (rc != 0)
			break;
	}
	/* What came before a torn tail is shown as well. */
	end = rc == READER_GONE ? rc : put(&out);
	dump_parts_release(&parts);
	msg_arena_release(&a);
	buf_release(&out);
	return rc < 0 ? rc : end;
}

static int dump_records(const struct dump_conf *conf, const char *path)
{
	struct rec_reader r;
	int rc = rec_open_map(&r, AT_FDCWD, path);

	if (rc < 0)
		return rc;
	rc = put_records(conf, &r);
	rec_close(&r);
	return rc;
}

/* ---- lines of JSON ---- */

struct lines {
	const char *name;
	int fd;
	uint64_t number;    /* of the last line */
	struct buf pending; /* the start of the next one */
};

static int any_event(void *ctx, enum json_event ev, struct slice text)
{
	(void)ctx;
	(void)ev;
	(void)text;
	return 0;
}

static int check_line(const struct lines *l, struct slice line)
{
	struct json j;
	int rc;

	json_begin(&j, LINE_MAX_BYTES, any_event, NULL);
	rc = json_feed(&j, line.p, line.n);
	if (rc == 0)
		rc = json_end(&j);
	if (rc < 0)
		log_error(E_DATA, "%s: line %llu: %s", l->name,
			  (unsigned long long)l->number, json_error(&j));
	json_release(&j);
	return rc;
}

/* Puts the whole lines of what is pending, keeps the rest. */
static int put_lines(struct lines *l)
{
	struct buf out = { 0 };
	size_t from = 0;
	const char *nl;
	int rc = 0, end;

	while (rc == 0 && l->pending.n > from &&
	       (nl = memchr(l->pending.p + from, '\n', l->pending.n - from))) {
		size_t n = (size_t)(nl - l->pending.p) - from;

		l->number++;
		rc = check_line(l, (struct slice){ l->pending.p + from, n });
		if (rc == 0)
			buf_add(&out, l->pending.p + from, n + 1);
		from += n + 1;
	}
	if (from)
		memmove(l->pending.p, l->pending.p + from, l->pending.n - from);
	l->pending.n -= from;
	end = put(&out);
	buf_release(&out);
	return rc < 0 ? rc : end;
}

/* A count, or 0 at the end of the file as it is now. */
static ssize_t read_more(struct lines *l)
{
	ssize_t n;

	do
		n = read(l->fd, buf_reserve(&l->pending, CHUNK), CHUNK);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return log_errno(E_IO, "read %s", l->name);
	l->pending.n += (size_t)n;
	return n;
}

static int pass_lines(struct lines *l)
{
	for (;;) {
		ssize_t n = read_more(l);
		int rc;

		if (n <= 0)
			return (int)n;
		rc = put_lines(l);
		if (rc != 0)
			return rc;
		if (l->pending.n > LINE_MAX_BYTES)
			return log_error(E_DATA,
					 "%s: line %llu is longer than %u "
					 "bytes",
					 l->name,
					 (unsigned long long)l->number + 1,
					 LINE_MAX_BYTES);
	}
}

static int end_lines(struct lines *l, int rc)
{
	if (rc == 0 && l->pending.n)
		rc = log_error(E_DATA, "%s: line %llu has no end", l->name,
			       (unsigned long long)l->number + 1);
	buf_release(&l->pending);
	if (l->fd >= 0)
		close(l->fd);
	return rc;
}

static int dump_lines(const char *path)
{
	struct lines l = { .name = path };

	l.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (l.fd < 0)
		return log_errno(E_IO, "open %s", path);
	return end_lines(&l, pass_lines(&l));
}

/* ---- run directories ---- */

static int pass_events(struct lines *l, int dirfd)
{
	if (l->fd < 0)
		l->fd = openat(dirfd, "events", O_RDONLY | O_CLOEXEC);
	if (l->fd < 0 && errno == ENOENT)
		return 0;
	if (l->fd < 0)
		return log_errno(E_IO, "open events of %s", l->name);
	return pass_lines(l);
}

static bool has_ended(const struct run *r)
{
	if (faccessat(r->dirfd, "verdict", F_OK, 0) < 0)
		return false;
	for (int id = STAGE_PLAN; id < STAGE_N; id++) {
		pid_t pid;

		if (run_is_alive(r, (enum stage_id)id, &pid))
			return false;
	}
	return true;
}

static int wait_for_change(int watch)
{
	struct pollfd p = { .fd = watch, .events = POLLIN };
	char skipped[4096];

	if (poll(&p, 1, FOLLOW_WAKE_MS) < 0 && errno != EINTR)
		return log_errno(E_IO, "poll");
	while (read(watch, skipped, sizeof skipped) > 0)
		;
	return 0;
}

static int follow(struct lines *l, const struct run *r)
{
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	bool ended;
	int rc = 0;

	if (watch < 0 ||
	    inotify_add_watch(watch, r->path,
			      IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
		rc = log_errno(E_IO, "watch %s", r->path);
	while (rc == 0) {
		/* Asked first: what was written before is passed below. */
		ended = has_ended(r);
		rc = pass_events(l, r->dirfd);
		if (rc != 0 || ended)
			break;
		rc = wait_for_change(watch);
	}
	if (watch >= 0)
		close(watch);
	return rc;
}

/* A directory of ours that is no run's: what of it can be printed? */
static int check_run_dir(const char *path)
{
	static const struct {
		const char *has, *is;
	} others[] = {
		{ "slots", "an engine's store: give a file in it, such as "
			   "fence or slots/NUMBER" },
		{ "versions", "a registry: give a file in it, such as ledger, "
			      "open, attention or versions/NUMBER/decision" },
	};

	for (size_t i = 0; i < COUNT(others); i++) {
		char *name = xasprintf("%s/%s", path, others[i].has);
		bool is_it = access(name, F_OK) == 0;

		free(name);
		if (is_it)
			return log_error(E_DATA, "%s is %s", path,
					 others[i].is);
	}
	return 0;
}

static int dump_run_dir(const struct dump_conf *conf, const char *path)
{
	struct lines l = { .name = path, .fd = -1 };
	struct run r;
	int rc = check_run_dir(path);

	if (rc == 0)
		rc = run_open(&r, path, true);
	if (rc < 0)
		return rc;
	if (conf->follow)
		rc = follow(&l, &r);
	else
		rc = pass_events(&l, r.dirfd);
	run_close(&r);
	return end_lines(&l, rc);
}

/* ---- what is it? ---- */

enum what { RECORDS, LINES, NEITHER };

static enum what what_is(struct slice start)
{
	static const struct slice magic = SLICE_INIT(RECFILE_MAGIC);

	if (start.n >= magic.n && memcmp(start.p, magic.p, magic.n) == 0)
		return RECORDS;
	return start.n == 0 || start.p[0] == '{' ? LINES : NEITHER;
}

static int is_neither(const char *name)
{
	return log_error(E_DATA, "%s: neither records of weir nor JSON lines",
			 name);
}

/* Its first bytes. */
static int read_start(const char *path, char *p, size_t n, size_t *got)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t r;

	if (fd < 0)
		return log_errno(E_IO, "open %s", path);
	do
		r = read(fd, p, n);
	while (r < 0 && errno == EINTR);
	close(fd);
	if (r < 0)
		return log_errno(E_IO, "read %s", path);
	*got = (size_t)r;
	return 0;
}

static int dump_file(const struct dump_conf *conf, const char *path)
{
	char start[sizeof RECFILE_MAGIC - 1];
	size_t n = 0;
	int rc = read_start(path, start, sizeof start, &n);

	if (rc < 0)
		return rc;
	switch (what_is((struct slice){ start, n })) {
	case RECORDS:
		return dump_records(conf, path);
	case LINES:
		return dump_lines(path);
	default:
		return is_neither(path);
	}
}

/* ---- standard input ---- */

/* At least n bytes, or all that there are. */
static int read_at_least(struct lines *l, size_t n)
{
	ssize_t got = 1;

	while (l->pending.n < n && got > 0)
		got = read_more(l);
	return got < 0 ? (int)got : 0;
}

static int pass_records(const struct dump_conf *conf, struct lines *l)
{
	struct rec_reader r;
	int rc = read_at_least(l, (size_t)STDIN_MAX + 1);

	if (rc == 0 && l->pending.n > STDIN_MAX)
		rc = log_error(E_DATA, "%s: more than %u bytes of records",
			       l->name, STDIN_MAX);
	if (rc == 0)
		rc = rec_open_take(&r, l->name, &l->pending);
	if (rc < 0)
		return rc;
	rc = put_records(conf, &r);
	rec_close(&r);
	return rc;
}

static int pass_stdin(const struct dump_conf *conf, struct lines *l)
{
	int rc = read_at_least(l, sizeof RECFILE_MAGIC - 1);

	if (rc < 0)
		return rc;
	switch (what_is(buf_slice(&l->pending))) {
	case RECORDS:
		return pass_records(conf, l);
	case LINES:
		rc = put_lines(l);
		return rc == 0 ? pass_lines(l) : rc;
	default:
		return is_neither(l->name);
	}
}

static int dump_stdin(const struct dump_conf *conf)
{
	struct lines l = { .name = STDIN };

	l.fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (l.fd < 0)
		return log_errno(E_IO, "read " STDIN);
	return end_lines(&l, pass_stdin(conf, &l));
}

static int dump_path(const struct dump_conf *conf, const char *path)
{
	struct stat st;

	if (strcmp(path, "-") == 0)
		return dump_stdin(conf);
	if (stat(path, &st) < 0)
		return log_errno(E_IO, "open %s", path);
	if (S_ISDIR(st.st_mode))
		return dump_run_dir(conf, path);
	if (!S_ISREG(st.st_mode))
		return log_error(E_DATA, "%s is no regular file", path);
	return dump_file(conf, path);
}

/* All are tried; the first failure decides. */
static int dump_paths(const struct dump_conf *conf)
{
	const struct opt_list *args = &conf->common.args;
	int first = 0;

	if (args->n == 0 && conf->common.run)
		return dump_path(conf, conf->common.run);
	if (args->n == 0)
		return log_error(E_USAGE, "nothing to print: give a FILE or a "
					  "run directory");
	for (size_t i = 0; i < args->n; i++) {
		int rc = dump_path(conf, args->v[i]);

		if (rc == READER_GONE)
			return rc;
		if (rc < 0 && first == 0)
			first = rc;
	}
	return first;
}

static int dump_page(void (*page)(struct buf *))
{
	struct buf b = { 0 };
	int rc;

	page(&b);
	rc = put(&b);
	buf_release(&b);
	return rc;
}

/* A page is about no file. */
static bool wants_page(const struct dump_conf *conf)
{
	return conf->schema || conf->states || conf->reference;
}

int dump_run(const struct dump_conf *conf)
{
	const struct opt_list *args = &conf->common.args;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	if (wants_page(conf) && args->n > 0)
		rc = log_error(E_USAGE,
			       "unexpected argument \"%s\" beside a page",
			       args->v[0]);
	else if (conf->schema)
		rc = dump_page(msg_schema);
	else if (conf->states)
		rc = dump_page(states_text);
	else if (conf->reference)
		rc = dump_page(msg_reference);
	else
		rc = dump_paths(conf);
	return err_exit_code(rc);
}
