/*
 * move_slot.h - weir-move-slot: an engine's versions in a device's memory.
 *
 * Started by weir-engine --device, and told over a socket pair (fdpass.h):
 *
 *	<- slots, with STORE	-> enrolled
 *	<- install, with its directory	-> installed
 *	<- show			-> shown
 *	<- give_up		the install is refused
 *
 * or refused.  One install at a time.  A version's tensors lie in one plain
 * allocation, each aligned (devpage.h).  They are read from the store's files,
 * copied by two pinned chunks in turn, and when all are there copied back and
 * hashed: only bytes that are on the device and have the digest of the sealed
 * version are `installed`.  What post-load has made has the digest of a tree of
 * files (seal.h): their tensors are taken from the device, all else from the
 * store.
 *
 * An install takes a slot that is not shown; with one slot, the shown version
 * is offered to nobody from then on.  It waits, to its deadline, until no
 * consumer holds the slot (devpage.h): whoever maps it is never overwritten.
 *
 * What the device fails with ends the process, and the end of the socket does.
 * The memory ends with it: consumers see that nobody owns the page.
 */
#ifndef WEIR_MOVE_SLOT_H
#define WEIR_MOVE_SLOT_H

#define MOVE_SLOT_CHUNK ((size_t)8 << 20) /* bytes; two in pinned memory */
#define MOVE_SLOT_LOOK_MS 20		  /* between two tries of a lock */
#define MOVE_SLOT_CALL_MS 60000		  /* for one call of the runtime */

/* Is this device there?  0, or -E_*, logged. */
int move_slot_check(void);
/* Until the socket ends; returns 0, or -E_* (logged). */
int move_slot_run(int fd);

#endif
