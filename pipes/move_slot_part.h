/*
 * move_slot_part.h - what the files of weir-move-slot share; nobody else
 * includes this.
 *
 *	move_slot.c		start, stop, messages
 *	move_slot_list.c	one install: what there is to load
 *	move_slot_load.c	its files to the device, and back
 *	move_slot_hash.c	hashes on the device itself
 *	move_slot_page.c	what consumers see: page, locks, texts
 */
#ifndef WEIR_MOVE_SLOT_PART_H
#define WEIR_MOVE_SLOT_PART_H

#include "common/content.h"
#include "common/devpage.h"
#include "common/gpu.h"
#include "common/leafsum.h"
#include "common/loop.h"
#include "pipes/move_slot.h"
#include "pipes/msg.h"
#include "pipes/seal.h"
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

struct load_file {
	const char *path;		/* of the record, or of the tree */
	uint64_t bytes;
};

/* What is digested as one: a tensor or a carried file; after post-load, whose
 * digest is that of a tree, each file. */
struct object {
	enum content_kind kind;
	uint64_t bytes;
	struct slice name;		/* in load.names, once all are there */
	size_t name_at;
};

/* Bytes of an object that stand together.  Tensors alone are on the device:
 * all else is hashed where it is. */
struct extent {
	uint32_t object, file;
	bool is_on_device;
	uint64_t from, bytes;		/* in the file */
	uint64_t start;			/* in the object */
	uint64_t at;			/* on the device */
};

/* Where a walk through all extents is, chunk by chunk. */
struct cursor {
	uint32_t extent;
	uint64_t byte;
};

struct chunk {
	char *p;
	bool is_pinned;
	void *stream;
	struct cursor at;		/* what is in it */
	size_t n;
	const struct digest *known;	/* a leaf, which is not in it */
};

/* Code of leafsum.h that the device can run.  {0}: it has none. */
struct hasher {
	void *code, *sums, *chains;
	unsigned char secret[DIGEST_SECRET];
};

struct load {
	struct store_slot record;
	int dirfd;
	bool is_made;			/* by post-load, whatever came */
	struct seal_tree tree;		/* of what is made */
	struct load_file *file;
	uint32_t nfiles;
	int fd;				/* of the last one that was read */
	uint32_t fd_file;
	struct devslot *slot;
	struct object *object;
	uint32_t n, cap;
	struct extent *extent;		/* by object and start */
	uint32_t nextents, extents_cap;
	struct buf names, text;		/* text: of its tensors */
	uint32_t ntensors;
	uint64_t bytes;			/* on the device */
	struct cursor next;
	unsigned turn, on_the_way;	/* chunks; copies back */
	struct content content;		/* of what was received */
	struct digest_state whole;	/* of what is made */
	struct digest_state leaf;
	struct buf leaves;		/* of the object being hashed */
	struct cursor ahead;		/* of the hasher */
	struct buf known;		/* leaves that it hashed, in order */
	uint32_t nused;			/* of those */
};

#define LOAD_NONE { .dirfd = -1, .fd = -1 }

/* A LOAD_NONE may be released, and is one afterwards. */
int load_open(struct load *l, const struct store *s, int dirfd,
	      uint64_t version);
void load_release(struct load *l);
/* 1: one chunk further; 0: all copies are on the device; -E_*. */
int load_copy(struct load *l, struct chunk chunk[2]);
/* The same of what is on the device; then *out is what the record has to say
 * of it: the content digest, or that of a tree. */
int load_hash(struct load *l, struct chunk chunk[2], struct digest *out);

/* Without code that can be used, bytes are copied back; said if that should
 * not be so.  c, of any chunk that is idle. */
void hasher_open(struct hasher *h, struct chunk *c);
void hasher_close(struct hasher *h);
/* 1: some more leaves are known; 0: the device has no more to do; -E_*. */
int hasher_step(const struct hasher *h, struct load *l, struct chunk *c);
/* Bytes of the leaf at the cursor, if a hasher would take it; else 0. */
uint64_t hasher_leaf(const struct load *l, const struct cursor *at);

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
