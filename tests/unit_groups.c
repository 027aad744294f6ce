#include "pipes/groups.h"
#include "tests/tap.h"

static void is(const struct groups *g, const char *want, const char *what)
{
	struct buf b = { 0 };

	groups_text(g, &b);
	eq_str(buf_cstr(&b), want, what);
	buf_release(&b);
}

static void test_order(void)
{
	const struct slice more[] = { SLICE("b"), SLICE("a"), SLICE("c") };
	struct groups g = { 0 };

	is(&g, "", "none");
	groups_forget(&g, 1);
	groups_forget_newest(&g);
	is(&g, "", "none can be forgotten");
	groups_add(&g, SLICE("a"));
	groups_add_all(&g, more, 3);
	is(&g, "a, b, c", "each once, oldest first");
	groups_forget_newest(&g);
	is(&g, "a, b", "without the newest");
	groups_forget(&g, 1);
	is(&g, "b", "without the oldest");
	groups_release(&g);
	is(&g, "", "released");
}

static void test_bound(void)
{
	struct groups g = { 0 };
	char name[] = "0";

	for (unsigned i = 0; i <= GROUPS_MAX; i++, name[0]++)
		groups_add(&g, slice_of(name));
	is(&g, "1, 2, 3, 4, 5, 6, 7, 8", "the oldest makes room");
	groups_forget(&g, GROUPS_MAX + 1);
	is(&g, "", "more than there are");
}

int main(void)
{
	test_order();
	test_bound();
	return tap_done();
}
