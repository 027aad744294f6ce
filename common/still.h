/*
 * still.h - a file that nobody has written since: told without reading it.
 *
 * As git, make and rsync tell it: device, inode, size and times are what they
 * were.  That is evidence only
 *
 *  - on file systems that give a file another time when it is written through
 *    a mapping as well.  Those in memory do not, and over a network times come
 *    late: there still_look() sees nothing
 *  - under a read lease (lease.h), held from before the bytes were read until
 *    they were, and when they are asked for again: who has a file open, or
 *    mapped, for writing may change it without a new time
 *  - if the times were past when the lease was still held: what is written in
 *    the same tick of the kernel's clock gets the same time
 *
 * What a user does to deceive himself (a clock set back, a disk written below
 * its file system) is not seen; who must see it reads.
 */
#ifndef WEIR_STILL_H
#define WEIR_STILL_H

#include <stdbool.h>
#include <stdint.h>

#define STILL_TICK_MS	20	/* no kernel's clock ticks more slowly */

struct still {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
};

/* An open file on which a lease is held: true, and *out, if it is one of
 * which this can be told. */
bool still_look(int fd, struct still *out);
bool still_same(const struct still *a, const struct still *b);
/* Would a change from now on be seen?  Asked while the lease is held. */
bool still_is_past(const struct still *s);

#endif
