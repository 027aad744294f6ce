#include "server.h"

#include "common/err.h"
#include "watch.h"

#include <stdlib.h>
#include <string.h>

#define QUICK_NS (4 * SIM_MS)	 /* of a request, at most */
#define LOAD_NS (300 * SIM_MS)	 /* of a load, at most, mostly */
#define STUCK_NS (8000 * SIM_MS) /* ... at times */
#define STUCK_ONE_IN 20
#define BUSY_ONE_IN 6 /* a flush */
#define FIRST "/model"
#define NOTHING PUSHES_MAX /* what it has at first, as a source */

static struct server {
	bool paused, loads, forgot; /* its pause, by a restart */
	uint64_t started, label;
	int64_t busy;	      /* until then */
	int loads_for;	      /* pid */
	bool loads_undecided; /* one that is brought home loads an old one */
	uint32_t holds;	      /* a source; NOTHING; more: of none */
	char path[SERVER_TEXT];
} servers[ENGINES_MAX];

void server_restart(uint32_t i)
{
	struct server *s = &servers[i];

	*s = (struct server){ .started = s->started + 1,
			      .holds = NOTHING,
			      .forgot = true };
	strcpy(s->path, FIRST);
	sim_tell("server-%u starts", i);
}

void servers_begin(void)
{
	memset(servers, 0, sizeof servers);
	for (uint32_t i = 0; i < ENGINES_MAX; i++)
		server_restart(i);
}

void server_busy(uint32_t i, int64_t ns)
{
	servers[i].busy = sim.now + ns;
}

uint32_t server_number(const char *url)
{
	return (uint32_t)atoi(strrchr(url, '/') + 1) % ENGINES_MAX;
}

/* ---- what is in a directory ---- */

static bool same(const struct node *a, const struct node *b)
{
	for (size_t i = 0; i < a->in.n; i++) {
		const struct node *x = a->in.v[i].node;
		const struct node *y = disk_lookup(b, a->in.v[i].name);

		if (!y || x->size != y->size ||
		    memcmp(x->data, y->data, x->size) != 0)
			return false;
	}
	return a->in.n == b->in.n;
}

static uint32_t source_at(const char *path)
{
	const struct node *dir = disk_find(disk_root(), path, true);

	if (strcmp(path, FIRST) == 0)
		return NOTHING;
	for (uint32_t i = 0; dir && i < world.pushes; i++)
		if (same(world_source(i), dir))
			return i;
	return NOTHING + 1;
}

static bool is_decided(uint32_t source)
{
	for (uint64_t v = 1; v < VERSIONS_MAX; v++)
		if (watch.decided[v].is && watch.decided[v].source == source &&
		    seen_decided(v, true))
			return true;
	return source == NOTHING;
}

/* ---- I2, I6 ---- */

static void check_load(uint32_t i, const char *path)
{
	uint32_t n = 0;

	if (!servers[i].paused && !servers[i].forgot)
		sim_break("I2", "server-%u loads while it serves", i);
	servers[i].loads_undecided = !is_decided(source_at(path));
	for (uint32_t k = 0; k < world.engines; k++)
		n += servers[k].loads && servers[k].loads_undecided &&
		     servers[k].loads_for == servers[i].loads_for;
	if (world.groups && n > world.groups && servers[i].loads_undecided)
		sim_break("I6",
			  "%u servers load an undecided version, at "
			  "most %llu",
			  n, (unsigned long long)world.groups);
}

static void check_serves(uint32_t i)
{
	if (servers[i].loads)
		sim_break("I2", "server-%u goes on while it loads", i);
	if (!is_decided(servers[i].holds))
		sim_break("I2", "server-%u goes on with %s, undecided", i,
			  servers[i].path);
}

void servers_check_end(void)
{
	uint32_t first = world.engines - world.in_place;

	for (uint32_t i = first; i < world.engines && !sim.broken; i++) {
		const struct server *s = &servers[i];

		if (s->paused || s->label != watch.top)
			sim_break("I9",
				  "server-%u tells %llu, not %llu, and is%s "
				  "paused",
				  i, (unsigned long long)s->label,
				  (unsigned long long)watch.top,
				  s->paused ? "" : " not");
		else if (s->holds != watch.decided[watch.top].source)
			sim_break("I2", "server-%u tells %llu and has %s", i,
				  (unsigned long long)s->label, s->path);
	}
}

/* ---- requests ---- */

static bool is(const struct server_ask *ask, const char *path)
{
	return strcmp(ask->path, path) == 0;
}

/* The text of a member of the body. */
static void member(const struct server_ask *ask, const char *key, char *out)
{
	const char *at = strstr(ask->body, key);
	size_t n;

	at = at ? strchr(at, ':') : NULL;
	at = at ? strchr(at, '"') : NULL;
	n = at ? strcspn(at + 1, "\"") : 0;
	snprintf(out, SERVER_TEXT, "%.*s", (int)n, at ? at + 1 : "");
}

static bool goes_wrong(void)
{
	return world.http_fails_one_in &&
	       rng_one_in(&sim.rng, world.http_fails_one_in);
}

static int64_t load_takes(void)
{
	return (int64_t)rng_below(&sim.rng, rng_one_in(&sim.rng, STUCK_ONE_IN)
						    ? STUCK_NS
						    : LOAD_NS);
}

static int64_t begin(struct server_ask *ask)
{
	struct server *s = &servers[ask->server];
	char path[SERVER_TEXT];

	ask->fails = goes_wrong();
	ask->loses = goes_wrong();
	if (ask->fails || !ask->posts || !is(ask, "/update_weights_from_disk"))
		return (int64_t)rng_below(&sim.rng, QUICK_NS);
	member(ask, "model_path", path);
	sim_tell("server-%u loads %s", ask->server, path);
	s->loads = true;
	s->loads_for = ask->pid;
	s->holds = NOTHING + 1;
	check_load(ask->server, path);
	return world.http_fails_one_in ? load_takes()
				       : (int64_t)rng_below(&sim.rng, LOAD_NS);
}

int64_t server_begin(struct server_ask *ask)
{
	int64_t busy = servers[ask->server].busy - sim.now, takes = begin(ask);

	return takes + (busy > 0 ? busy : 0);
}

static void load(struct server *s, const struct server_ask *ask,
		 struct server_answer *a)
{
	char path[SERVER_TEXT];
	uint32_t source;

	member(ask, "model_path", path);
	source = source_at(path);
	if (!s->loads || source > NOTHING) {
		/* It was started again, or the directory is gone. */
		s->loads = false;
		a->status = 400;
		strcpy(a->body, "{\"success\":false}");
		return;
	}
	s->loads = false;
	s->holds = source;
	strcpy(s->path, path);
	strcpy(a->body, "{\"success\":true}");
}

static void info(const struct server *s, struct server_answer *a)
{
	char label[24] = "default";

	if (s->label)
		snprintf(label, sizeof label, "%llu",
			 (unsigned long long)s->label);
	snprintf(a->body, sizeof a->body,
		 "{\"model_path\":\"%.120s\",\"weight_version\":\"%s\"}",
		 s->path, label);
}

static void ask_it(const struct server *s, const struct server_ask *ask,
		   struct server_answer *a)
{
	if (is(ask, "/model_info"))
		info(s, a);
	else if (is(ask, "/server_info"))
		snprintf(a->body, sizeof a->body, "{\"startup_time\":%llu}",
			 (unsigned long long)s->started);
	else if (is(ask, "/ready"))
		a->status = s->paused ? 503 : 200;
}

static void tell_it(struct server *s, const struct server_ask *ask,
		    struct server_answer *a)
{
	char text[SERVER_TEXT];

	strcpy(a->body, "{\"status\":\"ok\",\"success\":true}");
	if (is(ask, "/pause_generation")) {
		s->paused = true;
		s->forgot = false;
	} else if (is(ask, "/continue_generation")) {
		s->paused = false;
		check_serves(ask->server);
	} else if (is(ask, "/update_weights_from_disk")) {
		load(s, ask, a);
	} else if (is(ask, "/update_weight_version")) {
		member(ask, "new_version", text);
		s->label = strtoull(text, NULL, 10);
	} else if (is(ask, "/flush_cache") && world.http_fails_one_in &&
		   rng_one_in(&sim.rng, BUSY_ONE_IN)) {
		a->status = 400;
	} else if (is(ask, "/weights_checker")) {
		a->status = 404;
	}
}

/* Not done: refused, without an answer, or a failure that is told. */
static void fail(struct server_answer *a)
{
	switch (rng_below(&sim.rng, 3)) {
	case 0:
		*a = (struct server_answer){ .rc = -E_UNAVAIL,
					     .refused = true };
		break;
	case 1:
		*a = (struct server_answer){ .rc = -E_TIMEOUT, .sent = true };
		break;
	default:
		*a = (struct server_answer){ .sent = true, .status = 500 };
		break;
	}
}

void server_end(const struct server_ask *ask, struct server_answer *a)
{
	struct server *s = &servers[ask->server];

	*a = (struct server_answer){ .sent = true, .status = 200 };
	if (ask->fails) {
		fail(a);
		return;
	}
	if (ask->posts)
		tell_it(s, ask, a);
	else
		ask_it(s, ask, a);
	sim_tell("server-%u: %s: %ld", ask->server, ask->path, a->status);
	if (ask->loses)
		*a = (struct server_answer){ .rc = -E_TIMEOUT, .sent = true };
}
