/*
 * devpage.h - how an engine's device slots are found by who uses them.
 *
 *	STORE/device/page	this, mapped by the engine's mover (writing)
 *				and by consumers (reading)
 *	STORE/device/0, 1	what is in that slot; text, below
 *
 * The *word* is a sequence lock and a futex: odd while the page is written,
 * and another even number after every change.  A consumer reads it, copies
 * the page, and reads it again.
 *
 * Who uses a slot holds a read lock on a byte of the page (open file
 * description lock, DEVPAGE_SLOT + its number), and looks at the word again
 * when it has that: only an unlocked slot is written into.  The mover holds a
 * write lock on DEVPAGE_OWNER while it lives: without one the memory is gone,
 * and so are the locks of whoever is killed.
 *
 * A slot's text: "1 VERSION COUNT BYTES", then for each of COUNT tensors
 * "OFFSET BYTES DTYPE D,D,... NAME", each ended by a NUL; no dimensions: "-".
 */
#ifndef WEIR_DEVPAGE_H
#define WEIR_DEVPAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define DEVPAGE_DIR	"device"	/* in the store */
#define DEVPAGE_MAGIC	"weir-dev"
#define DEVPAGE_FORMAT	1u
#define DEVPAGE_SLOTS	2u
#define DEVPAGE_ALIGN	256u		/* bytes, of each tensor in a slot */

/* Bytes that are locked; the file need not reach there. */
#define DEVPAGE_SLOT	4096
#define DEVPAGE_OWNER	4351

struct devpage {
	char magic[8];
	uint32_t format, pid;		/* of the mover */
	_Atomic uint32_t word;
	uint32_t slot;
	uint64_t version;		/* 0: none is offered */
	uint64_t bytes;
	unsigned char uuid[16];		/* of the device */
	unsigned char handle[64];	/* CUDA IPC, of the slot's memory */
};

#endif
