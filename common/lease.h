/*
 * lease.h - a read lease: "tell me if somebody opens this file for writing".
 *
 * While a lease is held, nobody has the file open for writing and nobody has
 * truncated it: what was read under it is one state of the file.  An open
 * for writing breaks it; the opener waits for the holder, at most
 * /proc/sys/fs/lease-break-time seconds, so let go soon.
 *
 * The kernel sends SIGIO on a break, which would end the process:
 * lease_take() sets it to be ignored if nobody has asked for it; a program
 * that wants SIGIO for itself must have installed its handler or blocked it
 * before.  A break is found by asking, no signal is needed.
 *
 * A lease belongs to the open file description: descriptors passed to other
 * processes share it, and it ends when the last one is closed.  The
 * descriptor must be read-only and the file one's own (or CAP_LEASE).
 */
#ifndef WEIR_LEASE_H
#define WEIR_LEASE_H

#include <stdbool.h>

/* 0; -E_AGAIN: the file is open for writing somewhere; -E_UNAVAIL: no leases
 * here (file system, owner).  Not logged: the caller has a second way. */
int lease_take(int fd);
/* False from the moment somebody began to open the file for writing. */
bool lease_is_held(int fd);
void lease_release(int fd);

#endif
