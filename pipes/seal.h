/*
 * seal.h - from "all bytes are here" to a version that may be served.
 *
 *	cover	every byte of every file has arrived, if that is known of
 *		buckets; else all is read
 *	heads	each shard's own header is the one that was begun, and is
 *		a safetensors header for exactly this file
 *	fold	leaf digests, or those of what is there, to the received
 *		content digest
 *	reread	if asked: the slot is hashed again, before post-load
 *	post	--post-load in the slot: a command, or what is built in
 *		(quant.h); installed digest afterwards
 *	sync	everything durable
 *
 * Runs in a thread of the pool, in one go, looking at *cancel; the record is
 * the owner's to write afterwards.  Failures are logged with file or tensor.
 */
#ifndef WEIR_SEAL_H
#define WEIR_SEAL_H

#include "pipes/fill.h"

struct seal {
	const struct store *store;
	struct store_files *files;	/* NULL: check an old slot.  Let go of
					 * by post-load: what it replaces must
					 * not be held open, or its space would
					 * not come back */
	const struct fill *fill;		/* NULL: nothing is known of what
					 * is there; all of it is read */
	const char *post_load;		/* command or name; NULL: none */
	const char *engine;			/* name, for WEIR_ENGINE */
	int64_t post_load_ms;			/* its deadline */
	bool reread;
	const atomic_bool *cancel;
	struct store_slot *slot;	/* received, installed, proof set */
};

int seal_run(const struct seal *s);
/* A slot sealed in an earlier life: hashed again and compared with its
 * record.  -E_DATA if it is not what it was. */
int seal_check(const struct seal *s);

/* All files below a directory, in path order.  {0} is none. */
struct seal_tree {
	char **path;
	uint32_t n, cap;
	int dirfd;
};

/* -E_*, logged: then as well it is to be released. */
int seal_tree_list(struct seal_tree *t, int dirfd);
void seal_tree_release(struct seal_tree *t);

/* XXH3-128 over (path, NUL, size as u64 LE, file digest) in path order, a
 * file's digest being that over its leaves. */
int seal_tree_digest(int dirfd, const atomic_bool *cancel, struct digest *out);
/* One file of it. */
void seal_tree_fold(struct digest_state *s, const char *path, uint64_t bytes,
		    const struct digest *file);

#endif
