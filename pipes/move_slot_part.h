/*
 * move_slot_part.h - what the files of weir-move-slot share; nobody else
 * includes this.
 *
 *	move_slot.c		start, stop, messages
 *	move_slot_load.c	one install: files to the device, and back
 *	move_slot_page.c	what consumers see: page, locks, texts
 */
#ifndef WEIR_MOVE_SLOT_PART_H
#define WEIR_MOVE_SLOT_PART_H

#include "common/content.h"
#include "common/devpage.h"
#include "common/gpu.h"
#include "common/loop.h"
#include "pipes/move_slot.h"
#include "pipes/msg.h"
#include "pipes/store.h"

#define PAGE_OWNER_MS 10000
#define PAGE_LOOK_MS 20 /* between two tries of its lock */

struct page {
	int dirfd, fd;			/* STORE/device, and its page */
	struct devpage *p;
	unsigned char uuid[GPU_UUID_LEN];
};

struct devslot {
	uint32_t number;
	void *memory;
	unsigned char handle[GPU_HANDLE_LEN];	/* of it */
	uint64_t room;			/* bytes of it */
	uint64_t version;		/* installed; 0: none */
	uint64_t bytes;			/* of that */
};

/* A run of bytes that is digested as one: a tensor, or a carried file, which
 * is hashed here and stays on the host. */
struct object {
	enum content_kind kind;
	uint32_t file;			/* of the slot's record */
	uint64_t from, bytes;		/* there */
	uint64_t at;			/* on the device */
	struct slice name;		/* in load.names, once all are there */
	size_t name_at;
};

/* Where a walk through all objects is, chunk by chunk. */
struct cursor {
	uint32_t object;
	uint64_t byte;
};

struct chunk {
	char *p;
	bool is_pinned;
	void *stream;
	struct cursor at;		/* what is in it */
	size_t n;
};

struct load {
	struct store_slot record;
	int *fd;			/* of each of its files */
	struct devslot *slot;
	struct object *object;
	uint32_t n, cap;
	struct buf names, text;		/* text: of its tensors */
	uint32_t ntensors;
	uint64_t bytes;			/* on the device */
	struct cursor next;
	unsigned turn, on_the_way;	/* chunks; copies back */
	struct content content;
	struct digest_state leaf;
	struct buf leaves;		/* of the object being hashed */
};

/* All of a load that is {0} may be freed. */
int load_open(struct load *l, const struct store *s, int dirfd,
	      uint64_t version);
void load_release(struct load *l);
/* 1: one chunk further; 0: all copies are on the device; -E_*. */
int load_copy(struct load *l, struct chunk chunk[2]);
/* The same of what is on the device; then *out is its content digest. */
int load_hash(struct load *l, struct chunk chunk[2], struct digest *out);

/* Waits up to PAGE_OWNER_MS for an owner that is ending. */
int page_open(struct page *p, int store, const unsigned char uuid[]);
/* It must show nothing any more. */
void page_close(struct page *p);
/* 0; -E_AGAIN, unlogged: a consumer has it. */
int page_lock(struct page *p, uint32_t slot);
void page_unlock(struct page *p, uint32_t slot);
/* What is in the slot from now on; durable enough for this boot. */
int page_describe(struct page *p, const struct load *l);
/* s NULL: nothing. */
void page_show(struct page *p, const struct devslot *s);

#endif
