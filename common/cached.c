#include "cached.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/vfs.h>

static bool is_resident(int fd, uint64_t off)
{
	char c;
	struct iovec v = { &c, 1 };

	return preadv2(fd, &v, 1, (off_t)off, RWF_NOWAIT) >= 0 ||
	       errno != EAGAIN;
}

bool cached_is_warm(int fd, uint64_t off, uint64_t n)
{
	if (n == 0)
		return true;
	for (uint64_t i = 0; i < CACHED_SAMPLES; i++)
		if (!is_resident(fd, off + (n - 1) / CACHED_SAMPLES * i))
			return false;
	return is_resident(fd, off + n - 1);
}

bool cached_is_tmpfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}
