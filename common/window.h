/*
 * window.h - a file read through a bounded window.
 *
 * Two ways, one interface.  *Mapped*: WINDOW_MAP bytes of the page cache are
 * mapped at a time; nothing is copied, but each page costs a fault.  *Read*:
 * pread() into a small buffer that stays in the processor's cache.  Which is
 * faster depends on the file: where the page cache has large folios (ext4,
 * xfs, files written in large pieces) mapping wins by a third; on tmpfs,
 * with its 4 KiB pages, faults cost more than the copy (both measured; see
 * tests/bench/copy_limit.c).  Where mapping is refused (RLIMIT_AS, a file
 * system without mmap) the window changes to reading for good.
 *
 * Mapped bytes must be touched under a guard (guard.h): the file may be
 * truncated at any time.  One thread per window; the descriptor is lent and
 * may be shared, its file position is not used.  Nothing is logged here: the
 * caller knows the file's name.
 */
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#include "guard.h"

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_MAP	((size_t)32 << 20)	/* bytes mapped at a time */
#define WINDOW_READ	((size_t)256 << 10)	/* fits the L2 cache */
#define WINDOW_COLD	((size_t)4 << 20)	/* one read from a disk */

enum window_how {
	WINDOW_AUTO,	/* by file system: read on tmpfs, else mapped */
	WINDOW_MAPPED,
	WINDOW_BUFFERED,
	WINDOW_FROM_DISK,	/* buffered in large reads: cold files */
};

struct window {
	int fd;
	uint64_t size;		/* of the file, as opened */
	bool is_mapped;
	char *p;		/* map, or box */
	uint64_t off;		/* of p[0] in the file */
	size_t n;		/* bytes valid at p */
	char *box;		/* the buffer; NULL: none */
	size_t cap;		/* of the buffer */
};

/* Never fails.  {0} may be released. */
void window_init(struct window *w, int fd, uint64_t size, enum window_how how);
void window_release(struct window *w);

/* Lends *n bytes (1 <= *n <= want, so a caller loops) of the file at off
 * until the next call.  -E_DATA: off + want lies beyond the size, or the file
 * has become shorter; -E_IO: it cannot be read. */
int window_get(struct window *w, uint64_t off, size_t want, const char **p,
	       size_t *n);

/* What a guard must cover while lent bytes are read: the map, or nothing. */
struct guard_range window_range(const struct window *w);

#endif
