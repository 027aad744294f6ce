#include "push.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/fds.h"
#include "common/io.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/opt_forward.h"
#include "common/proc.h"
#include "pipes/push_show.h"
#include "pipes/run.h"
#include "pipes/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PUSH_TICK_MS 100   /* how often the run directory is read */
#define STAGE_FDS 40	   /* descriptors that a stage opens, receivers aside */
#define PUSH_END_MS 10000  /* for stages to end after the verdict */
#define EXIT_UNPUBLISHED 1 /* all engines serve the old version */

struct push;

struct child {
	struct push *push;
	enum stage_id id;
	pid_t pid; /* 0: not running */
	struct loop_timer pause;
	struct words options;
};

struct push {
	const struct opt_spec *spec;
	const struct push_conf *conf;
	struct loop *loop;
	struct supervisor sup;
	struct child child[STAGE_N];
	struct run run;
	struct push_show show;
	int death[2]; /* children hold [0]; [1] dies with us */
	struct loop_timer tick, end;
	int signals, verdict; /* verdict: its exit code, -1: none yet */
	bool gave_up, cannot_read;
};

static const struct {
	const struct opt_spec *spec;
	size_t conf;
} stages[STAGE_N] = {
	[STAGE_PLAN] = { &plan_spec, offsetof(struct push_conf, plan) },
	[STAGE_ADMIT] = { &admit_spec, offsetof(struct push_conf, admit) },
	[STAGE_TRANSFER] = { &transfer_spec,
			     offsetof(struct push_conf, transfer) },
	[STAGE_COMMIT] = { &commit_spec, offsetof(struct push_conf, commit) },
};

/* ---- the union of four option tables ---- */

/* Where the same option is in two tables the later one's row is taken:
 * plan has admit's limits for --dry-run only. */
static bool comes_later(const char *name, unsigned id)
{
	for (id++; id < STAGE_N; id++) {
		const struct opt_spec *s = stages[id].spec;

		for (size_t i = 0; i < s->nopts; i++) {
			if (strcmp(s->opts[i].name, name) == 0)
				return true;
		}
	}
	return false;
}

static size_t merge_rows(struct opt *out)
{
	size_t n = 0;

	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		const struct opt_spec *s = stages[id].spec;

		for (size_t i = 0; i < s->nopts; i++) {
			if (comes_later(s->opts[i].name, id))
				continue;
			BUG_ON(n == OPT_ROWS_MAX);
			out[n] = s->opts[i];
			out[n++].offset += stages[id].conf;
		}
	}
	return n;
}

const struct opt_spec *push_spec(void)
{
	static struct opt rows[OPT_ROWS_MAX];
	static struct opt_spec spec = {
		.program = "weir-push",
		.summary = "push a checkpoint to a fleet, all or nothing",
		.opts = rows,
		.common = offsetof(struct push_conf, common),
	};

	if (spec.nopts == 0)
		spec.nopts = merge_rows(rows);
	return &spec;
}

/* ---- weir-rollback ---- */

static bool is_rollbacks(const struct opt *o)
{
	static const char *const not [] = { "bucket-size",   "split-tensors",
					    "keep-together", "transport",
					    "only",	     "expect" };

	for (size_t i = 0; i < COUNT(not ); i++)
		if (strcmp(o->name, not [i]) == 0)
			return false;
	return true;
}

static const struct {
	const char *option, *help;
} rollback_help[] = {
	{ "source", "look there first for the bytes, if an engine needs "
		    "them; never what is published" },
	{ "fleet", "the engines, as YAML; -: from stdin; default: those of "
		   "the last decision" },
	{ "to", "the version to go back to; previous: the last one that is "
		"something else than the current one" },
};

static void fit_rollback(struct opt *o)
{
	for (size_t i = 0; i < COUNT(rollback_help); i++)
		if (strcmp(o->name, rollback_help[i].option) == 0)
			o->help = rollback_help[i].help;
	if (strcmp(o->name, "to") == 0)
		o->def = "previous";
}

static size_t rollback_rows(struct opt *out)
{
	const struct opt_spec *all = push_spec();
	size_t n = 0;

	for (size_t i = 0; i < all->nopts; i++) {
		if (!is_rollbacks(&all->opts[i]))
			continue;
		out[n] = all->opts[i];
		fit_rollback(&out[n++]);
	}
	return n;
}

const struct opt_spec *rollback_spec(void)
{
	static struct opt rows[OPT_ROWS_MAX];
	static struct opt_spec spec = {
		.program = "weir-rollback",
		.summary = "publish an older version again, as a new number",
		.opts = rows,
		.common = offsetof(struct push_conf, common),
	};

	if (spec.nopts == 0)
		spec.nopts = rollback_rows(rows);
	return &spec;
}

/* ---- starting stages ---- */

/* Plan's options; weir-rollback's default is one too. */
static void plan_options(const struct opt_spec *spec,
			 const struct push_conf *conf, struct words *out)
{
	opt_forward(spec, conf, &plan_spec, out);
	if (conf->plan.to && !opt_is_given(spec, conf, "to")) {
		char *word = xasprintf("--to=%s", conf->plan.to);

		words_add(out, word);
		free(word);
	}
}

static void add_registry(const struct opt_common *common, struct words *out)
{
	char *word;

	if (!common->registry)
		return;
	word = xasprintf("--registry=%s", common->registry);
	words_add(out, word);
	free(word);
}

static void stage_options(struct push *p, struct child *c)
{
	const struct opt_common *common = &p->conf->common;

	if (c->id == STAGE_PLAN)
		plan_options(p->spec, p->conf, &c->options);
	else
		opt_forward(p->spec, p->conf, stages[c->id].spec, &c->options);
	add_registry(common, &c->options);
	if (common->json && c->id == STAGE_COMMIT)
		words_add(&c->options, "--json");
}

static void log_options(const struct opt_common *common, struct words *argv)
{
	for (unsigned i = 0; i < common->verbose; i++)
		words_add(argv, "-v");
	if (common->quiet)
		words_add(argv, "-q");
}

/* In the pipe the run comes by the hand-off, to all but plan.  Its options go
 * with it however often it starts: one that was killed before it had written
 * them down must not go on with defaults. */
static int start_stage(struct push *p, struct child *c, int in, int out)
{
	const char *program = stages[c->id].spec->program;
	char *path = proc_sibling(program);
	char *death = xasprintf("WEIR_SUPERVISOR_FD=%d", p->death[0]);
	const char *env[] = { death, NULL };
	struct words argv = { 0 };
	pid_t pid;

	words_add(&argv, path);
	log_options(&p->conf->common, &argv);
	for (size_t i = 0; i < c->options.n; i++)
		words_add(&argv, c->options.v[i]);
	if (in == PROC_NULL || c->id == STAGE_PLAN) {
		words_add(&argv, "--run");
		words_add(&argv, p->run.path);
	}
	pid = proc_spawn(&(struct proc_spec){
		.argv = (const char *const *)argv.v,
		.env = env,
		.fd = { in, out, push_show_stderr(&p->show) },
		.pass_fd = p->death[0],
		.own_session = true,
	});
	words_release(&argv);
	free(death);
	free(path);
	if (pid < 0)
		return (int)pid;
	c->pid = pid;
	return 0;
}

static int make_pipe(int fd[2])
{
	if (pipe2(fd, O_CLOEXEC) < 0)
		return log_errno(E_IO, "make a pipe");
	return 0;
}

/* A fleet file on stdin is for plan; nobody else reads ours. */
static int first_stdin(const struct push_conf *conf)
{
	const char *fleet = conf->plan.fleet;

	return fleet && strcmp(fleet, "-") == 0 ? PROC_KEEP : PROC_NULL;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* commit's stdout: shown as ours, unless that is for events.  Their last
 * one, the summary, says what commit's result says. */
static int result_fd(const struct push *p)
{
	return p->conf->common.json ? PROC_NULL : push_show_stdout(&p->show);
}

/* plan | admit | transfer | commit. */
static int start_pipeline(struct push *p)
{
	int in = first_stdin(p->conf);
	int rc = 0;

	for (unsigned id = STAGE_PLAN; id < STAGE_COMMIT && rc == 0; id++) {
		int next[2] = { -1, -1 };

		rc = make_pipe(next);
		if (rc == 0)
			rc = start_stage(p, &p->child[id], in, next[1]);
		close_end(&in);
		close_end(&next[1]);
		in = next[0];
	}
	if (rc == 0)
		rc = start_stage(p, &p->child[STAGE_COMMIT], in, result_fd(p));
	close_end(&in);
	return rc;
}

/* ---- ends ---- */

static void signal_all(struct push *p, int signo)
{
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		if (p->child[id].pid)
			kill(p->child[id].pid, signo);
	}
}

static void read_verdict(struct push *p)
{
	struct msg_arena arena = { 0 };
	struct buf frame = { 0 };
	struct msg m;
	int rc = 0, was;

	/* Asked ten times a second, said once. */
	was = log_quiet_thread(p->cannot_read);
	if (p->verdict < 0)
		rc = run_verdict_read(&p->run, &m, &arena, &frame);
	log_quiet_thread(was);
	p->cannot_read = rc < 0;
	if (rc == 1) {
		p->verdict = m.verdict.exit;
		supervisor_ending(&p->sup);
		loop_arm(p->loop, &p->end, PUSH_END_MS);
	}
	msg_arena_release(&arena);
	buf_release(&frame);
}

/* As long as the stages may need to bring every engine home, back or, if the
 * version is decided already, forward: an engine in place first ends the load
 * that it is in, then has one of its own; one that was started again has its
 * part of the time for each of probe, receipt and swap (pipes/bring.h). */
static int64_t home_ms(const struct push *p)
{
	const struct commit_conf *c = &p->conf->commit;

	return PUSH_END_MS + 2 * c->load_timeout_ms + 3 * c->engine_timeout_ms +
	       2 * c->stage_timeout_ms;
}

static void give_up(struct push *p)
{
	p->gave_up = true;
	signal_all(p, SIGTERM);
	loop_arm(p->loop, &p->end, home_ms(p));
}

/* One that ends by itself has said why; one that is killed says nothing. */
static void tell_given_up(const struct push *p, enum stage_id id, int status)
{
	const struct supervised *s = &p->sup.stage[id];
	const char *program = stages[id].spec->program;

	if (WIFSIGNALED(status))
		log_error(E_AGAIN, "%s was killed (%s), %u times; giving up",
			  program, strsignal(WTERMSIG(status)),
			  s->restarts + 1);
	else if (s->restarts)
		log_warn("%s failed %u times; giving up", program,
			 s->restarts + 1);
	else
		log_info("%s ended with %d, and is not started again; giving "
			 "up",
			 program, s->code);
}

static void act(struct push *p, struct child *c, enum sup_action a)
{
	switch (a) {
	case SUP_NOTHING:
		break;
	case SUP_WAIT:
		loop_arm(p->loop, &c->pause, p->sup.stage[c->id].pause_ms);
		break;
	case SUP_START:
		if (start_stage(p, c, PROC_NULL,
				c->id == STAGE_COMMIT ? result_fd(p)
						      : PROC_NULL) < 0)
			give_up(p);
		break;
	case SUP_TERMINATE:
		give_up(p);
		break;
	}
	if (supervisor_is_done(&p->sup))
		loop_stop(p->loop, 0);
}

static void on_end_of(struct push *p, struct child *c, int status)
{
	int code = proc_code(status);
	enum sup_action a;

	c->pid = 0;
	read_verdict(p);
	a = supervisor_exit(&p->sup, c->id, code, WIFSIGNALED(status));
	if (a == SUP_WAIT)
		log_warn("%s ended with %d; starting it again",
			 stages[c->id].spec->program, code);
	else if (a == SUP_TERMINATE)
		tell_given_up(p, c->id, status);
	act(p, c, a);
}

static void reap(struct push *p)
{
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		struct child *c = &p->child[id];
		int status;

		if (c->pid && proc_reap(c->pid, &status) == 1)
			on_end_of(p, c, status);
	}
}

/* Only children that neither ended nor obeyed are left. */
static void on_end_timer(void *arg)
{
	struct push *p = arg;

	log_warn("stages did not end by themselves; killing them");
	supervisor_ending(&p->sup);
	signal_all(p, SIGKILL);
	loop_stop(p->loop, 0);
}

/* The second ends the stages at once: commit says how.  With the third they
 * are not waited for. */
static void end_by_signal(struct push *p, int nth)
{
	if (nth > 2)
		on_end_timer(p);
	else if (nth == 2)
		loop_arm(p->loop, &p->end, PUSH_END_MS);
	else if (p->verdict < 0)
		loop_arm(p->loop, &p->end, home_ms(p));
}

static void on_signal(int signo, void *arg)
{
	struct push *p = arg;

	if (signo == SIGCHLD) {
		reap(p);
		return;
	}
	if (signo == SIGIO)
		return;
	signal_all(p, signo);
	supervisor_ending(&p->sup);
	end_by_signal(p, ++p->signals);
}

static void on_pause_over(void *arg)
{
	struct child *c = arg;

	act(c->push, c, supervisor_due(&c->push->sup, c->id));
}

static void on_tick(void *arg)
{
	struct push *p = arg;

	read_verdict(p);
	push_show_update(&p->show);
	loop_arm(p->loop, &p->tick, PUSH_TICK_MS);
}

/* ---- no memory ---- */

static struct push *without_memory; /* whose stages are outlived */

static bool was_begun(const struct push *p)
{
	const struct supervised *commit = &p->sup.stage[STAGE_COMMIT];

	return p->child[STAGE_COMMIT].pid || commit->restarts ||
	       commit->state == SUP_ENDED;
}

static bool is_any_running(struct push *p)
{
	bool running = false;

	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		struct child *c = &p->child[id];
		int status;

		if (c->pid && proc_reap(c->pid, &status) == 1) {
			p->sup.stage[id].code = proc_code(status);
			c->pid = 0;
		}
		running |= c->pid != 0;
	}
	return running;
}

static void outlive_stages(struct push *p)
{
	int64_t end = clock_mono_ms() + home_ms(p);

	while (is_any_running(p) && clock_mono_ms() < end) {
		push_show_pass(&p->show);
		poll(NULL, 0, PUSH_TICK_MS);
	}
	push_show_pass(&p->show);
	signal_all(p, SIGKILL);
}

/* Commit exits with the verdict; a signal that it tells of was ours. */
static int last_code(const struct push *p)
{
	const struct supervised *commit = &p->sup.stage[STAGE_COMMIT];
	int code = p->verdict >= 0 ? p->verdict : commit->code;

	/* Nobody knows what one that was killed had done. */
	if (p->verdict < 0 && (p->child[STAGE_COMMIT].pid || commit->restarts ||
			       code == 128 + SIGKILL))
		return err_exit_code(-E_AGAIN);
	return code == 128 + SIGTERM && !p->signals ? EXIT_UNPUBLISHED : code;
}

/* The run is commit's and the engines': stages are asked to end, which before
 * the decision is an abort, and what came of it is our code. */
static int end_without_memory(void)
{
	struct push *p = without_memory;

	/* Without commit the others end by themselves when we do. */
	if (p->verdict < 0 && !was_begun(p))
		return err_exit_code(-E_NOMEM);
	/* A second one would end them at once. */
	if (!p->gave_up && !p->signals)
		signal_all(p, SIGTERM);
	outlive_stages(p);
	return last_code(p);
}

/* ---- one push ---- */

/* Its stages would only read the old verdict, and a push that moved nothing
 * would look like a success. */
static int refuse_ended(const struct run *r)
{
	if (faccessat(r->dirfd, "verdict", F_OK, 0) < 0)
		return 0;
	return log_error(
		E_CONFIG,
		"run directory %s: its run has ended; give a fresh one",
		r->path);
}

static void wire(struct push *p)
{
	p->tick = (struct loop_timer){ .fn = on_tick, .arg = p };
	p->end = (struct loop_timer){ .fn = on_end_timer, .arg = p };
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		struct child *c = &p->child[id];

		c->push = p;
		c->id = (enum stage_id)id;
		c->pause = (struct loop_timer){ .fn = on_pause_over, .arg = c };
		stage_options(p, c);
	}
}

/* A code may tell of the signal that we sent to the stages, to give up, and
 * then not of why. */
static bool is_our_signal(const struct push *p, int code)
{
	return p->gave_up && !p->signals && code == 128 + SIGTERM;
}

/* Killed, or about to be: nobody knows what it had done. */
static bool was_commit_killed(const struct push *p)
{
	return p->child[STAGE_COMMIT].pid ||
	       p->sup.stage[STAGE_COMMIT].code == err_exit_code(-E_AGAIN);
}

static int code_of(const struct push *p)
{
	const int again = err_exit_code(-E_AGAIN);
	int code = supervisor_code(&p->sup);

	if (is_our_signal(p, code) ||
	    ((code == 0 || code >= 128) && was_commit_killed(p)))
		code = again;
	if (p->verdict < 0)
		return code;
	if (!is_our_signal(p, p->verdict))
		return p->verdict;
	/* The run was aborted. */
	return code == again ? EXIT_UNPUBLISHED : code;
}

static int supervise(struct push *p)
{
	int rc = make_pipe(p->death);

	if (rc == 0)
		rc = loop_signals(p->loop, on_signal, p);
	if (rc == 0)
		rc = push_show_open(&p->show, p->loop, &p->run, p->conf);
	if (rc == 0)
		rc = start_pipeline(p);
	if (rc < 0) {
		signal_all(p, SIGKILL);
		return err_exit_code(rc);
	}
	loop_arm(p->loop, &p->tick, PUSH_TICK_MS);
	rc = loop_run(p->loop);
	reap(p);
	read_verdict(p);
	push_show_update(&p->show);
	return rc > 0 ? rc : code_of(p);
}

static void release(struct push *p)
{
	push_show_close(&p->show);
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++)
		words_release(&p->child[id].options);
	for (int i = 0; i < 2; i++) {
		if (p->death[i] >= 0)
			close(p->death[i]);
	}
	run_tidy(&p->run);
	run_close(&p->run);
	loop_free(p->loop);
}

/* --dry-run is plan's: replaced by it. */
static int dry_run(const struct opt_spec *spec, const struct push_conf *conf)
{
	char *path = proc_sibling(plan_spec.program);
	struct words argv = { 0 };

	words_add(&argv, path);
	log_options(&conf->common, &argv);
	if (conf->common.json)
		words_add(&argv, "--json");
	plan_options(spec, conf, &argv);
	add_registry(&conf->common, &argv);
	execvp(path, argv.v);
	log_errno(E_IO, "run %s", path);
	words_release(&argv);
	free(path);
	return err_exit_code(-E_IO);
}

int push_run(const struct opt_spec *spec, const struct push_conf *conf)
{
	struct push p = {
		.spec = spec,
		.conf = conf,
		.verdict = -1,
		.death = { -1, -1 },
		.run = { .dirfd = -1, .lock_fd = -1 },
	};
	int code, rc;

	if (conf->plan.dry_run || conf->plan.out)
		return dry_run(spec, conf);
	/* All four would say it. */
	rc = fds_need(STAGE_FDS, "a stage's links and files");
	if (rc == 0)
		rc = run_open(&p.run, conf->common.run, false);
	if (rc == 0)
		rc = refuse_ended(&p.run);
	if (rc < 0) {
		run_close(&p.run);
		return err_exit_code(rc);
	}
	p.loop = loop_new();
	supervisor_init(&p.sup);
	without_memory = &p;
	xnomem_act(end_without_memory);
	wire(&p);
	code = supervise(&p);
	p.verdict = code;
	release(&p);
	xnomem_act(NULL);
	return code;
}
