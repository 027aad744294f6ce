#include "still.h"
#include "clock.h"
#include "lease.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define NS INT64_C(1000000000)
#define MS INT64_C(1000000)

/* Their mappings' first writes to a page set the time (page_mkwrite). */
static bool tells_of_mappings(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((uint32_t)fs.f_type) {
	case EXT4_SUPER_MAGIC: /* ext2 and ext3, too */
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

static int64_t time_ns(struct timespec t)
{
	return t.tv_sec * NS + t.tv_nsec;
}

bool still_look(int fd, struct still *out)
{
	struct stat st;

	if (!lease_is_held(fd) || !tells_of_mappings(fd) || fstat(fd, &st) < 0)
		return false;
	*out = (struct still){ .dev = st.st_dev,
			       .ino = st.st_ino,
			       .size = (uint64_t)st.st_size,
			       .mtime_ns = time_ns(st.st_mtim),
			       .ctime_ns = time_ns(st.st_ctim) };
	return true;
}

bool still_same(const struct still *a, const struct still *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

bool still_is_past(const struct still *s)
{
	int64_t last = s->mtime_ns > s->ctime_ns ? s->mtime_ns : s->ctime_ns;

	return last / MS + STILL_TICK_MS < clock_wall_ms();
}
