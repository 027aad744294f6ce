/*
 * recfile.h - a file of records from msg.def: the plan, the registry's and
 * the store's durable facts, the verdict.
 *
 *	"weir-rec 1\n"  then per record:
 *	u32 LE length, the first 8 bytes of the frame's digest, the frame
 *
 * A reader meets a torn tail, a changed bit or a frame that is no message as
 * -E_DATA, one line with file and offset.  Files are
 * written whole (io_replace, io_create_once) or streamed to a temp name and
 * linked (the plan).
 */
#ifndef WEIR_RECFILE_H
#define WEIR_RECFILE_H

#include "pipes/msg.h"

#define RECFILE_MAGIC "weir-rec 1\n"

/* Starts b with the magic if empty, appends one record. */
int rec_append(struct buf *b, const struct msg *m);
/* The record of a packed frame alone, for files that are streamed. */
void rec_append_frame(struct buf *b, struct slice frame);

/* Sequential or random reading of a file mapped or held in memory. */
struct rec_reader {
	const char *name;		/* for messages; of one opened: owned */
	struct slice all;		/* whole content */
	size_t off;			/* of the next record */
	struct buf own;			/* content, when it was read */
	void *map;			/* or mapped */
};
/* -E_NOINPUT, not logged, if there is no such file. */
int rec_open(struct rec_reader *r, int dirfd, const char *name, size_t max);
/* Maps instead of reading (large plans cost no anonymous memory). */
int rec_open_map(struct rec_reader *r, int dirfd, const char *name);
/* What was read already. */
int rec_open_take(struct rec_reader *r, const char *name, struct buf *content);
void rec_close(struct rec_reader *r);
/* 1, or 0 at the end.  frame borrows the file. */
int rec_next_frame(struct rec_reader *r, struct slice *frame);
int rec_next(struct rec_reader *r, struct msg *m, struct msg_arena *a);
/* Reads a file that holds exactly one record of this type.  m borrows r. */
int rec_read_one(struct rec_reader *r, int dirfd, const char *name,
		 enum msg_type type, struct msg *m, struct msg_arena *a);

#endif
