#include "common/units.h"
#include "tests/tap.h"

static const struct {
	uint64_t bytes;
	const char *text;
} sizes[] = {
	{ 0, "0 B" },
	{ 1000, "1000 B" },
	{ 1023, "1023 B" },
	{ 1024, "1 KiB" },
	{ 64ull << 20, "64 MiB" },
	{ 2ull << 30, "2 GiB" },
	{ 3ull << 29, "1.5 GiB" },
	{ 1234567890, "1.15 GiB" },
	{ 100000000, "95.4 MiB" },
	{ 120ull << 20, "120 MiB" },
	{ (1ull << 30) - 1, "1 GiB" },
	{ UINT64_MAX, "16 EiB" },
};

static const struct {
	int64_t ms;
	const char *text;
} times[] = {
	{ 0, "0 ms" },	       { 600, "600 ms" },
	{ 2000, "2 s" },       { 2540, "2.5 s" },
	{ 9949, "9.9 s" },     { 9999, "10 s" },
	{ 19387, "19 s" },     { 60000, "60 s" },
	{ 3600000, "3600 s" }, { INT64_MAX, "9223372036854776 s" },
};

int main(void)
{
	char out[UNITS_MAX];

	for (size_t i = 0; i < COUNT(sizes); i++)
		eq_str(units_size(sizes[i].bytes, out), sizes[i].text, "size");
	for (size_t i = 0; i < COUNT(times); i++)
		eq_str(units_time(times[i].ms, out), times[i].text, "time");
	return tap_done();
}
