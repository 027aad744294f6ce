#include "window.h"
#include "buf.h"
#include "cached.h"
#include "err.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A multiple of every page size, so that a window may start there. */
#define GRAIN ((uint64_t)2 << 20)

void window_init(struct window *w, int fd, uint64_t size, enum window_how how)
{
	if (how == WINDOW_AUTO)
		how = cached_is_tmpfs(fd) ? WINDOW_BUFFERED : WINDOW_MAPPED;
	*w = (struct window){
		.fd = fd,
		.size = size,
		.is_mapped = how == WINDOW_MAPPED,
		.cap = how == WINDOW_FROM_DISK ? WINDOW_COLD : WINDOW_READ,
	};
}

static void drop(struct window *w)
{
	if (w->is_mapped && w->p)
		munmap(w->p, w->n);
	free(w->box);
	w->box = NULL;
	w->p = NULL;
	w->n = 0;
}

void window_release(struct window *w)
{
	drop(w);
	*w = (struct window){ 0 };
}

static size_t room(const struct window *w, uint64_t off, size_t max)
{
	return w->size - off < max ? (size_t)(w->size - off) : max;
}

static int map(struct window *w, uint64_t off)
{
	uint64_t start = off - off % GRAIN;
	size_t n = room(w, start, WINDOW_MAP);
	void *p;

	drop(w);
	p = mmap(NULL, n, PROT_READ, MAP_SHARED, w->fd, (off_t)start);
	if (p == MAP_FAILED) {
		w->is_mapped = false;
		return -E_AGAIN;
	}
	w->p = p;
	w->off = start;
	w->n = n;
	return 0;
}

/* File and memory both start on a page: see xpages(). */
static int fill(struct window *w, uint64_t off)
{
	uint64_t start = off - off % XPAGE;
	size_t n = room(w, start, w->cap);
	ssize_t got;

	if (!w->box)
		w->box = xpages(w->cap);
	w->p = w->box;
	w->n = 0;
	do
		got = pread(w->fd, w->p, n, (off_t)start);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -E_IO;
	if ((uint64_t)got <= off - start)
		return -E_DATA;
	w->off = start;
	w->n = (size_t)got;
	return 0;
}

static int move(struct window *w, uint64_t off)
{
	if (w->is_mapped && map(w, off) == 0)
		return 0;
	return fill(w, off);
}

int window_get(struct window *w, uint64_t off, size_t want, const char **p,
	       size_t *n)
{
	size_t left;

	if (off >= w->size || want > w->size - off)
		return -E_DATA;
	if (off < w->off || off - w->off >= w->n) {
		int rc = move(w, off);

		if (rc < 0)
			return rc;
	}
	left = w->n - (size_t)(off - w->off);
	*p = w->p + (off - w->off);
	*n = left < want ? left : want;
	return 0;
}

struct guard_range window_range(const struct window *w)
{
	if (!w->is_mapped)
		return (struct guard_range){ NULL, 0 };
	return (struct guard_range){ w->p, w->n };
}
