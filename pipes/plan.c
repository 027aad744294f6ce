#include "pipes/plan.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/plan_build.h"
#include "pipes/planfile.h"
#include "pipes/stage.h"
#include "pipes/stageconf.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The stage's own state. */
struct planning {
	const struct plan_conf *conf;
	struct m_end end;
};

/* ---- the plan file ---- */

static int go_on(void *arg, const struct m_bucket *b)
{
	(void)b;
	return stage_is_interrupted(arg) ? -E_AGAIN : 0;
}

/* A file is replaced by another name for its new contents: what is no file,
 * as a device, would be gone. */
static int check_target(const char *name)
{
	struct stat st;

	if (stat(name, &st) < 0 || S_ISREG(st.st_mode))
		return 0;
	return log_error(E_USAGE, "-o %s: is there and is no regular file",
			 name);
}

/* 1: another instance was faster. */
static int create_once(struct io_stream *file)
{
	bool linked;
	int rc = io_stream_create_once(file, &linked);

	return rc == -E_AGAIN ? 1 : rc;
}

/* Builds the plan into a file named name.  s: the stage, for which the file
 * must not be there yet, and which may be interrupted; else NULL.
 * Returns as create_once(). */
static int write_plan(const struct plan_conf *conf, int dirfd, const char *name,
		      struct stage *s, struct m_end *end)
{
	struct plan_input in;
	struct io_stream file;
	struct plan_output out = { &file, s ? go_on : NULL, s };
	int rc = plan_input_open(&in, conf, s);

	if (rc < 0)
		return rc;
	/* A run's directory is swept by who opens it. */
	rc = s ? 0 : io_sweep_tmp_of(dirfd, name);
	if (rc >= 0)
		rc = io_stream_open(&file, dirfd, name);
	if (rc < 0)
		goto close_input;
	rc = plan_build(&in, conf, &out, end);
	if (rc < 0)
		io_stream_drop(&file);
	else if (s)
		rc = create_once(&file);
	else
		rc = io_stream_replace(&file);
close_input:
	plan_input_release(&in);
	return rc;
}

static int read_plan(const struct run *r, struct m_end *end)
{
	struct plan p;
	int rc = plan_open(&p, r->dirfd, PLAN_FILE);

	if (rc == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s holds no plan", r->path);
	if (rc < 0)
		return rc;
	*end = p.end;
	plan_close(&p);
	return 0;
}

/* Another instance was faster: fine if it planned the same. */
static int compare_plan(const struct run *r, const struct m_end *ours,
			struct m_end *end)
{
	int rc = read_plan(r, end);

	if (rc == 0 && !digest_eq(&ours->digest, &end->digest))
		return log_error(E_AGAIN, "the run holds another plan");
	return rc;
}

/* ---- the stage ---- */

static int prepare(struct stage *s)
{
	struct planning *p = s->self;
	int dirfd = s->run.dirfd;
	struct m_end ours = { 0 };
	int rc;

	if (faccessat(dirfd, PLAN_FILE, F_OK, 0) == 0)
		return read_plan(&s->run, &p->end);
	rc = write_plan(p->conf, dirfd, PLAN_FILE, s, &ours);
	if (rc > 0)
		return compare_plan(&s->run, &ours, &p->end);
	if (rc < 0)
		return rc;
	p->end = ours;
	events_tell(&s->events, &HAPPENED("planned", .bytes = EV(ours.bytes)));
	return 0;
}

/* The shell keeps it, and says it again whenever the link comes back. */
static int start(struct stage *s)
{
	const struct planning *p = s->self;
	struct msg m = { .type = M_end, .end = p->end };

	return stage_send(s, DOWN, &m);
}

static int peer_up(struct stage *s, enum dir d)
{
	(void)s;
	(void)d;
	return 0;
}

/* What comes up the link is for admit and transfer; plan has said all. */
static int message(struct stage *s, enum dir d, const struct msg *m)
{
	(void)s;
	(void)d;
	(void)m;
	return 0;
}

static bool done_with_up(const struct stage *s)
{
	(void)s;
	return true;
}

static void stop(struct stage *s)
{
	(void)s;
}

static const struct stage_ops ops = {
	.id = STAGE_PLAN,
	.prepare = prepare,
	.start = start,
	.peer_up = peer_up,
	.msg = message,
	.done_with_up = done_with_up,
	.stop = stop,
};

/* Options of the run's first plan included, for one started with --run. */
static int make_conf(struct plan_conf *conf, struct buf *text,
		     struct stage_conf *sc)
{
	int rc;

	/* In a run it may be there again alone: the shell knows. */
	if (!conf->common.run && isatty(STDOUT_FILENO))
		return log_error(E_USAGE, "stdout is a terminal: pipe it to "
					  "weir-admit, or give -o FILE or "
					  "--dry-run");
	rc = stageconf_make(&plan_spec, conf, STAGE_PLAN,
			    &conf->stage_timeout_ms, text, sc);
	if (rc < 0)
		return rc;
	sc->head = true;
	return plan_check_options(conf);
}

static int run_stage(struct plan_conf *conf)
{
	struct planning self = { .conf = conf };
	struct stage stage = { 0 };
	struct stage_conf sc;
	struct buf text = { 0 };
	int rc = make_conf(conf, &text, &sc);

	if (rc < 0)
		rc = stage_fail_early(rc);
	else
		rc = stage_run(&stage, &ops, &sc, &self);
	buf_release(&text);
	return rc;
}

int plan_run(struct plan_conf *conf)
{
	struct m_end end;
	int rc = 0;

	if (conf->out && conf->dry_run)
		rc = plan_check_options(conf);
	else if (conf->dry_run)
		rc = plan_show(conf);
	else if (conf->out && check_target(conf->out) < 0)
		rc = -E_USAGE;
	else if (conf->out)
		rc = write_plan(conf, AT_FDCWD, conf->out, NULL, &end);
	else
		return run_stage(conf);
	return err_exit_code(rc);
}
