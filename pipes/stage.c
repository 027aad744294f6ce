#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/units.h"
#include "pipes/stage_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define TICK_MAX_MS 200
#define TICK_MIN_MS 10
#define SUPERVISOR_FD "WEIR_SUPERVISOR_FD"
#define GRACE_MS 4000	/* after the supervisor's end */
#define GRACE_ALARM_S 5 /* the same, if even the loop is stuck */

static int64_t timeout_of(const struct stage *s, enum dir d)
{
	int64_t ms = (int64_t)s->conf->stage_timeout_ms;

	return d == UP ? ms : 2 * ms;
}

/* ---- signals ---- */

static void end_at_once(struct stage *s, int signo)
{
	struct stage_priv *p = s->priv;

	if (p->phase == PH_ENDING)
		stage_leave(s, p->code);
	else if (p->started && s->ops->signal_again)
		s->ops->signal_again(s);
	else
		stage_leave(s, 128 + signo);
}

static void ask_to_end(struct stage *s, int signo)
{
	struct stage_priv *p = s->priv;

	if (p->phase == PH_EARLY || p->signalled) {
		end_at_once(s, signo);
		return;
	}
	p->signalled = true;
	if (p->phase == PH_ENDING)
		return;
	if (s->ops->signal)
		s->ops->signal(s, signo);
	else
		stage_fail_signal(s, signo);
}

static void on_signal(int signo, void *arg)
{
	struct stage *s = arg;

	if (signo != SIGCHLD && signo != SIGIO)
		ask_to_end(s, signo);
	else if (s->priv->started && s->ops->wakeup)
		s->ops->wakeup(s, signo);
}

static void on_grace(void *arg)
{
	log_error(E_AGAIN, "the supervisor is gone: outcome unknown");
	stage_leave(arg, err_exit_code(-E_AGAIN));
}

/* The death pipe: nothing ever comes through it but its end. */
static void on_supervisor(void *arg)
{
	struct stage *s = arg;
	struct stage_priv *p = s->priv;
	char c;
	ssize_t n = read(p->supervisor_fd, &c, 1);

	if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
		return;
	loop_del_fd(s->loop, p->supervisor_fd);
	alarm(GRACE_ALARM_S);
	p->grace.fn = on_grace;
	p->grace.arg = s;
	loop_arm(s->loop, &p->grace, GRACE_MS);
	if (!p->signalled)
		ask_to_end(s, SIGTERM);
}

static int watch_supervisor(struct stage *s)
{
	const char *text = getenv(SUPERVISOR_FD);
	int fd;

	s->priv->supervisor_fd = -1;
	if (!text)
		return 0;
	fd = atoi(text);
	if (fd <= STDERR_FILENO || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return log_error(E_CONFIG, SUPERVISOR_FD "=%s: no descriptor",
				 text);
	s->priv->supervisor_fd = fd;
	loop_add_fd(s->loop, fd, on_supervisor, s);
	return 0;
}

bool stage_is_interrupted(const struct stage *s)
{
	struct pollfd p = { s->priv->supervisor_fd, POLLIN, 0 };
	sigset_t set;

	sigpending(&set);
	return sigismember(&set, SIGINT) || sigismember(&set, SIGTERM) ||
	       sigismember(&set, SIGHUP) || poll(&p, 1, 0) > 0;
}

/* ---- before the links ---- */

static int prepare(struct stage *s)
{
	int rc = s->ops->prepare ? s->ops->prepare(s) : 0;

	if (rc < 0 && stage_is_interrupted(s)) {
		s->priv->code = loop_run(s->loop);
		return STAGE_ENDED;
	}
	return rc;
}

/* ---- what goes on around us ---- */

static void dial(struct stage *s, char *endpoint_take)
{
	struct stage_priv *p = s->priv;
	int rc;

	free(p->endpoint);
	p->endpoint = endpoint_take;
	log_debug("dial %s", endpoint_take);
	rc = link_dial(&p->link[UP], endpoint_take);
	if (rc < 0)
		stage_fail(s, rc, ID_NONE, ID_NONE);
}

static void look_for_upstream(struct stage *s)
{
	struct stage_priv *p = s->priv;
	char *endpoint;

	if (!p->has[UP] || p->phase != PH_RUNNING ||
	    run_lookup(&s->run, stage_neighbour(s, UP), &endpoint) < 0)
		return;
	if (p->endpoint && !strcmp(p->endpoint, endpoint))
		free(endpoint);
	else
		dial(s, endpoint);
}

static int fenced_off(const struct stage *s)
{
	return log_error(E_FENCED,
			 "instance %u of %s is fenced off: a newer one runs",
			 s->run.instance, log_name());
}

/* An older instance that was stopped before it announced itself does so when
 * it goes on, over our name; then it is fenced off, and nobody would dial us.
 */
static void announce_again(struct stage *s)
{
	const char *own = s->priv->announced;
	char *now = NULL;

	if (!own)
		return;
	if (run_lookup(&s->run, s->ops->id, &now) == 0 && strcmp(now, own) != 0)
		run_announce(&s->run, own);
	free(now);
}

/* The facts on disk: are we the newest, is there a verdict, has upstream
 * started again? */
static void look(struct stage *s)
{
	if (s->priv->left)
		return;
	if (run_is_superseded(&s->run)) {
		stage_leave(s, err_exit_code(fenced_off(s)));
		return;
	}
	announce_again(s);
	stage_look_for_verdict(s);
	look_for_upstream(s);
}

static void on_inotify(void *arg)
{
	struct stage *s = arg;
	char events[4096];

	while (read(s->priv->inotify_fd, events, sizeof events) > 0)
		;
	look(s);
}

/* Without inotify (its instances are few) the tick sees it later. */
static void watch_run(struct stage *s)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd >= 0 &&
	    inotify_add_watch(fd, s->run.path, IN_CREATE | IN_MOVED_TO) < 0) {
		close(fd);
		fd = -1;
	}
	s->priv->inotify_fd = fd;
	if (fd < 0)
		log_debug("inotify: %s", strerror(errno));
	else
		loop_add_fd(s->loop, fd, on_inotify, s);
}

static bool is_lost(const struct stage *s, enum dir d)
{
	const struct stage_priv *p = s->priv;

	return p->has[d] && !s->up[d] && p->phase == PH_RUNNING && !p->left &&
	       clock_mono_ms() - p->lost_since[d] >= timeout_of(s, d);
}

static void judge_upstream(struct stage *s)
{
	struct stage_priv *p = s->priv;
	char time[UNITS_MAX];

	if (p->up_failed || !is_lost(s, UP) || s->ops->done_with_up(s))
		return;
	p->up_failed = true;
	stage_fail(s,
		   log_error(E_AGAIN,
			     "weir-%s at %s is gone, and no new one in "
			     "%s",
			     stage_name(stage_neighbour(s, UP)),
			     p->endpoint ? p->endpoint : "no endpoint",
			     units_time(timeout_of(s, UP), time)),
		   ID_NONE, ID_NONE);
}

static void judge_downstream(struct stage *s)
{
	const char *name = stage_name(stage_neighbour(s, DOWN));
	char time[UNITS_MAX];

	if (!is_lost(s, DOWN))
		return;
	if (stage_nothing_opened(s))
		stage_fail(s,
			   log_error(E_AGAIN, "no weir-%s has come in %s", name,
				     units_time(timeout_of(s, DOWN), time)),
			   ID_NONE, ID_NONE);
	else
		stage_give_up(
			s,
			err_exit_code(log_error(
				E_AGAIN,
				"weir-%s is gone, and no new one in "
				"%s: outcome unknown, ask weir "
				"status",
				name, units_time(timeout_of(s, DOWN), time))));
}

static void arm_tick(struct stage *s)
{
	int64_t ms = (int64_t)s->conf->stage_timeout_ms / 8;

	if (ms > TICK_MAX_MS)
		ms = TICK_MAX_MS;
	if (ms < TICK_MIN_MS)
		ms = TICK_MIN_MS;
	loop_arm(s->loop, &s->priv->tick, ms);
	s->priv->tick_due = s->priv->tick.due_ms;
}

/* We were stopped for long (TM-02): silence was ours, not theirs. */
static void forgive(struct stage *s)
{
	for (int d = UP; d <= DOWN; d++) {
		link_forgive(&s->priv->link[d]);
		s->priv->lost_since[d] = clock_mono_ms();
	}
}

static void on_tick(void *arg)
{
	struct stage *s = arg;
	struct stage_priv *p = s->priv;
	int64_t late = clock_mono_ms() - p->tick_due;

	look(s);
	if (p->left)
		return;
	if (late >= (int64_t)s->conf->stage_timeout_ms / 2)
		forgive(s);
	link_tick(&p->link[UP]);
	link_tick(&p->link[DOWN]);
	judge_upstream(s);
	judge_downstream(s);
	arm_tick(s);
}

/* ---- the pipes, once the lines have gone through ---- */

static void on_stdin(void *arg)
{
	struct stage *s = arg;
	char junk[256];
	ssize_t n = read(STDIN_FILENO, junk, sizeof junk);

	if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
		return;
	loop_del_fd(s->loop, STDIN_FILENO);
	look(s);
}

/* `weir-transfer | true`: whoever read our line has never entered the run,
 * and nobody is there to start it again. */
static void judge_reader(struct stage *s)
{
	struct stage_priv *p = s->priv;

	if (p->phase != PH_RUNNING || p->ever_up[DOWN] ||
	    p->supervisor_fd >= 0 || stage_was_there(s, DOWN))
		return;
	stage_fail(s,
		   log_error(E_AGAIN,
			     "nobody reads the hand-off: weir-%s did not "
			     "start; what it said tells why",
			     stage_name(stage_neighbour(s, DOWN))),
		   ID_NONE, ID_NONE);
}

/* Only its hang-up is polled for: nothing is ever read here. */
static void on_stdout(void *arg)
{
	struct stage *s = arg;

	loop_del_fd(s->loop, handoff_stdout());
	/* Open for reading as well, it tells of our own line. */
	if (handoff_has_hung_up())
		judge_reader(s);
}

static int hand_off(struct stage *s, const char *endpoint)
{
	int rc = handoff_put_link(s->run.path, endpoint);

	if (rc == -E_UNAVAIL) {
		s->priv->reader_gone = true;
		return 0;
	}
	if (rc == 0 && handoff_is_pipe())
		loop_add_fd(s->loop, handoff_stdout(), on_stdout, s);
	return rc;
}

/* ---- links ---- */

static void make_link(struct stage *s, enum dir d)
{
	s->priv->lost_since[d] = clock_mono_ms();
	s->priv->link[d] = (struct link){
		.dir = d,
		.loop = s->loop,
		.ops = &stage_link_ops,
		.arg = s,
		.hello = &s->priv->hello,
		.silence_ms = (int64_t)s->conf->stage_timeout_ms,
	};
}

static int listen_down(struct stage *s)
{
	char *endpoint;
	int rc = run_endpoint(&s->run, &endpoint);

	if (rc < 0)
		return rc;
	rc = link_listen(&s->priv->link[DOWN], endpoint);
	if (rc == 0)
		rc = run_announce(&s->run, endpoint);
	if (rc == 0)
		rc = hand_off(s, endpoint);
	s->priv->announced = endpoint;
	return rc;
}

static void dial_up(struct stage *s)
{
	const char *from_line = s->priv->handoff.endpoint;

	look_for_upstream(s);
	if (!s->priv->endpoint && *from_line)
		dial(s, xstrdup(from_line));
	if (*from_line)
		loop_add_fd(s->loop, STDIN_FILENO, on_stdin, s);
}

static int connect_links(struct stage *s)
{
	struct stage_priv *p = s->priv;
	int rc = 0;

	p->hello = (struct m_hello){
		.table = msg_table_hash(),
		.build = SLICE(PACKAGE_VERSION),
		.run = slice_of(s->run.name),
		.stage = (uint8_t)s->ops->id,
		.instance = s->run.instance,
	};
	p->phase = PH_RUNNING;
	watch_run(s);
	make_link(s, UP);
	make_link(s, DOWN);
	if (p->has[UP])
		dial_up(s);
	if (p->has[DOWN])
		rc = listen_down(s);
	return rc;
}

/* ---- the life of a stage ---- */

static int set_up(struct stage *s)
{
	int rc = handoff_stdout();

	s->loop = loop_new();
	if (rc >= 0)
		rc = loop_signals(s->loop, on_signal, s);
	if (rc >= 0)
		rc = watch_supervisor(s);
	return rc < 0 ? rc : 0;
}

static int begin(struct stage *s)
{
	static int (*const step[])(struct stage *) = {
		set_up,
		stage_enter,
		prepare,
		connect_links,
	};

	for (size_t i = 0; i < COUNT(step); i++) {
		int rc = step[i](s);

		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Ended before it began: the next stage and restarts must know.  Not of one
 * that a newer one replaces: the run is that one's. */
static int end_early(struct stage *s, int rc)
{
	struct stage_priv *p = s->priv;
	bool entered = s->run.instance > 0;
	bool replaced = rc < 0 && entered && run_is_superseded(&s->run);

	if (replaced)
		rc = fenced_off(s);
	if (rc < 0)
		p->code = err_exit_code(rc);
	if (entered && !replaced && stage_nothing_opened(s))
		stage_end_early(s, p->code);
	if (p->has[DOWN])
		handoff_put_fail(p->code, log_cause());
	return p->code;
}

static int live(struct stage *s)
{
	struct stage_priv *p = s->priv;
	int rc;

	if (p->phase == PH_RUNNING) {
		p->started = true;
		rc = s->ops->start(s);
		if (rc < 0)
			stage_fail(s, rc, ID_NONE, ID_NONE);
	}
	if (p->reader_gone)
		judge_reader(s);
	p->tick.fn = on_tick;
	p->tick.arg = s;
	arm_tick(s);
	rc = loop_run(s->loop);
	stage_let_go(s);
	return rc < 0 ? err_exit_code(rc) : rc;
}

static void release(struct stage *s)
{
	struct stage_priv *p = s->priv;

	for (int d = UP; d <= DOWN; d++) {
		link_close(&p->link[d]);
		facts_release(&p->facts[d]);
	}
	if (p->inotify_fd >= 0)
		close(p->inotify_fd);
	events_close(&s->events);
	run_leave(&s->run);
	run_close(&s->run);
	loop_free(s->loop);
	sock_end();
	buf_release(&p->line);
	free(p->endpoint);
	free(p->announced);
	free(p);
	s->priv = NULL;
}

int stage_run(struct stage *s, const struct stage_ops *ops,
	      const struct stage_conf *conf, void *self)
{
	struct stage_priv *p = xcalloc(1, sizeof *p);
	int rc;

	*s = (struct stage){ .ops = ops, .conf = conf, .self = self };
	s->run = (struct run){ .dirfd = -1, .lock_fd = -1 };
	s->events.fd = p->inotify_fd = p->supervisor_fd = -1;
	s->priv = p;
	p->has[UP] = ops->id != STAGE_PLAN && !conf->head;
	p->has[DOWN] = ops->id != STAGE_COMMIT;
	rc = begin(s);
	rc = rc == 0 ? live(s) : end_early(s, rc);
	release(s);
	return rc;
}

int stage_fail_early(int rc)
{
	handoff_put_fail(err_exit_code(rc), log_cause());
	return err_exit_code(rc);
}

int stage_stdout(void)
{
	return handoff_stdout();
}
