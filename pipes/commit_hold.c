/*
 * In-place engines: the pause at the barrier, and the loads in waves.
 *
 * Each may be paused, and then poisoned, before we know that it is: `open`
 * says so first, so that whoever finishes this run knows.
 */
#include "pipes/commit_io.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>

int commit_learn_groups(struct commit_io *c)
{
	struct admit_conf conf = { 0 };
	struct buf text = { 0 };
	int rc = run_options_read(&c->s->run, STAGE_ADMIT, &text);

	if (rc >= 0)
		rc = opt_load(&admit_spec, &conf, buf_slice(&text));
	buf_release(&text);
	if (rc < 0)
		return log_error(E_IO,
				 "how many engines may load at a time: "
				 "no admit.options in %s",
				 c->s->run.path);
	c->m.groups = (uint32_t)conf.limits.groups;
	opt_release(&admit_spec, &conf);
	return 0;
}

static bool takes_part(const struct commit_io *c, uint32_t i)
{
	return c->m.engine[i].in_place && !c->m.engine[i].out;
}

static void ask(struct commit_io *c, uint32_t i, enum engine_call call,
		int64_t ms)
{
	struct engine_ask a = { .call = call, .ms = ms };

	engine_ask(c->engine[i], &a);
}

void commit_hold(struct commit_io *c)
{
	int rc = commit_learn_groups(c);

	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (takes_part(c, i))
			c->engine[i]->live.held = true;
	if (rc == 0)
		rc = commit_write_open(c);
	if (rc < 0) {
		commit_fail(c, rc);
		return;
	}
	for (uint32_t i = 0; i < c->m.nengines; i++) {
		if (!takes_part(c, i))
			continue;
		ask(c, i, EC_PAUSE, c->conf->engine_timeout_ms);
		ask(c, i, EC_FLUSH, c->conf->engine_timeout_ms);
	}
}

void commit_reload(struct commit_io *c)
{
	int rc;

	for (uint32_t i = c->m.lo; i < c->m.hi; i++) {
		struct engine *e = c->engine[i];

		if (!takes_part(c, i))
			continue;
		e->live.poisoned = true;
		if (engine_casts(e))
			engine_note_group(e);
	}
	rc = commit_write_open(c);
	if (rc < 0) {
		commit_fail(c, rc);
		return;
	}
	for (uint32_t i = c->m.lo; i < c->m.hi; i++)
		if (takes_part(c, i))
			ask(c, i, EC_LOAD, c->conf->load_timeout_ms);
}

static const char *mode_of(const struct commit_io *c)
{
	return c->goal.abort_requests ? "abort" : "keep";
}

static void lose(struct commit_io *c, struct engine *e, enum engine_call call,
		 int rc)
{
	char *cause;

	if (call != EC_LOAD || rc != -E_TIMEOUT) {
		commit_lose(c, e->id, rc, e->cause, false);
		return;
	}
	cause = xasprintf("%s (no answer to a load while paused, mode %s)",
			  e->cause, mode_of(c));
	commit_lose(c, e->id, rc, cause, false);
	free(cause);
}

void commit_held(struct commit_io *c, struct engine *e, enum engine_call call,
		 int rc)
{
	if (rc < 0) {
		lose(c, e, call, rc);
		return;
	}
	if (call == EC_LOAD && e->alone) {
		rc = commit_alone_loaded(c, e);
		if (rc < 0) {
			commit_lose(c, e->id, rc, log_cause(), true);
			return;
		}
	}
	log_info("engine %s: %s done", e->name, engine_call_name(call));
	if (call == EC_FLUSH)
		commit_feed(c, CE_HELD, e->id);
	else if (call == EC_LOAD)
		commit_feed(c, CE_LOADED, e->id);
}

void commit_inherit(struct commit_io *c)
{
	for (uint32_t i = 0; i < c->m.nengines; i++)
		if (c->engine[i]->ops->in_place)
			recover_inherit(&c->recover, c->engine[i]);
}
