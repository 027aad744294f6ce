#include "common/names.h"
#include "tests/tap.h"

#define MANY 20000u

static const char *const some[] = { "b", "", "a", "abc", "z", "a" };
static const char *const other[] = { "z", "q", "a" };

static struct slice some_name(const void *ctx, uint32_t i)
{
	const char *const *list = ctx;

	return slice_of(list[i]);
}

static void test_twice(void)
{
	struct names t;
	uint32_t a = 9, b = 9;

	names_sort(&t, some_name, some, 5);
	ok(!names_find_twice(&t, &a, &b) && a == 9, "no name twice");
	names_release(&t);
	names_sort(&t, some_name, some, COUNT(some));
	ok(names_find_twice(&t, &a, &b) && a == 2 && b == 5, "one name twice");
	names_release(&t);
	names_sort(&t, some_name, some, 0);
	ok(!names_find_twice(&t, &a, &b), "no names");
	names_release(&t);
}

static void test_join(void)
{
	struct names s, o;
	uint32_t in[COUNT(some)];

	names_sort(&s, some_name, some, COUNT(some));
	names_sort(&o, some_name, other, COUNT(other));
	names_join(&s, &o, in);
	ok(in[2] == 2 && in[5] == 2 && in[4] == 0, "names in both");
	ok(in[0] == NAMES_NONE && in[1] == NAMES_NONE && in[3] == NAMES_NONE,
	   "names in one");
	names_release(&s);
	names_release(&o);
}

/* Number i of many; odd ones of the other set begin otherwise. */
static char many[MANY][8];

static struct slice many_name(const void *ctx, uint32_t i)
{
	bool is_other = ctx && i % 2;

	snprintf(many[i], sizeof many[i], "x%u", i);
	return slice_of(many[i] + !is_other);
}

static void test_many(void)
{
	static uint32_t in[MANY];
	uint32_t a, b, wrong = 0;
	struct names s, o;

	names_sort(&s, many_name, NULL, MANY);
	names_sort(&o, many_name, "", MANY);
	ok(!names_find_twice(&s, &a, &b), "many, none twice");
	names_join(&o, &s, in);
	for (uint32_t i = 0; i < MANY; i++)
		wrong += in[i] != (i % 2 ? NAMES_NONE : i);
	eq_u64(wrong, 0, "many: each finds its own, or none");
	names_release(&s);
	names_release(&o);
}

int main(void)
{
	test_twice();
	test_join();
	test_many();
	return tap_done();
}
