/*
 * planfile.h - a finished plan, opened for use by any stage.
 *
 * RUN/plan.weir appears whole or not at all, so a stage that has heard the
 * `end` record over its link opens the same file, checks that its own end
 * record is equal (digest over all frames before it), and from then on holds
 * the plan without holding its tensors in memory: the file is mapped, and of
 * buckets only the offsets are kept (24 bytes each, and 8 for each of several
 * source ranks).  A restarted stage does just the same; nothing is replayed.
 *
 * With several source ranks worker r of every engine receives rank r, through
 * a receiver of its own.
 *
 * Order is checked here once: version, files, engines, buckets, end; ids
 * count from 0; sums agree.  -E_DATA naming record and file otherwise.
 */
#ifndef WEIR_PLANFILE_H
#define WEIR_PLANFILE_H

#include "pipes/msg.h"
#include "pipes/recfile.h"

#define PLAN_FILE "plan.weir"	/* in a run directory */

struct plan_rank {			/* a source rank; its files are adjacent */
	char *source;			/* directory */
	uint32_t first, files;		/* file ids */
	uint64_t bytes;			/* of its files: what its workers receive */
	uint64_t tensors;		/* as many as every other rank's */
};

struct plan_file {			/* a copy of m_file, path terminated */
	char *path;
	uint32_t rank;
	uint64_t bytes, header, dev, ino;
	int64_t mtime_ns;
	struct digest digest;
	enum file_kind kind;
};

struct plan_receiver {			/* workers that share an endpoint */
	char *endpoint;
	uint32_t rank;			/* whose files it receives */
	uint32_t engine, worker, workers; /* engine id, first worker, count */
};

struct plan_engine {
	char *name, *url, *pull;	/* those may be empty */
	enum engine_kind kind;
	uint32_t workers;
	uint32_t first_receiver, receivers;	/* into plan->receiver */
};

struct plan_bucket {
	uint64_t off;			/* of its record in the file */
	uint64_t bytes;			/* of the largest rank: what credit is for */
	bool exclusive;
};

struct plan {
	struct rec_reader rec;		/* mapped */
	char *model, *transport;
	char *disk_dir;			/* of version directories; or "" */
	enum run_kind kind;
	uint64_t base;			/* not RUN_PUBLISH: whose content */
	struct digest structure, content;
	struct m_share *shares;		/* of content; as in a decision */
	char **place;			/* where it may be, but the sources: */
	uint32_t nshares, nplaces;	/* a directory for each rank, and again */
	struct plan_rank *rank;
	struct plan_file *file;
	struct plan_engine *engine;
	struct plan_receiver *receiver;
	struct plan_bucket *bucket;
	uint64_t *share;		/* see plan_share(); NULL for one rank */
	uint32_t nranks, nfiles, nengines, nreceivers, nbuckets;
	uint64_t tensors, bytes;	/* of a rank; what one engine receives */
	struct m_end end;
};

/* dirfd/name: usually a run directory and PLAN_FILE.  -E_NOINPUT, unlogged
 * (the caller knows the directory's name): there is none. */
int plan_open(struct plan *p, int dirfd, const char *name);
void plan_close(struct plan *p);
/* Engines of a staged kind: they stand first (I6). */
uint32_t plan_staged(const struct plan *p);
/* Bytes of a bucket that are one rank's, and all of them. */
uint64_t plan_share(const struct plan *p, uint32_t b, uint32_t rank);
uint64_t plan_bucket_bytes(const struct plan *p, uint32_t b);
/* Decodes bucket b again; m borrows p and a. */
int plan_bucket(const struct plan *p, uint32_t b, struct msg *m,
		struct msg_arena *a);
/* Name of the largest tensor of a bucket, for I8's message.  "" if none. */
int plan_largest_tensor(const struct plan *p, uint32_t b, char *out,
			size_t size, uint64_t *bytes);
/* Adds what a bucket carries, for a message: the one tensor or file, or the
 * first and the last of several. */
int plan_bucket_text(const struct plan *p, uint32_t b, struct buf *out);

#endif
