#include "tests/tap.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/wave.h"

/* "(0,1)(2,3)(4)" */
static const char *draw(uint32_t staged, uint32_t engines, int64_t limit)
{
	static struct buf out;
	struct waves w;

	buf_clear(&out);
	if (waves_init(&w, staged, engines, limit) < 0)
		return "refused";
	for (uint32_t i = 0; i < waves_count(&w); i++) {
		uint32_t first, count;

		waves_get(&w, i, &first, &count);
		for (uint32_t e = first; e < first + count; e++) {
			buf_addf(&out, "%s%u", e == first ? "(" : ",", e);
			if (waves_of(&w, e) != i)
				return "waves_of disagrees";
		}
		buf_addf(&out, ")");
	}
	return buf_cstr(&out);
}

static const struct {
	uint32_t engines;
	int64_t limit;
	const char *want;
} contract[] = {
	{ 0, 0, "refused" },
	{ 0, 1, "refused" },
	{ 1, 0, "(0)" },
	{ 1, 1, "(0)" },
	{ 1, 2, "(0)" },
	{ 2, 0, "(0,1)" },
	{ 2, 1, "(0)(1)" },
	{ 2, 2, "(0,1)" },
	{ 2, 100, "(0,1)" },
	{ 4, 0, "(0,1,2,3)" },
	{ 4, 1, "(0)(1)(2)(3)" },
	{ 4, 2, "(0,1)(2,3)" },
	{ 4, 4, "(0,1,2,3)" },
	{ 4, UINT32_MAX, "(0,1,2,3)" },
	{ 5, 0, "(0,1,2,3,4)" },
	{ 5, 1, "(0)(1)(2)(3)(4)" },
	{ 5, 2, "(0,1)(2,3)(4)" },
	{ 5, 5, "(0,1,2,3,4)" },
	{ 5, 6, "(0,1,2,3,4)" },
	{ 7, 0, "(0,1,2,3,4,5,6)" },
	{ 7, 1, "(0)(1)(2)(3)(4)(5)(6)" },
	{ 7, 2, "(0,1)(2,3)(4,5)(6)" },
	{ 7, 7, "(0,1,2,3,4,5,6)" },
	{ 7, 8, "(0,1,2,3,4,5,6)" },
	{ 7, -1, "refused" },
	{ 7, (int64_t)UINT32_MAX + 1, "refused" },
};

int main(void)
{
	struct waves w;
	char name[80];

	for (size_t i = 0; i < COUNT(contract); i++) {
		snprintf(name, sizeof(name), "FL-08 %u engines, limit %lld",
			 contract[i].engines, (long long)contract[i].limit);
		eq_str(draw(contract[i].engines, contract[i].engines,
			    contract[i].limit),
		       contract[i].want, name);
	}
	eq_str(draw(3, 5, 0), "(0,1,2)(3,4)", "kinds never mix, all at once");
	eq_str(draw(3, 5, 2), "(0,1)(2)(3,4)", "kinds never mix, two at once");
	eq_str(draw(0, 3, 2), "(0,1)(2)", "in-place engines only");
	eq_str(draw(3, 2, 2), "refused", "more staged engines than engines");
	eq_i64(waves_init(&w, 1, 1, -1), -E_USAGE, "a negative limit is usage");
	eq_i64(waves_init(&w, 0, 0, 1), -E_DATA, "no engines is bad data");
	return tap_done();
}
