/* weir-engine - receive weights beside an inference engine, see
 * engine_run.h. */
#include "pipes/engine_run.h"

#include "common/err.h"
#include "common/fleet.h"
#include "common/log.h"
#include "common/opt.h"
#include "pipes/msg.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_DEFAULT 2

struct conf {
	struct opt_common common;
	char *name, *store, *listen, *post_load;
	char *on_pause, *on_swap, *on_resume;
	uint64_t keep, reread, copy_threads, ready_fd, device;
	int64_t hook_timeout, load_timeout;
	bool varies, adopt, in_place;
	struct opt_list allow;
};

static const struct opt rows[] = {
	{ .name = "name",
	  OPT_TO_STRING(struct conf, name),
	  .value = "NAME",
	  .def = "engine",
	  .help = "as the fleet calls this engine" },
	{ .name = "store",
	  OPT_TO_STRING(struct conf, store),
	  .value = "DIR",
	  .help = "where versions live; on tmpfs they are in memory" },
	{ .name = "listen",
	  OPT_TO_STRING(struct conf, listen),
	  .value = "ENDPOINT",
	  .help = "ipc://PATH, as in the fleet; PATH.fd is made beside it" },
	{ .name = "keep",
	  OPT_TO_UINT(struct conf, keep),
	  .value = "K",
	  .def = "2",
	  .min = 1,
	  .max = 1000,
	  .help = "versions kept; one more has room while it is filled" },
	{ .name = "copy-threads",
	  OPT_TO_UINT(struct conf, copy_threads),
	  .value = "N",
	  .max = ENGINE_THREADS_MAX,
	  .help = "threads that copy; 0: two, or one for each core" },
	{ .name = "post-load",
	  OPT_TO_STRING(struct conf, post_load),
	  .value = "NAME|CMD",
	  .help = "before a version is sealed: fp8, or what sh runs there" },
	{ .name = "post-load-varies",
	  OPT_TO_FLAG(struct conf, varies),
	  .help = "its result may differ from engine to engine" },
	{ .name = "load-timeout",
	  OPT_TO_DURATION(struct conf, load_timeout),
	  .value = "TIME",
	  .def = "600s",
	  .min = 1,
	  .help = "then post-load is killed" },
	{ .name = "reread",
	  OPT_TO_UINT(struct conf, reread),
	  .value = "K",
	  .def = "16",
	  .help = "hash the slot again in 1 push of K; 0: never unasked" },
	{ .name = "on-pause",
	  OPT_TO_STRING(struct conf, on_pause),
	  .value = "CMD",
	  .help = "run by sh to hold requests" },
	{ .name = "on-swap",
	  OPT_TO_STRING(struct conf, on_swap),
	  .value = "CMD",
	  .help = "run by sh when STORE/current is the new version" },
	{ .name = "on-resume",
	  OPT_TO_STRING(struct conf, on_resume),
	  .value = "CMD",
	  .help = "run by sh to serve again" },
	{ .name = "hook-timeout",
	  OPT_TO_DURATION(struct conf, hook_timeout),
	  .value = "TIME",
	  .def = "30s",
	  .min = 1,
	  .help = "then one of these is killed and has failed" },
	{ .name = "allow",
	  OPT_TO_LIST(struct conf, allow),
	  .value = "USER",
	  .help = "who else may connect, beside root and this user" },
	{ .name = "adopt",
	  OPT_TO_FLAG(struct conf, adopt),
	  .help = "let another registry take the store over, once" },
	{ .name = "device",
	  OPT_TO_UINT(struct conf, device),
	  .value = "N",
	  .max = 1023,
	  .help = "offer versions in this GPU's memory, two at a time" },
	{ .name = "in-place",
	  OPT_TO_FLAG(struct conf, in_place),
	  .help = "one at a time: --device loads it while paused" },
	{ .name = "ready-fd",
	  OPT_TO_UINT(struct conf, ready_fd),
	  .value = "FD",
	  .max = 1 << 20,
	  .help = "gets a newline when the engine listens" },
};

static const struct opt_spec spec = {
	.program = "weir-engine",
	.summary = "receive weights beside an inference engine",
	.opts = rows,
	.nopts = COUNT(rows),
	.common = offsetof(struct conf, common),
};

static int take_users(const struct opt_list *names, struct engine_conf *out)
{
	if (names->n > ENGINE_ALLOW_MAX)
		return log_error(E_USAGE, "--allow: more than %d users",
				 ENGINE_ALLOW_MAX);
	for (size_t i = 0; i < names->n; i++) {
		const struct passwd *p = getpwnam(names->v[i]);

		if (!p)
			return log_error(E_USAGE, "--allow %s: no such user",
					 names->v[i]);
		out->allow[out->nallow++] = p->pw_uid;
	}
	return 0;
}

static unsigned threads(const struct conf *c)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (c->copy_threads > 0)
		return (unsigned)c->copy_threads;
	return cores < THREADS_DEFAULT ? 1 : THREADS_DEFAULT;
}

/* Into a message's field of this many bytes? */
static bool fits(const char *s, size_t max)
{
	return strlen(s) <= max && msg_is_text(slice_of(s));
}

static int check(const struct conf *c)
{
	if (!c->store || !c->listen)
		return log_error(E_USAGE, "--%s is missing",
				 c->store ? "listen" : "store");
	if (!fleet_is_name(slice_of(c->name)))
		return log_error(E_USAGE,
				 "--name \"%s\": expected letters, digits, "
				 "\".\", \"_\" and \"-\", at most %u of them",
				 c->name, FLEET_NAME_MAX);
	if (c->in_place && !opt_is_given(&spec, c, "device"))
		return log_error(E_USAGE, "--in-place is of --device N, which "
					  "is missing");
	if (c->post_load && !fits(c->post_load, 1024))
		return log_error(E_USAGE,
				 "--post-load \"%s\": expected UTF-8 without "
				 "control characters, at most 1024 bytes",
				 c->post_load);
	return 0;
}

static int run(const struct conf *c)
{
	struct engine_conf conf = {
		.name = c->name,
		.store = c->store,
		.listen = c->listen,
		.keep = (unsigned)c->keep,
		.copy_threads = threads(c),
		.has_device = opt_is_given(&spec, c, "device"),
		.in_place = c->in_place,
		.device = (uint32_t)c->device,
		.reread = c->reread,
		.post_load = c->post_load,
		.post_load_varies = c->varies,
		.adopt = c->adopt,
		.hook = { [HOOK_PAUSE] = c->on_pause,
			  [HOOK_SWAP] = c->on_swap,
			  [HOOK_RESUME] = c->on_resume },
		.hook_ms = c->hook_timeout,
		.post_load_ms = c->load_timeout,
		.ready_fd = opt_is_given(&spec, c, "ready-fd")
				    ? (int)c->ready_fd
				    : -1,
	};
	int rc = check(c);

	if (rc >= 0 && conf.ready_fd >= 0 && fcntl(conf.ready_fd, F_GETFD) < 0)
		rc = log_error(E_USAGE, "--ready-fd %d: is not open",
			       conf.ready_fd);
	if (rc >= 0)
		rc = take_users(&c->allow, &conf);
	return rc < 0 ? rc : engine_run(&conf);
}

int main(int argc, char **argv)
{
	struct conf conf = { 0 };
	int rc = opt_parse(&spec, &conf, argc, argv);

	if (rc != 0)
		return err_exit_code(rc);
	rc = run(&conf);
	opt_release(&spec, &conf);
	return err_exit_code(rc);
}
