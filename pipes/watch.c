#include "pipes/watch.h"
#include "common/child.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/units.h"
#include "common/loop.h"
#include "pipes/registry.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define STATE_MAX 128 /* bytes of the state file */

static const struct opt rows[] = {
	{ .name = "exec",
	  OPT_TO_STRING(struct watch_conf, exec),
	  .value = "CMD",
	  .help = "run by sh for each version, with WEIR_VERSION, "
		  "WEIR_CONTENT, WEIR_RUN_NAME and WEIR_ENGINES" },
	{ .name = "exec-timeout",
	  OPT_TO_DURATION(struct watch_conf, exec_timeout_ms),
	  .value = "TIME",
	  .def = "600s",
	  .min = 1,
	  .help = "then it is killed and has failed" },
	{ .name = "once",
	  OPT_TO_FLAG(struct watch_conf, once),
	  .help = "end after one version" },
	{ .name = "since",
	  OPT_TO_UINT(struct watch_conf, since),
	  .value = "N",
	  .help = "tell the versions above N; default: those that are "
		  "published from now on" },
	{ .name = "state",
	  OPT_TO_STRING(struct watch_conf, state),
	  .value = "FILE",
	  .help = "remember there the last version told; it outranks --since" },
};

const struct opt_spec watch_spec = {
	.program = "weir-watch",
	.summary = "tell each version that is published",
	.opts = rows,
	.nopts = COUNT(rows),
	.common = offsetof(struct watch_conf, common),
};

struct watch {
	const struct watch_conf *conf;
	char *path;
	struct registry reg;
	char id[REG_ID_LEN + 1]; /* of the one that was found; or "" */
	bool has_reg, is_late;	 /* late: it was made after our start */
	bool is_over;		 /* --once has had its one */
	uint64_t told, telling;	 /* telling: 0, or whose CMD runs */
	struct loop *loop;
	struct loop_timer tick, late;
	struct child child;
	int inotify, signal;
};

static void look(void *arg);

/* ---- the state file: "REGISTRY NUMBER" ---- */

static int save_state(const struct watch *w)
{
	char text[STATE_MAX];
	int n;

	if (!w->conf->state)
		return 0;
	n = snprintf(text, sizeof text, "%s %" PRIu64 "\n", w->id, w->told);
	return io_replace(AT_FDCWD, w->conf->state, text, (size_t)n);
}

static int parse_state(struct watch *w, char *text)
{
	char *blank = strchr(text, ' '), *nl = strchr(text, '\n');

	if (!blank || !nl || nl[1])
		return log_error(E_DATA, "state %s: expected \"REGISTRY N\"",
				 w->conf->state);
	*blank = *nl = '\0';
	if (strcmp(text, w->id) != 0)
		return log_error(E_CONFIG,
				 "state %s: of registry %.40s, this one is %s",
				 w->conf->state, text, w->id);
	if (!opt_read_uint(blank + 1, &w->told))
		return log_error(E_DATA, "state %s: \"%.40s\" is no number",
				 w->conf->state, blank + 1);
	return 1;
}

/* 1: told is what it says; 0: there is none. */
static int load_state(struct watch *w)
{
	struct buf b = { 0 };
	char *text;
	int rc;

	if (!w->conf->state)
		return 0;
	rc = io_read_file(AT_FDCWD, w->conf->state, STATE_MAX, &b);
	if (rc < 0) {
		buf_release(&b);
		return rc == -E_NOINPUT ? 0 : rc;
	}
	text = xstrndup(b.n ? b.p : "", b.n);
	rc = parse_state(w, text);
	free(text);
	buf_release(&b);
	return rc;
}

/* ---- telling ---- */

static void add_engines(struct jsonw *j, const struct m_decision *d)
{
	jsonw_array(j, "engines");
	for (uint32_t i = 0; i < d->engines.n; i++)
		if (!d->engines.v[i].excluded)
			jsonw_slice(j, NULL, d->engines.v[i].name);
	jsonw_end(j);
}

static int print_decision(const struct m_decision *d)
{
	struct buf b = { 0 };
	const char *proof = proof_name(d->proof);
	struct jsonw j;
	int rc;

	/* The decision is one frame; escaped it may be six times as long. */
	jsonw_begin(&j, &b, 6 * (size_t)FRAME_MAX);
	jsonw_object(&j, NULL);
	jsonw_u64(&j, "version", d->version);
	jsonw_hex(&j, "content", d->content.b, DIGEST_LEN);
	jsonw_slice(&j, "run", d->run);
	jsonw_u64(&j, "epoch", d->epoch);
	jsonw_u64(&j, "bytes", d->bytes);
	jsonw_str(&j, "proof", proof ? proof : "");
	jsonw_i64(&j, "wall_ms", d->wall_ms);
	jsonw_slice(&j, "source", d->source);
	add_engines(&j, d);
	jsonw_end(&j);
	rc = jsonw_finish(&j);
	if (rc == 0)
		rc = io_write_full(STDOUT_FILENO, b.p, b.n);
	buf_release(&b);
	return rc < 0 ? rc : 0;
}

static void list_engines(const struct m_decision *d, struct buf *out)
{
	for (uint32_t i = 0; i < d->engines.n; i++) {
		struct slice name = d->engines.v[i].name;

		if (d->engines.v[i].excluded)
			continue;
		buf_addf(out, "%s%.*s", out->n ? " " : "", SLICE_ARG(name));
	}
	/* Longer ones no command could be started with. */
	if (out->n > WATCH_ENGINES_MAX)
		buf_clear(out);
}

static int start_command(struct watch *w, const struct m_decision *d)
{
	char hex[DIGEST_HEX];
	struct buf names = { 0 };
	char *version = xasprintf("WEIR_VERSION=%" PRIu64, d->version);
	char *content =
		xasprintf("WEIR_CONTENT=%s", digest_hex(&d->content, hex));
	char *run = xasprintf("WEIR_RUN_NAME=%.*s", SLICE_ARG(d->run));
	char *engines;
	int rc;

	list_engines(d, &names);
	engines = xasprintf("WEIR_ENGINES=%s", buf_cstr(&names));
	rc = child_start(
		&w->child, "exec", w->conf->exec,
		(const char *const[]){ version, content, run, engines, NULL });
	free(version);
	free(content);
	free(run);
	free(engines);
	buf_release(&names);
	return rc;
}

static int was_told(struct watch *w, uint64_t version)
{
	int rc;

	w->told = version;
	w->is_over = w->conf->once;
	rc = save_state(w);
	if (rc == 0 && w->is_over)
		loop_stop(w->loop, 0);
	return rc;
}

/* ---- the command ---- */

static void child_ready(void *arg);

static void watch_child(struct watch *w)
{
	if (w->child.pidfd >= 0)
		loop_add_fd(w->loop, w->child.pidfd, child_ready, w);
	if (w->child.out_fd >= 0)
		loop_add_fd(w->loop, w->child.out_fd, child_ready, w);
}

static void unwatch_child(struct watch *w)
{
	if (w->child.pidfd >= 0)
		loop_del_fd(w->loop, w->child.pidfd);
	if (w->child.out_fd >= 0)
		loop_del_fd(w->loop, w->child.out_fd);
}

static void end_command(struct watch *w, int rc)
{
	uint64_t version = w->telling;

	w->telling = 0;
	loop_disarm(w->loop, &w->late);
	if (rc < 0) {
		loop_stop(w->loop,
			  log_error(E_AGAIN,
				    "--exec failed for version %" PRIu64
				    ", which stays untold; start again",
				    version));
		return;
	}
	rc = was_told(w, version);
	if (rc < 0)
		loop_stop(w->loop, rc);
	else
		look(w);
}

/* The child may close its descriptors when it steps. */
static void child_ready(void *arg)
{
	struct watch *w = arg;
	int rc;

	unwatch_child(w);
	rc = child_step(&w->child);
	if (rc == 0)
		watch_child(w);
	else
		end_command(w, rc);
}

static void stop_command(struct watch *w)
{
	unwatch_child(w);
	child_kill(&w->child);
}

static void command_late(void *arg)
{
	struct watch *w = arg;
	char time[UNITS_MAX];

	stop_command(w);
	end_command(w, log_error(E_TIMEOUT, "--exec did not end within %s",
				 units_time(w->conf->exec_timeout_ms, time)));
}

static int tell(struct watch *w, uint64_t version)
{
	struct reg_rec d = { 0 };
	int rc = registry_decision(&w->reg, version, &d);

	if (rc == 0)
		rc = log_error(E_IO,
			       "the decision on version %" PRIu64 " went away",
			       version);
	if (rc > 0)
		rc = print_decision(&d.m.decision);
	if (rc == 0 && w->conf->exec)
		rc = start_command(w, &d.m.decision);
	reg_rec_release(&d);
	if (rc < 0)
		return rc;
	if (!w->conf->exec)
		return was_told(w, version);
	w->telling = version;
	loop_arm(w->loop, &w->late, w->conf->exec_timeout_ms);
	watch_child(w);
	return 0;
}

/* ---- looking ---- */

/* Where to begin.  A registry that is made later is new: all of it is "from
 * now on". */
static int begin(struct watch *w)
{
	int rc = w->conf->state ? io_sweep_tmp_of(AT_FDCWD, w->conf->state) : 0;

	if (rc >= 0)
		rc = load_state(w);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (w->is_late || opt_is_given(&watch_spec, w->conf, "since"))
		w->told = w->conf->since;
	else
		rc = registry_highest(&w->reg, &w->told);
	return rc < 0 ? rc : save_state(w);
}

/* Prompt only: without it there is the tick. */
static void watch_directory(struct watch *w)
{
	if (inotify_add_watch(w->inotify, w->path, IN_CREATE | IN_MOVED_TO) < 0)
		log_info("watch %s: looked at once a second", w->path);
}

static int take_registry(struct watch *w, const struct registry *found)
{
	if (w->has_reg)
		registry_close(&w->reg);
	w->reg = *found;
	w->has_reg = true;
	watch_directory(w);
	if (w->id[0] && strcmp(w->id, found->id) != 0)
		return log_error(E_CONFIG,
				 "registry %s is another one by now: %s, and "
				 "was %s",
				 w->path, found->id, w->id);
	if (w->id[0])
		return 0;
	memcpy(w->id, found->id, sizeof w->id);
	return begin(w);
}

static void lose_registry(struct watch *w, const char *why)
{
	if (!w->has_reg)
		return;
	log_warn("registry %s went away (%s): waiting for it", w->path, why);
	registry_close(&w->reg);
	w->has_reg = false;
}

/* What the path leads to now: a registry may be made later, moved away and
 * back, or restored in another directory.  Once one was found, what cannot be
 * read is one that is away: an empty mount point, a half restored copy. */
static int find_registry(struct watch *w)
{
	bool is_known = w->id[0];
	struct registry found;
	int was = log_quiet_thread(is_known);
	int rc = registry_look(&found, w->path);

	log_quiet_thread(was);
	if (rc == 0)
		return take_registry(w, &found);
	if (rc != -E_NOINPUT && !is_known)
		return rc;
	lose_registry(w, rc == -E_NOINPUT ? "not there" : log_cause());
	return 0;
}

static int look_once(struct watch *w)
{
	int rc = 0;

	while (rc == 0 && w->has_reg && !w->telling && !w->is_over) {
		uint64_t version;

		rc = registry_next(&w->reg, w->told, &version);
		if (rc <= 0)
			break;
		rc = tell(w, version);
	}
	return rc;
}

static void look(void *arg)
{
	struct watch *w = arg;
	int rc;

	rc = look_once(w);
	if (rc < 0)
		loop_stop(w->loop, rc);
}

static void on_tick(void *arg)
{
	struct watch *w = arg;
	int rc = find_registry(w);

	loop_arm(w->loop, &w->tick, WATCH_TICK_MS);
	if (rc < 0)
		loop_stop(w->loop, rc);
	else
		look(w);
}

static void on_inotify(void *arg)
{
	struct watch *w = arg;
	char skipped[4096];

	while (read(w->inotify, skipped, sizeof skipped) > 0)
		;
	look(w);
}

static void on_signal(int signo, void *arg)
{
	struct watch *w = arg;

	if (signo != SIGINT && signo != SIGTERM && signo != SIGHUP)
		return;
	w->signal = signo;
	loop_stop(w->loop, 0);
}

static int run(struct watch *w)
{
	int rc = loop_signals(w->loop, on_signal, w);

	if (rc < 0)
		return rc;
	w->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->inotify < 0)
		return log_errno(E_IO, "inotify");
	loop_add_fd(w->loop, w->inotify, on_inotify, w);
	rc = find_registry(w);
	if (rc < 0)
		return rc;
	w->is_late = !w->has_reg;
	if (w->is_late)
		log_warn("no registry at %s yet: waiting for it", w->path);
	w->late = (struct loop_timer){ .fn = command_late, .arg = w };
	w->tick = (struct loop_timer){ .fn = on_tick, .arg = w };
	loop_arm(w->loop, &w->tick, 0);
	return loop_run(w->loop);
}

static int registry_path(const struct watch_conf *conf, char **out)
{
	if (!conf->common.registry)
		return registry_default_path(out);
	*out = xstrdup(conf->common.registry);
	return 0;
}

int watch_run(const struct watch_conf *conf)
{
	struct watch w = { .conf = conf, .inotify = -1 };
	int rc = registry_path(conf, &w.path);

	if (rc < 0)
		return err_exit_code(rc);
	w.child = (struct child)CHILD_NONE;
	w.loop = loop_new();
	rc = run(&w);
	if (w.telling)
		stop_command(&w);
	if (w.has_reg)
		registry_close(&w.reg);
	loop_free(w.loop);
	if (w.inotify >= 0)
		close(w.inotify);
	free(w.path);
	return w.signal && rc == 0 ? 128 + w.signal : err_exit_code(rc);
}
