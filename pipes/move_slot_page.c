#include "pipes/move_slot_part.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int lock_byte(int fd, short type, off_t byte)
{
	struct flock f = { .l_type = type,
			   .l_whence = SEEK_SET,
			   .l_start = byte,
			   .l_len = 1 };

	return fcntl(fd, F_OFD_SETLK, &f);
}

/* Who was killed holds it until its device has let go of the memory. */
static int own_page(int fd)
{
	int64_t end = clock_mono_ms() + PAGE_OWNER_MS;

	while (lock_byte(fd, F_WRLCK, DEVPAGE_OWNER) < 0) {
		if (errno != EAGAIN && errno != EACCES)
			return log_errno(E_IO, "lock the device's slots");
		if (clock_mono_ms() >= end)
			return log_error(E_AGAIN, "another process owns the "
						  "device's slots");
		poll(NULL, 0, PAGE_LOOK_MS);
	}
	return 0;
}

/* With its blocks: writing into the map of a sparse one may be a SIGBUS. */
static int fill_page(int fd)
{
	errno = posix_fallocate(fd, 0, sizeof(struct devpage));
	if (errno)
		return log_errno(E_IO, "make the page of the device's slots");
	return 0;
}

static int map_page(struct page *p)
{
	int rc;

	p->fd = openat(p->dirfd, "page", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (p->fd < 0)
		return log_errno(E_IO, "open the page of the device's slots");
	rc = own_page(p->fd);
	/* Nobody but the owner writes into the directory. */
	if (rc == 0)
		rc = io_sweep_our_tmp(p->dirfd);
	if (rc >= 0)
		rc = fill_page(p->fd);
	if (rc < 0)
		return rc;
	p->p = mmap(NULL, sizeof(*p->p), PROT_READ | PROT_WRITE, MAP_SHARED,
		    p->fd, 0);
	if (p->p != MAP_FAILED)
		return 0;
	p->p = NULL;
	return log_errno(E_IO, "map the page of the device's slots");
}

/* Odd while it is written; consumers that wait are woken by the end. */
static uint32_t begin_write(struct devpage *p)
{
	uint32_t word = atomic_load(&p->word) | 1;

	atomic_store(&p->word, word);
	atomic_thread_fence(memory_order_release);
	return word;
}

static void end_write(struct devpage *p, uint32_t word)
{
	atomic_store(&p->word, word + 1);
	syscall(SYS_futex, &p->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int page_open(struct page *p, int store, const unsigned char uuid[])
{
	int rc = io_mkdir(store, DEVPAGE_DIR, 0755);
	uint32_t word;

	*p = (struct page){ .dirfd = -1, .fd = -1 };
	memcpy(p->uuid, uuid, sizeof(p->uuid));
	if (rc == 0)
		rc = p->dirfd = io_open_dir(store, DEVPAGE_DIR);
	if (rc >= 0)
		rc = map_page(p);
	if (rc < 0)
		return rc;
	word = begin_write(p->p);
	memcpy(p->p->magic, DEVPAGE_MAGIC, sizeof(p->p->magic));
	p->p->format = DEVPAGE_FORMAT;
	p->p->pid = (uint32_t)getpid();
	p->p->version = 0;
	memcpy(p->p->uuid, uuid, sizeof(p->p->uuid));
	end_write(p->p, word);
	return 0;
}

void page_close(struct page *p)
{
	if (p->p)
		munmap(p->p, sizeof(*p->p));
	if (p->fd >= 0)
		close(p->fd);
	if (p->dirfd >= 0)
		close(p->dirfd);
}

int page_lock(struct page *p, uint32_t slot)
{
	if (lock_byte(p->fd, F_WRLCK, DEVPAGE_SLOT + slot) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return -E_AGAIN;
	return log_errno(E_IO, "lock slot %u of the device", slot);
}

void page_unlock(struct page *p, uint32_t slot)
{
	lock_byte(p->fd, F_UNLCK, DEVPAGE_SLOT + slot);
}

int page_describe(struct page *p, const struct load *l)
{
	struct buf b = { 0 };
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "%u", l->slot->number);
	buf_addf(&b, "1 %llu %u %llu", (unsigned long long)l->record.version,
		 l->ntensors, (unsigned long long)l->bytes);
	buf_add(&b, "", 1);
	buf_add(&b, l->text.p, l->text.n);
	rc = io_replace(p->dirfd, name, b.p, b.n);
	buf_release(&b);
	return rc;
}

void page_show(struct page *p, const struct devslot *s)
{
	static const struct devslot nothing;
	const struct devslot *to = s ? s : &nothing;
	uint32_t word;

	if (s)
		page_unlock(p, s->number);
	word = begin_write(p->p);
	p->p->version = to->version;
	p->p->bytes = to->bytes;
	p->p->slot = to->number;
	memcpy(p->p->handle, to->handle, sizeof(to->handle));
	end_write(p->p, word);
}
