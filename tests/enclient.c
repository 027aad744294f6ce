/*
 * enclient - an engine's adapter, called by hand.
 *
 *	enclient KIND URL ENDPOINT NAME MS [OPTION]... CALL...
 *
 * A CALL is probe, pause, flush, load, swap, version, resume, abort; several
 * with '+' between them are made back to back.  Prints how each ended: "load
 * ok", or "load E_IO CAUSE".  "ms=N" among them: for those that follow.
 * Version 7 is the goal.
 *	model=NAME token=FILE abort-requests rollback held poisoned previous=DIR
 *	group=NAME (of those that it may be in)
 */
#include "common/http.h"
#include "common/log.h"
#include "pipes/engine_ops.h"
#include "tests/errname.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct engine_share nothing;
static struct engine_goal goal = { .share = &nothing,
				   .nshares = 1,
				   .registry = "r",
				   .run = "run",
				   .epoch = 1,
				   .instance = 1,
				   .version = 7,
				   .model = "" };
static struct slice group[GROUPS_MAX];
static struct m_opened_engine who = { .groups.v = group };
static char *token;
static unsigned open_calls;
static struct loop *loop;

static void on_answer(void *arg, struct engine *e, enum engine_call c, int rc)
{
	(void)arg;
	if (rc == 0)
		printf("%s ok\n", engine_call_name(c));
	else
		printf("%s %s %s\n", engine_call_name(c), err_name(rc),
		       e->cause);
	if (--open_calls == 0)
		loop_stop(loop, 0);
}

static bool option(const char *word)
{
	if (strncmp(word, "model=", 6) == 0)
		goal.model = word + 6;
	else if (strcmp(word, "abort-requests") == 0)
		goal.abort_requests = true;
	else if (strcmp(word, "rollback") == 0)
		goal.rollback = true;
	else if (strcmp(word, "held") == 0)
		who.held = true;
	else if (strcmp(word, "poisoned") == 0)
		who.held = who.poisoned = true;
	else if (strncmp(word, "previous=", 9) == 0)
		who.previous = slice_of(word + 9);
	else if (strncmp(word, "group=", 6) == 0)
		group[who.groups.n++] = slice_of(word + 6);
	else if (strncmp(word, "token=", 6) == 0)
		return http_token_read(word + 6, &token) == 0;
	else
		return false;
	return true;
}

static void ask(struct engine *e, const char *name, int64_t ms)
{
	struct engine_ask a = { .ms = ms };

	while (a.call < EC_N && strcmp(engine_call_name(a.call), name) != 0)
		a.call++;
	if (a.call == EC_N) {
		printf("no call %s\n", name);
		exit(64);
	}
	open_calls++;
	engine_ask(e, &a);
}

static void ask_several(struct engine *e, char *names, int64_t ms)
{
	char *at;

	for (char *n = strtok_r(names, "+", &at); n;
	     n = strtok_r(NULL, "+", &at))
		ask(e, n, ms);
	loop_run(loop);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct engine_host host;
	struct slice worker;
	struct engine *e;
	int64_t ms;
	int i = 6;

	if (argc < 7)
		return 64;
	log_init("enclient", LOG_WARN);
	worker = slice_of(argv[3]);
	who.kind = strcmp(argv[1], "vllm") == 0 ? ENGINE_VLLM : ENGINE_SGLANG;
	who.url = slice_of(argv[2]);
	who.workers.v = &worker;
	who.workers.n = 1;
	who.name = slice_of(argv[4]);
	ms = atoll(argv[5]);
	while (i < argc && option(argv[i]))
		i++;
	goal.token = token;
	loop = loop_new();
	engine_host_init(&host, loop, NULL);
	host.answer = on_answer;
	host.expect = 1;
	e = engine_add(&host, 0, &who, &goal);
	for (; e && i < argc; i++)
		if (strncmp(argv[i], "ms=", 3) == 0)
			ms = atoll(argv[i] + 3);
		else
			ask_several(e, argv[i], ms);
	engine_host_release(&host);
	loop_free(loop);
	free(token);
	return e ? 0 : 78;
}
