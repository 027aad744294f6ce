#include "pipes/progress.h"
#include "tests/tap.h"

#include <string.h>

static struct progress p = {
	.engines = 1, .waves = 1, .buckets = 2, .bytes = 96ull << 20
};
static struct buf bar;

static void tell(const char *line)
{
	struct buf text = { 0 };

	progress_line(&p, slice_of(line), &text);
	buf_release(&text);
	buf_clear(&bar);
	progress_bar(&p, 100, &bar);
}

static bool shows(const char *what)
{
	bool good = strstr(buf_cstr(&bar), what) != NULL;

	if (!good)
		printf("# %s\n", buf_cstr(&bar));
	return good;
}

int main(void)
{
	tell("{\"event\":\"opened\",\"version\":7}");
	tell("{\"event\":\"granted\",\"t_ns\":1000000000,\"wave\":0,"
	     "\"credit_buckets\":1,\"credit_bytes\":67108864,"
	     "\"limit_bytes\":134217728}");
	ok(shows("v7 wave 1/1"), "version and wave");
	ok(shows("credit 64 MiB/128 MiB"), "a limit as it was given");
	ok(!shows("left"), "no rate, no time");
	tell("{\"event\":\"acked\",\"t_ns\":2000000000,\"bytes\":67108864}");
	ok(shows("1/2 buckets, 64 MiB, 64 MiB/s, 1 s left"), "rounded up");
	tell("{\"event\":\"acked\",\"t_ns\":3000000000,\"bytes\":33554432}");
	ok(shows("2/2 buckets, 96 MiB, 48 MiB/s") && !shows("left"),
	   "nothing is left, and no time said");
	tell("{\"event\":\"decided\",\"version\":7}");
	for (int again = 0; again < 2; again++)
		tell("{\"event\":\"swapped\",\"engine\":\"a\"}");
	ok(shows("1 of 1 engine serve"), "an event told again counts once");
	buf_release(&bar);
	progress_release(&p);
	return tap_done();
}
