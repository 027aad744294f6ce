#include "clock.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

static int64_t now_ns(clockid_t id)
{
	struct timespec ts;

	BUG_ON(clock_gettime(id, &ts) != 0);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_mono_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
	return now_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t clock_boot_ms(void)
{
	return now_ns(CLOCK_BOOTTIME) / 1000000;
}

int64_t clock_wall_ms(void)
{
	return now_ns(CLOCK_REALTIME) / 1000000;
}

void clock_wall_text(int64_t wall_ms, char out[CLOCK_TEXT_MAX])
{
	time_t t = (time_t)(wall_ms / 1000);
	char date[CLOCK_TEXT_MAX - 8], zone[8];
	struct tm tm;

	out[0] = '\0';
	if (!localtime_r(&t, &tm) ||
	    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm) == 0 ||
	    strftime(zone, sizeof zone, "%z", &tm) != 5)
		return;
	snprintf(out, CLOCK_TEXT_MAX, "%s%.3s:%s", date, zone, zone + 3);
}

int clock_boot_id(char *out)
{
	char id[CLOCK_BOOT_ID_LEN + 1];
	int fd = open(BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return log_errno(E_IO, "open %s", BOOT_ID_FILE);
	do
		n = read(fd, id, CLOCK_BOOT_ID_LEN);
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n != CLOCK_BOOT_ID_LEN)
		return log_error(E_IO, "%s holds no boot id", BOOT_ID_FILE);
	for (n = 0; n < CLOCK_BOOT_ID_LEN; n++)
		out[n] = id[n];
	out[n] = '\0';
	return 0;
}
