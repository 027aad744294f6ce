/* unit_events - what a stage tells, and how much of it. */
#include "pipes/events.h"
#include "common/io.h"
#include "common/log.h"

#include "tests/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[] = "/tmp/weir-events-XXXXXX";

static unsigned lines_with(int dirfd, const char *what)
{
	struct buf text = { 0 };
	unsigned n = 0;

	io_read_file(dirfd, "events", 1 << 20, &text);
	for (const char *s = buf_cstr(&text); (s = strstr(s, what)); s++)
		n++;
	buf_release(&text);
	return n;
}

static void test_bound(int dirfd)
{
	struct events e;

	eq_i64(events_open(&e, dirfd, STAGE_ADMIT, 1, false), 0, "open");
	eq_u64(e.max, EVENTS_MAX, "the bound has a name");
	e.max = 1000;
	for (unsigned i = 0; i < 100; i++)
		events_tell(&e, &HAPPENED("granted", .wave = EV(0),
					  .bucket = EV(i)));
	ok(e.told >= 1000 && e.told < 1200, "%llu bytes, bound 1000",
	   (unsigned long long)e.told);
	eq_u64(lines_with(dirfd, "\"granted\""),
	       lines_with(dirfd, "\"bucket\""), "whole lines");
	ok(lines_with(dirfd, "\"granted\"") > 5, "what fits is told");
	events_tell(&e, &HAPPENED("wave_complete", .wave = EV(0)));
	events_summary(&e, SLICE("\"exit\":0"));
	eq_u64(lines_with(dirfd, "\"wave_complete\""), 1,
	       "boundaries are told all the same");
	eq_u64(lines_with(dirfd, "\"summary\",\"exit\":0}"), 1,
	       "so is the summary");
	events_close(&e);
}

int main(void)
{
	int dirfd;

	log_init("unit_events", LOG_ERROR);
	BUG_ON(!mkdtemp(dir));
	dirfd = open(dir, O_RDONLY | O_DIRECTORY);
	test_bound(dirfd);
	io_remove_tree(AT_FDCWD, dir);
	close(dirfd);
	return tap_done();
}
