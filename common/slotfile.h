/*
 * slotfile.h - a file of an engine's slot, written through a kept mapping.
 *
 * Fresh pages cost six to fifteen times what warm ones do, and so does
 * mapping a file anew, so slots of retired versions are written again, and
 * an engine may keep a slotfile (descriptor and mapping) from push to push.
 * That is safe only while nobody else can see the file: slotfile_reuse()
 * and slotfile_is_ours() demand one link and that the kernel grants an
 * exclusive lease, which it does only if no other open file or mapping of the
 * file exists anywhere.  The lease is dropped at once; the caller must have
 * moved the name to where nobody opens it *before* asking.
 *
 * Space is reserved when the file is made, so that a full file system is an
 * error here and not a SIGBUS later.  A write-back can still fail: stores run
 * under a guard (guard.h).  Where mapping is refused, ->map is NULL and the
 * file is written with pwrite().
 *
 * While a slotfile is open the kernel refuses read leases on the file: close
 * it before the slot serves as a source.
 */
#ifndef WEIR_SLOTFILE_H
#define WEIR_SLOTFILE_H

#include "guard.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct slotfile {
	int fd;
	uint64_t size;
	char *map; /* size bytes, shared and writable; NULL: use pwrite */
};

/* What release accepts before anything was opened. */
#define SLOTFILE_INIT { .fd = -1 }

/* A new file of that size, mode 0600 until the slot is handed out; a name
 * that exists is an error.  No room: "need X bytes, have Y", and no file. */
int slotfile_create(struct slotfile *f, int dirfd, const char *name,
		    uint64_t size);
/* An existing one, made that size, if nobody else can see it.  -E_AGAIN, not
 * logged: not usable, unlink it and create; also if there is none. */
int slotfile_reuse(struct slotfile *f, int dirfd, const char *name,
		   uint64_t size);
/* The same question about a file that was kept open. */
bool slotfile_is_ours(const struct slotfile *f);

void slotfile_release(struct slotfile *f);

/* What a guard must cover while the map is written. */
struct guard_range slotfile_range(const struct slotfile *f);

#endif
