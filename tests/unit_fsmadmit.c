/* Runs tests/fsm/admit.t. */
#include "tests/fsmcover.h"
#include "tests/fsmrun.h"

#include "common/log.h"
#include "pipes/admit.h"

#define BUCKETS 6

static struct admit a;
static struct plan_bucket bucket[BUCKETS];
static struct buf *told;

static void act(void *arg, const struct admit_action *o)
{
	(void)arg;
	switch (o->what) {
	case ADM_GRANT:
		buf_addf(told, " g%u.%u", o->wave, o->bucket);
		break;
	case ADM_SEAL_WAVE:
		buf_addf(told, " seal%u", o->wave);
		break;
	case ADM_CREDIT_BACK:
		buf_addf(told, " r%u", o->bucket);
		break;
	case ADM_WAVE_COMPLETE:
		buf_addf(told, " done%u", o->wave);
		break;
	case ADM_NDO:
		break;
	}
}

static void machine(char **words, size_t n)
{
	uint32_t engines = (uint32_t)fsm_arg(words, n, "engines", 2);
	uint64_t alone = fsm_arg(words, n, "exclusive", BUCKETS);
	struct admit_limits l = {
		.groups = fsm_arg(words, n, "groups", 1),
		.buckets = fsm_arg(words, n, "buckets", 2),
		.bytes = fsm_arg(words, n, "bytes", 0),
		.order = fsm_arg(words, n, "order", 0) ? ADM_BY_WINDOW
						       : ADM_BY_WAVE,
	};

	for (uint32_t b = 0; b < BUCKETS; b++)
		bucket[b] = (struct plan_bucket){ .bytes = 1536,
						  .exclusive = b == alone };
	admit_release(&a);
	BUG_ON(admit_init(&a, &l, bucket, BUCKETS,
			  (uint32_t)fsm_arg(words, n, "staged", engines),
			  engines) < 0);
	a.out = act;
}

static void reset(void)
{
	char *words[] = { NULL };

	machine(words, 0);
}

static void state(struct buf *out)
{
	buf_addf(out, "%s", admit_table.states[a.state]);
}

static bool event(char **words, size_t n, struct buf *out)
{
	uint8_t had = (uint8_t)fsm_arg(words, n, "had", 0);
	struct admit_event e = {
		.engine = (uint32_t)fsm_arg(words, n, "e", 0),
		.wave = (uint32_t)fsm_arg(words, n, "w", 0),
		.bucket = (uint32_t)fsm_arg(words, n, "b", 0),
		.phase = (uint8_t)fsm_arg(words, n, "phase", 1),
		.sealed = fsm_arg(words, n, "sealed", 0),
		.hash_only = fsm_arg(words, n, "hash", 0),
		.count = BUCKETS,
		.bitmap = { (const char *)&had, 1 },
	};

	if (strcmp(words[0], "machine") == 0) {
		machine(words, n);
		return true;
	}
	while (e.on < ADM_EV_GO &&
	       strcmp(admit_table.events[e.on], words[0]) != 0)
		e.on++;
	told = out;
	return e.on < ADM_EV_GO && admit_step(&a, &e) == 0;
}

static void last(void)
{
	fsm_all_taken(&admit_table);
}

int main(void)
{
	static const struct fsm_script ops = { reset, state, event, last };
	const char *src = getenv("SRC");
	char *path = xasprintf("%s/tests/fsm/admit.t", src ? src : ".");
	char *argv[] = { NULL, path };
	int rc = fsm_scripts(&ops, 2, argv);

	admit_release(&a);
	free(path);
	return rc;
}
