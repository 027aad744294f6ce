#include "slotfile.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SLOT_OPEN (O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

/* Bytes that an ordinary user may still write; 0 if unknown. */
static unsigned long long space(int fd)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) < 0)
		return 0;
	return (unsigned long long)fs.f_bavail * fs.f_frsize;
}

/* Asking for what is there walks over every page of it on tmpfs. */
static bool is_reserved(int fd, uint64_t size)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size == size &&
	       (uint64_t)st.st_blocks * 512 >= size;
}

/* Returns an errno value. */
static int reserve(int fd, uint64_t size)
{
	int e = EINTR;

	if (is_reserved(fd, size))
		return 0;
	if (ftruncate(fd, (off_t)size) < 0)
		return errno;
	while (size > 0 && e == EINTR)
		e = posix_fallocate(fd, 0, (off_t)size);
	return size > 0 ? e : 0;
}

static int no_space(int fd, const char *name, uint64_t size, int e)
{
	/* Give back what was reserved, or "have" would count it as used. */
	unsigned long long have = ftruncate(fd, 0) == 0 ? space(fd) : 0;

	if (e == ENOSPC || e == EDQUOT)
		return log_error(E_IO,
				 "no space for %s: need %llu bytes, have %llu",
				 name, (unsigned long long)size, have);
	errno = e;
	return log_errno(E_IO, "reserve %llu bytes for %s",
			 (unsigned long long)size, name);
}

static void map(struct slotfile *f)
{
	void *p = MAP_FAILED;

	if (f->size > 0 && f->size <= SIZE_MAX)
		p = mmap(NULL, (size_t)f->size, PROT_READ | PROT_WRITE,
			 MAP_SHARED, f->fd, 0);
	f->map = p == MAP_FAILED ? NULL : p;
}

int slotfile_create(struct slotfile *f, int dirfd, const char *name,
		    uint64_t size)
{
	struct slotfile n = { .size = size };
	int e;

	n.fd = openat(dirfd, name, SLOT_OPEN | O_CREAT | O_EXCL, 0600);
	if (n.fd < 0)
		return log_errno(E_IO, "create %s", name);
	e = reserve(n.fd, size);
	if (e != 0) {
		int rc = no_space(n.fd, name, size, e);

		close(n.fd);
		unlinkat(dirfd, name, 0);
		return rc;
	}
	map(&n);
	*f = n;
	return 0;
}

bool slotfile_is_ours(const struct slotfile *f)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
		return false;
	if (fcntl(f->fd, F_SETLEASE, F_WRLCK) < 0)
		return false;
	return fcntl(f->fd, F_SETLEASE, F_UNLCK) == 0;
}

int slotfile_reuse(struct slotfile *f, int dirfd, const char *name,
		   uint64_t size)
{
	struct slotfile n = { .size = size };

	n.fd = openat(dirfd, name, SLOT_OPEN);
	if (n.fd < 0)
		return -E_AGAIN;
	/* Not enough room for a longer one: creating it will say so. */
	if (!slotfile_is_ours(&n) || reserve(n.fd, size) != 0) {
		close(n.fd);
		return -E_AGAIN;
	}
	map(&n);
	*f = n;
	return 0;
}

void slotfile_release(struct slotfile *f)
{
	if (f->map)
		munmap(f->map, (size_t)f->size);
	if (f->fd >= 0)
		close(f->fd);
	*f = (struct slotfile)SLOTFILE_INIT;
}

struct guard_range slotfile_range(const struct slotfile *f)
{
	return (struct guard_range){ f->map, f->map ? (size_t)f->size : 0 };
}
