#include "common/names.h"
#include "tests/tap.h"

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

/* Both sets in one order: equal names meet, others are passed by. */
static void test_join(void)
{
	struct names s, o;
	uint32_t i = 0, k = 0, met = 0;

	names_sort(&s, some_name, some, 5);
	names_sort(&o, some_name, other, COUNT(other));
	while (i < s.n && k < o.n) {
		int c = names_cmp(&s, i, &o, k);

		met += c == 0 && slice_eq(names_at(&s, i), names_at(&o, k));
		i += c <= 0;
		k += c >= 0;
	}
	eq_u64(met, 2, "two names are in both");
	names_release(&s);
	names_release(&o);
}

int main(void)
{
	test_twice();
	test_join();
	return tap_done();
}
