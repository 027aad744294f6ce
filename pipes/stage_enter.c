/* How a stage comes into its run: hand-off line, run directory, options,
 * instance; and whether that run has ended already. */
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/stage_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AWAIT_MS 10 /* how often the run directory is looked at */
#define LINE_WAIT_MS (24 * 3600 * (int64_t)1000) /* a plan may take hours */

static void on_line(void *arg)
{
	struct stage *s = arg;
	struct buf *b = &s->priv->line;
	ssize_t n =
		read(STDIN_FILENO, buf_reserve(b, HANDOFF_MAX), HANDOFF_MAX);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	b->n += n > 0 ? (size_t)n : 0;
	if (n <= 0 || memchr(b->p, '\n', b->n) || b->n >= HANDOFF_MAX)
		loop_stop(s->loop, 0);
}

static void on_line_late(void *arg)
{
	struct stage *s = arg;

	loop_stop(s->loop, log_error(E_AGAIN, "no hand-off line on stdin"));
}

/* By hand nobody mends it; a supervisor starts both stages again. */
static int no_line(const struct stage *s)
{
	static const char cause[] = "stdin ended without a hand-off line: the "
				    "stage before has died";

	if (s->priv->supervisor_fd < 0)
		return log_error(E_PROTO, "%s", cause);
	log_info("%s", cause);
	log_adopt_cause(E_AGAIN, cause);
	return -E_AGAIN;
}

/* Waits for the line; a signal or the supervisor's end stops it as well. */
static int read_line(struct stage *s, struct slice *line)
{
	struct stage_priv *p = s->priv;
	struct buf *b = &p->line;
	const char *end;
	int rc;

	if (isatty(STDIN_FILENO))
		return log_error(E_USAGE, "stdin is a terminal: pipe the stage "
					  "before into this one, or use --run");
	rc = sock_warm();
	if (rc < 0)
		return rc;
	p->wait = (struct loop_timer){ .fn = on_line_late, .arg = s };
	loop_arm(s->loop, &p->wait, LINE_WAIT_MS);
	loop_add_fd(s->loop, STDIN_FILENO, on_line, s);
	rc = loop_run(s->loop);
	loop_del_fd(s->loop, STDIN_FILENO);
	loop_disarm(s->loop, &p->wait);
	if (rc != 0) {
		p->code = rc;
		return rc < 0 ? rc : STAGE_ENDED;
	}
	end = b->n ? memchr(b->p, '\n', b->n) : NULL;
	if (!end && b->n < HANDOFF_MAX)
		return no_line(s);
	*line = (struct slice){ b->p, end ? (size_t)(end - b->p) : b->n };
	return 0;
}

static int read_handoff(struct stage *s)
{
	struct stage_priv *p = s->priv;
	struct slice line;
	int rc = read_line(s, &line);

	if (rc == 0)
		rc = handoff_parse(&p->handoff, line);
	if (rc != 0 || p->handoff.kind == HANDOFF_LINK)
		return rc;
	log_info("the stage before has ended: %s", p->handoff.cause);
	log_adopt_cause(E_AGAIN, p->handoff.cause);
	p->code = p->handoff.code;
	return STAGE_ENDED;
}

static bool stdin_is_pipe(void)
{
	struct stat st;

	return fstat(STDIN_FILENO, &st) == 0 &&
	       (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* Are we, or is the stage before, in that run already?  Then it can be entered
 * as it is. */
static bool is_under_way(const struct stage *s)
{
	char *endpoint = NULL;
	struct run r;
	pid_t pid = 0;

	if (access(s->conf->run, F_OK) < 0 ||
	    run_open(&r, s->conf->run, true) < 0)
		return false;
	run_is_alive(&r, s->ops->id, &pid);
	if (pid == 0)
		run_lookup(&r, stage_neighbour(s, UP), &endpoint);
	free(endpoint);
	run_close(&r);
	return pid != 0 || endpoint;
}

/* WEIR_RUN may name the run of a whole pipeline: a stage that is not started
 * again waits for its line, as without it. */
static bool needs_line(const struct stage *s)
{
	if (!s->priv->has[UP])
		return false;
	return !s->conf->run || (stdin_is_pipe() && !is_under_way(s));
}

/* Its line would end as a refused hello, which tells nobody what to do. */
static int check_sender(struct stage *s)
{
	const char *line = s->priv->handoff.endpoint;
	enum stage_id before = stage_neighbour(s, UP);

	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		char *endpoint = NULL;
		bool is_its;

		if (id == before || run_lookup(&s->run, id, &endpoint) < 0)
			continue;
		is_its = strcmp(endpoint, line) == 0;
		free(endpoint);
		if (is_its)
			return log_error(
				E_USAGE,
				"the stage before is weir-%s, expected "
				"weir-%s: weir-plan | weir-admit | "
				"weir-transfer | weir-commit",
				stage_name(id), stage_name(before));
	}
	return 0;
}

static int open_run(struct stage *s)
{
	struct stage_priv *p = s->priv;
	const char *path = s->conf->run, *line = p->handoff.run;
	int rc = 0;

	if (needs_line(s))
		rc = read_handoff(s);
	if (rc == 0)
		rc = run_open(&s->run, path || !p->has[UP] ? path : line,
			      p->has[UP]);
	if (rc == 0 && *line && strcmp(line, s->run.path))
		return log_error(E_USAGE,
				 "--run %s, but the stage before is "
				 "in run %s",
				 s->run.path, line);
	return rc == 0 && *line ? check_sender(s) : rc;
}

/* Options before the instance: a start with wrong ones must not fence off
 * the one that runs. */
static int enter_run(struct stage *s)
{
	int rc = 0;

	s->run.stage = s->ops->id;
	if (s->conf->options)
		rc = run_options(&s->run, s->conf->options);
	if (rc == 0 && s->priv->has[DOWN] && isatty(handoff_stdout()) &&
	    !stage_was_there(s, DOWN))
		rc = log_error(E_USAGE,
			       "stdout is a terminal: pipe it into weir-%s",
			       stage_name(stage_neighbour(s, DOWN)));
	if (rc == 0)
		rc = run_enter(&s->run, s->ops->id);
	if (rc == 0)
		/* A supervisor reads RUN/events itself. */
		rc = events_open(&s->events, s->run.dirfd, s->ops->id,
				 s->run.instance,
				 s->conf->json && s->priv->supervisor_fd < 0);
	if (rc == 0 && s->run.instance > 1)
		events_tell(&s->events, &HAPPENED("restarted"));
	return rc;
}

static int old_verdict(struct stage *s)
{
	struct msg_arena arena = { 0 };
	struct buf frame = { 0 };
	struct msg m;
	int rc = run_verdict_read(&s->run, &m, &arena, &frame);

	if (rc > 0) {
		char *cause = xstrndup(m.verdict.cause.p, m.verdict.cause.n);

		log_warn("run %s has ended before this start%s%s", s->run.name,
			 *cause ? ": " : "", cause);
		log_adopt_cause(E_AGAIN, cause);
		free(cause);
		s->priv->code = m.verdict.exit;
		rc = STAGE_ENDED;
	}
	msg_arena_release(&arena);
	buf_release(&frame);
	return rc;
}

static bool is_there(const struct stage *s, const char *name)
{
	return faccessat(s->run.dirfd, name, F_OK, 0) == 0;
}

static void on_await(void *arg)
{
	struct stage *s = arg;
	struct stage_priv *p = s->priv;
	int64_t now = clock_mono_ms();
	pid_t pid;

	if (run_is_alive(&s->run, STAGE_PLAN, &pid))
		p->plan_seen_ms = now;
	if (is_there(s, p->awaited) || is_there(s, "verdict") ||
	    now - p->plan_seen_ms >= (int64_t)s->conf->stage_timeout_ms)
		loop_stop(s->loop, 0);
	else
		loop_arm(s->loop, &p->wait, AWAIT_MS);
}

int stage_await(struct stage *s, const char *name)
{
	struct stage_priv *p = s->priv;
	int rc;

	if (!s->conf->run || is_there(s, name))
		return 0;
	p->awaited = name;
	p->plan_seen_ms = clock_mono_ms();
	p->wait = (struct loop_timer){ .fn = on_await, .arg = s };
	loop_arm(s->loop, &p->wait, AWAIT_MS);
	rc = loop_run(s->loop);
	loop_disarm(s->loop, &p->wait);
	if (rc == 0)
		return old_verdict(s);
	p->code = rc;
	return rc < 0 ? rc : STAGE_ENDED;
}

int stage_enter(struct stage *s)
{
	int rc = open_run(s);

	if (rc == 0)
		rc = enter_run(s);
	return rc != 0 ? rc : old_verdict(s);
}
