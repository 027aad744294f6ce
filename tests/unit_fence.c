#include "common/err.h"
#include "common/fence.h"
#include "tests/tap.h"

static struct fence f;
static char why[FENCE_WHY_MAX];

static struct fence_speaker who(const char *registry, uint64_t epoch,
				const char *run, uint32_t instance)
{
	return (struct fence_speaker){ .registry = slice_of(registry),
				       .run = slice_of(run),
				       .epoch = epoch,
				       .instance = instance,
				       .stage = 4 };
}

static int try(struct fence_speaker w, enum fence_use use)
{
	struct fence before = f;
	int rc;

	why[0] = '\0';
	rc = fence_check(&f, &w, use, why);
	ok(memcmp(&f, &before, sizeof f) == 0, "a check changes nothing");
	if (rc > 0)
		fence_move(&f, &w, use);
	return rc;
}

static void refused(struct fence_speaker w, enum fence_use use,
		    const char *text)
{
	eq_i64(try(w, use), -E_FENCED, text);
	ok(strstr(why, text), "it says \"%s\": %s", text, why);
}

static void test_registry(void)
{
	f = (struct fence){ 0 };
	refused(who("A", 1, "r1", 1), FENCE_WORK, "no run has begun");
	eq_i64(try(who("A", 1, "r1", 1), FENCE_BEGIN), 1, "first begin");
	eq_str(f.registry, "A", "has an owner");
	eq_i64(try(who("A", 1, "r1", 1), FENCE_WORK), 0, "work of that run");
	refused(who("B", 9, "x", 1), FENCE_BEGIN, "belongs to registry A");
	refused(who("B", 9, "x", 1), FENCE_CANCEL, "belongs to registry A");
	eq_i64(try(who("B", 1, "x", 1), FENCE_ADOPT), 1, "adopted");
	eq_str(f.registry, "B", "by B");
	eq_str(f.former, "A", "from A");
	ok(f.spent, "which uses --adopt up");
	eq_i64(try(who("B", 2, "y", 1), FENCE_BEGIN), 1, "B's next run");
	ok(f.spent && strcmp(f.former, "A") == 0, "changes nothing of that");
	refused(who("A", 99, "r1", 1), FENCE_WORK, "belongs to registry B");
	refused(who("", 99, "r1", 1), FENCE_WORK, "no registry");
}

/* VF-06, VF-13: an older sender changes nothing. */
static void test_epoch(void)
{
	f = (struct fence){ 0 };
	try(who("A", 57, "new", 1), FENCE_BEGIN);
	refused(who("A", 56, "old", 9), FENCE_BEGIN, "epoch 56 of run old");
	refused(who("A", 56, "old", 9), FENCE_CANCEL, "epoch 57 of run new");
	refused(who("A", 57, "old", 9), FENCE_WORK, "belongs to run new");
	refused(who("A", 58, "next", 1), FENCE_WORK, "has not begun");
	eq_i64(try(who("A", 58, "next", 1), FENCE_SERVE), 1, "brings home");
	refused(who("A", 57, "new", 1), FENCE_WORK, "is over");
}

static void test_instance(void)
{
	struct fence_speaker other = who("A", 1, "r", 1);

	f = (struct fence){ 0 };
	try(who("A", 1, "r", 2), FENCE_BEGIN);
	refused(who("A", 1, "r", 1), FENCE_WORK, "replaced by instance 2");
	eq_i64(try(who("A", 1, "r", 3), FENCE_WORK), 1, "a newer one moves");
	refused(who("A", 1, "r", 2), FENCE_CANCEL, "replaced by instance 3");
	other.stage = 3;
	eq_i64(try(other, FENCE_WORK), 1, "stages count apart");
	eq_i64(try(who("A", 2, "s", 1), FENCE_BEGIN), 1, "a new epoch");
	eq_u64(f.instance[3], 0, "counts anew");
	other.stage = FENCE_STAGES;
	refused(other, FENCE_WORK, "no registry");
}

static void test_closed(void)
{
	f = (struct fence){ 0 };
	eq_i64(try(who("A", 4, "r", 1), FENCE_CANCEL), 1,
	       "cancel before the begin");
	refused(who("A", 4, "r", 1), FENCE_BEGIN, "was cancelled");
	refused(who("A", 4, "r", 2), FENCE_SERVE, "was cancelled");
	eq_i64(try(who("A", 4, "r", 1), FENCE_CANCEL), 0, "cancel again");
	eq_i64(try(who("A", 5, "s", 1), FENCE_BEGIN), 1, "the next epoch");
	ok(!f.closed, "is open");
}

int main(void)
{
	test_registry();
	test_epoch();
	test_instance();
	test_closed();
	return tap_done();
}
