/* Runs tests/fsm/transfer.t. */
#include "tests/fsmcover.h"
#include "tests/fsmrun.h"

#include "common/err.h"
#include "common/log.h"
#include "pipes/transfer.h"

#define BUCKETS 3

static struct transfer t;
static struct plan_bucket bucket[BUCKETS] = { { .bytes = 100 },
					      { .bytes = 100 },
					      { .bytes = 100 } };
static struct plan_engine engine[] = {
	{ .name = "a", .workers = 3, .receivers = 2 },
	{ .name = "b", .workers = 1, .first_receiver = 2, .receivers = 1 },
};
static struct plan_receiver receiver[] = {
	{ .workers = 2 },
	{ .worker = 2, .workers = 1 },
	{ .engine = 1, .workers = 1 },
};
static const struct plan plan = { .engine = engine,
				  .receiver = receiver,
				  .bucket = bucket,
				  .nranks = 1,
				  .nengines = 2,
				  .nreceivers = 3,
				  .nbuckets = BUCKETS };
static struct buf *told, unheard;

/* Word of an action, and which of its numbers follows. */
static const struct {
	const char *word;
	enum { NOTHING, RECEIVER, ENGINE, BUCKET } number;
} word[XF_NDO] = {
	[XF_ASK_HOLDING] = { "ask", RECEIVER },
	[XF_PREPARE] = { "prepare", BUCKET },
	[XF_OFFER] = { "offer", RECEIVER },
	[XF_FINISH] = { "finish", RECEIVER },
	[XF_SEVER] = { "sever", ENGINE },
	[XF_HASH_REST] = { "hash", NOTHING },
	[XF_STOP] = { "stop", NOTHING },
	[XF_SAY_HOLDS] = { "holds", ENGINE },
	[XF_SAY_RELEASED] = { "released", BUCKET },
	[XF_SAY_STAGED] = { "staged", BUCKET },
	[XF_SAY_MOVED] = { "moved", BUCKET },
	[XF_SAY_ACKED] = { "acked", BUCKET },
	[XF_SAY_FAILED] = { "failed", ENGINE },
	[XF_SAY_DRAINED] = { "drained", NOTHING },
	[XF_SAY_SEALED] = { "sealed", ENGINE },
	[XF_SAY_EXCLUDED] = { "excluded", ENGINE },
};

static void act(void *arg, const struct xf_action *a)
{
	const uint32_t number[] = { [NOTHING] = ID_NONE,
				    [RECEIVER] = a->receiver,
				    [ENGINE] = a->engine,
				    [BUCKET] = a->bucket };

	(void)arg;
	buf_addf(told, " %s", word[a->what].word);
	if (number[word[a->what].number] != ID_NONE)
		buf_addf(told, "%u", number[word[a->what].number]);
	if (a->what == XF_OFFER ||
	    (a->what == XF_SAY_FAILED && a->bucket != ID_NONE))
		buf_addf(told, ":%u", a->bucket);
	if (a->what == XF_SAY_HOLDS)
		buf_addf(told, ":%u%s", (uint8_t)*a->bitmap.p,
			 a->sealed ? "s" : "");
}

static void reset(void)
{
	transfer_release(&t);
	transfer_init(&t, &plan, false);
	t.out = act;
}

static void state(struct buf *out)
{
	buf_addf(out, "%s", transfer_table.states[t.state]);
}

static bool feed(struct xf_event e)
{
	return transfer_step(&t, &e) == 0;
}

static bool run(void)
{
	static const char none[] = "";
	bool good = true;

	told = &unheard;
	good &= feed((struct xf_event){ .on = XF_EV_ADMIT_UP });
	good &= feed((struct xf_event){ .on = XF_EV_OPENED });
	for (uint32_t r = 0; r < 3; r++)
		good &= feed((struct xf_event){ .on = XF_EV_HELD,
						.receiver = r,
						.count = BUCKETS,
						.bitmap = { none, 1 } });
	buf_clear(&unheard);
	return good;
}

/* "commit-up" of a script is commit_up of the table. */
static enum xf_ev named(const char *name)
{
	static const struct {
		const char *name;
		enum xf_ev on;
	} other[] = { { "up", XF_EV_ADMIT_UP },
		      { "down", XF_EV_ADMIT_DOWN },
		      { "commit-up", XF_EV_COMMIT_UP } };
	enum xf_ev on = 0;

	for (size_t i = 0; i < COUNT(other); i++)
		if (strcmp(other[i].name, name) == 0)
			return other[i].on;
	while (on < XF_EV_GO && strcmp(transfer_table.events[on], name) != 0)
		on++;
	return on;
}

static bool event(char **words, size_t n, struct buf *out)
{
	uint8_t had = (uint8_t)fsm_arg(words, n, "had", 0);
	struct xf_event e;

	if (strcmp(words[0], "whole") == 0) {
		transfer_set_whole(&t);
		return true;
	}
	e = (struct xf_event){
		.on = named(words[0]),
		.engine = (uint32_t)fsm_arg(words, n, "e", ID_NONE),
		.receiver = (uint32_t)fsm_arg(words, n, "r", 0),
		.worker = (uint32_t)fsm_arg(words, n, "w", 0),
		.bucket = (uint32_t)fsm_arg(words, n, "b", ID_NONE),
		.first = (uint32_t)fsm_arg(words, n, "first", 0),
		.bytes = 100,
		.digest = { { (uint8_t)fsm_arg(words, n, "d", 1) } },
		.sealed = fsm_arg(words, n, "sealed", 0),
		.hash_only = fsm_arg(words, n, "hash", 0),
		.code = E_DATA,
		.bitmap = { (const char *)&had, 1 },
	};

	if (strcmp(words[0], "run") == 0)
		return run();
	e.count = e.on == XF_EV_HELD ? BUCKETS
				     : (uint32_t)fsm_arg(words, n, "count", 2);
	told = out;
	return e.on < XF_EV_GO && feed(e);
}

static void last(void)
{
	fsm_all_taken(&transfer_table);
}

int main(void)
{
	static const struct fsm_script ops = { reset, state, event, last };
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/fsm/transfer.t", src ? src : ".");
	char *argv[] = { NULL, path };
	int rc = fsm_scripts(&ops, 2, argv);

	transfer_release(&t);
	buf_release(&unheard);
	free(path);
	return rc;
}
